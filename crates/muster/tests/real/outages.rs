//! Outages: an API server or etcd that is unavailable, a watch that is too old, and a scheduler that ends in the middle
//! of a gang start.
//!
//! At the end of each, every gang is complete, no pod was bound twice, and no node was ever overcommitted.

use std::time::Duration;

use kube::api::ListParams;
use muster_controlplane::Profile;
use serde_json::json;

use crate::audit::bound_twice;
use crate::objects::{Gang, nodes};
use crate::pod_recorder::RecordedPods;
use crate::replica::short_lease;
use crate::test_cluster::{Load, TestCluster};

const OURS: &str = "muster.dev/v1alpha1";
const OUTAGE: Duration = Duration::from_secs(30);
const SHORT_OUTAGE: Duration = Duration::from_secs(8);
const TIMEOUT: Duration = Duration::from_secs(60);
/// After an outage every client backs off, and the last pause may be long.
const LONG_TIMEOUT: Duration = Duration::from_secs(180);

/// The invariants after every outage. Each gang is complete, and its pods were never replaced.
async fn check_invariants(cluster: &mut TestCluster, gangs: &[&Gang]) {
    for gang in gangs {
        cluster.until_condition(OURS, &gang.name, "PodGroupScheduled", "True").await;
        let counts = cluster.seen(|pods| pods.counts(&gang.name));
        let seen = (counts.running, counts.bound, counts.refused, counts.removed);
        if seen != (gang.size, gang.size, 0, 0) {
            cluster.fail(&format!("{} is not complete: {counts:?}", gang.name));
        }
    }
    if !cluster.seen(|pods| pods.ever_overcommitted().is_empty()) {
        cluster.fail("a node was overcommitted");
    }
    let binds = cluster.audit.binds();
    let bound_twice: Vec<_> = binds.iter().filter(|(_, answers)| bound_twice(answers)).collect();
    assert!(bound_twice.is_empty(), "bound twice: {bound_twice:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_the_api_server_is_survived() {
    survives_outage_of("kube-apiserver", OUTAGE).await;
}

/// An API server without etcd responds late and with errors, and the result of a write is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn outage_of_etcd_is_survived() {
    survives_outage_of("etcd", SHORT_OUTAGE).await;
}

