//! An index of pods by namespace and labels, so that selectors are matched once per distinct label set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::selector_index::Anchor;
use crate::model::ids::{LabelSetId, MatchSetId, PodId, Slab};
use crate::model::labels::Labels;

/// The pods of one namespace with the same labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LabelSet {
    pub(super) namespace: String,
    pub(super) labels: Arc<Labels>,
    pub(super) pods: BTreeSet<PodId>,
    /// Which selectors match.
    pub(crate) matches: MatchSetId,
    /// Pods that have it or are about to.
    users: u32,
}

/// All label sets.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LabelSets {
    slab: Slab<LabelSet>,
    by_labels: BTreeMap<String, BTreeMap<Arc<Labels>, LabelSetId>>,
    /// By label key and value.
    by_value: BTreeMap<String, BTreeMap<String, BTreeSet<LabelSetId>>>,
}

impl LabelSets {
    pub(crate) fn get(&self, id: LabelSetId) -> &LabelSet {
        self.slab.get(id.0).expect("a label set in use exists")
    }

    pub(super) fn get_mut(&mut self, id: LabelSetId) -> &mut LabelSet {
        self.slab.get_mut(id.0).expect("a label set in use exists")
    }

    /// The set with these labels, if there is one; the caller must `release` it.
    pub(super) fn acquire(&mut self, namespace: &str, labels: &Arc<Labels>) -> Option<LabelSetId> {
        let id = *self.by_labels.get(namespace)?.get(labels)?;
        self.get_mut(id).users += 1;
        Some(id)
    }

    /// Adds a set; the caller must `release` it.
    pub(super) fn add(&mut self, namespace: &str, labels: &Arc<Labels>, matches: MatchSetId) -> LabelSetId {
        let (namespace, pods) = (namespace.to_owned(), BTreeSet::new());
        let set = LabelSet { namespace: namespace.clone(), labels: labels.clone(), pods, matches, users: 1 };
        let id = LabelSetId(self.slab.insert(set));
        self.by_labels.entry(namespace).or_default().insert(labels.clone(), id);
        for (key, value) in &**labels {
            self.by_value.entry(key.clone()).or_default().entry(value.clone()).or_default().insert(id);
        }
        id
    }

    /// Drops one reference. Returns the set if it was the last.
    pub(super) fn release(&mut self, id: LabelSetId) -> Option<LabelSet> {
        let set = self.get_mut(id);
        set.users -= 1;
        if set.users > 0 {
            return None;
        }
        let set = self.slab.remove(id.0).expect("a label set in use exists");
        let siblings = self.by_labels.get_mut(&set.namespace).expect("a label set is listed");
        siblings.remove(&set.labels);
        if siblings.is_empty() {
            self.by_labels.remove(&set.namespace);
        }
        for (key, value) in &*set.labels {
            let values = self.by_value.get_mut(key).expect("a label set is listed by its labels");
            let ids = values.get_mut(value).expect("a label set is listed by its labels");
            ids.remove(&id);
            if ids.is_empty() {
                values.remove(value);
            }
            if values.is_empty() {
                self.by_value.remove(key);
            }
        }
        Some(set)
    }

    /// The label sets that have what an anchor names.
    pub(super) fn at<'a>(&'a self, anchor: &Anchor) -> Box<dyn Iterator<Item = LabelSetId> + 'a> {
        match anchor {
            Anchor::Value(key, value) => {
                Box::new(self.by_value.get(key).and_then(|values| values.get(value)).into_iter().flatten().copied())
            }
            Anchor::Key(key) => {
                Box::new(self.by_value.get(key).into_iter().flat_map(BTreeMap::values).flatten().copied())
            }
            Anchor::Namespace(name) => Box::new(self.of_namespace(name)),
            Anchor::Anywhere => Box::new(self.slab.iter().map(|(slot, _)| LabelSetId(slot))),
        }
    }

    /// The label sets of a namespace.
    pub(super) fn of_namespace(&self, namespace: &str) -> impl Iterator<Item = LabelSetId> + '_ {
        self.by_labels.get(namespace).into_iter().flat_map(BTreeMap::values).copied()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (LabelSetId, &LabelSet)> {
        self.slab.iter().map(|(slot, set)| (LabelSetId(slot), set))
    }
}
