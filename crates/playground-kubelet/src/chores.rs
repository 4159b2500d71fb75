//! What kubelets do for their nodes: registering, renewing leases, heartbeats, dying and coming back.
//!
//! The chores of a node follow each other: nothing is renewed before the node is registered.

use jiff::Timestamp;
use muster_api::invalid::FieldPath;
use muster_api::toleration::WrittenTaint;
use muster_api::wire::Node;
use serde_json::Value;

use super::life::later;
use super::machine::{Act, Attempt, CHORES, Chore, Machine, Outcome, Task, Timer};

impl Machine {
    /// Sets when a chore is due.
    pub(super) fn schedule(&mut self, node: usize, chore: Chore, due: Option<Timestamp>) {
        let attempt = &mut self.nodes[node].chores[chore as usize];
        if let Some(before) = std::mem::replace(&mut attempt.due, due) {
            self.timers.remove(&(before, Timer::Chore(node, chore)));
        }
        if let Some(due) = due {
            self.timers.insert((due, Timer::Chore(node, chore)));
        }
    }

    pub(super) fn begin_chore(&mut self, node: usize, chore: Chore) -> Option<Act> {
        let attempt = &mut self.nodes[node].chores[chore as usize];
        attempt.due = None;
        let begins = !std::mem::replace(&mut attempt.busy, true);
        begins.then_some(Act { task: Task::Node(node, chore), body: Value::Null })
    }

    pub(super) fn after_chore(&mut self, node: usize, chore: Chore, outcome: &Outcome, now: Timestamp) {
        let state = &mut self.nodes[node];
        let attempt = &mut state.chores[chore as usize];
        attempt.busy = false;
        if !state.alive {
            return;
        }
        if !matches!(outcome, Outcome::Done(_)) {
            let due = attempt.failed(now);
            self.schedule(node, chore, Some(due));
            return;
        }
        attempt.failures = 0;
        let (renew_ms, heartbeat_ms) = (self.settings.renew_ms(), self.settings.heartbeat_ms());
        match chore {
            Chore::Register => {
                self.nodes[node].renewed = false;
                self.schedule(node, Chore::Renew, Some(now));
                let turn_ms = self.turn_ms(node, heartbeat_ms);
                self.schedule(node, Chore::Heartbeat, Some(later(now, turn_ms)));
            }
            Chore::Renew => {
                let first = !std::mem::replace(&mut self.nodes[node].renewed, true);
                let wait_ms = if first { self.turn_ms(node, renew_ms) } else { renew_ms };
                self.schedule(node, Chore::Renew, Some(later(now, wait_ms)));
            }
            Chore::Heartbeat => self.schedule(node, Chore::Heartbeat, Some(later(now, heartbeat_ms))),
        }
    }

    /// The nodes take turns, so that they do not all write at once.
    fn turn_ms(&self, node: usize, period_ms: i64) -> i64 {
        period_ms * (node as i64 + 1) / self.nodes.len() as i64
    }

    /// Takes in what others have done to a node.
    pub(super) fn see_node(&mut self, node: &Node) {
        let Some(&index) = node.metadata.name.as_ref().and_then(|name| self.by_name.get(name)) else { return };
        let state = &mut self.nodes[index];
        state.labels = node.metadata.labels.clone().unwrap_or_default();
        if let Ok(taints) = WrittenTaint::validate_all(&node.spec.taints, &FieldPath::Root("spec.taints")) {
            state.taints = taints;
        }
    }

    /// A kubelet dies: it does nothing more and forgets everything that the API does not show.
    pub(super) fn kill(&mut self, node: usize) {
        self.nodes[node].alive = false;
        for chore in CHORES {
            self.schedule(node, chore, None);
        }
        for key in self.nodes[node].pods.clone() {
            self.wake(&key, None);
            if let Some(pod) = self.pods.get_mut(&key) {
                if let Some(life) = pod.life.take() {
                    self.meetings.leave(&key, &life);
                }
                pod.said = None;
                pod.saying = None;
                pod.removed = false;
                // A request that is under way will be answered, and its answer must not be taken for a later one's.
                pod.attempt = Attempt { busy: pod.attempt.busy, ..Attempt::default() };
            }
        }
    }

    /// A kubelet starts again.
    pub(super) fn revive(&mut self, node: usize, now: Timestamp) {
        let state = &mut self.nodes[node];
        if std::mem::replace(&mut state.alive, true) {
            return;
        }
        state.chores = Default::default();
        self.dirty.extend(state.pods.iter().cloned());
        self.schedule(node, Chore::Register, Some(now));
    }
}
