//! Random pods: requirements, preferences and resource requests.

use muster_oracle::random::Random;
use serde_json::{Map, Value, json};

use super::cases::{EFFECTS, IMAGES, LABELS, TAINT_KEYS, TAINT_VALUES, node_name};
use super::{inter_pod_affinity, spread};

/// The requests of containers: the resource, its frequency in percent, the amounts in ascending order, and whether it
/// may be overcommitted.
const REQUESTS: &[(&str, u64, &[&str], bool)] = &[
    ("cpu", 60, &["0", "1m", "100m", "250m", "0.5", "1", "1500m"], true),
    ("memory", 55, &["0", "1", "100Ki", "64Mi", "128974848000m", "200Mi", "0.5G", "1Gi", "1.5Gi"], true),
    ("ephemeral-storage", 8, &["0", "1Mi", "0.5Gi", "2Gi"], true),
    ("nvidia.com/gpu", 8, &["0", "1", "2"], false),
    ("example.com/dongle", 2, &["0", "1"], false),
];

/// The pending pod.
pub(super) fn waiting(random: &mut Random, nodes: usize) -> Value {
    let mut pod = pod(random, "pod", 35);
    pod["spec"]["schedulerName"] = json!("muster");
    add_node_requirements(random, nodes, &mut pod["spec"]);
    inter_pod_affinity::add(random, &mut pod, 25);
    spread::add(random, &mut pod);
    if random.chance(8) {
        let container = &mut pod["spec"]["containers"][0];
        container["restartPolicy"] = json!("Never");
        container["restartPolicyRules"] =
            json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}]);
    }
    if random.chance(10) {
        pod["spec"]["volumes"] = json!([{"name": "model", "image": {"reference": random.pick(IMAGES)}}]);
    }
    pod
}

/// An existing pod: bound, or nominated to a node.
pub(super) fn other(random: &mut Random, number: usize, nodes: usize) -> Value {
    let mut pod = pod(random, &format!("other-{number}"), 20);
    pod["spec"]["schedulerName"] = json!("default-scheduler");
    inter_pod_affinity::add(random, &mut pod, 15);
    let node = if random.chance(95) { node_name(random.below(nodes)) } else { "gone".to_owned() };
    if random.chance(12) {
        pod["status"] = json!({"phase": "Pending", "nominatedNodeName": node});
        return pod;
    }
    pod["spec"]["nodeName"] = json!(node);
    let phases = ["Running", "Running", "Running", "Running", "Pending", "Succeeded", "Failed"];
    pod["status"] = json!({"phase": random.pick(&phases)});
    if random.chance(10) {
        pod["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
        pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
    }
    if random.chance(20) {
        resized(random, &mut pod);
    }
    pod
}

/// A pod of random size; `special` is the frequency of rare features, in percent.
fn pod(random: &mut Random, name: &str, special: u64) -> Value {
    let mut containers: Vec<Value> = (0..=random.below(3)).map(|index| container(random, "c", index)).collect();
    let inits = if random.chance(special) { random.below(3) } else { 0 };
    let mut init_containers: Vec<Value> = (0..inits).map(|index| container(random, "i", index)).collect();
    for container in &mut init_containers {
        if random.chance(50) {
            container["restartPolicy"] = json!("Always");
        }
    }
    let mut number = 0;
    for container in containers.iter_mut().chain(&mut init_containers) {
        if random.chance(special / 2) {
            number += 1;
            container["ports"] = json!([port(random, number)]);
        }
    }
    let mut spec = json!({"containers": containers, "initContainers": init_containers});
    if random.chance(80) {
        spec["priority"] = json!(random.between(-1, 2));
    }
    if random.chance(special / 2) {
        spec["overhead"] = json!({"cpu": "50m", "memory": "20Mi"});
    }
    if random.chance(special / 2) {
        spec["resources"] = pod_wide(random);
    }
    json!({"metadata": {"name": name, "namespace": "ml", "uid": name}, "spec": spec})
}

fn container(random: &mut Random, prefix: &str, index: usize) -> Value {
    let (mut requests, mut limits) = (Map::new(), Map::new());
    for (resource, often, amounts, overcommit) in REQUESTS {
        if !random.chance(*often) {
            continue;
        }
        let low = random.below(amounts.len());
        let high = if *overcommit { low + random.below(amounts.len() - low) } else { low };
        // Resources that cannot be overcommitted need a limit, and the request follows from it.
        let (has_request, has_limit) = if *overcommit { (random.chance(75), random.chance(40)) } else { (false, true) };
        if has_request {
            requests.insert((*resource).to_owned(), json!(amounts[low]));
        }
        if has_limit {
            limits.insert((*resource).to_owned(), json!(amounts[high]));
        }
    }
    if random.chance(4) {
        requests.insert("cpu".to_owned(), json!("10m"));
        limits.remove("cpu");
        limits.insert("hugepages-2Mi".to_owned(), json!(random.pick(&["0", "2Mi", "64Mi"])));
    }
    json!({
        "name": format!("{prefix}{index}"),
        "image": random.pick(IMAGES),
        "resources": {"requests": requests, "limits": limits},
    })
}

/// Pod-level resources, which are not less than the sum of the containers' requests.
fn pod_wide(random: &mut Random) -> Value {
    let mut resources = json!({});
    for (resource, amount) in [("cpu", "5"), ("memory", "6Gi")] {
        for list in ["requests", "limits"] {
            if random.chance(40) {
                resources[list][resource] = json!(amount);
            }
        }
    }
    resources
}

fn port(random: &mut Random, number: i64) -> Value {
    let mut port = json!({"containerPort": 8000 + number, "hostPort": 80 + random.below(2)});
    if random.chance(50) {
        port["protocol"] = json!(random.pick(&["TCP", "UDP", "SCTP"]));
    }
    if random.chance(50) {
        port["hostIP"] = json!(random.pick(&["0.0.0.0", "10.0.0.1", "127.0.0.1", "::", "fd00::1"]));
    }
    port
}

/// The status of an in-place resize.
fn resized(random: &mut Random, pod: &mut Value) {
    let mut statuses = Vec::new();
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        let mut status =
            json!({"name": container["name"], "image": "", "imageID": "", "ready": true, "restartCount": 0});
        if random.chance(70) {
            status["allocatedResources"] = size(random);
        }
        if random.chance(70) {
            status["resources"] = json!({"requests": size(random)});
        }
        statuses.push(status);
    }
    pod["status"]["containerStatuses"] = json!(statuses);
    if random.chance(30) {
        let reason = random.pick(&["Infeasible", "Deferred"]);
        pod["status"]["conditions"] = json!([{"type": "PodResizePending", "status": "True", "reason": reason}]);
    }
}

