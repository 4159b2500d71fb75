//! The measured schedulers: kube-scheduler, Muster, and a null binder. Each runs in its own process with the admin's
//! kubeconfig, so that the server applies the same limits to all.

use anyhow::Context;
use clap::ValueEnum;
use serde::Serialize;

use super::cases::Case;
use super::plane::Plane;
use crate::bench::null_binder::NULL_BINDER;
use crate::bench::process::Process;

/// A scheduler, or the null binder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Contestant {
    /// Kubernetes' own, of the version of the control plane.
    KubeScheduler,
    /// `muster run`.
    Muster,
    /// Binds round robin: an upper bound for the server.
    NullBinder,
}

/// All of them, in the order in which they are measured.
pub(crate) const ALL: [Contestant; 3] = [Contestant::KubeScheduler, Contestant::Muster, Contestant::NullBinder];

impl Contestant {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "kube-scheduler",
            Self::Muster => "muster",
            Self::NullBinder => "null-binder",
        }
    }

    /// The `schedulerName` of its pods.
    pub(crate) fn scheduler_name(self) -> &'static str {
        match self {
            Self::KubeScheduler => "default-scheduler",
            Self::Muster => muster_api::keys::SCHEDULER_NAME,
            Self::NullBinder => NULL_BINDER,
        }
    }

    /// Starts it on a control plane, with what the case needs.
    pub(crate) fn start(self, plane: &Plane, case: Case) -> anyhow::Result<Process> {
        let kubeconfig = plane.kubeconfig();
        let kubeconfig = kubeconfig.to_str().context("a folder for the control plane with a UTF-8 name")?;
        match self {
            Self::KubeScheduler => kube_scheduler(plane, kubeconfig, case.gate()),
            Self::Muster => {
                let flags = ["--leader-elect=false", "--listen=127.0.0.1:0", "--log-level=warn", "--log-format=text"];
                Process::start_muster(&[&["--kubeconfig", kubeconfig], &flags[..]].concat())
            }
            Self::NullBinder => Process::start(&["bench", "null-binder", "--kubeconfig", kubeconfig]),
        }
    }
}

/// As a stock cluster runs it, but with native gangs, and without client-side rate limits, which would be measured
/// instead.
fn kube_scheduler(plane: &Plane, kubeconfig: &str, gate: Option<&str>) -> anyhow::Result<Process> {
    let config = serde_json::json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": kubeconfig, "qps": 5000, "burst": 10000},
        "leaderElection": {"leaderElect": false},
    });
    let file = plane.file("bench-kube-scheduler.json");
    std::fs::write(&file, config.to_string()).with_context(|| format!("writing {}", file.display()))?;
    let config = format!("--config={}", file.display());
    let gates: Vec<&str> = ["GenericWorkload=true"].into_iter().chain(gate).collect();
    let gates = format!("--feature-gates={}", gates.join(","));
    let arguments = ["kube-scheduler", &config, &gates, "--secure-port=0"];
    Process::start_program(plane.program(), &arguments, &plane.file("bench-kube-scheduler.log"))
}
