//! What a controller has done and not yet seen: until its watches have shown all of it, it must not act again.
//!
//! Invariant: a deed is forgotten only when an event or a list that began after it has shown what it led to.
//! It must not know what is decided from it.

use std::collections::BTreeMap;

use muster_playground_client::mirror::Key;

use super::pod::{self, JobPod};

/// What was done to a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Deed {
    Made,
    Deleted,
    /// Its finalizer was taken away.
    Freed,
}

/// The deeds that have not been seen.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// By Job, then by the pod's UID: the deed, and how many lists had begun before it.
    deeds: BTreeMap<Key, BTreeMap<String, (Deed, u64)>>,
    /// How many lists of pods have begun.
    lists: u64,
}

impl Ledger {
    /// Remembers a deed. A later one to the same pod shows the earlier one too.
    pub(super) fn note(&mut self, job: &Key, uid: &str, deed: Deed) {
        self.deeds.entry(job.clone()).or_default().insert(uid.to_owned(), (deed, self.lists));
    }

    /// Whether all has been seen that was done for the Job.
    pub(super) fn is_clear(&self, job: &Key) -> bool {
        self.deeds.get(job).is_none_or(BTreeMap::is_empty)
    }

    /// A pod is there, or is gone.
    pub(super) fn see(&mut self, job: &Key, pod: &JobPod, is_gone: bool) {
        let Some(deeds) = self.deeds.get_mut(job) else { return };
        let is_seen = match deeds.get(pod::uid(pod)) {
            None => return,
            Some(_) if is_gone => true,
            Some((Deed::Made, _)) => true,
            Some((Deed::Deleted, _)) => !pod::is_active(pod),
            Some((Deed::Freed, _)) => !pod::is_tracked(pod),
        };
        if is_seen {
            deeds.remove(pod::uid(pod));
        }
    }

    pub(super) fn list_begins(&mut self) {
        self.lists += 1;
    }

    /// A list shows all that was done before it began; what it does not show is gone already.
    pub(super) fn list_ends(&mut self) -> Vec<Key> {
        let lists = self.lists;
        self.deeds.values_mut().for_each(|deeds| deeds.retain(|_, (_, before)| *before >= lists));
        self.deeds.keys().cloned().collect()
    }

    /// The Job is gone.
    pub(super) fn forget(&mut self, job: &Key) {
        self.deeds.remove(job);
    }
}
