//! A pod class in use: its names interned, with the inter-pod rules that apply to it.

use std::sync::Arc;

use super::storage::StorageDemand;
use super::topology::MatchSets;
use super::topology::rules::{InterPodRules, OwnTerms};
use crate::model::class::ClassSpec;
use crate::model::ids::MatchSetId;
use crate::model::plugin::{DisabledFilters, FilterName};
use crate::model::resources::Requests;

/// A class with its names interned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodClass {
    /// The class as observed.
    pub(crate) spec: Arc<ClassSpec>,
    /// The requests by resource id.
    pub(crate) requests: Requests,
    /// Which selectors match its pods.
    pub(crate) matches: MatchSetId,
    /// Its own inter-pod terms.
    pub(crate) own: Option<OwnTerms>,
    /// The rules that follow from its own inter-pod terms.
    pub(crate) rules: InterPodRules,
    /// What its claims require, if anything.
    pub(crate) storage: Option<Arc<StorageDemand>>,
    /// Filters that its profile disables.
    pub(crate) disabled_filters: DisabledFilters,
}

impl PodClass {
    /// A class without inter-pod terms that no other pod's terms select.
    pub(crate) fn independent(spec: Arc<ClassSpec>, requests: Requests) -> Self {
        Self {
            spec,
            requests,
            matches: MatchSets::UNLISTED,
            own: None,
            rules: InterPodRules::default(),
            storage: None,
            disabled_filters: DisabledFilters::default(),
        }
    }

    /// Whether its profile enables a filter.
    pub(crate) fn has_filter(&self, filter: FilterName) -> bool {
        !self.disabled_filters.has(filter)
    }
}
