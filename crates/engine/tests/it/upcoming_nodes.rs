//! Upcoming nodes: preemption waits for nodes that are starting up, but not forever.

use muster_engine::Diagnosis;
use muster_engine::diagnosis::Preemption;
use muster_engine::model::group::{GroupPriority, GroupSpec};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::taint::{Effect, Taint};

use crate::fake_cluster::{FakeCluster, key};

/// A node of two CPUs full of low-priority pods, and one that is starting up.
fn new_fake(cpus: i64) -> FakeCluster {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pods_of("low", "", 2, 1);
    fake.settle();
    fake.put_node(starting(cpus));
    fake
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

fn high(fake: &mut FakeCluster, count: usize) {
    fake.put_group(GroupSpec { priority: GroupPriority::Own(5), ..GroupSpec::gang(key("g"), count as u32) });
    fake.pods_of("high", "g", count, 1);
}

#[test]
fn gang_that_fits_on_an_upcoming_node_does_not_preempt() {
    let mut fake = new_fake(2);
    high(&mut fake, 2);
    fake.advance(300_000);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else {
        panic!("{:?}", fake.group_diagnosis("g"))
    };
    assert_eq!(shortfall.preemption, Preemption::UpcomingNodes { nodes: 1 });
    fake.put_node(NodeSpec { taints: vec![], startup_taints: vec![], ..starting(2) });
    fake.advance(10_000);
    assert_eq!((fake.bound_count("high"), fake.bound_count("low")), (2, 2));
    assert_eq!(fake.evicted(), [""; 0]);
}

#[test]
fn single_pods_and_per_pod_preemption_wait_too() {
    let mut single = new_fake(2);
    single.pod_with("high", "", 1, |pod| pod.priority = 5);
    single.advance(300_000);
    assert_eq!(single.evicted(), [""; 0]);
    let mut config = single.config.clone();
    config.preemption.delayed = false;
    let mut singly = FakeCluster::with(config);
    singly.node("n0", 2);
    singly.pods_of("low", "", 2, 1);
    singly.settle();
    singly.put_node(starting(2));
    high(&mut singly, 2);
    singly.advance(300_000);
    assert_eq!(singly.evicted(), [""; 0]);
}

#[test]
fn preemption_does_not_wait_for_a_small_or_late_node() {
    let mut small = new_fake(1);
    high(&mut small, 4);
    small.advance(10_000);
    assert_eq!(small.evicted(), [""; 0], "there is too little room with or without it");
    let mut small = new_fake(1);
    high(&mut small, 2);
    small.advance(10_000);
    assert_eq!(small.evicted().len(), 2, "it helps one of two");
    let mut never = new_fake(2);
    high(&mut never, 2);
    never.advance(599_000);
    assert_eq!(never.evicted(), [""; 0]);
    never.advance(2_000);
    assert_eq!(never.evicted().len(), 2);
}

#[test]
fn plan_without_evictions_does_not_wait_for_upcoming_nodes() {
    let mut fake = new_fake(2);
    for name in ["low-0", "low-1"] {
        let uid = fake.uid(name);
        fake.change(&uid, |pod| pod.terminating = true);
    }
    high(&mut fake, 2);
    fake.advance(5_000);
    assert!(matches!(fake.group_diagnosis("g"), Diagnosis::WaitingForVictims(_)), "{:?}", fake.group_diagnosis("g"));
    fake.remove("low-0");
    fake.remove("low-1");
    fake.advance(5_000);
    assert_eq!(fake.bound_count("high"), 2);
}

#[test]
fn deletion_of_an_upcoming_node_activates_its_waiters() {
    let mut fake = new_fake(2);
    high(&mut fake, 2);
    fake.advance(10_000);
    assert_eq!(fake.evicted(), [""; 0]);
    fake.remove_node("new");
    fake.advance(10_000);
    assert_eq!(fake.evicted().len(), 2);
}
