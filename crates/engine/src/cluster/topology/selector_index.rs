//! The index of pod selectors, interned: matching happens when a label set or a selector is new, never during
//! placement.
//!
//! A selector is *broad* if it matches a pod without labels in a namespace without labels: all of its requirements are
//! negative. A broad selector lists the label sets that it does not match, any other the ones that it does. So
//! selectors that match nearly every pod of the cluster cost as little as those that match few, and pods that all of
//! them match do not differ.

use std::collections::{BTreeMap, BTreeSet};

use super::match_sets::Listed;
use crate::model::ids::{AffinityTermId, DomainCountsId, MatchSetId, SelectorId, Slab};
use crate::model::inter_pod::PodSelector;
use crate::model::labels::{LabelOperator, Labels};

/// Selectors that must all match.
pub(crate) type Conjunction = Vec<PodSelector>;

/// The most values of an `In` requirement for which it is preferred to other anchors.
const VALUES_MAX: usize = 16;

/// What a label set has if a selector lists it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Anchor {
    /// This label with this value.
    Value(String, String),
    /// This label.
    Key(String),
    /// This namespace.
    Namespace(String),
    /// Nothing in particular.
    Anywhere,
}

/// An interned selector.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Selector {
    selectors: Conjunction,
    /// Whether it lists the label sets that it does not match.
    pub(super) broad: bool,
    users: u32,
    /// A label set that it lists has one of these.
    anchors: Vec<Anchor>,
    /// The match sets that it is listed in.
    pub(super) listed_in: BTreeSet<MatchSetId>,
    /// The affinity terms on it.
    pub(super) affinity_terms: Vec<AffinityTermId>,
    /// The counts of pods that match it.
    pub(super) counts: Vec<DomainCountsId>,
}

/// All selectors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SelectorIndex {
    slab: Slab<Selector>,
    by_selectors: BTreeMap<(Conjunction, bool), SelectorId>,
    by_value: BTreeMap<String, BTreeMap<String, BTreeSet<SelectorId>>>,
    by_key: BTreeMap<String, BTreeSet<SelectorId>>,
    by_namespace: BTreeMap<String, BTreeSet<SelectorId>>,
    anywhere: BTreeSet<SelectorId>,
}

impl SelectorIndex {
    pub(super) fn get(&self, id: SelectorId) -> &Selector {
        self.slab.get(id.0).expect("a selector in use exists")
    }

    pub(super) fn get_mut(&mut self, id: SelectorId) -> &mut Selector {
        self.slab.get_mut(id.0).expect("a selector in use exists")
    }

    /// The id of a selector, and whether it is new; the caller must `release` it.
    pub(super) fn acquire(&mut self, selectors: Conjunction, may_be_broad: bool) -> (SelectorId, bool) {
        let broad = may_be_broad && selectors.iter().all(is_broad);
        let key = (selectors, broad);
        if let Some(id) = self.by_selectors.get(&key).copied() {
            self.get_mut(id).users += 1;
            return (id, false);
        }
        let anchors = if broad { broad_anchors(&key.0) } else { narrow_anchors(&key.0) };
        let selector = Selector {
            selectors: key.0.clone(),
            broad,
            users: 1,
            anchors: anchors.clone(),
            listed_in: BTreeSet::new(),
            affinity_terms: Vec::new(),
            counts: Vec::new(),
        };
        let id = SelectorId(self.slab.insert(selector));
        for anchor in anchors {
            self.change_list(anchor, |selectors| _ = selectors.insert(id));
        }
        self.by_selectors.insert(key, id);
        (id, true)
    }

    /// Drops one reference. Returns the selector if it was the last.
    pub(super) fn release(&mut self, id: SelectorId) -> Option<Selector> {
        let selector = self.get_mut(id);
        selector.users -= 1;
        if selector.users > 0 {
            return None;
        }
        let selector = self.slab.remove(id.0).expect("a selector in use exists");
        for anchor in selector.anchors.iter().cloned() {
            self.change_list(anchor, |selectors| _ = selectors.remove(&id));
        }
        self.by_selectors.remove(&(selector.selectors.clone(), selector.broad));
        Some(selector)
    }

