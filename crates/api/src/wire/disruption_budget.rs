//! A PodDisruptionBudget as it stands in the object: which pods, and how many of them may go.
//!
//! How many is what the budget's own controller last said in the status; it is not reckoned here.
//! It must not know pods or evictions.

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

/// Which pods a budget is for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetSpec {
    /// The pods: none if it is left out, all of the namespace if it is empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<WrittenLabelSelector>,
}

/// How many pods may go.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodDisruptionBudgetStatus {
    /// How many more may go now.
    #[serde(deserialize_with = "null_is_default")]
    pub disruptions_allowed: i32,
    /// Pods whose eviction is granted and counted already, and since when, by name.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub disrupted_pods: BTreeMap<String, Time>,
    /// The generation of the budget that was looked at.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
}
