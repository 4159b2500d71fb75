//! PersistentVolumes: defaults, the source and node affinity, and what cannot change.
//!
//! Sources are validated if they are local or of the drivers that the scheduler knows; of others only their number.

use muster_api::quantity::Quantity;
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::default_field;
use super::names::NameRule;
use super::persistent_volume_claim::{CLASS_ANNOTATION, CLASS_ANNOTATION_DEPRECATED};
use super::pod_placement::{node_label_warnings, node_selector_errors};

pub(super) const ACCESS_MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
pub(super) const VOLUME_MODES: [&str; 2] = ["Block", "Filesystem"];
const RECLAIM_POLICIES: [&str; 3] = ["Delete", "Recycle", "Retain"];
const IMMUTABLE: &str = "field is immutable";
const MOUNT_OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
const DRIVER_NAME_MAX: usize = 63;
const PARTITION: &str = "must be between 1 and 255, inclusive";

/// The sources, in the order in which kube-apiserver validates them, and the names under which it reports them.
const SOURCES: [(&str, &str); 21] = [
    ("hostPath", "hostPath"),
    ("gcePersistentDisk", "persistentDisk"),
    ("awsElasticBlockStore", "awsElasticBlockStore"),
    ("glusterfs", "glusterfs"),
    ("flocker", "flocker"),
    ("nfs", "nfs"),
    ("rbd", "rbd"),
    ("quobyte", "quobyte"),
    ("cephfs", "cephfs"),
    ("iscsi", "iscsi"),
    ("cinder", "cinder"),
    ("fc", "fc"),
    ("azureFile", "azureFile"),
    ("vsphereVolume", "vsphereVolume"),
    ("photonPersistentDisk", "photonPersistentDisk"),
    ("portworxVolume", "portworxVolume"),
    ("azureDisk", "azureDisk"),
    ("scaleIO", "scaleIO"),
    ("local", "local"),
    ("storageos", "storageos"),
    ("csi", "csi"),
];
/// Sources that do nothing any more, in the order of kube-apiserver's warnings.
const DEPRECATED_SOURCES: [(&str, &str); 6] = [
    ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    ("storageos", "deprecated in v1.22, non-functional in v1.25+"),
    ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
];
/// The sources that support the annotation for mount options.
const MOUNTED_WITH_OPTIONS: [&str; 13] = [
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "nfs",
    "rbd",
    "quobyte",
    "iscsi",
    "cinder",
    "cephfs",
    "azureFile",
    "vsphereVolume",
    "azureDisk",
    "photonPersistentDisk",
];
/// Node labels whose old keys may be replaced in a node affinity.
const RENAMED_LABELS: [(&str, &str); 5] = [
    ("failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"),
    ("failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"),
    ("beta.kubernetes.io/os", "kubernetes.io/os"),
    ("beta.kubernetes.io/arch", "kubernetes.io/arch"),
    ("beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"),
];

/// The warnings about a valid volume.
pub(super) fn warnings(volume: &Value) -> Vec<String> {
    let (spec, annotations) = (&volume["spec"], &volume["metadata"]["annotations"]);
    let mut warnings = Vec::new();
    for (key, why) in [
        (CLASS_ANNOTATION, CLASS_ANNOTATION_DEPRECATED),
        (MOUNT_OPTIONS, "deprecated since v1.31; use \"mountOptions\" attribute instead"),
    ] {
        if !annotations[key].is_null() {
            warnings.push(format!("metadata.annotations[{key}]: {why}"));
        }
    }
    if spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let why = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.";
        warnings.push(format!("spec.persistentVolumeReclaimPolicy: {why}"));
    }
    let terms = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"];
    for (index, term) in terms.as_array().into_iter().flatten().enumerate() {
        let path = format!("spec.nodeAffinity.required.nodeSelectorTerms[{index}].matchExpressions");
        warnings.extend(node_label_warnings(&term["matchExpressions"], &path));
    }
    let deprecated = DEPRECATED_SOURCES.iter().filter(|(source, _)| spec[*source].is_object());
    warnings.extend(deprecated.map(|(source, why)| format!("spec.{source}: {why}")));
    warnings
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub(super) fn set_defaults(volume: &mut Value) {
    default_field(volume, "spec", json!({}));
    default_field(volume, "status", json!({}));
    default_field(&mut volume["status"], "phase", json!("Pending"));
    let spec = &mut volume["spec"];
    default_field(spec, "persistentVolumeReclaimPolicy", json!("Retain"));
    default_field(spec, "volumeMode", json!("Filesystem"));
    for (source, fields) in [
        ("hostPath", &[("type", json!(""))][..]),
        ("rbd", &[("pool", json!("rbd")), ("user", json!("admin")), ("keyring", json!("/etc/ceph/keyring"))]),
        ("iscsi", &[("iscsiInterface", json!("default"))]),
        (
            "azureDisk",
            &[
                ("cachingMode", json!("ReadWrite")),
                ("fsType", json!("ext4")),
                ("readOnly", json!(false)),
                ("kind", json!("Shared")),
            ],
        ),
        ("scaleIO", &[("storageMode", json!("ThinProvisioned")), ("fsType", json!("xfs"))]),
    ] {
        if spec[source].is_object() {
            for (field, value) in fields {
                default_field(&mut spec[source], field, value.clone());
            }
        }
    }
}

