//! The webhook configuration and the validating admission policies.
//!
//! The webhook does not block anything unrelated: it is called only for objects that may be part of a gang, and if it
//! does not respond the API server continues (`failurePolicy: Ignore`), since the controllers set the references later,
//! and the scheduler resolves the priorities of groups. The controllers cannot do that if gangs are Kubernetes' own objects; then requests for a gang fail without the webhook
//! (`Fail`), and no others. What CEL can express is a policy of the API server itself, which is always available.

use muster_api::keys::annotations::START;
use serde_json::{Value, json};

use super::policy::binding;
use super::{NAME, Options, labels};
use crate::run::webhook::PATH;

/// The Service through which the API server calls the webhook.
pub(super) const SERVICE: &str = "muster-webhook";
/// The port of the container.
pub(super) const PORT: u16 = 9443;

/// The Service and the configuration of the webhook, if there is one.
pub(super) fn webhook(options: &Options) -> Vec<Value> {
    if options.without_webhook { Vec::new() } else { vec![service(options), configuration(options)] }
}

fn service(options: &Options) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": SERVICE, "namespace": options.namespace, "labels": labels()},
        "spec": {"selector": labels(), "ports": [{"name": "webhook", "port": 443, "targetPort": "webhook"}]},
    })
}

fn configuration(options: &Options) -> Value {
    // If the controllers cannot replace it, objects that request a gang cannot be created without the webhook.
    let needed = if options.native_gangs { "Fail" } else { "Ignore" };
    let mut of_replicas = vec![("is-no-exception", NOT_OFF.to_owned())];
    if options.native_gangs {
        // Pods of other schedulers do not depend on the webhook.
        of_replicas.push(("is-ours", format!("object.spec.schedulerName in {}", json!(options.scheduler_name))));
    }
    let one = |name: &'static str, text: &str| vec![(name, text.to_owned())];
    // An update sets no reference, so it never depends on the webhook.
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": labels()},
        "webhooks": [
            hook(options, "jobsets", (JOB_SETS, "CREATE", needed), &one("may-ask-for-gangs", SET_MAY_ASK)),
            hook(options, "jobs-of-jobsets", (JOBS, "CREATE", needed), &one("is-of-a-gang", JOB_OF_GANG)),
            hook(options, "jobs", (JOBS, "CREATE", "Ignore"), &one("may-be-a-gang", JOB_MAY_BE_GANG)),
            of_set(hook(options, "pods", (PODS, "CREATE", needed), &of_replicas)),
            hook(options, "changed-jobsets", (JOB_SETS, "UPDATE", "Ignore"), &one("may-ask-for-gangs", SET_MAY_ASK)),
            hook(options, "changed-jobs", (JOBS, "UPDATE", "Ignore"),
                &one("may-be-a-gang", &format!("({JOB_OF_GANG}) || ({JOB_MAY_BE_GANG})"))),
            of_groups(hook(options, "groups", (POD_GROUPS, "CREATE", "Ignore"), &[])),
        ],
    })
}

