//! Native PodGroups and Workloads of 1.36: the rules of `muster_api::native::v1alpha2` behind the verbs.
//!
//! The gates are those of a server with `GenericWorkload`, `GangScheduling` and `WorkloadAwarePreemption` on, which
//! later became one.

use k8s_openapi::api::scheduling::v1beta1;
use muster_api::native::v1alpha2::{
    Gates, PodGroup, PodGroupSpec, Workload, WorkloadSpec, drop_disabled_pod_group, drop_disabled_workload,
    set_pod_group_defaults, validate_pod_group, validate_pod_group_status_update, validate_pod_group_update,
    validate_workload, validate_workload_update,
};
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::metadata::keep_for_status;
use super::native_errors::translate;
use super::native_v1alpha1::Whole;
use super::pod_group::typed;
use super::retype::{Unreadable, retype};
use super::{keep, present};

const GATES: Gates = Gates {
    topology_aware_workload_scheduling: false,
    dra_workload_resource_claims: false,
    workload_aware_preemption: true,
};

/// Reads a PodGroup. Its status has kept its shape.
pub(super) fn read(group: Value) -> Result<Value, Unreadable> {
    retype::<Whole<PodGroupSpec, v1beta1::PodGroupStatus>>(group)
}

/// Reads a Workload, which has no status.
pub(super) fn read_workload(mut workload: Value) -> Result<Value, Unreadable> {
    if let Some(fields) = workload.as_object_mut() {
        fields.remove("status");
    }
    retype::<Whole<WorkloadSpec>>(workload)
}

pub(super) fn complete(group: &mut Value) {
    present(group, "spec", json!({}));
    present(&mut group["spec"], "schedulingPolicy", json!({}));
    set_pod_group_defaults(group);
}

pub(super) fn on_create(group: &mut Value) {
    group["status"] = json!({});
    drop_disabled_pod_group(group, None, GATES);
}

pub(super) fn on_update(group: &mut Value, old: &Value) {
    keep(group, "status", old);
    drop_disabled_pod_group(group, Some(old), GATES);
}

/// Nothing but the status changes through `status`, not even labels.
pub(super) fn on_status(group: &mut Value, old: &Value) {
    keep(group, "spec", old);
    keep_for_status(group, old);
    drop_disabled_pod_group(group, Some(old), GATES);
}

pub(super) fn check(group: &Value) -> Vec<FieldError> {
    translate(validate_pod_group(&typed::<PodGroup>(group), GATES), group)
}

pub(super) fn check_update(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_update(&new, &old, GATES), group)
}

pub(super) fn check_status(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_status_update(&new, &old), group)
}

pub(super) fn create_workload(workload: &mut Value) {
    drop_disabled_workload(workload, None, GATES);
}

pub(super) fn update_workload(workload: &mut Value, old: &Value) {
    drop_disabled_workload(workload, Some(old), GATES);
}

pub(super) fn check_workload(workload: &Value) -> Vec<FieldError> {
    translate(validate_workload(&typed::<Workload>(workload), GATES), workload)
}

pub(super) fn check_workload_update(workload: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<Workload>(workload), typed::<Workload>(old));
    translate(validate_workload_update(&new, &old, GATES), workload)
}
