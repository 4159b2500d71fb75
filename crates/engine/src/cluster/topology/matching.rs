//! Which selectors match which label sets, kept up to date: a new selector is matched with the label sets that it may
//! list, a new label set with the selectors that may list it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Topology;
use super::domain_counts::CountedPods;
use super::match_sets::{Listed, MatchSets};
use super::selector_index::Selector;
use crate::model::ids::{ClassId, DomainCountsId, LabelSetId, MatchSetId, PodId, SelectorId};
use crate::model::labels::Labels;

impl Topology {
    /// The label set of a pod; the caller must `release_labels` it.
    pub(in crate::cluster) fn acquire_labels(&mut self, namespace: &str, labels: &Arc<Labels>) -> LabelSetId {
        if let Some(id) = self.label_sets.acquire(namespace, labels) {
            return id;
        }
        let matches = self.match_set(self.selectors.listing(namespace, self.labels_of(namespace), labels));
        let id = self.label_sets.add(namespace, labels, matches);
        self.match_sets.add_label_set(matches, id);
        id
    }

    /// Drops a reference to a label set.
    pub(in crate::cluster) fn release_labels(&mut self, id: LabelSetId) {
        if let Some(set) = self.label_sets.release(id) {
            let unused = self.match_sets.remove_label_set(set.matches, id);
            self.unlist_match_set(set.matches, unused.as_ref());
        }
    }

    /// A pod has these labels.
    pub(in crate::cluster) fn add_pod(&mut self, id: LabelSetId, pod: PodId) {
        self.label_sets.get_mut(id).pods.insert(pod);
    }

    /// A pod that has these labels is gone or gets others.
    pub(in crate::cluster) fn remove_pod(&mut self, id: LabelSetId, pod: PodId) {
        self.label_sets.get_mut(id).pods.remove(&pod);
        self.moved_pods.remove(&pod);
    }

    /// The match set of a label set.
    pub(in crate::cluster) fn matches_of(&self, id: LabelSetId) -> MatchSetId {
        self.label_sets.get(id).matches
    }

    /// A class of pods of a match set is in use.
    pub(in crate::cluster) fn add_class(&mut self, id: MatchSetId, class: ClassId) {
        self.match_sets.add_class(id, class);
    }

    /// A class of pods of a match set is gone.
    pub(in crate::cluster) fn remove_class(&mut self, id: MatchSetId, class: ClassId) {
        let unused = self.match_sets.remove_class(id, class);
        self.unlist_match_set(id, unused.as_ref());
    }

    /// Takes the pods whose class is not of the match set of their labels any more.
    pub(in crate::cluster) fn take_moved_pods(&mut self) -> BTreeSet<PodId> {
        std::mem::take(&mut self.moved_pods)
    }

