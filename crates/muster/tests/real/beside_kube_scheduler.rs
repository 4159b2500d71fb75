//! Muster and kube-scheduler fill the same nodes at the same time, with more than there is room for.
//!
//! Both may give away the same room, and then a kubelet refuses one of the pods. What must hold at rest: every gang has
//! all of its members or none, no node has more than it can take, and what waits is placed when room comes. Neither
//! speaks of the other's groups.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use muster_controlplane::Profile;
use serde_json::json;
use tokio::time::Instant;

use crate::objects::{GPUS, Gang, V1BETA1, nodes, singles_of_others};
use crate::stage::{Load, Stage};
use crate::witness::Book;

const POOL: &str = "pool";
const NODES: u32 = 40;
const ROUNDS: usize = 10;
const GANGS: usize = 20;
const GANG_SIZE: usize = 12;
const SINGLES: usize = 200;
const SOON: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How long a start may take before it is taken back: what a gang lost to the other scheduler it gives up then.
const START_SECONDS: u32 = 10;
/// How long it must stay at rest.
const REST: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_shared_with_kube_scheduler_are_filled_and_never_overfull() {
    let with = ["--with", "kube-scheduler"];
    let Some(mut stage) = Stage::open("beside", Load::Whole, Profile::Stock, &with).await else { return };
    stage.add_nodes(&nodes(POOL, NODES)).await;
    stage.start_replica("first", &json!({}));
    stage.await_leader("first").await;
    let gangs: Vec<Gang> = (0..GANGS).map(gang).collect();
    for round in 0..ROUNDS {
        let mut objects = vec![singles_of_others(&format!("singles-{round}"), SINGLES / ROUNDS, POOL)];
        for gang in &gangs[round * GANGS / ROUNDS..(round + 1) * GANGS / ROUNDS] {
            objects.extend([gang.group(), gang.controller("ReplicaSet")]);
        }
        stage.create(objects).await;
    }
    let alive = |book: &Book| total(book, |tally| tally.alive);
    stage.until("all pods", SOON, |book| alive(book) == GANGS * GANG_SIZE + SINGLES).await;
    // Less than a gang may stay free.
    let room = NODES as usize * GPUS as usize;
    let full = |book: &Book| match total(book, |tally| tally.bound) {
        bound if (room - GANG_SIZE + 1..=room).contains(&bound) => sound(book),
        bound => Err(format!("{bound} of {room} GPUs are used")),
    };
    await_rest(&mut stage, full).await;

    for round in 0..ROUNDS {
        stage.kubectl(&["delete", "replicaset", &format!("singles-{round}"), "--wait=false"], "");
    }
    let all_run = |book: &Book| match gangs.iter().find(|gang| book.tally(&gang.name).running != GANG_SIZE) {
        None => sound(book),
        Some(gang) => Err(format!("{} does not run", gang.name)),
    };
    await_rest(&mut stage, all_run).await;
    let (refused, overfull) = stage.seen(|book| (total(book, |tally| tally.refused), book.overfull_ever().len()));
    eprintln!("kubelets refused {refused} pods on {overfull} nodes that both schedulers had given away");
}

/// Both read the same kind of groups, and each writes the status of those whose pods it places.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_scheduler_speaks_of_its_own_native_groups_only() {
    let with = ["--with", "kube-scheduler"];
    let Some(mut stage) = Stage::open("beside-native", Load::Half, Profile::Gates, &with).await else { return };
    // Each has nodes of its own: a kubelet that refuses a pod of theirs is none of our business here.
    stage.add_nodes(&nodes(POOL, 4)).await;
    stage.add_nodes(&nodes("others", 4)).await;
    stage.start_replica("first", &json!({}));
    stage.await_leader("first").await;
    let theirs = Gang::new("theirs", GANG_SIZE, "others").native().scheduled_by("default-scheduler");
    let ours = Gang::new("ours", GANG_SIZE, POOL).native();
    stage.create(vec![theirs.group(), ours.group()]).await;
    // Long enough for a word about a group without pods.
    stage.pass(Duration::from_secs(7)).await;
    stage.create(theirs.pods()).await;
    stage.create(ours.pods()).await;
    for (gang, manager) in [(&theirs, "kube-scheduler"), (&ours, "muster")] {
        stage.until(&gang.name, SOON, |book| book.tally(&gang.name).running == GANG_SIZE).await;
        stage.until_condition(V1BETA1, &gang.name, "PodGroupInitiallyScheduled", "True").await;
        let group = stage.api(V1BETA1, "PodGroup").get(&gang.name).await.expect("the group");
        let managers: Vec<String> = group.metadata.managed_fields.into_iter().flatten().filter_map(writer).collect();
        assert_eq!(managers, [manager], "who wrote the status of {}", gang.name);
    }
}

/// Who wrote fields of a status.
fn writer(entry: ManagedFieldsEntry) -> Option<String> {
    (entry.subresource.as_deref() == Some("status")).then_some(entry.manager?)
}

fn gang(number: usize) -> Gang {
    Gang::new(&format!("gang-{number}"), GANG_SIZE, POOL).starting_within(START_SECONDS)
}

/// The sum over all gangs and single pods.
fn total(book: &Book, part: impl Fn(crate::witness::Tally) -> usize) -> usize {
    let gangs = (0..GANGS).map(|number| format!("gang-{number}"));
    let singles = (0..ROUNDS).map(|round| format!("singles-{round}"));
    gangs.chain(singles).map(|name| part(book.tally(&name))).sum()
}

/// Waits until this holds, and then goes on to hold.
async fn await_rest(stage: &mut Stage, holds: impl Fn(&Book) -> Result<(), String>) {
    let until = Instant::now() + SOON;
    while let Err(why) = stage.seen(&holds) {
        if Instant::now() > until {
            stage.fail(&format!("no rest within {SOON:?}: {why}"));
        }
        stage.pass(LOOK_EVERY).await;
    }
    stage.pass(REST).await;
    if let Err(why) = stage.seen(&holds) {
        stage.fail(&format!("the rest did not last: {why}"));
    }
}

/// What must be so at rest, whoever won.
fn sound(book: &Book) -> Result<(), String> {
    for number in 0..GANGS {
        let tally = book.tally(&gang(number).name);
        if (tally.bound != 0 && tally.bound != GANG_SIZE) || tally.bound != tally.running {
            return Err(format!("gang {number} is half placed: {tally:?}"));
        }
    }
    match book.overfull_now() {
        nodes if nodes.is_empty() => Ok(()),
        nodes => Err(format!("more than they can take is on {nodes:?}")),
    }
}
