//! Random runs of Deployments and StatefulSets under faults: invariants at every step, and after convergence.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use muster_playground::faults::{Faults, Plan};
use muster_playground::random::Random;
use serde_json::{Value, json};

use super::{TestCluster, image_of, is_live, is_ready, pass, template};

fn seeds() -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    match number("MUSTER_SEED") {
        Some(seed) => vec![seed],
        None => (0..3 * number("MUSTER_TIMES").unwrap_or(1)).collect(),
    }
}

async fn faulty_cluster(seed: u64) -> (TestCluster, Faults) {
    let faults = Faults::new(seed, Plan::STORM);
    let behind = faults.clone();
    (TestCluster::seeded(seed, move |server| server.client_with(&behind)).await, faults)
}

fn live(pods: &[Pod], app: &str) -> Vec<Pod> {
    pods.iter().filter(|pod| pod.labels().get("app").is_some_and(|own| own == app) && is_live(pod)).cloned().collect()
}

#[tokio::test(start_paused = true)]
async fn deployments_stay_within_their_bounds() {
    for seed in seeds() {
        let (cluster, faults) = faulty_cluster(seed).await;
        let mut random = Random::new(seed);
        let (surge, unavailable) = [(1, 0), (0, 1), (2, 1), (3, 3)][random.below(4) as usize];
        let mut max = 4;
        cluster
            .create(
                "Deployment",
                json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                    "spec": {
                        "replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "v0"),
                        "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
                    },
                }),
            )
            .await;
        pass(30.0).await;
        let (mut replicas, mut version) = (4, 0);
        for _ in 0..15 {
            let mut is_hurt = false;
            match random.below(6) {
                0 => {
                    replicas = random.below(7) as i64;
                    max = max.max(replicas);
                    cluster.change("Deployment", "web", json!({"spec": {"replicas": replicas}})).await;
                }
                1 | 2 => {
                    version = random.below(3);
                    let containers = json!([{"name": "c", "image": format!("v{version}")}]);
                    let change = json!({"spec": {"template": {"spec": {"containers": containers}}}});
                    cluster.change("Deployment", "web", change).await;
                }
                3 => {
                    is_hurt = true;
                    delete_or_fail_pod(&cluster, &mut random).await;
                }
                4 => cluster.server.compact(),
                _ => {}
            }
            for _ in 0..random.below(40) {
                pass(0.25).await;
                let desired = desired(&cluster).await;
                // After a scale-down, the previous number of pods may still exist.
                assert!(desired <= max + surge, "seed {seed}: {desired} pods, at most {}", max + surge);
            }
            if is_hurt {
                continue;
            }
            if random.per_mille(300) {
                pass(60.0).await;
                max = replicas;
            }
        }
        faults.set_plan(Plan::default());
        pass(400.0).await;
        let pods = live(&cluster.pods().await, "web");
        assert_eq!(pods.len() as i64, replicas, "seed {seed}");
        assert!(pods.iter().all(|pod| image_of(pod) == format!("v{version}") && is_ready(pod)), "seed {seed}");
        let status = cluster.get("Deployment", "web").await["status"].clone();
        let count = |field: &str| status[field].as_i64().unwrap_or_default();
        let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"].map(count);
        assert_eq!(counts, [replicas; 4], "seed {seed}: {status}");
        cluster.assert_idle().await;
    }
}

/// The sum of the desired pods of the ReplicaSets. There may be more for a moment, as on a real cluster: a set that
/// shrinks and one that grows are synced independently.
async fn desired(cluster: &TestCluster) -> i64 {
    cluster.list("ReplicaSet").await.iter().map(|set| set["spec"]["replicas"].as_i64().unwrap_or_default()).sum()
}

