//! Muster and kube-scheduler fill the same nodes at the same time, with more than there is room for.
//!
//! Both may give away the same room, and then a kubelet refuses one of the pods. What must hold at rest: every gang has
//! all of its members or none, no node has more than it can take, and what waits is placed when room comes.

use std::time::Duration;

use muster_controlplane::Profile;
use serde_json::json;

use crate::objects::{Gang, nodes, singles_of_others};
use crate::stage::{Load, Stage};
use crate::witness::Book;

const POOL: &str = "pool";
const NODES: u32 = 40;
const ROUNDS: usize = 10;
const GANGS: usize = 20;
const GANG_SIZE: usize = 12;
const SINGLES: usize = 200;
const SOON: Duration = Duration::from_secs(120);
/// So long nothing may change before it counts as rest: longer than the pauses of refused gangs.
const REST: Duration = Duration::from_secs(8);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_are_shared_with_kube_scheduler_are_filled_and_never_overfull() {
    let with = ["--with", "kube-scheduler"];
    let Some(mut stage) = Stage::open("beside", Load::Whole, Profile::Stock, &with).await else { return };
    stage.add_nodes(&nodes(POOL, NODES)).await;
    stage.start_replica("first", &json!({}));
    stage.await_leader("first").await;
    let gangs: Vec<Gang> = (0..GANGS).map(|number| Gang::new(&format!("gang-{number}"), GANG_SIZE, POOL)).collect();
    for round in 0..ROUNDS {
        let mut objects = vec![singles_of_others(&format!("singles-{round}"), SINGLES / ROUNDS, POOL)];
        for gang in &gangs[round * GANGS / ROUNDS..(round + 1) * GANGS / ROUNDS] {
            objects.extend([gang.group(), gang.controller("ReplicaSet")]);
        }
        stage.create(objects).await;
    }
    let alive = |book: &Book| total(book, |tally| tally.alive);
    stage.until("all pods", SOON, |book| alive(book) == GANGS * GANG_SIZE + SINGLES).await;
    await_rest(&mut stage).await;
    judge(&stage, &gangs);
    let bound = stage.seen(|book| total(book, |tally| tally.bound));
    // Less than a gang may stay free.
    let room = NODES as usize * 8;
    assert!((room - GANG_SIZE..=room).contains(&bound), "{bound} of {room} GPUs are used");

    for round in 0..ROUNDS {
        stage.kubectl(&["delete", "replicaset", &format!("singles-{round}"), "--wait=false"], "");
    }
    for gang in &gangs {
        stage.until(&gang.name, SOON, |book| book.tally(&gang.name).running == GANG_SIZE).await;
    }
    await_rest(&mut stage).await;
    judge(&stage, &gangs);
    let (refused, overfull) = stage.seen(|book| (total(book, |tally| tally.refused), book.overfull_ever().len()));
    eprintln!("kubelets refused {refused} pods on {overfull} nodes that both schedulers had given away");
}

/// The sum over all gangs and single pods.
fn total(book: &Book, part: impl Fn(crate::witness::Tally) -> usize) -> usize {
    let gangs = (0..GANGS).map(|number| format!("gang-{number}"));
    let singles = (0..ROUNDS).map(|round| format!("singles-{round}"));
    gangs.chain(singles).map(|name| part(book.tally(&name))).sum()
}

/// Waits until nothing changes any more.
async fn await_rest(stage: &mut Stage) {
    let until = tokio::time::Instant::now() + SOON;
    let mut last = stage.seen(Book::told);
    loop {
        stage.pass(REST).await;
        let now = stage.seen(Book::told);
        if now == last {
            return;
        }
        if tokio::time::Instant::now() > until {
            stage.fail("the cluster does not come to rest");
        }
        last = now;
    }
}

fn judge(stage: &Stage, gangs: &[Gang]) {
    for gang in gangs {
        let tally = stage.seen(|book| book.tally(&gang.name));
        if (tally.bound != 0 && tally.bound != GANG_SIZE) || tally.bound != tally.running {
            stage.fail(&format!("{} is half placed at rest: {tally:?}", gang.name));
        }
    }
    if !stage.seen(|book| book.overfull_now().is_empty()) {
        stage.fail("a node has more than it can take, at rest");
    }
}