/// A new volume is pending since it was created.
pub(super) fn prepare_for_create(volume: &mut Value) {
    let now = volume["metadata"]["creationTimestamp"].clone();
    volume["status"] = json!({"phase": "Pending", "lastPhaseTransitionTime": now});
}

/// Sets the time of a phase that changed, unless the client did.
pub(crate) fn stamp_phase(volume: &mut Value, old: &Value, now: &str) {
    let (status, was) = (&volume["status"], &old["status"]);
    let (time, old_time) = (&status["lastPhaseTransitionTime"], &was["lastPhaseTransitionTime"]);
    let time = match (status["phase"] == was["phase"], time.is_null()) {
        (true, true) => old_time.clone(),
        (false, unset) if unset || time == old_time => json!(now),
        _ => return,
    };
    if !time.is_null() {
        volume["status"]["lastPhaseTransitionTime"] = time;
    }
}

pub(super) fn validate(volume: &Value) -> Vec<FieldError> {
    let mut errors = spec_errors(volume);
    errors.extend(mount_options_error(volume));
    errors
}

pub(super) fn validate_update(volume: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate(volume);
    let (spec, was) = (&volume["spec"], &old["spec"]);
    let changed: Vec<&str> = SOURCES
        .iter()
        .map(|(source, _)| *source)
        .chain(["flexVolume"])
        .filter(|source| without_new_expand_secret(&spec[*source], &was[*source]) != was[*source])
        .collect();
    if !changed.is_empty() {
        // kube-apiserver appends a diff; here the names of the changed fields are appended.
        let detail =
            format!("spec.persistentvolumesource is immutable after creation\nchanged: {}", changed.join(", "));
        errors.push(FieldError::forbidden("spec.persistentvolumesource", detail));
    }
    if spec["volumeMode"] != was["volumeMode"] {
        errors.push(FieldError::invalid("volumeMode", spec["volumeMode"].clone(), IMMUTABLE));
    }
    let affinity = &spec["nodeAffinity"];
    if was["nodeAffinity"].is_object() && !is_same_affinity(affinity, &was["nodeAffinity"]) {
        let detail = format!("{IMMUTABLE}, except for updating from beta label to GA");
        errors.push(FieldError::invalid("nodeAffinity", go_affinity(affinity), detail));
    }
    let class = "volumeAttributesClassName";
    if spec[class].is_null() && !was[class].is_null() {
        let detail = "update from non-nil value to nil is forbidden";
        errors.push(FieldError::forbidden(format!("spec.{class}"), detail));
    }
    errors
}

/// The secret for expansion may be set later.
fn without_new_expand_secret(source: &Value, was: &Value) -> Value {
    let mut source = source.clone();
    if was.is_object()
        && was["controllerExpandSecretRef"].is_null()
        && let Some(fields) = source.as_object_mut()
    {
        fields.remove("controllerExpandSecretRef");
    }
    source
}

/// A node affinity with the names of Go's fields, as kube-apiserver shows it here.
fn go_affinity(affinity: &Value) -> Value {
    let list = |value: &Value, of: fn(&Value) -> Value| -> Value {
        value.as_array().map_or(Value::Null, |list| list.iter().map(of).collect())
    };
    if affinity.is_null() {
        return Value::Null;
    }
    let terms = list(&affinity["required"]["nodeSelectorTerms"], |term| {
        let requirement =
            |one: &Value| json!({"Key": one["key"], "Operator": one["operator"], "Values": one["values"]});
        let of = |field: &str| -> Value {
            term[field].as_array().map_or(Value::Null, |list| list.iter().map(requirement).collect())
        };
        json!({"MatchExpressions": of("matchExpressions"), "MatchFields": of("matchFields")})
    });
    json!({"Required": {"NodeSelectorTerms": terms}})
}

