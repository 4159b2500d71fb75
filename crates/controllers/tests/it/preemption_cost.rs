//! The cost of eviction that owners declare, on the objects of their groups, in every API of JobSets and
//! LeaderWorkerSets.

use std::collections::BTreeMap;

use muster_api::native::NativeVersion;
use muster_playground_server::faults::Faults;
use serde_json::{Value, json};

use crate::test_cluster::{TestCluster, job, job_set, leader_worker_set, pass};

const COST: &str = "muster.dev/preemption-cost";

/// The cost of each object that is a group or has groups, by kind and name.
async fn costs(cluster: &TestCluster) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    let of_native = cluster.native.map(|version| format!("scheduling.k8s.io/{}", version.name()));
    let has_pod_groups = cluster.native.is_some_and(|version| version.pod_groups().is_some());
    let mut kinds = vec![("muster.dev/v1alpha1".to_owned(), "PodGroup")];
    match of_native {
        None => kinds.push(("muster.dev/v1alpha1".to_owned(), "Workload")),
        Some(version) => kinds.push((version, if has_pod_groups { "PodGroup" } else { "Workload" })),
    }
    for (version, kind) in kinds {
        for object in cluster.list(&version, kind).await {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            found.insert(format!("{kind} {name}"), object["metadata"]["annotations"][COST].clone());
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn cost_of_an_owner_is_that_of_its_groups_and_kept_current() {
    let versions = [NativeVersion::V1beta1, NativeVersion::V1alpha2, NativeVersion::V1alpha1].map(Some);
    for native in [None].into_iter().chain(versions) {
        let cluster = TestCluster::new(Faults::none(), native).await;
        let mut owners = vec![job("j"), leader_worker_set("l")];
        // The server's Jobs are those of 1.37, whose pods cannot reference a group of 1.35.
        if native != Some(NativeVersion::V1alpha1) {
            owners.push(job_set("s", "", "ReplicatedGang"));
        }
        for owner in &owners {
            let mut owner = owner.clone();
            owner["metadata"]["annotations"][COST] = json!("5");
            cluster.create(&owner).await;
        }
        pass(10).await;
        let before = costs(&cluster).await;
        let inline = native.is_none_or(|version| version.pod_groups().is_none());
        let expected = if inline { owners.len() + 1 } else { owners.len() + 2 };
        assert_eq!(before.len(), expected, "{native:?}: {before:?}");
        assert!(before.values().all(|cost| *cost == "5"), "{native:?}: {before:?}");
        for (cost, shown) in [("-2", json!("-2")), ("", Value::Null)] {
            for owner in &owners {
                cluster.annotate(owner, COST, cost).await;
            }
            pass(10).await;
            let after = costs(&cluster).await;
            assert!(after.values().all(|cost| *cost == shown), "{native:?}: {after:?}");
            assert!(after.keys().eq(before.keys()), "{native:?}: {after:?}");
        }
    }
}
