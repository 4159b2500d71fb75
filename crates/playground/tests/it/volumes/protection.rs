//! The protection of claims that pods use, and of volumes that are bound.

use serde_json::json;

use super::{VolumeCluster, pass};

#[tokio::test(start_paused = true)]
async fn claim_goes_when_its_last_pod_has_gone() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", "Immediate", &[]).await;
    cluster.claim("c", "fast", &json!({})).await;
    pass(5.0).await;
    cluster.pod("a", Some("n-0"), &["c"]).await;
    cluster.pod("b", Some("n-0"), &["c"]).await;
    cluster.pod("waiting", None, &["c"]).await;
    pass(5.0).await;
    cluster.delete("PersistentVolumeClaim", "c").await;
    pass(5.0).await;
    cluster.delete("Pod", "a").await;
    pass(5.0).await;
    let claim = cluster.get("PersistentVolumeClaim", "c").await;
    assert_eq!(claim["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
    assert_eq!(claim["status"]["phase"], "Bound");
    cluster.delete("Pod", "b").await;
    pass(5.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "gone", "a pod without a node does not use it");
    assert!(cluster.list("PersistentVolume").await.is_empty(), "nor does anything need its volume");
}

#[tokio::test(start_paused = true)]
async fn unused_claim_and_free_volume_go_at_once() {
    let cluster = VolumeCluster::new().await;
    cluster.volume("v", &json!({})).await;
    cluster.claim("c", "nothing", &json!({})).await;
    pass(1.0).await;
    cluster.delete("PersistentVolume", "v").await;
    cluster.delete("PersistentVolumeClaim", "c").await;
    pass(1.0).await;
    assert_eq!(cluster.phase("PersistentVolume", "v").await, "gone");
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "gone");
}

#[tokio::test(start_paused = true)]
async fn finished_pod_still_uses_its_claim() {
    let cluster = VolumeCluster::new().await;
    cluster.volume("v", &json!({})).await;
    cluster.claim("c", "static", &json!({})).await;
    pass(16.0).await;
    let volumes = json!([{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]);
    cluster.pod_with("p", Some("n-0"), volumes).await;
    cluster.change("Pod", "p", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    pass(5.0).await;
    cluster.delete("PersistentVolumeClaim", "c").await;
    pass(5.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Bound");
    cluster.delete("Pod", "p").await;
    pass(5.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "gone");
    assert_eq!(cluster.phase("PersistentVolume", "v").await, "Released");
}
