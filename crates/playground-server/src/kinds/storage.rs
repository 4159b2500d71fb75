//! The kinds of `storage.k8s.io`: classes, CSI drivers, what nodes and pools offer, attachments.

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::label_key_errors;
use serde_json::{Value, json};

use super::persistent_volume::{class_name_errors, driver_name_errors, quantity};
use super::typed_decode::{DecodeError, decode_as};
use super::{copy_field, default_field, increment_generation, label_selector, quantities};

const IMMUTABLE: &str = "field is immutable";
const RECLAIM_POLICIES: [&str; 2] = ["Delete", "Retain"];
const BINDING_MODES: [&str; 2] = ["Immediate", "WaitForFirstConsumer"];
const GROUP_POLICIES: [&str; 3] = ["File", "None", "ReadWriteOnceWithFSType"];
const LIFECYCLES: [&str; 2] = ["Persistent", "Ephemeral"];
const PARAMETERS_MAX: usize = 512;
const PARAMETERS_SIZE_MAX: usize = 256 * 1024;
const NODE_ID_MAX: usize = 256;
const TOKEN_SECONDS_MIN: i64 = 600;

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn entries(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

/// The errors of changed immutable fields.
fn changed_errors(new: &Value, old: &Value, path: &str, fields: &[&str]) -> Vec<FieldError> {
    let changed = fields.iter().filter(|field| new[**field] != old[**field]);
    changed.map(|field| FieldError::invalid(format!("{path}{field}"), new[*field].clone(), IMMUTABLE)).collect()
}

/// The same for fields whose values kube-apiserver does not show.
fn hidden_changes(new: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let changed = fields.iter().filter(|field| new[**field] != old[**field]);
    changed.map(|field| FieldError::invalid(*field, Value::Null, IMMUTABLE)).collect()
}

pub(super) fn set_class_defaults(class: &mut Value) {
    default_field(class, "reclaimPolicy", json!("Delete"));
    default_field(class, "volumeBindingMode", json!("Immediate"));
}

pub(super) fn validate_class(class: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    match text(class, "provisioner") {
        "" => errors.push(FieldError::required("provisioner", "")),
        name => {
            let lower = name.to_lowercase();
            let why = label_key_errors(&lower).into_iter();
            errors.extend(why.map(|why| FieldError::invalid("provisioner", lower.as_str(), why)));
        }
    }
    errors.extend(parameter_errors(&class["parameters"]));
    let policy = text(class, "reclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported("reclaimPolicy", policy, &RECLAIM_POLICIES));
    }
    let mode = text(class, "volumeBindingMode");
    if !BINDING_MODES.contains(&mode) {
        errors.push(FieldError::not_supported("volumeBindingMode", mode, &BINDING_MODES));
    }
    errors.extend(topology_errors(&class["allowedTopologies"]));
    errors
}

fn parameter_errors(parameters: &Value) -> Vec<FieldError> {
    let pairs = parameters.as_object().cloned().unwrap_or_default();
    if pairs.len() > PARAMETERS_MAX {
        return vec![FieldError::too_long("parameters", PARAMETERS_MAX as i64)];
    }
    let mut errors = Vec::new();
    if pairs.contains_key("") {
        errors.push(FieldError::invalid("parameters", "", "field can not be empty."));
    }
    let size: usize = pairs.iter().map(|(key, value)| key.len() + value.as_str().unwrap_or_default().len()).sum();
    if size > PARAMETERS_SIZE_MAX {
        errors.push(FieldError::too_long("parameters", PARAMETERS_SIZE_MAX as i64));
    }
    errors
}

fn topology_errors(terms: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut seen: Vec<Value> = Vec::new();
    for (index, term) in entries(terms) {
        let field = format!("allowedTopologies[{index}].matchLabelExpressions");
        let mut values = serde_json::Map::new();
        for (index, expression) in entries(&term["matchLabelExpressions"]) {
            let field = format!("{field}[{index}]");
            let mut set: Vec<&str> = Vec::new();
            if entries(&expression["values"]).next().is_none() {
                errors.push(FieldError::required(format!("{field}.values"), ""));
            }
            for (index, value) in entries(&expression["values"]) {
                let value = value.as_str().unwrap_or_default();
                if set.contains(&value) {
                    errors.push(FieldError::duplicate(format!("{field}.values[{index}]"), value));
                }
                set.push(value);
            }
            let key = text(expression, "key");
            let why = label_key_errors(key).into_iter();
            errors.extend(why.map(|why| FieldError::invalid(format!("{field}.key"), key, why)));
            set.sort_unstable();
            set.dedup();
            if values.insert(key.to_owned(), json!(set)).is_some() {
                errors.push(FieldError::duplicate(format!("{field}.key"), key));
            }
        }
        let values = Value::Object(values);
        errors.extend(seen.iter().filter(|other| **other == values).map(|_| FieldError::duplicate(&*field, "")));
        seen.push(values);
    }
    errors
}

pub(super) fn validate_class_update(class: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_class(class);
    let fields = ["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"];
    errors.extend(hidden_changes(class, old, &fields));
    errors
}

pub(super) fn set_driver_defaults(driver: &mut Value) {
    default_field(driver, "spec", json!({}));
    let spec = &mut driver["spec"];
    for (field, value) in [
        ("attachRequired", json!(true)),
        ("podInfoOnMount", json!(false)),
        ("storageCapacity", json!(false)),
        ("fsGroupPolicy", json!("ReadWriteOnceWithFSType")),
        ("volumeLifecycleModes", json!(["Persistent"])),
        ("requiresRepublish", json!(false)),
        ("seLinuxMount", json!(false)),
        ("preventPodSchedulingIfMissing", json!(false)),
    ] {
        default_field(spec, field, value);
    }
}

/// A change of the specification increments the generation, which a new driver does not have.
pub(super) fn prepare_driver_for_update(driver: &mut Value, old: &Value) {
    if driver["spec"] != old["spec"] {
        increment_generation(driver);
    }
}

pub(super) fn validate_driver(driver: &Value) -> Vec<FieldError> {
    let spec = &driver["spec"];
    let mut errors = Vec::new();
    let policy = text(spec, "fsGroupPolicy");
    if !GROUP_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported("spec.fsGroupPolicy", policy, &GROUP_POLICIES));
    }
    let mut audiences = Vec::new();
    for (index, request) in entries(&spec["tokenRequests"]) {
        let field = format!("spec.tokenRequests[{index}]");
        let audience = text(request, "audience");
        if audiences.contains(&audience) {
            errors.push(FieldError::duplicate(format!("{field}.audience"), audience));
            continue;
        }
        audiences.push(audience);
        let seconds = request["expirationSeconds"].as_i64();
        let field = format!("{field}.expirationSeconds");
        if let Some(seconds) = seconds.filter(|seconds| *seconds < TOKEN_SECONDS_MIN) {
            errors.push(FieldError::invalid(&*field, seconds, "may not specify a duration less than 10 minutes"));
        }
        if let Some(seconds) = seconds.filter(|seconds| *seconds > 1 << 32) {
            errors.push(FieldError::invalid(&*field, seconds, "may not specify a duration larger than 2^32 seconds"));
        }
    }
    for (_, mode) in entries(&spec["volumeLifecycleModes"]) {
        let mode = mode.as_str().unwrap_or_default();
        if !LIFECYCLES.contains(&mode) {
            errors.push(FieldError::not_supported("spec.volumeLifecycleModes", mode, &LIFECYCLES));
        }
    }
    if let Some(seconds) = spec["nodeAllocatableUpdatePeriodSeconds"].as_i64().filter(|seconds| *seconds < 10) {
        let detail = "must be greater than or equal to 10 seconds";
        errors.push(FieldError::invalid("spec.nodeAllocatableUpdatePeriodSeconds", seconds, detail));
    }
    let in_secrets = &spec["serviceAccountTokenInSecrets"];
    if !in_secrets.is_null() && audiences.is_empty() {
        let detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.push(FieldError::invalid("spec.serviceAccountTokenInSecrets", in_secrets.clone(), detail));
    }
    errors
}

