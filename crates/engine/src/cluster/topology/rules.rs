//! The inter-pod rules of a class and the counts that its pods are part of, derived from its own terms and from the
//! terms that other pods have on it.

use smallvec::SmallVec;

use crate::model::ids::{AffinityTermId, DomainCountsId, SelectorId};

/// The selectors that match a pod, sorted.
pub(crate) type SelectorSet = SmallVec<[SelectorId; 2]>;

/// The own terms of a class, interned.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OwnTerms {
    pub(super) affinity_selector: Option<SelectorId>,
    /// One entry per term, counting pods that match all of them.
    pub(super) required_affinity: Vec<DomainCountsId>,
    pub(super) anti_affinity: Vec<DomainCountsId>,
    pub(super) preferred: Vec<(DomainCountsId, i32)>,
    pub(super) spread_required: Vec<(DomainCountsId, SelectorId)>,
    pub(super) spread_scoring: Vec<DomainCountsId>,
    /// References to release, with repetitions.
    pub(super) selectors: Vec<SelectorId>,
    pub(super) counts: Vec<DomainCountsId>,
    pub(super) affinity_terms: Vec<AffinityTermId>,
}

/// The inter-pod rules of a class, and the counts that its pods are part of.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InterPodRules {
    /// A pod of each of these counts must be in the domain.
    pub(crate) required_affinity: Vec<DomainCountsId>,
    /// Its pods match their own required affinity, so the first may be placed where no other matches.
    pub(crate) matches_own_affinity: bool,
    /// No pod of these counts may be in the domain: own anti-affinity.
    pub(crate) anti_affinity: Vec<DomainCountsId>,
    /// No pod of these counts may be in the domain: anti-affinity of existing pods.
    pub(crate) existing_anti_affinity: Vec<DomainCountsId>,
    /// The anti-affinity counts that pods of this class are part of themselves.
    pub(crate) matches_own_anti_affinity: Vec<DomainCountsId>,
    /// Preferred terms: the score per pod in the domain.
    pub(crate) preferred: Vec<(DomainCountsId, i64)>,
    /// Required topology spread.
    pub(crate) spread: Vec<SpreadConstraint>,
    /// Preferred topology spread: the counts of the own constraints, in their order.
    pub(crate) spread_scoring: Vec<DomainCountsId>,
    /// The counts that its pods are part of.
    pub(crate) counts_in: Vec<DomainCountsId>,
    /// The counts that its pods are part of unless they are terminating.
    pub(crate) counts_in_spread: Vec<DomainCountsId>,
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
    /// Whether inter-pod rules do not restrict its nodes.
    pub(crate) fn has_no_required_terms(&self) -> bool {
        self.required_affinity.is_empty()
            && self.anti_affinity.is_empty()
            && self.existing_anti_affinity.is_empty()
            && self.spread.is_empty()
    }

    /// Whether no inter-pod rule applies.
    pub(crate) fn has_no_terms(&self) -> bool {
        self.has_no_required_terms() && self.preferred.is_empty() && self.spread_scoring.is_empty()
    }

    /// The counts that a pod is part of, depending on whether it is terminating.
    pub(crate) fn counted_in(&self, terminating: bool) -> impl Iterator<Item = DomainCountsId> + '_ {
        let spread: &[DomainCountsId] = if terminating { &[] } else { &self.counts_in_spread };
        self.counts_in.iter().chain(spread).copied()
    }

    /// Whether its pods are part of these counts.
    pub(crate) fn counts_in(&self, counts: DomainCountsId) -> bool {
        self.counts_in.binary_search(&counts).is_ok() || self.counts_in_spread.binary_search(&counts).is_ok()
    }
}
