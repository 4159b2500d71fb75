//! Validates updates of a pod's spec.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::{pod, pod_placement};

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The errors of an update of a pod.
pub(super) fn validate(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = pod::validate_common(new);
    let (spec, old) = (&new["spec"], &old["spec"]);
    for list in ["containers", "initContainers"] {
        if length(&spec[list]) != length(&old[list]) {
            errors.push(FieldError::forbidden(format!("spec.{list}"), "pod updates may not add or remove containers"));
            return errors;
        }
    }
    let deadline = deadline_error(spec, old);
    // An increased deadline is the only error reported to such a client.
    let is_longer = deadline.is_some() && !spec["activeDeadlineSeconds"].is_null();
    errors.extend(deadline);
    if is_longer {
        return errors;
    }
    errors.extend(toleration_errors(spec, old));
    errors.extend(gate_errors(spec, old));
    let mut masked = masked(spec, old);
    if pod::is_gated(old) {
        errors.extend(selector_error(spec, old));
        put(&mut masked, "nodeSelector", &old["nodeSelector"]);
        errors.extend(affinity_errors(spec, old));
        mask_node_affinity(&mut masked, old);
    }
    if masked != *old {
        // kube-apiserver appends a diff; here the names of the changed fields are appended.
        let detail =
            format!("pod updates may not change fields other than {UPDATABLE}\nchanged: {}", changed(&masked, old));
        errors.push(FieldError::forbidden("spec", detail));
    }
    errors
}

fn length(list: &Value) -> usize {
    list.as_array().map_or(0, Vec::len)
}

fn put(spec: &mut Value, field: &str, value: &Value) {
    let Some(fields) = spec.as_object_mut() else { return };
    if value.is_null() {
        fields.remove(field)
    } else {
        fields.insert(field.to_owned(), value.clone())
    };
}

/// The new spec with all mutable fields restored.
fn masked(spec: &Value, old: &Value) -> Value {
    let mut masked = spec.clone();
    for list in ["containers", "initContainers"] {
        for index in 0..length(&old[list]) {
            put(&mut masked[list][index], "image", &old[list][index]["image"]);
        }
    }
    for field in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        put(&mut masked, field, &old[field]);
    }
    let grace = "terminationGracePeriodSeconds";
    if old[grace].as_i64().is_some_and(|seconds| seconds < 0) && masked[grace] == 1 {
        put(&mut masked, grace, &old[grace]);
    }
    masked
}

fn changed(new: &Value, old: &Value) -> String {
    let keys =
        |value: &Value| value.as_object().map(|fields| fields.keys().cloned().collect::<Vec<_>>()).unwrap_or_default();
    let mut names: Vec<String> = keys(new).into_iter().chain(keys(old)).filter(|key| new[key] != old[key]).collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

fn deadline_error(spec: &Value, old: &Value) -> Option<FieldError> {
    let field = "spec.activeDeadlineSeconds";
    let (new, old) = (&spec["activeDeadlineSeconds"], &old["activeDeadlineSeconds"]);
    match (new.as_i64(), old.as_i64()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            Some(FieldError::invalid(field, new.clone(), "must be between 0 and 2147483647, inclusive"))
        }
        (Some(seconds), Some(before)) if before < seconds => {
            Some(FieldError::invalid(field, new.clone(), "must be less than or equal to previous value"))
        }
        (None, Some(_)) => {
            Some(FieldError::invalid(field, Value::Null, "must not update from a positive integer to nil value"))
        }
        _ => None,
    }
}

fn toleration_errors(spec: &Value, old: &Value) -> Vec<FieldError> {
    let list = |spec: &Value| spec["tolerations"].as_array().cloned().unwrap_or_default();
    let new = list(spec);
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        put(&mut toleration, "tolerationSeconds", &Value::Null);
        toleration
    };
    // The seconds of a toleration may change; the toleration itself may not be removed.
    let kept = list(old).iter().all(|before| new.iter().any(|now| without_seconds(now) == without_seconds(before)));
    if kept {
        return pod_placement::toleration_errors(&spec["tolerations"], "spec.tolerations");
    }
    let detail = "existing toleration can not be modified except its tolerationSeconds";
    vec![FieldError::forbidden("spec.tolerations", detail)]
}