pub(super) fn validate_driver_update(driver: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_driver(driver);
    let (spec, was) = (&driver["spec"], &old["spec"]);
    if spec["attachRequired"] != was["attachRequired"] {
        // kube-apiserver misspells the field.
        errors.push(FieldError::invalid("spec.attachedRequired", spec["attachRequired"].clone(), IMMUTABLE));
    }
    errors.extend(changed_errors(spec, was, "spec.", &["volumeLifecycleModes"]));
    errors
}

/// The status, which is always present, is disabled by default in kube-apiserver.
pub(super) fn set_node_defaults(node: &mut Value) {
    default_field(node, "spec", json!({}));
    default_field(&mut node["spec"], "drivers", Value::Null);
    for driver in node["spec"]["drivers"].as_array_mut().into_iter().flatten() {
        default_field(driver, "topologyKeys", Value::Null);
    }
    node["status"] = json!({});
}

pub(super) fn validate_node(node: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut names = Vec::new();
    for (index, driver) in entries(&node["spec"]["drivers"]) {
        let path = format!("spec.drivers[{index}]");
        let at = |field: &str| format!("{path}.{field}");
        let (name, id) = (text(driver, "name"), text(driver, "nodeID"));
        errors.extend(driver_name_errors(name, &at("name")));
        if id.is_empty() {
            errors.push(FieldError::required(at("nodeID"), ""));
        }
        if id.len() > NODE_ID_MAX {
            let detail = format!("must be {NODE_ID_MAX} characters or less");
            errors.push(FieldError::invalid(at("nodeID"), id, detail));
        }
        if let Some(count) = driver["allocatable"]["count"].as_i64().filter(|count| *count < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(at("allocatable.count"), count, detail));
        }
        if names.contains(&name) {
            errors.push(FieldError::duplicate(at("name"), name));
        }
        names.push(name);
        let mut keys = Vec::new();
        for (_, key) in entries(&driver["topologyKeys"]) {
            let key = key.as_str().unwrap_or_default();
            if key.is_empty() {
                errors.push(FieldError::required(&*path, ""));
            }
            if keys.contains(&key) {
                errors.push(FieldError::duplicate(&*path, key));
            }
            keys.push(key);
            errors.extend(label_key_errors(key).into_iter().map(|why| FieldError::invalid(&*path, key, why)));
        }
    }
    errors
}

