//! The fake provisioner: what its parameters and annotations do.

use serde_json::{Value, json};

use super::{VolumeCluster, key, pass, until};

const WAIT: &str = "WaitForFirstConsumer";

fn affinity(label: &str, value: &str) -> Value {
    let requirement = json!({"key": label, "operator": "In", "values": [value]});
    json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}})
}

#[tokio::test(start_paused = true)]
async fn volume_is_made_for_the_selected_node_after_the_delay() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", WAIT, &[("delay-seconds", "5"), ("topology", "zone")]).await;
    cluster.claim("c", "fast", &json!({})).await;
    pass(20.0).await;
    assert!(cluster.list("PersistentVolume").await.is_empty(), "no node is selected");
    cluster.select("c", "n-3").await;
    pass(4.0).await;
    let claim = cluster.get("PersistentVolumeClaim", "c").await;
    for name in ["volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner"] {
        assert_eq!(claim["metadata"]["annotations"][name], "fake.muster.dev");
    }
    assert!(cluster.list("PersistentVolume").await.is_empty(), "it takes five seconds");
    pass(2.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Bound");
    let volume = cluster.volume_of("c").await;
    assert_eq!(volume["spec"]["nodeAffinity"], affinity("topology.kubernetes.io/zone", "zone-1"));
    assert_eq!(volume["spec"]["csi"]["driver"], "fake.muster.dev");
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    assert_eq!(volume["metadata"]["annotations"], json!({"pv.kubernetes.io/provisioned-by": "fake.muster.dev"}));
    let events = cluster.events("c").await;
    assert!(events.iter().any(|event| event.starts_with("ExternalProvisioning: Waiting for a volume")), "{events:?}");
    assert!(events.iter().any(|event| event.starts_with("ProvisioningSucceeded: ")), "{events:?}");
    cluster.delete("PersistentVolumeClaim", "c").await;
    pass(2.0).await;
    assert!(cluster.list("PersistentVolume").await.is_empty());
    cluster.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn class_of_another_provisioner_needs_a_parameter() {
    let cluster = VolumeCluster::new().await;
    for (name, parameters) in [("other", json!({})), ("simulated", json!({key("topology"): "hostname"}))] {
        let class = json!({"metadata": {"name": name}, "provisioner": "disk.example.com", "parameters": parameters});
        cluster.create("StorageClass", class).await;
        cluster.claim(name, name, &json!({})).await;
    }
    pass(5.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "other").await, "Pending");
    let volume = cluster.volume_of("simulated").await;
    assert_eq!(volume["spec"]["csi"]["driver"], "disk.example.com");
    assert_eq!(volume["spec"]["nodeAffinity"], affinity("kubernetes.io/hostname", "n-0"), "any node will do");
}

#[tokio::test(start_paused = true)]
async fn refusal_removes_the_selected_node() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", WAIT, &[("refuse", "2")]).await;
    cluster.claim("c", "fast", &json!({})).await;
    for attempt in 1..=2 {
        cluster.select("c", "n-0").await;
        pass(2.0).await;
        assert_eq!(cluster.selected("c").await, Value::Null);
        let claim = cluster.get("PersistentVolumeClaim", "c").await;
        assert_eq!(claim["metadata"]["annotations"][key("refusals")], attempt.to_string());
        let why = format!("refused on purpose, {attempt} of 2");
        let events = cluster.events("c").await;
        let message = format!("ProvisioningFailed: failed to provision volume with StorageClass \"fast\": {why}");
        assert!(events.contains(&message), "{events:?}");
    }
    cluster.select("c", "n-1").await;
    pass(2.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Bound");
    // By annotation of the claim, for ever, and for some nodes.
    let annotated = |name: &str, value: &str| json!({"metadata": {"annotations": {key(name): value}}});
    cluster.claim("never", "fast", &annotated("refuse", "always")).await;
    let mut sometimes = annotated("refuse", "0");
    sometimes["metadata"]["annotations"][key("refuse-on")] = json!("n-0, n-1");
    cluster.claim("sometimes", "fast", &sometimes).await;
    for (node, is_made) in [("n-0", false), ("n-1", false), ("n-2", true)] {
        cluster.select("never", node).await;
        cluster.select("sometimes", node).await;
        pass(2.0).await;
        assert_eq!(cluster.phase("PersistentVolumeClaim", "never").await, "Pending");
        assert_eq!(cluster.phase("PersistentVolumeClaim", "sometimes").await == "Bound", is_made, "{node}");
    }
    cluster.select("never", "gone").await;
    pass(2.0).await;
    assert_eq!(cluster.selected("never").await, Value::Null, "there is no such node");
}