    /// The pods whose class is not of the match set of their labels any more.
    pub(in crate::cluster) fn moved_pods(&self) -> impl Iterator<Item = PodId> + '_ {
        self.moved_pods.iter().copied()
    }

    /// The pods that counts list, if they are counted by a selector.
    pub(in crate::cluster) fn pods_listed(&self, counts: DomainCountsId) -> Vec<PodId> {
        let (CountedPods::Listed(selector) | CountedPods::Spread { selector, .. }) =
            self.domain_counts(counts).counted_pods
        else {
            return Vec::new();
        };
        let match_sets = self.selectors.get(selector).listed_in.iter();
        let label_sets = match_sets.flat_map(|id| &self.match_sets.get(*id).label_sets);
        label_sets.flat_map(|id| &self.label_sets.get(*id).pods).copied().collect()
    }

    /// The pods of a namespace.
    pub(in crate::cluster) fn pods_in(&self, namespace: &str) -> Vec<PodId> {
        let label_sets = self.label_sets.of_namespace(namespace);
        label_sets.flat_map(|id| &self.label_sets.get(id).pods).copied().collect()
    }

    /// Whether counts are of all pods.
    pub(in crate::cluster) fn counts_everyone(&self, counts: DomainCountsId) -> bool {
        self.domain_counts(counts).counted_pods == CountedPods::Everyone
    }

    /// Whether no node is in a domain of these counts.
    pub(in crate::cluster) fn has_no_domains(&self, counts: DomainCountsId) -> bool {
        !self.topology_key(self.domain_counts(counts).topology_key).has_domains()
    }

    /// The labels of a namespace have changed: moves its label sets.
    pub(super) fn match_namespace(&mut self, namespace: &str) {
        for id in self.label_sets.of_namespace(namespace).collect::<Vec<_>>() {
            let labels = self.label_sets.get(id).labels.clone();
            let listed = self.selectors.listing(namespace, self.labels_of(namespace), &labels);
            if self.match_sets.get(self.matches_of(id)).listed != listed {
                let to = self.match_set(listed);
                self.move_label_set(id, to);
            }
        }
    }

    /// Matches a new selector with all label sets that it may list.
    pub(super) fn list_selector(&mut self, selector: SelectorId) {
        let candidates = self.selectors.anchors(selector).iter().flat_map(|anchor| self.label_sets.at(anchor));
        let candidates: BTreeSet<LabelSetId> = candidates.collect();
        let mut listed: BTreeMap<MatchSetId, Vec<LabelSetId>> = BTreeMap::new();
        for id in candidates {
            let set = self.label_sets.get(id);
            if self.selectors.lists(selector, &set.namespace, self.labels_of(&set.namespace), &set.labels) {
                listed.entry(set.matches).or_default().push(id);
            }
        }
        let broad = self.selectors.get(selector).broad;
        for (match_set, label_sets) in listed {
            if match_set != MatchSets::UNLISTED && label_sets.len() == self.match_sets.get(match_set).label_sets.len() {
                self.match_sets.change(match_set, selector, broad, true);
                self.selectors.get_mut(selector).listed_in.insert(match_set);
                continue;
            }
            let mut lists = self.match_sets.get(match_set).listed.clone();
            lists.add(selector, broad);
            let to = self.match_set(lists);
            for id in label_sets {
                self.move_label_set(id, to);
            }
        }
    }

    /// Removes a selector that is gone from all match sets, and joins those that do not differ any more.
    pub(super) fn unlist_selector(&mut self, id: SelectorId, selector: &Selector) {
        for match_set in &selector.listed_in {
            self.match_sets.change(*match_set, id, selector.broad, false);
        }
        for match_set in &selector.listed_in {
            self.join_twin(*match_set);
        }
    }

    /// Moves the label sets of a match set to another one with the same lists, or the other way round.
    fn join_twin(&mut self, id: MatchSetId) {
        let Some(twin) = self.match_sets.twin(id) else { return };
        let size = |id: MatchSetId| self.match_sets.get(id).label_sets.len();
        let moves = twin == MatchSets::UNLISTED || size(id) <= size(twin);
        let (from, to) = if moves { (id, twin) } else { (twin, id) };
        for label_set in self.match_sets.get(from).label_sets.iter().copied().collect::<Vec<_>>() {
            self.move_label_set(label_set, to);
        }
    }

    /// The match set with these lists.
    fn match_set(&mut self, listed: Listed) -> MatchSetId {
        if let Some(id) = self.match_sets.find(&listed) {
            return id;
        }
        let selectors: Vec<SelectorId> = listed.selectors().collect();
        let id = self.match_sets.add(listed);
        for selector in selectors {
            self.selectors.get_mut(selector).listed_in.insert(id);
        }
        id
    }

    fn move_label_set(&mut self, id: LabelSetId, to: MatchSetId) {
        let set = self.label_sets.get_mut(id);
        let from = std::mem::replace(&mut set.matches, to);
        self.moved_pods.extend(&set.pods);
        self.match_sets.add_label_set(to, id);
        let unused = self.match_sets.remove_label_set(from, id);
        self.unlist_match_set(from, unused.as_ref());
    }

    fn unlist_match_set(&mut self, id: MatchSetId, unused: Option<&Listed>) {
        for selector in unused.into_iter().flat_map(Listed::selectors) {
            self.selectors.get_mut(selector).listed_in.remove(&id);
        }
    }
}
