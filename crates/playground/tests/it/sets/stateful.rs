//! StatefulSets: ordinals, order, updates, volume claims.

use kube::ResourceExt;
use serde_json::{Value, json};

use super::{TestCluster, image_of, is_live, is_ready, name_of, pass, template};

fn set(replicas: i32, change: &Value) -> Value {
    let mut set = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "serviceName": "db",
            "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "v1"),
        },
    });
    json_patch::merge(&mut set["spec"], change);
    set
}

fn image(name: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": name}]}}}})
}

/// Names and images of the pods that are ready.
async fn ready(cluster: &TestCluster) -> Vec<String> {
    let pods = cluster.pods().await;
    let ready = pods.iter().filter(|pod| is_ready(pod) && is_live(pod));
    ready.map(|pod| format!("{}:{}", pod.name_any(), image_of(pod))).collect()
}

#[tokio::test(start_paused = true)]
async fn pods_are_created_and_deleted_in_order() {
    let cluster = TestCluster::new().await;
    cluster.create("StatefulSet", set(3, &json!({"ordinals": {"start": 2}}))).await;
    let mut most = 0;
    for _ in 0..100 {
        pass(0.1).await;
        let pods = cluster.pods().await;
        let waiting = pods.iter().filter(|pod| !is_ready(pod)).count();
        assert!(waiting <= 1, "one after the other");
        most = most.max(pods.len());
    }
    assert_eq!(ready(&cluster).await, ["db-2:v1", "db-3:v1", "db-4:v1"]);
    let pod = cluster.get("Pod", "db-3").await;
    let (labels, spec) = (&pod["metadata"]["labels"], &pod["spec"]);
    let set_now = cluster.get("StatefulSet", "db").await;
    let status = &set_now["status"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-3");
    assert_eq!(labels["apps.kubernetes.io/pod-index"], "3");
    assert_eq!(labels["controller-revision-hash"], status["currentRevision"]);
    assert_eq!((&spec["hostname"], &spec["subdomain"]), (&json!("db-3"), &json!("db")));
    assert_eq!(pod["metadata"]["generateName"], "db-");
    for field in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
        assert_eq!(status[field], 3, "{field}");
    }
    assert_eq!(status["currentRevision"], "db-5f5b4cd67f", "as the real controller calls this template");
    assert_eq!(status["updateRevision"], "db-5f5b4cd67f");
    let revision = cluster.get("ControllerRevision", status["currentRevision"].as_str().unwrap()).await;
    assert_eq!(
        (&revision["revision"], &revision["data"]["spec"]["template"]["$patch"]),
        (&json!(1), &json!("replace"))
    );

    cluster.change("StatefulSet", "db", json!({"spec": {"replicas": 1}})).await;
    let mut seen: Vec<usize> = Vec::new();
    for _ in 0..100 {
        pass(0.1).await;
        let pods = cluster.pods().await;
        assert!(pods.iter().filter(|pod| !is_live(pod)).count() <= 1, "one after the other");
        seen.push(pods.len());
    }
    assert_eq!(ready(&cluster).await, ["db-2:v1"]);
    assert!(seen.contains(&2), "{seen:?}");
    let messages = cluster.event_messages("db").await;
    assert_eq!(messages["SuccessfulCreate"][0], "Create Pod db-2 in StatefulSet db successful");
    let deleted = ["Delete Pod db-4 in StatefulSet db successful", "Delete Pod db-3 in StatefulSet db successful"];
    assert_eq!(messages["SuccessfulDelete"], deleted);
    cluster.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn parallel_policy_does_not_wait() {
    let cluster = TestCluster::new().await;
    cluster.create("StatefulSet", set(5, &json!({"podManagementPolicy": "Parallel"}))).await;
    pass(1.0).await;
    assert_eq!(cluster.names("Pod").await.len(), 5);
    pass(5.0).await;
    cluster.change("StatefulSet", "db", json!({"spec": {"replicas": 0}})).await;
    pass(0.5).await;
    assert!(cluster.pods().await.iter().all(|pod| !is_live(pod)));
}

#[tokio::test(start_paused = true)]
async fn update_proceeds_from_the_highest_ordinal_to_the_partition() {
    let cluster = TestCluster::new().await;
    let partition = |from: i32| json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": from}}}});
    cluster.create("StatefulSet", set(4, &json!({}))).await;
    pass(20.0).await;
    cluster.change("StatefulSet", "db", partition(2)).await;
    cluster.change("StatefulSet", "db", image("v2")).await;
    for _ in 0..100 {
        pass(0.2).await;
        assert!(ready(&cluster).await.len() >= 3, "one at a time");
    }
    assert_eq!(ready(&cluster).await, ["db-0:v1", "db-1:v1", "db-2:v2", "db-3:v2"]);
    let status = cluster.get("StatefulSet", "db").await["status"].clone();
    assert_eq!((&status["currentReplicas"], &status["updatedReplicas"]), (&json!(2), &json!(2)));
    assert_ne!(status["currentRevision"], status["updateRevision"]);
    // A pod below the partition is recreated from the old revision.
    cluster.delete("Pod", "db-0").await;
    pass(10.0).await;
    assert_eq!(ready(&cluster).await, ["db-0:v1", "db-1:v1", "db-2:v2", "db-3:v2"]);
    cluster.change("StatefulSet", "db", partition(0)).await;
    pass(20.0).await;
    assert_eq!(ready(&cluster).await, ["db-0:v2", "db-1:v2", "db-2:v2", "db-3:v2"]);
    let status = cluster.get("StatefulSet", "db").await["status"].clone();
    assert_eq!((&status["currentReplicas"], &status["currentRevision"]), (&json!(4), &status["updateRevision"]));
}

#[tokio::test(start_paused = true)]
async fn max_unavailable_allows_several_updates() {
    let cluster = TestCluster::new().await;
    let strategy = json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2}}});
    cluster.create("StatefulSet", set(4, &strategy)).await;
    pass(20.0).await;
    cluster.change("StatefulSet", "db", image("v2")).await;
    let mut least = 4;
    for _ in 0..100 {
        pass(0.1).await;
        least = least.min(ready(&cluster).await.len());
    }
    assert_eq!((least, ready(&cluster).await.len()), (2, 4));
    assert!(ready(&cluster).await.iter().all(|pod| pod.ends_with(":v2")));
}

