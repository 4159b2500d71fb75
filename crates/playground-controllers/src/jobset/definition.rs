//! The playground's CustomResourceDefinition of JobSets: the fields that the controller implements, with the defaults
//! and checks of JobSet's webhook as far as a schema can express them.
//!
//! Invariant: a field that is not implemented is not here. The Job and pod templates are in `template`.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::object::{GROUP, VERSION};
use super::template;

/// The CustomResourceDefinition `jobsets.jobset.x-k8s.io`.
///
/// # Panics
///
/// Never: it is a constant.
pub fn definition() -> CustomResourceDefinition {
    let definition = json!({
        "metadata": {"name": format!("jobsets.{GROUP}")},
        "spec": {
            "group": GROUP, "scope": "Namespaced",
            "names": {"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"},
            "versions": [{
                "name": VERSION, "served": true, "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": columns(),
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "description": "JobSet is a group of Jobs that start, restart and end together.",
                    "required": ["spec"],
                    "properties": {
                        "apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"},
                        "spec": spec(), "status": status(),
                    },
                    "x-kubernetes-validations": [rule(
                        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
                        "the name must be a DNS label that begins with a letter: it is the prefix of the names of Jobs",
                    ), rule(
                        "self.spec.replicatedJobs.all(j, size(self.metadata.name) + size(j.name) + size(string(j.replicas)) + 2 <= 63)",
                        "the name is too long: names of Jobs would exceed 63 characters",
                    )],
                }},
            }],
        },
    });
    serde_json::from_value(definition).expect("the definition is a constant")
}

fn rule(rule: &str, message: &str) -> Value {
    json!({"rule": rule, "message": message})
}

/// The gang mode at one level: the field of the KEP for gang scheduling of JobSets.
fn gang_config(modes: &[&str], description: &str) -> Value {
    json!({
        "type": "object", "required": ["gangMode"], "description": description,
        "properties": {"gangMode": {"type": "string", "enum": modes, "description": "How pods form gangs."}},
    })
}

/// A field that may not be changed, set or removed.
pub(super) fn same(field: &str) -> Value {
    let condition =
        format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})");
    json!({"rule": condition, "message": "Value is immutable", "fieldPath": format!(".{field}")})
}

fn immutable() -> Value {
    rule("self == oldSelf", "Value is immutable")
}

fn columns() -> Value {
    let completed = ".status.conditions[?(@.type==\"Completed\")].status";
    json!([
        {"name": "TerminalState", "type": "string", "jsonPath": ".status.terminalState",
            "description": "Final state of JobSet"},
        {"name": "Restarts", "type": "string", "jsonPath": ".status.restarts", "description": "Number of restarts"},
        {"name": "Completed", "type": "string", "jsonPath": completed},
        {"name": "Suspended", "type": "string", "jsonPath": ".spec.suspend", "description": "JobSet suspended"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "Time this JobSet was created"},
    ])
}

fn spec() -> Value {
    json!({
        "type": "object",
        "description": "The desired state.",
        "required": ["replicatedJobs"],
        "properties": {
            "gangConfig": gang_config(&["Off", "Gang"], "Whether all pods of the set are one gang."),
            "replicatedJobs": replicated_jobs(),
            "network": network(),
            "successPolicy": success_policy(),
            "failurePolicy": failure_policy(),
            "startupPolicy": {
                "type": "object",
                "description": "The order in which replicated Jobs start.",
                "required": ["startupPolicyOrder"],
                "default": {"startupPolicyOrder": "AnyOrder"},
                "properties": {"startupPolicyOrder": {"type": "string", "enum": ["AnyOrder", "InOrder"],
                    "description": "InOrder starts a replicated Job when all Jobs before it are ready."}},
                "x-kubernetes-validations": [immutable()],
            },
            "suspend": {"type": "boolean", "description": "Suspends all Jobs while it is true."},
            "coordinator": coordinator(),
            "managedBy": {"type": "string", "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/.+$",
                "description": "The controller that manages the set, if it is not the JobSet controller.",
                "x-kubernetes-validations": [immutable()]},
            "ttlSecondsAfterFinished": {"type": "integer", "format": "int32", "minimum": 0,
                "description": "How long a finished set is kept; forever if absent."},
        },
        "x-kubernetes-validations": spec_rules(),
    })
}

