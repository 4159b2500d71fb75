//! Kubernetes' PodGroup, in each version that has one (1.36 and later): a pod names it in its spec, the object is the
//! group.
//!
//! Objects are converted to the internal form of `muster_api::native` when they are read. The versions show the same
//! objects, so only one of them is read.

use std::sync::Arc;

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::native::NativeVersion;
use muster_api::native::pod_group::PodGroupSpec;
use muster_api::native::policy::{SchedulingConstraints, SchedulingPolicy};
use muster_api::wire::Pod;
use muster_engine::model::group::{DisruptionMode, Policy, PreemptionPolicy};
use muster_engine::model::topology::{DomainChoice, GroupTopology};

use super::group_error::GroupError;
use super::group_object::GroupObject;
use super::native_composite;
use super::native_conditions::{current_status, patch};
use super::parsed_group::{NumberBy, ParsedGroup, PriorityField, WithoutClass};
use super::status::ObjectStatus;
use super::{Dialect, Reference, StatusPatch};

/// `podgroups.scheduling.k8s.io` in this version, which must have PodGroups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativePodGroup(pub(crate) NativeVersion);

impl Dialect for NativePodGroup {
    fn origin(&self) -> &'static str {
        "scheduling.k8s.io/PodGroup"
    }

    fn resource(&self) -> ApiResource {
        self.0.group_objects()
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        let group = pod.spec.scheduling_group.as_ref()?;
        let Some(name) = group.pod_group_name.clone().filter(|name| !name.is_empty()) else {
            let path = FieldPath::Root("spec.schedulingGroup.podGroupName");
            return Some(Err(path.invalid(&group.pod_group_name, "must be set")));
        };
        Some(Ok(Reference::to_object(&name)))
    }

    fn read(&self, text: &str) -> GroupObject {
        let (object, invalid) = match self.0.decode_pod_group(text) {
            Ok(decoded) => decoded,
            Err(error) => return GroupObject::unreadable(text, &error),
        };
        let group = reject_unsupported(&object.spec).and_then(|()| match invalid {
            Some(error) => Err(error.into()),
            None => Ok(group(&object.spec, self.0)),
        });
        let mut read = GroupObject {
            groups: group.map(|group| vec![(String::new(), group)]),
            current_status: current_status(&object.status.conditions, self.0.scheduled_condition()),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.apply_min_resources(&object.metadata);
        read.apply_disruption_mode(&object.metadata);
        read.apply_later_pods(&object.metadata);
        read.apply_parent(&object.metadata);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        patch(object, status, self.0.scheduled_condition())
    }
}

fn group(spec: &PodGroupSpec, version: NativeVersion) -> ParsedGroup {
    let all = spec.disruption_mode.as_ref().is_some_and(|mode| mode.all.is_some());
    // A group without a priority comes from a server that has the gate off: then the members' priorities count.
    let is_gate_off = version.has_priority_gate() && spec.priority.is_none();
    ParsedGroup {
        priority: PriorityField {
            class: Some(spec.priority_class_name.clone()).filter(|name| !name.is_empty()),
            number: spec.priority,
            number_by: NumberBy::Server,
            without_class: if is_gate_off { WithoutClass::LowestMember } else { WithoutClass::Default },
        },
        preemption_policy: spec.preemption_policy.as_deref().map(|policy| match policy {
            "Never" => PreemptionPolicy::Never,
            _ => PreemptionPolicy::LowerPriority,
        }),
        disruption_mode: if all { DisruptionMode::Group } else { DisruptionMode::Pod },
        parent: native_composite::parent(spec.parent_composite_pod_group_name.as_deref()),
        topology: topology(spec.scheduling_constraints.as_ref()),
        ..ParsedGroup::with_policy(policy(&spec.scheduling_policy), WithoutClass::Default)
    }
}

/// The scheduling policy. The server accepts no count below 1.
pub(super) fn policy(policy: &SchedulingPolicy) -> Policy {
    match &policy.gang {
        Some(gang) => Policy::Gang { min_count: gang.min_count.unsigned_abs() },
        None => Policy::Basic { desired_count: None },
    }
}

/// The domain that the members share. Among several, kube-scheduler's choice is taken.
pub(super) fn topology(constraints: Option<&SchedulingConstraints>) -> Option<Arc<GroupTopology>> {
    let constraints = constraints.into_iter().flat_map(|constraints| &constraints.topology);
    let topology = GroupTopology::of(constraints.map(|one| (one.key.clone(), true)))?;
    Some(Arc::new(GroupTopology { choice: DomainChoice::MostAllocated, ..topology }))
}

/// Rejects shared resource claims, which are not supported yet.
fn reject_unsupported(spec: &PodGroupSpec) -> Result<(), GroupError> {
    match spec.resource_claims.first() {
        Some(claim) => Err(GroupError::unsupported("spec.resourceClaims[0].name", &claim.name)),
        None => Ok(()),
    }
}
