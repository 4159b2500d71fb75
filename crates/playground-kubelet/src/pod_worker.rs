//! The pod worker: admits pods, reports their status and deletes them when they have terminated.
//!
//! A pod is synced when it changes or its timer fires. The next request follows from the pod's state alone, so that a
//! lost or repeated event does no harm.

use std::sync::Arc;

use jiff::Timestamp;
use muster_playground_client::untyped::{self, UntypedPod};
use muster_reflector::{Key, key_of};
use serde_json::Value;

use super::admission::{NodeInfo, PodRequirements, Rejection};
use super::behavior::Behavior;
use super::desired_status::{Addresses, DesiredStatus};
use super::node_objects::{host_address, pod_address};
use super::pod_lifecycle::PodLifecycle;
use super::state_machine::{ApiRequest, Attempt, Operation, Outcome, PodState, StateMachine, Timer};
use super::volumes::claim_volumes;

const INVALID_ANNOTATION: &str = "InvalidPlaygroundAnnotation";

impl StateMachine {
    /// Stores the observed state of a pod.
    pub(super) fn observe_pod(&mut self, pod: Arc<UntypedPod>) {
        let Some(&node) = self.by_name.get(untyped::node_name(&pod)) else { return };
        let key = key_of(&*pod);
        match self.pods.get_mut(&key) {
            Some(state) if untyped::uid(&state.observed) == untyped::uid(&pod) => {
                // A response and a watch event may arrive in either order.
                if untyped::is_up_to_date(&pod, &state.observed) {
                    state.observed = pod;
                }
            }
            _ => {
                self.forget_pod(&key);
                self.nodes[node].pods.insert(key.clone());
                let addresses = self.allocate_addresses(node);
                self.pods.insert(key.clone(), PodState::new(pod, node, addresses));
            }
        }
        self.dirty.insert(key);
    }

    fn allocate_addresses(&mut self, node: usize) -> Addresses {
        let given = &mut self.nodes[node].addresses_allocated;
        *given += 1;
        Addresses { host: host_address(node), pod: pod_address(node, *given) }
    }

    /// Removes a deleted pod with its timer.
    pub(super) fn forget_pod(&mut self, key: &Key) {
        self.set_timer(key, None);
        self.stop_mounting(key);
        if let Some(pod) = self.pods.remove(key) {
            self.nodes[pod.node].pods.remove(key);
            if let Some(lifecycle) = &pod.lifecycle {
                self.rendezvous.leave(key, lifecycle);
            }
        }
    }

    /// Sets the time of the next sync if no event comes first.
    pub(super) fn set_timer(&mut self, key: &Key, time: Option<Timestamp>) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let before = std::mem::replace(&mut pod.timer_due, time);
        if before == time {
            return;
        }
        if let Some(before) = before {
            self.timers.remove(&(before, Timer::Pod(key.clone())));
        }
        if let Some(time) = time {
            self.timers.insert((time, Timer::Pod(key.clone())));
        }
    }

    /// Syncs a pod: advances its lifecycle and returns the next request.
    pub(super) fn sync_pod(&mut self, key: &Key, now: Timestamp) -> Option<ApiRequest> {
        let pod = self.pods.get(key)?;
        if !self.nodes[pod.node].alive {
            return None;
        }
        let lifecycle = pod.lifecycle.is_none().then(|| self.decide_admission(key, now));
        let pod = self.pods.get_mut(key)?;
        if let Some(lifecycle) = lifecycle {
            let lifecycle = lifecycle?;
            self.rendezvous.join(key, &lifecycle);
            pod.set_lifecycle(lifecycle);
        }
        pod.advance(now);
        let report_due = self.mount(key, now);
        self.complete_rendezvous(key, now);
        let pod = self.pods.get_mut(key)?;
        let request = pod.next_request(key, now);
        let times = [
            pod.lifecycle.as_ref().and_then(PodLifecycle::next_change),
            pod.attempt.due.filter(|_| !pod.attempt.in_flight),
            report_due,
        ];
        self.set_timer(key, times.into_iter().flatten().min());
        request
    }

    /// Decides admission of a pod that the kubelet sees for the first time.
    fn decide_admission(&mut self, key: &Key, now: Timestamp) -> Option<PodLifecycle> {
        let pod = self.pods.get(key)?;
        if untyped::is_finished(&pod.observed) {
            return Some(PodLifecycle::terminated(None, now));
        }
        let rejected = |rejection: &Rejection| {
            let message = format!("Pod was rejected: {}", rejection.message);
            PodLifecycle::terminated(Some(DesiredStatus::rejected(&rejection.reason, &message)), now)
        };
        let behavior = match Behavior::read(&pod.observed, self.settings.speed) {
            Ok(behavior) => behavior,
            Err(why) => {
                return Some(PodLifecycle::terminated(Some(DesiredStatus::rejected(INVALID_ANNOTATION, &why)), now));
            }
        };
        let requirements = match PodRequirements::read(&pod.observed) {
            Ok(requirements) => requirements,
            Err(rejection) => return Some(rejected(&rejection)),
        };
        let lifecycle = if untyped::phase(&pod.observed) == "Running" {
            PodLifecycle::resumed(behavior, &pod.observed, now)
        } else if pod.observed.metadata.deletion_timestamp.is_some() {
            PodLifecycle::admitted(behavior, now)
        } else {
            let node = &self.nodes[pod.node];
            let others = node.pods.iter().filter(|other| *other != key).filter_map(|other| self.pods.get(other));
            let others = others.filter(|other| other.lifecycle.as_ref().is_some_and(PodLifecycle::holds_resources));
            let others = others.filter_map(|other| other.requirements.as_ref());
            let node_info = NodeInfo {
                name: &node.shape.name,
                labels: &node.labels,
                taints: &node.taints,
                allocatable: &node.shape.allocatable_units,
            };
            match requirements.admit(&node_info, others) {
                Ok(()) if !claim_volumes(&pod.observed).is_empty() => PodLifecycle::mounting(behavior, now),
                Ok(()) => PodLifecycle::admitted(behavior, now),
                Err(rejection) => rejected(&rejection),
            }
        };
        self.pods.get_mut(key)?.requirements = Some(requirements);
        Some(lifecycle)
    }

    pub(super) fn on_status_done(&mut self, key: &Key, uid: &str, outcome: Outcome, now: Timestamp) {
        let Some(pod) =
            self.pods.get_mut(key).filter(|pod| untyped::uid(&pod.observed) == uid && pod.attempt.in_flight)
        else {
            return;
        };
        pod.attempt.in_flight = false;
        let in_flight_status = pod.in_flight_status.take();
        match outcome {
            Outcome::Done(answer) => {
                pod.confirmed_status = in_flight_status;
                pod.attempt = Attempt::default();
                if let Some(answer) = answer {
                    self.observe_pod(answer);
                }
            }
            Outcome::Gone | Outcome::Retry => drop(pod.attempt.failed(now)),
        }
        self.dirty.insert(key.clone());
    }

    pub(super) fn on_deletion_done(&mut self, key: &Key, uid: &str, outcome: &Outcome, now: Timestamp) {
        let Some(pod) =
            self.pods.get_mut(key).filter(|pod| untyped::uid(&pod.observed) == uid && pod.attempt.in_flight)
        else {
            return;
        };
        pod.attempt.in_flight = false;
        match outcome {
            // The watch reports the deletion; finalizers may delay it.
            Outcome::Done(_) | Outcome::Gone => pod.deletion_accepted = true,
            Outcome::Retry => drop(pod.attempt.failed(now)),
        }
        self.dirty.insert(key.clone());
    }
}

