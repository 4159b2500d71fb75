//! The permissions of Muster's service account: each rule is here with its reason, and nothing that is not used.

use serde_json::{Value, json};

use super::{NAME, Options, Version, admission, labels, metadata};

const READ: &[&str] = &["list", "watch"];

/// The cluster-wide permissions of Muster. `docs/operations.md` gives the reasons.
fn cluster_rules(options: &Options) -> Vec<Value> {
    let rule = |group: &str, resources: &[&str], verbs: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
    let mut rules = vec![
        // Only annotations are patched: the reference of a pod that the webhook did not see.
        rule("", &["pods"], &["get", "list", "watch", "delete", "patch"]),
        rule("", &["pods/binding", "pods/eviction"], &["create"]),
        rule("", &["pods/status"], &["patch"]),
        rule("", &["namespaces", "nodes"], READ),
        // Volumes are reserved, and nodes selected for which they are provisioned; read again if it is not known
        // whether
        // a write has taken effect.
        rule("", &["persistentvolumeclaims", "persistentvolumes"], &["get", "list", "watch", "patch"]),
        rule(
            "storage.k8s.io",
            &["csidrivers", "csinodes", "csistoragecapacities", "storageclasses", "volumeattachments"],
            READ,
        ),
        rule("", &["replicationcontrollers", "services"], READ),
        rule("apps", &["controllerrevisions", "replicasets", "statefulsets"], READ),
        // Owners whose pods become gangs; also where they are not served.
        rule("batch", &["jobs"], READ),
        rule("jobset.x-k8s.io", &["jobsets"], READ),
        rule("leaderworkerset.x-k8s.io", &["leaderworkersets"], READ),
        // One condition says why their gangs wait.
        rule("batch", &["jobs/status"], &["patch"]),
        rule("jobset.x-k8s.io", &["jobsets/status"], &["patch"]),
        rule("leaderworkerset.x-k8s.io", &["leaderworkersets/status"], &["patch"]),
        rule("policy", &["poddisruptionbudgets"], READ),
        // Also where they are not served: without permission the answer is 403, which does not show that they are not
        // served.
        rule("scheduling.k8s.io", &["compositepodgroups", "podgroups", "priorityclasses", "workloads"], READ),
        rule("muster.dev", &["podgroups"], &["list", "watch", "create", "patch", "delete"]),
        rule("muster.dev", &["workloads"], &["list", "watch", "create", "patch", "delete"]),
        rule("muster.dev", &["podgroups/status", "workloads/status"], &["patch"]),
        rule("scheduling.x-k8s.io", &["podgroups"], READ),
        rule("scheduling.x-k8s.io", &["podgroups/status"], &["patch"]),
        rule("scheduling.volcano.sh", &["podgroups"], READ),
        rule("events.k8s.io", &["events"], &["create", "patch"]),
    ];
    if !options.without_volcano {
        // It has no status subresource: writing the status means writing the object.
        rules.push(rule("scheduling.volcano.sh", &["podgroups"], &["patch"]));
    }
    if options.creates_certificate() {
        rules.push(json!({
            "apiGroups": ["admissionregistration.k8s.io"], "resources": ["mutatingwebhookconfigurations"],
            "resourceNames": [NAME], "verbs": ["get", "update"],
        }));
    }
    let has_pod_groups = options.kubernetes_version != Version::V1_35;
    if has_pod_groups {
        rules.push(rule("scheduling.k8s.io", &["compositepodgroups/status", "podgroups/status"], &["patch"]));
    }
    if options.native_gangs {
        rules.push(rule("scheduling.k8s.io", &["workloads"], &["create", "patch", "delete"]));
    }
    if options.native_gangs && has_pod_groups {
        rules.push(rule("scheduling.k8s.io", &["podgroups"], &["create", "patch", "delete"]));
    }
    if options.secure_metrics {
        rules.push(rule("authentication.k8s.io", &["tokenreviews"], &["create"]));
        rules.push(rule("authorization.k8s.io", &["subjectaccessreviews"], &["create"]));
    }
    rules
}

pub(super) fn cluster_role(options: &Options) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": NAME, "labels": labels()},
        "rules": cluster_rules(options),
    })
}

pub(super) fn cluster_role_binding(options: &Options) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": NAME, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": options.namespace}],
    })
}

/// The lease and the webhook's certificate: create cannot be restricted by name.
pub(super) fn role(options: &Options) -> Value {
    let mut rules = vec![
        json!({
            "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
            "resourceNames": [NAME], "verbs": ["get", "update"],
        }),
        json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]}),
    ];
    if options.creates_certificate() {
        rules.push(json!({
            "apiGroups": [""], "resources": ["secrets"],
            "resourceNames": [admission::SERVICE], "verbs": ["get", "update"],
        }));
        rules.push(json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]}));
    }
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": metadata(options),
        "rules": rules,
    })
}

pub(super) fn role_binding(options: &Options) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": metadata(options),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": options.namespace}],
    })
}
