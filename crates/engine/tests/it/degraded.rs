//! Gangs that fall below their minimum after their start: each policy, and its effect on the remaining members.

use muster_engine::model::group::{DegradedPolicy, GroupSpec};
use muster_engine::{Command, Diagnosis};

use crate::fake_cluster::{FakeCluster, key};

/// A gang of three that runs on three nodes of one CPU each.
fn running(policy: DegradedPolicy) -> FakeCluster {
    let mut fake = FakeCluster::new();
    for node in 0..3 {
        fake.node(&format!("n{node}"), 1);
    }
    fake.put_group(GroupSpec { degraded_policy: policy, ..GroupSpec::gang(key("g"), 3) });
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    fake
}

/// Two members and the room of one of them are lost, and both are recreated.
fn lose_two(fake: &mut FakeCluster) {
    let node = fake.node_of("a-0").expect("it runs");
    fake.remove("a-0");
    fake.remove("a-1");
    fake.remove_node(&node);
    fake.pods_of("b", "g", 2, 1);
}

fn rolled_back_count(fake: &FakeCluster) -> usize {
    fake.issued.iter().filter(|act| matches!(act, Command::RollBack { .. })).count()
}

#[test]
fn replacements_join_one_by_one_by_default() {
    let mut fake = running(DegradedPolicy::Replace);
    lose_two(&mut fake);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (1, 1));
}

#[test]
fn requorum_places_no_member_before_all_missing_ones_fit() {
    let mut fake = running(DegradedPolicy::Requorum);
    lose_two(&mut fake);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (1, 0), "there is room for one of two");
    assert!(fake.reasons("g").contains(&"Degraded"));
    fake.node("n9", 1);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (1, 2));
    assert!(matches!(fake.group_diagnosis("g"), Diagnosis::Healthy { minimum: 3, scheduled: 3 }));
    assert_eq!(rolled_back_count(&fake), 0);
}

#[test]
fn requorum_holds_after_a_restart_and_does_not_block_surplus_members() {
    let mut fake = running(DegradedPolicy::Requorum);
    lose_two(&mut fake);
    fake.advance(60_000);
    fake.restart();
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b")), (1, 0));
    fake.node("n8", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b"), 2);
    fake.pods_of("more", "g", 2, 1);
    fake.node("n9", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("more"), 1, "a gang with its quorum accepts members that fit");
}

#[test]
fn evict_removes_remaining_members_when_the_loss_lasts() {
    let mut fake = running(DegradedPolicy::Evict);
    lose_two(&mut fake);
    fake.advance(4_000);
    assert_eq!(
        (fake.bound_count("a"), fake.bound_count("b"), rolled_back_count(&fake)),
        (1, 1, 0),
        "it may still recover"
    );
    fake.advance(2_000);
    assert_eq!(fake.bound_count("a") + fake.bound_count("b"), 0);
    assert_eq!(rolled_back_count(&fake), 2);
    let diagnoses = fake.reports.iter().map(|report| &report.diagnosis);
    let given_up: Vec<_> =
        diagnoses.filter(|diagnosis| matches!(diagnosis, Diagnosis::Degraded { evicted: 2, .. })).collect();
    assert_eq!(given_up, [&Diagnosis::Degraded { minimum: 3, scheduled: 2, evicted: 2 }]);
    fake.pods_of("c", "g", 1, 1);
    fake.advance(60_000);
    assert_eq!(fake.bound(), [""; 0], "there is room for two of two");
    fake.pods_of("d", "g", 1, 1);
    fake.node("n9", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["b-1", "c-0", "d-0"], "it starts as a whole");
}

#[test]
fn loss_that_is_replaced_in_time_evicts_no_member() {
    let mut fake = running(DegradedPolicy::Evict);
    fake.remove("a-0");
    fake.advance(4_000);
    fake.pods_of("b", "g", 1, 1);
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), fake.bound_count("b"), rolled_back_count(&fake)), (2, 1, 0));
    // A second loss has its own deadline.
    fake.remove("b-0");
    fake.advance(4_000);
    assert_eq!(rolled_back_count(&fake), 0);
    fake.advance(2_000);
    assert_eq!(rolled_back_count(&fake), 2);
}

#[test]
fn evict_also_removes_uncontrolled_pods() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.put_group(GroupSpec { degraded_policy: DegradedPolicy::Evict, ..GroupSpec::gang(key("g"), 2) });
    for name in ["a", "b"] {
        fake.pod_with(name, "g", 1, |pod| pod.controlled = false);
    }
    fake.settle();
    fake.remove("a");
    fake.advance(6_000);
    assert_eq!(fake.bound(), [""; 0]);
}

#[test]
fn policy_changed_while_degraded_applies_from_then_on() {
    let mut fake = running(DegradedPolicy::Replace);
    fake.remove("a-0");
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 2);
    fake.put_group(GroupSpec { degraded_policy: DegradedPolicy::Evict, ..GroupSpec::gang(key("g"), 3) });
    fake.advance(4_000);
    assert_eq!(fake.bound_count("a"), 2);
    fake.put_group(GroupSpec { degraded_policy: DegradedPolicy::Replace, ..GroupSpec::gang(key("g"), 3) });
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 2, "the policy was reverted in time");
    fake.put_group(GroupSpec { degraded_policy: DegradedPolicy::Evict, ..GroupSpec::gang(key("g"), 3) });
    fake.advance(6_000);
    assert_eq!(fake.bound_count("a"), 0);
    // And again the next time.
    fake.pods_of("b", "g", 3, 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("b"), 3);
    fake.remove("b-0");
    fake.advance(6_000);
    assert_eq!(fake.bound_count("b"), 0);
}