/// Rules across fields of the spec.
fn spec_rules() -> Value {
    let among = |list: &str| format!("{list}.all(n, self.replicatedJobs.exists(j, j.name == n))");
    let successes = "self.successPolicy.targetReplicatedJobs";
    let targets = among("r.targetReplicatedJobs");
    let is_coordinator_job = "j.name == self.coordinator.replicatedJob";
    json!([
        same("gangConfig"),
        directives_change_only_while_suspended(),
        rule(
            "!has(self.gangConfig) || self.gangConfig.gangMode == 'Off' || self.replicatedJobs.all(j, !has(j.gangConfig) || j.gangConfig.gangMode == 'Off')",
            "gangConfig: a set that is one gang cannot have gangs in it"
        ),
        rule(
            "!(self.startupPolicy.startupPolicyOrder == 'InOrder' && self.replicatedJobs.exists(j, has(j.dependsOn)))",
            "StartupPolicy and DependsOn APIs are mutually exclusive"
        ),
        rule(
            "size(self.replicatedJobs) == 0 || !has(self.replicatedJobs[0].dependsOn)",
            "DependsOn can't be set for the first ReplicatedJob"
        ),
        rule(
            "self.replicatedJobs.all(j, !has(j.dependsOn) || j.dependsOn.all(d, self.replicatedJobs.map(o, o.name).indexOf(d.name) >= 0 && self.replicatedJobs.map(o, o.name).indexOf(d.name) < self.replicatedJobs.map(o, o.name).indexOf(j.name)))",
            "a replicated Job can only depend on those before it"
        ),
        rule(
            &format!("!has({successes}) || {}", among(successes)),
            "successPolicy.targetReplicatedJobs: each must be the name of a replicated Job"
        ),
        rule(
            &format!(
                "!has(self.failurePolicy) || !has(self.failurePolicy.rules) || self.failurePolicy.rules.all(r, !has(r.targetReplicatedJobs) || {targets})"
            ),
            "failurePolicy.rules: each of targetReplicatedJobs must be the name of a replicated Job"
        ),
        rule(
            &format!(
                "!has(self.coordinator) || self.replicatedJobs.exists(j, {is_coordinator_job} && self.coordinator.jobIndex < j.replicas)"
            ),
            "coordinator: there must be such a replicated Job, and such a Job of it"
        ),
        rule(
            &format!(
                "!has(self.coordinator) || self.replicatedJobs.all(j, !({is_coordinator_job}) || (j.template.spec.completionMode == 'Indexed' && has(j.template.spec.completions) && self.coordinator.podIndex < j.template.spec.completions))"
            ),
            "coordinator: its Job must be Indexed, with completions beyond podIndex"
        ),
    ])
}

/// Like the webhook of the real JobSet: while a set is suspended, or in the change that suspends or resumes it.
fn directives_change_only_while_suspended() -> Value {
    let is_suspended = |set: &str| format!("(has({set}.suspend) && {set}.suspend)");
    let is_same = |path: &&str| {
        let (part, field) = path.split_once('.').expect("a part and its field");
        let has = |job: &str| {
            let template = format!("{job}.template.spec.template");
            format!("has({template}.{part}) && has({template}.{part}.{field})")
        };
        let value = |job: &str| format!("{job}.template.spec.template.{path}");
        let (new, old) = (has("j"), has("o"));
        format!("({new}) == ({old}) && (!({new}) || {} == {})", value("j"), value("o"))
    };
    let same: Vec<String> = template::DIRECTIVES.iter().map(|path| format!("({})", is_same(path))).collect();
    let unchanged = format!(
        "self.replicatedJobs.all(j, !oldSelf.replicatedJobs.exists(o, o.name == j.name) || oldSelf.replicatedJobs.exists(o, o.name == j.name && {}))",
        same.join(" && ")
    );
    json!({
        "rule": format!("{} || {} || {unchanged}", is_suspended("self"), is_suspended("oldSelf")),
        "message": "pod templates: labels, annotations, nodeSelector, tolerations and schedulingGates can be changed only while the set is suspended",
        "fieldPath": ".replicatedJobs",
    })
}

fn name(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$",
        "description": description})
}

fn names(description: &str) -> Value {
    json!({"type": "array", "x-kubernetes-list-type": "atomic", "maxItems": 100, "items": {"type": "string"},
        "description": description})
}

fn replicated_jobs() -> Value {
    let dependency = json!({
        "type": "object", "required": ["name", "status"],
        "properties": {
            "name": {"type": "string", "description": "A replicated Job that precedes this one."},
            "status": {"type": "string", "enum": ["Ready", "Complete"], "description": "The status it must have reached."},
        },
    });
    let group = name("The group of replicated Jobs within which the Jobs are indexed.");
    let group = with(group, "default", json!("default"));
    let fixed = ["groupName", "replicas", "dependsOn", "gangConfig"].map(same);
    json!({
        "type": "array", "description": "The Jobs of the set.", "maxItems": 100,
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "x-kubernetes-validations": [rule(
            "self.size() == oldSelf.size() && self.all(j, oldSelf.exists(o, o.name == j.name))",
            "replicated Jobs cannot be added or removed",
        )],
        "items": {
            "type": "object", "required": ["name", "template"],
            "x-kubernetes-validations": fixed,
            "properties": {
                "gangConfig": gang_config(&["Off", "Gang", "ReplicatedGang"],
                    "Whether all pods of these Jobs are one gang, or those of each Job."),
                "name": name("Part of the names of the Jobs: <set>-<name>-<index>."),
                "groupName": group,
                "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100_000, "default": 1,
                    "description": "The number of Jobs."},
                "template": template::job(),
                "dependsOn": {"type": "array", "maxItems": 5, "items": dependency,
                    "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                    "description": "What other replicated Jobs must have reached before these Jobs are created."},
            },
        },
    })
}

