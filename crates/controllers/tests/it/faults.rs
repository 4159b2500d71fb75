//! Fault injection: with requests that fail, get lost or arrive late, watches that break, and controllers that crash
//! between any two writes, the final state is always the same. A failing seed is printed; `MUSTER_SEED=n` runs it
//! alone, `MUSTER_TIMES=n` runs n times as many.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::native::NativeVersion;
use muster_determinism::random::Random;
use muster_playground_server::faults::{Faults, Plan};
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};

use crate::test_cluster::{TestCluster, job, job_set, leader_worker_set, pass};

const SEEDS: u64 = 12;

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// The group APIs that gangs are written in, used in turn.
const GROUP_APIS: [Option<NativeVersion>; 4] =
    [None, Some(NativeVersion::V1beta1), Some(NativeVersion::V1alpha2), Some(NativeVersion::V1alpha1)];

/// Checks the expected objects, derived from the owners without the code under test.
async fn check(cluster: &TestCluster, seed: u64) {
    let pods = cluster.list("v1", "Pod").await;
    let name = |object: &Value| text(&object["metadata"]["name"]);
    let annotation = |pod: &Value, key: &str| text(&pod["metadata"]["annotations"][format!("muster.dev/{key}")]);
    let mut workloads = BTreeMap::new();
    for set in cluster.list("jobset.x-k8s.io/v1alpha2", "JobSet").await {
        let whole = set["metadata"]["annotations"]["muster.dev/gang-mode"] == "Gang";
        let (group, minimum) = if whole { (format!("pg-{}", name(&set)), 4) } else { ("pg-workers".to_owned(), 2) };
        let policy = json!({"gang": {"minCount": minimum}});
        let spec = json!([{"name": group, "policy": policy, "disruptionMode": "PodGroup"}]);
        workloads.insert(format!("w-{}", name(&set)), (set["metadata"]["uid"].clone(), spec));
        let in_set = |pod: &&Value| pod["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"] == name(&set);
        let mut count = 0;
        for pod in pods.iter().filter(in_set) {
            count += 1;
            let index = text(&pod["metadata"]["labels"]["jobset.sigs.k8s.io/job-index"]);
            let key = if whole { String::new() } else { index };
            let reference = (annotation(pod, "workload"), annotation(pod, "pod-group"), annotation(pod, "replica-key"));
            assert_eq!(reference, (format!("w-{}", name(&set)), group.clone(), key), "seed {seed}: {}", name(pod));
        }
        assert_eq!(count, 4, "seed {seed}: pods of {}", name(&set));
    }
    let found = cluster.list("muster.dev/v1alpha1", "Workload").await;
    let owner = |object: &Value| object["metadata"]["ownerReferences"][0]["uid"].clone();
    let found: BTreeMap<_, _> =
        found.iter().map(|one| (name(one), (owner(one), one["spec"]["podGroups"].clone()))).collect();
    assert_eq!(found, workloads, "seed {seed}");

    let mut groups = BTreeSet::new();
    for job in cluster
        .list("batch/v1", "Job")
        .await
        .iter()
        .filter(|job| job["metadata"]["labels"]["jobset.sigs.k8s.io/jobset-name"].is_null())
    {
        groups.insert((format!("job-{}", name(job)), job["metadata"]["uid"].to_string()));
    }
    for pod in pods.iter().filter(|pod| pod["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j") {
        assert_eq!(annotation(pod, "pod-group"), "job-j", "seed {seed}: {}", name(pod));
    }
    for pod in &pods {
        let label = |key: &str| text(&pod["metadata"]["labels"][format!("leaderworkerset.sigs.k8s.io/{key}")]);
        if label("name").is_empty() {
            continue;
        }
        let group = format!("{}-{}-{}", label("name"), label("group-index"), label("template-revision-hash"));
        assert_eq!(annotation(pod, "pod-group"), group, "seed {seed}: {}", name(pod));
        if label("worker-index") == "0" {
            groups.insert((group, pod["metadata"]["uid"].to_string()));
        }
    }
    let found = cluster.list("muster.dev/v1alpha1", "PodGroup").await;
    let two = |group: &Value| assert_eq!(group["spec"]["policy"]["gang"]["minCount"], 2, "seed {seed}: {group}");
    found.iter().for_each(two);
    let found: BTreeSet<_> = found.iter().map(|one| (name(one), owner(one).to_string())).collect();
    assert_eq!(found, groups, "seed {seed}");
}

/// The objects written after a revision.
async fn newer(cluster: &TestCluster, revision: u64) -> Vec<Value> {
    let mut found = Vec::new();
    let native = cluster.native.map(|version| format!("scheduling.k8s.io/{}", version.name()));
    let native = native.iter().flat_map(|version| [(version.as_str(), "Workload"), (version.as_str(), "PodGroup")]);
    for (version, kind) in [
        ("v1", "Pod"),
        ("batch/v1", "Job"),
        ("apps/v1", "StatefulSet"),
        ("events.k8s.io/v1", "Event"),
        ("muster.dev/v1alpha1", "Workload"),
        ("muster.dev/v1alpha1", "PodGroup"),
        ("jobset.x-k8s.io/v1alpha2", "JobSet"),
        ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"),
    ]
    .into_iter()
    .chain(native.filter(|(version, kind)| !version.ends_with("v1alpha1") || *kind == "Workload"))
    {
        let is_newer =
            |object: &Value| text(&object["metadata"]["resourceVersion"]).parse().is_ok_and(|one: u64| one > revision);
        found.extend(cluster.list(version, kind).await.into_iter().filter(is_newer));
    }
    found
}

async fn run(seed: u64) {
    let mut random = Random::new(seed);
    let native = GROUP_APIS[usize::try_from(seed).unwrap() % GROUP_APIS.len()];
    let mut cluster = TestCluster::new(Faults::new(seed, Plan::STORM), native).await;
    let mut objects = vec![job("j"), leader_worker_set("l")];
    // The server's Jobs are those of 1.37, whose pods cannot reference a group of 1.35.
    if native != Some(NativeVersion::V1alpha1) {
        objects.extend([job_set("a", "Gang", ""), job_set("b", "", "ReplicatedGang")]);
    }
    for object in &objects {
        cluster.create(object).await;
    }
    for _ in 0..8 {
        match random.below(4) {
            0 => cluster.restart(),
            1 => {
                let object = &objects[usize::try_from(random.below(objects.len() as u64)).unwrap()];
                cluster.delete(object).await;
                cluster.create(object).await;
            }
            _ => {}
        }
        sleep(Duration::from_millis(random.below(3_000))).await;
    }
    cluster.faults.set_plan(Plan::default());
    pass(300).await;
    match native {
        None => check(&cluster, seed).await,
        Some(version) => crate::native::check(&cluster, version, seed).await,
    }
    // In the desired state nothing more is written, by these controllers or by new ones.
    for again in ["without a restart", "after a restart"] {
        let before = *cluster.server.revisions().borrow();
        pass(120).await;
        let after = *cluster.server.revisions().borrow();
        assert_eq!(after, before, "seed {seed}: {again}, a second pass wrote {:?}", newer(&cluster, before).await);
        cluster.restart();
    }
}

#[test]
fn final_state_does_not_depend_on_faults() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("MUSTER_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..SEEDS * number("MUSTER_TIMES").unwrap_or(1),
    };
    for seed in seeds {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(run(seed));
    }
}
