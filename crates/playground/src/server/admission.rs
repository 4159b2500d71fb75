//! What the cluster as a whole has to say about a write: namespaces, priorities, protection of groups.
//!
//! These are the admission plugins of a stock control plane that a scheduler's users meet.

use serde_json::{Value, json};

use super::failure::Failure;
use super::request::Target;
use super::state::State;
use crate::kinds::{Kind, tolerate_lost_nodes};

/// Keeps a native group until none of its pods is left to run.
pub(crate) const PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";

fn is(kind: &Kind, group: &str, plural: &str) -> bool {
    *kind.group == *group && *kind.plural == *plural
}

/// Before a new object is checked.
pub(crate) fn on_create(state: &State, kind: &Kind, target: &Target, value: &mut Value) -> Result<(), Failure> {
    if kind.namespaced {
        namespace_is_open(state, kind, target, value)?;
    }
    if is(kind, "", "pods") {
        prioritise_pod(state, kind, value)?;
        tolerate_lost_nodes(value);
    }
    if is(kind, "", "nodes") {
        keep_closed(value);
    }
    if is(kind, "scheduling.k8s.io", "podgroups") {
        prioritise_group(state, kind, value)?;
        protect(value);
    }
    Ok(())
}

/// After a new object was found good.
pub(crate) fn after_checks(state: &State, kind: &Kind, value: &Value) -> Result<(), Failure> {
    if is(kind, "scheduling.k8s.io", "priorityclasses") { one_default(state, kind, value) } else { Ok(()) }
}

/// Before a change is checked.
pub(crate) fn on_update(state: &State, kind: &Kind, value: &Value) -> Result<(), Failure> {
    if is(kind, "scheduling.k8s.io", "priorityclasses") { one_default(state, kind, value) } else { Ok(()) }
}

/// A new node takes no pods until it has said that it is ready.
fn keep_closed(node: &mut Value) {
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taints = &mut node["spec"]["taints"];
    match taints.as_array_mut() {
        Some(list) if list.iter().any(|one| one["key"] == taint["key"] && one["effect"] == taint["effect"]) => {}
        Some(list) => list.push(taint),
        None => *taints = json!([taint]),
    }
}

/// Nothing new comes into a namespace that is not there or on its way out.
fn namespace_is_open(state: &State, kind: &Kind, target: &Target, value: &Value) -> Result<(), Failure> {
    let namespaces = state.registry.builtin("", "namespaces");
    let Some(namespace) = state.get(namespaces, "", &target.namespace) else {
        return Err(Failure::not_found(namespaces.about(), &target.namespace));
    };
    if namespace.deleting {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let why =
            format!("unable to create new content in namespace {} because it is being terminated", target.namespace);
        let cause = format!("namespace {} is being terminated", target.namespace);
        return Err(Failure::forbidden(kind.about(), name, why).because(
            "NamespaceTerminating",
            cause,
            "metadata.namespace",
        ));
    }
    Ok(())
}

/// What a priority class means.
struct Priority {
    class: String,
    value: i64,
    policy: Option<String>,
}

/// The priority of a class name; without a name that of the default class, or zero.
fn resolve(state: &State, kind: &Kind, value: &Value) -> Result<Priority, Failure> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let classes = state.registry.builtin("scheduling.k8s.io", "priorityclasses");
    let written = value["spec"]["priorityClassName"].as_str().unwrap_or_default();
    let class = if written.is_empty() {
        let all = state.store.list(classes.table, None).map(|class| class.value());
        all.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
    } else {
        let class = state.get(classes, "", written);
        let missing =
            || Failure::forbidden(kind.about(), name, format!("no PriorityClass with name {written} was found"));
        Some(class.ok_or_else(missing)?.value())
    };
    Ok(match class {
        Some(class) => Priority {
            class: class["metadata"]["name"].as_str().unwrap_or_default().to_owned(),
            value: class["value"].as_i64().unwrap_or_default(),
            policy: class["preemptionPolicy"].as_str().map(str::to_owned),
        },
        None => Priority { class: String::new(), value: 0, policy: Some("PreemptLowerPriority".to_owned()) },
    })
}

fn prioritise_pod(state: &State, kind: &Kind, pod: &mut Value) -> Result<(), Failure> {
    let priority = resolve(state, kind, pod)?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let spec = &mut pod["spec"];
    if let Some(written) = spec["priority"].as_i64().filter(|written| *written != priority.value) {
        let why = format!(
            "the integer value of priority ({written}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            priority.value
        );
        return Err(Failure::forbidden(kind.about(), &name, why));
    }
    if let (Some(written), Some(policy)) = (spec["preemptionPolicy"].as_str(), &priority.policy)
        && written != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({written}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(Failure::forbidden(kind.about(), &name, why));
    }
    spec["priority"] = json!(priority.value);
    if !priority.class.is_empty() {
        spec["priorityClassName"] = json!(priority.class);
    }
    if let Some(policy) = priority.policy {
        spec["preemptionPolicy"] = json!(policy);
    }
    Ok(())
}

fn prioritise_group(state: &State, kind: &Kind, group: &mut Value) -> Result<(), Failure> {
    let priority = resolve(state, kind, group)?;
    let name = group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let spec = &mut group["spec"];
    if let Some(written) = spec["priority"].as_i64().filter(|written| *written != priority.value) {
        let why = format!(
            "priority set in the pod group ({written}) must match the priority computed ({}) based on the priority class set in the spec",
            priority.value
        );
        return Err(Failure::forbidden(kind.about(), &name, why));
    }
    spec["priority"] = json!(priority.value);
    if !priority.class.is_empty() {
        spec["priorityClassName"] = json!(priority.class);
    }
    Ok(())
}

fn protect(group: &mut Value) {
    let finalizers = &mut group["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|finalizer| finalizer == PROTECTION) => {}
        Some(list) => list.push(json!(PROTECTION)),
        None => *finalizers = json!([PROTECTION]),
    }
}

/// At most one class is the default.
fn one_default(state: &State, kind: &Kind, value: &Value) -> Result<(), Failure> {
    if value["globalDefault"] != true {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let mut others = state.store.list(kind.table, None).filter(|class| *class.key.name != *name);
    match others.find(|class| class.value()["globalDefault"] == true) {
        Some(other) => {
            let why =
                format!("PriorityClass {} is already marked as default. Only one default can exist", other.key.name);
            Err(Failure::forbidden(kind.about(), name, why))
        }
        None => Ok(()),
    }
}
