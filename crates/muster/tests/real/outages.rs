//! What Muster lives through: an API server or a store that is away, a watch that is too old, and its own end in the
//! middle of a start.
//!
//! At the end of each, every gang is whole, nothing was bound twice, and no node was ever given more than it has.

use std::time::Duration;

use kube::api::ListParams;
use muster_controlplane::Profile;
use serde_json::json;

use crate::audit::is_twice;
use crate::objects::{Gang, nodes};
use crate::replica::short_lease;
use crate::stage::{Load, Stage};
use crate::witness::Book;

const OURS: &str = "muster.dev/v1alpha1";
const AWAY: Duration = Duration::from_secs(30);
const SHORTLY_AWAY: Duration = Duration::from_secs(8);
const SOON: Duration = Duration::from_secs(60);
/// After an outage everybody waits before the next try, and the last pause may be long.
const AT_LAST: Duration = Duration::from_secs(180);

/// What holds after every outage. Each gang is whole, by pods that were never replaced.
async fn judge(stage: &mut Stage, gangs: &[&Gang]) {
    for gang in gangs {
        stage.until_condition(OURS, &gang.name, "PodGroupScheduled", "True").await;
        let tally = stage.seen(|book| book.tally(&gang.name));
        let seen = (tally.running, tally.bound, tally.refused, tally.removed);
        if seen != (gang.size, gang.size, 0, 0) {
            stage.fail(&format!("{} is not whole: {tally:?}", gang.name));
        }
    }
    if !stage.seen(|book| book.overfull_ever().is_empty()) {
        stage.fail("a node was given more than it has");
    }
    let binds = stage.audit.binds();
    let twice: Vec<_> = binds.iter().filter(|(_, answers)| is_twice(answers)).collect();
    assert!(twice.is_empty(), "bound twice: {twice:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_that_is_away_for_half_a_minute_is_waited_for() {
    a_program_that_is_away_is_waited_for("kube-apiserver", AWAY).await;
}

/// An API server without its store answers, late and with failures, and nobody knows what became of a write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_server_without_its_store_is_waited_for() {
    a_program_that_is_away_is_waited_for("etcd", SHORTLY_AWAY).await;
}

