//! Kubernetes' Workload as of 1.35, v1alpha1: several groups in one object, each of which may have many replicas. A pod
//! names all three in its spec.
//!
//! The object has no status, so nothing is written to it and it keeps no history: users see events and the pods'
//! conditions. After a restart only bound members show that a group has started. They may belong to a gang that has
//! lost members or to an interrupted start, so they stay in either case, and the missing members are scheduled all
//! together or not at all.
//! Must not depend on the later versions.

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::native::v1alpha1::{Workload, validate_workload, validate_workload_reference};
use muster_api::wire::Pod;

use super::condition::CurrentStatus;
use super::group_error::GroupError;
use super::group_object::GroupObject;
use super::native_pod_group::policy;
use super::parsed_group::{ParsedGroup, WithoutClass};
use super::status::ObjectStatus;
use super::{Dialect, Reference, StatusPatch};

/// `workloads.scheduling.k8s.io` of 1.35.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NativeWorkload;

impl Dialect for NativeWorkload {
    fn origin(&self) -> &'static str {
        "scheduling.k8s.io/Workload"
    }

    fn resource(&self) -> ApiResource {
        ApiResource::erase::<Workload>(&())
    }

    fn reference(&self, pod: &Pod) -> Option<Result<Reference, InvalidField>> {
        let named = pod.spec.workload_ref.as_ref()?;
        let path = FieldPath::Root("spec.workloadRef");
        if let Some(error) = validate_workload_reference(named, &path).into_iter().next() {
            let value = error.value.as_deref().and_then(|text| serde_json::from_str::<String>(text).ok());
            return Some(Err(FieldPath::Root(&error.field).invalid(&value, error.detail)));
        }
        Some(Ok(Reference {
            object: named.name.clone(),
            group: named.pod_group.clone(),
            replica: named.pod_group_replica_key.clone(),
            subset: String::new(),
        }))
    }

    fn read(&self, text: &str) -> GroupObject {
        let object: Workload = match serde_json::from_str(text) {
            Ok(object) => object,
            Err(error) => return GroupObject { is_group: false, ..GroupObject::unreadable(text, &error) },
        };
        let mut read = GroupObject {
            is_group: false,
            groups: parse(&object),
            // The status has no field for groups: each may have started.
            current_status: CurrentStatus { is_truncated: true, ..CurrentStatus::default() },
            ..GroupObject::with_metadata(&object.metadata)
        };
        read.apply_min_resources(&object.metadata);
        read.apply_disruption_mode(&object.metadata);
        read.apply_later_pods(&object.metadata);
        read
    }

    fn write(&self, _: &GroupObject, _: &ObjectStatus) -> Option<StatusPatch> {
        None
    }
}

fn parse(object: &Workload) -> Result<Vec<(String, ParsedGroup)>, GroupError> {
    if let Some(error) = validate_workload(object).into_iter().next() {
        return Err(error.into());
    }
    let groups =
        object.spec.pod_groups.iter().map(|group| {
            (group.name.clone(), ParsedGroup::with_policy(policy(&group.policy), WithoutClass::LowestMember))
        });
    Ok(groups.collect())
}
