//! Applies a RuntimeClass to the pods that use it.

use muster_api::quantity::Quantity;
use serde_json::{Value, json};

/// Sets the class's overhead and scheduling constraints on a new pod. The error is why the pod is rejected.
pub(crate) fn apply(pod: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let overhead = class.map_or(&Value::Null, |class| &class["overhead"]["podFixed"]);
    let spec = &mut pod["spec"];
    if overhead.is_null() {
        if spec["overhead"].is_null() {
            return schedule(spec, class);
        }
        return Err("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead".to_owned());
    }
    if !spec["overhead"].is_null() && !same_amounts(overhead, &spec["overhead"]) {
        return Err("pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead".to_owned());
    }
    spec["overhead"] = overhead.clone();
    schedule(spec, class)
}

fn same_amounts(left: &Value, right: &Value) -> bool {
    let amount = |value: &Value| value.as_str().and_then(|text| text.parse::<Quantity>().ok());
    let covers = |left: &Value, right: &Value| {
        left.as_object().into_iter().flatten().all(|(name, value)| amount(value) == amount(&right[name]))
    };
    covers(left, right) && covers(right, left)
}

/// Adds the class's node selector and tolerations.
fn schedule(spec: &mut Value, class: Option<&Value>) -> Result<(), String> {
    let Some(scheduling) = class.map(|class| &class["scheduling"]) else { return Ok(()) };
    for (key, value) in scheduling["nodeSelector"].as_object().into_iter().flatten() {
        let written = &spec["nodeSelector"][key];
        if !written.is_null() && written != value {
            let (value, written) = (value.as_str().unwrap_or_default(), written.as_str().unwrap_or_default());
            return Err(format!(
                "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {written}"
            ));
        }
        spec["nodeSelector"][key] = value.clone();
    }
    for toleration in scheduling["tolerations"].as_array().into_iter().flatten() {
        if !spec["tolerations"].is_array() {
            spec["tolerations"] = json!([]);
        }
        if let Some(list) = spec["tolerations"].as_array_mut()
            && !list.contains(toleration)
        {
            list.push(toleration.clone());
        }
    }
    Ok(())
}
