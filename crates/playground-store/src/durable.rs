//! The store's side of durability: taken up from the disk, settled by it, and taken back when it fails.
//!
//! Invariant: after `resume`, and after `take_back`, memory holds what the disk holds.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use bytes::Bytes;

use super::{Entry, Object, Store, TableId};

impl Store {
    /// Takes up an object from the disk. Its revision and text stay.
    pub fn restore(
        &mut self,
        table: TableId,
        text: Bytes,
        selectable: &[impl AsRef<str>],
    ) -> Result<(), serde_json::Error> {
        let object = Arc::new(Object::refile(text, selectable)?);
        self.remember(table, &object);
        self.tables[table.0].objects.insert(object.key.clone(), object);
        Ok(())
    }

    /// Goes on at this revision: what was before cannot be asked for. Every later change goes to `journal`.
    pub fn resume(&mut self, revision: u64, journal: Sender<Entry>) {
        self.revision = revision;
        self.settled = revision;
        for table in &mut self.tables {
            table.changed = revision;
        }
        self.compact();
        self.changed.send_replace(revision);
        self.journal = Some(journal);
    }

    /// Everything up to `revision` is on the disk: watchers may see it.
    pub fn settle(&mut self, revision: u64) {
        self.settled = revision;
        let tables = &self.tables;
        self.unsettled.retain(|table| {
            let table = &tables[table.0];
            table.bell.ring();
            table.changed > revision
        });
        self.changed.send_replace(revision);
    }

    /// The disk has failed: takes back what did not get there. Nothing may be written from now on.
    pub fn take_back(&mut self, why: Arc<str>) {
        self.journal = None;
        self.broken = Some(why);
        for table in std::mem::take(&mut self.unsettled) {
            let taken: Vec<_> = self.tables[table.0].log.take_back(self.settled).collect();
            for change in taken {
                if !change.gone {
                    self.forget(table, &change.now);
                    self.tables[table.0].objects.remove(&change.now.key);
                }
                if let Some(before) = change.before {
                    self.remember(table, &before);
                    self.tables[table.0].objects.insert(before.key.clone(), before);
                }
            }
            self.tables[table.0].changed = self.settled;
        }
        self.revision = self.settled;
    }

    /// Sends nothing more to the disk, so that its thread can come to an end.
    pub fn close(&mut self) {
        self.journal = None;
    }
}
