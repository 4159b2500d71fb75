//! Policies that hold Muster's own service account to what it really writes, where RBAC can only grant whole objects.
//!
//! With its token alone, a program cannot change the labels, the spec or the phase of pods, free a volume, nor redirect
//! the webhook. The lists here follow the code: `runtime/src/actuator` (binds, status, storage), `runtime/src/status_writer/pods.rs`,
//! `controllers/src/reconcile/pods.rs` (references), `controllers/src/owner_condition` and
//! `controllers/src/webhook/configurations.rs`.

use muster_api::keys::annotations::{
    DISRUPTION_MODE, LATER_PODS, POD_GROUP, PREEMPTION_COST, REPLICA_KEY, START, WORKLOAD,
};
use muster_api::keys::conditions::GANG_SCHEDULED;
use muster_api::keys::storage::{BOUND_BY_CONTROLLER, SELECTED_NODE};
use muster_api::other_schedulers::{scheduler_plugins, volcano};
use muster_controllers::providers::yunikorn;
use serde_json::{Value, json};

use super::Options;
use super::policy::{Policy, rule};

/// Metadata that the API server maintains.
const MAINTAINED: &[&str] =
    &["deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields", "resourceVersion"];

/// All policies and their bindings.
pub(super) fn documents(options: &Options) -> Vec<Value> {
    let mut policies = vec![bindings(), pods(), owners(), volumes(), claims()];
    if options.creates_certificate() {
        policies.push(webhooks());
    }
    if !options.without_volcano {
        policies.push(volcano_groups());
    }
    let is_muster = format!("request.userInfo.username == '{}'", super::user_name(options));
    let for_muster = |mut policy: Policy| {
        policy.conditions.push(("is-muster", is_muster.clone()));
        policy.documents()
    };
    policies.into_iter().flat_map(for_muster).collect()
}

fn validation(expression: &str, message: &str) -> Value {
    json!({"expression": expression, "message": format!("Muster's service account {message}"), "reason": "Forbidden"})
}

/// Two maps are equal, apart from some keys.
fn equal_except(new: &str, old: &str, except: &[&str]) -> String {
    let except = json!(except);
    format!(
        "{new}.all(k, k in {except} || (k in {old} && {new}[k] == {old}[k])) && {old}.all(k, k in {except} || k in {new})"
    )
}

/// A map in an object, empty if it is not set. Not type-checked, since it is read key by key.
fn map_of(object: &str, field: &str) -> String {
    format!("(has({object}.{field}) ? dyn({object}.{field}) : dyn({{}}))")
}

fn new_and_old(names: [&'static str; 2], field: &str) -> [(&'static str, String); 2] {
    [(names[0], map_of("object", field)), (names[1], map_of("oldObject", field))]
}

/// The API server copies the labels and annotations of a Binding to the pod.
fn bindings() -> Policy {
    Policy {
        name: "muster-own-bindings",
        rules: vec![rule("", &["pods/binding"], &["CREATE"])],
        conditions: Vec::new(),
        variables: vec![
            ("labels", map_of("object", "metadata.labels")),
            ("annotations", map_of("object", "metadata.annotations")),
        ],
        validations: vec![validation(
            &format!("variables.labels.size() == 0 && variables.annotations.all(k, k == '{START}')"),
            &format!("binds pods with the annotation {START} and no other"),
        )],
    }
}

/// The group reference of a pending pod; conditions and the nomination.
fn pods() -> Policy {
    let labels = [scheduler_plugins::POD_GROUP_LABEL, yunikorn::APPLICATION_LABEL];
    let of_yunikorn = [yunikorn::TASK_GROUP_ANNOTATION, yunikorn::TASK_GROUPS_ANNOTATION];
    let annotations = [&[POD_GROUP, WORKLOAD, REPLICA_KEY, volcano::GROUP_NAME_ANNOTATION], &of_yunikorn[..]].concat();
    let added = |new: &str, old: &str, keys: &[&str]| {
        let may_add = format!("(!has(request.subResource) && !has(oldObject.spec.nodeName) && k in {})", json!(keys));
        format!("{old}.all(k, k in {new} && {new}[k] == {old}[k]) && {new}.all(k, k in {old} || {may_add})")
    };
    let mut variables = Vec::new();
    variables.extend(new_and_old(["metadata", "oldMetadata"], "metadata"));
    variables.extend(new_and_old(["labels", "oldLabels"], "metadata.labels"));
    variables.extend(new_and_old(["annotations", "oldAnnotations"], "metadata.annotations"));
    variables.extend(new_and_old(["status", "oldStatus"], "status"));
    let conditions = |of: &str| format!("(has(variables.{of}.conditions) ? variables.{of}.conditions : [])");
    variables.push(("conditions", conditions("status")));
    variables.push(("oldConditions", conditions("oldStatus")));
    let metadata = [MAINTAINED, &["annotations", "labels"]].concat();
    Policy {
        name: "muster-own-pod-writes",
        rules: vec![rule("", &["pods", "pods/status"], &["UPDATE"])],
        conditions: Vec::new(),
        variables,
        validations: vec![
            validation(
                &format!(
                    "object.spec == oldObject.spec && {}",
                    equal_except("variables.metadata", "variables.oldMetadata", &metadata)
                ),
                "changes neither the spec of pods nor their finalizers and owners",
            ),
            validation(
                &added("variables.labels", "variables.oldLabels", &labels),
                "adds labels that name the group of a pending pod, and changes no others",
            ),
            validation(
                &added("variables.annotations", "variables.oldAnnotations", &annotations),
                "adds annotations that name the group of a pending pod, and changes no others",
            ),
            validation(
                &equal_except("variables.status", "variables.oldStatus", &["conditions", "nominatedNodeName"]),
                "writes conditions and nominatedNodeName in the status of pods, and nothing else",
            ),
            validation(
                &conditions_are_own(),
                "writes PodScheduled=False and DisruptionTarget on pods, and no other conditions",
            ),
        ],
    }
}

