//! PersistentVolumeClaims: defaults, data sources, and a specification that only binding and expansion change.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::names::NameRule;
use super::persistent_volume::{
    VOLUME_MODES, access_mode_errors, class_name_errors, has_entries, not_positive_error, quantity,
};
use super::{copy_field, default_field, label_selector};

pub(super) const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
pub(super) const CLASS_ANNOTATION_DEPRECATED: &str =
    "deprecated since v1.8; use \"storageClassName\" attribute instead";
const SNAPSHOTS: &str = "snapshot.storage.k8s.io";
const VOLUME_CLASS: &str = "volumeAttributesClassName";
const SIZE: &str = "spec.resources.requests.storage";
const RESIZE_STATUSES: [&str; 5] = [
    "ControllerResizeInProgress",
    "ControllerResizeInfeasible",
    "NodeResizeInProgress",
    "NodeResizeInfeasible",
    "NodeResizePending",
];

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn forget(value: &mut Value, field: &str) {
    if let Some(fields) = value.as_object_mut() {
        fields.remove(field);
    }
}

/// The name of a claim's storage class: in the old annotation, or in the field. It may be empty.
pub(crate) fn class_of(claim: &Value) -> Option<&str> {
    let old = claim["metadata"]["annotations"][CLASS_ANNOTATION].as_str();
    old.or_else(|| claim["spec"]["storageClassName"].as_str())
}

/// The warnings about a valid claim.
pub(super) fn warnings(claim: &Value) -> Vec<String> {
    let has_old_class = !claim["metadata"]["annotations"][CLASS_ANNOTATION].is_null();
    let why = format!("metadata.annotations[{CLASS_ANNOTATION}]: {CLASS_ANNOTATION_DEPRECATED}");
    has_old_class.then_some(why).into_iter().collect()
}

/// A new claim is pending.
pub(super) fn set_defaults(claim: &mut Value) {
    set_spec_defaults(&mut claim["spec"]);
    default_field(claim, "status", json!({}));
    default_field(&mut claim["status"], "phase", json!("Pending"));
}

/// The defaults of a specification, also in a template.
pub(super) fn set_spec_defaults(spec: &mut Value) {
    default_field(spec, "volumeMode", json!("Filesystem"));
    default_field(spec, "resources", json!({}));
    for source in ["dataSource", "dataSourceRef"] {
        if spec[source].is_object() {
            default_field(&mut spec[source], "apiGroup", Value::Null);
        }
    }
}

pub(super) fn prepare_for_create(claim: &mut Value) {
    claim["status"] = json!({"phase": "Pending"});
    prepare_data_sources(&mut claim["spec"], &Value::Null);
}

pub(super) fn prepare_for_update(claim: &mut Value, old: &Value) {
    copy_field(claim, "status", old);
    prepare_data_sources(&mut claim["spec"], &old["spec"]);
}

/// Drops data sources that are not supported, and keeps the old and the new field equal.
fn prepare_data_sources(spec: &mut Value, old: &Value) {
    let is_set = |spec: &Value, field: &str| spec[field].is_object();
    // References to other namespaces are disabled by default.
    if !text(&spec["dataSourceRef"], "namespace").is_empty() && !is_set(old, "dataSourceRef") {
        forget(spec, "dataSourceRef");
    }
    let had_source = is_set(old, "dataSource") || is_set(old, "dataSourceRef");
    let source = (text(&spec["dataSource"], "apiGroup"), text(&spec["dataSource"], "kind"));
    let is_known = matches!(source, ("", "PersistentVolumeClaim") | (SNAPSHOTS, "VolumeSnapshot"));
    if !had_source && !is_set(spec, "dataSourceRef") && !is_known {
        forget(spec, "dataSource");
    }
    for (from, to) in [("dataSource", "dataSourceRef"), ("dataSourceRef", "dataSource")] {
        if is_set(spec, from) && !is_set(spec, to) && text(&spec[from], "namespace").is_empty() {
            let mut copied = spec[from].clone();
            forget(&mut copied, "namespace");
            spec[to] = copied;
        }
    }
}

pub(super) fn validate(claim: &Value) -> Vec<FieldError> {
    spec_errors(&claim["spec"])
}

fn spec_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if !has_entries(&spec["accessModes"]) {
        errors.push(FieldError::required("spec.accessModes", "at least 1 access mode is required"));
    }
    errors.extend(label_selector::validate(&spec["selector"], "spec.selector"));
    errors.extend(access_mode_errors(spec));
    let field = "spec.resources[storage]";
    match &spec["resources"]["requests"]["storage"] {
        Value::Null => errors.push(FieldError::required(field, "")),
        size => errors.extend(not_positive_error(size, field)),
    }
    errors.extend(class_name_errors(text(spec, "storageClassName"), "spec.storageClassName"));
    let mode = text(spec, "volumeMode");
    if !VOLUME_MODES.contains(&mode) {
        errors.push(FieldError::not_supported("spec.volumeMode", mode, &VOLUME_MODES));
    }
    errors.extend(data_source_errors(spec));
    errors.extend(class_name_errors(text(spec, VOLUME_CLASS), &format!("spec.{VOLUME_CLASS}")));
    errors
}