/// Two schedulers side by side, each with nodes of its own: one with a lease, which it may lose, and one that runs on.
async fn a_program_that_is_away_is_waited_for(program: &str, away: Duration) {
    let Some(mut stage) = Stage::open(&format!("without-{program}"), Load::Half, Profile::Stock, &[]).await else {
        return;
    };
    for scheduler in ["elected", "alone"] {
        stage.add_nodes(&nodes(scheduler, 30)).await;
        let config = json!({
            "schedulerNames": [scheduler], "limits": {"bindsInFlight": 1},
            "leaderElection": {"enabled": scheduler == "elected"},
        });
        stage.start_replica(scheduler, &config);
    }
    stage.await_leader("elected").await;
    let gang = |name: &str, size, scheduler: &str, pool: &str| {
        Gang::new(&format!("{name}-{scheduler}"), size, pool).scheduled_by(scheduler)
    };
    let starting = ["elected", "alone"].map(|name| gang("starting", 240, name, name));
    let waiting = ["elected", "alone"].map(|name| gang("waiting", 40, name, &format!("later-{name}")));
    for gang in &waiting {
        stage.create(vec![gang.group()]).await;
        stage.create(gang.pods()).await;
        stage.until_condition(OURS, &gang.name, "PodGroupScheduled", "False").await;
    }
    for gang in &starting {
        stage.create(gang.pods()).await;
    }
    stage.create(starting.iter().map(Gang::group).collect()).await;
    let bound = |book: &Book| starting.clone().map(|gang| book.tally(&gang.name).bound);
    stage.until("two starts", SOON, |book| bound(book).iter().all(|bound| *bound >= 20)).await;
    stage.take_away(program).await;
    let in_the_middle = stage.seen(bound);
    assert!(in_the_middle.iter().all(|bound| *bound < 240), "a start was over: {in_the_middle:?}");

    stage.pass(away).await;
    if away == AWAY {
        assert!(stage.replica("elected").restarts() > 0, "nobody can hold a lease so long without a renewal");
    }
    stage.bring_back(program);
    for gang in &starting {
        stage.until(&gang.name, AT_LAST, |book| book.tally(&gang.name).running == gang.size).await;
    }
    for pool in ["later-elected", "later-alone"] {
        stage.add_nodes(&nodes(pool, 5)).await;
    }
    for gang in &waiting {
        stage.until(&gang.name, AT_LAST, |book| book.tally(&gang.name).running == gang.size).await;
    }
    assert_eq!(stage.replica("alone").restarts(), 0);
    judge(&mut stage, &starting.iter().chain(&waiting).collect::<Vec<_>>()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_that_is_too_old_begins_anew() {
    let often = ["--flag=kube-apiserver=--etcd-compaction-interval=2s"];
    let Some(mut stage) = Stage::open("compaction", Load::Half, Profile::Stock, &often).await else { return };
    stage.add_nodes(&nodes("pool", 5)).await;
    stage.start_replica("only", &json!({"leaderElection": {"enabled": false}}));
    let (before, after) = (Gang::new("before", 40, "pool"), Gang::new("after", 40, "pool"));
    stage.create(vec![before.group()]).await;
    stage.create(before.pods()).await;
    stage.until("the first gang", SOON, |book| book.tally("before").running == 40).await;
    stage.until_condition(OURS, "before", "PodGroupScheduled", "True").await;

    stage.replica("only").signal("-STOP");
    let old = stage.api("v1", "Pod").list(&ListParams::default().limit(1)).await.expect("a list");
    let old = old.metadata.resource_version.expect("a version");
    stage.delete_pods("before").await;
    stage.until("their end", SOON, |book| book.pods_of("before").all(|pod| pod.gone)).await;
    stage.create(vec![after.group()]).await;
    stage.create(after.pods()).await;
    await_compaction(&mut stage, &old).await;
    // A new API server remembers nothing that etcd does not. It is killed, since it would wait for whoever watches.
    stage.take_away("kube-apiserver").await;
    stage.bring_back("kube-apiserver");
    stage.replica("only").signal("-CONT");

    stage.until("the second gang", AT_LAST, |book| book.tally("after").running == 40).await;
    let log = stage.replica("only").log();
    assert!(log.contains("too old resource version"), "no watch was too old: {}", stage.replica("only").told());
    judge(&mut stage, &[&after]).await;
}

/// Waits until etcd has forgotten a version.
async fn await_compaction(stage: &mut Stage, version: &str) {
    let until = tokio::time::Instant::now() + SOON;
    let exactly = ListParams::default().limit(1).at(version).matching(kube::api::VersionMatch::Exact);
    loop {
        match stage.api("v1", "Pod").list(&exactly).await {
            Err(kube::Error::Api(status)) if status.code == 410 => return,
            answer if tokio::time::Instant::now() > until => stage.fail(&format!("etcd forgets nothing: {answer:?}")),
            _ => stage.pass(Duration::from_millis(500)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_its_scheduler_left_is_finished_by_the_next() {
    let Some(mut stage) = Stage::open("restarts", Load::Half, Profile::Stock, &[]).await else { return };
    stage.add_nodes(&nodes("pool", 60)).await;
    let config = json!({
        "leaderElection": short_lease(), "limits": {"bindsInFlight": 1}, "timeouts": {"stop": "200ms"},
    });
    stage.start_replica("only", &config);
    let gang = Gang::new("gang", 450, "pool");
    stage.create(vec![gang.group()]).await;
    stage.create(gang.pods()).await;

    stage.until("a start", SOON, |book| book.tally("gang").bound >= 50).await;
    stage.replica("only").kill();
    let first = stage.audit.binds().len();
    assert!(first < gang.size, "the start was over");
    stage.replica("only").start_again();

    stage.until("more of it", SOON, |book| book.tally("gang").bound >= first + 50).await;
    let ended = stage.replica("only").end();
    assert!(ended.success(), "{ended}");
    let second = stage.audit.binds().len();
    assert!((first + 50..gang.size).contains(&second), "it did not end in the middle: {first}, then {second}");
    assert_eq!(stage.leader().await.as_deref(), None, "the lease was given back");
    stage.replica("only").start_again();

    stage.until("all of it", AT_LAST, |book| book.tally("gang").running == gang.size).await;
    judge(&mut stage, &[&gang]).await;
}
