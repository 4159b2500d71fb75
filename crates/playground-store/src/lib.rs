//! The object store: tables of objects under one revision counter, with the latest changes of each table for watches.
//!
//! Objects are in memory; a durable store also sends every change to the disk. Watches see only durable changes.
//! Invariants: every change takes the next revision; an object's `resourceVersion` is the revision of its last change;
//! the owner index holds exactly the owner references of current objects; without a disk every change is durable at
//! once.
//! Must not depend on kinds, verbs or clocks: callers validate before they write.

mod copy_on_write;
mod disk;
pub mod faulty_disk;
mod journal;
mod notifier;
mod object;
mod snapshot;
mod watch_cache;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Sender;

use serde_json::Value;
use tokio::sync::watch;

pub use disk::StateError;
pub use disk::{Contents, Disk, StoredObject};
pub use journal::{Entry, JournalError, persist};
pub use notifier::Subscription;
pub use object::{Key, Object, field_text};
pub use snapshot::Snapshot;
pub use watch_cache::{Change, TooOld};

use notifier::Notifier;
use watch_cache::WatchCache;

/// The index of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(usize);

/// The first revision: the `resourceVersion` of lists from an empty server.
const FIRST_REVISION: u64 = 1;

#[derive(Debug)]
struct Table {
    /// `resource.group`, which identifies the table on the disk.
    name: Arc<str>,
    objects: BTreeMap<Key, Arc<Object>>,
    watch_cache: WatchCache,
    /// The revision of the last change.
    changed: u64,
    /// Notifies watches of every change.
    notifier: Notifier,
}

/// The object store.
#[derive(Debug)]
pub struct Store {
    revision: u64,
    /// Changes up to this revision survive a crash.
    durable: u64,
    /// Publishes the durable revision.
    changed: watch::Sender<u64>,
    /// Sends changes to the disk, if there is one.
    journal: Option<Sender<Entry>>,
    /// The tables with changes that are not durable yet.
    pending_tables: BTreeSet<TableId>,
    /// Why writes are refused, if the disk has failed.
    write_error: Option<Arc<str>>,
    tables: Vec<Table>,
    /// Owner UID to the objects that reference it.
    dependents: BTreeMap<Box<str>, BTreeSet<(TableId, Key)>>,
    /// UID to table and key of every current object.
    locations: BTreeMap<Box<str>, (TableId, Key)>,
    window: usize,
}

impl Store {
    /// An empty store that keeps the last `window` changes of each table.
    pub fn new(window: usize) -> Self {
        Self {
            revision: FIRST_REVISION,
            durable: FIRST_REVISION,
            changed: watch::Sender::new(FIRST_REVISION),
            journal: None,
            pending_tables: BTreeSet::new(),
            write_error: None,
            tables: Vec::new(),
            dependents: BTreeMap::new(),
            locations: BTreeMap::new(),
            window,
        }
    }

    /// Adds an empty table.
    pub fn add_table(&mut self, name: &str) -> TableId {
        let (changed, notifier) = (self.revision, Notifier::default());
        self.tables.push(Table {
            name: name.into(),
            objects: BTreeMap::new(),
            watch_cache: WatchCache::default(),
            changed,
            notifier,
        });
        TableId(self.tables.len() - 1)
    }

    /// The revision of the last change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The revision up to which changes are durable.
    pub fn durable_revision(&self) -> u64 {
        self.durable
    }

    /// Why writes are refused, if the disk has failed.
    pub fn write_error(&self) -> Option<&Arc<str>> {
        self.write_error.as_ref()
    }

    /// Subscribes to the revision of the last durable change in any table.
    pub fn subscribe_to_all(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The current version of an object.
    pub fn get(&self, table: TableId, key: &Key) -> Option<&Arc<Object>> {
        self.tables[table.0].objects.get(key)
    }

    /// The current object with this UID, in any table.
    pub fn find_by_uid(&self, uid: &str) -> Option<(TableId, &Arc<Object>)> {
        let (table, key) = self.locations.get(uid)?;
        self.get(*table, key).map(|object| (*table, object))
    }

    /// The objects whose owner references contain this UID.
    pub fn dependents(&self, uid: &str) -> impl Iterator<Item = (TableId, &Arc<Object>)> {
        let locations = self.dependents.get(uid).into_iter().flatten();
        locations.filter_map(|(table, key)| self.get(*table, key).map(|object| (*table, object)))
    }

    /// The current objects of a table, or of one namespace of it, in the order of their keys.
    pub fn list(&self, table: TableId, namespace: Option<&str>) -> impl Iterator<Item = &Arc<Object>> {
        let objects = &self.tables[table.0].objects;
        let start = Key::first_in(namespace.unwrap_or_default());
        let inside = move |key: &Key| namespace.is_none_or(|namespace| *key.namespace == *namespace);
        objects.range(start..).take_while(move |(key, _)| inside(key)).map(|(_, object)| object)
    }

    /// The contents of a table at `revision`.
    pub fn snapshot_at(&self, table: TableId, revision: u64) -> Result<Snapshot<'_>, TooOld> {
        let table = &self.tables[table.0];
        let previous_states =
            if table.changed <= revision { BTreeMap::new() } else { table.watch_cache.previous_states(revision)? };
        Ok(Snapshot::new(&table.objects, previous_states))
    }

