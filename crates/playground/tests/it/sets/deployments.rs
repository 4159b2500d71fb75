//! Deployments: rollouts, history, pauses, deadlines.

use serde_json::{Value, json};

use super::{TestCluster, image_of, is_live, is_ready, name_of, pass, template};

fn deployment(replicas: i32, strategy: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "annotations": {"note": "mine"}},
        "spec": {
            "replicas": replicas, "strategy": strategy,
            "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "v1"),
        },
    })
}

fn rolling(surge: i32, unavailable: i32) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

fn image(name: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": name}]}}}})
}

async fn condition(cluster: &TestCluster, kind: &str) -> (String, String, String) {
    let deployment = cluster.get("Deployment", "web").await;
    let conditions = deployment["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let one = conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default();
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Checks a rollout: never more pods than allowed, never fewer ready.
async fn check_rollout(cluster: &TestCluster, most: usize, least: usize) {
    for _ in 0..300 {
        pass(0.2).await;
        let pods = cluster.pods().await;
        let live: Vec<_> = pods.iter().filter(|pod| is_live(pod)).collect();
        let ready = live.iter().filter(|pod| is_ready(pod)).count();
        assert!(live.len() <= most, "{} pods, at most {most}", live.len());
        assert!(ready >= least, "{ready} ready, at least {least}");
    }
}

#[tokio::test(start_paused = true)]
async fn new_template_rolls_out_within_its_bounds() {
    let cluster = TestCluster::new().await;
    cluster.create("Deployment", deployment(4, &rolling(1, 1))).await;
    pass(5.0).await;
    let first = cluster.list("ReplicaSet").await.remove(0);
    let hash = first["metadata"]["labels"]["pod-template-hash"].as_str().unwrap().to_owned();
    assert_eq!(name_of(&first), format!("web-{hash}"));
    assert_eq!(first["spec"]["selector"]["matchLabels"], json!({"app": "web", "pod-template-hash": hash}));
    let annotations = json!({
        "note": "mine", "deployment.kubernetes.io/revision": "1",
        "deployment.kubernetes.io/desired-replicas": "4", "deployment.kubernetes.io/max-replicas": "5",
    });
    assert_eq!(first["metadata"]["annotations"], annotations);
    let expected = (
        "True".into(),
        "NewReplicaSetAvailable".into(),
        format!("ReplicaSet \"web-{hash}\" has successfully progressed."),
    );
    assert_eq!(condition(&cluster, "Progressing").await, expected);
    assert_eq!(condition(&cluster, "Available").await.1, "MinimumReplicasAvailable");

    cluster.change("Deployment", "web", image("v2")).await;
    check_rollout(&cluster, 5, 3).await;
    let pods = cluster.pods().await;
    assert!(pods.len() == 4 && pods.iter().all(|pod| image_of(pod) == "v2" && is_ready(pod)));
    let deployment = cluster.get("Deployment", "web").await;
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    let status = &deployment["status"];
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], 4, "{field}");
    }
    assert_eq!((&status["unavailableReplicas"], &status["observedGeneration"]), (&Value::Null, &json!(2)));
    let messages = cluster.event_messages("web").await;
    assert_eq!(messages["ScalingReplicaSet"][0], format!("Scaled up replica set web-{hash} from 0 to 4"));
    assert!(
        messages["ScalingReplicaSet"]
            .iter()
            .any(|one| *one == format!("Scaled down replica set web-{hash} from 4 to 3"))
    );
    cluster.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn rollback_reuses_the_old_set_with_a_new_revision() {
    let cluster = TestCluster::new().await;
    cluster.create("Deployment", deployment(2, &rolling(1, 0))).await;
    pass(10.0).await;
    let first = name_of(&cluster.list("ReplicaSet").await[0]);
    cluster.change("Deployment", "web", image("v2")).await;
    pass(30.0).await;
    cluster.change("Deployment", "web", image("v1")).await;
    pass(30.0).await;
    let sets = cluster.list("ReplicaSet").await;
    assert_eq!(sets.len(), 2);
    let back = sets.iter().find(|set| name_of(set) == first).unwrap();
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!((&back["spec"]["replicas"], &back["status"]["availableReplicas"]), (&json!(2), &json!(2)));
    cluster.assert_idle().await;
}

