//! A real control plane for each measurement: etcd, kube-apiserver, and initially kube-controller-manager.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::bench::process::cpu_seconds;

/// A control plane that is stopped when this is dropped.
pub(crate) struct Plane {
    program: PathBuf,
    folder: PathBuf,
}

impl Plane {
    /// Starts one with empty data and, optionally, one more feature gate; returns when it is ready.
    pub(crate) fn up(program: &Path, folder: &Path, gate: Option<&str>) -> anyhow::Result<Self> {
        let plane = Self { program: program.to_owned(), folder: folder.to_owned() };
        let more: Vec<&str> = gate.into_iter().flat_map(|gate| ["--gates", gate]).collect();
        plane.run(&[&["up", "--profile", "gates"], &more[..]].concat())?;
        Ok(plane)
    }

    /// The admin's.
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// A file in its folder, which is removed with it.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The binaries of Kubernetes in one file.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    /// The CPU time so far of etcd and the API server.
    pub(crate) fn cpu_seconds(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for name in ["etcd", "kube-apiserver"] {
            let file = self.file(&format!("{name}.pid"));
            let pid = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
            let pid = pid.trim().parse().with_context(|| format!("{}: {pid:?}", file.display()))?;
            sum += cpu_seconds(pid).with_context(|| format!("reading the CPU time of {name}, process {pid}"))?;
        }
        Ok(sum)
    }

    /// Stops the controller manager. The nodes have no kubelets and must not be tainted for it.
    pub(crate) fn stop_controllers(&self) -> anyhow::Result<()> {
        self.run(&["stop", "kube-controller-manager"])
    }

    fn run(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let [verb, rest @ ..] = arguments else { bail!("no command") };
        let mut command = Command::new(&self.program);
        command.arg(verb).arg("--folder").arg(&self.folder).args(rest).stdin(Stdio::null());
        let shown = format!("{} {}", self.program.display(), arguments.join(" "));
        let output = command.output().with_context(|| format!("starting {shown}"))?;
        if !output.status.success() {
            bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Err(error) = self.run(&["down"]) {
            eprintln!("the control plane in {} may still run: {error:#}", self.folder.display());
        }
    }
}
