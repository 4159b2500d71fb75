//! Random configurations of kube-scheduler: enabled and disabled plugins, weights and arguments.

use muster_oracle::random::Random;
use serde_json::{Value, json};

use super::muster::COMPARED;

/// Filters that may be disabled.
const FILTERS: &[&str] = &[
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "PodTopologySpread",
    "InterPodAffinity",
];

/// Gives some cases a configuration.
pub(super) fn add(random: &mut Random, case: &mut Value) {
    if !random.chance(35) {
        return;
    }
    let profile = json!({"schedulerName": "muster", "plugins": plugins(random), "pluginConfig": arguments(random)});
    case["configuration"] = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    });
}

fn plugins(random: &mut Random) -> Value {
    let mut plugins = json!({});
    let weighted = |random: &mut Random, name: &str| json!({"name": name, "weight": random.between(1, 5)});
    if random.chance(50) {
        let name = *random.pick(COMPARED);
        plugins["score"]["disabled"] = json!([{"name": name}]);
        if random.chance(60) {
            plugins["score"]["enabled"] = json!([weighted(random, name)]);
        }
    }
    if random.chance(25) {
        let name = COMPARED[random.below(4)];
        plugins["multiPoint"]["enabled"] = json!([weighted(random, name)]);
    }
    if random.chance(20) {
        plugins["filter"]["disabled"] = json!([{"name": random.pick(FILTERS)}]);
    }
    if random.chance(5) {
        plugins["multiPoint"]["disabled"] = json!([{"name": "ImageLocality"}]);
    }
    plugins
}

fn arguments(random: &mut Random) -> Vec<Value> {
    let mut all = Vec::new();
    let mut add = |name: &str, args: Value| all.push(json!({"name": name, "args": args}));
    if random.chance(50) {
        add("NodeResourcesFit", json!({"scoringStrategy": strategy(random)}));
    }
    if random.chance(20) {
        add(
            "NodeResourcesBalancedAllocation",
            json!({"resources": [{"name": "cpu", "weight": 1}, {"name": "nvidia.com/gpu", "weight": 1}]}),
        );
    }
    if random.chance(30) {
        let weight = random.between(0, 100);
        let ignores = random.chance(50);
        add(
            "InterPodAffinity",
            json!({"hardPodAffinityWeight": weight, "ignorePreferredTermsOfExistingPods": ignores}),
        );
    }
    if random.chance(25) {
        let zone = |random: &mut Random| {
            let values = json!([random.pick(&["a", "b", "c"])]);
            json!({"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": random.pick(&["In", "NotIn"]), "values": values}]})
        };
        let mut added = json!({});
        if random.chance(60) {
            added["requiredDuringSchedulingIgnoredDuringExecution"] = json!({"nodeSelectorTerms": [zone(random)]});
        }
        if random.chance(60) {
            let preferred = json!([{"weight": random.between(1, 100), "preference": zone(random)}]);
            added["preferredDuringSchedulingIgnoredDuringExecution"] = preferred;
        }
        add("NodeAffinity", json!({"addedAffinity": added}));
    }
    if random.chance(30) {
        let key = random.pick(&["topology.kubernetes.io/zone", "kubernetes.io/hostname", "disk"]);
        let when = random.pick(&["DoNotSchedule", "ScheduleAnyway", "ScheduleAnyway"]);
        let constraint = json!({"maxSkew": random.between(1, 2), "topologyKey": key, "whenUnsatisfiable": when});
        let list = if random.chance(85) { json!([constraint]) } else { json!([]) };
        add("PodTopologySpread", json!({"defaultingType": "List", "defaultConstraints": list}));
    }
    all
}

fn strategy(random: &mut Random) -> Value {
    let resources = json!([
        {"name": random.pick(&["cpu", "nvidia.com/gpu"]), "weight": random.between(1, 5)},
        {"name": "memory", "weight": random.between(1, 5)},
    ]);
    let kind = *random.pick(&["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"]);
    let mut strategy = json!({"type": kind, "resources": resources});
    if kind == "RequestedToCapacityRatio" {
        let points =
            [(0, random.between(0, 10)), (random.between(1, 99), random.between(0, 10)), (100, random.between(0, 10))];
        let points: Vec<Value> = points
            .into_iter()
            .map(|(utilization, score)| json!({"utilization": utilization, "score": score}))
            .collect();
        strategy["requestedToCapacityRatio"] = json!({"shape": points});
    }
    strategy
}
