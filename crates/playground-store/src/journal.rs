//! The journal: one thread that persists changes in the order of their revisions, many in one commit.
//!
//! Changes that arrive during a commit form the next batch, so that many requests share one wait.
//! Invariants: a revision is reported as durable only when it and all before it are on the disk; all changes of one
//! request are in one commit, so that a crash leaves no request half done. After the first failure nothing more is
//! written. Must not depend on what waits for it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::disk::{Disk, PersistedChange};
use super::object::Object;

/// A change to persist.
#[derive(Debug)]
pub struct Entry {
    /// The revision of the change.
    pub revision: u64,
    /// The name of the table.
    pub table: Arc<str>,
    /// The object after the change, or its final state.
    pub object: Arc<Object>,
    /// Whether the object was removed.
    pub deleted: bool,
}

/// Why nothing more is persisted.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A request was left half done.
    #[error("a request handler has panicked half way")]
    RequestPanicked,
    /// The disk failed.
    #[error("{}: {source}", file.display())]
    Commit {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: redb::Error,
    },
    /// The thread that persists has ended.
    #[error("{}: the writer has panicked", file.display())]
    WriterPanicked {
        /// The file.
        file: PathBuf,
    },
}

/// Persists entries until all senders are gone, and reports the durable revision, or why it cannot continue.
///
/// While the guard returned by `quiesce` is held, no request is being processed; `None` means that a request was left
/// half done.
pub fn persist<Guard>(
    disk: &Disk,
    entries: &Receiver<Entry>,
    quiesce: impl Fn() -> Option<Guard>,
    mut report: impl FnMut(Result<u64, JournalError>),
) {
    while let Ok(first) = entries.recv() {
        let mut batch = vec![first];
        {
            let Some(_guard) = quiesce() else {
                return report(Err(JournalError::RequestPanicked));
            };
            batch.extend(entries.try_iter());
        }
        let Some(revision) = batch.last().map(|entry| entry.revision) else { return };
        match disk.commit(batch.iter().map(persisted_change), revision) {
            Ok(()) => report(Ok(revision)),
            Err(source) => return report(Err(JournalError::Commit { file: disk.file().to_owned(), source })),
        }
    }
}

fn persisted_change(entry: &Entry) -> PersistedChange<'_> {
    let text = (!entry.deleted).then_some(&*entry.object.text);
    PersistedChange { table: &entry.table, key: &entry.object.key, text }
}
