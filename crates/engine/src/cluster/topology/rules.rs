//! The inter-pod rules of a class that follow from its own terms. They stay the same as long as the class exists; the
//! terms that existing pods have on its pods are looked up by its match set.

use crate::model::ids::{AffinityTermId, DomainCountsId, SelectorId};

/// The own terms of a class, interned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnTerms {
    pub(super) affinity_selector: Option<SelectorId>,
    /// One entry per term, counting pods that match all of them.
    pub(super) required_affinity: Vec<DomainCountsId>,
    pub(super) anti_affinity: Vec<(DomainCountsId, SelectorId, AffinityTermId)>,
    pub(super) preferred: Vec<(DomainCountsId, i32)>,
    pub(super) spread_required: Vec<(DomainCountsId, SelectorId)>,
    pub(super) spread_scoring: Vec<DomainCountsId>,
    /// References to release, with repetitions.
    pub(super) selectors: Vec<SelectorId>,
    pub(super) counts: Vec<DomainCountsId>,
    pub(super) affinity_terms: Vec<AffinityTermId>,
}

/// The inter-pod rules of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InterPodRules {
    /// A pod of each of these counts must be in the domain.
    pub(crate) required_affinity: Vec<DomainCountsId>,
    /// Its pods match their own required affinity, so the first may be placed where no other matches.
    pub(crate) matches_own_affinity: bool,
    /// No pod of these counts may be in the domain: own anti-affinity.
    pub(crate) anti_affinity: Vec<DomainCountsId>,
    /// The anti-affinity counts, of own and of existing pods, that pods of this class are part of themselves.
    pub(crate) matches_own_anti_affinity: Vec<DomainCountsId>,
    /// Own preferred terms: the score per pod in the domain.
    pub(crate) preferred: Vec<(DomainCountsId, i64)>,
    /// Required topology spread.
    pub(crate) spread: Vec<SpreadConstraint>,
    /// Preferred topology spread: the counts of the own constraints, in their order.
    pub(crate) spread_scoring: Vec<DomainCountsId>,
    /// The counts of pods with a term that its pods are part of.
    pub(super) counts_with_term: Vec<DomainCountsId>,
    /// The score per pod that has required affinity to it (`hardPodAffinityWeight`).
    pub(super) affinity_match_weight: i64,
    /// The preferred terms of existing pods are not scored.
    pub(super) ignores_preferred_terms_of_others: bool,
}

/// A required topology spread constraint.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SpreadConstraint {
    pub(crate) counts: DomainCountsId,
    pub(crate) max_skew: u32,
    pub(crate) min_domains: u32,
    /// Pods of the class match their own constraint.
    pub(crate) matches_itself: bool,
}

impl InterPodRules {
    /// Whether no own term restricts its nodes.
    pub(super) fn has_no_required_terms(&self) -> bool {
        self.required_affinity.is_empty() && self.anti_affinity.is_empty() && self.spread.is_empty()
    }

    /// The counts that its own terms are evaluated with.
    pub(super) fn counts(&self) -> impl Iterator<Item = DomainCountsId> + '_ {
        let required = self.required_affinity.iter().chain(&self.anti_affinity).copied();
        let spread = self.spread.iter().map(|constraint| constraint.counts).chain(self.spread_scoring.iter().copied());
        required.chain(spread).chain(self.preferred.iter().map(|(counts, _)| *counts))
    }
}
