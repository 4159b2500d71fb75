//! Native PodGroups and Workloads of 1.37 (v1beta1, v1alpha3): the rules of `muster_api::native` behind the verbs.
//!
//! The gates are those of a stock 1.37 server with `GenericWorkload` on.

use k8s_openapi::api::scheduling::v1beta1;
use muster_api::native::{
    Gates, PodGroup, Workload, drop_disabled_pod_group, drop_disabled_workload, set_pod_group_defaults,
    validate_pod_group, validate_pod_group_status_update, validate_pod_group_update, validate_workload,
    validate_workload_update,
};
use muster_playground_schema::FieldError;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::metadata::keep_for_status;
use super::native_errors::translate;
use super::retype::{Unreadable, retype};
use super::{keep, present};

/// Reads a PodGroup.
pub(super) fn read(group: Value) -> Result<Value, Unreadable> {
    let mut read = in_version(group, retype::<v1beta1::PodGroup>)?;
    empty_choices(&mut read["spec"], "spec")?;
    Ok(read)
}

/// Reads a Workload.
pub(super) fn read_workload(workload: Value) -> Result<Value, Unreadable> {
    let mut read = in_version(workload, retype::<v1beta1::Workload>)?;
    let templates = read["spec"].get_mut("podGroupTemplates").and_then(Value::as_array_mut);
    for (index, template) in templates.into_iter().flatten().enumerate() {
        empty_choices(template, &format!("spec.podGroupTemplates[{index}]"))?;
    }
    Ok(read)
}

/// Both versions of 1.37 have one shape, and a typed object says that it is of v1beta1.
fn in_version(object: Value, read: fn(Value) -> Result<Value, Unreadable>) -> Result<Value, Unreadable> {
    let written = object.get("apiVersion").cloned();
    let mut object = read(as_v1beta1(object))?;
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

/// Choices that have nothing to say are any JSON in their type; here they are empty objects.
fn empty_choices(settings: &mut Value, path: &str) -> Result<(), Unreadable> {
    for (field, choice) in [("schedulingPolicy", "basic"), ("disruptionMode", "single"), ("disruptionMode", "all")] {
        let choices = settings.get_mut(field).and_then(Value::as_object_mut);
        match choices.and_then(|choices| choices.get_mut(choice)) {
            None | Some(Value::Null) => {}
            Some(Value::Object(fields)) => fields.clear(),
            Some(other) => {
                let field = format!("{path}.{field}.{choice}");
                return Err(Unreadable { field, why: format!("invalid type: {other}, expected an object") });
            }
        }
    }
    Ok(())
}

pub(super) fn complete(group: &mut Value) {
    present(group, "spec", json!({}));
    present(&mut group["spec"], "schedulingPolicy", json!({}));
    set_pod_group_defaults(group, Gates::default());
}

pub(super) fn on_create(group: &mut Value) {
    group["status"] = json!({});
    drop_disabled_pod_group(group, None, Gates::default());
}

pub(super) fn on_update(group: &mut Value, old: &Value) {
    keep(group, "status", old);
    drop_disabled_pod_group(group, Some(old), Gates::default());
}

/// Nothing but the status changes through `status`, not even labels.
pub(super) fn on_status(group: &mut Value, old: &Value) {
    keep(group, "spec", old);
    keep_for_status(group, old);
    drop_disabled_pod_group(group, Some(old), Gates::default());
}

/// The typed form. It was read as the kind before, and the two types agree on what can be read.
pub(super) fn typed<T: DeserializeOwned + Default>(value: &Value) -> T {
    T::deserialize(value).unwrap_or_default()
}

pub(super) fn check(group: &Value) -> Vec<FieldError> {
    translate(validate_pod_group(&typed::<PodGroup>(group), Gates::default()), group)
}

pub(super) fn check_update(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_update(&new, &old, Gates::default()), group)
}

pub(super) fn check_status(group: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<PodGroup>(group), typed::<PodGroup>(old));
    translate(validate_pod_group_status_update(&new, &old), group)
}

pub(super) fn complete_workload(workload: &mut Value) {
    present(workload, "spec", json!({}));
    let templates = workload["spec"].get_mut("podGroupTemplates").and_then(Value::as_array_mut);
    for template in templates.into_iter().flatten() {
        present(template, "schedulingPolicy", json!({}));
    }
}

pub(super) fn create_workload(workload: &mut Value) {
    drop_disabled_workload(workload, None, Gates::default());
}

pub(super) fn update_workload(workload: &mut Value, old: &Value) {
    drop_disabled_workload(workload, Some(old), Gates::default());
}

pub(super) fn check_workload(workload: &Value) -> Vec<FieldError> {
    translate(validate_workload(&typed::<Workload>(workload), Gates::default()), workload)
}

pub(super) fn check_workload_update(workload: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (typed::<Workload>(workload), typed::<Workload>(old));
    translate(validate_workload_update(&new, &old, Gates::default()), workload)
}
