//! Tests of the store: revisions, reads at older revisions, owner references.

use serde_json::json;

use super::*;

const NO_FIELDS: [&str; 0] = [];

fn object(name: &str, label: &str, owner: Option<&str>) -> Value {
    let owners: Vec<Value> = owner.map(|uid| json!({"uid": uid, "blockOwnerDeletion": true})).into_iter().collect();
    json!({"metadata": {"namespace": "n", "name": name, "uid": name, "labels": {"l": label}, "ownerReferences": owners}})
}

fn labels(store: &Store, table: TableId, revision: u64) -> Vec<String> {
    let snapshot = store.snapshot_at(table, revision).unwrap();
    snapshot
        .iter_from(&Key::first_in("n"))
        .map(|object| format!("{}={}", object.key.name, object.labels["l"]))
        .collect()
}

#[test]
fn older_revisions_are_readable_until_compacted() {
    let mut store = Store::new(100);
    let table = store.add_table("things");
    let first = store.put(table, object("a", "1", None), &NO_FIELDS).revision;
    let second = store.put(table, object("b", "1", None), &NO_FIELDS).revision;
    let third = store.put(table, object("a", "2", None), &NO_FIELDS).revision;
    let fourth = store.remove(table, object("b", "1", None), &NO_FIELDS).revision;
    assert_eq!([first, second, third, fourth], [2, 3, 4, 5]);
    assert_eq!(labels(&store, table, first), ["a=1"]);
    assert_eq!(labels(&store, table, second), ["a=1", "b=1"]);
    assert_eq!(labels(&store, table, third), ["a=2", "b=1"]);
    assert_eq!(labels(&store, table, fourth), ["a=2"]);
    let seen: Vec<(u64, bool)> =
        store.since(table, second, 10).unwrap().iter().map(|change| (change.revision, change.deleted)).collect();
    assert_eq!(seen, [(third, false), (fourth, true)]);
    store.compact();
    assert_eq!(store.snapshot_at(table, third).unwrap_err(), TooOld { oldest: fourth });
    assert_eq!(store.since(table, fourth, 10).unwrap().len(), 0, "a reader that has seen everything can continue");
    assert!(store.since(table, third, 10).is_err());
}

#[test]
fn window_bounds_kept_changes() {
    let mut store = Store::new(3);
    let table = store.add_table("things");
    for turn in 0..10 {
        store.put(table, object("a", &turn.to_string(), None), &NO_FIELDS);
    }
    assert!(store.since(table, 7, 10).is_err());
    assert_eq!(store.since(table, 8, 10).unwrap().len(), 3);
}

#[test]
fn dependents_are_indexed_by_owner() {
    let mut store = Store::new(10);
    let (owners, dependents) = (store.add_table("things"), store.add_table("things"));
    store.put(owners, object("o", "", None), &NO_FIELDS);
    store.put(dependents, object("d", "", Some("o")), &NO_FIELDS);
    let of = |store: &Store| store.dependents("o").map(|(_, object)| object.key.name.to_string()).collect::<Vec<_>>();
    assert_eq!(of(&store), ["d"]);
    store.put(dependents, object("d", "", None), &NO_FIELDS);
    assert_eq!(of(&store), [""; 0]);
    store.put(dependents, object("d", "", Some("o")), &NO_FIELDS);
    store.remove(dependents, object("d", "", Some("o")), &NO_FIELDS);
    assert_eq!(of(&store), [""; 0]);
    assert!(store.find_by_uid("d").is_none() && store.find_by_uid("o").is_some());
}

#[test]
fn window_bounds_kept_bytes() {
    let mut store = Store::new(10_000);
    let table = store.add_table("things");
    let mut watch_cache = WatchCache::default();
    let text = bytes::Bytes::from(vec![b'x'; 1024 * 1024]);
    for revision in 2..1000 {
        let small = Object::encode(object("a", "", None), revision, &NO_FIELDS);
        let now = Arc::new(Object { text: text.clone(), ..small });
        watch_cache.push(Change { revision, before: None, now, deleted: false }, 10_000, u64::MAX);
    }
    store.tables[table.0].watch_cache = watch_cache;
    store.durable = u64::MAX;
    assert!(store.since(table, 800, 1).is_err());
    assert_eq!(store.since(table, 900, 1000).unwrap().len(), 99);
    store.compact();
}
