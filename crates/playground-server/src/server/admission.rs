//! What the cluster as a whole has to say about a write: namespaces, priorities, protection of groups.
//!
//! These are the admission plugins of a stock control plane that a scheduler's users meet.

use serde_json::{Value, json};

use super::failure::Failure;
use super::query::DeleteOptions;
use super::request::Target;
use super::state::State;
use crate::kinds::{
    Kind, NativeGroups, Rules, SYSTEM_CLASSES, apply_runtime_class, mark_not_ready, tolerate_lost_nodes,
};

/// Keeps a native group until none of its pods is left to run.
pub(crate) const PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";

/// Before a new object is checked.
pub(crate) fn on_create(state: &State, kind: &Kind, target: &Target, value: &mut Value) -> Result<(), Failure> {
    if kind.namespaced {
        namespace_is_open(state, kind, target, value)?;
    }
    if matches!(kind.rules, Rules::Custom(_)) {
        definition_stays(state, kind, value)?;
    }
    drop_groups(state, kind, value);
    if kind.is("", "pods") {
        prioritise_pod(state, kind, value)?;
        choose_runtime(state, kind, value)?;
        tolerate_lost_nodes(value);
    }
    if kind.is("", "nodes") {
        mark_not_ready(value);
    }
    if kind.is("scheduling.k8s.io", "podgroups") && kind.is_builtin() {
        prioritise_group(state, kind, value)?;
        protect(value);
    }
    Ok(())
}

/// After a new object was found good.
pub(crate) fn after_checks(state: &State, kind: &Kind, value: &Value) -> Result<(), Failure> {
    if kind.is("scheduling.k8s.io", "podgroups") && kind.native_groups == NativeGroups::V1alpha2 && kind.is_builtin() {
        template_exists(state, kind, value)?;
    }
    if kind.is("scheduling.k8s.io", "priorityclasses") { one_default(state, kind, value) } else { Ok(()) }
}

/// In 1.36 the template that a group names must be there.
fn template_exists(state: &State, kind: &Kind, group: &Value) -> Result<(), Failure> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let template = &group["spec"]["podGroupTemplateRef"]["workload"];
    if !template.is_object() {
        return Ok(());
    }
    let forbidden = |why: String| Failure::forbidden(kind.about(), &text(&group["metadata"]["name"]), why);
    let (workload, template) = (text(&template["workloadName"]), text(&template["podGroupTemplateName"]));
    let namespace = text(&group["metadata"]["namespace"]);
    let workloads = state.registry.get(&kind.group, &kind.version, "workloads");
    let Some(found) = workloads.and_then(|workloads| state.get(workloads, &namespace, &workload)) else {
        return Err(forbidden(format!("PodGroup rejected: Workload {workload:?} not found")));
    };
    if found.deleting {
        return Err(forbidden(format!("PodGroup rejected: Workload {workload:?} is being deleted")));
    }
    let value = found.value();
    let mut templates = value["spec"]["podGroupTemplates"].as_array().into_iter().flatten();
    if templates.any(|one| one["name"] == template.as_str()) {
        return Ok(());
    }
    let why = format!("PodGroup rejected: PodGroupTemplate {template:?} not found in Workload {workload:?}");
    Err(forbidden(why))
}

/// A server that does not know groups forgets that a pod names one, in templates too.
fn drop_groups(state: &State, kind: &Kind, value: &mut Value) {
    const POD_SPECS: [&str; 4] =
        ["/spec", "/spec/template/spec", "/spec/jobTemplate/spec/template/spec", "/template/spec"];
    if state.native_groups != NativeGroups::Stock || !kind.is_builtin() {
        return;
    }
    for path in POD_SPECS {
        if let Some(spec) = value.pointer_mut(path).and_then(Value::as_object_mut) {
            spec.remove("schedulingGroup");
        }
    }
}

/// Before a change is checked.
pub(crate) fn on_update(state: &State, kind: &Kind, value: &mut Value) -> Result<(), Failure> {
    drop_groups(state, kind, value);
    if kind.is("", "pods") {
        tolerate_lost_nodes(value);
    }
    if kind.is("scheduling.k8s.io", "priorityclasses") { one_default(state, kind, value) } else { Ok(()) }
}

/// Before an object is deleted.
pub(crate) fn on_delete(kind: &Kind, name: &str) -> Result<(), Failure> {
    let is_system_class = SYSTEM_CLASSES.iter().any(|(class, _, _)| *class == name);
    if kind.is("scheduling.k8s.io", "priorityclasses") && is_system_class {
        return Err(Failure::forbidden(kind.about(), name, "this is a system priority class and cannot be deleted"));
    }
    Ok(())
}

/// What a client is told that deletes something.
pub(crate) fn delete_warning(kind: &Kind, options: &DeleteOptions) -> Option<String> {
    let is_surprising = kind.is("batch", "jobs") && options.propagation.is_none();
    is_surprising.then(|| "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning".to_owned())
}

/// No new objects of a kind whose definition is on its way out.
fn definition_stays(state: &State, kind: &Kind, value: &Value) -> Result<(), Failure> {
    let definitions = state.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let definition = state.get(definitions, "", &format!("{}.{}", kind.plural, kind.group));
    if definition.is_some_and(|definition| definition.deleting) {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let why = "create not allowed while custom resource definition is terminating";
        return Err(Failure::forbidden(kind.about(), name, why));
    }
    Ok(())
}

/// A pod takes what its runtime class says.
fn choose_runtime(state: &State, kind: &Kind, pod: &mut Value) -> Result<(), Failure> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let forbidden = |why: String| Failure::forbidden(kind.about(), &name, why);
    let class = match pod["spec"]["runtimeClassName"].as_str() {
        None => None,
        Some(written) => {
            let classes = state.registry.builtin("node.k8s.io", "runtimeclasses");
            let class = state.get(classes, "", written);
            Some(class.ok_or_else(|| forbidden(format!("pod rejected: RuntimeClass {written:?} not found")))?.value())
        }
    };
    apply_runtime_class(pod, class.as_ref()).map_err(forbidden)
}

/// Nothing new comes into a namespace that is not there or on its way out.
pub(crate) fn namespace_is_open(state: &State, kind: &Kind, target: &Target, value: &Value) -> Result<(), Failure> {
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