/// Whether node affinities are equal, except for old label keys that were replaced.
fn is_same_affinity(affinity: &Value, was: &Value) -> bool {
    match (affinity, was) {
        (Value::Object(fields), Value::Object(old)) => {
            fields.len() == old.len()
                && fields.iter().all(|(name, value)| {
                    old.get(name).is_some_and(|was| {
                        let renamed = || RENAMED_LABELS.iter().any(|(old, new)| was == old && value == new);
                        (name == "key" && renamed()) || is_same_affinity(value, was)
                    })
                })
        }
        (Value::Array(items), Value::Array(old)) => {
            items.len() == old.len() && items.iter().zip(old).all(|(item, old)| is_same_affinity(item, old))
        }
        _ => affinity == was,
    }
}

fn spec_errors(volume: &Value) -> Vec<FieldError> {
    let spec = &volume["spec"];
    let mut errors = Vec::new();
    if !has_entries(&spec["accessModes"]) {
        errors.push(FieldError::required("spec.accessModes", ""));
    }
    errors.extend(access_mode_errors(spec));
    errors.extend(capacity_errors(&spec["capacity"]));
    let policy = text(spec, "persistentVolumeReclaimPolicy");
    if !policy.is_empty() && !RECLAIM_POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported("spec.persistentVolumeReclaimPolicy", policy, &RECLAIM_POLICIES));
    }
    let affinity = &spec["nodeAffinity"];
    if affinity.is_object() {
        let field = "spec.nodeAffinity.required";
        if affinity["required"].is_object() {
            errors.extend(node_selector_errors(&affinity["required"], field));
        } else {
            errors.push(FieldError::required(field, "must specify required node constraints"));
        }
    }
    errors.extend(source_errors(volume));
    let class = text(spec, "storageClassName");
    errors.extend(class_name_errors(class, "spec.storageClassName"));
    let mode = text(spec, "volumeMode");
    if !VOLUME_MODES.contains(&mode) {
        errors.push(FieldError::not_supported("spec.volumeMode", mode, &VOLUME_MODES));
    }
    let field = "spec.volumeAttributesClassName";
    if let Some(class) = spec["volumeAttributesClassName"].as_str() {
        if class.is_empty() {
            errors.push(FieldError::required(field, "an empty string is disallowed"));
        }
        errors.extend(class_name_errors(class, field));
        if spec["csi"].is_null() {
            errors.push(FieldError::required("spec.csi", "has to be specified when using volumeAttributesClassName"));
        }
    }
    errors
}

pub(super) fn has_entries(list: &Value) -> bool {
    list.as_array().is_some_and(|list| !list.is_empty())
}

/// The errors of a class name; an empty one is valid.
pub(super) fn class_name_errors(name: &str, field: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return Vec::new();
    }
    NameRule::Subdomain.errors(name, false).into_iter().map(|why| FieldError::invalid(field, name, why)).collect()
}

/// The errors of the access modes of a volume or claim.
pub(super) fn access_mode_errors(spec: &Value) -> Vec<FieldError> {
    let field = "spec.accessModes";
    let modes: Vec<&str> = spec["accessModes"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let unknown = modes.iter().filter(|mode| !ACCESS_MODES.contains(mode));
    let mut errors: Vec<_> = unknown.map(|mode| FieldError::not_supported(field, *mode, &ACCESS_MODES)).collect();
    let is_shared = |mode: &&str| *mode != "ReadWriteOncePod" && ACCESS_MODES.contains(mode);
    if modes.contains(&"ReadWriteOncePod") && modes.iter().any(is_shared) {
        errors.push(FieldError::forbidden(field, "may not use ReadWriteOncePod with other access modes"));
    }
    errors
}

/// Reads a quantity.
pub(crate) fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| text.parse().ok())
}

pub(super) fn not_positive_error(amount: &Value, field: &str) -> Option<FieldError> {
    let positive = quantity(amount).is_some_and(|amount| amount.nanos() > 0);
    (!positive).then(|| FieldError::invalid(field, amount.clone(), "must be greater than zero"))
}

fn capacity_errors(capacity: &Value) -> Vec<FieldError> {
    let field = "spec.capacity";
    let mut errors = Vec::new();
    let amounts = capacity.as_object().cloned().unwrap_or_default();
    if amounts.is_empty() {
        errors.push(FieldError::required(field, ""));
    }
    if amounts.len() > 1 || !amounts.contains_key("storage") {
        errors.push(FieldError::not_supported(field, capacity.clone(), &["storage"]));
    }
    for (name, amount) in &amounts {
        let field = format!("{field}[{name}]");
        let Some(given) = quantity(amount) else { continue };
        // In whole units, rounded up.
        let units = given.nanos().div_euclid(1_000_000_000) + i128::from(given.nanos().rem_euclid(1_000_000_000) > 0);
        if units < 0 {
            let units = i64::try_from(units).unwrap_or(i64::MIN);
            errors.push(FieldError::invalid(&*field, units, "must be a valid resource quantity"));
        }
        errors.extend(not_positive_error(amount, &field));
    }
    errors
}

