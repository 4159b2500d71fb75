//! The strategy of native PodGroups and Workloads of 1.36, with the rules of `muster_api::native::v1alpha2`.
//!
//! The feature gates are those of a server with `GenericWorkload`, `GangScheduling` and `WorkloadAwarePreemption` on,
//! which later became one.

use k8s_openapi::api::scheduling::v1beta1;
use muster_api::native::v1alpha2::{
    Gates, PodGroup, PodGroupSpec, Workload, WorkloadSpec, drop_disabled_pod_group, drop_disabled_workload,
    set_pod_group_defaults, validate_pod_group, validate_pod_group_status_update, validate_pod_group_update,
    validate_workload, validate_workload_update,
};
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::metadata::restore_for_status_update;
use super::native_errors::translate;
use super::native_v1alpha1::TypedObject;
use super::pod_group::typed;
use super::typed_decode::{DecodeError, decode_as};
use super::{copy_field, default_field};

const GATES: Gates = Gates {
    topology_aware_workload_scheduling: false,
    dra_workload_resource_claims: false,
    workload_aware_preemption: true,
};

/// Decodes a PodGroup. The shape of its status is the same as in 1.37.
pub(super) fn decode(group: Value) -> Result<Value, DecodeError> {
    decode_as::<TypedObject<PodGroupSpec, v1beta1::PodGroupStatus>>(group)
}

/// Decodes a Workload, which has no status.
pub(super) fn decode_workload(mut workload: Value) -> Result<Value, DecodeError> {
    if let Some(fields) = workload.as_object_mut() {
        fields.remove("status");
    }
    decode_as::<TypedObject<WorkloadSpec>>(workload)
}

pub(super) fn set_defaults(group: &mut Value) {
    default_field(group, "spec", json!({}));
    default_field(&mut group["spec"], "schedulingPolicy", json!({}));
    set_pod_group_defaults(group);
}

pub(super) fn prepare_for_create(group: &mut Value) {
    group["status"] = json!({});
    drop_disabled_pod_group(group, None, GATES);
}

pub(super) fn prepare_for_update(group: &mut Value, old: &Value) {
    copy_field(group, "status", old);
    drop_disabled_pod_group(group, Some(old), GATES);
}

/// Only the status can be changed through `status`, not even labels.
pub(super) fn prepare_for_status_update(group: &mut Value, old: &Value) {
    copy_field(group, "spec", old);
    restore_for_status_update(group, old);
    drop_disabled_pod_group(group, Some(old), GATES);
}

pub(super) fn validate(group: &Value) -> Vec<FieldError> {
    translate(validate_pod_group(&typed::<PodGroup>(group), GATES), group)
}

pub(super) fn validate_update(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_update(&new, &old, GATES), group)
}

pub(super) fn validate_status_update(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_status_update(&new, &old), group)
}

pub(super) fn create_workload(workload: &mut Value) {
    drop_disabled_workload(workload, None, GATES);
}

pub(super) fn update_workload(workload: &mut Value, old: &Value) {
    drop_disabled_workload(workload, Some(old), GATES);
}

pub(super) fn workload_errors(workload: &Value) -> Vec<FieldError> {
    translate(validate_workload(&typed::<Workload>(workload), GATES), workload)
}

pub(super) fn workload_update_errors(workload: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<Workload>(workload), typed::<Workload>(old));
    translate(validate_workload_update(&new, &old, GATES), workload)
}
