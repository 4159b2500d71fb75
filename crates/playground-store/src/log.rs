//! What happened to one table, for watchers and for reading the past.
//!
//! A window of the latest changes is kept, bounded in number and bytes; what is older is compacted away. Invariants: revisions rise; every change
//! after `dropped` is there; `compacted` is at least `dropped`. It must not know who reads it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::object::{Key, Object};

/// The most bytes of objects that a table's past holds; big objects leave a shorter one.
const SIZE_MAX: usize = 128 * 1024 * 1024;

/// One change of one object.
#[derive(Clone, Debug)]
pub struct Change {
    /// The revision of the change.
    pub revision: u64,
    /// The object before, unless it is new.
    pub before: Option<Arc<Object>>,
    /// The object after; if it is gone, its last state stamped with the revision of its end.
    pub now: Arc<Object>,
    /// Whether the object was removed.
    pub gone: bool,
}

/// The past that was asked for has been compacted away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooOld {
    /// The oldest revision that can still be read.
    pub oldest: u64,
}

/// The latest changes of a table.
#[derive(Debug, Default)]
pub(crate) struct Log {
    changes: VecDeque<Change>,
    /// The bytes of the objects in `changes`.
    size: usize,
    /// The past up to here can no longer be asked for.
    compacted: u64,
    /// The newest change that is no longer here. Who has seen it can read on.
    dropped: u64,
}

impl Log {
    /// Adds a change, and forgets the oldest ones beyond the window, but none that is not `settled`.
    pub(crate) fn push(&mut self, change: Change, window: usize, settled: u64) {
        debug_assert!(self.changes.back().is_none_or(|last| last.revision < change.revision));
        self.size += change.now.text.len();
        self.changes.push_back(change);
        while (self.changes.len() > window || (self.size > SIZE_MAX && self.changes.len() > 1))
            && self.changes.front().is_some_and(|oldest| oldest.revision <= settled)
        {
            let Some(oldest) = self.changes.pop_front() else { break };
            self.size -= oldest.now.text.len();
            self.dropped = oldest.revision;
            self.compacted = self.compacted.max(self.dropped);
        }
    }

    /// Forgets everything up to `revision`.
    pub(crate) fn compact(&mut self, revision: u64) {
        let keep = self.changes.partition_point(|change| change.revision <= revision);
        for change in self.changes.drain(..keep) {
            self.size -= change.now.text.len();
            self.dropped = change.revision;
        }
        self.compacted = self.compacted.max(revision);
    }

    /// Takes the changes after `revision` out again, the newest first.
    pub(crate) fn take_back(&mut self, revision: u64) -> impl Iterator<Item = Change> {
        let keep = self.changes.partition_point(|change| change.revision <= revision);
        let taken = self.changes.split_off(keep);
        self.size -= taken.iter().map(|change| change.now.text.len()).sum::<usize>();
        taken.into_iter().rev()
    }

    /// The changes after `revision` for somebody who has seen everything up to it, at most `most` and none after `last`.
    pub(crate) fn since(&self, revision: u64, last: u64, most: usize) -> Result<Vec<Change>, TooOld> {
        if revision < self.dropped {
            return Err(TooOld { oldest: self.compacted });
        }
        let start = self.changes.partition_point(|change| change.revision <= revision);
        let later = self.changes.iter().skip(start).take(most);
        Ok(later.take_while(|change| change.revision <= last).cloned().collect())
    }

    /// What was different at `revision`: each object that has changed since, as it was then, if it was there.
    pub(crate) fn undone(&self, revision: u64) -> Result<BTreeMap<&Key, Option<&Arc<Object>>>, TooOld> {
        self.reaches(revision)?;
        let later = self.changes.iter().rev().take_while(|change| change.revision > revision);
        // The first change after the moment is met last, and counts.
        Ok(later.map(|change| (&change.now.key, change.before.as_ref())).collect())
    }

    /// Whether the past from `revision` on can be asked for.
    pub(crate) fn reaches(&self, revision: u64) -> Result<(), TooOld> {
        if revision < self.compacted { Err(TooOld { oldest: self.compacted }) } else { Ok(()) }
    }
}
