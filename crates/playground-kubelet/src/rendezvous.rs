//! The rendezvous of pods that make progress only together: it is complete when enough of them run at once.
//!
//! It simulates the start of distributed training. Invariant: every pod that has a lifecycle and a rendezvous is
//! indexed here. Must not depend on how long the work takes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_reflector::Key;

use super::behavior::Rendezvous;
use super::pod_lifecycle::PodLifecycle;
use super::state_machine::StateMachine;

/// The pods of each rendezvous, by namespace.
#[derive(Debug, Default)]
pub(super) struct RendezvousIndex(BTreeMap<(String, Rendezvous), BTreeSet<Key>>);

impl RendezvousIndex {
    /// Adds a pod when its lifecycle starts.
    pub(super) fn join(&mut self, key: &Key, lifecycle: &PodLifecycle) {
        if let Some(rendezvous) = lifecycle.rendezvous() {
            self.0.entry((key.0.clone(), rendezvous.clone())).or_default().insert(key.clone());
        }
    }

    /// Removes a pod when its lifecycle is dropped.
    pub(super) fn leave(&mut self, key: &Key, lifecycle: &PodLifecycle) {
        let Some(rendezvous) = lifecycle.rendezvous() else { return };
        let place = (key.0.clone(), rendezvous.clone());
        if let Some(members) = self.0.get_mut(&place) {
            members.remove(key);
            if members.is_empty() {
                self.0.remove(&place);
            }
        }
    }

    fn members(&self, namespace: &str, rendezvous: &Rendezvous) -> Option<&BTreeSet<Key>> {
        self.0.get(&(namespace.to_owned(), rendezvous.clone()))
    }
}

impl StateMachine {
    /// Completes the rendezvous of a pod and of all pods that wait for it, if enough of them run.
    pub(super) fn complete_rendezvous(&mut self, key: &Key, now: Timestamp) {
        let Some(rendezvous) = self.pods.get(key).and_then(|pod| pod.lifecycle.as_ref()?.awaited_rendezvous()) else {
            return;
        };
        // The common case: not all pods are there yet.
        let members = self.rendezvous.members(&key.0, rendezvous).filter(|members| members.len() >= rendezvous.pods);
        let Some(members) = members else { return };
        let mut waiting = Vec::new();
        let mut there = 0;
        for other in members {
            let lifecycle = self.pods.get(other).and_then(|pod| pod.lifecycle.as_ref());
            let Some(lifecycle) = lifecycle.filter(|lifecycle| lifecycle.runs()) else { continue };
            there += 1;
            if lifecycle.awaited_rendezvous().is_some() {
                waiting.push(other.clone());
            }
        }
        if there < rendezvous.pods {
            return;
        }
        for other in waiting {
            let Some(lifecycle) = self.pods.get_mut(&other).and_then(|pod| pod.lifecycle.as_mut()) else { continue };
            lifecycle.complete_rendezvous(now);
            // Reported at once: a restarted kubelet has only what the API shows.
            self.set_timer(&other, Some(now));
        }
    }
}

impl PodLifecycle {
    fn rendezvous(&self) -> Option<&Rendezvous> {
        self.behavior()?.rendezvous.as_ref()
    }
}
