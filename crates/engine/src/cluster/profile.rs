//! The settings of a scheduling profile that the state of the cluster depends on.

use crate::config::Profile;
use crate::model::plugin::DisabledFilters;

/// The settings of a profile besides its score weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProfileRules {
    /// The score of a pod for existing pods with required affinity to it (`hardPodAffinityWeight`).
    pub(crate) affinity_match_weight: i64,
    /// Pods without preferred terms of their own ignore the preferred terms of existing pods.
    pub(crate) ignores_preferred_terms_of_others: bool,
    pub(crate) disabled_filters: DisabledFilters,
}

impl ProfileRules {
    pub(crate) fn new(profile: &Profile) -> Self {
        Self {
            affinity_match_weight: profile.scoring.hard_pod_affinity_weight,
            ignores_preferred_terms_of_others: profile.scoring.ignores_preferred_terms_of_others,
            disabled_filters: DisabledFilters::new(profile.without.iter().copied()),
        }
    }
}
