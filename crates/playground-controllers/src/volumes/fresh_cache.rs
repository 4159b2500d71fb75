//! A cache that also takes the answers to the controller's own writes, and ignores events that are older.
//!
//! Without it a controller would decide again on what it has just changed.

use std::sync::Arc;

use kube::Resource;
use muster_reflector::{Cache, Change, Delta, key_of};

/// Revisions of one resource can be compared as numbers.
fn revision<K: Resource>(object: &K) -> u64 {
    let written = object.meta().resource_version.as_deref();
    written.and_then(|written| written.parse().ok()).unwrap_or_default()
}

/// Applies an event of the watch. Where the cache has a newer state of the object, it stays.
pub(crate) fn apply<K: Resource + Clone>(cache: &mut Cache<K>, event: Delta<K>) -> Vec<Change<K>> {
    let newer = |object: &K| {
        let known = cache.get(&key_of(object)).filter(|known| known.meta().uid == object.meta().uid);
        known.filter(|known| revision(&***known) > revision(object)).map(|known| (**known).clone())
    };
    let event = match event {
        Delta::Applied(object) => Delta::Applied(newer(&object).unwrap_or(object)),
        Delta::Listed(object) => Delta::Listed(newer(&object).unwrap_or(object)),
        other => other,
    };
    cache.apply(event)
}

/// Stores the answer to a write.
pub(crate) fn store<K: Resource + Clone>(cache: &mut Cache<K>, object: K) -> Arc<K> {
    let key = key_of(&object);
    apply(cache, Delta::Applied(object.clone()));
    cache.get(&key).cloned().unwrap_or_else(|| Arc::new(object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::PersistentVolume;
    use serde_json::json;

    fn volume(revision: u64, phase: &str) -> PersistentVolume {
        let metadata = json!({"name": "v", "uid": "u", "resourceVersion": revision.to_string()});
        serde_json::from_value(json!({"metadata": metadata, "status": {"phase": phase}})).unwrap()
    }

    #[test]
    fn older_event_does_not_overwrite_an_answer() {
        let mut cache = Cache::default();
        apply(&mut cache, Delta::Applied(volume(5, "Pending")));
        store(&mut cache, volume(7, "Bound"));
        apply(&mut cache, Delta::Applied(volume(6, "Available")));
        let phase = |cache: &Cache<PersistentVolume>| cache.find("", "v").unwrap().status.clone().unwrap().phase;
        assert_eq!(phase(&cache).as_deref(), Some("Bound"));
        apply(&mut cache, Delta::Applied(volume(8, "Released")));
        assert_eq!(phase(&cache).as_deref(), Some("Released"));
        apply(&mut cache, Delta::Deleted(volume(9, "Released")));
        assert!(cache.find("", "v").is_none());
    }
}
