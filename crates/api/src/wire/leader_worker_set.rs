//! A LeaderWorkerSet as written in the object, with the fields that matter for gangs.
//!
//! Must not depend on which sets are gangs: see `owners`.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::wire::condition::Condition;
use crate::wire::object::{Kind, Object};
use crate::wire::template::PodTemplate;

/// A set of groups, each of a leader and its workers.
pub type LeaderWorkerSet = Object<LeaderWorkerSetKind>;

/// The kind `LeaderWorkerSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderWorkerSetKind;

impl Kind for LeaderWorkerSetKind {
    type Spec = LeaderWorkerSetSpec;
    type Status = LeaderWorkerSetStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "leaderworkerset.x-k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "LeaderWorkerSet";
    const PLURAL: &'static str = "leaderworkersets";
}

/// The spec.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerSetSpec {
    /// `LeaderCreated`, or `LeaderReady`: workers are created only after their leader is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_policy: Option<String>,
    /// The number of groups; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i64>,
    /// Leader and workers.
    #[serde(deserialize_with = "null_is_default")]
    pub leader_worker_template: LeaderWorkerTemplate,
}

/// The templates of leader and workers. A revision of the set stores an older version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerTemplate {
    /// The leader; the worker template by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_template: Option<PodTemplate>,
    /// The workers.
    #[serde(deserialize_with = "null_is_default")]
    pub worker_template: PodTemplate,
    /// The number of pods of a group, including the leader; 1 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
}

/// The status of a LeaderWorkerSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerSetStatus {
    /// The conditions.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub conditions: Vec<Condition>,
}
