//! What a gang may do that fell below its minimum after it had started: each policy, and what it does to those who are
//! left.

use muster_engine::model::group::{DegradedPolicy, GroupSpec};
use muster_engine::{Command, Diagnosis};

use crate::world::{World, key};

/// A gang of three that runs on three nodes of one CPU each.
fn running(policy: DegradedPolicy) -> World {
    let mut world = World::new();
    for node in 0..3 {
        world.node(&format!("n{node}"), 1);
    }
    world.put_group(GroupSpec { degraded_policy: policy, ..GroupSpec::gang(key("g"), 3) });
    world.pods_of("a", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    world
}

/// Two members and the room of one of them are lost, and both are made again.
fn two_are_lost(world: &mut World) {
    let node = world.node_of("a-0").expect("it runs");
    world.remove("a-0");
    world.remove("a-1");
    world.remove_node(&node);
    world.pods_of("b", "g", 2, 1);
}

fn taken_back(world: &World) -> usize {
    world.acts.iter().filter(|act| matches!(act, Command::TakeBack { .. })).count()
}

#[test]
fn by_default_each_replacement_comes_as_it_fits() {
    let mut world = running(DegradedPolicy::Replace);
    two_are_lost(&mut world);
    world.pass(60_000);
    assert_eq!((world.bound_count("a"), world.bound_count("b")), (1, 1));
}

#[test]
fn with_requorum_nobody_comes_before_all_that_is_missing_can() {
    let mut world = running(DegradedPolicy::Requorum);
    two_are_lost(&mut world);
    world.pass(60_000);
    assert_eq!((world.bound_count("a"), world.bound_count("b")), (1, 0), "there is room for one of two");
    assert!(world.reasons("g").contains(&"Degraded"));
    world.node("n9", 1);
    world.pass(60_000);
    assert_eq!((world.bound_count("a"), world.bound_count("b")), (1, 2));
    assert!(matches!(world.why_group("g"), Diagnosis::Healthy { minimum: 3, secured: 3 }));
    assert_eq!(taken_back(&world), 0);
}

#[test]
fn requorum_holds_after_a_restart_and_does_not_hold_back_a_surplus() {
    let mut world = running(DegradedPolicy::Requorum);
    two_are_lost(&mut world);
    world.pass(60_000);
    world.restart();
    world.pass(60_000);
    assert_eq!((world.bound_count("a"), world.bound_count("b")), (1, 0));
    world.node("n8", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("b"), 2);
    world.pods_of("more", "g", 2, 1);
    world.node("n9", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("more"), 1, "a gang that has its quorum takes in who fits");
}

#[test]
fn with_evict_what_is_left_goes_when_the_loss_lasts() {
    let mut world = running(DegradedPolicy::Evict);
    two_are_lost(&mut world);
    world.pass(4_000);
    assert_eq!((world.bound_count("a"), world.bound_count("b"), taken_back(&world)), (1, 1, 0), "it may heal yet");
    world.pass(2_000);
    assert_eq!(world.bound_count("a") + world.bound_count("b"), 0);
    assert_eq!(taken_back(&world), 2);
    let told = world.reports.iter().map(|report| &report.diagnosis);
    let given_up: Vec<_> = told.filter(|told| matches!(told, Diagnosis::Degraded { evicted: 2, .. })).collect();
    assert_eq!(given_up, [&Diagnosis::Degraded { minimum: 3, secured: 2, evicted: 2 }]);
    world.pods_of("c", "g", 1, 1);
    world.pass(60_000);
    assert_eq!(world.bound(), [""; 0], "there is room for two of two");
    world.pods_of("d", "g", 1, 1);
    world.node("n9", 1);
    world.pass(60_000);
    assert_eq!(world.bound(), ["b-1", "c-0", "d-0"], "it starts as a whole");
}

#[test]
fn a_loss_that_is_made_good_in_time_evicts_nobody() {
    let mut world = running(DegradedPolicy::Evict);
    world.remove("a-0");
    world.pass(4_000);
    world.pods_of("b", "g", 1, 1);
    world.pass(60_000);
    assert_eq!((world.bound_count("a"), world.bound_count("b"), taken_back(&world)), (2, 1, 0));
    // A second loss has its own time.
    world.remove("b-0");
    world.pass(4_000);
    assert_eq!(taken_back(&world), 0);
    world.pass(2_000);
    assert_eq!(taken_back(&world), 2);
}

#[test]
fn bare_pods_go_too_where_that_was_asked_for() {
    let mut world = World::new();
    world.node("n0", 9);
    world.put_group(GroupSpec { degraded_policy: DegradedPolicy::Evict, ..GroupSpec::gang(key("g"), 2) });
    for name in ["a", "b"] {
        world.pod_with(name, "g", 1, |pod| pod.controlled = false);
    }
    world.settle();
    world.remove("a");
    world.pass(6_000);
    assert_eq!(world.bound(), [""; 0]);
}

#[test]
fn a_policy_that_changes_while_members_are_missing_counts_from_then_on() {
    let mut world = running(DegradedPolicy::Replace);
    world.remove("a-0");
    world.pass(60_000);
    assert_eq!(world.bound_count("a"), 2);
    world.put_group(GroupSpec { degraded_policy: DegradedPolicy::Evict, ..GroupSpec::gang(key("g"), 3) });
    world.pass(4_000);
    assert_eq!(world.bound_count("a"), 2);
    world.put_group(GroupSpec { degraded_policy: DegradedPolicy::Replace, ..GroupSpec::gang(key("g"), 3) });
    world.pass(60_000);
    assert_eq!(world.bound_count("a"), 2, "it was taken back in time");
    world.put_group(GroupSpec { degraded_policy: DegradedPolicy::Evict, ..GroupSpec::gang(key("g"), 3) });
    world.pass(6_000);
    assert_eq!(world.bound_count("a"), 0);
    // And so it does the next time.
    world.pods_of("b", "g", 3, 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("b"), 3);
    world.remove("b-0");
    world.pass(6_000);
    assert_eq!(world.bound_count("b"), 0);
}
