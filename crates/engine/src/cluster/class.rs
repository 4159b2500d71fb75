//! A pod class in use: its names interned, with the inter-pod rules that apply to it.

use std::sync::Arc;

use super::topology::rules::{InterPodRules, OwnTerms, SelectorSet};
use crate::model::class::ClassSpec;
use crate::model::plugin::{DisabledFilters, FilterName};
use crate::model::resources::Requests;

/// A class with its names interned.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PodClass {
    /// The class as observed.
    pub(crate) spec: Arc<ClassSpec>,
    /// The requests by resource id.
    pub(crate) requests: Requests,
    /// The selectors of other pods' terms that match its pods.
    pub(crate) selectors: SelectorSet,
    /// Its own inter-pod terms.
    pub(crate) own: Option<OwnTerms>,
    /// The inter-pod rules that apply to it, and the domain counts that its pods are part of; `None` if there are none.
    pub(crate) rules: Option<Arc<InterPodRules>>,
    /// Filters that its profile disables.
    pub(crate) disabled_filters: DisabledFilters,
}

impl PodClass {
    /// A class without inter-pod terms that no other pod's terms select.
    pub(crate) fn independent(spec: Arc<ClassSpec>, requests: Requests) -> Self {
        Self {
            spec,
            requests,
            selectors: SelectorSet::new(),
            own: None,
            rules: None,
            disabled_filters: DisabledFilters::default(),
        }
    }

    /// Whether its profile enables a filter.
    pub(crate) fn has_filter(&self, filter: FilterName) -> bool {
        !self.disabled_filters.has(filter)
    }

    /// Whether any inter-pod term, required or preferred, applies to pods of the class.
    pub(crate) fn has_inter_pod_terms(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| !rules.has_no_terms())
    }

    /// Whether a required inter-pod term can make a node infeasible for pods of the class.
    pub(crate) fn has_required_inter_pod_terms(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| !rules.has_no_required_terms())
    }
}