/// Two schedulers, each with its own nodes: one with a lease, which it may lose, and one without.
async fn survives_outage_of(program: &str, outage: Duration) {
    let Some(mut cluster) = TestCluster::start(&format!("without-{program}"), Load::Half, Profile::Stock, &[]).await
    else {
        return;
    };
    for scheduler in ["elected", "alone"] {
        cluster.add_nodes(&nodes(scheduler, 30)).await;
        let config = json!({
            "schedulerNames": [scheduler], "limits": {"bindsInFlight": 1},
            "leaderElection": {"enabled": scheduler == "elected"},
        });
        cluster.start_replica(scheduler, &config);
    }
    cluster.await_leader("elected").await;
    let gang = |name: &str, size, scheduler: &str, pool: &str| {
        Gang::new(&format!("{name}-{scheduler}"), size, pool).scheduled_by(scheduler)
    };
    let starting = ["elected", "alone"].map(|name| gang("starting", 240, name, name));
    let waiting = ["elected", "alone"].map(|name| gang("waiting", 40, name, &format!("later-{name}")));
    for gang in &waiting {
        cluster.create(vec![gang.group()]).await;
        cluster.create(gang.pods()).await;
        cluster.until_condition(OURS, &gang.name, "PodGroupScheduled", "False").await;
    }
    for gang in &starting {
        cluster.create(gang.pods()).await;
    }
    cluster.create(starting.iter().map(Gang::group).collect()).await;
    let bound = |pods: &RecordedPods| starting.clone().map(|gang| pods.counts(&gang.name).bound);
    cluster.until("two starts", TIMEOUT, |pods| bound(pods).iter().all(|bound| *bound >= 20)).await;
    cluster.kill_program(program).await;
    let in_the_middle = cluster.seen(bound);
    assert!(in_the_middle.iter().all(|bound| *bound < 240), "a start was over: {in_the_middle:?}");

    cluster.pass(outage).await;
    if outage == OUTAGE {
        assert!(cluster.replica("elected").restarts() > 0, "the lease must have expired without a renewal");
    }
    cluster.restart_program(program);
    for gang in &starting {
        cluster.until(&gang.name, LONG_TIMEOUT, |pods| pods.counts(&gang.name).running == gang.size).await;
    }
    for pool in ["later-elected", "later-alone"] {
        cluster.add_nodes(&nodes(pool, 5)).await;
    }
    for gang in &waiting {
        cluster.until(&gang.name, LONG_TIMEOUT, |pods| pods.counts(&gang.name).running == gang.size).await;
    }
    assert_eq!(cluster.replica("alone").restarts(), 0);
    check_invariants(&mut cluster, &starting.iter().chain(&waiting).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watch_that_is_too_old_is_restarted() {
    let often = ["--flag=kube-apiserver=--etcd-compaction-interval=2s"];
    let Some(mut cluster) = TestCluster::start("compaction", Load::Half, Profile::Stock, &often).await else { return };
    cluster.add_nodes(&nodes("pool", 5)).await;
    cluster.start_replica("only", &json!({"leaderElection": {"enabled": false}}));
    let (before, after) = (Gang::new("before", 40, "pool"), Gang::new("after", 40, "pool"));
    cluster.create(vec![before.group()]).await;
    cluster.create(before.pods()).await;
    cluster.until("the first gang", TIMEOUT, |pods| pods.counts("before").running == 40).await;
    cluster.until_condition(OURS, "before", "PodGroupScheduled", "True").await;

    cluster.replica("only").signal("-STOP");
    let old = cluster.api("v1", "Pod").list(&ListParams::default().limit(1)).await.expect("a list");
    let old = old.metadata.resource_version.expect("a version");
    cluster.delete_pods("before").await;
    cluster.until("their end", TIMEOUT, |pods| pods.pods_of("before").all(|pod| pod.gone)).await;
    cluster.create(vec![after.group()]).await;
    cluster.create(after.pods()).await;
    await_compaction(&mut cluster, &old).await;
    // A new API server has only the revisions that etcd has. It is killed, since a graceful stop would wait for
    // watches.
    cluster.kill_program("kube-apiserver").await;
    cluster.restart_program("kube-apiserver");
    cluster.replica("only").signal("-CONT");

    cluster.until("the second gang", LONG_TIMEOUT, |pods| pods.counts("after").running == 40).await;
    let log = cluster.replica("only").log();
    assert!(log.contains("too old resource version"), "no watch was too old: {}", cluster.replica("only").dump());
    check_invariants(&mut cluster, &[&after]).await;
}

/// Waits until etcd has compacted a version.
async fn await_compaction(cluster: &mut TestCluster, version: &str) {
    let until = tokio::time::Instant::now() + TIMEOUT;
    let exactly = ListParams::default().limit(1).at(version).matching(kube::api::VersionMatch::Exact);
    loop {
        match cluster.api("v1", "Pod").list(&exactly).await {
            Err(kube::Error::Api(status)) if status.code == 410 => return,
            answer if tokio::time::Instant::now() > until => {
                cluster.fail(&format!("etcd does not compact: {answer:?}"))
            }
            _ => cluster.pass(Duration::from_millis(500)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_start_is_finished_after_restart() {
    let Some(mut cluster) = TestCluster::start("restarts", Load::Half, Profile::Stock, &[]).await else { return };
    cluster.add_nodes(&nodes("pool", 60)).await;
    let config = json!({
        "leaderElection": short_lease(), "limits": {"bindsInFlight": 1}, "timeouts": {"stop": "200ms"},
    });
    cluster.start_replica("only", &config);
    let gang = Gang::new("gang", 450, "pool");
    cluster.create(vec![gang.group()]).await;
    cluster.create(gang.pods()).await;

    cluster.until("a start", TIMEOUT, |pods| pods.counts("gang").bound >= 50).await;
    cluster.replica("only").kill();
    let first = cluster.audit.binds().len();
    assert!(first < gang.size, "the start was over");
    cluster.replica("only").start_again();

    cluster.until("more of it", TIMEOUT, |pods| pods.counts("gang").bound >= first + 50).await;
    let ended = cluster.replica("only").end();
    assert!(ended.success(), "{ended}");
    let second = cluster.audit.binds().len();
    assert!((first + 50..gang.size).contains(&second), "it did not stop in the middle: {first}, then {second}");
    assert_eq!(cluster.leader().await.as_deref(), None, "the lease was released");
    cluster.replica("only").start_again();

    cluster.until("all of it", LONG_TIMEOUT, |pods| pods.counts("gang").running == gang.size).await;
    check_invariants(&mut cluster, &[&gang]).await;
}
