//! The leader is killed in the middle of a gang of a thousand; the other replica finishes it.
//!
//! Judged by every change of every pod, and by the API server's own log of binds.

use std::time::Duration;

use muster_controlplane::Profile;
use serde_json::{Value, json};

use crate::audit::is_twice;
use crate::objects::{Gang, V1BETA1, nodes};
use crate::replica::short_lease;
use crate::stage::{Load, Stage};

const POOL: &str = "pool";
const SIZE: usize = 1000;
const NODES: u32 = 130;
const WITHIN: Duration = Duration::from_secs(300);

/// Few binds at once, so that the middle of a start can be met.
fn config() -> Value {
    json!({"leaderElection": short_lease(), "limits": {"bindsInFlight": 4}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_replica_finishes_what_a_killed_leader_began() {
    let Some(mut stage) = Stage::open("failover", Load::Whole, Profile::Gates, &[]).await else { return };
    stage.add_nodes(&nodes(POOL, NODES)).await;
    stage.start_replica("first", &config());
    stage.await_leader("first").await;
    stage.start_replica("second", &config());

    let gang = Gang::new("thousand", SIZE, POOL).native();
    stage.create(vec![gang.group()]).await;
    stage.create(gang.pods()).await;
    stage.until("a start", WITHIN, |book| book.tally("thousand").bound >= SIZE / 5).await;
    // On a busy machine the lease may have changed hands before.
    let leader = stage.leader().await.expect("somebody binds");
    let other = if leader == "first" { "second" } else { "first" };
    stage.replica(&leader).kill();
    let bound = stage.audit.binds().len();
    assert!(
        (SIZE / 10..SIZE * 9 / 10).contains(&bound),
        "the leader was killed after {bound} binds: not in the middle"
    );

    stage.await_leader(other).await;
    stage.until("the whole gang", WITHIN, |book| book.tally("thousand").running == SIZE).await;
    stage.until_condition(V1BETA1, "thousand", "PodGroupInitiallyScheduled", "True").await;
    assert_eq!(stage.leader().await.as_deref(), Some(other));

    let binds = stage.audit.binds();
    let twice: Vec<_> = binds.iter().filter(|(_, answers)| is_twice(answers)).collect();
    assert!(twice.is_empty(), "bound twice: {twice:?}");
    assert_eq!(binds.len(), SIZE);
    let tally = stage.seen(|book| book.tally("thousand"));
    assert_eq!((tally.alive, tally.bound, tally.refused, tally.removed), (SIZE, SIZE, 0, 0));
    assert!(stage.seen(|book| book.overfull_ever().is_empty()), "{}", stage.seen(crate::witness::Book::told));
}