/// Every condition is unchanged, or one that Muster writes. None is removed.
fn conditions_are_own() -> String {
    let pod_scheduled = "c.type == 'PodScheduled' && c.status == 'False'";
    let disruption_target = "c.type == 'DisruptionTarget' && has(c.reason) && [c.status, c.reason] in [['True', 'PreemptionByScheduler'], ['False', 'NotEvicted']]";
    format!(
        "variables.conditions.all(c, c in variables.oldConditions || ({pod_scheduled}) || ({disruption_target})) && \
         variables.oldConditions.all(o, variables.conditions.exists(c, c.type == o.type && (c == o || o.type in ['PodScheduled', 'DisruptionTarget'])))"
    )
}

/// One condition in the status of Jobs, JobSets and LeaderWorkerSets.
fn owners() -> Policy {
    let mut variables = Vec::from(new_and_old(["metadata", "oldMetadata"], "metadata"));
    variables.extend(new_and_old(["status", "oldStatus"], "status"));
    let conditions = |of: &str| format!("(has(variables.{of}.conditions) ? variables.{of}.conditions : [])");
    variables.push(("conditions", conditions("status")));
    variables.push(("oldConditions", conditions("oldStatus")));
    let is_same = |of: &str, other: &str| {
        format!("variables.{of}.all(c, c.type == '{GANG_SCHEDULED}' || c in variables.{other})")
    };
    Policy {
        name: "muster-own-owner-writes",
        rules: vec![
            rule("batch", &["jobs/status"], &["UPDATE"]),
            rule("jobset.x-k8s.io", &["jobsets/status"], &["UPDATE"]),
            rule("leaderworkerset.x-k8s.io", &["leaderworkersets/status"], &["UPDATE"]),
        ],
        conditions: Vec::new(),
        variables,
        validations: vec![validation(
            &format!(
                "{} && {} && {} && {}",
                equal_except("variables.metadata", "variables.oldMetadata", MAINTAINED),
                equal_except("variables.status", "variables.oldStatus", &["conditions"]),
                is_same("conditions", "oldConditions"),
                is_same("oldConditions", "conditions"),
            ),
            "writes its own condition in the status of Jobs, JobSets and LeaderWorkerSets, and nothing else",
        )],
    }
}

/// The claim for which a volume is reserved: one that another writer has not bound yet.
fn volumes() -> Policy {
    let mut variables = Vec::from(new_and_old(["metadata", "oldMetadata"], "metadata"));
    variables.extend(new_and_old(["annotations", "oldAnnotations"], "metadata.annotations"));
    variables.extend(new_and_old(["spec", "oldSpec"], "spec"));
    variables.push(("claim", map_of("object", "spec.claimRef")));
    variables.push(("oldClaim", map_of("oldObject", "spec.claimRef")));
    let (new, old) = ("variables.claim", "variables.oldClaim");
    let is_of_claim = format!(
        "{new}.size() > 0 && {new}.all(k, k in ['apiVersion', 'kind', 'namespace', 'name', 'uid', 'resourceVersion'] || (k in {old} && {new}[k] == {old}[k])) && \
         'uid' in {new} && 'kind' in {new} && {new}.kind == 'PersistentVolumeClaim'"
    );
    // An administrator may have named the claim already.
    let was_free = format!("!('uid' in {old}) && ['namespace', 'name'].all(k, !(k in {old}) || {new}[k] == {old}[k])");
    Policy {
        name: "muster-own-volume-writes",
        rules: vec![rule("", &["persistentvolumes"], &["UPDATE"])],
        conditions: Vec::new(),
        variables,
        validations: vec![
            validation(
                &format!(
                    "{} && {}",
                    equal_except("variables.metadata", "variables.oldMetadata", &with_annotations()),
                    equal_except("variables.spec", "variables.oldSpec", &["claimRef"])
                ),
                "changes claimRef in the spec of volumes, and nothing else",
            ),
            validation(
                &format!("{new} == {old} || ({was_free} && {is_of_claim})"),
                "reserves volumes that are not bound, and does not free them",
            ),
            validation(
                &adds_only("variables.annotations", "variables.oldAnnotations", BOUND_BY_CONTROLLER, " == 'yes'"),
                &format!("adds the annotation {BOUND_BY_CONTROLLER} to volumes, and changes no others"),
            ),
        ],
    }
}

