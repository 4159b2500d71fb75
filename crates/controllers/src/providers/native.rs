//! Kubernetes' own PodGroup; in 1.35 a Workload with one group in it.
//!
//! What the whole replica asks for stands in an annotation, since the kinds have no field for it. In 1.35 and 1.36 a
//! minimum never changes: a replica whose workers come after their leader keeps the minimum of 1 that it begins with, and
//! its workers are placed one by one, into the room that was there for all when the leader was placed.

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::keys::annotations::MIN_RESOURCES;
use muster_api::makers::leader_worker_set::Replica;
use muster_api::makers::{Joining, requests};
use muster_api::native::NativeVersion;
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use muster_api::wire::pod::WorkloadRef;
use serde_json::json;

use super::ensure::{Shape, ensure};
use super::{ReplicaGang, SchedulerProvider};
use crate::plans::Plan;

const NAME_CHARS_MAX: usize = 253;
/// The one group of a Workload.
const GROUP: &str = "replica";

/// The groups of a cluster that serves this version.
#[derive(Debug)]
pub(super) struct Native(pub(super) NativeVersion);

impl Native {
    fn kind(&self) -> ApiResource {
        self.0.pod_groups().unwrap_or_else(|| self.0.workloads())
    }
}

impl SchedulerProvider for Native {
    fn resource(&self) -> Option<ApiResource> {
        Some(self.kind())
    }

    fn scheduler_name(&self) -> Option<&'static str> {
        None
    }

    fn group_name(&self, replica: &Replica) -> String {
        replica.group_name(NAME_CHARS_MAX)
    }

    fn create_pod_group_if_not_exists(&self, gang: &ReplicaGang, current: Option<&DynamicObject>) -> Plan {
        let policy = json!({"gang": {"minCount": gang.min_member}});
        let mut spec = match self.0 {
            NativeVersion::V1alpha1 => json!({"podGroups": [{"name": GROUP, "policy": policy}]}),
            _ => json!({"schedulingPolicy": policy}),
        };
        if self.0 != NativeVersion::V1alpha1 && !gang.priority_class_name.is_empty() {
            spec["priorityClassName"] = json!(gang.priority_class_name);
        }
        let least = json!(requests::written(&gang.min_resources)).to_string();
        let least = (!gang.min_resources.is_empty()).then(|| (MIN_RESOURCES.to_owned(), least));
        let shape = Shape {
            resource: self.kind(),
            name: self.group_name(&gang.replica),
            annotations: json!(least.into_iter().collect::<Labels>()),
            spec,
            minimum: self.0.minimums_may_change().then_some("/schedulingPolicy/gang/minCount"),
        };
        ensure(gang, &shape, current)
    }

    fn inject_pod_group_metadata(&self, replica: &Replica, _: &Pod) -> Result<Joining, InvalidField> {
        let name = self.group_name(replica);
        if self.0 != NativeVersion::V1alpha1 {
            return Ok(Joining::to_pod_group(name));
        }
        let workload_ref = WorkloadRef { name, pod_group: GROUP.to_owned(), ..WorkloadRef::default() };
        Ok(Joining { workload_ref: Some(workload_ref), ..Joining::default() })
    }
}
