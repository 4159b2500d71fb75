//! Counts of pods by topology domain, for inter-pod affinity and topology spread.
//!
//! A *selector* stands for the pods that match it, a *topology key* for a node label and its domains, an *affinity
//! term* for a term that pods have on a selector and a topology key. *Domain counts* count by domain the pods that
//! match a selector or have a term; for topology spread, only on *eligible nodes*. Each is interned and only kept while
//! a pod needs it: pods without such terms, and that match none, cost nothing. The counts follow every change of a
//! node's pods, also in a transaction.
//!
//! What a pod costs does not depend on how many selectors match it: of a selector that matches nearly every pod, only
//! the pods that it does not match are listed and counted.
//!
//! Must not depend on what the counts are used for: that is up to filters and scores.

mod broad_terms;
mod domain_counts;
mod eligible_nodes;
mod existing_terms;
mod label_sets;
mod match_sets;
mod matching;
mod own_terms;
mod recount;
pub(crate) mod rules;
mod selector_index;
mod topology_key;

use std::collections::{BTreeMap, BTreeSet};

use broad_terms::BroadTerms;
use domain_counts::{CountedPods, DomainCounts};
use eligible_nodes::EligibleNodeSets;
pub(crate) use existing_terms::ExistingTerms;
use label_sets::LabelSets;
pub(crate) use match_sets::MatchSets;
pub(crate) use recount::AuditedPod;
use selector_index::SelectorIndex;
use smallvec::SmallVec;
pub(crate) use topology_key::TopologyKey;

use super::class::PodClass;
use super::node::Node;
use crate::model::ids::{
    AffinityTermId, DomainCountsId, LabelSetId, MatchSetId, NodeId, PodId, SelectorId, Slab, TopologyKeyId,
};
use crate::model::labels::Labels;

/// The kind of an affinity term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TermKind {
    /// Required affinity.
    RequiredAffinity,
    /// Required anti-affinity.
    RequiredAntiAffinity,
    /// A preferred term with its weight; negative for anti-affinity.
    Preferred(i32),
}

/// An affinity term that pods have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct AffinityTerm {
    kind: TermKind,
    selector: SelectorId,
    topology_key: TopologyKeyId,
    users: u32,
    /// The counts of the pods that have it.
    counts: DomainCountsId,
}

/// All selectors, topology keys, affinity terms and domain counts.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Topology {
    namespaces: BTreeMap<String, Labels>,
    pub(super) label_sets: LabelSets,
    match_sets: MatchSets,
    /// Pods whose class is not of the match set of their labels any more.
    moved_pods: BTreeSet<PodId>,
    selectors: SelectorIndex,
    keys: Slab<TopologyKey>,
    keys_created: u64,
    keys_by_label: BTreeMap<String, TopologyKeyId>,
    eligible_sets: EligibleNodeSets,
    affinity_terms: Slab<AffinityTerm>,
    affinity_terms_by_key: BTreeMap<(TermKind, SelectorId, TopologyKeyId), AffinityTermId>,
    broad_terms: BroadTerms,
    domain_counts: Slab<DomainCounts>,
    /// The counts of all pods.
    everyone: BTreeMap<TopologyKeyId, DomainCountsId>,
    /// Those of them whose topology key has domains: pods are counted in no others, and users can name any key.
    everyone_with_domains: BTreeSet<DomainCountsId>,
    domain_counts_by_key: BTreeMap<(CountedPods, TopologyKeyId), DomainCountsId>,
}

/// How a pod relates to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Placed on the node.
    Placed,
    /// Nominated to the node.
    Nominated,
}

impl Topology {
    // Reading.

    /// A topology key and its domains.
    pub(crate) fn topology_key(&self, id: TopologyKeyId) -> &TopologyKey {
        self.keys.get(id.0).expect("a topology key in use exists")
    }

    /// The serial number of a topology key, if it is in use.
    pub(crate) fn serial(&self, id: TopologyKeyId) -> Option<u64> {
        self.keys.get(id.0).map(|topology_key| topology_key.serial)
    }

    /// Counts by domain.
    pub(crate) fn domain_counts(&self, id: DomainCountsId) -> &DomainCounts {
        self.domain_counts.get(id.0).expect("domain counts in use exist")
    }