#[tokio::test(start_paused = true)]
async fn immediate_claim_is_tried_again_after_a_refusal() {
    let cluster = VolumeCluster::new().await;
    cluster.class("now", "Immediate", &[("refuse", "3"), ("delay-seconds", "0")]).await;
    cluster.claim("c", "now", &json!({})).await;
    until(30, async || cluster.phase("PersistentVolumeClaim", "c").await == "Bound").await;
    let claim = cluster.get("PersistentVolumeClaim", "c").await;
    assert_eq!(claim["metadata"]["annotations"][key("refusals")], "3");
}

#[tokio::test(start_paused = true)]
async fn stuck_provisioner_never_answers() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", WAIT, &[]).await;
    let stuck = |value: Value| json!({"metadata": {"annotations": {key("stuck"): value}}});
    cluster.claim("c", "fast", &stuck(json!("true"))).await;
    cluster.select("c", "n-0").await;
    pass(3600.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Pending");
    assert_eq!(cluster.selected("c").await, "n-0");
    cluster.change("PersistentVolumeClaim", "c", stuck(Value::Null)).await;
    pass(2.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Bound", "it is no longer stuck");
}

#[tokio::test(start_paused = true)]
async fn volume_can_be_made_in_the_wrong_place() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", WAIT, &[("topology", "zone"), ("place", "zone-1")]).await;
    cluster.claim("c", "fast", &json!({})).await;
    cluster.select("c", "n-0").await;
    pass(2.0).await;
    let volume = cluster.volume_of("c").await;
    assert_eq!(volume["spec"]["nodeAffinity"], affinity("topology.kubernetes.io/zone", "zone-1"));
}

#[tokio::test(start_paused = true)]
async fn volume_that_is_under_way_is_made_whatever_happens() {
    let cluster = VolumeCluster::new().await;
    cluster.class("slow", WAIT, &[("delay-seconds", "10"), ("topology", "hostname")]).await;
    for name in ["moved", "deleted"] {
        cluster.claim(name, "slow", &json!({})).await;
        cluster.select(name, "n-0").await;
    }
    pass(5.0).await;
    cluster.select("moved", "n-3").await;
    cluster.delete("PersistentVolumeClaim", "deleted").await;
    pass(5.5).await;
    let volume = cluster.volume_of("moved").await;
    assert_eq!(volume["spec"]["nodeAffinity"], affinity("kubernetes.io/hostname", "n-0"));
    let events = cluster.events("deleted").await;
    assert!(events.iter().any(|event| event.starts_with("ProvisioningSucceeded: ")), "for nobody: {events:?}");
    pass(5.0).await;
    assert_eq!(cluster.list("PersistentVolume").await.len(), 1, "what nobody needs is deleted");
}

