//! Ten thousand pod changes in ten seconds: the status of their groups is correct in the end, and is written only
//! rarely.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject};
use kube::runtime::watcher::{Config, Event, watcher};
use muster_playground_server::Server;
use serde_json::{Value, json};

use crate::bad_objects::lax_crd;
use crate::test_cluster::{TestCluster, group, pod, sleep_seconds};

const GROUPS: usize = 10;
const PODS: usize = 1_000;
const ROUNDS: usize = 10;
/// The maximum rate of writes to a group that pod changes cause.
const WRITES_PER_SECOND_MAX: usize = 2;

/// Counts the writes to each group.
fn writes(server: &Server) -> Arc<Mutex<BTreeMap<String, usize>>> {
    let resource = ApiResource {
        group: "muster.dev".to_owned(),
        version: "v1alpha1".to_owned(),
        api_version: "muster.dev/v1alpha1".to_owned(),
        kind: "PodGroup".to_owned(),
        plural: "podgroups".to_owned(),
    };
    let api: Api<DynamicObject> = Api::all_with(server.client(), &resource);
    let counts = Arc::new(Mutex::new(BTreeMap::new()));
    let counter = counts.clone();
    tokio::spawn(async move {
        let mut events = std::pin::pin!(watcher(api, Config::default()));
        while let Some(event) = events.next().await {
            if let Ok(Event::Apply(object)) = event {
                *counter.lock().unwrap().entry(object.metadata.name.unwrap_or_default()).or_insert(0) += 1;
            }
        }
    });
    counts
}

fn bound_pod(number: usize) -> Value {
    let mut pod = pod(&format!("p{number}"), &format!("g{}", number % GROUPS));
    pod["spec"]["nodeName"] = json!("n0");
    pod["spec"]["containers"][0]["resources"] = json!({});
    pod
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_changes_in_ten_seconds_cause_few_writes_per_group() {
    let cluster = TestCluster::unchecked(&[lax_crd()]).await;
    for number in 0..GROUPS {
        cluster.create(group(&format!("g{number}"), &json!({"subsets": [{"minMember": 1}]}))).await;
    }
    for number in 0..PODS {
        cluster.create(bound_pod(number)).await;
    }
    sleep_seconds(10).await;
    let counts = writes(&cluster.server);
    sleep_seconds(1).await;
    let pods: Api<Pod> = Api::namespaced(cluster.server.client(), "default");
    for round in 0..ROUNDS {
        for number in 0..PODS {
            // In every round other pods are running.
            let phase = if (number / GROUPS + round).is_multiple_of(3) { "Pending" } else { "Running" };
            let patch = Patch::Merge(json!({"status": {"phase": phase}}));
            pods.patch_status(&format!("p{number}"), &PatchParams::default(), &patch).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    sleep_seconds(5).await;
    let counts = counts.lock().unwrap().clone();
    assert_eq!(counts.len(), GROUPS, "each group is written: {counts:?}");
    let most = counts.values().max().copied().unwrap_or(0);
    assert!(most <= WRITES_PER_SECOND_MAX * (ROUNDS + 2), "{counts:?}");
    for number in 0..GROUPS {
        let object = cluster.get(&group(&format!("g{number}"), &json!({}))).await;
        let subset = &object["status"]["subsets"][0];
        let members = (0..PODS).filter(|pod| pod % GROUPS == number);
        let running = members.filter(|pod| !(pod / GROUPS + ROUNDS - 1).is_multiple_of(3)).count();
        assert_eq!((&subset["total"], &subset["running"]), (&json!(PODS / GROUPS), &json!(running)), "{object}");
    }
}
