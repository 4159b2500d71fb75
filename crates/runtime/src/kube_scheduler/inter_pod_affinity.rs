//! Random inter-pod affinity: labels of pods, and affinity terms.

use muster_oracle::random::Random;
use serde_json::{Map, Value, json};

/// Namespaces and their labels.
pub(super) const NAMESPACES: &[(&str, &[(&str, &str)])] =
    &[("ml", &[("team", "a")]), ("web", &[("team", "b")]), ("bare", &[])];

/// Labels of pods, with the values that they take.
pub(super) const LABELS: &[(&str, &[&str])] =
    &[("app", &["a", "b"]), ("tier", &["x", "y", ""]), ("pod-template-hash", &["1", "2"])];

/// Topology keys; not every node has each.
pub(super) const KEYS: &[&str] = &["kubernetes.io/hostname", "topology.kubernetes.io/zone", "disk", "none"];

/// The namespaces of a case: all of them, since every pod is in one of them.
pub(super) fn namespaces() -> Vec<Value> {
    let namespace = |(name, labels): &(&str, &[(&str, &str)])| {
        let labels: Map<String, Value> = labels.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        json!({"metadata": {"name": name, "labels": labels}})
    };
    NAMESPACES.iter().map(namespace).collect()
}

/// Gives a pod a namespace and labels, and some pods affinity terms.
pub(super) fn add(random: &mut Random, pod: &mut Value, often: u64) {
    pod["metadata"]["namespace"] = json!(if random.chance(75) { "ml" } else { random.pick(NAMESPACES).0 });
    for (key, values) in LABELS {
        if random.chance(65) {
            pod["metadata"]["labels"][*key] = json!(random.pick(values));
        }
    }
    for (kind, preferred_percent) in [("podAffinity", 40), ("podAntiAffinity", 60)] {
        if random.chance(often * preferred_percent / 100) {
            let terms: Vec<Value> = (0..=random.below(2)).map(|_| term(random)).collect();
            pod["spec"]["affinity"][kind]["requiredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
        }
        if random.chance(often) {
            let weighted =
                |random: &mut Random| json!({"weight": random.between(1, 100), "podAffinityTerm": term(random)});
            let terms: Vec<Value> = (0..=random.below(2)).map(|_| weighted(random)).collect();
            pod["spec"]["affinity"][kind]["preferredDuringSchedulingIgnoredDuringExecution"] = json!(terms);
        }
    }
}

fn term(random: &mut Random) -> Value {
    let key = if random.chance(95) { KEYS[random.below(3)] } else { KEYS[3] };
    let mut term = json!({"topologyKey": key});
    if random.chance(95) {
        term["labelSelector"] = selector(random, LABELS);
        for list in ["matchLabelKeys", "mismatchLabelKeys"] {
            if random.chance(8) {
                term[list] = json!(["pod-template-hash"]);
                break;
            }
        }
    }
    if random.chance(15) {
        let names: Vec<&str> = (0..=random.below(2)).map(|_| random.pick(NAMESPACES).0).collect();
        term["namespaces"] = json!(names);
    }
    if random.chance(15) {
        term["namespaceSelector"] = selector(random, &[("team", &["a", "b"])]);
    }
    term
}

/// A selector over labels; it may be empty.
pub(super) fn selector(random: &mut Random, labels: &[(&str, &[&str])]) -> Value {
    let mut selector = json!({});
    if random.chance(60) {
        // The revision label must not be both here and in `matchLabelKeys`.
        let (key, values) = labels[random.below(labels.len().min(2))];
        selector["matchLabels"] = json!({key: random.pick(values)});
    }
    if random.chance(35) {
        let (key, values) = labels[random.below(labels.len().min(2))];
        let expression = match *random.pick(&["In", "NotIn", "Exists", "DoesNotExist"]) {
            operator @ ("In" | "NotIn") => json!({"key": key, "operator": operator, "values": [random.pick(values)]}),
            operator => json!({"key": key, "operator": operator}),
        };
        selector["matchExpressions"] = json!([expression]);
    }
    selector
}