    /// Whether changes after `revision` are still available.
    pub fn check_available(&self, table: TableId, revision: u64) -> Result<(), TooOld> {
        self.tables[table.0].watch_cache.check_available(revision)
    }

    /// The changes of a table after `revision`, at most `most`, for a reader that has seen everything up to it.
    pub fn since(&self, table: TableId, revision: u64, most: usize) -> Result<Vec<Change>, TooOld> {
        self.tables[table.0].watch_cache.since(revision, self.durable, most)
    }

    /// Ends all watches of a table once they have delivered the changes so far.
    pub fn end_watches(&mut self, table: TableId) {
        self.tables[table.0].notifier = Notifier::default();
    }

    /// Subscribes to changes of a table.
    pub fn subscribe(&self, table: TableId) -> Subscription {
        self.tables[table.0].notifier.subscribe()
    }

    /// Drops the change history: watches and lists from an older revision get 410.
    pub fn compact(&mut self) {
        let revision = self.revision;
        for table in &mut self.tables {
            table.watch_cache.compact(revision);
        }
    }

    /// Creates or replaces an object.
    pub fn put(&mut self, table: TableId, value: Value, selectable: &[impl AsRef<str>]) -> Arc<Object> {
        let now = Arc::new(Object::encode(value, self.revision + 1, selectable));
        let before = self.tables[table.0].objects.insert(now.key.clone(), Arc::clone(&now));
        if let Some(before) = &before {
            self.unindex(table, before);
        }
        self.index(table, &now);
        self.record(table, before, &now, false);
        now
    }

    /// Removes an object; `last` is its final state in watch events.
    pub fn remove(&mut self, table: TableId, last: Value, selectable: &[impl AsRef<str>]) -> Arc<Object> {
        let last = Arc::new(Object::encode(last, self.revision + 1, selectable));
        let before = self.tables[table.0].objects.remove(&last.key);
        let before = before.expect("only existing objects are removed");
        self.unindex(table, &before);
        self.record(table, Some(before), &last, true);
        last
    }

    fn record(&mut self, table: TableId, before: Option<Arc<Object>>, now: &Arc<Object>, deleted: bool) {
        self.revision += 1;
        let revision = self.revision;
        if self.journal.is_none() {
            self.durable = revision;
        }
        let change = Change { revision, before, now: Arc::clone(now), deleted };
        let row = &mut self.tables[table.0];
        row.watch_cache.push(change, self.window, self.durable);
        row.changed = revision;
        match &self.journal {
            None => {
                row.notifier.notify();
                self.changed.send_replace(revision);
            }
            Some(journal) => {
                self.pending_tables.insert(table);
                let entry = Entry { revision, table: Arc::clone(&row.name), object: Arc::clone(now), deleted };
                // The receiver is gone only after a disk failure, which is reported to waiting requests separately.
                let _ = journal.send(entry);
            }
        }
    }

    fn index(&mut self, table: TableId, object: &Object) {
        self.locations.insert(object.uid.clone(), (table, object.key.clone()));
        for owner in &object.owners {
            self.dependents.entry(owner.uid.clone()).or_default().insert((table, object.key.clone()));
        }
    }

    fn unindex(&mut self, table: TableId, object: &Object) {
        self.locations.remove(&object.uid);
        for owner in &object.owners {
            let Some(locations) = self.dependents.get_mut(&owner.uid) else { continue };
            locations.remove(&(table, object.key.clone()));
            if locations.is_empty() {
                self.dependents.remove(&owner.uid);
            }
        }
    }
}

mod durable;
#[cfg(test)]
mod tests;
