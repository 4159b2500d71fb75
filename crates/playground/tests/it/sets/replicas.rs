//! Replica sets: adoption and release, events, failures.

use serde_json::{Value, json};

use super::{World, pass, template};

fn set(replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "i")},
    })
}

fn orphan(name: &str) -> Value {
    let mut pod = template("web", "i");
    pod["apiVersion"] = json!("v1");
    pod["kind"] = json!("Pod");
    pod["metadata"]["name"] = json!(name);
    pod
}

#[tokio::test(start_paused = true)]
async fn orphans_are_taken_in_and_strangers_let_go() {
    let world = World::new().await;
    world.make("Pod", orphan("early")).await;
    world.make("ReplicaSet", set(2)).await;
    pass(3.0).await;
    let names = world.names("Pod").await;
    assert!(names.len() == 2 && names.contains(&"early".to_owned()), "{names:?}");
    let early = world.get("Pod", "early").await;
    let owner = &early["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("ReplicaSet"), &json!(true)));

    world.change("Pod", "early", json!({"metadata": {"labels": {"app": "other"}}})).await;
    pass(3.0).await;
    assert_eq!(world.get("Pod", "early").await["metadata"]["ownerReferences"], Value::Null, "it is let go");
    assert_eq!(world.names("Pod").await.len(), 3, "and another takes its place");

    world.change("Pod", "early", json!({"metadata": {"labels": {"app": "web"}}})).await;
    pass(3.0).await;
    assert_eq!(world.names("Pod").await.len(), 2, "it is back, and one is too many");
    let status = world.get("ReplicaSet", "web").await["status"].clone();
    let expected = json!({
        "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "terminatingReplicas": 0, "observedGeneration": 1,
    });
    assert_eq!(status, expected);
    let told = world.told("web").await;
    assert_eq!((told["SuccessfulCreate"].len(), told["SuccessfulDelete"].len()), (2, 1), "{told:?}");
    assert!(told["SuccessfulCreate"][0].starts_with("Created pod: web-"), "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn pods_that_cannot_be_made_are_told() {
    let world = World::new().await;
    let mut bad = set(3);
    bad["spec"]["template"]["spec"]["priorityClassName"] = json!("missing");
    world.make("ReplicaSet", bad).await;
    pass(30.0).await;
    let status = world.get("ReplicaSet", "web").await["status"].clone();
    let condition = &status["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaFailure"), &json!("FailedCreate")));
    let why = condition["message"].as_str().unwrap();
    assert!(why.contains("no PriorityClass with name missing was found"), "{why}");
    let told = world.told("web").await;
    assert!(told["FailedCreate"][0].starts_with("Error creating: pods \"web-"), "{told:?}");

    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                       "metadata": {"name": "missing"}, "value": 1});
    let request = http::Request::post("/apis/scheduling.k8s.io/v1/priorityclasses")
        .header("content-type", "application/json")
        .body(class.to_string().into_bytes())
        .unwrap();
    world.client.request::<Value>(request).await.unwrap();
    pass(30.0).await;
    let status = world.get("ReplicaSet", "web").await["status"].clone();
    assert_eq!((&status["conditions"], &status["readyReplicas"]), (&Value::Null, &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn a_large_set_does_not_flood_the_events() {
    let world = World::new().await;
    world.make("ReplicaSet", set(60)).await;
    pass(10.0).await;
    assert_eq!(world.get("ReplicaSet", "web").await["status"]["readyReplicas"], 60);
    let told = world.told("web").await;
    let created = &told["SuccessfulCreate"];
    assert_eq!(created.len(), 10, "{created:?}");
    assert!(created.iter().filter(|one| one.starts_with("(combined from similar events): ")).count() == 1);
}

#[tokio::test(start_paused = true)]
async fn pods_count_when_they_have_been_ready_for_long_enough() {
    let world = World::new().await;
    let mut patient = set(2);
    patient["spec"]["minReadySeconds"] = json!(20);
    world.make("ReplicaSet", patient).await;
    pass(10.0).await;
    let status = world.get("ReplicaSet", "web").await["status"].clone();
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(2), &Value::Null));
    pass(15.0).await;
    assert_eq!(world.get("ReplicaSet", "web").await["status"]["availableReplicas"], 2);
    world.comes_to_rest().await;
}
