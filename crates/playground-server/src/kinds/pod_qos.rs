//! The quality-of-service class of a pod.

use muster_api::quantity::Quantity;
use serde_json::Value;

const COUNTED: [&str; 2] = ["cpu", "memory"];

/// `Guaranteed`, `Burstable` or `BestEffort`.
pub(super) fn class_of(spec: &Value) -> &'static str {
    let containers = ["containers", "initContainers"].into_iter();
    let containers: Vec<&Value> = containers.filter_map(|list| spec[list].as_array()).flatten().collect();
    let mut resources: Vec<&Value> = containers.iter().map(|container| &container["resources"]).collect();
    if spec["resources"].is_object() {
        resources = vec![&spec["resources"]];
    }
    let any = resources.iter().any(|resources| {
        ["requests", "limits"].iter().any(|list| COUNTED.iter().any(|name| amount(&resources[list][name]).is_some()))
    });
    if !any {
        return "BestEffort";
    }
    let guaranteed = resources.iter().all(|resources| {
        COUNTED.iter().all(|name| {
            let limit = amount(&resources["limits"][name]);
            limit.is_some() && limit == amount(&resources["requests"][name])
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

fn amount(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| text.parse().ok()).filter(|quantity: &Quantity| !quantity.is_zero())
}
