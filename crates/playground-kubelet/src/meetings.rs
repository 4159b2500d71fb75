//! Pods that work only together: the work of each begins when as many run as the meeting needs.
//!
//! It stands for what distributed training does at its start. Invariant: who has a life and must meet others is on the
//! list of that meeting. It must not know how long the work takes.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use muster_playground_client::mirror::Key;

use super::life::Life;
use super::machine::Machine;
use super::plan::Meeting;

/// Who must meet whom, by namespace and meeting.
#[derive(Debug, Default)]
pub(super) struct Meetings(BTreeMap<(String, Meeting), BTreeSet<Key>>);

impl Meetings {
    /// A life begins.
    pub(super) fn join(&mut self, key: &Key, life: &Life) {
        if let Some(meeting) = life.meets() {
            self.0.entry((key.0.clone(), meeting.clone())).or_default().insert(key.clone());
        }
    }

    /// A life is forgotten.
    pub(super) fn leave(&mut self, key: &Key, life: &Life) {
        let Some(meeting) = life.meets() else { return };
        let place = (key.0.clone(), meeting.clone());
        if let Some(members) = self.0.get_mut(&place) {
            members.remove(key);
            if members.is_empty() {
                self.0.remove(&place);
            }
        }
    }

    fn members(&self, namespace: &str, meeting: &Meeting) -> Option<&BTreeSet<Key>> {
        self.0.get(&(namespace.to_owned(), meeting.clone()))
    }
}

impl Machine {
    /// Begins the work of a pod and of those that wait with it, if it was the last to come.
    pub(super) fn let_meet(&mut self, key: &Key, now: Timestamp) {
        let Some(meeting) = self.pods.get(key).and_then(|pod| pod.life.as_ref()?.waits_for()) else { return };
        // Most of the time not all are on the list.
        let members = self.meetings.members(&key.0, meeting).filter(|members| members.len() >= meeting.pods);
        let Some(members) = members else { return };
        let mut waiting = Vec::new();
        let mut there = 0;
        for other in members {
            let life = self.pods.get(other).and_then(|pod| pod.life.as_ref());
            let Some(life) = life.filter(|life| life.runs()) else { continue };
            there += 1;
            if life.waits_for().is_some() {
                waiting.push(other.clone());
            }
        }
        if there < meeting.pods {
            return;
        }
        for other in waiting {
            let Some(life) = self.pods.get_mut(&other).and_then(|pod| pod.life.as_mut()) else { continue };
            life.meet(now);
            // It is told at once: a kubelet that starts again knows only what was told.
            self.wake(&other, Some(now));
        }
    }
}

impl Life {
    fn meets(&self) -> Option<&Meeting> {
        self.plan()?.meets.as_ref()
    }
}
