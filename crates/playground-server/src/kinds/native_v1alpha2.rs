//! The strategy of native PodGroups and Workloads of 1.36 where it differs from that of 1.37: the wire types and the
//! rules of `muster_api::native::v1alpha2`.
//!
//! `GenericWorkload`, `GangScheduling` and `WorkloadAwarePreemption`, which later became one, are on.

use k8s_openapi::api::scheduling::v1beta1;
use muster_api::native::v1alpha2::{
    PodGroup, PodGroupSpec, Workload, WorkloadSpec, set_pod_group_defaults, validate_pod_group,
    validate_pod_group_status_update, validate_pod_group_update, validate_workload, validate_workload_update,
};
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::native_errors::translate;
use super::native_v1alpha1::TypedObject;
use super::pod_group::typed;
use super::typed_decode::{DecodeError, decode_as};
use super::{Gated, default_field, pod_group};

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

pub(super) const GATED: Gated = Gated {
    set_defaults: |_, _| {},
    validate: |group, gates| translate(validate_pod_group(&typed::<PodGroup>(group), gates), group),
    validate_update: |group, old, gates| {
        let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
        translate(validate_pod_group_update(&new, &old, gates), group)
    },
    ..pod_group::GATED
};

pub(super) fn validate_status_update(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_status_update(&new, &old), group)
}

pub(super) const GATED_WORKLOAD: Gated = Gated {
    validate: |workload, gates| translate(validate_workload(&typed::<Workload>(workload), gates), workload),
    validate_update: |workload, old, gates| {
        let (new, old) = (typed::<Workload>(workload), typed::<Workload>(old));
        translate(validate_workload_update(&new, &old, gates), workload)
    },
    ..pod_group::GATED_WORKLOAD
};