    /// Where the label sets are that a selector lists.
    pub(super) fn anchors(&self, id: SelectorId) -> &[Anchor] {
        &self.get(id).anchors
    }

    /// The selectors that list a label set.
    pub(super) fn listing(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> Listed {
        let by_value = labels.iter().filter_map(|(key, value)| self.by_value.get(key)?.get(value)).flatten();
        let by_key = labels.keys().filter_map(|key| self.by_key.get(key)).flatten();
        let by_namespace = self.by_namespace.get(namespace).into_iter().flatten();
        let candidates: BTreeSet<SelectorId> =
            by_value.chain(by_key).chain(by_namespace).chain(&self.anywhere).copied().collect();
        let mut listed = Listed::default();
        for id in candidates.into_iter().filter(|id| self.lists(*id, namespace, of_namespace, labels)) {
            listed.add(id, self.get(id).broad);
        }
        listed
    }

    /// The selectors that list a label set, found without the index.
    pub(super) fn listing_by_scan(&self, namespace: &str, of_namespace: &Labels, labels: &Labels) -> Listed {
        let mut listed = Listed::default();
        for (slot, selector) in self.slab.iter() {
            if self.lists(SelectorId(slot), namespace, of_namespace, labels) {
                listed.add(SelectorId(slot), selector.broad);
            }
        }
        listed
    }

    /// Whether a selector lists a label set.
    pub(super) fn lists(&self, id: SelectorId, namespace: &str, of_namespace: &Labels, labels: &Labels) -> bool {
        let selector = self.get(id);
        selector.selectors.iter().all(|one| one.matches(namespace, of_namespace, labels)) != selector.broad
    }

    /// Applies a change to the list of an anchor.
    fn change_list(&mut self, anchor: Anchor, change: impl FnOnce(&mut BTreeSet<SelectorId>)) {
        match anchor {
            Anchor::Value(key, value) => {
                let values = self.by_value.entry(key.clone()).or_default();
                change_entry(values, &value, change);
                if values.is_empty() {
                    self.by_value.remove(&key);
                }
            }
            Anchor::Key(key) => change_entry(&mut self.by_key, &key, change),
            Anchor::Namespace(name) => change_entry(&mut self.by_namespace, &name, change),
            Anchor::Anywhere => change(&mut self.anywhere),
        }
    }
}

fn change_entry(
    lists: &mut BTreeMap<String, BTreeSet<SelectorId>>,
    key: &str,
    change: impl FnOnce(&mut BTreeSet<SelectorId>),
) {
    let list = lists.entry(key.to_owned()).or_default();
    change(list);
    if list.is_empty() {
        lists.remove(key);
    }
}

/// Whether a selector matches a pod without labels in a namespace without labels.
fn is_broad(selector: &PodSelector) -> bool {
    static NONE: Labels = Labels::new();
    let in_namespace = selector.namespace_selector.as_ref();
    in_namespace.is_some_and(|requirements| requirements.iter().all(|one| one.matches(&NONE)))
        && selector.labels.iter().all(|one| one.matches(&NONE))
}

/// A label set that does not match has a label that some requirement excludes, or is in a namespace that has.
fn broad_anchors(selectors: &Conjunction) -> Vec<Anchor> {
    let limits_namespaces = |selector: &PodSelector| selector.namespace_selector.iter().any(|all| !all.is_empty());
    if selectors.iter().any(limits_namespaces) {
        return vec![Anchor::Anywhere];
    }
    let requirements = selectors.iter().flat_map(|selector| &selector.labels);
    let anchors = requirements.flat_map(|one| match &one.operator {
        LabelOperator::NotIn(values) => {
            values.iter().map(|value| Anchor::Value(one.key.clone(), value.clone())).collect()
        }
        _ => vec![Anchor::Key(one.key.clone())],
    });
    anchors.collect()
}

/// A label set that matches meets every requirement: the anchors are those of the most specific one.
fn narrow_anchors(selectors: &Conjunction) -> Vec<Anchor> {
    let by_label = selectors.iter().flat_map(|selector| &selector.labels).filter_map(|one| match &one.operator {
        LabelOperator::In(values) => {
            let anchors = values.iter().map(|value| Anchor::Value(one.key.clone(), value.clone())).collect();
            Some((values.len(), anchors))
        }
        LabelOperator::Exists | LabelOperator::Gt(_) | LabelOperator::Lt(_) => {
            Some((VALUES_MAX, vec![Anchor::Key(one.key.clone())]))
        }
        LabelOperator::NotIn(_) | LabelOperator::DoesNotExist => None,
    });
    let named = selectors.iter().filter(|selector| selector.namespace_selector.is_none());
    let by_namespace = named.map(|selector| {
        let anchors = selector.namespaces.iter().cloned().map(Anchor::Namespace).collect();
        (VALUES_MAX + selector.namespaces.len(), anchors)
    });
    let best = by_label.chain(by_namespace).min_by_key(|(cost, _): &(usize, Vec<Anchor>)| *cost);
    best.map_or_else(|| vec![Anchor::Anywhere], |(_, anchors)| anchors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::labels::Requirement;

    fn selector(namespaces: &[&str], all: bool, requirements: &[(&str, LabelOperator)]) -> Conjunction {
        let labels = requirements
            .iter()
            .map(|(key, operator)| Requirement { key: (*key).to_owned(), operator: operator.clone() });
        vec![PodSelector {
            namespaces: namespaces.iter().map(|name| (*name).to_owned()).collect(),
            namespace_selector: all.then(Vec::new),
            labels: labels.collect(),
        }]
    }

    fn values(values: &[&str]) -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).collect()
    }

