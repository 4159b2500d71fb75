//! Attachments of CSI volumes to nodes, with their delays and limits.

use serde_json::{Value, json};

use super::{VolumeCluster, key, pass};

async fn driver(cluster: &VolumeCluster, annotations: &[(&str, &str)], spec: Value) {
    let annotations: Value = annotations.iter().map(|(name, value)| (key(name), json!(value))).collect();
    let driver = json!({"metadata": {"name": "disk.example.com", "annotations": annotations}, "spec": spec});
    cluster.create("CSIDriver", driver).await;
    let class = json!({
        "metadata": {"name": "disk"}, "provisioner": "disk.example.com", "parameters": {key("delay-seconds"): "0"},
    });
    cluster.create("StorageClass", class).await;
}

/// Node and state of each attachment.
async fn attached(cluster: &VolumeCluster) -> Vec<(String, bool)> {
    let all = cluster.list("VolumeAttachment").await;
    let mut all: Vec<_> = all
        .iter()
        .map(|one| (one["spec"]["nodeName"].as_str().unwrap().to_owned(), one["status"]["attached"] == true))
        .collect();
    all.sort();
    all
}

#[tokio::test(start_paused = true)]
async fn volume_is_attached_while_a_pod_on_the_node_uses_it() {
    let cluster = VolumeCluster::new().await;
    driver(&cluster, &[("attach-seconds", "20"), ("detach-seconds", "30")], json!({})).await;
    cluster.claim("c", "disk", &json!({})).await;
    pass(3.0).await;
    cluster.pod("p", Some("n-1"), &["c"]).await;
    pass(10.0).await;
    assert_eq!(attached(&cluster).await, [("n-1".to_owned(), false)]);
    let attachment = cluster.list("VolumeAttachment").await.remove(0);
    assert_eq!(attachment["spec"]["attacher"], "disk.example.com");
    assert_eq!(attachment["spec"]["source"]["persistentVolumeName"], cluster.volume_of("c").await["metadata"]["name"]);
    assert_eq!(cluster.phase("Pod", "p").await, "Pending", "not before it is attached");
    pass(15.0).await;
    assert_eq!(attached(&cluster).await, [("n-1".to_owned(), true)]);
    assert_eq!(cluster.phase("Pod", "p").await, "Running");
    cluster.delete("Pod", "p").await;
    pass(20.0).await;
    let attachment = cluster.list("VolumeAttachment").await.remove(0);
    assert!(attachment["metadata"]["deletionTimestamp"].is_string(), "it takes a while");
    cluster.delete("PersistentVolumeClaim", "c").await;
    pass(5.0).await;
    assert_eq!(cluster.list("PersistentVolume").await.len(), 1, "an attached volume is not deleted");
    pass(20.0).await;
    assert!(attached(&cluster).await.is_empty());
    assert!(cluster.list("PersistentVolume").await.is_empty());
    cluster.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn volume_of_one_node_is_attached_to_one_node_at_a_time() {
    let cluster = VolumeCluster::new().await;
    driver(&cluster, &[("detach-seconds", "10")], json!({})).await;
    cluster.claim("c", "disk", &json!({})).await;
    cluster.claim("shared", "disk", &json!({"spec": {"accessModes": ["ReadWriteMany"]}})).await;
    pass(3.0).await;
    for (name, node, claim) in [("a", "n-0", "c"), ("s", "n-0", "shared"), ("t", "n-1", "shared")] {
        cluster.pod(name, Some(node), &[claim]).await;
    }
    pass(3.0).await;
    cluster.pod("b", Some("n-1"), &["c"]).await;
    pass(3.0).await;
    let (n0, n1) = (("n-0".to_owned(), true), ("n-1".to_owned(), true));
    assert_eq!(attached(&cluster).await, [n0.clone(), n0, n1]);
    let events = cluster.events("b").await;
    assert!(events[0].starts_with("FailedAttachVolume: Multi-Attach error for volume \"pvc-"), "{events:?}");
    cluster.delete("Pod", "a").await;
    pass(5.0).await;
    assert_eq!(cluster.phase("Pod", "b").await, "Pending", "it is still being detached");
    pass(10.0).await;
    assert_eq!(cluster.phase("Pod", "b").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn node_takes_as_many_volumes_as_its_driver_says() {
    let cluster = VolumeCluster::with(&json!({"drivers": [{"name": "disk.example.com", "attachLimit": 2}]})).await;
    driver(&cluster, &[], json!({})).await;
    for name in ["a", "b", "c"] {
        cluster.claim(name, "disk", &json!({})).await;
        pass(2.0).await;
        cluster.pod(name, Some("n-0"), &[name]).await;
        pass(3.0).await;
    }
    assert_eq!(cluster.phase("Pod", "c").await, "Pending");
    let events = cluster.events("c").await;
    let why = "desc = node n-0 has 2 volumes of disk.example.com attached, and its limit is 2";
    assert!(events.iter().any(|event| event.starts_with("FailedAttachVolume: ") && event.ends_with(why)), "{events:?}");
    cluster.delete("Pod", "a").await;
    pass(5.0).await;
    assert_eq!(cluster.phase("Pod", "c").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn driver_may_need_no_attachments() {
    let cluster = VolumeCluster::new().await;
    driver(&cluster, &[], json!({"attachRequired": false})).await;
    cluster.claim("c", "disk", &json!({})).await;
    pass(3.0).await;
    cluster.pod("p", Some("n-0"), &["c"]).await;
    pass(3.0).await;
    assert_eq!(cluster.phase("Pod", "p").await, "Running");
    assert!(attached(&cluster).await.is_empty());
}
