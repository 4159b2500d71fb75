//! Pods with claims on their nodes: when they start, and what they report until then.

use serde_json::json;

use super::{VolumeCluster, pass};

#[tokio::test(start_paused = true)]
async fn pod_starts_when_its_claims_are_bound() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", "WaitForFirstConsumer", &[("topology", "zone")]).await;
    cluster.pod("p", Some("n-0"), &["c", "d"]).await;
    pass(2.0).await;
    let why = |claims: &str, what: &str| {
        format!(
            "FailedMount: Unable to attach or mount volumes: unmounted volumes=[{claims}], unattached volumes=[], \
             failed to process volumes=[{claims}]: {what}"
        )
    };
    let missing = |claim: &str| {
        format!(
            "error processing PVC default/{claim}: failed to fetch PVC from API server: \
             persistentvolumeclaims \"{claim}\" not found"
        )
    };
    assert_eq!(cluster.events("p").await, [why("v-c v-d", &format!("{}; {}", missing("c"), missing("d")))]);
    for claim in ["c", "d"] {
        cluster.claim(claim, "fast", &json!({})).await;
    }
    pass(2.0).await;
    let unbound = "error processing PVC default/c: PVC is not bound; error processing PVC default/d: PVC is not bound";
    let events = cluster.events("p").await;
    assert_eq!(events.last(), Some(&why("v-c v-d", unbound)));
    let pod = cluster.get("Pod", "p").await;
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    for claim in ["c", "d"] {
        cluster.select(claim, "n-0").await;
    }
    pass(3.0).await;
    assert_eq!(cluster.phase("Pod", "p").await, "Running");
}

#[tokio::test(start_paused = true)]
async fn node_must_be_able_to_access_the_volume() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", "WaitForFirstConsumer", &[("topology", "zone"), ("place", "zone-1")]).await;
    cluster.claim("c", "fast", &json!({})).await;
    cluster.select("c", "n-0").await;
    pass(3.0).await;
    cluster.pod("p", Some("n-0"), &["c"]).await;
    pass(5.0).await;
    assert_eq!(cluster.phase("Pod", "p").await, "Pending");
    let events = cluster.events("p").await;
    assert!(
        events[0].starts_with("FailedMount: MountVolume.NodeAffinity check failed for volume \"pvc-"),
        "{events:?}"
    );
    assert!(events[0].ends_with(" : no matching NodeSelectorTerms"), "{events:?}");
    // It is reported again every two minutes, as one event.
    pass(600.0).await;
    let events = cluster.list("Event").await;
    let event = events.iter().find(|event| event["involvedObject"]["name"] == "p").unwrap();
    assert_eq!(event["count"], 5);
    cluster.pod("q", Some("n-2"), &["c"]).await;
    pass(3.0).await;
    assert_eq!(cluster.phase("Pod", "q").await, "Running");
    cluster.delete("Pod", "p").await;
    pass(3.0).await;
    assert_eq!(cluster.phase("Pod", "p").await, "gone", "nothing had started");
}

#[tokio::test(start_paused = true)]
async fn slow_attachment_is_reported_after_a_while() {
    let cluster = VolumeCluster::new().await;
    let annotations = json!({"playground.muster.dev/attach-seconds": "200"});
    let driver = json!({"metadata": {"name": "disk.example.com", "annotations": annotations}, "spec": {}});
    cluster.create("CSIDriver", driver).await;
    let volume = json!({"spec": {"nfs": null, "csi": {"driver": "disk.example.com", "volumeHandle": "h"}}});
    cluster.volume("v", &volume).await;
    cluster.claim("c", "static", &json!({})).await;
    pass(20.0).await;
    cluster.pod("p", Some("n-0"), &["c"]).await;
    pass(120.0).await;
    assert!(cluster.events("p").await.is_empty());
    pass(5.0).await;
    let why = "FailedMount: Unable to attach or mount volumes: unmounted volumes=[v-c], unattached volumes=[v-c], \
               failed to process volumes=[]: context deadline exceeded";
    assert_eq!(cluster.events("p").await, [why]);
    pass(80.0).await;
    assert_eq!(cluster.phase("Pod", "p").await, "Running");
}
