//! The pod status that a kubelet reports, and the patch that writes it.
//!
//! Invariant: conditions of other writers are kept, and a transition time changes only with its status.
//! Must not depend on the pod's lifecycle.

use jiff::Timestamp;
use muster_clock as clock;
use muster_playground_client::conditions;
use muster_playground_client::untyped::UntypedPod;
use serde_json::{Value, json};

/// The condition that records since when the pod's rendezvous is complete: a restarted kubelet reads it back.
pub(super) const RENDEZVOUS_COMPLETE: &str = "playground.muster.dev/Met";

/// How a container terminated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Termination {
    pub(super) started_at: Timestamp,
    pub(super) finished_at: Timestamp,
    pub(super) exit_code: i32,
}

/// The state of the containers; it is the same for all containers of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ContainerState {
    /// They never existed.
    None,
    Waiting(&'static str),
    Running(Timestamp),
    Terminated(Termination),
}

/// The status to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredStatus {
    pub(super) phase: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
    /// When the node admitted the pod.
    pub(super) admitted: Option<Timestamp>,
    pub(super) containers: ContainerState,
    pub(super) ready: bool,
    pub(super) restarts: i64,
    /// How the containers terminated before they were restarted.
    pub(super) last: Option<Termination>,
    /// When the rendezvous was complete.
    pub(super) rendezvous_at: Option<Timestamp>,
}

impl DesiredStatus {
    /// The status of a pod that the node rejects.
    pub(super) fn rejected(reason: &str, message: &str) -> Self {
        Self {
            phase: "Failed",
            reason: reason.to_owned(),
            message: message.to_owned(),
            admitted: None,
            containers: ContainerState::None,
            ready: false,
            restarts: 0,
            last: None,
            rendezvous_at: None,
        }
    }

    /// The patch of the pod's status, for the resourceVersion that was observed.
    pub(super) fn patch(&self, pod: &UntypedPod, addresses: &Addresses, now: Timestamp) -> Value {
        let none_if_empty = |text: &str| if text.is_empty() { Value::Null } else { json!(text) };
        let mut status = json!({
            "phase": self.phase,
            "reason": none_if_empty(&self.reason),
            "message": none_if_empty(&self.message),
        });
        if let Some(admitted) = self.admitted {
            status["startTime"] = json!(clock::seconds(admitted));
            status["hostIP"] = json!(addresses.host);
            status["hostIPs"] = json!([{"ip": addresses.host}]);
            status["conditions"] = self.conditions(pod, now);
            status["containerStatuses"] = self.container_statuses(pod);
        }
        if matches!(self.containers, ContainerState::Running(_)) && !pod.status["podIP"].is_string() {
            status["podIP"] = json!(addresses.pod);
            status["podIPs"] = json!([{"ip": addresses.pod}]);
        }
        json!({
            "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
            "status": status,
        })
    }

    fn conditions(&self, pod: &UntypedPod, now: Timestamp) -> Value {
        let mut conditions = pod.status["conditions"].as_array().cloned().unwrap_or_default();
        let not_ready = match self.phase {
            "Succeeded" => "PodCompleted",
            "Failed" => "PodFailed",
            _ => "ContainersNotReady",
        };
        let has_sandbox = matches!(self.containers, ContainerState::Running(_)) || self.last.is_some();
        let initialized_reason = if self.phase == "Succeeded" { "PodCompleted" } else { "" };
        for (kind, holds, reason) in [
            ("PodReadyToStartContainers", has_sandbox, ""),
            ("Initialized", true, initialized_reason),
            ("Ready", self.ready, if self.ready { "" } else { not_ready }),
            ("ContainersReady", self.ready, if self.ready { "" } else { not_ready }),
        ] {
            set(&mut conditions, kind, holds, reason, now);
        }
        if let Some(rendezvous_at) = self.rendezvous_at {
            set(&mut conditions, RENDEZVOUS_COMPLETE, true, "", rendezvous_at);
        }
        Value::Array(conditions)
    }

    fn container_statuses(&self, pod: &UntypedPod) -> Value {
        let containers = pod.spec["containers"].as_array().into_iter().flatten();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let statuses = containers.map(|container| {
            let name = container["name"].as_str().unwrap_or_default();
            let id = format!("playground://{uid}/{name}/{}", self.restarts);
            let running = matches!(self.containers, ContainerState::Running(_));
            let mut status = json!({
                "name": name, "image": container["image"], "imageID": "", "restartCount": self.restarts,
                "ready": self.ready, "started": running, "state": self.state(&id),
                "lastState": self.last.as_ref().map_or_else(|| json!({}), |last| terminated(last, &id)),
            });
            if !matches!(self.containers, ContainerState::Waiting("ContainerCreating") | ContainerState::None) {
                status["containerID"] = json!(id);
            }
            status
        });
        Value::Array(statuses.collect())
    }

    fn state(&self, id: &str) -> Value {
        match &self.containers {
            ContainerState::None => json!({"waiting": {"reason": "ContainerCreating"}}),
            ContainerState::Waiting(reason) => json!({"waiting": {"reason": reason}}),
            ContainerState::Running(since) => json!({"running": {"startedAt": clock::seconds(*since)}}),
            ContainerState::Terminated(termination) => terminated(termination, id),
        }
    }
}

/// The addresses of a pod.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) host: String,
    pub(super) pod: String,
}

fn terminated(termination: &Termination, id: &str) -> Value {
    json!({"terminated": {
        "exitCode": termination.exit_code, "reason": if termination.exit_code == 0 { "Completed" } else { "Error" },
        "startedAt": clock::seconds(termination.started_at), "finishedAt": clock::seconds(termination.finished_at), "containerID": id,
    }})
}

fn set(conditions: &mut Vec<Value>, kind: &str, holds: bool, reason: &str, now: Timestamp) {
    let status = if holds { "True" } else { "False" };
    let mut condition = json!({"type": kind, "status": status, "lastProbeTime": null});
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
    }
    conditions::set(conditions, condition, now);
}
