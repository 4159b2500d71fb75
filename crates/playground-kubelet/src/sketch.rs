//! What a kubelet wants a pod's status to say, and the patch that says it.
//!
//! Invariant: conditions that others keep are left as they are, and a time moves only with its status.
//! It must not know why the pod is where it is.

use jiff::Timestamp;
use muster_determinism::clock;
use muster_playground_client::conditions;
use muster_playground_client::seen::SeenPod;
use serde_json::{Value, json};

/// The condition that says since when a pod works together with those that it had to meet: a kubelet that starts again
/// finds it there.
pub(super) const MET: &str = "playground.muster.dev/Met";

/// How a container ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ending {
    pub(super) began: Timestamp,
    pub(super) ended: Timestamp,
    pub(super) exit_code: i32,
}

/// What the containers do; all of a pod do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Containers {
    /// They never were.
    None,
    Waiting(&'static str),
    Running(Timestamp),
    Ended(Ending),
}

/// What a status should say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Sketch {
    pub(super) phase: &'static str,
    pub(super) reason: String,
    pub(super) message: String,
    /// When the node took the pod.
    pub(super) admitted: Option<Timestamp>,
    pub(super) containers: Containers,
    pub(super) ready: bool,
    pub(super) restarts: i64,
    /// How the containers ended before they were started again.
    pub(super) last: Option<Ending>,
    /// When it met those that it had to meet.
    pub(super) met: Option<Timestamp>,
}

impl Sketch {
    /// A pod that the node does not take.
    pub(super) fn refused(reason: &str, message: &str) -> Self {
        Self {
            phase: "Failed",
            reason: reason.to_owned(),
            message: message.to_owned(),
            admitted: None,
            containers: Containers::None,
            ready: false,
            restarts: 0,
            last: None,
            met: None,
        }
    }

    /// The change of the pod's status, for the state of the pod that was seen.
    pub(super) fn patch(&self, pod: &SeenPod, addresses: &Addresses, now: Timestamp) -> Value {
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
        if matches!(self.containers, Containers::Running(_)) && !pod.status["podIP"].is_string() {
            status["podIP"] = json!(addresses.pod);
            status["podIPs"] = json!([{"ip": addresses.pod}]);
        }
        json!({
            "metadata": {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version},
            "status": status,
        })
    }

    fn conditions(&self, pod: &SeenPod, now: Timestamp) -> Value {
        let mut conditions = pod.status["conditions"].as_array().cloned().unwrap_or_default();
        let not_ready = match self.phase {
            "Succeeded" => "PodCompleted",
            "Failed" => "PodFailed",
            _ => "ContainersNotReady",
        };
        let has_sandbox = matches!(self.containers, Containers::Running(_)) || self.last.is_some();
        let initialized_reason = if self.phase == "Succeeded" { "PodCompleted" } else { "" };
        for (kind, holds, reason) in [
            ("PodReadyToStartContainers", has_sandbox, ""),
            ("Initialized", true, initialized_reason),
            ("Ready", self.ready, if self.ready { "" } else { not_ready }),
            ("ContainersReady", self.ready, if self.ready { "" } else { not_ready }),
        ] {
            set(&mut conditions, kind, holds, reason, now);
        }
        if let Some(met) = self.met {
            set(&mut conditions, MET, true, "", met);
        }
        Value::Array(conditions)
    }

    fn container_statuses(&self, pod: &SeenPod) -> Value {
        let containers = pod.spec["containers"].as_array().into_iter().flatten();
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let statuses = containers.map(|container| {
            let name = container["name"].as_str().unwrap_or_default();
            let id = format!("playground://{uid}/{name}/{}", self.restarts);
            let running = matches!(self.containers, Containers::Running(_));
            let mut status = json!({
                "name": name, "image": container["image"], "imageID": "", "restartCount": self.restarts,
                "ready": self.ready, "started": running, "state": self.state(&id),
                "lastState": self.last.as_ref().map_or_else(|| json!({}), |last| terminated(last, &id)),
            });
            if !matches!(self.containers, Containers::Waiting("ContainerCreating") | Containers::None) {
                status["containerID"] = json!(id);
            }
            status
        });
        Value::Array(statuses.collect())
    }

    fn state(&self, id: &str) -> Value {
        match &self.containers {
            Containers::None => json!({"waiting": {"reason": "ContainerCreating"}}),
            Containers::Waiting(reason) => json!({"waiting": {"reason": reason}}),
            Containers::Running(since) => json!({"running": {"startedAt": clock::seconds(*since)}}),
            Containers::Ended(ending) => terminated(ending, id),
        }
    }
}

/// Where a pod is reached.
#[derive(Clone, Debug)]
pub(super) struct Addresses {
    pub(super) host: String,
    pub(super) pod: String,
}

fn terminated(ending: &Ending, id: &str) -> Value {
    json!({"terminated": {
        "exitCode": ending.exit_code, "reason": if ending.exit_code == 0 { "Completed" } else { "Error" },
        "startedAt": clock::seconds(ending.began), "finishedAt": clock::seconds(ending.ended), "containerID": id,
    }})
}

fn set(conditions: &mut Vec<Value>, kind: &str, holds: bool, reason: &str, now: Timestamp) {
    let status = if holds { "True" } else { "False" };
    let mut condition = json!({"type": kind, "status": status, "lastProbeTime": null});
    if !reason.is_empty() {
        condition["reason"] = json!(reason);
    }
    conditions::put(conditions, condition, now);
}
