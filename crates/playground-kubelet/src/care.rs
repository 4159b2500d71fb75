//! What kubelets do for their pods: letting them in, telling how they are, taking them away.
//!
//! A pod is looked after whenever it has changed or its time has come; what is to be done follows from its state
//! alone, so that a lost or repeated event does no harm.

use std::sync::Arc;

use jiff::Timestamp;
use muster_playground_client::mirror::{Key, key_of};
use muster_playground_client::seen::{self, SeenPod};
use serde_json::Value;

use super::fit::{Host, Needs, Refusal};
use super::life::Life;
use super::machine::{Act, Attempt, Machine, Outcome, PodState, Task, Timer};
use super::node_body::{host_address, pod_address};
use super::plan::Plan;
use super::sketch::{Addresses, Sketch};

const INVALID_ANNOTATION: &str = "InvalidPlaygroundAnnotation";

impl Machine {
    /// Takes in a pod as it is now.
    pub(super) fn see(&mut self, pod: Arc<SeenPod>) {
        let Some(&node) = self.by_name.get(seen::node_name(&pod)) else { return };
        let key = key_of(&*pod);
        match self.pods.get_mut(&key) {
            Some(state) if seen::uid(&state.seen) == seen::uid(&pod) => {
                // An answer and a watch may tell the same story in different order.
                if seen::is_as_new(&pod, &state.seen) {
                    state.seen = pod;
                }
            }
            _ => {
                self.forget(&key);
                self.nodes[node].pods.insert(key.clone());
                let addresses = self.give_addresses(node);
                self.pods.insert(key.clone(), PodState::new(pod, node, addresses));
            }
        }
        self.dirty.insert(key);
    }

    fn give_addresses(&mut self, node: usize) -> Addresses {
        let given = &mut self.nodes[node].addresses_given;
        *given += 1;
        Addresses { host: host_address(node), pod: pod_address(node, *given) }
    }

    /// A pod that is not there takes no room and needs nothing.
    pub(super) fn forget(&mut self, key: &Key) {
        self.wake(key, None);
        if let Some(pod) = self.pods.remove(key) {
            self.nodes[pod.node].pods.remove(key);
            if let Some(life) = &pod.life {
                self.meetings.leave(key, life);
            }
        }
    }

    /// Sets when a pod is looked after even if nothing happens.
    pub(super) fn wake(&mut self, key: &Key, time: Option<Timestamp>) {
        let Some(pod) = self.pods.get_mut(key) else { return };
        let before = std::mem::replace(&mut pod.wakes, time);
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

    /// Looks after a pod.
    pub(super) fn look_after(&mut self, key: &Key, now: Timestamp) -> Option<Act> {
        let pod = self.pods.get(key)?;
        if !self.nodes[pod.node].alive {
            return None;
        }
        let life = pod.life.is_none().then(|| self.begin(key, now));
        let pod = self.pods.get_mut(key)?;
        if let Some(life) = life {
            let life = life?;
            self.meetings.join(key, &life);
            pod.take_up(life);
        }
        pod.follow(now);
        self.let_meet(key, now);
        let pod = self.pods.get_mut(key)?;
        let act = pod.next_act(key, now);
        let times = [pod.life.as_ref().and_then(Life::next_change), pod.attempt.due.filter(|_| !pod.attempt.busy)];
        self.wake(key, times.into_iter().flatten().min());
        act
    }

    /// Decides what becomes of a pod that the kubelet looks at for the first time.
    fn begin(&mut self, key: &Key, now: Timestamp) -> Option<Life> {
        let pod = self.pods.get(key)?;
        if seen::is_finished(&pod.seen) {
            return Some(Life::over(None, now));
        }
        let refused = |refusal: &Refusal| {
            let message = format!("Pod was rejected: {}", refusal.message);
            Life::over(Some(Sketch::refused(&refusal.reason, &message)), now)
        };
        let plan = match Plan::read(&pod.seen, self.settings.speed) {
            Ok(plan) => plan,
            Err(why) => return Some(Life::over(Some(Sketch::refused(INVALID_ANNOTATION, &why)), now)),
        };
        let needs = match Needs::read(&pod.seen) {
            Ok(needs) => needs,
            Err(refusal) => return Some(refused(&refusal)),
        };
        let life = if seen::phase(&pod.seen) == "Running" {
            Life::resumed(plan, &pod.seen, now)
        } else if pod.seen.metadata.deletion_timestamp.is_some() {
            Life::admitted(plan, now)
        } else {
            let node = &self.nodes[pod.node];
            let others = node.pods.iter().filter(|other| *other != key).filter_map(|other| self.pods.get(other));
            let others = others.filter(|other| other.life.as_ref().is_some_and(Life::holds_room));
            let others = others.filter_map(|other| other.needs.as_ref());
            let host =
                Host { name: &node.shape.name, labels: &node.labels, taints: &node.taints, room: &node.shape.room };
            match needs.admit(&host, others) {
                Ok(()) => Life::admitted(plan, now),
                Err(refusal) => refused(&refusal),
            }
        };
        self.pods.get_mut(key)?.needs = Some(needs);
        Some(life)
    }

    pub(super) fn after_status(&mut self, key: &Key, uid: &str, outcome: Outcome, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key).filter(|pod| seen::uid(&pod.seen) == uid && pod.attempt.busy) else {
            return;
        };
        pod.attempt.busy = false;
        let saying = pod.saying.take();
        match outcome {
            Outcome::Done(answer) => {
                pod.said = saying;
                pod.attempt = Attempt::default();
                if let Some(answer) = answer {
                    self.see(answer);
                }
            }
            Outcome::Gone | Outcome::Retry => drop(pod.attempt.failed(now)),
        }
        self.dirty.insert(key.clone());
    }

