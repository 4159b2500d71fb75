//! The binder: static volumes, bindings that others have begun, release and loss.

use serde_json::{Value, json};

use super::{VolumeCluster, pass};

const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// Asserts that a claim and a volume name each other, with all that a binding writes.
async fn assert_bound(cluster: &VolumeCluster, claim: &str, volume: &str) {
    let claim = cluster.get("PersistentVolumeClaim", claim).await;
    let volume = cluster.get("PersistentVolume", volume).await;
    assert_eq!((&claim["status"]["phase"], &volume["status"]["phase"]), (&json!("Bound"), &json!("Bound")));
    assert_eq!(claim["spec"]["volumeName"], volume["metadata"]["name"]);
    assert_eq!(claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"], "yes");
    let reference = &volume["spec"]["claimRef"];
    assert_eq!((&reference["kind"], &reference["apiVersion"]), (&json!("PersistentVolumeClaim"), &json!("v1")));
    assert_eq!(reference["uid"], claim["metadata"]["uid"]);
    let status = &claim["status"];
    assert_eq!(
        (&status["capacity"], &status["accessModes"]),
        (&volume["spec"]["capacity"], &volume["spec"]["accessModes"])
    );
}

#[tokio::test(start_paused = true)]
async fn immediate_claim_gets_the_smallest_volume_that_fits() {
    let cluster = VolumeCluster::new().await;
    for (name, size) in [("large", "20Gi"), ("fits", "5Gi"), ("small", "512Mi")] {
        cluster.volume(name, &json!({"spec": {"capacity": {"storage": size}}})).await;
    }
    pass(1.0).await;
    assert_eq!(cluster.phase("PersistentVolume", "large").await, "Available");
    cluster.claim("c", "static", &json!({})).await;
    pass(1.0).await;
    assert_bound(&cluster, "c", "fits").await;
    let volume = cluster.get("PersistentVolume", "fits").await;
    assert_eq!(volume["metadata"]["annotations"][BOUND_BY_CONTROLLER], "yes");
    cluster.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn claim_waits_for_a_volume_that_comes_later() {
    let cluster = VolumeCluster::new().await;
    cluster.claim("c", "", &json!({})).await;
    pass(1.0).await;
    let reason = "FailedBinding: no persistent volumes available for this claim and no storage class is set";
    assert_eq!(cluster.events("c").await, [reason]);
    cluster.volume("v", &json!({"spec": {"storageClassName": ""}})).await;
    pass(16.0).await;
    assert_bound(&cluster, "c", "v").await;
}

#[tokio::test(start_paused = true)]
async fn delayed_claim_waits_for_the_scheduler() {
    let cluster = VolumeCluster::new().await;
    let class = json!({
        "metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.create("StorageClass", class).await;
    cluster.volume("v", &json!({"spec": {"storageClassName": "local"}})).await;
    cluster.claim("c", "local", &json!({})).await;
    pass(1.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Pending");
    let first = "WaitForFirstConsumer: waiting for first consumer to be created before binding";
    assert_eq!(cluster.events("c").await, [first]);
    cluster.pod("p", None, &["c"]).await;
    pass(16.0).await;
    assert_eq!(cluster.events("c").await[1..], ["WaitForPodScheduled: waiting for pod p to be scheduled"]);
    // What a scheduler writes when it has chosen a static volume.
    let claim = cluster.get("PersistentVolumeClaim", "c").await;
    let reference = json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": "c",
        "uid": claim["metadata"]["uid"], "resourceVersion": claim["metadata"]["resourceVersion"],
    });
    let change = json!({"metadata": {"annotations": {BOUND_BY_CONTROLLER: "yes"}}, "spec": {"claimRef": reference}});
    cluster.change("PersistentVolume", "v", change).await;
    pass(1.0).await;
    assert_bound(&cluster, "c", "v").await;
}

#[tokio::test(start_paused = true)]
async fn volume_and_claim_of_a_user_are_bound_to_each_other() {
    let cluster = VolumeCluster::new().await;
    let reserved = json!({"spec": {"claimRef": {"namespace": "default", "name": "c"}}});
    cluster.volume("reserved", &reserved).await;
    cluster.volume("smaller", &json!({"spec": {"capacity": {"storage": "1Gi"}}})).await;
    pass(1.0).await;
    cluster.claim("c", "static", &json!({})).await;
    pass(1.0).await;
    assert_bound(&cluster, "c", "reserved").await;
    let volume = cluster.get("PersistentVolume", "reserved").await;
    assert_eq!(volume["metadata"]["annotations"], Value::Null, "it was not the controller");
    cluster.claim("named", "static", &json!({"spec": {"volumeName": "smaller"}})).await;
    pass(1.0).await;
    assert_bound(&cluster, "named", "smaller").await;
    let claim = cluster.get("PersistentVolumeClaim", "named").await;
    assert_eq!(claim["metadata"]["annotations"][BOUND_BY_CONTROLLER], Value::Null);
    // A volume that does not satisfy the claim, and one that is taken.
    cluster.volume("tiny", &json!({"spec": {"capacity": {"storage": "1Mi"}}})).await;
    for (claim, volume) in [("too-large", "tiny"), ("late", "smaller"), ("lonely", "nowhere")] {
        cluster.claim(claim, "static", &json!({"spec": {"volumeName": volume}})).await;
    }
    pass(1.0).await;
    let why = "VolumeMismatch: Cannot bind to requested volume \"tiny\": requested PV is too small";
    assert_eq!(cluster.events("too-large").await, [why]);
    let why = "FailedBinding: volume \"smaller\" already bound to a different claim.";
    assert_eq!(cluster.events("late").await, [why]);
    assert_eq!(cluster.phase("PersistentVolumeClaim", "lonely").await, "Pending");
}

#[tokio::test(start_paused = true)]
async fn released_volume_follows_its_policy() {
    let cluster = VolumeCluster::new().await;
    for (name, policy, path) in [
        ("kept", "Retain", None),
        ("deleted", "Delete", Some("/tmp/x")),
        ("elsewhere", "Delete", Some("/data")),
        ("undeletable", "Delete", None),
        ("recycled", "Recycle", None),
    ] {
        let mut spec = json!({"persistentVolumeReclaimPolicy": policy, "storageClassName": name});
        if let Some(path) = path {
            (spec["nfs"], spec["hostPath"]) = (Value::Null, json!({"path": path}));
        }
        cluster.volume(name, &json!({"spec": spec})).await;
        cluster.claim(name, name, &json!({})).await;
    }
    pass(16.0).await;
    for name in ["kept", "deleted", "elsewhere", "undeletable", "recycled"] {
        assert_bound(&cluster, name, name).await;
        cluster.delete("PersistentVolumeClaim", name).await;
    }
    pass(2.0).await;
    for (name, phase, message) in [
        ("kept", "Released", Value::Null),
        ("deleted", "gone", Value::Null),
        ("elsewhere", "Failed", json!("host_path deleter only supports /tmp/.+ but received provided /data")),
        (
            "undeletable",
            "Failed",
            json!("error getting deleter volume plugin for volume \"undeletable\": no deletable volume plugin matched"),
        ),
        ("recycled", "Failed", json!("No recycler plugin found for the volume!")),
    ] {
        assert_eq!(cluster.phase("PersistentVolume", name).await, phase, "{name}");
        assert_eq!(cluster.get("PersistentVolume", name).await["status"]["message"], message, "{name}");
    }
    // A released volume is not taken by a later claim of the same name.
    cluster.claim("kept", "kept", &json!({})).await;
    pass(16.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "kept").await, "Pending");
    cluster.change("PersistentVolume", "kept", json!({"spec": {"claimRef": null}})).await;
    pass(16.0).await;
    assert_bound(&cluster, "kept", "kept").await;
}

#[tokio::test(start_paused = true)]
async fn claim_without_its_volume_is_lost() {
    let cluster = VolumeCluster::new().await;
    cluster.volume("v", &json!({})).await;
    cluster.claim("c", "static", &json!({})).await;
    pass(16.0).await;
    assert_bound(&cluster, "c", "v").await;
    cluster.delete("PersistentVolume", "v").await;
    pass(1.0).await;
    let volume = cluster.get("PersistentVolume", "v").await;
    assert!(volume["metadata"]["deletionTimestamp"].is_string(), "protected while it is bound");
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Bound");
    cluster.change("PersistentVolume", "v", json!({"metadata": {"finalizers": null}})).await;
    pass(1.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "c").await, "Lost");
    let lost = "ClaimLost: Bound claim has lost its PersistentVolume. Data on the volume is lost!";
    assert_eq!(cluster.events("c").await.last().map(String::as_str), Some(lost));
    // A bound claim whose volume belongs to another one.
    cluster.volume("w", &json!({"spec": {"storageClassName": "other"}})).await;
    cluster.claim("owner", "other", &json!({})).await;
    pass(16.0).await;
    let stolen = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}, "spec": {"volumeName": "w"},
    });
    cluster.claim("thief", "other", &stolen).await;
    pass(1.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "thief").await, "Lost");
    assert_bound(&cluster, "owner", "w").await;
}

