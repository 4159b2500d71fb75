//! From memory to the disk: one thread that keeps changes in the order of their revisions, many in one commit.
//!
//! While the disk is busy with one commit, changes gather for the next, so that many requests share one wait.
//! Invariants: a revision is called settled only when it and all before it are on the disk; the changes of one step of
//! the server are in one commit, so that a crash leaves no step half done. After the first failure nothing more is
//! written. It must not know what waits for it.

use std::sync::Arc;
use std::sync::mpsc::Receiver;

use super::disk::{Disk, Kept};
use super::object::Object;

/// One change, on its way to the disk.
#[derive(Debug)]
pub struct Entry {
    /// The revision of the change.
    pub revision: u64,
    /// The name of the table.
    pub table: Arc<str>,
    /// The object as it is now, or as it was last.
    pub object: Arc<Object>,
    /// Whether the object was removed.
    pub gone: bool,
}

/// Keeps what comes until nobody can send any more, and tells how far it has got, or why it cannot go on.
///
/// While it holds what `at_rest` gives, no step is under way; it gives nothing if a step was left half done.
pub fn keep<Rest>(
    disk: &Disk,
    entries: &Receiver<Entry>,
    at_rest: impl Fn() -> Option<Rest>,
    mut tell: impl FnMut(Result<u64, String>),
) {
    while let Ok(first) = entries.recv() {
        let mut batch = vec![first];
        {
            let Some(_rest) = at_rest() else {
                return tell(Err("a step of the server has panicked half way".to_owned()));
            };
            batch.extend(entries.try_iter());
        }
        let Some(revision) = batch.last().map(|entry| entry.revision) else { return };
        match disk.commit(batch.iter().map(kept), revision) {
            Ok(()) => tell(Ok(revision)),
            Err(error) => return tell(Err(format!("{}: {error}", disk.file().display()))),
        }
    }
}

fn kept(entry: &Entry) -> Kept<'_> {
    let text = (!entry.gone).then_some(&*entry.object.text);
    Kept { table: &entry.table, key: &entry.object.key, text }
}
