//! Random storage classes, drivers, limits of nodes, published capacity and attachments.

use muster_oracle::random::Random;
use serde_json::{Value, json};

pub(super) const ZONE: &str = "topology.kubernetes.io/zone";

/// The classes whose claims wait for their first consumer.
pub(super) const CLASSES: &[&str] = &["static", "csi", "csi", "zonal"];

/// The drivers of volumes and classes.
pub(super) const DRIVERS: &[&str] = &["csi.example.com", "zonal.example.com"];

/// Adds them to a case with these nodes and volumes.
pub(super) fn add(random: &mut Random, case: &mut Value, nodes: &[String], volumes: &[Value]) {
    case["storageClasses"] = json!([
        class(random, "static", "kubernetes.io/no-provisioner", "WaitForFirstConsumer"),
        class(random, "csi", DRIVERS[0], "WaitForFirstConsumer"),
        class(random, "zonal", DRIVERS[1], "WaitForFirstConsumer"),
        class(random, "at-once", DRIVERS[0], "Immediate"),
    ]);
    let mut drivers = Vec::new();
    for name in DRIVERS {
        if random.chance(80) {
            let mut driver = json!({"metadata": {"name": name}, "spec": {"storageCapacity": random.chance(45)}});
            if random.chance(20) {
                driver["spec"]["preventPodSchedulingIfMissing"] = json!(random.chance(70));
            }
            drivers.push(driver);
        }
    }
    case["csiDrivers"] = json!(drivers);
    // kube-scheduler scores by any capacity that a node has: they only differ in who has them.
    let sizes = CLASSES_WITH_CAPACITY.map(|_| *random.pick(&["", "0", "1400Mi", "1.5Gi", "10Gi", "10Gi"]));
    let capacities: Vec<Value> = (0..random.below(5)).map(|number| capacity(random, number, sizes)).collect();
    case["csiStorageCapacities"] = json!(capacities);
    let node_drivers = nodes.iter().filter(|_| random.chance(75)).cloned().collect::<Vec<String>>();
    let node_drivers: Vec<Value> = node_drivers.iter().map(|node| on_node(random, node)).collect();
    case["csiNodes"] = json!(node_drivers);
    let attachments: Vec<Value> =
        (0..random.below(6)).map(|number| attachment(random, number, nodes, volumes)).collect();
    case["volumeAttachments"] = json!(attachments);
}

fn class(random: &mut Random, name: &str, provisioner: &str, mode: &str) -> Value {
    let mut class = json!({"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": mode});
    if random.chance(35) {
        let terms: Vec<Value> = (0..random.below(3)).map(|_| topology(random)).collect();
        class["allowedTopologies"] = json!(terms);
    }
    class
}

/// A term that may be empty.
fn topology(random: &mut Random) -> Value {
    let mut expressions = Vec::new();
    if random.chance(90) {
        let values: Vec<&str> = (0..=random.below(2)).map(|_| *random.pick(&["a", "b", "c"])).collect();
        expressions.push(json!({"key": ZONE, "values": values}));
    }
    if random.chance(15) {
        expressions.push(json!({"key": "disk", "values": ["ssd"]}));
    }
    json!({"matchLabelExpressions": expressions})
}

const CLASSES_WITH_CAPACITY: [&str; 2] = ["csi", "zonal"];

fn capacity(random: &mut Random, number: usize, sizes: [&str; 2]) -> Value {
    let class = random.below(2);
    let mut capacity = json!({
        "metadata": {"name": format!("capacity-{number}"), "namespace": "kube-system"},
        "storageClassName": CLASSES_WITH_CAPACITY[class],
    });
    match random.below(10) {
        0 => {}
        1..3 => capacity["nodeTopology"] = json!({}),
        3..8 => capacity["nodeTopology"] = json!({"matchLabels": {ZONE: random.pick(&["a", "b", "c"])}}),
        _ => {
            let expression = json!({"key": ZONE, "operator": "NotIn", "values": [random.pick(&["a", "b"])]});
            capacity["nodeTopology"] = json!({"matchExpressions": [expression]});
        }
    }
    if !sizes[class].is_empty() {
        capacity["capacity"] = json!(sizes[class]);
        // kube-scheduler 1.37.1 crashes if there is this limit alone.
        if random.chance(25) {
            capacity["maximumVolumeSize"] = json!(random.pick(&["1500Mi", "2Gi"]));
        }
    }
    capacity
}

fn on_node(random: &mut Random, node: &str) -> Value {
    let mut drivers = Vec::new();
    for name in DRIVERS {
        if random.chance(80) {
            let mut driver = json!({"name": name, "nodeID": node});
            if random.chance(75) {
                driver["allocatable"]["count"] = json!(random.pick(&[0, 1, 2, 2, 3, 4, 8]));
            }
            drivers.push(driver);
        }
    }
    json!({"metadata": {"name": node}, "spec": {"drivers": drivers}})
}

fn attachment(random: &mut Random, number: usize, nodes: &[String], volumes: &[Value]) -> Value {
    let volume = if volumes.is_empty() || random.chance(10) { &Value::Null } else { random.pick(volumes) };
    let source = match volume["metadata"]["name"].as_str() {
        Some(name) => json!({"persistentVolumeName": name}),
        None if random.chance(50) => json!({"persistentVolumeName": "missing"}),
        None => json!({"inlineVolumeSpec": {}}),
    };
    let driver = volume["spec"]["csi"]["driver"].as_str().unwrap_or(DRIVERS[0]);
    json!({
        "metadata": {"name": format!("attachment-{number}")},
        "spec": {"attacher": driver, "nodeName": random.pick(nodes), "source": source},
    })
}