/// The node for which the volume of a claim is provisioned. Once it is selected, only the provisioner may remove it.
fn claims() -> Policy {
    let mut variables = Vec::from(new_and_old(["metadata", "oldMetadata"], "metadata"));
    variables.extend(new_and_old(["annotations", "oldAnnotations"], "metadata.annotations"));
    Policy {
        name: "muster-own-claim-writes",
        rules: vec![rule("", &["persistentvolumeclaims"], &["UPDATE"])],
        conditions: Vec::new(),
        variables,
        validations: vec![
            validation(
                &format!(
                    "object.spec == oldObject.spec && {}",
                    equal_except("variables.metadata", "variables.oldMetadata", &with_annotations())
                ),
                "changes annotations of claims, and nothing else",
            ),
            validation(
                &adds_only("variables.annotations", "variables.oldAnnotations", SELECTED_NODE, " != ''"),
                &format!("adds the annotation {SELECTED_NODE} to claims, and changes no others"),
            ),
        ],
    }
}

fn with_annotations() -> Vec<&'static str> {
    [MAINTAINED, &["annotations"]].concat()
}

/// Two maps are equal, apart from one key that may be added with a value that meets a condition.
fn adds_only(new: &str, old: &str, key: &str, condition: &str) -> String {
    format!(
        "{old}.all(k, k in {new} && {new}[k] == {old}[k]) && \
         {new}.all(k, k in {old} || (k == '{key}' && {new}[k]{condition}))"
    )
}

/// The CA bundle of every webhook.
fn webhooks() -> Policy {
    let webhooks = |object: &str| format!("(has({object}.webhooks) ? dyn({object}.webhooks) : dyn([]))");
    let is_same = format!(
        "{} && {}",
        equal_except("w", "o", &["clientConfig"]),
        equal_except("w.clientConfig", "o.clientConfig", &["caBundle"])
    );
    let mut variables = Vec::from(new_and_old(["metadata", "oldMetadata"], "metadata"));
    variables.push(("webhooks", webhooks("object")));
    variables.push(("oldWebhooks", webhooks("oldObject")));
    Policy {
        name: "muster-own-webhook-writes",
        rules: vec![rule("admissionregistration.k8s.io", &["mutatingwebhookconfigurations"], &["UPDATE"])],
        conditions: Vec::new(),
        variables,
        validations: vec![validation(
            &format!(
                "{} && variables.webhooks.size() == variables.oldWebhooks.size() && variables.webhooks.all(w, variables.oldWebhooks.exists(o, {is_same}))",
                equal_except("variables.metadata", "variables.oldMetadata", MAINTAINED)
            ),
            "changes caBundle of webhooks, and nothing else",
        )],
    }
}

/// Volcano's PodGroup has no status subresource, so the right to write the status covers the object. The minimums and
/// annotations are those of LeaderWorkerSets that are written as Volcano's groups, for which the operator grants more.
fn volcano_groups() -> Policy {
    let mut variables = Vec::from(new_and_old(["metadata", "oldMetadata"], "metadata"));
    variables.extend(new_and_old(["annotations", "oldAnnotations"], "metadata.annotations"));
    variables.extend(new_and_old(["spec", "oldSpec"], "spec"));
    let metadata = [MAINTAINED, &["annotations"]].concat();
    let annotations = [DISRUPTION_MODE, LATER_PODS, PREEMPTION_COST];
    Policy {
        name: "muster-own-volcano-writes",
        rules: vec![rule("scheduling.volcano.sh", &["podgroups"], &["UPDATE"])],
        conditions: Vec::new(),
        variables,
        validations: vec![validation(
            &format!(
                "{} && {} && {}",
                equal_except("variables.metadata", "variables.oldMetadata", &metadata),
                equal_except("variables.annotations", "variables.oldAnnotations", &annotations),
                equal_except("variables.spec", "variables.oldSpec", &["minMember", "minResources"])
            ),
            "changes the status, the minimums and its own annotations of Volcano's PodGroups, and nothing else",
        )],
    }
}
