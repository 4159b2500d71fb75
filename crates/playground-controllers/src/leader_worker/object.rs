//! The LeaderWorkerSet object.
//!
//! Templates are kept unparsed, so that the server validates them when their pods are created.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use muster_api::wire::object::{Kind, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// A LeaderWorkerSet.
pub(super) type LeaderWorkerSet = Object<LeaderWorkerSetKind>;

/// The kind `LeaderWorkerSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LeaderWorkerSetKind;

impl Kind for LeaderWorkerSetKind {
    type Spec = Spec;
    type Status = Status;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = "leaderworkerset.x-k8s.io";
    const VERSION: &'static str = "v1";
    const KIND: &'static str = "LeaderWorkerSet";
    const PLURAL: &'static str = "leaderworkersets";
}

/// The desired state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Spec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<i32>,
    /// Read by [`GroupTemplate::of`].
    pub(super) leader_worker_template: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rollout_strategy: Option<RolloutStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) startup_policy: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network_config: Option<NetworkConfig>,
}

/// How a new template is rolled out to the groups.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RolloutStrategy {
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rolling_update_configuration: Option<Rolling>,
}

/// How many groups change at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Rolling {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) partition: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_unavailable: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_surge: Option<IntOrString>,
}

/// How pods reach each other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct NetworkConfig {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subdomain_policy: Option<String>,
}

/// The observed state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Status {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conditions: Vec<Condition>,
    pub(super) ready_replicas: i32,
    pub(super) updated_replicas: i32,
    pub(super) replicas: i32,
    pub(super) hpa_pod_selector: String,
    pub(super) observed_generation: i64,
}

/// The template of one group.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct GroupTemplate {
    pub(super) leader_template: Option<Value>,
    pub(super) worker_template: Value,
    pub(super) size: Option<i32>,
    pub(super) restart_policy: Option<String>,
    pub(super) sub_group_policy: Option<SubGroupPolicy>,
    pub(super) volume_claim_templates: Option<Value>,
    pub(super) persistent_volume_claim_retention_policy: Option<Value>,
}

/// How a group is divided into subgroups.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SubGroupPolicy {
    pub(super) sub_group_policy_type: Option<String>,
    pub(super) sub_group_size: Option<i32>,
}

impl GroupTemplate {
    /// Parses a template. The schema has validated it.
    pub(super) fn of(written: &Value) -> Self {
        let mut written = written.clone();
        if let Some(fields) = written.as_object_mut() {
            fields.remove("$patch");
        }
        serde_json::from_value(written).unwrap_or_default()
    }

    /// The number of pods of a group.
    pub(super) fn size(&self) -> i32 {
        self.size.unwrap_or(1)
    }
}

/// The desired number of groups.
pub(super) fn desired(lws: &LeaderWorkerSet) -> i32 {
    lws.spec.replicas.unwrap_or(1)
}

/// The rolling update settings.
pub(super) fn rolling(lws: &LeaderWorkerSet) -> Rolling {
    lws.spec.rollout_strategy.clone().and_then(|strategy| strategy.rolling_update_configuration).unwrap_or_default()
}

/// Whether each group has a subdomain of its own.
pub(super) fn is_subdomain_unique(config: Option<&NetworkConfig>) -> bool {
    config.and_then(|config| config.subdomain_policy.as_deref()) == Some("UniquePerReplica")
}

/// What a revision stores: the part of the spec whose change is an update.
pub(super) fn data(lws: &LeaderWorkerSet) -> Value {
    let policy = if is_subdomain_unique(lws.spec.network_config.as_ref()) { "UniquePerReplica" } else { "Shared" };
    let mut template = lws.spec.leader_worker_template.clone();
    template["$patch"] = json!("replace");
    let network = json!({"subdomainPolicy": policy, "$patch": "replace"});
    json!({"spec": {"networkConfig": network, "leaderWorkerTemplate": template}})
}