#[tokio::test(start_paused = true)]
async fn pools_show_what_is_left_and_refuse_the_rest() {
    let cluster = VolumeCluster::new().await;
    let parameters = [("topology", "zone"), ("pool-size", "5Gi"), ("volume-size-max", "4Gi")];
    cluster.class("fast", WAIT, &parameters).await;
    pass(1.0).await;
    let left = async |cluster: &VolumeCluster| {
        let pools = cluster.list("CSIStorageCapacity").await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let left = |pool: &Value| format!("{}: {}", text(&pool["metadata"]["name"]), text(&pool["capacity"]));
        pools.iter().map(left).collect::<Vec<_>>()
    };
    assert_eq!(left(&cluster).await, ["fast-zone-0: 5Gi", "fast-zone-1: 5Gi"]);
    let pool = cluster.get("CSIStorageCapacity", "fast-zone-0").await;
    assert_eq!(pool["nodeTopology"], json!({"matchLabels": {"topology.kubernetes.io/zone": "zone-0"}}));
    assert_eq!((&pool["storageClassName"], &pool["maximumVolumeSize"]), (&json!("fast"), &json!("4Gi")));
    // Both are under way at the same time; only one has room.
    let size = |size: &str| json!({"spec": {"resources": {"requests": {"storage": size}}}});
    for name in ["a", "b"] {
        cluster.claim(name, "fast", &size("3Gi")).await;
        cluster.select(name, "n-0").await;
    }
    pass(3.0).await;
    let phases = [cluster.phase("PersistentVolumeClaim", "a").await, cluster.phase("PersistentVolumeClaim", "b").await];
    assert_eq!(phases.iter().filter(|phase| *phase == "Bound").count(), 1, "{phases:?}");
    assert_eq!(left(&cluster).await, ["fast-zone-0: 2Gi", "fast-zone-1: 5Gi"]);
    let refused = if phases[0] == "Bound" { "b" } else { "a" };
    let events = cluster.events(refused).await;
    let why = "no room for 3Gi: pool kube-system/fast-zone-0 has 2Gi left";
    assert!(events.iter().any(|event| event.ends_with(why)), "{events:?}");
    cluster.select(refused, "n-2").await;
    pass(3.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", refused).await, "Bound");
    cluster.claim("large", "fast", &size("5Gi")).await;
    cluster.select("large", "n-2").await;
    pass(3.0).await;
    let events = cluster.events("large").await;
    assert!(events.iter().any(|event| event.ends_with("5Gi is more than the largest volume, 4Gi")), "{events:?}");
    for name in ["a", "b"] {
        cluster.delete("PersistentVolumeClaim", name).await;
    }
    pass(3.0).await;
    assert_eq!(left(&cluster).await, ["fast-zone-0: 5Gi", "fast-zone-1: 5Gi"]);
    cluster.delete("StorageClass", "fast").await;
    pass(3.0).await;
    assert!(left(&cluster).await.is_empty(), "pools go with their class");
}

#[tokio::test(start_paused = true)]
async fn nodes_publish_their_drivers_and_pools() {
    let cluster = VolumeCluster::with(&json!({
        "drivers": [{"name": "fake.muster.dev", "attachLimit": 3}, {"name": "other.example.com"}],
        "capacities": [{"storageClass": "local", "capacity": "2Gi"}],
    }))
    .await;
    let node = cluster.get("CSINode", "n-1").await;
    let drivers = &node["spec"]["drivers"];
    assert_eq!((&drivers[0]["name"], &drivers[0]["allocatable"]["count"]), (&json!("fake.muster.dev"), &json!(3)));
    assert_eq!((&drivers[1]["name"], &drivers[1]["allocatable"]), (&json!("other.example.com"), &Value::Null));
    assert_eq!(node["metadata"]["ownerReferences"][0]["name"], "n-1");
    assert_eq!(cluster.list("CSIStorageCapacity").await.len(), 4);
    cluster.class("local", WAIT, &[("topology", "hostname")]).await;
    for name in ["a", "b"] {
        cluster.claim(name, "local", &json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}})).await;
        cluster.select(name, "n-1").await;
        pass(3.0).await;
    }
    assert_eq!(cluster.phase("PersistentVolumeClaim", "b").await, "Pending", "the node is full");
    assert_eq!(cluster.get("CSIStorageCapacity", "local-n-1").await["capacity"], "0");
    assert_eq!(cluster.get("CSIStorageCapacity", "local-n-2").await["capacity"], "2Gi");
}

#[tokio::test(start_paused = true)]
async fn invalid_parameter_is_reported() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", WAIT, &[("delay", "5")]).await;
    cluster.claim("c", "fast", &json!({})).await;
    cluster.select("c", "n-0").await;
    pass(3.0).await;
    let events = cluster.events("c").await;
    let why = "StorageClass \"fast\": parameter playground.muster.dev/delay: is not known";
    assert!(events.iter().any(|event| event.ends_with(why)), "{events:?}");
    assert_eq!(cluster.selected("c").await, Value::Null);
}
