//! What kubelets do for their nodes: registration, lease renewal, heartbeats, failure and restart.
//!
//! The lease is not renewed before the node is registered.

use jiff::Timestamp;
use muster_api::invalid::FieldPath;
use muster_api::toleration::WrittenTaint;
use muster_api::wire::Node;
use serde_json::Value;

use super::pod_lifecycle::later;
use super::state_machine::{ApiRequest, Attempt, NODE_TASKS, NodeTask, Operation, Outcome, StateMachine, Timer};

impl StateMachine {
    /// Sets when a task is due.
    pub(super) fn schedule(&mut self, node: usize, task: NodeTask, due: Option<Timestamp>) {
        let attempt = &mut self.nodes[node].tasks[task as usize];
        if let Some(before) = std::mem::replace(&mut attempt.due, due) {
            self.timers.remove(&(before, Timer::NodeTask(node, task)));
        }
        if let Some(due) = due {
            self.timers.insert((due, Timer::NodeTask(node, task)));
        }
    }

    pub(super) fn begin_task(&mut self, node: usize, task: NodeTask) -> Option<ApiRequest> {
        let attempt = &mut self.nodes[node].tasks[task as usize];
        attempt.due = None;
        let begins = !std::mem::replace(&mut attempt.in_flight, true);
        begins.then_some(ApiRequest { operation: Operation::Node(node, task), body: Value::Null })
    }

    pub(super) fn on_task_done(&mut self, node: usize, task: NodeTask, outcome: &Outcome, now: Timestamp) {
        let state = &mut self.nodes[node];
        let attempt = &mut state.tasks[task as usize];
        attempt.in_flight = false;
        if !state.alive {
            return;
        }
        if !matches!(outcome, Outcome::Done(_)) {
            let due = attempt.failed(now);
            self.schedule(node, task, Some(due));
            return;
        }
        attempt.failures = 0;
        let (renew_ms, heartbeat_ms) = (self.settings.renew_ms(), self.settings.heartbeat_ms());
        match task {
            NodeTask::Register => {
                self.nodes[node].renewed = false;
                self.schedule(node, NodeTask::RenewLease, Some(now));
                let stagger_ms = self.stagger_ms(node, heartbeat_ms);
                self.schedule(node, NodeTask::Heartbeat, Some(later(now, stagger_ms)));
            }
            NodeTask::RenewLease => {
                let first = !std::mem::replace(&mut self.nodes[node].renewed, true);
                let wait_ms = if first { self.stagger_ms(node, renew_ms) } else { renew_ms };
                self.schedule(node, NodeTask::RenewLease, Some(later(now, wait_ms)));
            }
            NodeTask::Heartbeat => self.schedule(node, NodeTask::Heartbeat, Some(later(now, heartbeat_ms))),
        }
    }

    /// Spreads the nodes over the period, so that they do not all write at once.
    fn stagger_ms(&self, node: usize, period_ms: i64) -> i64 {
        period_ms * (node as i64 + 1) / self.nodes.len() as i64
    }

    /// Stores the labels and taints of a node as the API shows them.
    pub(super) fn observe_node(&mut self, node: &Node) {
        let Some(&index) = node.metadata.name.as_ref().and_then(|name| self.by_name.get(name)) else { return };
        let state = &mut self.nodes[index];
        let labels = node.metadata.labels.clone().unwrap_or_default();
        if std::mem::replace(&mut state.labels, labels) != state.labels {
            // They determine which volumes the node can access.
            self.dirty.extend(state.pods.iter().cloned());
        }
        if let Ok(taints) = WrittenTaint::validate_all(&node.spec.taints, &FieldPath::Root("spec.taints")) {
            state.taints = taints;
        }
    }

    /// Stops a kubelet: it sends nothing more and loses all state that the API does not show.
    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].alive = false;
        for task in NODE_TASKS {
            self.schedule(node, task, None);
        }
        for key in self.nodes[node].pods.clone() {
            self.set_timer(&key, None);
            if let Some(pod) = self.pods.get_mut(&key) {
                if let Some(lifecycle) = pod.lifecycle.take() {
                    self.rendezvous.leave(&key, &lifecycle);
                }
                pod.confirmed_status = None;
                pod.in_flight_status = None;
                pod.deletion_accepted = false;
                // The request in flight will still be answered, and that answer must not be attributed to a later
                // request.
                pod.attempt = Attempt { in_flight: pod.attempt.in_flight, ..Attempt::default() };
            }
        }
    }

    /// Restarts a stopped kubelet.
    pub(super) fn revive(&mut self, node: usize, now: Timestamp) {
        let state = &mut self.nodes[node];
        if std::mem::replace(&mut state.alive, true) {
            return;
        }
        state.tasks = Default::default();
        self.dirty.extend(state.pods.iter().cloned());
        self.schedule(node, NodeTask::Register, Some(now));
    }
}