fn gate_errors(spec: &Value, old: &Value) -> Vec<FieldError> {
    let names = |spec: &Value| -> Vec<Value> {
        spec["schedulingGates"].as_array().into_iter().flatten().map(|gate| gate["name"].clone()).collect()
    };
    let before = names(old);
    let added = names(spec).into_iter().enumerate().filter(|(_, name)| !before.contains(name));
    added
        .map(|(index, name)| {
            let detail = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.as_str().unwrap_or_default()
            );
            FieldError::forbidden(format!("spec.schedulingGates[{index}].name"), detail)
        })
        .collect()
}

/// The node selector of a gated pod may only be extended.
fn selector_error(spec: &Value, old: &Value) -> Option<FieldError> {
    let before = old["nodeSelector"].as_object().cloned().unwrap_or_default();
    let kept = before.iter().all(|(key, value)| spec["nodeSelector"].get(key) == Some(value));
    (!kept).then(|| {
        let detail = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        FieldError::invalid("spec.nodeSelector", json!(spec["nodeSelector"]), detail)
    })
}

fn node_terms(spec: &Value) -> &Value {
    &spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
}

/// The required node affinity of a gated pod may only become more restrictive.
fn affinity_errors(spec: &Value, old: &Value) -> Vec<FieldError> {
    const TERMS: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let (now, before) = (node_terms(spec), node_terms(old));
    if length(before) == 0 || spec["affinity"]["nodeAffinity"] == old["affinity"]["nodeAffinity"] {
        return Vec::new();
    }
    if length(now) != length(before) {
        let detail = "no additions/deletions to non-empty NodeSelectorTerms list are allowed";
        return vec![FieldError::invalid(TERMS, now.clone(), detail)];
    }
    let wider = (0..length(before)).filter(|index| !only_adds(&now[*index], &before[*index]));
    let detail = "only additions are allowed (no mutations or deletions)";
    wider.map(|index| FieldError::invalid(format!("{TERMS}[{index}]"), now[index].clone(), detail)).collect()
}

fn only_adds(now: &Value, before: &Value) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    let starts_with = |list: &&str| {
        let (now, before) = (now[*list].as_array(), before[*list].as_array());
        before.is_none_or(|before| now.is_some_and(|now| now.starts_with(before)) || before.is_empty())
    };
    // An empty term matches nothing, so adding to it would match more nodes.
    let was_empty = lists.iter().all(|list| length(&before[list]) == 0);
    let is_empty = lists.iter().all(|list| length(&now[list]) == 0);
    if was_empty { is_empty } else { lists.iter().all(starts_with) }
}

/// Restores the old node affinity, without leaving an empty affinity.
fn mask_node_affinity(masked: &mut Value, old: &Value) {
    let was = &old["affinity"]["nodeAffinity"];
    if masked["affinity"].is_null() {
        if !was.is_null() {
            masked["affinity"] = json!({"nodeAffinity": was});
        }
        return;
    }
    put(&mut masked["affinity"], "nodeAffinity", was);
    if old["affinity"].is_null() && masked["affinity"] == json!({}) {
        put(masked, "affinity", &Value::Null);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gated_pod_may_only_become_more_restrictive() {
        let rack = json!({"key": "rack", "operator": "Exists"});
        let zone = json!({"key": "zone", "operator": "Exists"});
        let term = |expressions: &[&Value]| json!({"matchExpressions": expressions});
        for (now, before, allowed) in [
            (term(&[&rack, &zone]), term(&[&rack]), true),
            (term(&[&zone, &rack]), term(&[&rack]), false),
            (term(&[]), term(&[&rack]), false),
            (term(&[&rack]), term(&[]), false),
            (term(&[]), term(&[]), true),
        ] {
            assert_eq!(only_adds(&now, &before), allowed, "{now} after {before}");
        }
    }
}
