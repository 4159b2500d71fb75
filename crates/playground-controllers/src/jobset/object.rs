//! The JobSet object, with the fields of the playground's definition and no others.
//!
//! The schema sets defaults and validates, so that nothing here is validated again. Must not depend on the controller.

use k8s_openapi::NamespaceResourceScope;
use muster_api::wire::condition::Condition;
use muster_api::wire::object::{Kind, Object};
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub(super) const GROUP: &str = "jobset.x-k8s.io";
pub(super) const VERSION: &str = "v1alpha2";

/// A group of Jobs that start, restart and finish together.
pub(super) type JobSet = Object<JobSetKind>;

/// The kind `JobSet`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobSetKind;

impl Kind for JobSetKind {
    type Spec = JobSetSpec;
    type Status = JobSetStatus;
    type Scope = NamespaceResourceScope;
    const GROUP: &'static str = GROUP;
    const VERSION: &'static str = VERSION;
    const KIND: &'static str = "JobSet";
    const PLURAL: &'static str = "jobsets";
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSetSpec {
    pub(super) replicated_jobs: Vec<ReplicatedJob>,
    pub(super) network: Network,
    pub(super) success_policy: SuccessPolicy,
    pub(super) failure_policy: Option<FailurePolicy>,
    pub(super) startup_policy: StartupPolicy,
    pub(super) suspend: Option<bool>,
    pub(super) coordinator: Option<Coordinator>,
    pub(super) managed_by: Option<String>,
    pub(super) ttl_seconds_after_finished: Option<i32>,
}

/// Jobs of one template.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReplicatedJob {
    pub(super) name: String,
    pub(super) group_name: String,
    pub(super) replicas: u32,
    /// Metadata and spec of a Job, unparsed.
    pub(super) template: Value,
    pub(super) depends_on: Vec<Dependency>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Dependency {
    pub(super) name: String,
    /// `Ready` or `Complete`.
    pub(super) status: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Network {
    #[serde(rename = "enableDNSHostnames")]
    pub(super) enable_dns_hostnames: bool,
    pub(super) subdomain: Option<String>,
    pub(super) publish_not_ready_addresses: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct SuccessPolicy {
    /// `All` or `Any`.
    pub(super) operator: String,
    pub(super) target_replicated_jobs: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FailurePolicy {
    pub(super) max_restarts: u32,
    /// `Recreate` or `BlockingRecreate`.
    pub(super) restart_strategy: String,
    pub(super) rules: Vec<FailureRule>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct FailureRule {
    pub(super) name: String,
    pub(super) action: String,
    pub(super) on_job_failure_reasons: Vec<String>,
    pub(super) on_job_failure_message_patterns: Vec<String>,
    pub(super) target_replicated_jobs: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct StartupPolicy {
    /// `AnyOrder` or `InOrder`.
    pub(super) startup_policy_order: String,
}

/// The pod whose address is set on all Jobs and pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Coordinator {
    pub(super) replicated_job: String,
    pub(super) job_index: u32,
    pub(super) pod_index: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct JobSetStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) conditions: Vec<Condition>,
    /// How often all Jobs were recreated.
    pub(super) restarts: u32,
    /// How often because of failures that `maxRestarts` limits.
    #[serde(skip_serializing_if = "is_zero")]
    pub(super) restarts_count_towards_max: u32,
    /// `Completed` or `Failed` when the set has finished.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) terminal_state: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) replicated_jobs_status: Vec<ReplicatedJobStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ReplicatedJobStatus {
    pub(super) name: String,
    pub(super) ready: u32,
    pub(super) succeeded: u32,
    pub(super) failed: u32,
    pub(super) active: u32,
    pub(super) suspended: u32,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // required by serde
fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl JobSetSpec {
    pub(super) fn is_suspended(&self) -> bool {
        self.suspend == Some(true)
    }

    /// Whether each replicated Job waits until the ones before it have started.
    pub(super) fn is_in_order(&self) -> bool {
        self.startup_policy.startup_policy_order == "InOrder"
    }
}

/// Its name, which is the prefix of its children's names.
pub(super) fn name(set: &JobSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

/// The subdomain of its pods.
pub(super) fn subdomain(set: &JobSet) -> &str {
    set.spec.network.subdomain.as_deref().filter(|text| !text.is_empty()).unwrap_or(name(set))
}
