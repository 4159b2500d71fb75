//! The Job template of the JobSet definition: the fields of a Job's spec that may be set.
//!
//! Of the pod template only the types of its fields are checked; it is validated when a Job is created from it. Its
//! scheduling directives may change while the set is suspended, nothing else of it. Must not depend on the rest of the
//! definition.

use serde_json::{Value, json};

use super::definition::same;

/// The fields of a pod's spec that never change, by type.
const FIXED_POD_FIELDS: [(&str, &[&str]); 5] = [
    ("object", &["affinity", "dnsConfig", "os", "overhead", "resources", "schedulingGroup", "securityContext"]),
    (
        "array",
        &[
            "containers",
            "hostAliases",
            "imagePullSecrets",
            "initContainers",
            "readinessGates",
            "resourceClaims",
            "topologySpreadConstraints",
            "volumes",
        ],
    ),
    (
        "string",
        &[
            "dnsPolicy",
            "hostname",
            "hostnameOverride",
            "nodeName",
            "preemptionPolicy",
            "priorityClassName",
            "runtimeClassName",
            "schedulerName",
            "serviceAccount",
            "serviceAccountName",
            "subdomain",
        ],
    ),
    (
        "boolean",
        &[
            "automountServiceAccountToken",
            "enableServiceLinks",
            "hostIPC",
            "hostNetwork",
            "hostPID",
            "hostUsers",
            "setHostnameAsFQDN",
            "shareProcessNamespace",
        ],
    ),
    ("integer", &["activeDeadlineSeconds", "priority", "terminationGracePeriodSeconds"]),
];

/// The parts of a pod template that may change while the set is suspended.
pub(super) const DIRECTIVES: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "spec.nodeSelector", "spec.schedulingGates", "spec.tolerations"];

fn count(description: &str) -> Value {
    json!({"type": "integer", "format": "int32", "minimum": 0, "description": description})
}

fn texts(description: &str) -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}, "description": description})
}

/// Metadata and spec of the Jobs.
pub(super) fn job() -> Value {
    let exclusive = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    json!({
        "type": "object", "required": ["spec"], "description": "The template of the Jobs.",
        "x-kubernetes-validations": [same("metadata")],
        "properties": {
            "metadata": {
                "type": "object",
                "properties": {"labels": texts("Labels of the Jobs."), "annotations": texts("Annotations of the Jobs.")},
                "x-kubernetes-validations": [{
                    "rule": format!("!has(self.annotations) || !('{exclusive}' in self.annotations)"),
                    "message": format!("annotation {exclusive}: exclusive placement is not supported"),
                }],
            },
            "spec": spec(),
        },
    })
}

/// The spec of a Job. Only the counts of an Indexed one may change, together: its Jobs are scaled in place.
fn spec() -> Value {
    let properties = properties();
    let names = properties.as_object().into_iter().flat_map(serde_json::Map::keys);
    let fixed = names.filter(|name| !["parallelism", "completions", "template"].contains(&name.as_str()));
    let mut rules: Vec<Value> = fixed.map(|name| same(name)).collect();
    let unchanged = |field: &str| {
        format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})")
    };
    let elastic = "self.completionMode == 'Indexed' && has(self.parallelism) && has(self.completions) && self.parallelism == self.completions && self.parallelism >= 1";
    rules.push(json!({
        "rule": format!("({} && {}) || ({elastic})", unchanged("parallelism"), unchanged("completions")),
        "message": "completions must be equal to parallelism for Elastic Indexed Jobs",
        "fieldPath": ".completions",
    }));
    json!({
        "type": "object", "required": ["template"], "description": "Like the spec of a Job.",
        "x-kubernetes-validations": rules,
        "properties": properties,
    })
}

fn properties() -> Value {
    json!({
            "parallelism": count("How many pods run at once."),
            "completions": count("How many pods must succeed."),
            "completionMode": {"type": "string", "enum": ["Indexed", "NonIndexed"], "default": "Indexed",
                "description": "Whether pods have an index."},
            "backoffLimit": count("How many pods may fail."),
            "backoffLimitPerIndex": count("How many pods of one index may fail."),
            "maxFailedIndexes": count("How many indexes may fail."),
            "activeDeadlineSeconds": {"type": "integer", "format": "int64", "minimum": 0,
                "description": "How long a Job may take."},
            "podReplacementPolicy": {"type": "string", "enum": ["TerminatingOrFailed", "Failed"],
                "description": "When a deleted pod is replaced."},
            "podFailurePolicy": any("Which failures of pods count, as in a Job."),
            "successPolicy": any("When a Job is complete, as in a Job."),
            "template": {
                "type": "object", "required": ["spec"], "description": "Like the pod template of a Job.",
                "properties": {
                    "metadata": {"type": "object", "properties": {
                        "labels": texts("Labels of the pods."), "annotations": texts("Annotations of the pods.")}},
                    "spec": pod_spec(),
                },
            },
    })
}

fn pod_spec() -> Value {
    let mut properties = json!({
        "restartPolicy": {"type": "string", "enum": ["OnFailure", "Never"], "default": "OnFailure",
            "description": "Whether containers are restarted."},
        "nodeSelector": texts("The labels that a node must have."),
        "tolerations": objects("The taints that are tolerated."),
        "schedulingGates": objects("What has to be removed before pods are scheduled."),
    });
    for (kind, fields) in FIXED_POD_FIELDS {
        let schema = match kind {
            "object" => any("As in a pod."),
            "array" => objects("As in a pod."),
            _ => json!({"type": kind, "description": "As in a pod."}),
        };
        for field in fields {
            properties[*field] = schema.clone();
        }
    }
    let fixed = FIXED_POD_FIELDS.iter().flat_map(|(_, fields)| *fields).chain([&"restartPolicy"]);
    let rules: Vec<Value> = fixed.map(|field| same(field)).collect();
    json!({
        "type": "object", "x-kubernetes-preserve-unknown-fields": true,
        "description": "Like the spec of a pod; validated when a Job is created from it.",
        "properties": properties, "x-kubernetes-validations": rules,
    })
}

fn objects(description: &str) -> Value {
    json!({"type": "array", "description": description, "items": any("As in a pod.")})
}

/// A field that the Job's own validation checks.
fn any(description: &str) -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": description})
}
