//! A cache of the pods that sets of one kind own or could adopt, indexed by owner.
//!
//! Invariant: pods of other controllers are not kept; a pod that another controller takes over is reported as deleted.
//! Must not depend on what sets do with their pods.

use std::sync::Arc;

use kube::Resource;
use muster_reflector::{Cache, Change, Delta};

use super::owners::controller_of;
use super::pod_record::{PodRecord, without_tolerations};

/// The pods of all sets of a kind, and the orphans.
#[derive(Debug)]
pub(crate) struct OwnedPods {
    /// A kind of the group `apps`.
    kind: &'static str,
    pods: Cache<PodRecord>,
}

impl OwnedPods {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, pods: Cache::indexed_by(|pod| vec![owner_uid(pod)]) }
    }

    /// Applies an event and returns the changes.
    pub(crate) fn apply(&mut self, event: Delta<PodRecord>) -> Vec<Change<PodRecord>> {
        self.pods.apply_filtered(event.modify(without_tolerations), |pod| {
            controller_of(pod).is_none_or(|owner| owner.kind == self.kind && owner.api_version.starts_with("apps/"))
        })
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
        uid.into_iter().flat_map(|uid| self.pods.by_index(set.meta().namespace.as_deref().unwrap_or_default(), uid))
    }

    /// The orphans of a namespace, by name.
    pub(crate) fn orphans_in(&self, namespace: &str) -> impl Iterator<Item = &Arc<PodRecord>> {
        self.pods.by_index(namespace, "")
    }
}

/// The UID of the controller; empty for orphans.
fn owner_uid(pod: &PodRecord) -> String {
    controller_of(pod).map(|owner| owner.uid.clone()).unwrap_or_default()
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
        pods.apply(Delta::ListStarted);
        for one in [
            pod("a", Some(("ReplicaSet", "s"))),
            pod("b", Some(("StatefulSet", "t"))),
            pod("c", None),
            pod("d", Some(("ReplicaSet", "other"))),
        ] {
            pods.apply(Delta::Listed(one));
        }
        pods.apply(Delta::ListDone);
        assert_eq!((names(pods.of(&set)), names(pods.orphans_in("d"))), (vec!["a".to_owned()], vec!["c".to_owned()]));
        assert_eq!(names(pods.cache().all()), ["a", "c", "d"]);
        assert!(pods.cache().all().all(|pod| pod.spec.tolerations.is_none()));

        pods.apply(Delta::Applied(pod("c", Some(("ReplicaSet", "s")))));
        let taken = pods.apply(Delta::Applied(pod("a", Some(("StatefulSet", "t")))));
        assert!(taken.len() == 1 && taken[0].old.is_some() && taken[0].new.is_none(), "it is deleted for its old set");
        assert_eq!((names(pods.of(&set)), names(pods.orphans_in("d"))), (vec!["c".to_owned()], vec![]));
        assert!(pods.apply(Delta::Applied(pod("b", Some(("Job", "j"))))).is_empty());

        pods.apply(Delta::ListStarted);
        pods.apply(Delta::Listed(pod("c", Some(("StatefulSet", "t")))));
        let gone = pods.apply(Delta::ListDone);
        assert_eq!(gone.len(), 2, "one was taken over meanwhile, the other deleted");
        assert_eq!((names(pods.of(&set)), names(pods.orphans_in("d"))), (vec![], vec![]));
    }
}
