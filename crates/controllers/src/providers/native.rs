//! The provider for Kubernetes' own PodGroup; in 1.35 a Workload with one group.
//!
//! The requests of the whole replica are written as an annotation, since the kinds have no field for them. In 1.35 and
//! 1.36 the minimum is immutable: a replica whose workers are created after their leader keeps its initial minimum of
//! 1, and its workers are placed one by one, into the room that was checked for all of them when the leader was placed.

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::InvalidField;
use muster_api::keys::annotations::MIN_RESOURCES;
use muster_api::native::NativeVersion;
use muster_api::native::pod_group::PodGroupSpec;
use muster_api::native::policy::SchedulingPolicy;
use muster_api::native::workload::{PodGroupTemplate, WorkloadSpec};
use muster_api::owners::leader_worker_set::Replica;
use muster_api::owners::{Membership, requests};
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use muster_api::wire::pod::WorkloadRef;
use serde_json::json;

use super::ensure::{DesiredGroup, ensure};
use super::{ReplicaGang, SchedulerProvider};
use crate::disruption;
use crate::reconcile::Plan;

const NAME_CHARS_MAX: usize = 253;
/// The name of the only group of a Workload.
const GROUP: &str = "replica";

/// Native groups in this version.
#[derive(Debug)]
pub(super) struct Native(pub(super) NativeVersion);

impl Native {
    /// Whether groups are parts of Workloads.
    fn is_inline(&self) -> bool {
        self.0.pod_groups().is_none()
    }
}

impl SchedulerProvider for Native {
    fn resource(&self) -> Option<ApiResource> {
        Some(self.0.group_objects())
    }

    fn scheduler_name(&self) -> Option<&'static str> {
        None
    }

    fn group_name(&self, replica: &Replica) -> String {
        replica.group_name(NAME_CHARS_MAX)
    }

    fn create_pod_group_if_not_exists(&self, gang: &ReplicaGang, current: Option<&DynamicObject>) -> Plan {
        let scheduling_policy = SchedulingPolicy::gang(gang.min_member);
        let priority_class_name = gang.priority_class_name.clone();
        let spec = if self.is_inline() {
            let name = GROUP.to_owned();
            let group =
                PodGroupTemplate { name, scheduling_policy, priority_class_name, ..PodGroupTemplate::default() };
            self.0.encode_workload_spec(WorkloadSpec { controller_ref: None, pod_group_templates: vec![group] })
        } else {
            let disruption_mode = Some(disruption::native(gang.disruption_mode));
            let spec =
                PodGroupSpec { scheduling_policy, priority_class_name, disruption_mode, ..PodGroupSpec::default() };
            self.0.encode_pod_group_spec(spec)
        };
        let min_resources = json!(requests::to_quantities(&gang.min_resources)).to_string();
        let min_resources = (!gang.min_resources.is_empty()).then(|| (MIN_RESOURCES.to_owned(), min_resources));
        let group = DesiredGroup {
            resource: self.0.group_objects(),
            name: self.group_name(&gang.replica),
            later_group: if self.is_inline() { GROUP.to_owned() } else { self.group_name(&gang.replica) },
            annotations: json!(min_resources.into_iter().collect::<Labels>()),
            spec,
            minimum: self.0.can_change_min_count().then_some("/schedulingPolicy/gang/minCount"),
        };
        ensure(gang, &group, current)
    }

    fn inject_pod_group_metadata(&self, replica: &Replica, _: &Pod) -> Result<Membership, InvalidField> {
        let name = self.group_name(replica);
        if !self.is_inline() {
            return Ok(Membership::to_pod_group(name));
        }
        let workload_ref = WorkloadRef { name, pod_group: GROUP.to_owned(), ..WorkloadRef::default() };
        Ok(Membership { workload_ref: Some(workload_ref), ..Membership::default() })
    }
}