impl PodState {
    fn new(observed: Arc<UntypedPod>, node: usize, addresses: Addresses) -> Self {
        Self {
            observed,
            node,
            lifecycle: None,
            requirements: None,
            addresses,
            confirmed_status: None,
            in_flight_status: None,
            attempt: Attempt::default(),
            deletion_accepted: false,
            mount_report: None,
            timer_due: None,
        }
    }

    /// The status of a running pod was already written before the kubelet restarted.
    fn set_lifecycle(&mut self, lifecycle: PodLifecycle) {
        if untyped::phase(&self.observed) == "Running" {
            self.confirmed_status = lifecycle.status();
        }
        self.lifecycle = Some(lifecycle);
    }

    /// Advances the lifecycle by time, external termination and deletion.
    fn advance(&mut self, now: Timestamp) {
        let Some(lifecycle) = &mut self.lifecycle else { return };
        lifecycle.step(now);
        if untyped::is_finished(&self.observed) && !lifecycle.is_terminated() {
            lifecycle.end();
        }
        if self.observed.metadata.deletion_timestamp.is_some() {
            let grace_seconds = self.observed.metadata.deletion_grace_period_seconds.unwrap_or_default();
            lifecycle.stop(grace_seconds.saturating_mul(1000), now);
            lifecycle.step(now);
        }
    }

    fn next_request(&mut self, key: &Key, now: Timestamp) -> Option<ApiRequest> {
        if self.attempt.in_flight || self.attempt.due.is_some_and(|due| due > now) {
            return None;
        }
        // Cleared even if there is nothing left to do, or the timer would fire forever.
        self.attempt.due = None;
        let uid = untyped::uid(&self.observed).to_owned();
        if let Some(status) = self.lifecycle.as_ref()?.status().filter(|status| self.is_unreported(status)) {
            self.attempt.in_flight = true;
            let body = status.patch(&self.observed, &self.addresses, now);
            self.in_flight_status = Some(status);
            return Some(ApiRequest { operation: Operation::PatchStatus(key.clone(), uid), body });
        }
        let terminated = self.lifecycle.as_ref().is_some_and(PodLifecycle::is_terminated);
        if terminated && !self.deletion_accepted && self.observed.metadata.deletion_timestamp.is_some() {
            self.attempt.in_flight = true;
            return Some(ApiRequest { operation: Operation::DeletePod(key.clone(), uid), body: Value::Null });
        }
        None
    }

    /// Whether the API does not show this status yet.
    fn is_unreported(&self, status: &DesiredStatus) -> bool {
        let shown = untyped::phase(&self.observed) == status.phase
            && (status.admitted.is_none() || untyped::is_true(&self.observed, "Ready") == status.ready);
        !shown || self.confirmed_status.as_ref() != Some(status)
    }
}
