//! Muster and kube-scheduler on the same nodes at the same time, with more pods than fit.
//!
//! Both may assign the same capacity, and then a kubelet rejects one of the pods. In the settled state every gang has
//! all of its members or none, no node is overcommitted, and pending pods are scheduled when capacity is added. Neither
//! scheduler writes the status of the other's groups.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use muster_controlplane::Profile;
use serde_json::json;
use tokio::time::Instant;

use crate::objects::{GPUS, Gang, V1BETA1, kube_scheduler_singles, nodes};
use crate::pod_recorder::RecordedPods;
use crate::test_cluster::{Load, TestCluster};

const POOL: &str = "pool";
const NODES: u32 = 40;
const ROUNDS: usize = 10;
const GANGS: usize = 20;
const GANG_SIZE: usize = 12;
const SINGLES: usize = 200;
const TIMEOUT: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(200);
/// The deadline of a gang start: after it, a gang that lost capacity to the other scheduler is rolled back.
const START_SECONDS: u32 = 10;
/// How long the state must stay settled.
const SETTLED_FOR: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_shared_with_kube_scheduler_are_filled_and_not_overcommitted() {
    let with = ["--with", "kube-scheduler"];
    let Some(mut cluster) = TestCluster::start("beside", Load::Whole, Profile::Stock, &with).await else { return };
    cluster.add_nodes(&nodes(POOL, NODES)).await;
    cluster.start_replica("first", &json!({}));
    cluster.await_leader("first").await;
    let gangs: Vec<Gang> = (0..GANGS).map(gang).collect();
    for round in 0..ROUNDS {
        let mut objects = vec![kube_scheduler_singles(&format!("singles-{round}"), SINGLES / ROUNDS, POOL)];
        for gang in &gangs[round * GANGS / ROUNDS..(round + 1) * GANGS / ROUNDS] {
            objects.extend([gang.group(), gang.controller("ReplicaSet")]);
        }
        cluster.create(objects).await;
    }
    let alive = |pods: &RecordedPods| total(pods, |counts| counts.alive);
    cluster.until("all pods", TIMEOUT, |pods| alive(pods) == GANGS * GANG_SIZE + SINGLES).await;
    // Capacity for less than one gang may stay free.
    let room = NODES as usize * GPUS as usize;
    let full = |pods: &RecordedPods| match total(pods, |counts| counts.bound) {
        bound if (room - GANG_SIZE + 1..=room).contains(&bound) => check_settled(pods),
        bound => Err(format!("{bound} of {room} GPUs are used")),
    };
    await_settled(&mut cluster, full).await;

    for round in 0..ROUNDS {
        cluster.kubectl(&["delete", "replicaset", &format!("singles-{round}"), "--wait=false"], "");
    }
    let all_run = |pods: &RecordedPods| match gangs.iter().find(|gang| pods.counts(&gang.name).running != GANG_SIZE) {
        None => check_settled(pods),
        Some(gang) => Err(format!("{} does not run", gang.name)),
    };
    await_settled(&mut cluster, all_run).await;
    let (refused, overcommitted) =
        cluster.seen(|pods| (total(pods, |counts| counts.refused), pods.ever_overcommitted().len()));
    eprintln!("kubelets refused {refused} pods on {overcommitted} nodes that both schedulers had overcommitted");
}

/// Both read the same kind of groups, and each writes the status of those whose pods it schedules.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_scheduler_writes_the_status_of_its_own_native_groups_only() {
    let with = ["--with", "kube-scheduler"];
    let Some(mut cluster) = TestCluster::start("beside-native", Load::Half, Profile::Gates, &with).await else {
        return;
    };
    // Each scheduler has its own nodes: rejections by kubelets are not part of this test.
    cluster.add_nodes(&nodes(POOL, 4)).await;
    cluster.add_nodes(&nodes("others", 4)).await;
    cluster.start_replica("first", &json!({}));
    cluster.await_leader("first").await;
    let theirs = Gang::new("theirs", GANG_SIZE, "others").native().scheduled_by("default-scheduler");
    let ours = Gang::new("ours", GANG_SIZE, POOL).native();
    cluster.create(vec![theirs.group(), ours.group()]).await;
    // Long enough for a status of a group without pods.
    cluster.pass(Duration::from_secs(7)).await;
    cluster.create(theirs.pods()).await;
    cluster.create(ours.pods()).await;
    for (gang, manager) in [(&theirs, "kube-scheduler"), (&ours, "muster")] {
        cluster.until(&gang.name, TIMEOUT, |pods| pods.counts(&gang.name).running == GANG_SIZE).await;
        cluster.until_condition(V1BETA1, &gang.name, "PodGroupInitiallyScheduled", "True").await;
        let group = cluster.api(V1BETA1, "PodGroup").get(&gang.name).await.expect("the group");
        let managers: Vec<String> =
            group.metadata.managed_fields.into_iter().flatten().filter_map(status_manager).collect();
        assert_eq!(managers, [manager], "managers of the status of {}", gang.name);
    }
}

/// The field manager of a status.
fn status_manager(entry: ManagedFieldsEntry) -> Option<String> {
    (entry.subresource.as_deref() == Some("status")).then_some(entry.manager?)
}

fn gang(number: usize) -> Gang {
    Gang::new(&format!("gang-{number}"), GANG_SIZE, POOL).starting_within(START_SECONDS)
}

/// The sum over all gangs and single pods.
fn total(pods: &RecordedPods, part: impl Fn(crate::pod_recorder::PodCounts) -> usize) -> usize {
    let gangs = (0..GANGS).map(|number| format!("gang-{number}"));
    let singles = (0..ROUNDS).map(|round| format!("singles-{round}"));
    gangs.chain(singles).map(|name| part(pods.counts(&name))).sum()
}

/// Waits until this holds, and checks that it keeps holding.
async fn await_settled(cluster: &mut TestCluster, holds: impl Fn(&RecordedPods) -> Result<(), String>) {
    let until = Instant::now() + TIMEOUT;
    while let Err(why) = cluster.seen(&holds) {
        if Instant::now() > until {
            cluster.fail(&format!("not settled within {TIMEOUT:?}: {why}"));
        }
        cluster.pass(POLL_EVERY).await;
    }
    cluster.pass(SETTLED_FOR).await;
    if let Err(why) = cluster.seen(&holds) {
        cluster.fail(&format!("no longer settled: {why}"));
    }
}

/// The invariants of the settled state, independent of which scheduler won.
fn check_settled(pods: &RecordedPods) -> Result<(), String> {
    for number in 0..GANGS {
        let counts = pods.counts(&gang(number).name);
        if (counts.bound != 0 && counts.bound != GANG_SIZE) || counts.bound != counts.running {
            return Err(format!("gang {number} is partially bound: {counts:?}"));
        }
    }
    match pods.overcommitted_now() {
        nodes if nodes.is_empty() => Ok(()),
        nodes => Err(format!("overcommitted nodes: {nodes:?}")),
    }
}
