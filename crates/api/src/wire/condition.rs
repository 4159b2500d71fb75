//! A condition of an object.
//!
//! It is `metav1.Condition` with the time of the last update, which our own groups have. Must not depend on any type of
//! condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// The type; unique among the conditions of an object.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
    /// The generation of the object that was observed.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// When any field last changed. Only on our own kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// The reason, in CamelCase.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
    /// The message.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
}

impl Condition {
    /// Whether the status is `True`.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// The condition with this type.
    pub fn find<'a>(list: &'a [Condition], kind: &str) -> Option<&'a Condition> {
        list.iter().find(|one| one.kind == kind)
    }
}
