//! The built-in admission plugins that matter for scheduling: namespace lifecycle, priority, runtime class, protection
//! of PodGroups, volumes and claims, default storage class, expansion of claims.

use std::cmp::Reverse;

use serde_json::{Value, json};

use super::query::DeleteOptions;
use super::request::Target;
use super::state::State;
use super::status_error::StatusError;
use crate::kinds::{
    Kind, NativeGroups, SYSTEM_CLASSES, Strategy, apply_runtime_class, class_of, mark_not_ready, quantity,
    tolerate_lost_nodes,
};

/// The finalizer that keeps a PodGroup until all of its pods have terminated.
pub(crate) const PROTECTION_FINALIZER: &str = "scheduling.k8s.io/podgroup-protection";

/// The finalizer that keeps a claim while pods on nodes use it.
const CLAIM_PROTECTION_FINALIZER: &str = "kubernetes.io/pvc-protection";
/// The finalizer that keeps a volume while it is bound.
const VOLUME_PROTECTION_FINALIZER: &str = "kubernetes.io/pv-protection";
/// The annotations of the default storage class.
const DEFAULT_CLASS_ANNOTATIONS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Mutating admission of a new object, before validation.
pub(crate) fn admit_create(state: &State, kind: &Kind, target: &Target, value: &mut Value) -> Result<(), StatusError> {
    if kind.namespaced {
        check_namespace_lifecycle(state, kind, target, value)?;
    }
    if matches!(kind.strategy, Strategy::Custom(_)) {
        check_definition_not_terminating(state, kind, value)?;
    }
    drop_disabled_group_references(state, kind, value);
    if kind.is("", "pods") {
        set_pod_priority(state, kind, value)?;
        admit_runtime_class(state, kind, value)?;
        tolerate_lost_nodes(value);
    }
    if kind.is("", "nodes") {
        mark_not_ready(value);
    }
    if kind.is("scheduling.k8s.io", "podgroups") && kind.is_builtin() {
        set_group_priority(state, kind, value)?;
        add_finalizer(value, PROTECTION_FINALIZER);
    }
    if kind.is("scheduling.k8s.io", "compositepodgroups") && kind.is_builtin() {
        set_group_priority(state, kind, value)?;
    }
    if kind.is("", "persistentvolumeclaims") {
        set_default_storage_class(state, value);
        add_finalizer(value, CLAIM_PROTECTION_FINALIZER);
    }
    if kind.is("", "persistentvolumes") {
        add_finalizer(value, VOLUME_PROTECTION_FINALIZER);
    }
    Ok(())
}

/// Validating admission of a new object.
pub(crate) fn validate_create(state: &State, kind: &Kind, value: &Value) -> Result<(), StatusError> {
    if kind.is("scheduling.k8s.io", "podgroups") && kind.native_groups == NativeGroups::V1alpha2 && kind.is_builtin() {
        check_template_exists(state, kind, value)?;
    }
    if kind.is("scheduling.k8s.io", "priorityclasses") { check_single_default(state, kind, value) } else { Ok(()) }
}

/// In 1.36 the template that a PodGroup references must exist.
fn check_template_exists(state: &State, kind: &Kind, group: &Value) -> Result<(), StatusError> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let template = &group["spec"]["podGroupTemplateRef"]["workload"];
    if !template.is_object() {
        return Ok(());
    }
    let forbidden = |why: String| StatusError::forbidden(kind.group_resource(), &text(&group["metadata"]["name"]), why);
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

