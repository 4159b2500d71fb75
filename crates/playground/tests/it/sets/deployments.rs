//! Deployments: rollouts, history, pauses, deadlines.

use serde_json::{Value, json};

use super::{World, image_of, is_live, is_ready, name_of, pass, template};

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

async fn condition(world: &World, kind: &str) -> (String, String, String) {
    let deployment = world.get("Deployment", "web").await;
    let conditions = deployment["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let one = conditions.into_iter().find(|one| one["type"] == kind).unwrap_or_default();
    let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

/// Watches over a rollout: never more pods than allowed, never fewer ready.
async fn watch_over(world: &World, most: usize, least: usize) {
    for _ in 0..300 {
        pass(0.2).await;
        let pods = world.pods().await;
        let live: Vec<_> = pods.iter().filter(|pod| is_live(pod)).collect();
        let ready = live.iter().filter(|pod| is_ready(pod)).count();
        assert!(live.len() <= most, "{} pods, at most {most}", live.len());
        assert!(ready >= least, "{ready} ready, at least {least}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_template_rolls_out_within_its_bounds() {
    let world = World::new().await;
    world.make("Deployment", deployment(4, &rolling(1, 1))).await;
    pass(5.0).await;
    let first = world.list("ReplicaSet").await.remove(0);
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
    assert_eq!(condition(&world, "Progressing").await, expected);
    assert_eq!(condition(&world, "Available").await.1, "MinimumReplicasAvailable");

    world.change("Deployment", "web", image("v2")).await;
    watch_over(&world, 5, 3).await;
    let pods = world.pods().await;
    assert!(pods.len() == 4 && pods.iter().all(|pod| image_of(pod) == "v2" && is_ready(pod)));
    let deployment = world.get("Deployment", "web").await;
    assert_eq!(deployment["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "2");
    let status = &deployment["status"];
    for field in ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"] {
        assert_eq!(status[field], 4, "{field}");
    }
    assert_eq!((&status["unavailableReplicas"], &status["observedGeneration"]), (&Value::Null, &json!(2)));
    let told = world.told("web").await;
    assert_eq!(told["ScalingReplicaSet"][0], format!("Scaled up replica set web-{hash} from 0 to 4"));
    assert!(
        told["ScalingReplicaSet"].iter().any(|one| *one == format!("Scaled down replica set web-{hash} from 4 to 3"))
    );
    world.comes_to_rest().await;
}

#[tokio::test(start_paused = true)]
async fn going_back_takes_the_old_set_and_numbers_it_anew() {
    let world = World::new().await;
    world.make("Deployment", deployment(2, &rolling(1, 0))).await;
    pass(10.0).await;
    let first = name_of(&world.list("ReplicaSet").await[0]);
    world.change("Deployment", "web", image("v2")).await;
    pass(30.0).await;
    world.change("Deployment", "web", image("v1")).await;
    pass(30.0).await;
    let sets = world.list("ReplicaSet").await;
    assert_eq!(sets.len(), 2);
    let back = sets.iter().find(|set| name_of(set) == first).unwrap();
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision"], "3");
    assert_eq!(back["metadata"]["annotations"]["deployment.kubernetes.io/revision-history"], "1");
    assert_eq!((&back["spec"]["replicas"], &back["status"]["availableReplicas"]), (&json!(2), &json!(2)));
    world.comes_to_rest().await;
}

#[tokio::test(start_paused = true)]
async fn old_sets_are_forgotten_beyond_the_limit() {
    let world = World::new().await;
    let mut short = deployment(1, &rolling(1, 0));
    short["spec"]["revisionHistoryLimit"] = json!(1);
    world.make("Deployment", short).await;
    for version in ["v2", "v3", "v4"] {
        pass(20.0).await;
        world.change("Deployment", "web", image(version)).await;
    }
    pass(30.0).await;
    let revisions: Vec<Value> = world
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
async fn all_at_once_means_never_two_templates() {
    let world = World::new().await;
    world.make("Deployment", deployment(3, &json!({"type": "Recreate"}))).await;
    pass(10.0).await;
    world.change("Deployment", "web", image("v2")).await;
    for _ in 0..100 {
        pass(0.1).await;
        let pods = world.pods().await;
        let images: std::collections::BTreeSet<String> = pods.iter().map(image_of).collect();
        assert!(images.len() <= 1, "{images:?}");
    }
    let pods = world.pods().await;
    assert!(pods.len() == 3 && pods.iter().all(|pod| image_of(pod) == "v2"));
    assert_eq!(condition(&world, "Progressing").await.1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_the_rollout_but_not_the_size() {
    let world = World::new().await;
    world.make("Deployment", deployment(2, &rolling(1, 0))).await;
    pass(10.0).await;
    world.change("Deployment", "web", json!({"spec": {"paused": true}})).await;
    pass(1.0).await;
    world.change("Deployment", "web", image("v2")).await;
    world.change("Deployment", "web", json!({"spec": {"replicas": 3}})).await;
    pass(10.0).await;
    let expected = ("Unknown".into(), "DeploymentPaused".into(), "Deployment is paused".into());
    assert_eq!(condition(&world, "Progressing").await, expected);
    let pods = world.pods().await;
    assert!(pods.len() == 3 && pods.iter().all(|pod| image_of(pod) == "v1"));
    world.change("Deployment", "web", json!({"spec": {"paused": false}})).await;
    pass(20.0).await;
    assert!(world.pods().await.iter().all(|pod| image_of(pod) == "v2"));
    assert_eq!(condition(&world, "Progressing").await.1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_does_not_get_on_is_told() {
    let world = World::new().await;
    let mut stuck = deployment(2, &rolling(1, 0));
    stuck["spec"]["progressDeadlineSeconds"] = json!(30);
    world.make("Deployment", stuck).await;
    pass(10.0).await;
    let gate = json!({"spec": {"template": {"spec": {"schedulingGates": [{"name": "example.com/never"}]}}}});
    world.change("Deployment", "web", gate).await;
    pass(25.0).await;
    assert_eq!(condition(&world, "Progressing").await.1, "ReplicaSetUpdated");
    pass(15.0).await;
    let (status, reason, message) = condition(&world, "Progressing").await;
    assert_eq!((&*status, &*reason), ("False", "ProgressDeadlineExceeded"));
    assert!(message.ends_with("has timed out progressing."), "{message}");
    assert_eq!(condition(&world, "Available").await.0, "True", "the old pods are still there");
    world.change("Deployment", "web", json!({"spec": {"template": {"spec": {"schedulingGates": null}}}})).await;
    pass(30.0).await;
    assert_eq!(condition(&world, "Progressing").await.1, "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn a_deployment_that_goes_takes_its_pods_along() {
    let world = World::new().await;
    world.make("Deployment", deployment(3, &rolling(1, 0))).await;
    pass(10.0).await;
    world.delete("Deployment", "web").await;
    pass(20.0).await;
    assert_eq!((world.names("ReplicaSet").await.len(), world.names("Pod").await.len()), (0, 0));
}
