//! Random bound volumes, with their claims.

use muster_oracle::random::Random;
use serde_json::{Value, json};

const ZONE: &str = "topology.kubernetes.io/zone";

/// Gives some pending pods volumes.
pub(super) fn add(random: &mut Random, case: &mut Value) {
    if !random.chance(15) {
        return;
    }
    let namespace = case["pod"]["metadata"]["namespace"].clone();
    let (mut claims, mut volumes, mut used) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..=random.below(2) {
        let (claim, volume) = (format!("claim-{number}"), format!("volume-{number}"));
        claims.push(json!({
            "metadata": {"name": claim, "namespace": namespace, "uid": claim, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
            "spec": {"volumeName": volume, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound"},
        }));
        volumes.push(volume_at(random, &volume, &json!({"name": claim, "namespace": namespace, "uid": claim})));
        used.push(json!({"name": format!("v{number}"), "persistentVolumeClaim": {"claimName": claim}}));
    }
    (case["persistentVolumeClaims"], case["persistentVolumes"]) = (json!(claims), json!(volumes));
    case["pod"]["spec"]["volumes"] = json!(used);
}

fn volume_at(random: &mut Random, name: &str, claim: &Value) -> Value {
    let mut volume = json!({
        "metadata": {"name": name, "uid": name},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "claimRef": claim,
            "nfs": {"server": "x", "path": "/"},
        },
        "status": {"phase": "Bound"},
    });
    if random.chance(60) {
        let values: Vec<&str> = (0..=random.below(2)).map(|_| *random.pick(&["a", "b", "c"])).collect();
        let expression = json!({"key": ZONE, "operator": random.pick(&["In", "In", "NotIn"]), "values": values});
        volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = json!([{"matchExpressions": [expression]}]);
    }
    if random.chance(50) {
        let key = random.pick(&[ZONE, "failure-domain.beta.kubernetes.io/zone"]);
        volume["metadata"]["labels"] = json!({*key: random.pick(&["a", "b", "a__b", "b__c"])});
    }
    volume
}
