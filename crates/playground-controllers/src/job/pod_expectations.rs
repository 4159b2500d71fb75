//! Expectations about pods: until the watch has shown all writes for a Job, the Job must not be synced.
//!
//! Invariant: an expectation is dropped only when an event, or a list that began after the write, has shown its effect.
//! Must not depend on what is decided from it.

use std::collections::BTreeMap;

use muster_reflector::Key;

use super::pod::{self, JobPod};

/// The write whose effect is expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedWrite {
    Created,
    Deleted,
    /// Its finalizer was removed.
    FinalizerRemoved,
}

/// The expectations that are not satisfied yet.
#[derive(Debug, Default)]
pub(super) struct PodExpectations {
    /// By Job, then by the pod's UID: the write, and how many lists had begun before it.
    pending: BTreeMap<Key, BTreeMap<String, (ExpectedWrite, u64)>>,
    /// How many lists of pods have begun.
    lists: u64,
}

impl PodExpectations {
    /// Adds an expectation. A later write to the same pod replaces an earlier one.
    pub(super) fn expect(&mut self, job: &Key, uid: &str, write: ExpectedWrite) {
        self.pending.entry(job.clone()).or_default().insert(uid.to_owned(), (write, self.lists));
    }

    /// Whether everything that was done for the Job has been observed.
    pub(super) fn is_satisfied(&self, job: &Key) -> bool {
        self.pending.get(job).is_none_or(BTreeMap::is_empty)
    }

    /// Observes a pod that exists or is gone.
    pub(super) fn observe(&mut self, job: &Key, pod: &JobPod, is_gone: bool) {
        let Some(pending) = self.pending.get_mut(job) else { return };
        let is_observed = match pending.get(pod::uid(pod)) {
            None => return,
            Some(_) if is_gone => true,
            Some((ExpectedWrite::Created, _)) => true,
            Some((ExpectedWrite::Deleted, _)) => !pod::is_active(pod),
            Some((ExpectedWrite::FinalizerRemoved, _)) => !pod::is_tracked(pod),
        };
        if is_observed {
            pending.remove(pod::uid(pod));
        }
    }

    pub(super) fn on_list_started(&mut self) {
        self.lists += 1;
    }

    /// A list includes all that was done before it began; a pod that it does not show is gone.
    pub(super) fn on_list_done(&mut self) -> Vec<Key> {
        let lists = self.lists;
        self.pending.values_mut().for_each(|pending| pending.retain(|_, (_, before)| *before >= lists));
        self.pending.keys().cloned().collect()
    }

    /// The Job is gone.
    pub(super) fn forget(&mut self, job: &Key) {
        self.pending.remove(job);
    }
}
