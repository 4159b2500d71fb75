//! The pods that sets of one kind have or could take in, as the watch shows them, by owner.
//!
//! Invariant: pods that somebody else controls are not kept; one that is theirs from now on is gone for us.
//! It must not know what sets want.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use kube::runtime::watcher;
use muster_playground_client::mirror::{Change, Key, Mirror, key_of};

use super::owners::controller_of;
use super::pod_card::{PodCard, without_tolerations};

/// The pods of all sets of a kind, and those of nobody.
#[derive(Debug)]
pub(crate) struct SetPods {
    /// A kind of the group `apps`.
    kind: &'static str,
    pods: Mirror<PodCard>,
    /// By namespace and UID of the controller, which is empty for those that have none.
    by_owner: BTreeMap<Key, BTreeSet<Key>>,
}

impl SetPods {
    pub(crate) fn new(kind: &'static str) -> Self {
        Self { kind, pods: Mirror::default(), by_owner: BTreeMap::new() }
    }

    /// Takes in an event.
    pub(crate) fn take(&mut self, event: watcher::Event<PodCard>) -> Vec<Change<PodCard>> {
        let Some(event) = self.ours(event.modify(without_tolerations)) else { return Vec::new() };
        let changes = self.pods.take(event);
        for change in &changes {
            if let Some(old) = &change.old {
                self.unfile(old);
            }
            if let Some(new) = &change.new {
                self.by_owner.entry(owner_of(new)).or_default().insert(key_of(&**new));
            }
        }
        changes
    }

    /// The event, if it is about a pod that a set has or could have.
    fn ours(&self, event: watcher::Event<PodCard>) -> Option<watcher::Event<PodCard>> {
        let is_ours = |pod: &PodCard| {
            controller_of(pod).is_none_or(|owner| owner.kind == self.kind && owner.api_version.starts_with("apps/"))
        };
        match event {
            watcher::Event::Apply(pod) if !is_ours(&pod) => {
                self.pods.get(&key_of(&pod)).is_some().then_some(watcher::Event::Delete(pod))
            }
            watcher::Event::InitApply(pod) if !is_ours(&pod) => None,
            event => Some(event),
        }
    }

    fn unfile(&mut self, pod: &PodCard) {
        let owner = owner_of(pod);
        if let Some(pods) = self.by_owner.get_mut(&owner) {
            pods.remove(&key_of(pod));
            if pods.is_empty() {
                self.by_owner.remove(&owner);
            }
        }
    }

    /// Whether a whole list has been seen.
    pub(crate) fn is_complete(&self) -> bool {
        self.pods.is_complete()
    }

    /// All that are kept.
    pub(crate) fn view(&self) -> &Mirror<PodCard> {
        &self.pods
    }

    /// The pods of a set, by name.
    pub(crate) fn of<O: Resource>(&self, set: &O) -> impl Iterator<Item = &Arc<PodCard>> {
        let uid = set.meta().uid.as_deref().filter(|uid| !uid.is_empty());
        uid.into_iter().flat_map(|uid| self.filed(set.meta().namespace.as_deref().unwrap_or_default(), uid))
    }

    /// The pods of a namespace that nobody controls, by name.
    pub(crate) fn of_nobody(&self, namespace: &str) -> impl Iterator<Item = &Arc<PodCard>> {
        self.filed(namespace, "")
    }

    fn filed(&self, namespace: &str, uid: &str) -> impl Iterator<Item = &Arc<PodCard>> + use<'_> {
        let keys = self.by_owner.get(&(namespace.to_owned(), uid.to_owned())).into_iter().flatten();
        keys.filter_map(|key| self.pods.get(key))
    }
}

fn owner_of(pod: &PodCard) -> Key {
    let uid = controller_of(pod).map(|owner| owner.uid.clone()).unwrap_or_default();
    (pod.metadata.namespace.clone().unwrap_or_default(), uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ReplicaSet;
    use kube::ResourceExt;
    use serde_json::json;

    fn pod(name: &str, owner: Option<(&str, &str)>) -> PodCard {
        let owner = owner.map(
            |(kind, uid)| json!({"apiVersion": "apps/v1", "kind": kind, "name": uid, "uid": uid, "controller": true}),
        );
        let metadata = json!({
            "name": name, "namespace": "d", "ownerReferences": owner.into_iter().collect::<Vec<_>>(),
        });
        serde_json::from_value(json!({"metadata": metadata, "spec": {"tolerations": [{"key": "k"}]}})).unwrap()
    }

    fn names<'a>(pods: impl Iterator<Item = &'a Arc<PodCard>>) -> Vec<String> {
        pods.map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn pods_of_others_are_not_kept() {
        let set: ReplicaSet =
            serde_json::from_value(json!({"metadata": {"uid": "s", "namespace": "d"}, "spec": {"selector": {}}}))
                .unwrap();
        let mut pods = SetPods::new("ReplicaSet");
        pods.take(watcher::Event::Init);
        for one in [
            pod("a", Some(("ReplicaSet", "s"))),
            pod("b", Some(("StatefulSet", "t"))),
            pod("c", None),
            pod("d", Some(("ReplicaSet", "other"))),
        ] {
            pods.take(watcher::Event::InitApply(one));
        }
        pods.take(watcher::Event::InitDone);
        assert_eq!((names(pods.of(&set)), names(pods.of_nobody("d"))), (vec!["a".to_owned()], vec!["c".to_owned()]));
        assert_eq!(names(pods.view().all()), ["a", "c", "d"]);
        assert!(pods.view().all().all(|pod| pod.spec.tolerations.is_none()));

        pods.take(watcher::Event::Apply(pod("c", Some(("ReplicaSet", "s")))));
        let taken = pods.take(watcher::Event::Apply(pod("a", Some(("StatefulSet", "t")))));
        assert!(taken.len() == 1 && taken[0].old.is_some() && taken[0].new.is_none(), "it is gone for its old set");
        assert_eq!((names(pods.of(&set)), names(pods.of_nobody("d"))), (vec!["c".to_owned()], vec![]));
        assert!(pods.take(watcher::Event::Apply(pod("b", Some(("Job", "j"))))).is_empty());

        pods.take(watcher::Event::Init);
        pods.take(watcher::Event::InitApply(pod("c", Some(("StatefulSet", "t")))));
        let gone = pods.take(watcher::Event::InitDone);
        assert_eq!(gone.len(), 2, "one was taken away meanwhile, the other deleted");
        assert!(pods.by_owner.is_empty());
    }
}
