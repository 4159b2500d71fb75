//! The affinity terms that existing pods have on the pods of a class.
//!
//! Terms on narrow selectors are looked up in the match set of the class. Terms on broad selectors are summed up
//! (`broad_terms`); the match set lists the ones that do not apply, which are taken off. If there are many, they are
//! summed up by domain once, not for every node.

use std::collections::{BTreeMap, BTreeSet};

use super::rules::InterPodRules;
use super::{AffinityTerm, Presence, TermKind, Topology};
use crate::cluster::class::PodClass;
use crate::model::ids::{DomainCountsId, MatchSetId, NodeId, SelectorId, TopologyKeyId};

/// The most terms that are evaluated one by one for every node.
const TERMS_MAX: usize = 16;

/// The terms of existing pods that matter to a class now: those of pods that are on a node or nominated to one.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExistingTerms {
    listed: Vec<ListedTerm>,
    /// The sums of the listed terms, if there are many.
    sums: Option<BTreeMap<(TopologyKeyId, u32), Sums>>,
    /// What the terms of each topology key may do.
    keys: BTreeMap<TopologyKeyId, KeyUse>,
    affinity_match_weight: i64,
}

/// What terms may do.
#[derive(Clone, Copy, Debug, Default)]
struct KeyUse {
    avoids: bool,
    scores: bool,
}

/// A term on a narrow selector that matches, or one on a broad selector that does not.
#[derive(Clone, Copy, Debug)]
struct ListedTerm {
    counts: DomainCountsId,
    topology_key: TopologyKeyId,
    is_anti_affinity: bool,
    /// The score per pod.
    weight: i64,
    /// Whether it is taken off the sums of the terms on broad selectors.
    is_exception: bool,
}

/// What pods in a domain contribute.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    score: i64,
    anti_affinity: i64,
}

impl ListedTerm {
    fn sums(&self, pods: u32) -> Sums {
        let pods = if self.is_exception { -i64::from(pods) } else { i64::from(pods) };
        Sums { score: pods * self.weight, anti_affinity: if self.is_anti_affinity { pods } else { 0 } }
    }
}

impl Sums {
    fn add(&mut self, other: Self) {
        self.score += other.score;
        self.anti_affinity += other.anti_affinity;
    }
}

impl ExistingTerms {
    /// How many terms are listed one by one.
    pub(crate) fn len(&self) -> usize {
        self.listed.len()
    }

    /// The topology keys of the terms.
    pub(crate) fn keys(&self) -> impl Iterator<Item = TopologyKeyId> + '_ {
        self.keys.keys().copied()
    }

    /// The topology keys by which pods may have required anti-affinity to the class.
    pub(crate) fn anti_affinity_keys(&self) -> impl Iterator<Item = TopologyKeyId> + '_ {
        self.keys.iter().filter(|(_, key)| key.avoids).map(|(key, _)| *key)
    }

    /// The sums for a domain of a topology key.
    fn sums(&self, topology: &Topology, key: TopologyKeyId, domain: u32) -> Sums {
        let mut sums = Sums::default();
        if let Some(broad) = topology.broad_terms.get(key) {
            sums.score = broad.preference(domain, self.affinity_match_weight);
            sums.anti_affinity = i64::from(broad.anti_affinity(domain, Presence::Placed));
        }
        match &self.sums {
            Some(all) => sums.add(all.get(&(key, domain)).copied().unwrap_or_default()),
            None => {
                for term in self.listed.iter().filter(|term| term.topology_key == key) {
                    sums.add(term.sums(topology.domain_counts(term.counts).count(domain)));
                }
            }
        }
        sums
    }

    /// Whether a placed pod in the domain of a node has required anti-affinity to the class by this topology key.
    pub(crate) fn is_avoided(&self, topology: &Topology, key: TopologyKeyId, node: NodeId) -> bool {
        let domain = topology.topology_key(key).domain(node);
        domain.is_some_and(|domain| self.sums(topology, key, domain).anti_affinity > 0)
    }

    /// The score of a node, by topology keys that are `included`.
    pub(crate) fn score(&self, topology: &Topology, node: NodeId, included: impl Fn(TopologyKeyId) -> bool) -> i64 {
        let keys = self.keys.iter().filter(|(key, usage)| usage.scores && included(**key));
        let scores = keys.filter_map(|(key, _)| {
            let domain = topology.topology_key(*key).domain(node)?;
            Some(self.sums(topology, *key, domain).score)
        });
        scores.sum()
    }
}

impl Topology {
    /// The terms of existing pods that matter to a class now.
    pub(crate) fn existing_terms(&self, class: &PodClass) -> ExistingTerms {
        let affinity_match_weight =
            if class.rules.ignores_preferred_terms_of_others { 0 } else { class.rules.affinity_match_weight };
        let mut terms = ExistingTerms { affinity_match_weight, ..ExistingTerms::default() };
        let listed = &self.match_sets.get(class.matches).listed;
        self.list_terms(&listed.matching, &class.rules, false, &mut terms);
        for (key, sums) in self.broad_terms.iter() {
            let usage = terms.keys.entry(key).or_default();
            usage.avoids |= sums.has_anti_affinity();
            usage.scores |=
                !class.rules.ignores_preferred_terms_of_others && sums.has_preferences(affinity_match_weight);
        }
        self.list_terms(&listed.not_matching, &class.rules, true, &mut terms);
        terms.keys.retain(|_, usage| usage.avoids || usage.scores);
        if terms.listed.len() > TERMS_MAX {
            let mut all: BTreeMap<(TopologyKeyId, u32), Sums> = BTreeMap::new();
            for term in &terms.listed {
                for (domain, pods) in self.domain_counts(term.counts).by_domain() {
                    all.entry((term.topology_key, domain)).or_default().add(term.sums(pods));
                }
            }
            terms.sums = Some(all);
        }
        terms
    }