    /// The number of pods in a domain.
    pub(crate) fn count(&self, id: DomainCountsId, domain: u32) -> u32 {
        let counts = self.domain_counts(id);
        let listed = counts.count(domain);
        self.everyone_for(counts).map_or(listed, |all| all.count(domain) - listed) + counts.assumed(domain)
    }

    /// The number of pods that are nominated to nodes of a domain.
    pub(crate) fn nominated(&self, id: DomainCountsId, domain: u32) -> u32 {
        let counts = self.domain_counts(id);
        let all = self.everyone_for(counts);
        all.map_or_else(|| counts.nominated(domain), |all| all.nominated(domain) - counts.nominated(domain))
    }

    /// Whether there are no pods in any domain.
    pub(crate) fn counts_none(&self, id: DomainCountsId) -> bool {
        let counts = self.domain_counts(id);
        self.everyone_for(counts).map_or(0, DomainCounts::total) == counts.total() && !counts.has_assumed()
    }

    /// The count for the domain of a node; `None` if the node is in none.
    pub(crate) fn count_near(&self, id: DomainCountsId, node: NodeId) -> Option<u32> {
        self.topology_key(self.domain_counts(id).topology_key).domain(node).map(|domain| self.count(id, domain))
    }

    /// The counts of all pods, from which those listed under a broad selector are taken off.
    fn everyone_for(&self, counts: &DomainCounts) -> Option<&DomainCounts> {
        let CountedPods::Listed(selector) = counts.counted_pods else { return None };
        let broad = self.selectors.get(selector).broad;
        broad.then(|| self.domain_counts(self.everyone[&counts.topology_key]))
    }

    /// Whether a selector matches the pods of a match set.
    pub(crate) fn matches(&self, id: MatchSetId, selector: SelectorId) -> bool {
        let broad = self.selectors.get(selector).broad;
        self.match_sets.get(id).listed.contains(selector, broad) != broad
    }

    /// Whether pods of a class are part of counts, unless they are terminating and the counts are of topology spread.
    pub(crate) fn is_counted_in(&self, class: &PodClass, counts: DomainCountsId) -> bool {
        match self.domain_counts(counts).counted_pods {
            CountedPods::Everyone => true,
            CountedPods::Listed(selector) | CountedPods::Spread { selector, .. } => {
                self.matches(class.matches, selector)
            }
            CountedPods::WithTerm(term) => class.own.as_ref().is_some_and(|own| own.affinity_terms.contains(&term)),
        }
    }

    /// The labels of a namespace.
    pub(super) fn labels_of(&self, namespace: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    /// Whether terminating pods are not counted.
    pub(super) fn excludes_terminating(&self, counts: DomainCountsId) -> bool {
        self.domain_counts(counts).eligible_nodes().is_some()
    }

    /// Whether pods on a node are counted.
    pub(crate) fn counts_on(&self, counts: DomainCountsId, node: NodeId) -> bool {
        self.domain_counted(self.domain_counts(counts), node).is_some()
    }

    /// The domain in which pods on a node are counted, if they are.
    fn domain_counted(&self, counts: &DomainCounts, node: NodeId) -> Option<u32> {
        let is_eligible =
            counts.eligible_nodes().is_none_or(|eligible_nodes| self.eligible_sets.includes(eligible_nodes, node));
        self.topology_key(counts.topology_key).domain(node).filter(|_| is_eligible)
    }

    // Namespaces and nodes.

    /// Sets the labels of a namespace, `None` if it is gone.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        let before = self.labels_of(name).clone();
        match labels {
            Some(labels) => _ = self.namespaces.insert(name.to_owned(), labels),
            None => _ = self.namespaces.remove(name),
        }
        if *self.labels_of(name) != before {
            self.match_namespace(name);
        }
    }

    /// Updates the domains of a node. No pods on it are counted meanwhile.
    pub(super) fn update_node(&mut self, id: NodeId, node: Option<&Node>) {
        self.count_node_in_histograms(id, false);
        for topology_key in self.keys_by_label.values() {
            let topology_key = self.keys.get_mut(topology_key.0).expect("a listed topology key exists");
            topology_key.set_domain(id, node.and_then(|node| node.labels.get(&topology_key.key)).map(String::as_str));
        }
        self.eligible_sets.update_node(id, node);
        self.count_node_in_histograms(id, true);
        self.everyone_with_domains = self.everyone_with_domains();
    }

