//! Counts of pods by topology domain, for inter-pod affinity and topology spread.
//!
//! A *selector* stands for the pods that match it, a *topology key* for a node label and its domains, an *affinity
//! term* for a term that pods have on a selector and a topology key. *Domain counts* count by domain the pods that
//! match a selector or have a term; for topology spread, only on *eligible nodes*. Each is interned and only kept while
//! a pod needs it: pods without such terms, and that match none, cost nothing. The counts follow every change of a
//! node's pods, also in a transaction.
//!
//! Must not depend on what the counts are used for: that is up to filters and scores.

mod domain_counts;
mod eligible_nodes;
mod label_sets;
pub(crate) mod rules;
mod selector_index;
mod topology_key;

use std::collections::{BTreeMap, BTreeSet};

use domain_counts::{CountedPods, DomainCounts};
use eligible_nodes::EligibleNodeSets;
use label_sets::LabelSets;
use rules::{InterPodRules, OwnTerms, SelectorSet, SpreadConstraint};
use selector_index::{Conjunction, SelectorIndex};
use topology_key::TopologyKey;

use super::node::Node;
use super::profile::ProfileRules;
use crate::model::class::ClassSpec;
use crate::model::ids::{AffinityTermId, ClassId, DomainCountsId, NodeId, PodId, SelectorId, Slab, TopologyKeyId};
use crate::model::inter_pod::{InterPodConstraints, PodTerm, SpreadTerm};
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
    selectors: SelectorIndex,
    keys: Slab<TopologyKey>,
    keys_by_label: BTreeMap<String, TopologyKeyId>,
    eligible_sets: EligibleNodeSets,
    affinity_terms: Slab<AffinityTerm>,
    affinity_terms_by_key: BTreeMap<(TermKind, SelectorId, TopologyKeyId), AffinityTermId>,
    domain_counts: Slab<DomainCounts>,
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

/// What the terms of a new class have added.
#[derive(Debug, Default)]
pub(crate) struct Added {
    /// New selectors: the pods that match them must be reclassified.
    pub(super) selectors: Vec<SelectorId>,
    /// New counts: existing pods must be counted in them.
    pub(super) counts: Vec<DomainCountsId>,
    /// Selectors with new terms or counts: the rules of the classes that match them must be updated.
    pub(super) affected: Vec<SelectorId>,
}

impl Topology {
    // Reading.

    /// A topology key and its domains.
    pub(crate) fn topology_key(&self, id: TopologyKeyId) -> &TopologyKey {
        self.keys.get(id.0).expect("a topology key in use exists")
    }

    /// Counts by domain.
    pub(crate) fn domain_counts(&self, id: DomainCountsId) -> &DomainCounts {
        self.domain_counts.get(id.0).expect("domain counts in use exist")
    }

    /// The count for the domain of a node; `None` if the node is in none.
    pub(crate) fn count_near(&self, id: DomainCountsId, node: NodeId) -> Option<u32> {
        let counts = self.domain_counts(id);
        self.topology_key(counts.topology_key).domain(node).map(|domain| counts.count(domain))
    }

    /// The selectors that match a pod.
    pub(crate) fn selectors_of(&self, namespace: &str, labels: &Labels) -> SelectorSet {
        self.selectors.of_pod(namespace, self.labels_of(namespace), labels)
    }

    /// The classes of pods that match a selector.
    pub(super) fn classes_matching(&self, selector: SelectorId) -> &[ClassId] {
        &self.selectors.get(selector).classes
    }

    /// The pods that match a selector.
    pub(super) fn pods_matching(&self, selector: SelectorId) -> BTreeSet<PodId> {
        let matches = |namespace: &str, labels: &Labels| {
            self.selectors.matches(selector, namespace, self.labels_of(namespace), labels)
        };
        match self.selectors.namespaces(selector) {
            Some(names) => self.label_sets.matching_in(names, matches),
            None => self.label_sets.matching(matches),
        }
    }

    fn labels_of(&self, namespace: &str) -> &Labels {
        static NONE: Labels = Labels::new();
        self.namespaces.get(namespace).unwrap_or(&NONE)
    }

