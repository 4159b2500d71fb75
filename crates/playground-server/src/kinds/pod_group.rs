//! The strategy of native PodGroups and Workloads of 1.37 (v1beta1, v1alpha3), with the rules of `muster_api::native`.
//!
//! `GenericWorkload` is on, the other feature gates are those of the server.

use k8s_openapi::api::scheduling::v1beta1;
use muster_api::native::{
    PodGroup, Workload, drop_disabled_pod_group, drop_disabled_workload, set_pod_group_defaults, validate_pod_group,
    validate_pod_group_status_update, validate_pod_group_update, validate_workload, validate_workload_update,
};
use muster_playground_schema::FieldError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::metadata::restore_for_status_update;
use super::native_errors::translate;
use super::typed_decode::{DecodeError, decode_as};
use super::{Gated, copy_field, default_field};

/// Decodes a PodGroup.
pub(super) fn decode(group: Value) -> Result<Value, DecodeError> {
    let mut decoded = in_version(group, decode_as::<v1beta1::PodGroup>)?;
    empty_choices(&mut decoded["spec"], "spec")?;
    Ok(decoded)
}

/// Decodes a Workload.
pub(super) fn decode_workload(workload: Value) -> Result<Value, DecodeError> {
    let mut decoded = in_version(workload, decode_as::<v1beta1::Workload>)?;
    let templates = decoded["spec"].get_mut("podGroupTemplates").and_then(Value::as_array_mut);
    for (index, template) in templates.into_iter().flatten().enumerate() {
        empty_choices(template, &format!("spec.podGroupTemplates[{index}]"))?;
    }
    Ok(decoded)
}

/// Both versions of 1.37 have one shape; the type encodes v1beta1.
fn in_version(object: Value, decode: fn(Value) -> Result<Value, DecodeError>) -> Result<Value, DecodeError> {
    let written = object.get("apiVersion").cloned();
    let mut object = decode(as_v1beta1(object))?;
    if let Some(written) = written {
        object["apiVersion"] = written;
    }
    Ok(object)
}

fn as_v1beta1(mut object: Value) -> Value {
    if let Some(version) = object.get_mut("apiVersion") {
        *version = json!("scheduling.k8s.io/v1beta1");
    }
    object
}

/// Policies without fields are arbitrary JSON in their type; here they must be objects, and are emptied.
pub(super) fn empty_choices(settings: &mut Value, path: &str) -> Result<(), DecodeError> {
    for (field, choice) in [("schedulingPolicy", "basic"), ("disruptionMode", "single"), ("disruptionMode", "all")] {
        let choices = settings.get_mut(field).and_then(Value::as_object_mut);
        match choices.and_then(|choices| choices.get_mut(choice)) {
            None | Some(Value::Null) => {}
            Some(Value::Object(fields)) => fields.clear(),
            Some(other) => {
                let field = format!("{path}.{field}.{choice}");
                return Err(DecodeError { field, why: format!("invalid type: {other}, expected an object") });
            }
        }
    }
    Ok(())
}

pub(super) fn set_defaults(group: &mut Value) {
    default_field(group, "spec", json!({}));
    default_field(&mut group["spec"], "schedulingPolicy", json!({}));
}

pub(super) fn prepare_for_create(group: &mut Value) {
    group["status"] = json!({});
}

pub(super) fn prepare_for_update(group: &mut Value, old: &Value) {
    copy_field(group, "status", old);
}

/// Only the status can be changed through `status`, not even labels.
pub(super) fn prepare_for_status_update(group: &mut Value, old: &Value) {
    copy_field(group, "spec", old);
    restore_for_status_update(group, old);
}

/// The typed form. Cannot fail: the value was decoded as the kind before, and both types accept the same values.
pub(super) fn typed<T: DeserializeOwned + Default>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

pub(super) const GATED: Gated = Gated {
    set_defaults: set_pod_group_defaults,
    drop_disabled: drop_disabled_pod_group,
    validate: |group, gates| translate(validate_pod_group(&typed::<PodGroup>(group), gates), group),
    validate_update: |group, old, gates| {
        let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
        translate(validate_pod_group_update(&new, &old, gates), group)
    },
};

pub(super) fn validate_status_update(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_status_update(&new, &old), group)
}

pub(super) fn set_workload_defaults(workload: &mut Value) {
    default_field(workload, "spec", json!({}));
    let templates = workload["spec"].get_mut("podGroupTemplates").and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        default_field(template, "schedulingPolicy", json!({}));
    }
}

pub(super) const GATED_WORKLOAD: Gated = Gated {
    set_defaults: |_, _| {},
    drop_disabled: drop_disabled_workload,
    validate: |workload, gates| translate(validate_workload(&typed::<Workload>(workload), gates), workload),
    validate_update: |workload, old, gates| {
        let (new, old) = (typed::<Workload>(workload), typed::<Workload>(old));
        translate(validate_workload_update(&new, &old, gates), workload)
    },
};
