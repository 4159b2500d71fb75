//! Durability of the store: recovery from the disk, acknowledgement of commits, and rollback when the disk fails.
//!
//! Invariant: after `resume` and after `rollback`, memory holds what the disk holds.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::{Entry, Object, Store, TableId};

impl Store {
    /// Restores an object from the disk with its revision and JSON.
    pub fn restore(
        &mut self,
        table: TableId,
        text: Bytes,
        selectable: &[impl AsRef<str>],
    ) -> Result<(), serde_json::Error> {
        let object = Arc::new(Object::decode(text, selectable)?);
        self.index(table, &object);
        self.tables[table.0].objects.insert(object.key.clone(), object);
        Ok(())
    }

    /// Continues at this revision; older ones count as compacted. Every later change goes to `journal`.
    pub fn resume(&mut self, revision: u64, journal: Sender<Entry>) {
        self.revision = revision;
        self.durable = revision;
        for table in &mut self.tables {
            table.changed = revision;
        }
        self.compact();
        self.changed.send_replace(revision);
        self.journal = Some(journal);
    }

    /// Everything up to `revision` is on the disk: watches may see it.
    pub fn mark_durable(&mut self, revision: u64) {
        self.durable = revision;
        let tables = &self.tables;
        self.pending_tables.retain(|table| {
            let table = &tables[table.0];
            table.notifier.notify();
            table.changed > revision
        });
        self.changed.send_replace(revision);
    }

    /// The disk has failed: rolls back changes that are not durable. All later writes are refused.
    pub fn rollback(&mut self, why: Arc<str>) {
        self.journal = None;
        self.write_error = Some(why);
        for table in std::mem::take(&mut self.pending_tables) {
            let undone: Vec<_> = self.tables[table.0].watch_cache.rollback(self.durable).collect();
            for change in undone {
                if !change.deleted {
                    self.unindex(table, &change.now);
                    self.tables[table.0].objects.remove(&change.now.key);
                }
                if let Some(before) = change.before {
                    self.index(table, &before);
                    self.tables[table.0].objects.insert(before.key.clone(), before);
                }
            }
            self.tables[table.0].changed = self.durable;
        }
        self.revision = self.durable;
    }

    /// Stops sending to the disk, so that its thread can end.
    pub fn close(&mut self) {
        self.journal = None;
    }
}