    /// The selector of the pods that are counted; `None` if pods are counted by an affinity term.
    pub(super) fn selector_counted(&self, counts: DomainCountsId) -> Option<SelectorId> {
        match self.domain_counts(counts).counted_pods {
            CountedPods::Matching(selector) | CountedPods::Spread { selector, .. } => Some(selector),
            CountedPods::WithTerm(_) => None,
        }
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

    /// Sets the labels of a namespace, `None` if it is gone. Returns whether that is a change.
    pub(super) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> bool {
        let before = self.labels_of(name).clone();
        match labels {
            Some(labels) => _ = self.namespaces.insert(name.to_owned(), labels),
            None => _ = self.namespaces.remove(name),
        }
        *self.labels_of(name) != before
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

    /// Adds a pod on a node to these counts, or removes it.
    pub(super) fn count(
        &mut self,
        counts: impl Iterator<Item = DomainCountsId>,
        node: NodeId,
        presence: Presence,
        add: bool,
    ) {
        for id in counts {
            let Some(domain) = self.domain_counted(self.domain_counts(id), node) else { continue };
            let counts = self.domain_counts.get_mut(id.0).expect("domain counts in use exist");
            match presence {
                Presence::Placed => counts.change(domain, add),
                Presence::Nominated => counts.change_nominated(domain, add),
            }
        }
    }

    // Classes.

    /// Adds the terms of a class; the caller must `release_terms`.
    pub(super) fn acquire_terms(
        &mut self,
        spec: &ClassSpec,
        inter_pod: &InterPodConstraints,
        nodes: &Slab<Node>,
    ) -> (OwnTerms, Added) {
        let mut added = Added::default();
        let mut own = OwnTerms::default();
        if !inter_pod.required_affinity.is_empty() {
            // A pod must match all required affinity terms at once.
            let selector = self.acquire_selector(
                inter_pod.required_affinity.iter().map(|term| term.pods.clone()).collect(),
                &mut added,
            );
            own.affinity_selector = Some(selector);
            own.selectors.push(selector);
        }
        let anti_affinity = inter_pod.required_anti_affinity.iter().map(|term| (TermKind::RequiredAntiAffinity, term));
        let preferred = inter_pod.preferred.iter().map(|one| (TermKind::Preferred(one.weight), &one.term));
        let required_affinity = inter_pod.required_affinity.iter().map(|term| (TermKind::RequiredAffinity, term));
        for (kind, term) in required_affinity.chain(anti_affinity).chain(preferred) {
            self.acquire_term(kind, term, &mut own, nodes, &mut added);
        }
        let spread = &inter_pod.spread;
        own.spread_required =
            self.acquire_spread(spec, (&spread.do_not_schedule, true), true, &mut own, nodes, &mut added);
        let should = self.acquire_spread(
            spec,
            (&spread.schedule_anyway, false),
            !spread.scores_nodes_without_keys,
            &mut own,
            nodes,
            &mut added,
        );
        own.spread_scoring = should.into_iter().map(|(counts, _)| counts).collect();
        (own, added)
    }

    /// Adds topology spread constraints, on nodes that have all their topology keys if required.
    fn acquire_spread(
        &mut self,
        spec: &ClassSpec,
        (terms, histogram): (&[SpreadTerm], bool),
        all_labels: bool,
        own: &mut OwnTerms,
        nodes: &Slab<Node>,
        added: &mut Added,
    ) -> Vec<(DomainCountsId, SelectorId)> {
        let keys: BTreeSet<String> = terms.iter().map(|term| term.topology_key.clone()).collect();
        let keys: Vec<String> = keys.into_iter().filter(|_| all_labels).collect();
        let mut acquired = Vec::new();
        for term in terms {
            let selector = self.acquire_selector(vec![term.pods.clone()], added);
            own.selectors.push(selector);
            let topology_key = self.topology_key_of(&term.topology_key, nodes);
            let eligible_nodes = self.eligible_sets.of(eligible_nodes::NodeCriteria::new(spec, term, &keys), nodes);
            let counts =
                self.acquire_counts(CountedPods::Spread { selector, eligible_nodes, histogram }, topology_key, added);
            own.counts.push(counts);
            acquired.push((counts, selector));
        }
        acquired
    }

    fn acquire_term(
        &mut self,
        kind: TermKind,
        term: &PodTerm,
        own: &mut OwnTerms,
        nodes: &Slab<Node>,
        added: &mut Added,
    ) {
        let selector = self.acquire_selector(vec![term.pods.clone()], added);
        own.selectors.push(selector);
        let topology_key = self.topology_key_of(&term.topology_key, nodes);
        let counted_selector = own.affinity_selector.filter(|_| kind == TermKind::RequiredAffinity).unwrap_or(selector);
        let counts = self.acquire_counts(CountedPods::Matching(counted_selector), topology_key, added);
        own.counts.push(counts);
        match kind {
            TermKind::RequiredAffinity => own.required_affinity.push(counts),
            TermKind::RequiredAntiAffinity => own.anti_affinity.push(counts),
            TermKind::Preferred(weight) => own.preferred.push((counts, weight)),
        }
        let key = (kind, selector, topology_key);
        if let Some(id) = self.affinity_terms_by_key.get(&key) {
            self.affinity_terms.get_mut(id.0).expect("a listed term exists").users += 1;
            own.affinity_terms.push(*id);
            return;
        }
        let id = AffinityTermId(self.affinity_terms.insert(AffinityTerm {
            kind,
            selector,
            topology_key,
            users: 1,
            counts: DomainCountsId(u32::MAX),
        }));
        // No pod has the term yet, so there is nothing to count.
        let with_term = self.acquire_counts(CountedPods::WithTerm(id), topology_key, &mut Added::default());
        self.affinity_terms.get_mut(id.0).expect("just put there").counts = with_term;
        self.affinity_terms_by_key.insert(key, id);
        self.selectors.get_mut(selector).affinity_terms.push(id);
        added.affected.push(selector);
        own.affinity_terms.push(id);
    }

    fn acquire_selector(&mut self, selectors: Conjunction, added: &mut Added) -> SelectorId {
        let (id, new) = self.selectors.acquire(selectors);
        if new {
            added.selectors.push(id);
        }
        id
    }

    /// The topology key of a label; domain counts that use it hold it.
    fn topology_key_of(&mut self, key: &str, nodes: &Slab<Node>) -> TopologyKeyId {
        if let Some(id) = self.keys_by_label.get(key) {
            return *id;
        }
        let mut topology_key = TopologyKey::new(key.to_owned());
        for (slot, node) in nodes.iter() {
            topology_key.set_domain(NodeId(slot), node.labels.get(key).map(String::as_str));
        }
        let id = TopologyKeyId(self.keys.insert(topology_key));
        self.keys_by_label.insert(key.to_owned(), id);
        id
    }

    fn acquire_counts(
        &mut self,
        counted_pods: CountedPods,
        topology_key: TopologyKeyId,
        added: &mut Added,
    ) -> DomainCountsId {
        let known = self.domain_counts_by_key.get(&(counted_pods, topology_key)).copied();
        let id = known.unwrap_or_else(|| self.new_counts(counted_pods, topology_key, added));
        self.domain_counts.get_mut(id.0).expect("listed domain counts exist").users += 1;
        id
    }

    fn new_counts(
        &mut self,
        counted_pods: CountedPods,
        topology_key: TopologyKeyId,
        added: &mut Added,
    ) -> DomainCountsId {
        let id = DomainCountsId(self.domain_counts.insert(DomainCounts::new(counted_pods, topology_key)));
        self.domain_counts_by_key.insert((counted_pods, topology_key), id);
        self.keys.get_mut(topology_key.0).expect("a topology key in use exists").users += 1;
        if let CountedPods::Matching(selector) | CountedPods::Spread { selector, .. } = counted_pods {
            self.selectors.get_mut(selector).counts.push(id);
            added.counts.push(id);
            added.affected.push(selector);
        }
        if let CountedPods::Spread { eligible_nodes, histogram, .. } = counted_pods {
            self.eligible_sets.hold(eligible_nodes);
            if histogram {
                self.build_histogram(id);
            }
        }
        id
    }

    /// Builds the histogram of new counts from all eligible nodes.
    fn build_histogram(&mut self, id: DomainCountsId) {
        let counts = self.domain_counts(id);
        let nodes = (0..self.topology_key(counts.topology_key).node_slots()).map(|slot| NodeId(slot as u32));
        let domains: Vec<u32> = nodes.filter_map(|node| self.domain_counted(counts, node)).collect();
        let counts = self.domain_counts.get_mut(id.0).expect("domain counts in use exist");
        for domain in domains {
            counts.set_node_eligible(domain, true);
        }
    }

    /// Releases the terms of a class that is gone. Returns the selectors whose classes need new rules.
    pub(super) fn release_terms(&mut self, own: OwnTerms) -> Vec<SelectorId> {
        let mut affected = Vec::new();
        for id in own.affinity_terms {
            let term = self.affinity_terms.get_mut(id.0).expect("a term in use exists");
            term.users -= 1;
            if term.users == 0 {
                let term = self.affinity_terms.remove(id.0).expect("a term in use exists");
                self.affinity_terms_by_key.remove(&(term.kind, term.selector, term.topology_key));
                self.selectors.get_mut(term.selector).affinity_terms.retain(|other| *other != id);
                self.release_counts(term.counts);
                affected.push(term.selector);
            }
        }
        for id in own.counts {
            if let Some(selector) = self.release_counts(id) {
                affected.push(selector);
            }
        }
        for selector in &own.selectors {
            // This releases everything that belongs to the selector.
            self.selectors.release(*selector);
        }
        affected.retain(|selector| self.selectors.exists(*selector));
        affected
    }

    fn release_counts(&mut self, id: DomainCountsId) -> Option<SelectorId> {
        let counts = self.domain_counts.get_mut(id.0).expect("domain counts in use exist");
        counts.users -= 1;
        if counts.users > 0 {
            return None;
        }
        let counts = self.domain_counts.remove(id.0).expect("domain counts in use exist");
        self.domain_counts_by_key.remove(&(counts.counted_pods, counts.topology_key));
        let topology_key = self.keys.get_mut(counts.topology_key.0).expect("a topology key in use exists");
        topology_key.users -= 1;
        if topology_key.users == 0 {
            let topology_key = self.keys.remove(counts.topology_key.0).expect("a topology key in use exists");
            self.keys_by_label.remove(&topology_key.key);
        }
        if let Some(eligible_nodes) = counts.eligible_nodes() {
            self.eligible_sets.release(eligible_nodes);
        }
        let (CountedPods::Matching(selector) | CountedPods::Spread { selector, .. }) = counts.counted_pods else {
            return None;
        };
        self.selectors.get_mut(selector).counts.retain(|other| *other != id);
        Some(selector)
    }

    /// Adds a class of pods that match these selectors.
    pub(super) fn add_class(&mut self, selectors: &SelectorSet, class: ClassId) {
        for selector in selectors {
            self.selectors.hold(*selector);
            self.selectors.get_mut(*selector).classes.push(class);
        }
    }

    /// Removes a class of pods that match these selectors.
    pub(super) fn remove_class(&mut self, selectors: &SelectorSet, class: ClassId) {
        for selector in selectors {
            self.selectors.get_mut(*selector).classes.retain(|other| *other != class);
            self.selectors.release(*selector);
        }
    }

    /// The rules of a class.
    pub(crate) fn rules(
        &self,
        spec: &ClassSpec,
        own: Option<&OwnTerms>,
        selectors: &SelectorSet,
        profile: ProfileRules,
    ) -> InterPodRules {
        let mut rules = InterPodRules::default();
        if let Some(own) = own {
            rules.required_affinity.clone_from(&own.required_affinity);
            rules.anti_affinity.clone_from(&own.anti_affinity);
            rules.preferred = own.preferred.iter().map(|(counts, weight)| (*counts, i64::from(*weight))).collect();
            rules.matches_own_affinity = own.affinity_selector.is_some_and(|selector| selectors.contains(&selector));
            rules.counts_in =
                own.affinity_terms.iter().map(|id| self.affinity_terms.get(id.0).expect("in use").counts).collect();
            rules.spread_scoring.clone_from(&own.spread_scoring);
        }
        if let (Some(own), Some(inter_pod)) = (own, &spec.inter_pod) {
            let terms = own.spread_required.iter().zip(&inter_pod.spread.do_not_schedule);
            rules.spread = terms
                .map(|((counts, selector), term)| SpreadConstraint {
                    counts: *counts,
                    max_skew: term.max_skew,
                    min_domains: term.min_domains,
                    matches_itself: selectors.contains(selector),
                })
                .collect();
        }
        // A profile may ignore the preferred terms of existing pods for pods without own ones.
        let ignores_others = profile.ignores_preferred_terms_of_others && rules.preferred.is_empty();
        for selector in selectors.iter().map(|selector| self.selectors.get(*selector)) {
            let is_spread = |counts: &DomainCountsId| self.excludes_terminating(*counts);
            let (spread, there): (Vec<DomainCountsId>, Vec<DomainCountsId>) =
                selector.counts.iter().copied().partition(is_spread);
            rules.counts_in.extend(there);
            rules.counts_in_spread.extend(spread);
            for term in
                selector.affinity_terms.iter().map(|id| self.affinity_terms.get(id.0).expect("a listed term exists"))
            {
                match term.kind {
                    TermKind::RequiredAntiAffinity => rules.existing_anti_affinity.push(term.counts),
                    TermKind::RequiredAffinity | TermKind::Preferred(_) if ignores_others => {}
                    TermKind::RequiredAffinity if profile.affinity_match_weight == 0 => {}
                    TermKind::RequiredAffinity => rules.preferred.push((term.counts, profile.affinity_match_weight)),
                    TermKind::Preferred(weight) => rules.preferred.push((term.counts, i64::from(weight))),
                }
            }
        }
        rules.counts_in.sort_unstable();
        rules.counts_in_spread.sort_unstable();
        let forbidden = rules.anti_affinity.iter().chain(&rules.existing_anti_affinity);
        rules.matches_own_anti_affinity =
            forbidden.filter(|counts| rules.counts_in.contains(counts)).copied().collect();
        rules
    }

    // Checking.

    /// Recounts all pods by their labels and compares.
    pub(crate) fn audit<'p>(&self, pods: impl Iterator<Item = AuditedPod<'p>>, nodes: &Slab<Node>) -> bool {
        let mut fresh = self.clone();
        for counts in self.domain_counts_by_key.values() {
            fresh.domain_counts.get_mut(counts.0).expect("listed domain counts exist").clear();
            if matches!(self.domain_counts(*counts).counted_pods, CountedPods::Spread { histogram: true, .. }) {
                fresh.build_histogram(*counts);
            }
        }
        for pod in pods {
            let selectors = self.selectors_of(pod.namespace, pod.labels);
            let by_selector = selectors.iter().flat_map(|selector| &self.selectors.get(*selector).counts).copied();
            let by_selector = by_selector.filter(|counts| !(pod.terminating && self.excludes_terminating(*counts)));
            let by_term = pod.own.into_iter().flat_map(|own| &own.affinity_terms);
            let by_term = by_term.map(|id| self.affinity_terms.get(id.0).expect("a term in use exists").counts);
            fresh.count(by_selector.chain(by_term), pod.node, pod.presence, true);
        }
        fresh.domain_counts == self.domain_counts && self.eligible_sets.match_recount(nodes)
    }
}

/// A pod on a node or nominated to it.
#[derive(Debug)]
pub(crate) struct AuditedPod<'p> {
    pub(crate) node: NodeId,
    pub(crate) presence: Presence,
    pub(crate) namespace: &'p str,
    pub(crate) labels: &'p Labels,
    /// The terms of its class.
    pub(crate) own: Option<&'p OwnTerms>,
    pub(crate) terminating: bool,
}
