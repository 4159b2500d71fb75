//! Random small clusters: various nodes with pods on them, and one pending pod.
//!
//! The values are few and close to each other, so that rare combinations happen often.

use muster_oracle::random::Random;
use serde_json::{Map, Value, json};

use super::{configuration, inter_pod_affinity, pods, spread, volumes};

/// Labels of nodes, with the values that they take.
pub(super) const LABELS: &[(&str, &[&str])] = &[
    ("topology.kubernetes.io/zone", &["a", "b", "c"]),
    ("example.com/generation", &["1", "2", "10", "x", "007", "9223372036854775808"]),
    ("disk", &["", "ssd"]),
];

/// Keys of taints.
pub(super) const TAINT_KEYS: &[&str] = &["dedicated", "example.com/old", "node.kubernetes.io/unschedulable"];

/// Values of taints.
pub(super) const TAINT_VALUES: &[&str] = &["", "yes", "no"];

/// Effects of taints.
pub(super) const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Images that are on some nodes.
pub(super) const IMAGES: &[&str] = &["registry.example/app:1", "registry.example/tool", "busybox"];

/// Features that nodes declare.
const FEATURES: &[&str] = &["RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport"];

/// The allocatable resources of nodes: the resource, its frequency in percent, and the possible amounts.
const ALLOCATABLE: &[(&str, u64, &[&str])] = &[
    ("cpu", 98, &["0", "500m", "1500m", "4", "8", "8", "16", "16", "32"]),
    ("memory", 98, &["0", "512Mi", "3.5Gi", "4Gi", "8589934592", "16e9", "16Gi", "32Gi", "32Gi", "64Gi"]),
    ("pods", 98, &["0", "2", "5", "10", "110", "110", "110", "110", "110", "110"]),
    ("ephemeral-storage", 70, &["0", "1Gi", "10G", "100Gi"]),
    ("nvidia.com/gpu", 50, &["0", "1", "2", "8"]),
    ("example.com/dongle", 20, &["1", "3"]),
    ("hugepages-2Mi", 30, &["0", "64Mi", "1Gi"]),
    ("attachable-volumes-x", 5, &["25"]),
];

/// A cluster and a pending pod.
pub(super) fn case(random: &mut Random) -> Value {
    let count = 1 + random.below(12);
    let mut nodes: Vec<Value> = Vec::new();
    for number in 0..count {
        let node = match nodes.last() {
            Some(last) if random.chance(30) => twin(last, number),
            _ => node(random, number),
        };
        nodes.push(node);
    }
    let pods: Vec<Value> = (0..random.below(2 * count)).map(|number| pods::other(random, number, count)).collect();
    let pod = pods::waiting(random, count);
    let mut case = json!({"namespaces": inter_pod_affinity::namespaces(), "nodes": nodes, "pods": pods, "pod": pod});
    spread::add_owners(random, &mut case);
    volumes::add(random, &mut case);
    configuration::add(random, &mut case);
    case
}

/// The name of a node; some are longer than a label value may be.
pub(super) fn node_name(number: usize) -> String {
    if number.is_multiple_of(3) { format!("node-{number}.example.com") } else { format!("n{number}") }
}

fn node(random: &mut Random, number: usize) -> Value {
    let name = node_name(number);
    let mut labels = Map::new();
    labels.insert("kubernetes.io/hostname".to_owned(), json!(name));
    for (key, values) in LABELS {
        if random.chance(70) {
            labels.insert((*key).to_owned(), json!(random.pick(values)));
        }
    }
    let mut allocatable = Map::new();
    for (resource, often, amounts) in ALLOCATABLE {
        if random.chance(*often) {
            allocatable.insert((*resource).to_owned(), json!(random.pick(amounts)));
        }
    }
    let mut node = json!({
        "metadata": {"name": name, "labels": labels, "uid": format!("uid-{number}")},
        "spec": {"taints": taints(random)},
        "status": {"allocatable": allocatable, "capacity": allocatable, "images": images(random)},
    });
    let features: Vec<&str> = FEATURES.iter().copied().filter(|_| random.chance(85)).collect();
    if !features.is_empty() {
        node["status"]["declaredFeatures"] = json!(features);
    }
    if random.chance(6) {
        node["spec"]["unschedulable"] = json!(true);
    }
    node
}

/// The same node with another name.
fn twin(node: &Value, number: usize) -> Value {
    let mut twin = node.clone();
    let name = json!(node_name(number));
    twin["metadata"]["uid"] = json!(format!("uid-{number}"));
    twin["metadata"]["labels"]["kubernetes.io/hostname"] = name.clone();
    twin["metadata"]["name"] = name;
    twin
}

/// Taints with distinct keys and effects.
fn taints(random: &mut Random) -> Vec<Value> {
    let mut taints = Vec::new();
    for key in TAINT_KEYS {
        for effect in EFFECTS {
            let often = if *effect == "PreferNoSchedule" { 20 } else { 2 };
            if random.chance(often) {
                taints.push(json!({"key": key, "value": random.pick(TAINT_VALUES), "effect": effect}));
            }
        }
    }
    taints
}

fn images(random: &mut Random) -> Vec<Value> {
    let mut images = Vec::new();
    for image in IMAGES {
        if random.chance(30) {
            let names = if image.contains(':') { json!([image]) } else { json!([format!("{image}:latest"), "x"]) };
            images.push(json!({"names": names, "sizeBytes": random.between(1, 2000) << 20}));
        }
    }
    images
}
