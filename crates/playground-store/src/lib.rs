//! All objects, in tables, under one counter of revisions, with the latest changes of each table.
//!
//! It is memory; a durable store also sends every change to the disk, and settles it when it has got there. Watchers
//! are told of nothing that is not settled.
//! Invariants: every change takes the next revision; an object's `resourceVersion` is the revision of its last
//! change; the owner index knows exactly the owners named by present objects; without a disk all is settled at once.
//! It must not know kinds, verbs or clocks: whoever writes has checked what it writes.

mod bell;
mod disk;
mod draft;
mod journal;
mod log;
mod moment;
mod object;
pub mod unlucky;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use serde_json::Value;
use tokio::sync::watch;

pub use bell::Ear;
pub use disk::StateError;
pub use disk::{Contents, Disk, Saved};
pub use journal::{Entry, keep};
pub use log::{Change, TooOld};
pub use moment::Moment;
pub use object::{Key, Object, field_text};

use bell::Bell;
use log::Log;

/// A table's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(usize);

/// The first revision: what an empty server answers lists with.
const FIRST_REVISION: u64 = 1;

#[derive(Debug)]
struct Table {
    /// Resource and group, by which the disk knows it.
    name: Arc<str>,
    objects: BTreeMap<Key, Arc<Object>>,
    log: Log,
    /// The revision of the last change.
    changed: u64,
    /// Rings at every change.
    bell: Bell,
}

/// All objects.
#[derive(Debug)]
pub struct Store {
    revision: u64,
    /// Up to here a crash takes nothing back.
    settled: u64,
    /// The same, for those who wait for the next change of anything.
    changed: watch::Sender<u64>,
    /// The way to the disk, if there is one.
    journal: Option<Sender<Entry>>,
    /// The tables with changes that are not settled.
    unsettled: BTreeSet<TableId>,
    /// Why nothing can be written any more.
    broken: Option<Arc<str>>,
    tables: Vec<Table>,
    /// Owner UID to the objects that name it.
    dependents: BTreeMap<Box<str>, BTreeSet<(TableId, Key)>>,
    /// UID to place, of all present objects.
    places: BTreeMap<Box<str>, (TableId, Key)>,
    window: usize,
}

impl Store {
    /// An empty store that remembers the last `window` changes of each table.
    pub fn new(window: usize) -> Self {
        Self {
            revision: FIRST_REVISION,
            settled: FIRST_REVISION,
            changed: watch::Sender::new(FIRST_REVISION),
            journal: None,
            unsettled: BTreeSet::new(),
            broken: None,
            tables: Vec::new(),
            dependents: BTreeMap::new(),
            places: BTreeMap::new(),
            window,
        }
    }

