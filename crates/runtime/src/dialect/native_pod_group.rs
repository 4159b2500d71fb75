//! Kubernetes' PodGroup as of 1.37, v1beta1 or v1alpha3: a pod names it in its spec, the object is the group.
//!
//! The two versions have the same shape and show the same objects, so only one of them is read.

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::conditions::POD_GROUP_INITIALLY_SCHEDULED;
use muster_api::native::pod_group::PodGroupSpec;
use muster_api::native::policy::{ResourceClaim, SchedulingConstraints, SchedulingPolicy};
use muster_api::native::{Gates, PodGroup, V1ALPHA3, VERSION, validate_pod_group};
use muster_api::wire::Pod;
use muster_engine::model::group::{DisruptionMode, Policy, PreemptionPolicy};

use super::draft::{Draft, Flaw, FlawKind, GroupObject, Mismatch, PriorityField, WithoutClass};
use super::native_conditions::{current_status, patch};
use super::status::ObjectStatus;
use super::{Dialect, Reference, StatusPatch};

/// `podgroups.scheduling.k8s.io` of 1.37.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativePodGroup {
    version: &'static str,
}

impl NativePodGroup {
    /// The v1beta1 API.
    pub(crate) const V1BETA1: Self = Self { version: VERSION };
    /// The v1alpha3 API.
    pub(crate) const V1ALPHA3: Self = Self { version: V1ALPHA3 };
}

impl Dialect for NativePodGroup {
    fn origin(&self) -> &'static str {
        "scheduling.k8s.io/PodGroup"
    }

    fn resource(&self) -> ApiResource {
        let resource = ApiResource::erase::<PodGroup>(&());
        let (version, group) = (self.version.to_owned(), &resource.group);
        ApiResource { api_version: format!("{group}/{version}"), version, ..resource }
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        scheduling_group(pod)
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: PodGroup = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject::unreadable(text, &error),
        };
        let mut read = GroupObject {
            groups: draft(&object).map(|draft| vec![(String::new(), draft)]),
            current_status: current_status(&object.status.conditions, POD_GROUP_INITIALLY_SCHEDULED),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.apply_min_resources(&object.metadata);
        let workload = object.spec.workload_ref.as_ref().map(|reference| reference.workload_name.as_str());
        read.apply_whole_resources(&object.metadata, workload);
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        patch(object, status, POD_GROUP_INITIALLY_SCHEDULED)
    }
}

/// The group that a pod names in `spec.schedulingGroup`.
pub(super) fn scheduling_group(pod: &Pod) -> Option<Result<Reference, InvalidField>> {
    let group = pod.spec.scheduling_group.as_ref()?;
    let Some(name) = group.pod_group_name.clone().filter(|name| !name.is_empty()) else {
        let path = FieldPath::Root("spec.schedulingGroup.podGroupName");
        return Some(Err(path.invalid(&group.pod_group_name, "must be set")));
    };
    Some(Ok(Reference::to_object(&name)))
}

fn draft(object: &PodGroup) -> Result<Draft, Flaw> {
    let spec = &object.spec;
    reject_unsupported(spec)?;
    // Every field that the server accepted counts, whatever its feature gates are.
    let gates = Gates {
        topology_aware_workload_scheduling: true,
        dra_workload_resource_claims: true,
        pod_group_preemption_policy: true,
        composite_pod_group: true,
    };
    if let Some(error) = validate_pod_group(object, gates).first() {
        return Err(Flaw { kind: FlawKind::Invalid, message: error.to_string() });
    }
    let all = spec.disruption_mode.as_ref().is_some_and(|mode| mode.all.is_some());
    Ok(Draft {
        priority: PriorityField {
            class: Some(spec.priority_class_name.clone()).filter(|name| !name.is_empty()),
            number: spec.priority,
            mismatch: Mismatch::ClassTakesPrecedence,
            without_class: WithoutClass::Default,
        },
        preemption_policy: spec.preemption_policy.as_deref().map(|policy| match policy {
            "Never" => PreemptionPolicy::Never,
            _ => PreemptionPolicy::LowerPriority,
        }),
        disruption_mode: if all { DisruptionMode::Group } else { DisruptionMode::Pod },
        ..Draft::with_policy(policy(&spec.scheduling_policy), WithoutClass::Default)
    })
}

/// The scheduling policy. The server accepts no count below 1.
pub(super) fn policy(policy: &SchedulingPolicy) -> Policy {
    match &policy.gang {
        Some(gang) => Policy::Gang { min_count: gang.min_count.unsigned_abs() },
        None => Policy::Basic { desired_count: None },
    }
}

fn reject_unsupported(spec: &PodGroupSpec) -> Result<(), Flaw> {
    if let Some(parent) = &spec.parent_composite_pod_group_name {
        return Err(Flaw::unsupported("spec.parentCompositePodGroupName", parent));
    }
    reject_placement(spec.scheduling_constraints.as_ref(), &spec.resource_claims)
}

/// Rejects topology constraints and shared resource claims, which are not supported yet.
pub(super) fn reject_placement(
    constraints: Option<&SchedulingConstraints>,
    claims: &[ResourceClaim],
) -> Result<(), Flaw> {
    if let Some(first) = constraints.and_then(|constraints| constraints.topology.first()) {
        return Err(Flaw::unsupported("spec.schedulingConstraints.topology[0].key", &first.key));
    }
    match claims.first() {
        Some(claim) => Err(Flaw::unsupported("spec.resourceClaims[0].name", &claim.name)),
        None => Ok(()),
    }
}
