//! Kubernetes' PodGroup as of 1.36, v1alpha2: a pod names it as in 1.37, and its spec is immutable.
//!
//! Priority and disruption mode are behind a feature gate of the server: a group without a priority comes from a server
//! that has it off, and then the members' priorities count.

use kube::core::ApiResource;
use muster_api::invalid::InvalidField;
use muster_api::keys::conditions::POD_GROUP_SCHEDULED;
use muster_api::native::v1alpha2::{DISRUPT_POD, DISRUPT_POD_GROUP, Gates, PodGroup, validate_pod_group};
use muster_api::wire::Pod;
use muster_engine::model::group::DisruptionMode;

use super::draft::{Draft, Flaw, FlawKind, GroupObject, Mismatch, PriorityField, WithoutClass};
use super::native_conditions::{current_status, patch};
use super::native_pod_group::{policy, reject_placement, scheduling_group};
use super::status::ObjectStatus;
use super::{Dialect, Reference, StatusPatch};

/// `podgroups.scheduling.k8s.io` of 1.36.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativePodGroupV1alpha2;

impl Dialect for NativePodGroupV1alpha2 {
    fn origin(&self) -> &'static str {
        "scheduling.k8s.io/PodGroup"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<PodGroup>(&())
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
            groups: draft(object.clone()).map(|draft| vec![(String::new(), draft)]),
            current_status: current_status(&object.status.conditions, POD_GROUP_SCHEDULED),
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.apply_min_resources(&object.metadata);
        let template = object.spec.pod_group_template_ref.as_ref().and_then(|reference| reference.workload.as_ref());
        read.apply_whole_resources(&object.metadata, template.map(|template| template.workload_name.as_str()));
        read
    }

    fn write(&self, object: &GroupObject, status: &ObjectStatus) -> Option<StatusPatch> {
        patch(object, status, POD_GROUP_SCHEDULED)
    }
}

fn draft(mut object: PodGroup) -> Result<Draft, Flaw> {
    reject_placement(object.spec.scheduling_constraints.as_ref(), &object.spec.resource_claims)?;
    // A server that has the gate off keeps no mode; every other field that it accepted counts.
    object.spec.disruption_mode.get_or_insert_with(|| DISRUPT_POD.to_owned());
    let gates = Gates {
        topology_aware_workload_scheduling: true,
        dra_workload_resource_claims: true,
        workload_aware_preemption: true,
    };
    if let Some(error) = validate_pod_group(&object, gates).first() {
        return Err(Flaw { kind: FlawKind::Invalid, message: error.to_string() });
    }
    let spec = object.spec;
    let whole = spec.disruption_mode.as_deref() == Some(DISRUPT_POD_GROUP);
    Ok(Draft {
        priority: PriorityField {
            class: Some(spec.priority_class_name).filter(|name| !name.is_empty()),
            number: spec.priority,
            mismatch: Mismatch::ClassTakesPrecedence,
            without_class: match spec.priority {
                Some(_) => WithoutClass::Default,
                None => WithoutClass::LowestMember,
            },
        },
        disruption_mode: if whole { DisruptionMode::Group } else { DisruptionMode::Pod },
        ..Draft::with_policy(policy(&spec.scheduling_policy), WithoutClass::Default)
    })
}
