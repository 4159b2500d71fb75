//! An index of pods by namespace and labels, so that a new selector is matched once per distinct label set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::ids::PodId;
use crate::model::labels::Labels;

/// The pods of one namespace by their labels.
type PodsByLabels = BTreeMap<Arc<Labels>, BTreeSet<PodId>>;

/// All pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelSets(BTreeMap<String, PodsByLabels>);

impl LabelSets {
    pub(crate) fn add(&mut self, namespace: &str, labels: &Arc<Labels>, pod: PodId) {
        if !self.0.contains_key(namespace) {
            self.0.insert(namespace.to_owned(), PodsByLabels::new());
        }
        let label_sets = self.0.get_mut(namespace).expect("just put there");
        label_sets.entry(labels.clone()).or_default().insert(pod);
    }

    pub(crate) fn remove(&mut self, namespace: &str, labels: &Arc<Labels>, pod: PodId) {
        let Some(label_sets) = self.0.get_mut(namespace) else { return };
        if let Some(pods) = label_sets.get_mut(labels) {
            pods.remove(&pod);
            if pods.is_empty() {
                label_sets.remove(labels);
            }
        }
        if label_sets.is_empty() {
            self.0.remove(namespace);
        }
    }

    /// The pods that match, in slot order.
    pub(crate) fn matching(&self, matches: impl Fn(&str, &Labels) -> bool) -> BTreeSet<PodId> {
        let label_sets = self
            .0
            .iter()
            .flat_map(|(namespace, label_sets)| label_sets.iter().map(move |counted_pods| (namespace, counted_pods)));
        let matching = label_sets.filter(|(namespace, (labels, _))| matches(namespace, labels));
        matching.flat_map(|(_, (_, pods))| pods.iter().copied()).collect()
    }

    /// The pods in these namespaces that match, in slot order.
    pub(crate) fn matching_in(
        &self,
        namespaces: &BTreeSet<String>,
        matches: impl Fn(&str, &Labels) -> bool,
    ) -> BTreeSet<PodId> {
        let label_sets = namespaces
            .iter()
            .flat_map(|namespace| self.of_namespace(namespace).map(move |counted_pods| (namespace, counted_pods)));
        let matching = label_sets.filter(|(namespace, (labels, _))| matches(namespace, labels));
        matching.flat_map(|(_, (_, pods))| pods.iter().copied()).collect()
    }

    /// The label sets of a namespace with their pods.
    pub(crate) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = (&Labels, &BTreeSet<PodId>)> {
        self.0.get(namespace).into_iter().flatten().map(|(labels, pods)| (&**labels, pods))
    }
}
