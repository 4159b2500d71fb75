//! Random topology spread: constraints of pods, and the services and controllers of pods without any.

use muster_oracle::random::Random;
use serde_json::{Value, json};

use super::inter_pod_affinity::{KEYS, LABELS, selector};

/// Gives some pods spread constraints.
pub(super) fn add(random: &mut Random, pod: &mut Value) {
    if !random.chance(30) {
        return;
    }
    let mut constraints: Vec<Value> = Vec::new();
    for _ in 0..=random.below(3) {
        let constraint = constraint(random);
        let twice = |other: &Value| {
            ["topologyKey", "whenUnsatisfiable"].iter().all(|field| other[*field] == constraint[*field])
        };
        if !constraints.iter().any(twice) {
            constraints.push(constraint);
        }
    }
    pod["spec"]["topologySpreadConstraints"] = json!(constraints);
}

fn constraint(random: &mut Random) -> Value {
    let key = if random.chance(96) { KEYS[random.below(3)] } else { KEYS[3] };
    let must = random.chance(40);
    let mut constraint = json!({
        "topologyKey": key,
        "maxSkew": random.between(1, 3),
        "whenUnsatisfiable": if must { "DoNotSchedule" } else { "ScheduleAnyway" },
    });
    if random.chance(95) {
        constraint["labelSelector"] = selector(random, LABELS);
        if random.chance(12) {
            constraint["matchLabelKeys"] = json!(["pod-template-hash"]);
        }
    }
    if must && random.chance(25) {
        constraint["minDomains"] = json!(random.between(1, 4));
    }
    for policy in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        if random.chance(25) {
            constraint[policy] = json!(random.pick(&["Honor", "Ignore"]));
        }
    }
    constraint
}

/// Adds services to a case, and a controller to some pending pods.
pub(super) fn add_owners(random: &mut Random, case: &mut Value) {
    let labels = |random: &mut Random| {
        let (key, values) = LABELS[random.below(2)];
        json!({key: random.pick(values)})
    };
    let service = |number: usize, random: &mut Random| {
        let mut service = json!({"metadata": {"name": format!("s{number}"), "namespace": "ml"}, "spec": {}});
        if random.chance(90) {
            service["spec"]["selector"] = labels(random);
        }
        service
    };
    let services: Vec<Value> = (0..random.below(3)).map(|number| service(number, random)).collect();
    case["services"] = json!(services);
    if !random.chance(40) {
        return;
    }
    let (list, api_version, kind) = *random.pick(&[
        ("replicationControllers", "v1", "ReplicationController"),
        ("replicaSets", "apps/v1", "ReplicaSet"),
        ("statefulSets", "apps/v1", "StatefulSet"),
    ]);
    let selector_value = if kind == "ReplicationController" { labels(random) } else { selector(random, LABELS) };
    let namespace = case["pod"]["metadata"]["namespace"].clone();
    case[list] = json!([{"metadata": {"name": "o", "namespace": namespace}, "spec": {"selector": selector_value}}]);
    case["pod"]["metadata"]["ownerReferences"] =
        json!([{"apiVersion": api_version, "kind": kind, "name": "o", "uid": "1", "controller": true}]);
}
