//! The index of pod selectors, interned: matching happens when a pod or a selector is new, never during placement.
//!
//! A selector lives as long as a term or a class of matching pods refers to it. So of two pods with equal labels,
//! either both or none are listed under it, independent of when they were created.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::SelectorSet;
use crate::model::ids::{AffinityTermId, ClassId, DomainCountsId, SelectorId, Slab};
use crate::model::inter_pod::PodSelector;
use crate::model::labels::{LabelOperator, Labels};

/// Selectors that must all match.
pub(crate) type Conjunction = Vec<PodSelector>;

/// A label key and the values of which a pod must have one.
type IndexKey = (String, Vec<String>);

/// An interned selector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selector {
    selectors: Conjunction,
    users: u32,
    /// The label requirement that it is indexed by; `None` if it has no `In` requirement.
    index_key: Option<IndexKey>,
    /// The classes of pods that match it.
    pub(super) classes: Vec<ClassId>,
    /// The affinity terms on it.
    pub(super) affinity_terms: Vec<AffinityTermId>,
    /// The counts of pods that match it.
    pub(super) counts: Vec<DomainCountsId>,
}

/// All selectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SelectorIndex {
    slab: Slab<Selector>,
    by_selectors: BTreeMap<Conjunction, SelectorId>,
    /// Selectors with an `In` requirement, by label key and value.
    by_label_value: BTreeMap<String, BTreeMap<String, Vec<SelectorId>>>,
    /// Selectors without one.
    unindexed: Vec<SelectorId>,
}

impl SelectorIndex {
    pub(super) fn get(&self, id: SelectorId) -> &Selector {
        self.slab.get(id.0).expect("a selector in use exists")
    }

    pub(super) fn get_mut(&mut self, id: SelectorId) -> &mut Selector {
        self.slab.get_mut(id.0).expect("a selector in use exists")
    }

    /// The id of a selector, and whether it is new; the caller must `release` it.
    pub(super) fn acquire(&mut self, selectors: Conjunction) -> (SelectorId, bool) {
        if let Some(id) = self.by_selectors.get(&selectors).copied() {
            self.get_mut(id).users += 1;
            return (id, false);
        }
        let index_key = self.index_key(&selectors);
        let (classes, affinity_terms, counts) = (Vec::new(), Vec::new(), Vec::new());
        let selector = Selector {
            selectors: selectors.clone(),
            users: 1,
            index_key: index_key.clone(),
            classes,
            affinity_terms,
            counts,
        };
        let id = SelectorId(self.slab.insert(selector));
        self.for_each_list(index_key, |selectors| selectors.push(id));
        self.by_selectors.insert(selectors, id);
        (id, true)
    }

    /// Adds one reference.
    pub(super) fn hold(&mut self, id: SelectorId) {
        self.get_mut(id).users += 1;
    }

    pub(super) fn exists(&self, id: SelectorId) -> bool {
        self.slab.get(id.0).is_some()
    }

    /// Drops one reference.
    pub(super) fn release(&mut self, id: SelectorId) {
        let selector = self.get_mut(id);
        selector.users -= 1;
        if selector.users > 0 {
            return;
        }
        let selector = self.slab.remove(id.0).expect("a selector in use exists");
        self.for_each_list(selector.index_key, |selectors| selectors.retain(|other| *other != id));
        self.by_selectors.remove(&selector.selectors);
    }

    /// The selectors that match a pod; they are not referenced for the caller.
    pub(super) fn of_pod(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> SelectorSet {
        let by_value = labels.iter().filter_map(|(key, value)| self.by_label_value.get(key)?.get(value)).flatten();
        let mut selectors: SelectorSet = by_value.chain(&self.unindexed).copied().collect();
        selectors.sort_unstable();
        selectors.dedup();
        selectors.retain(|selector| self.matches(*selector, namespace, of_namespace, labels));
        selectors
    }

    /// The only namespaces whose pods a selector can match; `None` if it does not list them by name.
    pub(super) fn namespaces(&self, id: SelectorId) -> Option<&BTreeSet<String>> {
        let mut named = self.get(id).selectors.iter().filter(|selector| selector.namespace_selector.is_none());
        named.next().map(|selector| &selector.namespaces)
    }

    /// Whether a selector matches a pod.
    pub(super) fn matches(&self, id: SelectorId, namespace: &str, of_namespace: &Labels, labels: &Labels) -> bool {
        self.get(id).selectors.iter().all(|selector| selector.matches(namespace, of_namespace, labels))
    }

    /// The label requirement to index a selector by: the one with the fewest values and the shortest lists.
    fn index_key(&self, selectors: &Conjunction) -> Option<IndexKey> {
        let requirements = selectors.iter().flat_map(|selector| &selector.labels);
        let requirements = requirements.filter_map(|one| {
            if let LabelOperator::In(values) = &one.operator { Some((&one.key, values)) } else { None }
        });
        let list_length = |key: &String, values: &[String]| -> usize {
            let by_value = self.by_label_value.get(key);
            values.iter().filter_map(|value| Some(by_value?.get(value)?.len())).sum()
        };
        let best = requirements.min_by_key(|(key, values)| (values.len(), list_length(key, values)));
        best.map(|(key, values)| (key.clone(), values.clone()))
    }

    /// Applies a change to each list of the index that has a selector with this key: one per value.
    fn for_each_list(&mut self, index_key: Option<IndexKey>, mut change: impl FnMut(&mut Vec<SelectorId>)) {
        let Some((key, values)) = index_key else {
            change(&mut self.unindexed);
            return;
        };
        let by_value = self.by_label_value.entry(key.clone()).or_default();
        for value in values {
            let selectors = by_value.entry(value.clone()).or_default();
            change(selectors);
            if selectors.is_empty() {
                by_value.remove(&value);
            }
        }
        if by_value.is_empty() {
            self.by_label_value.remove(&key);
        }
    }
}