fn with(mut schema: Value, field: &str, value: Value) -> Value {
    schema[field] = value;
    schema
}

fn network() -> Value {
    json!({
        "type": "object", "description": "How pods reach each other.",
        "default": {"enableDNSHostnames": true, "publishNotReadyAddresses": true},
        "properties": {
            "enableDNSHostnames": {"type": "boolean", "default": true,
                "description": "Gives pods host names, and the set a headless service."},
            "subdomain": name("The name of that service; default: the name of the set."),
            "publishNotReadyAddresses": {"type": "boolean", "default": true,
                "description": "Whether the service includes pods that are not ready."},
        },
        "x-kubernetes-validations": [immutable()],
    })
}

fn success_policy() -> Value {
    json!({
        "type": "object", "description": "When the set is complete.", "required": ["operator"],
        "default": {"operator": "All"},
        "properties": {
            "operator": {"type": "string", "enum": ["All", "Any"], "description": "How many Jobs must succeed."},
            "targetReplicatedJobs": names("The replicated Jobs that count; all if empty."),
        },
        "x-kubernetes-validations": [immutable()],
    })
}

fn failure_policy() -> Value {
    let reasons =
        ["BackoffLimitExceeded", "DeadlineExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy"];
    let actions = ["FailJobSet", "RestartJobSet", "RestartJobSetAndIgnoreMaxRestarts"];
    let rule = json!({
        "type": "object", "required": ["action"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 128,
                "pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
                "description": "Default: failurePolicyRule and the index of the rule."},
            "action": {"type": "string", "enum": actions, "description": "The action to take."},
            "onJobFailureReasons": {"type": "array", "maxItems": 5, "items": {"type": "string", "enum": reasons},
                "description": "Reasons of the Job's failure; any if empty."},
            "onJobFailureMessagePatterns": {"type": "array", "maxItems": 20, "items": {"type": "string"},
                "description": "Regular expressions for its message; any message if empty."},
            "targetReplicatedJobs": names("The replicated Jobs that the rule applies to; all if empty."),
        },
    });
    json!({
        "type": "object", "description": "What happens when a Job fails. Without it the set fails.",
        "properties": {
            "maxRestarts": {"type": "integer", "format": "int32", "minimum": 0,
                "description": "How often all Jobs may be recreated."},
            "restartStrategy": {"type": "string", "enum": ["Recreate", "BlockingRecreate"], "default": "Recreate",
                "description": "BlockingRecreate creates no Job before all old ones are gone."},
            "rules": {"type": "array", "maxItems": 20, "items": rule,
                "description": "The first matching rule applies; RestartJobSet if none matches."},
        },
        "x-kubernetes-validations": [immutable()],
    })
}

fn coordinator() -> Value {
    let index = |description: &str| json!({"type": "integer", "format": "int32", "minimum": 0, "default": 0, "description": description});
    json!({
        "type": "object", "required": ["replicatedJob"],
        "description": "The pod whose address is set on all Jobs and pods.",
        "properties": {
            "replicatedJob": {"type": "string", "description": "The replicated Job of the pod."},
            "jobIndex": index("The index of its Job."),
            "podIndex": index("Its completion index."),
        },
    })
}

fn status() -> Value {
    let count = || json!({"type": "integer", "format": "int32"});
    let text = || json!({"type": "string"});
    json!({
        "type": "object", "description": "The observed state.",
        "properties": {
            "conditions": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
                "items": {"type": "object", "required": ["type", "status", "lastTransitionTime", "reason", "message"],
                    "properties": {"type": text(), "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                        "reason": text(), "message": text(),
                        "observedGeneration": {"type": "integer", "format": "int64"},
                        "lastTransitionTime": {"type": "string", "format": "date-time"}}},
            },
            "restarts": with(count(), "description", json!("How often all Jobs were recreated.")),
            "restartsCountTowardsMax":
                with(count(), "description", json!("How often because of failures that maxRestarts limits.")),
            "terminalState": with(text(), "description", json!("Completed or Failed when the set has finished.")),
            "replicatedJobsStatus": {
                "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name", "ready", "succeeded", "failed", "active", "suspended"],
                    "properties": {"name": text(), "ready": count(), "succeeded": count(), "failed": count(),
                        "active": count(), "suspended": count()}},
            },
        },
    })
}