/// A server without PodGroups drops references to them, also in pod templates.
fn drop_disabled_group_references(state: &State, kind: &Kind, value: &mut Value) {
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

/// Mutating admission of an update, before validation.
pub(crate) fn admit_update(state: &State, kind: &Kind, value: &mut Value) -> Result<(), StatusError> {
    drop_disabled_group_references(state, kind, value);
    if kind.is("", "pods") {
        tolerate_lost_nodes(value);
    }
    if kind.is("scheduling.k8s.io", "priorityclasses") { check_single_default(state, kind, value) } else { Ok(()) }
}

/// Admission of a delete.
pub(crate) fn admit_delete(kind: &Kind, name: &str) -> Result<(), StatusError> {
    let is_system_class = SYSTEM_CLASSES.iter().any(|(class, _, _)| *class == name);
    if kind.is("scheduling.k8s.io", "priorityclasses") && is_system_class {
        return Err(StatusError::forbidden(
            kind.group_resource(),
            name,
            "this is a system priority class and cannot be deleted",
        ));
    }
    Ok(())
}

/// The warning for a client that deletes an object.
pub(crate) fn delete_warning(kind: &Kind, options: &DeleteOptions) -> Option<String> {
    let is_surprising = kind.is("batch", "jobs") && options.propagation.is_none();
    is_surprising.then(|| "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning".to_owned())
}

/// Rejects new objects of a kind whose definition is being deleted.
fn check_definition_not_terminating(state: &State, kind: &Kind, value: &Value) -> Result<(), StatusError> {
    let definitions = state.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let definition = state.get(definitions, "", &format!("{}.{}", kind.plural, kind.group));
    if definition.is_some_and(|definition| definition.deleting) {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let why = "create not allowed while custom resource definition is terminating";
        return Err(StatusError::forbidden(kind.group_resource(), name, why));
    }
    Ok(())
}

/// Applies the RuntimeClass of a pod.
fn admit_runtime_class(state: &State, kind: &Kind, pod: &mut Value) -> Result<(), StatusError> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let forbidden = |why: String| StatusError::forbidden(kind.group_resource(), &name, why);
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

/// Rejects new objects in a namespace that does not exist or is terminating.
pub(crate) fn check_namespace_lifecycle(
    state: &State,
    kind: &Kind,
    target: &Target,
    value: &Value,
) -> Result<(), StatusError> {
    let namespaces = state.registry.builtin("", "namespaces");
    let Some(namespace) = state.get(namespaces, "", &target.namespace) else {
        return Err(StatusError::not_found(namespaces.group_resource(), &target.namespace));
    };
    if namespace.deleting {
        let name = value["metadata"]["name"].as_str().unwrap_or_default();
        let why =
            format!("unable to create new content in namespace {} because it is being terminated", target.namespace);
        let cause = format!("namespace {} is being terminated", target.namespace);
        return Err(StatusError::forbidden(kind.group_resource(), name, why).with_cause(
            "NamespaceTerminating",
            cause,
            "metadata.namespace",
        ));
    }
    Ok(())
}

/// A resolved PriorityClass.
struct Priority {
    class: String,
    value: i64,
    policy: Option<String>,
}

/// Resolves a class name; without a name the default class, or zero.
fn resolve_priority_class(state: &State, kind: &Kind, value: &Value) -> Result<Priority, StatusError> {
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let classes = state.registry.builtin("scheduling.k8s.io", "priorityclasses");
    let written = value["spec"]["priorityClassName"].as_str().unwrap_or_default();
    let class = if written.is_empty() {
        let all = state.store.list(classes.table, None).map(|class| class.value());
        all.filter(|class| class["globalDefault"] == true).min_by_key(|class| class["value"].as_i64())
    } else {
        let class = state.get(classes, "", written);
        let missing = || {
            StatusError::forbidden(
                kind.group_resource(),
                name,
                format!("no PriorityClass with name {written} was found"),
            )
        };
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

fn set_pod_priority(state: &State, kind: &Kind, pod: &mut Value) -> Result<(), StatusError> {
    let priority = resolve_priority_class(state, kind, pod)?;
    let name = pod["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let spec = &mut pod["spec"];
    if let Some(written) = spec["priority"].as_i64().filter(|written| *written != priority.value) {
        let why = format!(
            "the integer value of priority ({written}) must not be provided in pod spec; priority admission controller computed {} from the given PriorityClass name",
            priority.value
        );
        return Err(StatusError::forbidden(kind.group_resource(), &name, why));
    }
    if let (Some(written), Some(policy)) = (spec["preemptionPolicy"].as_str(), &priority.policy)
        && written != policy
    {
        let why = format!(
            "the string value of PreemptionPolicy ({written}) must not be provided in pod spec; priority admission controller computed {policy} from the given PriorityClass name"
        );
        return Err(StatusError::forbidden(kind.group_resource(), &name, why));
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

fn set_group_priority(state: &State, kind: &Kind, group: &mut Value) -> Result<(), StatusError> {
    let priority = resolve_priority_class(state, kind, group)?;
    let name = group["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let spec = &mut group["spec"];
    if let Some(written) = spec["priority"].as_i64().filter(|written| *written != priority.value) {
        let why = format!(
            "priority set in the pod group ({written}) must match the priority computed ({}) based on the priority class set in the spec",
            priority.value
        );
        return Err(StatusError::forbidden(kind.group_resource(), &name, why));
    }
    spec["priority"] = json!(priority.value);
    if !priority.class.is_empty() {
        spec["priorityClassName"] = json!(priority.class);
    }
    Ok(())
}

fn add_finalizer(object: &mut Value, name: &str) {
    let finalizers = &mut object["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(list) if list.iter().any(|finalizer| finalizer == name) => {}
        Some(list) => list.push(json!(name)),
        None => *finalizers = json!([name]),
    }
}

/// A claim that names no class gets the default one: the newest, the first by name of several.
fn set_default_storage_class(state: &State, claim: &mut Value) {
    if class_of(claim).is_some() {
        return;
    }
    let classes = state.registry.builtin("storage.k8s.io", "storageclasses");
    let all = state.store.list(classes.table, None).map(|class| class.value());
    let marked = all
        .filter(|class| DEFAULT_CLASS_ANNOTATIONS.iter().any(|key| class["metadata"]["annotations"][*key] == "true"));
    let text = |class: &Value, field: &str| class["metadata"][field].as_str().unwrap_or_default().to_owned();
    let age = |class: &Value| (Reverse(text(class, "creationTimestamp")), text(class, "name"));
    if let Some(class) = marked.min_by_key(age) {
        claim["spec"]["storageClassName"] = class["metadata"]["name"].clone();
    }
}

/// Validating admission of an update.
pub(crate) fn validate_update(state: &State, kind: &Kind, value: &Value, was: &Value) -> Result<(), StatusError> {
    if kind.is("", "persistentvolumeclaims") { check_expansion(state, kind, value, was) } else { Ok(()) }
}

/// Only a bound claim whose class allows it can grow.
fn check_expansion(state: &State, kind: &Kind, claim: &Value, was: &Value) -> Result<(), StatusError> {
    let size = |claim: &Value| quantity(&claim["spec"]["resources"]["requests"]["storage"]).unwrap_or_default();
    if size(claim) <= size(was) {
        return Ok(());
    }
    let name = claim["metadata"]["name"].as_str().unwrap_or_default();
    let forbidden = |why: &str| Err(StatusError::forbidden(kind.group_resource(), name, why));
    if was["status"]["phase"] != "Bound" {
        return forbidden("Only bound persistent volume claims can be expanded");
    }
    let classes = state.registry.builtin("storage.k8s.io", "storageclasses");
    let class = class_of(claim).filter(|class| !class.is_empty() && class_of(was) == Some(*class));
    let class = class.and_then(|class| state.get(classes, "", class));
    if class.is_some_and(|class| class.value()["allowVolumeExpansion"] == true) {
        return Ok(());
    }
    forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    )
}

/// Rejects a second default PriorityClass.
fn check_single_default(state: &State, kind: &Kind, value: &Value) -> Result<(), StatusError> {
    if value["globalDefault"] != true {
        return Ok(());
    }
    let name = value["metadata"]["name"].as_str().unwrap_or_default();
    let mut others = state.store.list(kind.table, None).filter(|class| *class.key.name != *name);
    match others.find(|class| class.value()["globalDefault"] == true) {
        Some(other) => {
            let why =
                format!("PriorityClass {} is already marked as default. Only one default can exist", other.key.name);
            Err(StatusError::forbidden(kind.group_resource(), name, why))
        }
        None => Ok(()),
    }
}
