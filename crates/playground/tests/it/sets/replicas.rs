//! Replica sets: adoption and release, events, failures.

use serde_json::{Value, json};

use super::{TestCluster, pass, template};

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
async fn orphans_are_adopted_and_mismatches_released() {
    let cluster = TestCluster::new().await;
    cluster.create("Pod", orphan("early")).await;
    cluster.create("ReplicaSet", set(2)).await;
    pass(3.0).await;
    let names = cluster.names("Pod").await;
    assert!(names.len() == 2 && names.contains(&"early".to_owned()), "{names:?}");
    let early = cluster.get("Pod", "early").await;
    let owner = &early["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("ReplicaSet"), &json!(true)));

    cluster.change("Pod", "early", json!({"metadata": {"labels": {"app": "other"}}})).await;
    pass(3.0).await;
    assert_eq!(cluster.get("Pod", "early").await["metadata"]["ownerReferences"], Value::Null, "it is released");
    assert_eq!(cluster.names("Pod").await.len(), 3, "and replaced by another pod");

    cluster.change("Pod", "early", json!({"metadata": {"labels": {"app": "web"}}})).await;
    pass(3.0).await;
    assert_eq!(cluster.names("Pod").await.len(), 2, "it is adopted again, and one is surplus");
    let status = cluster.get("ReplicaSet", "web").await["status"].clone();
    let expected = json!({
        "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 2,
        "terminatingReplicas": 0, "observedGeneration": 1,
    });
    assert_eq!(status, expected);
    let messages = cluster.event_messages("web").await;
    assert_eq!((messages["SuccessfulCreate"].len(), messages["SuccessfulDelete"].len()), (2, 1), "{messages:?}");
    assert!(messages["SuccessfulCreate"][0].starts_with("Created pod: web-"), "{messages:?}");
}

#[tokio::test(start_paused = true)]
async fn failed_pod_creation_is_reported() {
    let cluster = TestCluster::new().await;
    let mut bad = set(3);
    bad["spec"]["template"]["spec"]["priorityClassName"] = json!("missing");
    cluster.create("ReplicaSet", bad).await;
    pass(30.0).await;
    let status = cluster.get("ReplicaSet", "web").await["status"].clone();
    let condition = &status["conditions"][0];
    assert_eq!((&condition["type"], &condition["reason"]), (&json!("ReplicaFailure"), &json!("FailedCreate")));
    let why = condition["message"].as_str().unwrap();
    assert!(why.contains("no PriorityClass with name missing was found"), "{why}");
    let messages = cluster.event_messages("web").await;
    assert!(messages["FailedCreate"][0].starts_with("Error creating: pods \"web-"), "{messages:?}");

    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                       "metadata": {"name": "missing"}, "value": 1});
    let request = http::Request::post("/apis/scheduling.k8s.io/v1/priorityclasses")
        .header("content-type", "application/json")
        .body(class.to_string().into_bytes())
        .unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
    pass(30.0).await;
    let status = cluster.get("ReplicaSet", "web").await["status"].clone();
    assert_eq!((&status["conditions"], &status["readyReplicas"]), (&Value::Null, &json!(3)));
}

#[tokio::test(start_paused = true)]
async fn large_set_does_not_flood_the_events() {
    let cluster = TestCluster::new().await;
    cluster.create("ReplicaSet", set(60)).await;
    pass(10.0).await;
    assert_eq!(cluster.get("ReplicaSet", "web").await["status"]["readyReplicas"], 60);
    let messages = cluster.event_messages("web").await;
    let created = &messages["SuccessfulCreate"];
    assert_eq!(created.len(), 10, "{created:?}");
    assert!(created.iter().filter(|one| one.starts_with("(combined from similar events): ")).count() == 1);
}

#[tokio::test(start_paused = true)]
async fn pods_are_available_after_min_ready_seconds() {
    let cluster = TestCluster::new().await;
    let mut patient = set(2);
    patient["spec"]["minReadySeconds"] = json!(20);
    cluster.create("ReplicaSet", patient).await;
    pass(10.0).await;
    let status = cluster.get("ReplicaSet", "web").await["status"].clone();
    assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(2), &Value::Null));
    pass(15.0).await;
    assert_eq!(cluster.get("ReplicaSet", "web").await["status"]["availableReplicas"], 2);
    cluster.assert_idle().await;
}
