//! What makes the API server ask Muster, and what it checks by itself.
//!
//! The webhook is never in anybody's way: it is asked only about what may concern gangs, and if it does not answer the
//! API server goes on (`failurePolicy: Ignore`), since the controllers make up for it. What CEL can say is a policy of the
//! API server itself, which cannot be away, so that one refuses (`failurePolicy: Fail`).

use serde_json::{Value, json};

use super::{NAME, Options, labels};
use crate::run::webhook::PATH;

/// The Service by which the API server calls.
pub(super) const SERVICE: &str = "muster-webhook";
/// The port of the container.
pub(super) const PORT: u16 = 9443;

pub(super) fn service(options: &Options) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": options.namespace, "labels": labels()},
        "spec": {"selector": labels(), "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}]},
    })
}

pub(super) fn configuration(options: &Options) -> Value {
    let hook = |name: &str, rule: Value, more: Value| {
        let mut hook = json!({
            "name": format!("{name}.muster.dev"),
            "clientConfig": {"service": {"namespace": options.namespace, "name": SERVICE, "path": PATH, "port": 443}},
            "rules": [rule],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "failurePolicy": "Ignore",
            "timeoutSeconds": 5,
            "reinvocationPolicy": "IfNeeded",
            // What the cluster itself needs never waits for us.
            "namespaceSelector": {"matchExpressions": [{
                "key": "kubernetes.io/metadata.name", "operator": "NotIn",
                "values": ["kube-system", options.namespace],
            }]},
        });
        for (field, value) in more.as_object().into_iter().flatten() {
            hook[field] = value.clone();
        }
        hook
    };
    let rule = |group: &str, version: &str, plural: &str, operations: &[&str]| json!({"apiGroups": [group], "apiVersions": [version], "resources": [plural], "operations": operations, "scope": "Namespaced"});
    let both = ["CREATE", "UPDATE"];
    let of_set = json!({"objectSelector": {"matchExpressions": [
        {"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]}});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": labels()},
        "webhooks": [
            hook("jobsets", rule("jobset.x-k8s.io", "v1alpha2", "jobsets", &both), json!({"matchConditions": [
                {"name": "may-ask-for-gangs", "expression": SET_MAY_ASK}]})),
            hook("jobs", rule("batch", "v1", "jobs", &both), json!({"matchConditions": [
                {"name": "may-be-a-gang", "expression": JOB_MAY_BE_GANG}]})),
            hook("pods", rule("", "v1", "pods", &["CREATE"]), of_set),
        ],
    })
}

/// JobSets that say something of gangs, at any level.
const SET_MAY_ASK: &str = "has(object.spec.gangConfig) || (has(object.metadata.annotations) && 'muster.dev/gang-mode' in object.metadata.annotations) || (has(object.spec.replicatedJobs) && object.spec.replicatedJobs.exists(j, has(j.gangConfig) || (has(j.template.metadata) && has(j.template.metadata.annotations) && ('muster.dev/gang-mode' in j.template.metadata.annotations || 'muster.dev/gang-scope' in j.template.metadata.annotations))))";
/// Jobs that say something of gangs: those of JobSets by our own note. Indexed Jobs that are gangs without saying so get
/// their references from the controllers.
const JOB_MAY_BE_GANG: &str = "has(object.metadata.annotations) && ('muster.dev/gang-scope' in object.metadata.annotations || 'muster.dev/gang-mode' in object.metadata.annotations || 'muster.dev/scheduling' in object.metadata.annotations)";

/// The gang modes of JobSets: words that exist, at one level, and for good.
pub(super) fn policy() -> Value {
    let of = |object: &str| {
        format!(
            "(has({object}.metadata.annotations) && 'muster.dev/gang-mode' in {object}.metadata.annotations ? {object}.metadata.annotations['muster.dev/gang-mode'] : '')"
        )
    };
    let of_job = "(has(j.template.metadata) && has(j.template.metadata.annotations) && 'muster.dev/gang-mode' in j.template.metadata.annotations ? j.template.metadata.annotations['muster.dev/gang-mode'] : '')";
    let modes = |object: &str| {
        format!("(has({object}.spec.replicatedJobs) ? {object}.spec.replicatedJobs.map(j, {of_job}) : [])")
    };
    let same = format!("{} == variables.ofSet && {} == variables.ofJobs", of("oldObject"), modes("oldObject"));
    let validation =
        |expression: String, message: &str| json!({"expression": expression, "message": message, "reason": "Invalid"});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "muster-gang-modes", "labels": labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["v1alpha2"], "resources": ["jobsets"],
                "operations": ["CREATE", "UPDATE"],
            }]},
            // What is on its way out may go.
            "matchConditions": [{"name": "stays", "expression": "!has(object.metadata.deletionTimestamp)"}],
            "variables": [
                {"name": "ofSet", "expression": of("object")},
                {"name": "ofJobs", "expression": modes("object")},
            ],
            "validations": [
                validation("request.operation == 'UPDATE' || variables.ofSet in ['', 'Off', 'Gang']".to_owned(),
                    "annotation muster.dev/gang-mode of a JobSet must be Off or Gang"),
                validation("request.operation == 'UPDATE' || variables.ofJobs.all(m, m in ['', 'Off', 'Gang', 'ReplicatedGang'])".to_owned(),
                    "annotation muster.dev/gang-mode of a replicated Job must be Off, Gang or ReplicatedGang"),
                validation("request.operation == 'UPDATE' || variables.ofSet != 'Gang' || variables.ofJobs.all(m, m in ['', 'Off'])".to_owned(),
                    "annotation muster.dev/gang-mode: a JobSet that is one gang cannot have gangs in it"),
                validation("request.operation == 'UPDATE' || variables.ofJobs.filter(m, m in ['Gang', 'ReplicatedGang']).size() <= 8".to_owned(),
                    "annotation muster.dev/gang-mode: at most 8 replicated Jobs can be gangs"),
                validation(format!("request.operation == 'CREATE' || ({same})"),
                    "annotation muster.dev/gang-mode cannot be changed"),
            ],
        },
    })
}

pub(super) fn policy_binding() -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "muster-gang-modes", "labels": labels()},
        "spec": {"policyName": "muster-gang-modes", "validationActions": ["Deny"]},
    })
}
