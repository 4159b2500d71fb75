//! `min_resources`: groups that will need more than their current members request.

use muster_engine::model::group::{GroupPriority, GroupSpec};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::taint::{Effect, Taint};
use muster_engine::{Command, Diagnosis};

use crate::fake_cluster::{FakeCluster, key};

/// A leader whose replica will need this many CPUs in total.
fn leader(fake: &mut FakeCluster, cpu: i64) {
    let min_resources = [("cpu".to_owned(), cpu * 1000)].into();
    fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("g"), 1) });
    fake.pod("leader", "g", 1);
}

/// Three CPUs, and a started group of one pod that wants all of them; then another group comes that wants two.
fn debtor_and_other(change: impl FnOnce(&mut FakeCluster), priority: i32) -> FakeCluster {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    leader(&mut fake, 3);
    fake.settle();
    assert_eq!(fake.bound(), ["leader"]);
    change(&mut fake);
    let min_resources = [("cpu".to_owned(), 2000)].into();
    let priority = GroupPriority::Own(priority);
    fake.put_group(GroupSpec { min_resources, priority, ..GroupSpec::gang(key("other"), 1) });
    fake.pod("other", "other", 1);
    fake.advance(10_000);
    fake
}

#[test]
fn rest_of_a_started_group_is_kept_for_a_while_and_not_from_more_important_groups() {
    let mut fake = debtor_and_other(|_| {}, 0);
    assert_eq!(fake.bound(), ["leader"], "two CPUs are kept for the workers");
    fake.advance(20 * 60_000);
    assert_eq!(fake.bound(), ["leader"]);
    fake.advance(20 * 60_000);
    assert_eq!(fake.bound_count("other"), 1, "not forever");
    let fake = debtor_and_other(|_| {}, 1);
    assert_eq!(fake.bound_count("other"), 1, "not from a group of a higher priority");
}

#[test]
fn min_resources_that_are_raised_after_the_start_keep_nothing_more() {
    let raise = |fake: &mut FakeCluster| {
        fake.node("n1", 2);
        let min_resources = [("cpu".to_owned(), 256_000)].into();
        fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("g"), 1) });
    };
    let fake = debtor_and_other(raise, 0);
    assert_eq!(fake.bound_count("other"), 1, "two CPUs are left beside the two that are kept");
}

#[test]
fn leader_waits_for_room_for_the_whole_replica() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 2);
    leader(&mut fake, 5);
    fake.settle();
    assert_eq!(fake.bound(), [""; 0]);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else {
        panic!("{:?}", fake.group_diagnosis("g"))
    };
    let gap = shortfall.gap.expect("the missing amount is reported");
    assert_eq!((gap.resource.as_str(), gap.asked, gap.taken, gap.left), ("cpu", 5000, 1000, 3000));
    assert_eq!((shortfall.would_fit, shortfall.waiting), (1, 1));
    fake.node("n2", 1);
    fake.advance(5_000);
    assert_eq!(fake.bound(), ["leader"]);
    // Members after the start only need their own room.
    fake.remove_node("n2");
    fake.pods_of("worker", "g", 2, 1);
    fake.advance(5_000);
    assert_eq!(fake.bound_count("worker"), 2);
}

#[test]
fn infeasible_nodes_do_not_count() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    let taint = Taint { key: "gpu".into(), value: String::new(), effect: Effect::NoSchedule };
    let allocatable = [("cpu".to_owned(), 64_000), ("memory".to_owned(), 1 << 40), ("pods".to_owned(), 110)].into();
    fake.put_node(NodeSpec { name: "n1".into(), taints: vec![taint], allocatable, ..NodeSpec::default() });
    leader(&mut fake, 3);
    fake.advance(60_000);
    assert_eq!(fake.bound(), [""; 0]);
}

#[test]
fn unavailable_resources_and_pod_counts_are_included() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    for (resource, amount) in [("gpu", 1), ("pods", 1_000_000)] {
        let min_resources = [(resource.to_owned(), amount)].into();
        fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key(resource), 1) });
        fake.pod(resource, resource, 1);
    }
    fake.advance(60_000);
    assert_eq!(fake.bound(), [""; 0]);
}

#[test]
fn group_that_could_not_start_anyway_does_not_preempt() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pods_of("low", "", 2, 1);
    fake.settle();
    let min_resources = [("cpu".to_owned(), 3000)].into();
    fake.put_group(GroupSpec { min_resources, priority: GroupPriority::Own(5), ..GroupSpec::gang(key("g"), 1) });
    fake.pod("leader", "g", 1);
    fake.advance(60_000);
    assert!(!fake.issued.iter().any(|act| matches!(act, Command::Evict { .. })));
    assert_eq!(fake.bound_count("low"), 2);
    fake.node("n1", 3);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("leader"), 1, "{:?}", fake.group_diagnosis("g"));
    assert_eq!(fake.bound_count("low"), 2);
}

#[test]
fn room_that_does_not_help_the_leader_activates_the_group() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 1);
    let uid = fake.pod("half", "", 1);
    fake.settle();
    let min_resources = [("cpu".to_owned(), 3000)].into();
    fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("g"), 1) });
    fake.pod("leader", "g", 2);
    fake.advance(60_000);
    // Regardless of its node, the small pod frees three CPUs when it ends.
    assert_eq!(fake.bound(), ["half"]);
    fake.remove_pod(&uid);
    fake.advance(400_000);
    assert_eq!(fake.bound(), ["leader"]);
}

