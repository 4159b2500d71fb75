//! The right to name a PriorityClass in a group: the author needs the verb `use` on the class, in the group's
//! namespace.
//!
//! Kubernetes limits the classes of pods by ResourceQuota, which looks at no group; and the priority of a group counts
//! for its members, whatever class they have. A class could also be named indirectly, in a Job whose pods the quota
//! rejects: the controllers write its group with the class of the template, and other pods join it. So owners are
//! checked as well, when their author creates them.
//!
//! RBAC alone decides which users may use a class: the policies exempt none. Controllers write for others, so they have
//! the right to all classes.

use serde_json::{Value, json};

use super::policy::{Policy, rule};
use super::{NAME, Options, labels};

/// The role that grants the use of all classes.
const ROLE: &str = "muster-priority-classes";
/// The most classes in one object. The API server allows at most two authorization checks in an expression, and 28 in a
/// policy.
const CLASSES_MAX: usize = 8;
const WRITES: &[&str] = &["CREATE", "UPDATE"];

/// All objects, in the order in which they can be applied: rights before the policies that ask for them.
pub(super) fn documents(options: &Options) -> Vec<Value> {
    let mut documents = vec![role(), controllers_binding(options)];
    if !options.restricted_priority_classes {
        let everyone =
            json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}]);
        documents.push(role_binding("muster-priority-classes-everyone", &everyone));
    }
    documents.extend(groups_policy(options).documents());
    documents.extend(owners_policy(options).documents());
    documents
}

fn role() -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": ROLE, "labels": labels()},
        "rules": [{"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "verbs": ["use"]}],
    })
}

/// The controllers that write Jobs and groups for others: Muster for Jobs, JobSets and LeaderWorkerSets, Kubernetes'
/// own
/// for CronJobs and Jobs, JobSet for its Jobs.
fn controllers_binding(options: &Options) -> Value {
    let account = |namespace: &str, name: &str| json!({"kind": "ServiceAccount", "namespace": namespace, "name": name});
    let subject = |kind: &str, name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    role_binding(
        "muster-priority-classes-controllers",
        &json!([
            account(&options.namespace, NAME),
            account("jobset-system", "jobset-controller-manager"),
            subject("Group", "system:serviceaccounts:kube-system"),
            subject("User", "system:kube-controller-manager"),
        ]),
    )
}

fn role_binding(name: &str, subjects: &Value) -> Value {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": labels()},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
        "subjects": subjects,
    })
}

/// Every kind of group that Muster reads and that names a class.
fn groups_policy(options: &Options) -> Policy {
    let classes = |list: &str| {
        format!("(has(SPEC.{list}) ? SPEC.{list}.filter(g, has(g.priorityClassName)).map(g, g.priorityClassName) : [])")
    };
    // All templates of a Kubernetes' Workload have one class, so those inside of composite ones need not be read.
    let lists =
        ["podGroups", "compositePodGroups", "podGroupTemplates", "compositePodGroupTemplates"].map(classes).join(" + ");
    let named = format!("(has(SPEC.priorityClassName) ? [SPEC.priorityClassName] : []) + {lists}");
    let mut policy = policy(
        "muster-group-priority-classes",
        vec![
            rule("muster.dev", &["podgroups", "workloads"], WRITES),
            rule("scheduling.k8s.io", &["compositepodgroups", "podgroups", "workloads"], WRITES),
            rule("scheduling.volcano.sh", &["podgroups"], WRITES),
        ],
        &named,
    );
    // RBAC cannot grant all classes but these. Groups that Muster writes for a Job are left to the scheduler, which
    // refuses them with a condition that users see.
    let muster = super::user_name(options);
    policy.validations.push(json!({
        "expression": format!(
            "request.namespace == 'kube-system' || request.userInfo.username == '{muster}' || !variables.classes.exists(c, c.startsWith('system-'))"
        ),
        "message": "PriorityClasses of the system (system-*) are for groups in kube-system only",
        "reason": "Forbidden",
    }));
    policy
}

/// The owners whose pods become gangs: a group has the class of its owner's pods.
fn owners_policy(options: &Options) -> Policy {
    let templates = "(has(SPEC.jobTemplate) ? [SPEC.jobTemplate.spec.template.spec] \
        : has(SPEC.replicatedJobs) ? SPEC.replicatedJobs.map(j, j.template.spec.template.spec) \
        : has(SPEC.leaderWorkerTemplate) ? [SPEC.leaderWorkerTemplate.workerTemplate.spec] \
            + (has(SPEC.leaderWorkerTemplate.leaderTemplate) ? [SPEC.leaderWorkerTemplate.leaderTemplate.spec] : []) \
        : has(SPEC.template) ? [SPEC.template.spec] : [])";
    let is_ours = format!(
        "has(p.priorityClassName) && has(p.schedulerName) && p.schedulerName in {}",
        json!(options.scheduler_name)
    );
    policy(
        "muster-owner-priority-classes",
        vec![
            rule("batch", &["jobs", "cronjobs"], WRITES),
            rule("jobset.x-k8s.io", &["jobsets"], WRITES),
            rule("leaderworkerset.x-k8s.io", &["leaderworkersets"], WRITES),
        ],
        &format!("{templates}.filter(p, {is_ours}).map(p, p.priorityClassName)"),
    )
}

/// A policy that asks for the right to use every class that an object newly names. `named` is the list of classes in
/// `SPEC`.
fn policy(name: &'static str, rules: Vec<Value>, named: &str) -> Policy {
    // Kinds have different fields, so the spec is not type-checked.
    let spec = |object: &str| format!("({object} != null && has({object}.spec) ? dyn({object}.spec) : dyn({{}}))");
    let of = |variable: &str| named.replace("SPEC", &format!("variables.{variable}"));
    let mut validations = vec![json!({
        "expression": format!("variables.classes.size() <= {CLASSES_MAX}"),
        "message": format!("more than {CLASSES_MAX} different PriorityClasses are named"),
        "reason": "Invalid",
    })];
    validations.extend((0..CLASSES_MAX).map(may_use));
    Policy {
        name,
        rules,
        conditions: vec![("stays", "!has(object.metadata.deletionTimestamp)".to_owned())],
        variables: vec![
            ("spec", spec("object")),
            ("oldSpec", spec("oldObject")),
            ("named", of("spec")),
            ("namedBefore", of("oldSpec")),
            // Only what the author of this request adds.
            ("classes", "variables.named.filter(c, c != '' && !(c in variables.namedBefore)).distinct()".to_owned()),
        ],
        validations,
    }
}

/// The author of the request may use the class at this place of the list, if there is one.
fn may_use(index: usize) -> Value {
    let none = format!("variables.classes.size() <= {index}");
    let class = format!("variables.classes[{index}]");
    json!({
        "expression": format!(
            "{none} || authorizer.group('scheduling.k8s.io').resource('priorityclasses').namespace(request.namespace).name({class}).check('use').allowed()"
        ),
        "messageExpression": format!(
            "{none} ? '' : 'user ' + request.userInfo.username + ' may not use PriorityClass ' + {class} + ' in namespace ' + request.namespace + ': this needs the verb use on priorityclasses.scheduling.k8s.io'"
        ),
        "message": "the author may not use this PriorityClass: this needs the verb use on priorityclasses.scheduling.k8s.io",
        "reason": "Forbidden",
    })
}
