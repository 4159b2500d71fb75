//! The leader is killed in the middle of binding a gang of 1000 pods; the other replica finishes it.
//!
//! Checked by every change of every pod, and by the audit log of binds.

use std::time::Duration;

use muster_controlplane::Profile;
use serde_json::{Value, json};

use crate::audit::bound_twice;
use crate::objects::{Gang, V1BETA1, nodes};
use crate::replica::short_lease;
use crate::test_cluster::{Load, TestCluster};

const POOL: &str = "pool";
const SIZE: usize = 1000;
const NODES: u32 = 130;
const WITHIN: Duration = Duration::from_secs(300);

/// Few concurrent binds, so that the leader can be killed in the middle of a start.
fn config() -> Value {
    json!({"leaderElection": short_lease(), "limits": {"bindsInFlight": 4}})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_replica_finishes_the_start_of_a_killed_leader() {
    let Some(mut cluster) = TestCluster::start("failover", Load::Whole, Profile::Gates, &[]).await else { return };
    cluster.add_nodes(&nodes(POOL, NODES)).await;
    cluster.start_replica("first", &config());
    cluster.await_leader("first").await;
    cluster.start_replica("second", &config());

    let gang = Gang::new("thousand", SIZE, POOL).native();
    cluster.create(vec![gang.group()]).await;
    cluster.create(gang.pods()).await;
    cluster.until("a start", WITHIN, |pods| pods.counts("thousand").bound >= SIZE / 5).await;
    // On a busy machine the leader may have changed before.
    let leader = cluster.leader().await.expect("a replica leads");
    let other = if leader == "first" { "second" } else { "first" };
    cluster.replica(&leader).kill();
    let bound = cluster.audit.binds().len();
    assert!(
        (SIZE / 10..SIZE * 9 / 10).contains(&bound),
        "the leader was killed after {bound} binds: not in the middle"
    );

    cluster.await_leader(other).await;
    cluster.until("the whole gang", WITHIN, |pods| pods.counts("thousand").running == SIZE).await;
    cluster.until_condition(V1BETA1, "thousand", "PodGroupInitiallyScheduled", "True").await;
    assert_eq!(cluster.leader().await.as_deref(), Some(other));

    let binds = cluster.audit.binds();
    let bound_twice: Vec<_> = binds.iter().filter(|(_, answers)| bound_twice(answers)).collect();
    assert!(bound_twice.is_empty(), "bound twice: {bound_twice:?}");
    assert_eq!(binds.len(), SIZE);
    let counts = cluster.seen(|pods| pods.counts("thousand"));
    assert_eq!((counts.alive, counts.bound, counts.refused, counts.removed), (SIZE, SIZE, 0, 0));
    assert!(
        cluster.seen(|pods| pods.ever_overcommitted().is_empty()),
        "{}",
        cluster.seen(crate::pod_recorder::RecordedPods::dump)
    );
}
