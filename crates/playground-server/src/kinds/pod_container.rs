//! Validates the containers and volumes of a pod.
//!
//! Probes, lifecycle hooks, environment and security contexts are not validated.

use std::collections::BTreeSet;

use muster_playground_schema::FieldError;
use serde_json::Value;

use super::names::NameRule;
use super::pod_resources;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];
const MESSAGE_POLICIES: [&str; 2] = ["File", "FallbackToLogsOnError"];
/// The volume sources, in the order in which kube-apiserver validates them.
const VOLUME_SOURCES: [&str; 29] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
];

fn entries(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The errors of volumes and containers. In a pod host ports have been defaulted, in a template not yet.
pub(super) fn validate(spec: &Value, path: &str, in_pod: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let volumes = validate_volumes(&spec["volumes"], &format!("{path}.volumes"), &mut errors);
    let field = format!("{path}.containers");
    if entries(&spec["containers"]).next().is_none() {
        errors.push(FieldError::required(&*field, ""));
    }
    let mut names = BTreeSet::new();
    for (index, container) in entries(&spec["containers"]) {
        errors.extend(container_errors(container, &format!("{field}[{index}]"), &volumes, &mut names));
    }
    errors.extend(host_port_conflicts(&spec["containers"], &field));
    for (index, container) in entries(&spec["initContainers"]) {
        let field = format!("{path}.initContainers[{index}]");
        errors.extend(container_errors(container, &field, &volumes, &mut names));
    }
    if spec["hostNetwork"] == true {
        errors.extend(host_network_errors(&spec["containers"], &field, in_pod));
    }
    errors
}

/// The names of the valid volumes.
fn validate_volumes<'a>(volumes: &'a Value, path: &str, errors: &mut Vec<FieldError>) -> BTreeSet<&'a str> {
    let mut names = BTreeSet::new();
    for (index, volume) in entries(volumes) {
        let path = format!("{path}[{index}]");
        let mut sources = VOLUME_SOURCES.iter().filter(|source| !volume[**source].is_null());
        let mut found = Vec::new();
        if sources.next().is_none() {
            found.push(FieldError::required(&*path, "must specify a volume type"));
        }
        found.extend(sources.map(|source| {
            FieldError::forbidden(format!("{path}.{source}"), "may not specify more than 1 volume type")
        }));
        let name = text(volume, "name");
        found.extend(label_name_errors(name, &format!("{path}.name")));
        if names.contains(name) {
            found.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        if found.is_empty() {
            names.insert(name);
        }
        errors.extend(found);
    }
    names
}

fn label_name_errors(name: &str, field: &str) -> Vec<FieldError> {
    if name.is_empty() {
        return vec![FieldError::required(field, "")];
    }
    NameRule::Label.errors(name, false).into_iter().map(|why| FieldError::invalid(field, name, why)).collect()
}

fn container_errors<'a>(
    container: &'a Value,
    path: &str,
    volumes: &BTreeSet<&str>,
    names: &mut BTreeSet<&'a str>,
) -> Vec<FieldError> {
    let name = text(container, "name");
    let mut errors = label_name_errors(name, &format!("{path}.name"));
    if text(container, "image").is_empty() {
        errors.push(FieldError::required(format!("{path}.image"), ""));
    }
    errors.extend(choice_error(container, "terminationMessagePolicy", &MESSAGE_POLICIES, path));
    for (index, port) in entries(&container["ports"]) {
        errors.extend(port_errors(port, &format!("{path}.ports[{index}]")));
    }
    let mut mounted = BTreeSet::new();
    for (index, mount) in entries(&container["volumeMounts"]) {
        errors.extend(mount_errors(mount, &format!("{path}.volumeMounts[{index}]"), volumes, &mut mounted));
    }
    errors.extend(choice_error(container, "imagePullPolicy", &PULL_POLICIES, path));
    errors.extend(pod_resources::validate(&container["resources"], &format!("{path}.resources")));
    if !names.insert(name) {
        errors.push(FieldError::duplicate(format!("{path}.name"), name));
    }
    errors
}

/// The error of a field that must have one of a few values.
fn choice_error(object: &Value, field: &str, known: &[&str], path: &str) -> Option<FieldError> {
    match text(object, field) {
        "" => Some(FieldError::required(format!("{path}.{field}"), "")),
        value if known.contains(&value) => None,
        value => Some(FieldError::not_supported(format!("{path}.{field}"), value, known)),
    }
}

fn port_errors(port: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let name = text(port, "name");
    if !name.is_empty() {
        let why = port_name_errors(name).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{path}.name"), name, why)));
    }
    if port["containerPort"].as_i64().unwrap_or_default() == 0 {
        errors.push(FieldError::required(format!("{path}.containerPort"), ""));
    }
    for field in ["containerPort", "hostPort"] {
        let number = port[field].as_i64().unwrap_or_default();
        if number != 0 && !(1..=65_535).contains(&number) {
            let detail = "must be between 1 and 65535, inclusive";
            errors.push(FieldError::invalid(format!("{path}.{field}"), number, detail));
        }
    }
    errors.extend(choice_error(port, "protocol", &PROTOCOLS, path));
    errors
}

fn port_name_errors(name: &str) -> Vec<String> {
    let mut why = Vec::new();
    if name.len() > 15 {
        why.push("must be no more than 15 characters".to_owned());
    }
    if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-') {
        why.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".to_owned());
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        why.push("must contain at least one letter (a-z)".to_owned());
    }
    if name.contains("--") {
        why.push("must not contain consecutive hyphens".to_owned());
    }
    if name.starts_with('-') || name.ends_with('-') {
        why.push("must not begin or end with a hyphen".to_owned());
    }
    why
}

fn mount_errors<'a>(
    mount: &'a Value,
    path: &str,
    volumes: &BTreeSet<&str>,
    mounted: &mut BTreeSet<&'a str>,
) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (name, place) = (text(mount, "name"), text(mount, "mountPath"));
    if name.is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    if !volumes.contains(name) {
        errors.push(FieldError::not_found(format!("{path}.name"), name));
    }
    if place.is_empty() {
        errors.push(FieldError::required(format!("{path}.mountPath"), ""));
    }
    if !mounted.insert(place) {
        errors.push(FieldError::invalid(format!("{path}.mountPath"), place, "must be unique"));
    }
    errors
}

/// No two containers may use the same host port.
fn host_port_conflicts(containers: &Value, path: &str) -> Vec<FieldError> {
    let mut taken = BTreeSet::new();
    let mut errors = Vec::new();
    for (index, container) in entries(containers) {
        for (number, port) in entries(&container["ports"]) {
            let host = port["hostPort"].as_i64().unwrap_or_default();
            let place = format!("{}/{}/{host}", text(port, "protocol"), text(port, "hostIP"));
            if host != 0 && !taken.insert(place.clone()) {
                errors.push(FieldError::duplicate(format!("{path}[{index}].ports[{number}].hostPort"), place));
            }
        }
    }
    errors
}

/// With `hostNetwork`, a container port must equal its host port.
fn host_network_errors(containers: &Value, path: &str, in_pod: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, container) in entries(containers) {
        for (number, port) in entries(&container["ports"]) {
            let host = port["hostPort"].as_i64().unwrap_or_default();
            if (in_pod || host != 0) && host != port["containerPort"].as_i64().unwrap_or_default() {
                let field = format!("{path}[{index}].ports[{number}].hostPort");
                errors.push(FieldError::invalid(field, host, "must match `containerPort` when `hostNetwork` is true"));
            }
        }
    }
    errors
}