    /// A new, empty table.
    pub fn add_table(&mut self, name: &str) -> TableId {
        let (changed, bell) = (self.revision, Bell::default());
        self.tables.push(Table { name: name.into(), objects: BTreeMap::new(), log: Log::default(), changed, bell });
        TableId(self.tables.len() - 1)
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision up to which nothing can be taken back.
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// Why nothing can be written any more, if so.
    pub fn broken(&self) -> Option<&Arc<str>> {
        self.broken.as_ref()
    }

    /// Tells of every later change of anything.
    pub fn subscribe_to_all(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The present version of an object.
    pub fn get(&self, table: TableId, key: &Key) -> Option<&Arc<Object>> {
        self.tables[table.0].objects.get(key)
    }

    /// The present object with this UID, in whatever table.
    pub fn find(&self, uid: &str) -> Option<(TableId, &Arc<Object>)> {
        let (table, key) = self.places.get(uid)?;
        self.get(*table, key).map(|object| (*table, object))
    }

    /// The objects that name this UID as an owner.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = (TableId, &Arc<Object>)> {
        let places = self.dependents.get(uid).into_iter().flatten();
        places.filter_map(|(table, key)| self.get(*table, key).map(|object| (*table, object)))
    }

    /// The present objects of a table, or of one namespace of it, in the order of their keys.
    pub fn list(&self, table: TableId, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Object>> {
        let objects = &self.tables[table.0].objects;
        let start = Key::first_of(namespace.unwrap_or_default());
        let inside = move |key: &Key| namespace.is_none_or(|namespace| *key.namespace == *namespace);
        objects.range(start..).take_while(move |(key, _)| inside(key)).map(|(_, object)| object)
    }

    /// A table as it was at `revision`.
    pub fn at(&self, table: TableId, revision: u64) -> Result<Moment<'_>, TooOld> {
        let table = &self.tables[table.0];
        let undone = if table.changed <= revision { BTreeMap::new() } else { table.log.undone(revision)? };
        Ok(Moment::new(&table.objects, undone))
    }

    /// Whether somebody may start to read a table's changes at `revision`.
    pub fn reaches(&self, table: TableId, revision: u64) -> Result<(), TooOld> {
        self.tables[table.0].log.reaches(revision)
    }

    /// The changes of a table after `revision` for somebody who has read up to it, at most `most`.
    pub fn since(&self, table: TableId, revision: u64, most: usize) -> Result<Vec<Change>, TooOld> {
        self.tables[table.0].log.since(revision, self.settled, most)
    }

    /// Ends the watches of a table, after what has happened to it so far.
    pub fn end_watches(&mut self, table: TableId) {
        self.tables[table.0].bell = Bell::default();
    }

    /// Tells of every later change of a table.
    pub fn subscribe(&self, table: TableId) -> Ear {
        self.tables[table.0].bell.listen()
    }

    /// Forgets what happened up to now: watches and lists from before start with 410.
    pub fn compact(&mut self) {
        let revision = self.revision;
        for table in &mut self.tables {
            table.log.compact(revision);
        }
    }

    /// Writes a new object or a new version of one.
    pub fn put(&mut self, table: TableId, value: Value, selectable: &[impl AsRef<str>]) -> Arc<Object> {
        let now = Arc::new(Object::file(value, self.revision + 1, selectable));
        let before = self.tables[table.0].objects.insert(now.key.clone(), Arc::clone(&now));
        if let Some(before) = &before {
            self.forget(table, before);
        }
        self.remember(table, &now);
        self.record(table, before, &now, false);
        now
    }

    /// Removes an object; `last` is the state that watchers see at the end.
    pub fn remove(&mut self, table: TableId, last: Value, selectable: &[impl AsRef<str>]) -> Arc<Object> {
        let last = Arc::new(Object::file(last, self.revision + 1, selectable));
        let before = self.tables[table.0].objects.remove(&last.key);
        let before = before.expect("only present objects are removed");
        self.forget(table, &before);
        self.record(table, Some(before), &last, true);
        last
    }

    fn record(&mut self, table: TableId, before: Option<Arc<Object>>, now: &Arc<Object>, gone: bool) {
        self.revision += 1;
        let revision = self.revision;
        if self.journal.is_none() {
            self.settled = revision;
        }
        let change = Change { revision, before, now: Arc::clone(now), gone };
        let row = &mut self.tables[table.0];
        row.log.push(change, self.window, self.settled);
        row.changed = revision;
        match &self.journal {
            None => {
                row.bell.ring();
                self.changed.send_replace(revision);
            }
            Some(journal) => {
                self.unsettled.insert(table);
                let entry = Entry { revision, table: Arc::clone(&row.name), object: Arc::clone(now), gone };
                // Nobody reads it any more when the disk has failed, and that is told to whoever waits.
                let _ = journal.send(entry);
            }
        }
    }

    fn remember(&mut self, table: TableId, object: &Object) {
        self.places.insert(object.uid.clone(), (table, object.key.clone()));
        for owner in &object.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert((table, object.key.clone()));
        }
    }

    fn forget(&mut self, table: TableId, object: &Object) {
        self.places.remove(&object.uid);
        for owner in &object.owners {
            let Some(places) = self.dependents.get_mut(&owner.uid) else { continue };
            places.remove(&(table, object.key.clone()));
            if places.is_empty() {
                self.dependents.remove(&owner.uid);
            }
        }
    }
}

mod durable;
#[cfg(test)]
mod tests;