    pub(super) fn after_removal(&mut self, key: &Key, uid: &str, outcome: &Outcome, now: Timestamp) {
        let Some(pod) = self.pods.get_mut(key).filter(|pod| seen::uid(&pod.seen) == uid && pod.attempt.busy) else {
            return;
        };
        pod.attempt.busy = false;
        match outcome {
            // The watch will tell when it is gone, which others may put off.
            Outcome::Done(_) | Outcome::Gone => pod.removed = true,
            Outcome::Retry => drop(pod.attempt.failed(now)),
        }
        self.dirty.insert(key.clone());
    }
}

impl PodState {
    fn new(seen: Arc<SeenPod>, node: usize, addresses: Addresses) -> Self {
        Self {
            seen,
            node,
            life: None,
            needs: None,
            addresses,
            said: None,
            saying: None,
            attempt: Attempt::default(),
            removed: false,
            wakes: None,
        }
    }

    /// What runs already has been told by whoever started it.
    fn take_up(&mut self, life: Life) {
        if seen::phase(&self.seen) == "Running" {
            self.said = life.sketch();
        }
        self.life = Some(life);
    }

    /// Lets time and others do their part.
    fn follow(&mut self, now: Timestamp) {
        let Some(life) = &mut self.life else { return };
        life.step(now);
        if seen::is_finished(&self.seen) && !life.is_over() {
            life.end();
        }
        if self.seen.metadata.deletion_timestamp.is_some() {
            let grace_seconds = self.seen.metadata.deletion_grace_period_seconds.unwrap_or_default();
            life.stop(grace_seconds.saturating_mul(1000), now);
            life.step(now);
        }
    }

    fn next_act(&mut self, key: &Key, now: Timestamp) -> Option<Act> {
        if self.attempt.busy || self.attempt.due.is_some_and(|due| due > now) {
            return None;
        }
        // A time that has come is not waited for again, even if there is nothing left to do.
        self.attempt.due = None;
        let uid = seen::uid(&self.seen).to_owned();
        if let Some(sketch) = self.life.as_ref()?.sketch().filter(|sketch| self.is_news(sketch)) {
            self.attempt.busy = true;
            let body = sketch.patch(&self.seen, &self.addresses, now);
            self.saying = Some(sketch);
            return Some(Act { task: Task::Status(key.clone(), uid), body });
        }
        let over = self.life.as_ref().is_some_and(Life::is_over);
        if over && !self.removed && self.seen.metadata.deletion_timestamp.is_some() {
            self.attempt.busy = true;
            return Some(Act { task: Task::Remove(key.clone(), uid), body: Value::Null });
        }
        None
    }

    /// Whether the API does not show this yet.
    fn is_news(&self, sketch: &Sketch) -> bool {
        let shown = seen::phase(&self.seen) == sketch.phase
            && (sketch.admitted.is_none() || seen::is_true(&self.seen, "Ready") == sketch.ready);
        !shown || self.said.as_ref() != Some(sketch)
    }
}