fn source_errors(volume: &Value) -> Vec<FieldError> {
    let spec = &volume["spec"];
    let mut errors = Vec::new();
    let mut count = 0;
    for (source, reported) in SOURCES {
        let one = &spec[source];
        // It is the only one that is not compared with those before it.
        if source == "azureFile" && spec["flexVolume"].is_object() {
            count += 1;
        }
        if !one.is_object() {
            continue;
        }
        if count > 0 {
            let field = if source == "cephfs" { "cephFS" } else { source };
            errors.push(FieldError::forbidden(format!("spec.{field}"), "may not specify more than 1 volume type"));
            continue;
        }
        count += 1;
        errors.extend(one_source_errors(source, one, &format!("spec.{reported}")));
        if source == "local" && !spec["nodeAffinity"].is_object() {
            errors.push(FieldError::required("spec.nodeAffinity", "Local volume requires node affinity"));
        }
    }
    if count == 0 {
        errors.push(FieldError::required("spec", "must specify a volume type"));
    }
    if spec["hostPath"]["path"] == "/" && spec["persistentVolumeReclaimPolicy"] == "Recycle" {
        let detail = "may not be 'recycle' for a hostPath mount of '/'";
        errors.push(FieldError::forbidden("spec.persistentVolumeReclaimPolicy", detail));
    }
    errors
}

fn one_source_errors(source: &str, one: &Value, path: &str) -> Vec<FieldError> {
    let at = |field: &str| format!("{path}.{field}");
    let missing = |fields: &[&str]| -> Vec<FieldError> {
        let missing = fields.iter().filter(|field| match &one[**field] {
            Value::Array(list) => list.is_empty(),
            value => value.as_str().unwrap_or_default().is_empty(),
        });
        missing.map(|field| FieldError::required(at(field), "")).collect()
    };
    let partition = || {
        let number = one["partition"].as_i64().filter(|number| !(0..=255).contains(number));
        number.map(|number| FieldError::invalid(at("partition"), number, PARTITION))
    };
    match source {
        "hostPath" | "local" => {
            let mut errors = missing(&["path"]);
            let written = text(one, "path");
            if written.split('/').any(|step| step == "..") {
                errors.push(FieldError::invalid(at("path"), written, "must not contain '..'"));
            }
            errors
        }
        "nfs" => {
            let mut errors = missing(&["server", "path"]);
            if !text(one, "path").starts_with('/') {
                errors.push(FieldError::invalid(at("path"), text(one, "path"), "must be an absolute path"));
            }
            errors
        }
        "gcePersistentDisk" => missing(&["pdName"]).into_iter().chain(partition()).collect(),
        "awsElasticBlockStore" => missing(&["volumeID"]).into_iter().chain(partition()).collect(),
        "cinder" => missing(&["volumeID"]),
        "rbd" => missing(&["monitors", "image"]),
        "iscsi" => missing(&["targetPortal", "iqn"]),
        "csi" => {
            let mut errors = driver_name_errors(text(one, "driver"), &at("driver"));
            errors.extend(missing(&["volumeHandle"]));
            errors
        }
        _ => Vec::new(),
    }
}

/// The errors of the name of a CSI driver.
pub(super) fn driver_name_errors(name: &str, field: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(field, "")];
    }
    let mut errors = Vec::new();
    if name.len() > DRIVER_NAME_MAX {
        errors.push(FieldError::too_long(field, DRIVER_NAME_MAX as i64));
    }
    let why = NameRule::Subdomain.errors(&name.to_lowercase(), false).into_iter();
    errors.extend(why.map(|why| FieldError::invalid(field, name, why)));
    errors
}

fn mount_options_error(volume: &Value) -> Option<FieldError> {
    let supports = MOUNTED_WITH_OPTIONS.iter().any(|source| volume["spec"][*source].is_object());
    let has_options = !volume["metadata"]["annotations"][MOUNT_OPTIONS].is_null();
    (has_options && !supports).then(|| {
        let field = format!("metadata.annotations.{MOUNT_OPTIONS}");
        FieldError::forbidden(field, "may not specify mount options for this volume type")
    })
}
