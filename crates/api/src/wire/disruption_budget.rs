//! A PodDisruptionBudget as written in the object.
//!
//! The number of allowed disruptions is taken from the status that the disruption controller writes; it is not computed
//! here. Must not depend on pods or evictions.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::selector::WrittenLabelSelector;
use crate::wire::object::{Kind, Object};

/// A disruption budget.
pub type PodDisruptionBudget = Object<PodDisruptionBudgetKind>;

/// The kind `PodDisruptionBudget`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PodDisruptionBudgetKind;

impl Kind for PodDisruptionBudgetKind {
    type Spec = PodDisruptionBudgetSpec;
    type Status = PodDisruptionBudgetStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "policy";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "PodDisruptionBudget";
    const PLURAL: &'static str = "poddisruptionbudgets";
}

/// The pods that a budget covers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// The selector: no pods if unset, all of the namespace if empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<WrittenLabelSelector>,
}

/// The allowed disruptions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// How many more pods may be disrupted now.
    #[serde(deserialize_with = "null_is_default")]
    pub disruptions_allowed: i32,
    /// Pods whose eviction is already granted and counted, by name, with the time.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub disrupted_pods: BTreeMap<String, Time>,
    /// The generation of the budget that was observed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}