/// Of a driver that stays only the limit may change.
pub(super) fn validate_node_update(node: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_node(node);
    let without_limit = |driver: &Value| {
        let mut driver = driver.clone();
        driver.as_object_mut().map(|fields| fields.remove("allocatable"));
        driver
    };
    for (_, was) in entries(&old["spec"]["drivers"]) {
        let same = entries(&node["spec"]["drivers"]).filter(|(_, driver)| driver["name"] == was["name"]);
        let changed = same.map(|(_, driver)| without_limit(driver)).filter(|driver| *driver != without_limit(was));
        errors.extend(changed.map(|driver| FieldError::invalid("spec.drivers", driver, IMMUTABLE)));
    }
    errors
}

/// Quantities outside of resource lists are stored in their canonical form, too.
pub(super) fn decode_capacity(mut value: Value) -> Result<Value, DecodeError> {
    for field in ["capacity", "maximumVolumeSize"] {
        quantities::canonicalize_field(&mut value, field)?;
    }
    decode_as::<k8s_openapi::api::storage::v1::CSIStorageCapacity>(value)
}

pub(super) fn validate_capacity(capacity: &Value) -> Vec<FieldError> {
    let mut errors = label_selector::validate(&capacity["nodeTopology"], "nodeTopology");
    let class = text(capacity, "storageClassName");
    if class.is_empty() {
        let why = super::NameRule::Subdomain.errors(class, false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid("storageClassName", class, why)));
    }
    errors.extend(class_name_errors(class, "storageClassName"));
    let amount = &capacity["capacity"];
    if quantity(amount).is_some_and(|amount| amount.nanos() < 0) {
        errors.push(FieldError::invalid("capacity", amount.clone(), "must be greater than or equal to 0"));
    }
    errors
}

pub(super) fn validate_capacity_update(capacity: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_capacity(capacity);
    errors.extend(changed_errors(capacity, old, "", &["nodeTopology", "storageClassName"]));
    errors
}

pub(super) fn prepare_attachment_for_create(attachment: &mut Value) {
    attachment["status"] = json!({"attached": false});
}

pub(super) fn set_attachment_defaults(attachment: &mut Value) {
    default_field(attachment, "status", json!({"attached": false}));
}

pub(super) fn validate_attachment(attachment: &Value) -> Vec<FieldError> {
    let spec = &attachment["spec"];
    let mut errors = Vec::new();
    let source = &spec["source"];
    let exactly_one = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let volume = source["persistentVolumeName"].as_str();
    match (volume, source["inlineVolumeSpec"].is_object()) {
        (None, false) => errors.push(FieldError::required("spec.source", exactly_one)),
        (Some(_), true) => errors.push(FieldError::forbidden("spec.source", exactly_one)),
        (Some(""), false) => {
            let detail = "must specify non empty persistentVolumeName";
            errors.push(FieldError::required("spec.source.persistentVolumeName", detail));
        }
        _ => {}
    }
    let names = [("spec.nodeName", Some(text(spec, "nodeName"))), ("spec.source.persistentVolumeName", volume)];
    for (field, name) in names.into_iter().filter_map(|(field, name)| Some((field, name?))) {
        let why = super::NameRule::Subdomain.errors(name, false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(field, name, why)));
    }
    errors.extend(driver_name_errors(text(spec, "attacher"), "spec.attacher"));
    errors
}

pub(super) fn validate_attachment_update(attachment: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_attachment(attachment);
    errors.extend(hidden_changes(attachment, old, &["spec"]));
    errors
}

/// A status update changes nothing but the status.
pub(super) fn prepare_for_status_update(object: &mut Value, old: &Value) {
    copy_field(object, "spec", old);
    super::metadata::restore_for_status_update(object, old);
}
