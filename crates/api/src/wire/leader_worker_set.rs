//! A LeaderWorkerSet as it stands in the object, as far as gangs are concerned.
//!
//! It must not know which sets are gangs: see `makers`.

use kube_core::NamespaceResourceScope;
use serde::{Deserialize, Serialize};

use crate::null::null_is_default;
use crate::wire::object::{Kind, NoStatus, Object};
use crate::wire::template::PodTemplate;

/// A set of groups, each of a leader and its workers.
pub type LeaderWorkerSet = Object<LeaderWorkerSetKind>;

/// The kind `LeaderWorkerSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderWorkerSetKind;

impl Kind for LeaderWorkerSetKind {
    type Spec = LeaderWorkerSetSpec;
    type Status = NoStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "leaderworkerset.x-k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "LeaderWorkerSet";
    const PLURAL: &'static str = "leaderworkersets";
}

/// What is wanted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerSetSpec {
    /// `LeaderCreated`, or `LeaderReady`: workers are made only when their leader is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup_policy: Option<String>,
    /// Leader and workers.
    #[serde(deserialize_with = "null_is_default")]
    pub leader_worker_template: LeaderWorkerTemplate,
}

/// Leader and workers of a group. A revision of the set keeps it as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LeaderWorkerTemplate {
    /// The leader; like the workers if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader_template: Option<PodTemplate>,
    /// The workers.
    #[serde(deserialize_with = "null_is_default")]
    pub worker_template: PodTemplate,
    /// How many pods a group has, its leader among them; 1 if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
}