#[tokio::test(start_paused = true)]
async fn claim_without_a_class_gets_a_later_default() {
    let cluster = VolumeCluster::new().await;
    cluster
        .create(
            "PersistentVolumeClaim",
            json!({
                "metadata": {"name": "c"},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
            }),
        )
        .await;
    pass(1.0).await;
    let class = json!({
        "metadata": {"name": "d", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "fake.muster.dev",
    });
    cluster.create("StorageClass", class).await;
    pass(20.0).await;
    let claim = cluster.get("PersistentVolumeClaim", "c").await;
    assert_eq!((&claim["spec"]["storageClassName"], &claim["status"]["phase"]), (&json!("d"), &json!("Bound")));
}

#[tokio::test(start_paused = true)]
async fn ephemeral_volume_gets_a_claim_of_its_pod() {
    let cluster = VolumeCluster::new().await;
    cluster.class("fast", "Immediate", &[]).await;
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}},
    }});
    let volumes = json!([{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]);
    cluster.pod_with("p", Some("n-0"), volumes.clone()).await;
    pass(10.0).await;
    let (pod, claim) = (cluster.get("Pod", "p").await, cluster.get("PersistentVolumeClaim", "p-scratch").await);
    let owner = &claim["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&pod["metadata"]["uid"], &json!(true)));
    assert_eq!(claim["metadata"]["labels"], json!({"a": "b"}));
    assert_eq!(pod["status"]["phase"], "Running");
    cluster.delete("Pod", "p").await;
    pass(10.0).await;
    assert_eq!(cluster.phase("PersistentVolumeClaim", "p-scratch").await, "gone", "with its pod");
    assert!(cluster.list("PersistentVolume").await.is_empty());
    // A claim of that name that is not the pod's.
    cluster.claim("q-scratch", "fast", &json!({})).await;
    cluster.pod_with("q", Some("n-0"), volumes).await;
    pass(10.0).await;
    let why = "PVC default/q-scratch was not created for pod default/q (pod is not owner)";
    let events = cluster.events("q").await;
    assert!(events.contains(&format!("FailedBinding: ephemeral volume scratch: {why}")), "{events:?}");
    assert_eq!(cluster.phase("Pod", "q").await, "Pending");
}
