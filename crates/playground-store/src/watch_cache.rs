//! The latest changes of one table, for watches and for reads at an older revision.
//!
//! A window bounded in number and bytes is kept; older changes are compacted. Invariants: revisions increase; every
//! change after `dropped` is present; `compacted` is at least `dropped`. Must not depend on its readers.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::object::{Key, Object};

/// The most bytes of objects in the window of a table; large objects shorten it.
const SIZE_MAX: usize = 128 * 1024 * 1024;

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The revision of the change.
    pub revision: u64,
    /// The previous version, unless the object is new.
    pub before: Option<Arc<Object>>,
    /// The object after the change; for a deletion its final state with the revision of the deletion.
    pub now: Arc<Object>,
    /// Whether the object was removed.
    pub deleted: bool,
}

/// The requested revision has been compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest revision that can still be read.
    pub oldest: u64,
}

/// The latest changes of a table.
#[derive(Debug, Default)]
pub(crate) struct WatchCache {
    changes: VecDeque<Change>,
    /// The size of the objects in `changes`, in bytes.
    size: usize,
    /// Revisions up to this one have been compacted.
    compacted: u64,
    /// The newest change that is no longer kept. A reader that has seen it can continue.
    dropped: u64,
}

impl WatchCache {
    /// Adds a change, and drops the oldest ones beyond the window unless they are not `durable` yet.
    pub(crate) fn push(&mut self, change: Change, window: usize, durable: u64) {
        debug_assert!(self.changes.back().is_none_or(|last| last.revision < change.revision));
        self.size += change.now.text.len();
        self.changes.push_back(change);
        while (self.changes.len() > window || (self.size > SIZE_MAX && self.changes.len() > 1))
            && self.changes.front().is_some_and(|oldest| oldest.revision <= durable)
        {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.size -= oldest.now.text.len();
            self.dropped = oldest.revision;
            self.compacted = self.compacted.max(self.dropped);
        }
    }

    /// Drops everything up to `revision`.
    pub(crate) fn compact(&mut self, revision: u64) {
        let keep = self.changes.partition_point(|change| change.revision <= revision);
        for change in self.changes.drain(..keep) {
            self.size -= change.now.text.len();
            self.dropped = change.revision;
        }
        self.compacted = self.compacted.max(revision);
    }

    /// Removes the changes after `revision`, and returns them newest first.
    pub(crate) fn rollback(&mut self, revision: u64) -> impl Iterator<Item = Change> {
        let keep = self.changes.partition_point(|change| change.revision <= revision);
        let removed = self.changes.split_off(keep);
        self.size -= removed.iter().map(|change| change.now.text.len()).sum::<usize>();
        removed.into_iter().rev()
    }

    /// The changes after `revision` up to `last`, at most `most`, for a reader that has seen everything up to it.
    pub(crate) fn since(&self, revision: u64, last: u64, most: usize) -> Result<Vec<Change>, TooOld> {
        if revision < self.dropped {
            return Err(TooOld { oldest: self.compacted });
        }
        let start = self.changes.partition_point(|change| change.revision <= revision);
        let later = self.changes.iter().skip(start).take(most);
        Ok(later.take_while(|change| change.revision <= last).cloned().collect())
    }

    /// The state at `revision` of every object that has changed since; `None` if it did not exist.
    pub(crate) fn previous_states(&self, revision: u64) -> Result<BTreeMap<&Key, Option<&Arc<Object>>>, TooOld> {
        self.check_available(revision)?;
        let later = self.changes.iter().rev().take_while(|change| change.revision > revision);
        // The oldest change after `revision` comes last and so determines the result.
        Ok(later.map(|change| (&change.now.key, change.before.as_ref())).collect())
    }

    /// Whether the state at `revision` is still available.
    pub(crate) fn check_available(&self, revision: u64) -> Result<(), TooOld> {
        if revision < self.compacted { Err(TooOld { oldest: self.compacted }) } else { Ok(()) }
    }
}