fn size(random: &mut Random) -> Value {
    json!({"cpu": random.pick(&["100m", "1", "2"]), "memory": random.pick(&["64Mi", "1Gi", "2Gi"])})
}

/// Node requirements and preferences of the pod.
fn add_node_requirements(random: &mut Random, nodes: usize, spec: &mut Value) {
    if random.chance(5) {
        let (key, values) = random.pick(LABELS);
        spec["nodeSelector"] = json!({*key: random.pick(values)});
    }
    if random.chance(10) {
        let terms: Vec<Value> = (0..=random.below(2)).map(|_| term(random, nodes)).collect();
        spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] =
            json!({"nodeSelectorTerms": terms});
    }
    if random.chance(45) {
        let preferred: Vec<Value> = (0..=random.below(3))
            .map(|_| json!({"weight": random.between(1, 100), "preference": term(random, nodes)}))
            .collect();
        spec["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"] = json!(preferred);
    }
    let tolerations: Vec<Value> = (0..random.below(4)).map(|_| toleration(random)).collect();
    spec["tolerations"] = json!(tolerations);
}

/// A term that may be empty.
fn term(random: &mut Random, nodes: usize) -> Value {
    let mut term = json!({});
    let expressions: Vec<Value> = (0..random.below(3)).map(|_| expression(random)).collect();
    if !expressions.is_empty() {
        term["matchExpressions"] = json!(expressions);
    }
    if random.chance(25) {
        let operator = random.pick(&["In", "NotIn"]);
        let name = if random.chance(90) { node_name(random.below(nodes)) } else { "gone".to_owned() };
        term["matchFields"] = json!([{"key": "metadata.name", "operator": operator, "values": [name]}]);
    }
    term
}

fn expression(random: &mut Random) -> Value {
    let (key, values) = random.pick(LABELS);
    let some: Vec<&str> = (0..=random.below(2)).map(|_| *random.pick(values)).collect();
    match *random.pick(&["In", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]) {
        operator @ ("In" | "NotIn") => json!({"key": key, "operator": operator, "values": some}),
        operator @ ("Gt" | "Lt") => {
            // The API server accepts a negative number, but kube-scheduler fails on it.
            let number = random.pick(&["0", "1", "2", "9", "007"]);
            json!({"key": key, "operator": operator, "values": [number]})
        }
        operator => json!({"key": key, "operator": operator}),
    }
}

fn toleration(random: &mut Random) -> Value {
    let mut toleration = json!({});
    if random.chance(85) {
        toleration["key"] = json!(random.pick(TAINT_KEYS));
    }
    if toleration.get("key").is_none() || random.chance(45) {
        toleration["operator"] = json!("Exists");
    } else {
        if random.chance(50) {
            toleration["operator"] = json!("Equal");
        }
        toleration["value"] = json!(random.pick(TAINT_VALUES));
    }
    if random.chance(60) {
        let effect = random.pick(EFFECTS);
        toleration["effect"] = json!(effect);
        if *effect == "NoExecute" && random.chance(50) {
            toleration["tolerationSeconds"] = json!(random.between(-1, 300));
        }
    }
    toleration
}