    fn list_terms(&self, selectors: &[SelectorId], rules: &InterPodRules, exceptions: bool, to: &mut ExistingTerms) {
        let terms = selectors.iter().flat_map(|selector| &self.selectors.get(*selector).affinity_terms);
        for id in terms {
            let term = self.affinity_terms.get(id.0).expect("a listed term exists");
            let (is_anti_affinity, weight) = (term.kind == TermKind::RequiredAntiAffinity, rules.weight_of(term.kind));
            if (!is_anti_affinity && weight == 0) || self.domain_counts(term.counts).is_empty() {
                continue;
            }
            let (counts, topology_key) = (term.counts, term.topology_key);
            to.listed.push(ListedTerm { counts, topology_key, is_anti_affinity, weight, is_exception: exceptions });
            if !exceptions {
                let usage = to.keys.entry(topology_key).or_default();
                usage.avoids |= is_anti_affinity;
                usage.scores |= weight != 0;
            }
        }
    }

    fn terms_on<'a>(&'a self, selectors: &'a [SelectorId]) -> impl Iterator<Item = &'a AffinityTerm> {
        let terms = selectors.iter().flat_map(|selector| &self.selectors.get(*selector).affinity_terms);
        terms.map(|id| self.affinity_terms.get(id.0).expect("a listed term exists"))
    }

    /// Whether two match sets are subject to the same required anti-affinity of existing pods.
    pub(crate) fn have_equal_existing_anti_affinity(&self, one: MatchSetId, other: MatchSetId) -> bool {
        let anti = |term: &&AffinityTerm| term.kind == TermKind::RequiredAntiAffinity;
        let (left, right) = (&self.match_sets.get(one).listed, &self.match_sets.get(other).listed);
        let equal = |left, right| {
            let (left, right) = (self.terms_on(left).filter(anti), self.terms_on(right).filter(anti));
            left.map(|term| term.counts).eq(right.map(|term| term.counts))
        };
        one == other || (equal(&left.matching, &right.matching) && equal(&left.not_matching, &right.not_matching))
    }

    /// Whether a pod of a class has required anti-affinity to a match set by a topology key.
    pub(crate) fn has_anti_affinity_to(&self, class: &PodClass, key: TopologyKeyId, id: MatchSetId) -> bool {
        let own = class.own.iter().flat_map(|own| &own.anti_affinity);
        let mut terms = own.map(|(.., term)| self.affinity_terms.get(term.0).expect("a term in use exists"));
        terms.any(|term| term.topology_key == key && self.matches(id, term.selector))
    }

    /// Whether any nominated pod in a domain may have required anti-affinity to a class.
    pub(crate) fn may_be_avoided_by_nominated(&self, terms: &ExistingTerms, key: TopologyKeyId, domain: u32) -> bool {
        let is_nominated = |term: &ListedTerm| {
            term.is_anti_affinity
                && !term.is_exception
                && term.topology_key == key
                && self.domain_counts(term.counts).nominated(domain) > 0
        };
        let broad = self.broad_terms.get(key);
        broad.is_some_and(|sums| sums.anti_affinity(domain, Presence::Nominated) > 0)
            || terms.listed.iter().any(is_nominated)
    }

    /// Whether a required term, its own or one of existing pods, can make a node infeasible for pods of the class now.
    pub(crate) fn has_required_terms(&self, class: &PodClass) -> bool {
        !class.rules.has_no_required_terms() || self.may_be_avoided(class.matches)
    }

    /// Whether existing or nominated pods may have required anti-affinity to pods of a match set.
    fn may_be_avoided(&self, id: MatchSetId) -> bool {
        let avoids = |term: &AffinityTerm| {
            term.kind == TermKind::RequiredAntiAffinity && !self.domain_counts(term.counts).is_empty()
        };
        self.broad_terms.iter().any(|(_, sums)| sums.has_anti_affinity())
            || self.terms_on(&self.match_sets.get(id).listed.matching).any(avoids)
    }

    /// The topology keys of all terms that matter to the class now.
    pub(crate) fn keys_in_use(&self, class: &PodClass, existing: &ExistingTerms) -> BTreeSet<TopologyKeyId> {
        let own = class.rules.counts().map(|counts| self.domain_counts(counts).topology_key);
        own.chain(existing.keys()).collect()
    }
}

impl InterPodRules {
    /// The score of a pod for an existing pod with a term of this kind on it.
    fn weight_of(&self, kind: TermKind) -> i64 {
        match kind {
            TermKind::RequiredAntiAffinity => 0,
            TermKind::RequiredAffinity | TermKind::Preferred(_) if self.ignores_preferred_terms_of_others => 0,
            TermKind::RequiredAffinity => self.affinity_match_weight,
            TermKind::Preferred(weight) => i64::from(weight),
        }
    }
}
