//! Pods that wait for their volumes: they start when everything is bound, attached and accessible.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use muster_playground_client::untyped;
use muster_reflector::Key;

use super::pod_lifecycle::{PodLifecycle, later};
use super::state_machine::{PodState, StateMachine};
use super::volumes::{Obstacle, claim_volumes};

/// How long a kubelet waits until it reports volumes that are not attached, and until it reports anything again.
const REPORT_EVERY_MS: i64 = 123_000;

/// An event about a pod.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodEvent {
    pub(super) pod: ObjectReference,
    pub(super) message: String,
}

impl StateMachine {
    /// Starts a pod that waits for its volumes if they can be mounted now. Returns when there is something to report.
    pub(super) fn mount(&mut self, key: &Key, now: Timestamp) -> Option<Timestamp> {
        let pod = self.pods.get_mut(key)?;
        if !pod.lifecycle.as_ref().is_some_and(PodLifecycle::is_mounting) {
            return None;
        }
        let volumes = claim_volumes(&pod.observed);
        let node = &self.nodes[pod.node];
        match self.volumes.check(&pod.observed, &volumes, &node.shape.name, &node.labels) {
            Ok(()) => {
                self.volumes.leave(key, &volumes);
                pod.lifecycle.as_mut()?.mounted(now);
                None
            }
            Err(obstacle) => {
                self.volumes.wait(key, &volumes);
                let (due, message) = pod.next_report(&obstacle, now)?;
                if due > now {
                    return Some(due);
                }
                pod.mount_report = Some((now, message.clone()));
                self.events.push(PodEvent { pod: pod.reference(), message });
                Some(later(now, REPORT_EVERY_MS))
            }
        }
    }

    /// Removes a pod from those that wait for volumes.
    pub(super) fn stop_mounting(&mut self, key: &Key) {
        if let Some(pod) = self.pods.get(key) {
            self.volumes.leave(key, &claim_volumes(&pod.observed));
        }
    }

    /// The events since the last call.
    pub(super) fn take_events(&mut self) -> Vec<PodEvent> {
        std::mem::take(&mut self.events)
    }
}

impl PodState {
    /// What to report next, and when: a new failure at once, a known one again after a while.
    fn next_report(&self, obstacle: &Obstacle, now: Timestamp) -> Option<(Timestamp, String)> {
        let (message, is_slow) = match obstacle {
            Obstacle::Unknown => return None,
            Obstacle::Failed(message) => (message, false),
            Obstacle::Slow(message) => (message, true),
        };
        let due = match &self.mount_report {
            Some((time, known)) if known == message => later(*time, REPORT_EVERY_MS),
            Some((time, _)) if is_slow => later(*time, REPORT_EVERY_MS),
            None if is_slow => later(self.lifecycle.as_ref()?.admitted_at(), REPORT_EVERY_MS),
            _ => now,
        };
        Some((due, message.clone()))
    }

    fn reference(&self) -> ObjectReference {
        let metadata = &self.observed.metadata;
        ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: metadata.namespace.clone(),
            name: metadata.name.clone(),
            uid: Some(untyped::uid(&self.observed).to_owned()),
            ..ObjectReference::default()
        }
    }
}
