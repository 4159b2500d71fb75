//! A cache of the pods that sets of one kind own or could adopt, indexed by owner.
//!
//! Invariant: pods of other controllers are not kept; a pod that another controller takes over is reported as deleted.
//! Must not depend on what sets do with their pods.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use kube::runtime::watcher;
use muster_playground_client::cache::{Cache, Change, Key, key_of};

use super::owners::controller_of;
use super::pod_record::{PodRecord, without_tolerations};

/// The pods of all sets of a kind, and the orphans.
#[derive(Debug)]
pub(crate) struct OwnedPods {
    /// A kind of the group `apps`.
    kind: &'static str,
    pods: Cache<PodRecord>,
    /// By namespace and UID of the controller; the UID is empty for orphans.
    by_owner: BTreeMap<Key, BTreeSet<Key>>,
}

impl OwnedPods {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, pods: Cache::default(), by_owner: BTreeMap::new() }
    }

    /// Applies an event and returns the changes.
    pub(crate) fn apply(&mut self, event: watcher::Event<PodRecord>) -> Vec<Change<PodRecord>> {
        let Some(event) = self.relevant(event.modify(without_tolerations)) else { return Vec::new() };
        let changes = self.pods.apply(event);
        for change in &changes {
            if let Some(old) = &change.old {
                self.remove_from_index(old);
            }
            if let Some(new) = &change.new {
                self.by_owner.entry(owner_of(new)).or_default().insert(key_of(&**new));
            }
        }
        changes
    }

    /// The event, if it is about a pod that a set owns or could adopt.
    fn relevant(&self, event: watcher::Event<PodRecord>) -> Option<watcher::Event<PodRecord>> {
        let is_relevant = |pod: &PodRecord| {
            controller_of(pod).is_none_or(|owner| owner.kind == self.kind && owner.api_version.starts_with("apps/"))
        };
        match event {
            watcher::Event::Apply(pod) if !is_relevant(&pod) => {
                self.pods.get(&key_of(&pod)).is_some().then_some(watcher::Event::Delete(pod))
            }
            watcher::Event::InitApply(pod) if !is_relevant(&pod) => None,
            event => Some(event),
        }
    }

    fn remove_from_index(&mut self, pod: &PodRecord) {
        let owner = owner_of(pod);
        if let Some(pods) = self.by_owner.get_mut(&owner) {
            pods.remove(&key_of(pod));
            if pods.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    /// Whether the initial list is complete.
    pub(crate) fn has_synced(&self) -> bool {
        self.pods.has_synced()
    }

    /// The underlying cache.
    pub(crate) fn cache(&self) -> &Cache<PodRecord> {
        &self.pods
    }

    /// The pods of a set, by name.
    pub(crate) fn of<O: Resource>(&self, set: &O) -> impl Iterator<Item = &Arc<PodRecord>> {
        let uid = set.meta().uid.as_deref().filter(|uid| !uid.is_empty());
        uid.into_iter().flat_map(|uid| self.indexed(set.meta().namespace.as_deref().unwrap_or_default(), uid))
    }

    /// The orphans of a namespace, by name.
    pub(crate) fn orphans_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.indexed(namespace, "")
    }

    fn indexed(&self, namespace: &str, uid: &str) -> impl Iterator<Item = &Arc<PodRecord>> + use<'_> {
        let keys = self.by_owner.get(&(namespace.to_owned(), uid.to_owned())).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
    }
}

fn owner_of(pod: &PodRecord) -> Key {
    let uid = controller_of(pod).map(|owner| owner.uid.clone()).unwrap_or_default();
    (pod.metadata.namespace.clone().unwrap_or_default(), uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use kube::ResourceExt;
    use serde_json::json;

    fn pod(name: &str, owner: Option<(&str, &str)>) -> PodRecord {
        let owner = owner.map(
            |(kind, uid)| json!({"apiVersion": "apps/v1", "kind": kind, "name": uid, "uid": uid, "controller": true}),
        );
        let metadata = json!({
            "name": name, "namespace": "d", "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        });
        serde_json::from_value(json!({"metadata": metadata, "spec": {"tolerations": [{"key": "k"}]}})).unwrap()
    }

    fn names<'a>(pods: impl Iterator<Item = &'a Arc<PodRecord>>) -> Vec<String> {
        pods.map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn pods_of_other_controllers_are_not_kept() {
        let set: ReplicaSet =
            serde_json::from_value(json!({"metadata": {"uid": "s", "namespace": "d"}, "spec": {"selector": {}}}))
                .unwrap();
        let mut pods = OwnedPods::new("ReplicaSet");
        pods.apply(watcher::Event::Init);
        for one in [
            pod("a", Some(("ReplicaSet", "s"))),
            pod("b", Some(("StatefulSet", "t"))),
            pod("c", None),
            pod("d", Some(("ReplicaSet", "other"))),
        ] {
            pods.apply(watcher::Event::InitApply(one));
        }
        pods.apply(watcher::Event::InitDone);
        assert_eq!((names(pods.of(&set)), names(pods.orphans_in("d"))), (vec!["a".to_owned()], vec!["c".to_owned()]));
        assert_eq!(names(pods.cache().all()), ["a", "c", "d"]);
        assert!(pods.cache().all().all(|pod| pod.spec.tolerations.is_none()));

        pods.apply(watcher::Event::Apply(pod("c", Some(("ReplicaSet", "s")))));
        let taken = pods.apply(watcher::Event::Apply(pod("a", Some(("StatefulSet", "t")))));
        assert!(taken.len() == 1 && taken[0].old.is_some() && taken[0].new.is_none(), "it is deleted for its old set");
        assert_eq!((names(pods.of(&set)), names(pods.orphans_in("d"))), (vec!["c".to_owned()], vec![]));
        assert!(pods.apply(watcher::Event::Apply(pod("b", Some(("Job", "j"))))).is_empty());

        pods.apply(watcher::Event::Init);
        pods.apply(watcher::Event::InitApply(pod("c", Some(("StatefulSet", "t")))));
        let gone = pods.apply(watcher::Event::InitDone);
        assert_eq!(gone.len(), 2, "one was taken over meanwhile, the other deleted");
        assert!(pods.by_owner.is_empty());
    }
}