type Resource = [&'static str; 3];
const JOB_SETS: Resource = ["jobset.x-k8s.io", "v1alpha2", "jobsets"];
const JOBS: Resource = ["batch", "v1", "jobs"];
const PODS: Resource = ["", "v1", "pods"];
const POD_GROUPS: Resource = ["muster.dev", "v1alpha1", "podgroups"];

fn hook(
    options: &Options,
    name: &str,
    ([group, version, plural], operation, failure_policy): (Resource, &str, &str),
    conditions: &[(&str, String)],
) -> Value {
    // Objects that are being deleted do not depend on the webhook.
    let stays = ("stays", "!has(object.metadata.deletionTimestamp)".to_owned());
    let conditions = conditions.iter().chain([&stays]);
    json!({
        "name": format!("{name}.muster.dev"),
        "clientConfig": {"service": {"namespace": options.namespace, "name": SERVICE, "path": PATH, "port": 443}},
        "rules": [{"apiGroups": [group], "apiVersions": [version], "resources": [plural],
            "operations": [operation], "scope": "Namespaced"}],
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "failurePolicy": failure_policy,
        "timeoutSeconds": 5,
        "reinvocationPolicy": "IfNeeded",
        // System namespaces never depend on the webhook.
        "namespaceSelector": {"matchExpressions": [{
            "key": "kubernetes.io/metadata.name", "operator": "NotIn",
            "values": ["kube-system", options.namespace],
        }]},
        "matchConditions": conditions.map(|(name, expression)| json!({"name": name, "expression": expression})).collect::<Vec<_>>(),
    })
}

/// Only pods of LeaderWorkerSets.
fn of_set(mut hook: Value) -> Value {
    hook["objectSelector"] =
        json!({"matchExpressions": [{"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}]});
    hook
}

/// Muster's PodGroups and Workloads, new and changed ones.
fn of_groups(mut hook: Value) -> Value {
    hook["rules"][0]["resources"] = json!(["podgroups", "workloads"]);
    hook["rules"][0]["operations"] = json!(["CREATE", "UPDATE"]);
    hook
}

/// Pods that do not opt out of gangs.
const NOT_OFF: &str = "!has(object.metadata.annotations) || !('muster.dev/gang-mode' in object.metadata.annotations) || object.metadata.annotations['muster.dev/gang-mode'] != 'Off'";
/// JobSets that configure gangs at any level.
const SET_MAY_ASK: &str = "has(object.spec.gangConfig) || (has(object.metadata.annotations) && 'muster.dev/gang-mode' in object.metadata.annotations) || (has(object.spec.replicatedJobs) && object.spec.replicatedJobs.exists(j, has(j.gangConfig) || (has(j.template.metadata) && has(j.template.metadata.annotations) && ('muster.dev/gang-mode' in j.template.metadata.annotations || 'muster.dev/gang-scope' in j.template.metadata.annotations))))";
/// Jobs of JobSets that are gangs, by Muster's own annotation.
const JOB_OF_GANG: &str = "has(object.metadata.annotations) && 'muster.dev/gang-scope' in object.metadata.annotations";
/// Other Jobs that configure gangs. Indexed Jobs that are gangs by default get their references from the controllers.
const JOB_MAY_BE_GANG: &str = "has(object.metadata.annotations) && !('muster.dev/gang-scope' in object.metadata.annotations) && ('muster.dev/gang-mode' in object.metadata.annotations || 'muster.dev/scheduling' in object.metadata.annotations)";

/// The gang modes of JobSets, in the annotation or in the field `gangConfig` where the CRD has it: valid values, at one
/// level, the same in both, and immutable.
pub(super) fn policy() -> Value {
    let annotated = |metadata: &str| {
        format!(
            "(has({metadata}.annotations) && 'muster.dev/gang-mode' in {metadata}.annotations ? {metadata}.annotations['muster.dev/gang-mode'] : '')"
        )
    };
    let field =
        |of: &str| format!("(has({of}.gangConfig) && has({of}.gangConfig.gangMode) ? {of}.gangConfig.gangMode : '')");
    let annotated_job = format!("(has(j.template.metadata) ? {} : '')", annotated("j.template.metadata"));
    let of_jobs = |object: &str, mode: &str| {
        format!("(has({object}.spec.replicatedJobs) ? {object}.spec.replicatedJobs.map(j, {mode}) : [])")
    };
    let either = |field: &str, annotated: &str| format!("({field} != '' ? {field} : {annotated})");
    let field_of_job = field("j");
    let contradicts =
        |field: &str, annotated: &str| format!("({field} != '' && {annotated} != '' && {field} != {annotated})");
    let of_set = [field("object.spec"), annotated("object.metadata")];
    let same = [
        format!("{} == {}", field("oldObject.spec"), of_set[0]),
        format!("{} == {}", annotated("oldObject.metadata"), of_set[1]),
        format!("{} == {}", of_jobs("oldObject", &field_of_job), of_jobs("object", &field_of_job)),
        format!("{} == {}", of_jobs("oldObject", &annotated_job), of_jobs("object", &annotated_job)),
    ];
    let validation =
        |expression: String, message: &str| json!({"expression": expression, "message": message, "reason": "Invalid"});
    let on_create =
        |expression: &str, message: &str| validation(format!("request.operation == 'UPDATE' || {expression}"), message);
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "muster-gang-modes", "labels": labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": ["jobset.x-k8s.io"], "apiVersions": ["v1alpha2"], "resources": ["jobsets"],
                "operations": ["CREATE", "UPDATE"],
            }]},
            // Objects that are being deleted are not validated.
            "matchConditions": [{"name": "stays", "expression": "!has(object.metadata.deletionTimestamp)"}],
            "variables": [
                {"name": "ofSet", "expression": either(&of_set[0], &of_set[1])},
                {"name": "ofJobs", "expression": of_jobs("object", &either(&field_of_job, &annotated_job))},
                {"name": "contradictions",
                    "expression": of_jobs("object", &contradicts(&field_of_job, &annotated_job))},
            ],
            "validations": [
                on_create("variables.ofSet in ['', 'Off', 'Gang']",
                    "gangConfig.gangMode, annotation muster.dev/gang-mode: must be Off or Gang for a JobSet"),
                on_create("variables.ofJobs.all(m, m in ['', 'Off', 'Gang', 'ReplicatedGang'])",
                    "gangConfig.gangMode, annotation muster.dev/gang-mode: must be Off, Gang or ReplicatedGang for a replicated Job"),
                on_create(
                    &format!("!{} && !variables.contradictions.exists(c, c)", contradicts(&of_set[0], &of_set[1])),
                    "gangConfig.gangMode and annotation muster.dev/gang-mode say different things"),
                on_create("variables.ofSet != 'Gang' || variables.ofJobs.all(m, m in ['', 'Off'])",
                    "gangConfig.gangMode, annotation muster.dev/gang-mode: a JobSet that is one gang cannot have gangs in it"),
                on_create("variables.ofJobs.filter(m, m in ['Gang', 'ReplicatedGang']).size() <= 8",
                    "gangConfig.gangMode, annotation muster.dev/gang-mode: at most 8 replicated Jobs can be gangs"),
                validation(format!("request.operation == 'CREATE' || ({})", same.join(" && ")),
                    "gangConfig.gangMode, annotation muster.dev/gang-mode: cannot be changed"),
            ],
        },
    })
}

/// The name of the policy about stamps.
const STAMPS: &str = "muster-start-stamps";

/// The stamp of a bind: only a Binding sets it. A new pod may have one, for example of a backup: it names another UID and
/// says nothing.
pub(super) fn stamp_policy() -> Value {
    let of = |object: &str| {
        format!(
            "(has({object}.metadata.annotations) && '{START}' in {object}.metadata.annotations ? {object}.metadata.annotations['{START}'] : '')"
        )
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": STAMPS, "labels": labels()},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods", "pods/status"],
                "operations": ["UPDATE"],
            }]},
            "matchConditions": [{"name": "has-a-stamp", "expression": format!("{} != ''", of("object"))}],
            "validations": [{
                "expression": format!("{} == {}", of("object"), of("oldObject")),
                "message": format!("annotation {START} is written by Muster when it binds a pod"),
                "reason": "Forbidden",
            }],
        },
    })
}

/// Puts the policies into force.
pub(super) fn policy_bindings() -> [Value; 2] {
    ["muster-gang-modes", STAMPS].map(binding)
}