#[test]
fn two_leaders_do_not_rely_on_the_same_room() {
    let mut fake = FakeCluster::new();
    (0..5).for_each(|index| fake.node(&format!("n{index}"), 1));
    for name in ["a", "b"] {
        let min_resources = [("cpu".to_owned(), 3000)].into();
        fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key(name), 1) });
        fake.pod(&format!("{name}-leader"), name, 1);
    }
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["a-leader"]);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("b") else {
        panic!("{:?}", fake.group_diagnosis("b"))
    };
    let gap = shortfall.gap.expect("the missing amount is reported");
    assert_eq!((gap.asked, gap.left, gap.owed), (3000, 3000, 2000));
    // The other members of the first group arrive; then there is no room for the other leader until a node is added.
    fake.pods_of("a-worker", "a", 2, 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a-"), 3);
    assert_eq!(fake.bound_count("b-"), 0);
    fake.node("late", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b-"), 1);
}

#[test]
fn complete_group_is_owed_nothing() {
    for has_count in [true, false] {
        let mut fake = FakeCluster::new();
        (0..5).for_each(|index| fake.node(&format!("n{index}"), 1));
        // It specifies more than its pods request.
        let mut min_resources: std::collections::BTreeMap<_, _> = [("cpu".to_owned(), 4000)].into();
        min_resources.extend(has_count.then(|| ("pods".to_owned(), 2)));
        fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("a"), 1) });
        fake.pods_of("a", "a", 2, 1);
        fake.advance(10_000);
        assert_eq!(fake.bound_count("a"), 2);
        let min_resources = [("cpu".to_owned(), 3000)].into();
        fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("b"), 1) });
        fake.pod("b", "b", 1);
        fake.advance(60_000);
        assert_eq!(fake.bound_count("b"), usize::from(has_count), "without a count, more members may follow");
    }
}

#[test]
fn debt_of_others_does_not_use_up_what_the_group_itself_takes() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    let asks = |name: &str, cpu: i64| {
        let min_resources = [("cpu".to_owned(), cpu * 1000)].into();
        GroupSpec { min_resources, ..GroupSpec::gang(key(name), 1) }
    };
    fake.put_group(asks("g", 8));
    fake.pod("leader", "g", 1);
    fake.settle();
    // What is free is owed to the first group, which asks for more than the cluster has since then.
    fake.put_group(asks("g", 64));
    fake.put_group(asks("small", 1));
    fake.pod("small", "small", 1);
    fake.settle();
    assert_eq!(fake.bound(), ["leader", "small"], "it needs no more than its only pod requests");
}

#[test]
fn group_owes_what_it_asks_for_now_if_it_starts_again_and_nothing_if_it_asks_for_nothing() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    leader(&mut fake, 1);
    fake.settle();
    fake.remove("leader");
    leader(&mut fake, 3);
    fake.settle();
    let min_resources = [("cpu".to_owned(), 2000)].into();
    fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("other"), 1) });
    fake.pod("other", "other", 1);
    fake.advance(10_000);
    assert_eq!(fake.bound(), ["leader"], "two of three free CPUs are owed");
    fake.gang("g", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["leader", "other"]);
}

/// What it costs to place a group with `minResources` beside others.
fn steps_beside(others: usize, pods: usize) -> u64 {
    let mut fake = FakeCluster::new();
    (0..10).for_each(|index| fake.node(&format!("n{index}"), 100));
    for other in 0..others {
        let name = format!("other{other}");
        let min_resources = [("cpu".to_owned(), 1000 * (1 + pods as i64))].into();
        fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key(&name), 1) });
        fake.pods_of(&name, &name, pods, 1);
    }
    fake.settle();
    assert_eq!(fake.bound_count("other"), others * pods);
    leader(&mut fake, 2);
    fake.decide();
    assert_eq!(fake.in_flight.len(), 1, "it is placed at once");
    fake.engine.engine().last_attempt().expect("an attempt").steps
}

#[test]
fn attempt_does_not_add_up_the_pods_of_other_groups() {
    let alone = steps_beside(1, 1);
    assert!(steps_beside(1, 400) <= alone + 2, "{} instead of {alone} steps", steps_beside(1, 400));
    assert!(steps_beside(160, 1) <= alone + 20, "{} instead of {alone} steps", steps_beside(160, 1));
}

#[test]
fn group_whose_pods_change_owes_what_they_leave() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    leader(&mut fake, 3);
    fake.settle();
    // A pod that is resized in place takes the rest of what its group needs.
    let uid = fake.uid("leader");
    fake.change(&uid, |pod| pod.class = std::sync::Arc::new(crate::fake_cluster::cpus(3)));
    let min_resources = [("cpu".to_owned(), 1000)].into();
    fake.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("other"), 1) });
    fake.pod("other", "other", 1);
    fake.settle();
    assert_eq!(fake.bound(), ["leader", "other"]);
    fake.remove("other");
    fake.change(&uid, |pod| pod.class = std::sync::Arc::new(crate::fake_cluster::cpus(2)));
    fake.pod("next", "other", 1);
    fake.settle();
    assert_eq!(fake.bound(), ["leader", "next"], "two CPUs are free, and one of them is owed");
}