/// Deletes a pod at once, or lets it fail.
async fn delete_or_fail_pod(cluster: &TestCluster, random: &mut Random) {
    let pods = cluster.pods().await;
    let Some(pod) = pods.get(random.below(pods.len().max(1) as u64) as usize) else { return };
    if random.per_mille(500) {
        let at_once = DeleteParams::default().grace_period(0);
        let _ = cluster.api("Pod").delete(&pod.name_any(), &at_once).await;
    } else {
        let failed = kube::api::Patch::Merge(json!({"status": {"phase": "Failed"}}));
        let _ = cluster.api("Pod").patch_status(&pod.name_any(), &kube::api::PatchParams::default(), &failed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn rollout_without_failures_keeps_minimum_available() {
    for seed in seeds() {
        let (cluster, _faults) = faulty_cluster(seed).await;
        let mut random = Random::new(seed);
        let (surge, unavailable) = [(1, 0), (0, 1), (2, 1)][random.below(3) as usize];
        cluster
            .create(
                "Deployment",
                json!({
                    "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
                    "spec": {
                        "replicas": 5, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "v0"),
                        "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}},
                    },
                }),
            )
            .await;
        pass(60.0).await;
        for version in 1..6 {
            let containers = json!([{"name": "c", "image": format!("v{version}")}]);
            let change = json!({"spec": {"template": {"spec": {"containers": containers}}}});
            cluster.change("Deployment", "web", change).await;
            for _ in 0..random.below(80) {
                pass(0.25).await;
                let pods = live(&cluster.pods().await, "web");
                let ready = pods.iter().filter(|pod| is_ready(pod)).count();
                assert!(ready + unavailable >= 5, "seed {seed}: {ready} ready");
                let desired = desired(&cluster).await;
                assert!(desired <= 5 + surge, "seed {seed}: {desired} pods");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn stateful_sets_keep_their_order() {
    for seed in seeds() {
        let (cluster, faults) = faulty_cluster(seed).await;
        let mut random = Random::new(seed);
        let in_order = random.per_mille(700);
        let policy = if in_order { "OrderedReady" } else { "Parallel" };
        cluster
            .create(
                "StatefulSet",
                json!({
                    "apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db"},
                    "spec": {
                        "replicas": 3, "podManagementPolicy": policy,
                        "selector": {"matchLabels": {"app": "db"}}, "template": template("db", "v0"),
                    },
                }),
            )
            .await;
        let (mut replicas, mut version) = (3, 0);
        for _ in 0..15 {
            match random.below(6) {
                0 => {
                    replicas = random.below(6) as i64;
                    cluster.change("StatefulSet", "db", json!({"spec": {"replicas": replicas}})).await;
                }
                1 => {
                    version = random.below(3);
                    let containers = json!([{"name": "c", "image": format!("v{version}")}]);
                    let change = json!({"spec": {"template": {"spec": {"containers": containers}}}});
                    cluster.change("StatefulSet", "db", change).await;
                }
                2 => delete_or_fail_pod(&cluster, &mut random).await,
                3 => cluster.server.compact(),
                _ => {}
            }
            let mut before = pods_by_ordinal(&cluster).await;
            for _ in 0..random.below(40) {
                pass(0.25).await;
                let now = pods_by_ordinal(&cluster).await;
                if in_order {
                    check_order(&before, &now, seed);
                }
                before = now;
            }
        }
        faults.set_plan(Plan::default());
        pass(400.0).await;
        let pods = live(&cluster.pods().await, "db");
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        let expected: Vec<String> = (0..replicas).map(|number| format!("db-{number}")).collect();
        assert_eq!(names, expected, "seed {seed}");
        assert!(pods.iter().all(|pod| image_of(pod) == format!("v{version}") && is_ready(pod)), "seed {seed}");
        let status = cluster.get("StatefulSet", "db").await["status"].clone();
        for field in ["replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas"] {
            assert_eq!(status[field].as_i64().unwrap_or_default(), replicas, "seed {seed}: {field}");
        }
        assert_eq!(status["currentRevision"], status["updateRevision"], "seed {seed}");
        cluster.assert_idle().await;
    }
}

/// Each pod by ordinal: its UID, and whether it is ready and not terminating.
async fn pods_by_ordinal(cluster: &TestCluster) -> BTreeMap<i64, (String, bool)> {
    let pods = cluster.pods().await;
    let number = |pod: &Pod| pod.name_any().rsplit_once('-').and_then(|(_, number)| number.parse().ok());
    let entry = |pod: &Pod| Some((number(pod)?, (pod.uid().unwrap_or_default(), is_ready(pod) && is_live(pod))));
    pods.iter().filter_map(entry).collect()
}

/// Of the new pods at most one is not ready, and none was created above one that was not ready.
fn check_order(before: &BTreeMap<i64, (String, bool)>, now: &BTreeMap<i64, (String, bool)>, seed: u64) {
    let is_new = |number: &i64| before.get(number).map(|(uid, _)| uid) != now.get(number).map(|(uid, _)| uid);
    let fresh: Vec<&i64> = now.keys().filter(|number| is_new(number)).collect();
    // Two steps can happen between two observations, but not two pods that are both pending.
    let waiting = fresh.iter().filter(|number| !now[number].1).count();
    assert!(waiting <= 1, "seed {seed}: {fresh:?} are new, {waiting} of them wait");
}

#[tokio::test(start_paused = true)]
async fn groups_converge_after_faults() {
    for seed in seeds().into_iter().take(4) {
        let (cluster, faults) = faulty_cluster(seed).await;
        pass(20.0).await;
        let mut random = Random::new(seed);
        cluster
            .create(
                "LeaderWorkerSet",
                json!({
                    "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "foo"},
                    "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 3, "workerTemplate": template("w", "v0")}},
                }),
            )
            .await;
        let (mut replicas, mut size, mut version) = (2, 3, 0);
        for _ in 0..15 {
            match random.below(6) {
                0 => replicas = random.below(4) as i64,
                1 => size = 1 + random.below(4) as i64,
                2 => version = random.below(3),
                3 => delete_or_fail_pod(&cluster, &mut random).await,
                4 => cluster.server.compact(),
                _ => {}
            }
            let containers = json!([{"name": "c", "image": format!("v{version}")}]);
            let template = json!({"size": size, "workerTemplate": {"spec": {"containers": containers}}});
            let change = json!({"spec": {"replicas": replicas, "leaderWorkerTemplate": template}});
            cluster.change("LeaderWorkerSet", "foo", change).await;
            pass(random.below(20) as f64).await;
        }
        faults.set_plan(Plan::default());
        pass(900.0).await;
        let pods = live(&cluster.pods().await, "w");
        let status: Value = cluster.get("LeaderWorkerSet", "foo").await["status"].clone();
        let names: Vec<String> = pods.iter().map(ResourceExt::name_any).collect();
        assert_eq!(pods.len() as i64, replicas * size, "seed {seed}: {replicas} x {size}, {names:?}, {status}");
        assert!(pods.iter().all(|pod| image_of(pod) == format!("v{version}") && is_ready(pod)), "seed {seed}");
        assert_eq!(status["readyReplicas"], replicas, "seed {seed}");
        cluster.assert_idle().await;
    }
}
