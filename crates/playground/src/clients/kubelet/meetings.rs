//! Pods that work only together: the work of each begins when as many run as the meeting needs.
//!
//! It stands for what distributed training does at its start. It must not know how long the work takes.

use jiff::Timestamp;

use super::life::Life;
use super::machine::{Machine, PodState};
use super::plan::Meeting;
use crate::clients::mirror::Key;

impl Machine {
    /// Begins the work of a pod and of those that wait with it, if it was the last to come.
    pub(super) fn let_meet(&mut self, key: &Key, now: Timestamp) {
        let Some(meeting) = self.pods.get(key).and_then(|pod| pod.life.as_ref()?.waits_for()).cloned() else { return };
        let mut waiting = Vec::new();
        let mut there = 0;
        for (other, pod) in self.within(&key.0) {
            let Some(life) = pod.life.as_ref().filter(|life| life.runs() && life.meets() == Some(&meeting)) else {
                continue;
            };
            there += 1;
            if life.waits_for().is_some() {
                waiting.push(other.clone());
            }
        }
        if there < meeting.pods {
            return;
        }
        for other in waiting {
            let Some(pod) = self.pods.get_mut(&other) else { continue };
            let Some(life) = &mut pod.life else { continue };
            life.meet(now);
            // It is told at once: a kubelet that starts again knows only what was told.
            self.wake(&other, Some(now));
        }
    }

    fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a Key, &'a PodState)> {
        let from = (namespace.to_owned(), String::new());
        self.pods.range(from..).take_while(move |(key, _)| key.0 == namespace)
    }
}

impl Life {
    fn meets(&self) -> Option<&Meeting> {
        self.plan()?.meets.as_ref()
    }
}