fn data_source_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for field in ["dataSource", "dataSourceRef"] {
        let (source, path) = (&spec[field], format!("spec.{field}"));
        if !source.is_object() {
            continue;
        }
        let missing = ["name", "kind"].into_iter().filter(|field| text(source, field).is_empty());
        errors.extend(missing.map(|field| FieldError::required(format!("{path}.{field}"), "")));
        let (group, kind) = (text(source, "apiGroup"), text(source, "kind"));
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            let detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.push(FieldError::invalid(&*path, kind, detail));
        }
        let why = if group.is_empty() { Vec::new() } else { NameRule::Subdomain.errors(group, false) };
        errors.extend(why.into_iter().map(|why| FieldError::invalid(format!("{path}.apiGroup"), group, why)));
    }
    let (source, reference) = (&spec["dataSource"], &spec["dataSourceRef"]);
    let differs = ["apiGroup", "kind", "name"].iter().any(|field| source[*field] != reference[*field]);
    if source.is_object() && reference.is_object() && differs {
        // kube-apiserver shows an empty object instead of the value.
        errors.push(FieldError::invalid("spec", json!({}), "must match dataSourceRef"));
    }
    errors
}

/// The specification may change by binding to a volume once and, of a bound claim, by its size and attributes class.
pub(super) fn validate_update(claim: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(claim);
    let (spec, was) = (&claim["spec"], &old["spec"]);
    let (mut masked, mut expected) = (spec.clone(), was.clone());
    prepare_data_sources(&mut expected, &Value::Null);
    if text(was, "volumeName").is_empty() {
        copy_field(&mut expected, "volumeName", spec);
    }
    errors.extend(mask_class(claim, old, &mut masked));
    let size = |spec: &Value| quantity(&spec["resources"]["requests"]["storage"]).unwrap_or_default();
    let is_bound = claim["status"]["phase"] == "Bound";
    if masked["resources"]["requests"].is_object() && (is_bound || size(spec) == size(was)) {
        masked["resources"]["requests"]["storage"] = was["resources"]["requests"]["storage"].clone();
    }
    if is_bound {
        copy_field(&mut masked, VOLUME_CLASS, was);
    }
    if masked != expected {
        // kube-apiserver appends a diff; here the names of the changed fields are appended.
        let names = [&masked, &expected].into_iter().filter_map(Value::as_object).flat_map(|fields| fields.keys());
        let mut changed: Vec<&str> =
            names.filter(|name| masked[*name] != expected[*name]).map(String::as_str).collect();
        changed.sort_unstable();
        changed.dedup();
        let detail = format!(
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\nchanged: {}",
            changed.join(", ")
        );
        errors.push(FieldError::forbidden("spec", detail));
    }
    let capacity = quantity(&old["status"]["capacity"]["storage"]).unwrap_or_default();
    if size(spec) < size(was) && size(spec) <= capacity {
        errors.push(FieldError::forbidden(SIZE, "field can not be less than status.capacity"));
    }
    if spec["volumeMode"] != was["volumeMode"] {
        errors.push(FieldError::invalid("volumeMode", spec["volumeMode"].clone(), "field is immutable"));
    }
    if spec[VOLUME_CLASS] != was[VOLUME_CLASS] && !old["status"]["currentVolumeAttributesClassName"].is_null() {
        let changed_to = match spec[VOLUME_CLASS].as_str() {
            None => Some("nil"),
            Some("") => Some("empty string"),
            Some(_) => None,
        };
        errors.extend(changed_to.map(|to| {
            let detail = format!("update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil");
            FieldError::forbidden(format!("spec.{VOLUME_CLASS}"), detail)
        }));
    }
    errors
}

/// A claim without a class may get one, and the class of the old annotation may move to the field.
fn mask_class(claim: &Value, old: &Value, masked: &mut Value) -> Option<FieldError> {
    let annotation = |claim: &Value| claim["metadata"]["annotations"][CLASS_ANNOTATION].as_str().map(str::to_owned);
    let (new_annotation, old_annotation) = (annotation(claim), annotation(old));
    let (new_class, old_class) = (claim["spec"]["storageClassName"].as_str(), old["spec"]["storageClassName"].as_str());
    let is_moved = old_annotation.is_some()
        && old_class.is_none()
        && new_class == old_annotation.as_deref()
        && (new_annotation.is_none() || new_annotation == old_annotation);
    let is_first = new_class.is_some()
        && old_class.is_none()
        && (old_annotation.is_none() || new_class == old_annotation.as_deref());
    if is_moved || is_first {
        forget(masked, "storageClassName");
    }
    let has_changed = new_annotation.unwrap_or_default() != old_annotation.unwrap_or_default();
    (!is_moved && has_changed).then(|| {
        let field = format!("metadata.annotations.{CLASS_ANNOTATION}");
        let value = annotation(claim).unwrap_or_default();
        FieldError::invalid(field, value, "field is immutable")
    })
}

pub(super) fn validate_status_update(claim: &Value, _: &Value) -> Vec<FieldError> {
    let status = &claim["status"];
    let mut errors = Vec::new();
    errors.extend(amount_errors(&status["capacity"], "status.capacity"));
    for (name, phase) in status["allocatedResourceStatuses"].as_object().into_iter().flatten() {
        if !RESIZE_STATUSES.iter().any(|known| phase == known) {
            let field = "status.allocatedResourceStatuses";
            errors.push(FieldError::not_supported(field, name.as_str(), &RESIZE_STATUSES));
        }
    }
    errors.extend(amount_errors(&status["allocatedResources"], "status.allocatedResources"));
    errors
}

fn amount_errors(amounts: &Value, field: &str) -> Vec<FieldError> {
    let amounts = amounts.as_object().into_iter().flatten();
    let negative =
        amounts.filter(|(_, amount)| quantity(amount).is_some_and(|amount| amount.nanos() <= -1_000_000_000));
    negative
        .map(|(name, amount)| {
            let units = quantity(amount).unwrap_or_default().nanos() / 1_000_000_000;
            let units = i64::try_from(units).unwrap_or(i64::MIN);
            FieldError::invalid(format!("{field}[{name}]"), units, "must be a valid resource quantity")
        })
        .collect()
}
