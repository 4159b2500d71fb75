//! The own terms of a class: acquiring and releasing the selectors, affinity terms and counts that they need.

use std::collections::BTreeSet;

use super::domain_counts::{CountedPods, DomainCounts};
use super::eligible_nodes::NodeCriteria;
use super::rules::{InterPodRules, OwnTerms, SpreadConstraint};
use super::selector_index::Conjunction;
use super::topology_key::TopologyKey;
use super::{AffinityTerm, TermKind, Topology};
use crate::cluster::node::Node;
use crate::cluster::profile::ProfileRules;
use crate::model::class::ClassSpec;
use crate::model::ids::{AffinityTermId, DomainCountsId, MatchSetId, NodeId, SelectorId, Slab, TopologyKeyId};
use crate::model::inter_pod::{InterPodConstraints, PodTerm, SpreadTerm};

impl Topology {
    /// Adds the terms of a class; the caller must `release_terms`. Returns them with the new counts, in which existing
    /// pods must be counted.
    pub(in crate::cluster) fn acquire_terms(
        &mut self,
        spec: &ClassSpec,
        inter_pod: &InterPodConstraints,
        nodes: &Slab<Node>,
    ) -> (OwnTerms, Vec<DomainCountsId>) {
        let mut added = Vec::new();
        let mut own = OwnTerms::default();
        if !inter_pod.required_affinity.is_empty() {
            // A pod must match all required affinity terms at once.
            let selectors = inter_pod.required_affinity.iter().map(|term| term.pods.clone()).collect();
            let selector = self.acquire_selector(selectors, true);
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
        added: &mut Vec<DomainCountsId>,
    ) -> Vec<(DomainCountsId, SelectorId)> {
        let keys: BTreeSet<String> = terms.iter().map(|term| term.topology_key.clone()).collect();
        let keys: Vec<String> = keys.into_iter().filter(|_| all_labels).collect();
        let mut acquired = Vec::new();
        for term in terms {
            // The histogram of a constraint follows single pods, so pods that match are listed. Its selector names its
            // namespace and is narrow in any case.
            let selector = self.acquire_selector(vec![term.pods.clone()], false);
            own.selectors.push(selector);
            let topology_key = self.topology_key_of(&term.topology_key, nodes);
            let eligible_nodes = self.eligible_sets.of(NodeCriteria::new(spec, term, &keys), nodes);
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
        added: &mut Vec<DomainCountsId>,
    ) {
        let selector = self.acquire_selector(vec![term.pods.clone()], true);
        own.selectors.push(selector);
        let topology_key = self.topology_key_of(&term.topology_key, nodes);
        let counted_selector = own.affinity_selector.filter(|_| kind == TermKind::RequiredAffinity).unwrap_or(selector);
        let counts = self.acquire_counts(CountedPods::Listed(counted_selector), topology_key, added);
        own.counts.push(counts);
        let affinity_term = self.affinity_term(kind, selector, topology_key);
        own.affinity_terms.push(affinity_term);
        match kind {
            TermKind::RequiredAffinity => own.required_affinity.push(counts),
            TermKind::RequiredAntiAffinity => own.anti_affinity.push((counts, selector, affinity_term)),
            TermKind::Preferred(weight) => own.preferred.push((counts, weight)),
        }
    }

    /// The affinity term that pods have on a selector; the caller must release it.
    fn affinity_term(&mut self, kind: TermKind, selector: SelectorId, topology_key: TopologyKeyId) -> AffinityTermId {
        let key = (kind, selector, topology_key);
        if let Some(id) = self.affinity_terms_by_key.get(&key) {
            self.affinity_terms.get_mut(id.0).expect("a listed term exists").users += 1;
            return *id;
        }
        let id = AffinityTermId(self.affinity_terms.insert(AffinityTerm {
            kind,
            selector,
            topology_key,
            users: 1,
            counts: DomainCountsId(u32::MAX),
        }));
        // No pod has the term yet, so there is nothing to count.
        let with_term = self.acquire_counts(CountedPods::WithTerm(id), topology_key, &mut Vec::new());
        self.affinity_terms.get_mut(id.0).expect("just put there").counts = with_term;
        self.affinity_terms_by_key.insert(key, id);
        self.selectors.get_mut(selector).affinity_terms.push(id);
        id
    }

    fn acquire_selector(&mut self, selectors: Conjunction, may_be_broad: bool) -> SelectorId {
        let (id, new) = self.selectors.acquire(selectors, may_be_broad);
        if new {
            self.list_selector(id);
        }
        id
    }

    /// The topology key of a label; domain counts that use it hold it.
    fn topology_key_of(&mut self, key: &str, nodes: &Slab<Node>) -> TopologyKeyId {
        if let Some(id) = self.keys_by_label.get(key) {
            return *id;
        }
        let mut topology_key = TopologyKey::new(key.to_owned(), self.keys_created);
        self.keys_created += 1;
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
        added: &mut Vec<DomainCountsId>,
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
        added: &mut Vec<DomainCountsId>,
    ) -> DomainCountsId {
        let id = DomainCountsId(self.domain_counts.insert(DomainCounts::new(counted_pods, topology_key)));
        self.domain_counts_by_key.insert((counted_pods, topology_key), id);
        self.keys.get_mut(topology_key.0).expect("a topology key in use exists").users += 1;
        if let CountedPods::Listed(selector) | CountedPods::Spread { selector, .. } = counted_pods {
            self.selectors.get_mut(selector).counts.push(id);
        }
        match counted_pods {
            CountedPods::Listed(selector) if self.selectors.get(selector).broad => {
                let all = self.acquire_counts(CountedPods::Everyone, topology_key, added);
                self.everyone.insert(topology_key, all);
                if self.topology_key(topology_key).has_domains() {
                    self.everyone_with_domains.insert(all);
                }
            }
            _ => {}
        }
        added.push(id);
        if let CountedPods::Spread { eligible_nodes, histogram, .. } = counted_pods {
            self.eligible_sets.hold(eligible_nodes);
            if histogram {
                self.build_histogram(id);
            }
        }
        id
    }

    /// Builds the histogram of new counts from all eligible nodes.
    pub(super) fn build_histogram(&mut self, id: DomainCountsId) {
        let counts = self.domain_counts(id);
        let nodes = (0..self.topology_key(counts.topology_key).node_slots()).map(|slot| NodeId(slot as u32));
        let domains: Vec<u32> = nodes.filter_map(|node| self.domain_counted(counts, node)).collect();
        let counts = self.domain_counts.get_mut(id.0).expect("domain counts in use exist");
        for domain in domains {
            counts.set_node_eligible(domain, true);
        }
    }

    /// Releases the terms of a class that is gone.
    pub(in crate::cluster) fn release_terms(&mut self, own: OwnTerms) {
        for id in own.affinity_terms {
            let term = self.affinity_terms.get_mut(id.0).expect("a term in use exists");
            term.users -= 1;
            if term.users == 0 {
                let term = self.affinity_terms.remove(id.0).expect("a term in use exists");
                self.affinity_terms_by_key.remove(&(term.kind, term.selector, term.topology_key));
                self.selectors.get_mut(term.selector).affinity_terms.retain(|other| *other != id);
                self.release_counts(term.counts);
            }
        }
        for id in own.counts {
            self.release_counts(id);
        }
        for id in own.selectors {
            if let Some(selector) = self.selectors.release(id) {
                self.unlist_selector(id, &selector);
            }
        }
    }

    fn release_counts(&mut self, id: DomainCountsId) {
        let counts = self.domain_counts.get_mut(id.0).expect("domain counts in use exist");
        counts.users -= 1;
        if counts.users > 0 {
            return;
        }
        let counts = self.domain_counts.remove(id.0).expect("domain counts in use exist");
        self.domain_counts_by_key.remove(&(counts.counted_pods, counts.topology_key));
        match counts.counted_pods {
            CountedPods::Everyone => {
                self.everyone.remove(&counts.topology_key);
                self.everyone_with_domains.remove(&id);
            }
            CountedPods::WithTerm(_) => {}
            CountedPods::Listed(selector) | CountedPods::Spread { selector, .. } => {
                self.selectors.get_mut(selector).counts.retain(|other| *other != id);
                if let Some(eligible_nodes) = counts.eligible_nodes() {
                    self.eligible_sets.release(eligible_nodes);
                } else if self.selectors.get(selector).broad {
                    self.release_counts(self.everyone[&counts.topology_key]);
                }
            }
        }
        let topology_key = self.keys.get_mut(counts.topology_key.0).expect("a topology key in use exists");
        topology_key.users -= 1;
        if topology_key.users == 0 {
            let topology_key = self.keys.remove(counts.topology_key.0).expect("a topology key in use exists");
            self.keys_by_label.remove(&topology_key.key);
        }
    }

    /// The rules of a class.
    pub(in crate::cluster) fn rules(
        &self,
        spec: &ClassSpec,
        own: Option<&OwnTerms>,
        matches: MatchSetId,
        profile: ProfileRules,
    ) -> InterPodRules {
        let mut rules = InterPodRules {
            affinity_match_weight: profile.affinity_match_weight,
            ignores_preferred_terms_of_others: profile.ignores_preferred_terms_of_others,
            ..InterPodRules::default()
        };
        let Some(own) = own else { return rules };
        let term_counts = |id: &AffinityTermId| self.affinity_terms.get(id.0).expect("a term in use exists").counts;
        rules.required_affinity.clone_from(&own.required_affinity);
        rules.matches_own_affinity = own.affinity_selector.is_some_and(|selector| self.matches(matches, selector));
        rules.anti_affinity = own.anti_affinity.iter().map(|(counts, ..)| *counts).collect();
        let matching = own.anti_affinity.iter().filter(|(_, selector, _)| self.matches(matches, *selector));
        rules.matches_own_anti_affinity = matching.flat_map(|(counts, _, term)| [*counts, term_counts(term)]).collect();
        rules.preferred = own.preferred.iter().map(|(counts, weight)| (*counts, i64::from(*weight))).collect();
        rules.spread_scoring.clone_from(&own.spread_scoring);
        rules.counts_with_term = own.affinity_terms.iter().map(term_counts).collect();
        // A profile may ignore the preferred terms of existing pods for pods without own ones.
        rules.ignores_preferred_terms_of_others &= rules.preferred.is_empty();
        let terms = spec.inter_pod.iter().flat_map(|inter_pod| &inter_pod.spread.do_not_schedule);
        let spread = own.spread_required.iter().zip(terms).map(|((counts, selector), term)| SpreadConstraint {
            counts: *counts,
            max_skew: term.max_skew,
            min_domains: term.min_domains,
            matches_itself: self.matches(matches, *selector),
        });
        rules.spread = spread.collect();
        rules
    }
}