    #[test]
    fn selector_with_negative_requirements_only_is_broad_in_all_namespaces() {
        let not_a = ("app", LabelOperator::NotIn(values(&["a"])));
        for (selectors, broad) in [
            (selector(&[], true, &[]), true),
            (selector(&[], true, std::slice::from_ref(&not_a)), true),
            (selector(&[], true, &[("app", LabelOperator::DoesNotExist)]), true),
            (selector(&["ns"], false, std::slice::from_ref(&not_a)), false),
            (selector(&[""], false, &[]), false),
            (selector(&[], true, &[("app", LabelOperator::Exists)]), false),
            (selector(&[], true, &[not_a, ("app", LabelOperator::In(values(&["b"])))]), false),
        ] {
            let (id, _) = SelectorIndex::default().acquire(selectors.clone(), true);
            let mut index = SelectorIndex::default();
            assert_eq!(id, index.acquire(selectors.clone(), true).0);
            assert_eq!(index.get(id).broad, broad, "{selectors:?}");
        }
    }

    #[test]
    fn index_finds_what_a_scan_finds() {
        let mut index = SelectorIndex::default();
        let operators = [
            LabelOperator::In(values(&["a"])),
            LabelOperator::In(Vec::new()),
            LabelOperator::NotIn(values(&["a", "b"])),
            LabelOperator::Exists,
            LabelOperator::DoesNotExist,
            LabelOperator::Gt(3),
        ];
        for all in [false, true] {
            for operator in &operators {
                index.acquire(selector(&["ns"], all, &[("app", operator.clone())]), true);
                index.acquire(selector(&["ns"], all, &[("app", operator.clone())]), false);
                for other in &operators {
                    index.acquire(selector(&["ns"], all, &[("app", operator.clone()), ("x", other.clone())]), true);
                }
            }
        }
        for namespace in ["ns", "other"] {
            for value in ["", "a", "b", "c", "7"] {
                let mut labels = Labels::from([("x".to_owned(), "a".to_owned())]);
                if !value.is_empty() {
                    labels.insert("app".to_owned(), value.to_owned());
                }
                let found = index.listing(namespace, &Labels::new(), &labels);
                assert_eq!(found, index.listing_by_scan(namespace, &Labels::new(), &labels), "{labels:?}");
            }
        }
    }
}