#[tokio::test(start_paused = true)]
async fn on_delete_strategy_waits_for_deletion() {
    let cluster = TestCluster::new().await;
    cluster.create("StatefulSet", set(2, &json!({"updateStrategy": {"type": "OnDelete"}}))).await;
    pass(10.0).await;
    cluster.change("StatefulSet", "db", image("v2")).await;
    pass(20.0).await;
    assert_eq!(ready(&cluster).await, ["db-0:v1", "db-1:v1"]);
    cluster.delete("Pod", "db-0").await;
    pass(10.0).await;
    assert_eq!(ready(&cluster).await, ["db-0:v2", "db-1:v1"]);
}

#[tokio::test(start_paused = true)]
async fn failed_pod_is_recreated() {
    let cluster = TestCluster::new().await;
    cluster.create("StatefulSet", set(2, &json!({}))).await;
    pass(10.0).await;
    let before = cluster.get("Pod", "db-0").await["metadata"]["uid"].clone();
    let failed = kube::api::Patch::Merge(json!({"status": {"phase": "Failed"}}));
    cluster.api("Pod").patch_status("db-0", &kube::api::PatchParams::default(), &failed).await.unwrap();
    pass(10.0).await;
    assert_ne!(cluster.get("Pod", "db-0").await["metadata"]["uid"], before);
    assert_eq!(ready(&cluster).await, ["db-0:v1", "db-1:v1"]);
}

#[tokio::test(start_paused = true)]
async fn revisions_are_kept_up_to_the_limit_and_reused() {
    let cluster = TestCluster::new().await;
    cluster.create("StatefulSet", set(1, &json!({"revisionHistoryLimit": 1}))).await;
    for version in ["v2", "v3", "v4", "v3"] {
        pass(20.0).await;
        cluster.change("StatefulSet", "db", image(version)).await;
    }
    pass(20.0).await;
    let mut numbers: Vec<i64> =
        cluster.list("ControllerRevision").await.iter().map(|one| one["revision"].as_i64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [4, 5], "v3 came back as the newest");
}

#[tokio::test(start_paused = true)]
async fn claims_follow_the_retention_policy() {
    let claims = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    }}]);
    for (policy, after_scale, after_delete) in [
        (json!({"whenDeleted": "Retain", "whenScaled": "Retain"}), 2, 2),
        (json!({"whenDeleted": "Retain", "whenScaled": "Delete"}), 1, 1),
        (json!({"whenDeleted": "Delete", "whenScaled": "Retain"}), 2, 0),
        (json!({"whenDeleted": "Delete", "whenScaled": "Delete"}), 1, 0),
    ] {
        let cluster = TestCluster::new().await;
        let annotations = json!({"storageclass.kubernetes.io/is-default-class": "true"});
        let class = json!({"metadata": {"name": "d", "annotations": annotations}, "provisioner": "fake.muster.dev"});
        cluster.create("StorageClass", class).await;
        let change = json!({"volumeClaimTemplates": claims, "persistentVolumeClaimRetentionPolicy": policy});
        cluster.create("StatefulSet", set(2, &change)).await;
        pass(10.0).await;
        assert_eq!(cluster.names("PersistentVolumeClaim").await, ["data-db-0", "data-db-1"], "{policy}");
        let claim = cluster.get("PersistentVolumeClaim", "data-db-0").await;
        assert_eq!((&claim["metadata"]["labels"]["app"], &claim["status"]["phase"]), (&json!("db"), &json!("Bound")));
        let pod = cluster.get("Pod", "db-1").await;
        assert_eq!(pod["spec"]["volumes"][0]["persistentVolumeClaim"]["claimName"], "data-db-1");
        cluster.change("StatefulSet", "db", json!({"spec": {"replicas": 1}})).await;
        pass(10.0).await;
        assert_eq!(cluster.names("PersistentVolumeClaim").await.len(), after_scale, "{policy}");
        cluster.delete("StatefulSet", "db").await;
        pass(10.0).await;
        assert_eq!(cluster.names("PersistentVolumeClaim").await.len(), after_delete, "{policy}");
        assert_eq!(cluster.names("Pod").await.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn matching_orphan_pod_is_adopted() {
    let cluster = TestCluster::new().await;
    for (name, label) in [("db-0", "db"), ("db-x", "db")] {
        let mut pod = template(label, "mine");
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        pod["metadata"]["name"] = json!(name);
        cluster.create("Pod", pod).await;
    }
    cluster.create("StatefulSet", set(1, &json!({"updateStrategy": {"type": "OnDelete"}}))).await;
    pass(10.0).await;
    let taken = cluster.get("Pod", "db-0").await;
    assert_eq!(taken["metadata"]["ownerReferences"][0]["name"], "db");
    assert_eq!(taken["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"], "db-0", "it gets its labels");
    assert_eq!(cluster.get("Pod", "db-x").await["metadata"]["ownerReferences"], Value::Null);
    assert_eq!(name_of(&taken), "db-0");
}
