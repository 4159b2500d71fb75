//! Nodes that are being set up are waited for before anybody is evicted, and not for ever.

use muster_engine::Diagnosis;
use muster_engine::diagnosis::Preemption;
use muster_engine::model::group::{GroupPriority, GroupSpec};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::taint::{Effect, Taint};

use crate::world::{World, key};

/// A node of two CPUs that is full of low priority, and one that is being set up.
fn world(cpus: i64) -> World {
    let mut world = World::new();
    world.node("n0", 2);
    world.pods_of("low", "", 2, 1);
    world.settle();
    world.put_node(starting(cpus));
    world
}

fn starting(cpus: i64) -> NodeSpec {
    let taint = Taint { key: "startup".into(), value: String::new(), effect: Effect::NoSchedule };
    NodeSpec {
        name: "new".into(),
        taints: vec![taint.clone()],
        startup_taints: vec![taint],
        allocatable: [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)]
            .into(),
        ..NodeSpec::default()
    }
}

fn high(world: &mut World, count: usize) {
    world.put_group(GroupSpec { priority: GroupPriority::Own(5), ..GroupSpec::gang(key("g"), count as u32) });
    world.pods_of("high", "g", count, 1);
}

#[test]
fn a_gang_that_fits_soon_evicts_nobody() {
    let mut world = world(2);
    high(&mut world, 2);
    world.pass(300_000);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("{:?}", world.why_group("g")) };
    assert_eq!(shortfall.preemption, Preemption::NodesArriving { nodes: 1 });
    world.put_node(NodeSpec { taints: vec![], startup_taints: vec![], ..starting(2) });
    world.pass(10_000);
    assert_eq!((world.bound_count("high"), world.bound_count("low")), (2, 2));
    assert_eq!(world.evicted(), [""; 0]);
}

#[test]
fn a_single_pod_waits_too_and_so_does_who_preempts_one_by_one() {
    let mut single = world(2);
    single.pod_with("high", "", 1, |pod| pod.priority = 5);
    single.pass(300_000);
    assert_eq!(single.evicted(), [""; 0]);
    let mut config = single.config.clone();
    config.preemption.delayed = false;
    let mut singly = World::with(config);
    singly.node("n0", 2);
    singly.pods_of("low", "", 2, 1);
    singly.settle();
    singly.put_node(starting(2));
    high(&mut singly, 2);
    singly.pass(300_000);
    assert_eq!(singly.evicted(), [""; 0]);
}

#[test]
fn a_node_that_is_too_small_or_never_comes_is_not_waited_for() {
    let mut small = world(1);
    high(&mut small, 4);
    small.pass(10_000);
    assert_eq!(small.evicted(), [""; 0], "with it or without it there is too little room");
    let mut small = world(1);
    high(&mut small, 2);
    small.pass(10_000);
    assert_eq!(small.evicted().len(), 2, "it helps one of two");
    let mut never = world(2);
    high(&mut never, 2);
    never.pass(599_000);
    assert_eq!(never.evicted(), [""; 0]);
    never.pass(2_000);
    assert_eq!(never.evicted().len(), 2);
}

#[test]
fn who_only_has_to_wait_for_those_who_leave_is_not_sent_to_new_nodes() {
    let mut world = world(2);
    for name in ["low-0", "low-1"] {
        let uid = world.uid(name);
        world.change(&uid, |pod| pod.terminating = true);
    }
    high(&mut world, 2);
    world.pass(5_000);
    assert!(matches!(world.why_group("g"), Diagnosis::WaitingForVictims(_)), "{:?}", world.why_group("g"));
    world.remove("low-0");
    world.remove("low-1");
    world.pass(5_000);
    assert_eq!(world.bound_count("high"), 2);
}

#[test]
fn who_waited_for_a_node_that_is_gone_looks_again() {
    let mut world = world(2);
    high(&mut world, 2);
    world.pass(10_000);
    assert_eq!(world.evicted(), [""; 0]);
    world.remove_node("new");
    world.pass(10_000);
    assert_eq!(world.evicted().len(), 2);
}
