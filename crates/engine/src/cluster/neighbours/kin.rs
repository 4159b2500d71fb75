//! The pods by namespace and labels: like pods stand together, so that a new selector is held against each sort once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::ids::PodId;
use crate::model::labels::Labels;

/// Pods of one namespace with the same labels.
type Sorts = BTreeMap<Arc<Labels>, BTreeSet<PodId>>;

/// All pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Kin(BTreeMap<String, Sorts>);

impl Kin {
    pub(crate) fn add(&mut self, namespace: &str, labels: &Arc<Labels>, pod: PodId) {
        if !self.0.contains_key(namespace) {
            self.0.insert(namespace.to_owned(), Sorts::new());
        }
        let sorts = self.0.get_mut(namespace).expect("just put there");
        sorts.entry(labels.clone()).or_default().insert(pod);
    }

    pub(crate) fn remove(&mut self, namespace: &str, labels: &Arc<Labels>, pod: PodId) {
        let Some(sorts) = self.0.get_mut(namespace) else { return };
        if let Some(pods) = sorts.get_mut(labels) {
            pods.remove(&pod);
            if pods.is_empty() {
                sorts.remove(labels);
            }
        }
        if sorts.is_empty() {
            self.0.remove(namespace);
        }
    }

    /// The pods that a selector is about, in slot order.
    pub(crate) fn matching(&self, matches: impl Fn(&str, &Labels) -> bool) -> BTreeSet<PodId> {
        let sorts = self.0.iter().flat_map(|(namespace, sorts)| sorts.iter().map(move |sort| (namespace, sort)));
        let meant = sorts.filter(|(namespace, (labels, _))| matches(namespace, labels));
        meant.flat_map(|(_, (_, pods))| pods.iter().copied()).collect()
    }

    /// The same, of pods in these namespaces alone.
    pub(crate) fn matching_in(
        &self,
        namespaces: &BTreeSet<String>,
        matches: impl Fn(&str, &Labels) -> bool,
    ) -> BTreeSet<PodId> {
        let sorts =
            namespaces.iter().flat_map(|namespace| self.of_namespace(namespace).map(move |sort| (namespace, sort)));
        let meant = sorts.filter(|(namespace, (labels, _))| matches(namespace, labels));
        meant.flat_map(|(_, (_, pods))| pods.iter().copied()).collect()
    }

    /// The sorts of pods in a namespace.
    pub(crate) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = (&Labels, &BTreeSet<PodId>)> {
        self.0.get(namespace).into_iter().flatten().map(|(labels, pods)| (&**labels, pods))
    }
}
