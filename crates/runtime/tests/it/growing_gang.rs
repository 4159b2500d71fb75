//! A gang whose members arrive one after the other: while they arrive, no member gets a condition about missing ones.

use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::bad_objects::lax_crd;
use crate::test_cluster::{TestCluster, group, pod, sleep_seconds};

/// The reason of a pod's `PodScheduled` condition, if there is one.
async fn reason(cluster: &TestCluster, name: &str) -> Option<String> {
    let object = cluster.get(&pod(name, "g")).await;
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let shown: Option<&Value> = list.iter().find(|one| one["type"] == "PodScheduled");
    shown.and_then(|one| Some(one["reason"].as_str()?.to_owned()))
}

/// The number of `FailedScheduling` events.
async fn failures(cluster: &TestCluster) -> usize {
    let events: Api<Event> = Api::namespaced(cluster.server.client(), "default");
    let events = events.list(&ListParams::default()).await.unwrap();
    events.items.iter().filter(|event| event.reason.as_deref() == Some("FailedScheduling")).count()
}

async fn gang_of(minimum: u32) -> TestCluster {
    let cluster = TestCluster::with(&[lax_crd()]).await;
    cluster.create(group("g", &json!({"policy": {"gang": {"minCount": minimum}}}))).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn while_members_arrive_pods_get_no_condition() {
    let cluster = gang_of(20).await;
    for number in 0..12 {
        cluster.create(pod(&format!("a-{number}"), "g")).await;
        sleep_seconds(3).await;
    }
    assert_eq!((reason(&cluster, "a-0").await, failures(&cluster).await), (None, 0));
    sleep_seconds(4).await;
    for number in 0..12 {
        assert_eq!(reason(&cluster, &format!("a-{number}")).await.as_deref(), Some("WaitingForMembers"), "{number}");
    }
    assert_eq!(failures(&cluster).await, 12);
}

#[tokio::test(start_paused = true)]
async fn after_a_minute_members_get_the_condition_nevertheless() {
    let cluster = gang_of(100).await;
    for number in 0..24 {
        cluster.create(pod(&format!("a-{number}"), "g")).await;
        sleep_seconds(3).await;
    }
    let waiting = Some("WaitingForMembers".to_owned());
    assert_eq!((reason(&cluster, "a-0").await, reason(&cluster, "a-23").await), (waiting, None));
}