#[tokio::test(start_paused = true)]
async fn old_sets_beyond_the_history_limit_are_deleted() {
    let cluster = TestCluster::new().await;
    let mut short = deployment(1, &rolling(1, 0));
    short["spec"]["revisionHistoryLimit"] = json!(1);
    cluster.create("Deployment", short).await;
    for version in ["v2", "v3", "v4"] {
        pass(20.0).await;
        cluster.change("Deployment", "web", image(version)).await;
    }
    pass(30.0).await;
    let revisions: Vec<Value> = cluster
        .list("ReplicaSet")
        .await
        .iter()
        .map(|set| set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone())
        .collect();
    assert!(
        revisions.len() == 2 && revisions.contains(&json!("3")) && revisions.contains(&json!("4")),
        "{revisions:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn recreate_never_mixes_templates() {
    let cluster = TestCluster::new().await;
    cluster.create("Deployment", deployment(3, &json!({"type": "Recreate"}))).await;
    pass(10.0).await;
    cluster.change("Deployment", "web", image("v2")).await;
    for _ in 0..100 {
        pass(0.1).await;
        let pods = cluster.pods().await;
        let images: std::collections::BTreeSet<String> = pods.iter().map(image_of).collect();
        assert!(images.len() <= 1, "{images:?}");
    }
    let pods = cluster.pods().await;
    assert!(pods.len() == 3 && pods.iter().all(|pod| image_of(pod) == "v2"));
    assert_eq!(condition(&cluster, "Progressing").await.1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn paused_deployment_scales_but_does_not_roll_out() {
    let cluster = TestCluster::new().await;
    cluster.create("Deployment", deployment(2, &rolling(1, 0))).await;
    pass(10.0).await;
    cluster.change("Deployment", "web", json!({"spec": {"paused": true}})).await;
    pass(1.0).await;
    cluster.change("Deployment", "web", image("v2")).await;
    cluster.change("Deployment", "web", json!({"spec": {"replicas": 3}})).await;
    pass(10.0).await;
    let expected = ("Unknown".into(), "DeploymentPaused".into(), "Deployment is paused".into());
    assert_eq!(condition(&cluster, "Progressing").await, expected);
    let pods = cluster.pods().await;
    assert!(pods.len() == 3 && pods.iter().all(|pod| image_of(pod) == "v1"));
    cluster.change("Deployment", "web", json!({"spec": {"paused": false}})).await;
    pass(20.0).await;
    assert!(cluster.pods().await.iter().all(|pod| image_of(pod) == "v2"));
    assert_eq!(condition(&cluster, "Progressing").await.1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn stuck_rollout_is_reported() {
    let cluster = TestCluster::new().await;
    let mut stuck = deployment(2, &rolling(1, 0));
    stuck["spec"]["progressDeadlineSeconds"] = json!(30);
    cluster.create("Deployment", stuck).await;
    pass(10.0).await;
    let gate = json!({"spec": {"template": {"spec": {"schedulingGates": [{"name": "example.com/never"}]}}}});
    cluster.change("Deployment", "web", gate).await;
    pass(25.0).await;
    assert_eq!(condition(&cluster, "Progressing").await.1, "ReplicaSetUpdated");
    pass(15.0).await;
    let (status, reason, message) = condition(&cluster, "Progressing").await;
    assert_eq!((&*status, &*reason), ("False", "ProgressDeadlineExceeded"));
    assert!(message.ends_with("has timed out progressing."), "{message}");
    assert_eq!(condition(&cluster, "Available").await.0, "True", "the old pods are still there");
    cluster.change("Deployment", "web", json!({"spec": {"template": {"spec": {"schedulingGates": null}}}})).await;
    pass(30.0).await;
    assert_eq!(condition(&cluster, "Progressing").await.1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn deleted_deployment_deletes_its_pods() {
    let cluster = TestCluster::new().await;
    cluster.create("Deployment", deployment(3, &rolling(1, 0))).await;
    pass(10.0).await;
    cluster.delete("Deployment", "web").await;
    pass(20.0).await;
    assert_eq!((cluster.names("ReplicaSet").await.len(), cluster.names("Pod").await.len()), (0, 0));
}
