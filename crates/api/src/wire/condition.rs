//! A condition of an object: one word of what is true of it, since when and why.
//!
//! It is `metav1.Condition` with a time of the last update, which our own groups carry.
//! It must not know any type of condition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};

/// A condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    /// What it is about; unique among the conditions of an object.
    #[serde(rename = "type", deserialize_with = "null_is_default")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "null_is_default")]
    pub status: String,
    /// The generation of the object that was looked at.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub observed_generation: i64,
    /// When the status last changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// When anything in it last changed. Only on our own kinds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Why, in one word.
    #[serde(deserialize_with = "null_is_default")]
    pub reason: String,
    /// Why, in a sentence.
    #[serde(deserialize_with = "null_is_default")]
    pub message: String,
}

impl Condition {
    /// Whether it says yes.
    pub fn is_true(&self) -> bool {
        self.status == "True"
    }

    /// The condition of a type.
    pub fn find<'a>(list: &'a [Condition], kind: &str) -> Option<&'a Condition> {
        list.iter().find(|one| one.kind == kind)
    }
}