    fn everyone_with_domains(&self) -> BTreeSet<DomainCountsId> {
        let with_domains = self.everyone.iter().filter(|(key, _)| self.topology_key(**key).has_domains());
        with_domains.map(|(_, counts)| *counts).collect()
    }

    /// Adds a node to the histograms of its domains, or removes it.
    fn count_node_in_histograms(&mut self, id: NodeId, add: bool) {
        let spread = self
            .domain_counts_by_key
            .iter()
            .filter(|((counted_pods, _), _)| matches!(counted_pods, CountedPods::Spread { histogram: true, .. }));
        for counts in spread.map(|(_, counts)| *counts).collect::<Vec<_>>() {
            if let Some(domain) = self.domain_counted(self.domain_counts(counts), id) {
                self.domain_counts
                    .get_mut(counts.0)
                    .expect("listed domain counts exist")
                    .set_node_eligible(domain, add);
            }
        }
    }

    /// Adds a pod on a node to all counts that it is part of, or removes it.
    pub(super) fn count_pod(&mut self, pod: &CountedPod, class: &PodClass, add: bool) {
        let matches = self.label_sets.get(pod.label_set).matches;
        if matches == MatchSets::UNLISTED && class.own.is_none() && self.everyone_with_domains.is_empty() {
            return;
        }
        let listed = &self.match_sets.get(matches).listed;
        let is_counted = |counts: &DomainCountsId| !(pod.terminating && self.excludes_terminating(*counts));
        let by_selector = listed.selectors().flat_map(|selector| &self.selectors.get(selector).counts).copied();
        let everyone = self.everyone_with_domains.iter().copied();
        let counts: SmallVec<[DomainCountsId; 8]> = everyone
            .chain(by_selector.filter(is_counted))
            .chain(class.rules.counts_with_term.iter().copied())
            .collect();
        self.change_counts(&counts, pod.node, pod.presence, add);
    }

    /// The topology spread counts that a pod is part of unless it is terminating.
    pub(super) fn spread_counts_of(&self, label_set: LabelSetId) -> Vec<DomainCountsId> {
        let listed = &self.match_sets.get(self.label_sets.get(label_set).matches).listed;
        let counts = listed.matching.iter().flat_map(|selector| &self.selectors.get(*selector).counts).copied();
        counts.filter(|counts| self.excludes_terminating(*counts)).collect()
    }

    /// Assumes a pod on a node that is part of these counts, or no longer.
    pub(super) fn assume_match(&mut self, counts: &[DomainCountsId], node: NodeId, add: bool) {
        for id in counts {
            if let Some(domain) = self.domain_counted(self.domain_counts(*id), node) {
                self.domain_counts.get_mut(id.0).expect("domain counts in use exist").change_assumed(domain, add);
            }
        }
    }

    /// Adds a pod on a node to these counts, or removes it.
    pub(super) fn change_counts(&mut self, counts: &[DomainCountsId], node: NodeId, presence: Presence, add: bool) {
        for id in counts {
            let counts = self.domain_counts(*id);
            let (counted_pods, key) = (counts.counted_pods, counts.topology_key);
            let Some(domain) = self.domain_counted(counts, node) else { continue };
            if let CountedPods::WithTerm(term) = counted_pods {
                let term = self.affinity_terms.get(term.0).expect("a term in use exists");
                if self.selectors.get(term.selector).broad {
                    self.broad_terms.change(key, term.kind, domain, presence, add);
                }
            }
            let counts = self.domain_counts.get_mut(id.0).expect("domain counts in use exist");
            match presence {
                Presence::Placed => counts.change(domain, add),
                Presence::Nominated => counts.change_nominated(domain, add),
            }
        }
    }
}

/// A pod on a node or nominated to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountedPod {
    pub(crate) node: NodeId,
    pub(crate) presence: Presence,
    pub(crate) label_set: LabelSetId,
    pub(crate) terminating: bool,
}
