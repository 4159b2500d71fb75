//! Groups that change while they are pending or running: members are added, finish and are deleted, minimums change,
//! objects are deleted.

use muster_engine::Diagnosis;
use muster_engine::diagnosis::{Proof, Waiting};
use muster_engine::model::group::{GroupSpec, Policy};
use muster_engine::model::pod::Phase;

use crate::fake_cluster::{FakeCluster, key};

#[test]
fn lower_minimum_unblocks_and_higher_one_blocks() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.gang("g", 5);
    fake.pods_of("a", "g", 4, 1);
    fake.settle();
    assert_eq!(fake.bound().len(), 0);
    fake.gang("g", 6);
    fake.settle();
    assert_eq!(
        fake.group_diagnosis("g"),
        Diagnosis::Waiting(Waiting::Members { subset: String::new(), have: 4, need: 6, stateful_set: None })
    );
    fake.gang("g", 4);
    fake.settle();
    assert_eq!(fake.bound().len(), 4);
}

#[test]
fn lower_minimum_that_fits_starts_a_parked_gang() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 5);
    fake.pods_of("a", "g", 5, 1);
    fake.settle();
    assert_eq!(fake.bound().len(), 0);
    fake.gang("g", 4);
    fake.advance(2_000);
    assert_eq!(fake.bound().len(), 4, "four of five fit, and four are enough now");
}

#[test]
fn minimum_raised_after_the_start_requires_the_rest_at_once() {
    // First the leader alone; then the whole replica at once.
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 1);
    fake.pod("leader", "g", 1);
    fake.settle();
    assert_eq!(fake.bound(), ["leader"]);
    fake.gang("g", 4);
    fake.pods_of("worker", "g", 3, 1);
    fake.advance(400_000);
    assert_eq!(fake.bound(), ["leader"], "two of three workers would fit: none starts, the leader stays");
    assert!(!fake.reasons("g").contains(&"ScheduleTimeout"), "nothing was started that could time out");
    fake.node("n1", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("worker"), 3);
}

#[test]
fn succeeded_members_count() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    for name in ["a-0", "a-1", "a-2"] {
        fake.phase(name, Phase::Running);
    }
    fake.phase("a-0", Phase::Succeeded);
    fake.phase("a-1", Phase::Failed);
    assert!(!fake.reasons("g").is_empty());
    fake.pod("a-3", "g", 1);
    fake.settle();
    assert!(fake.node_of("a-3").is_some(), "one finished, one runs, one replaces the one that failed");
}

#[test]
fn gang_resumed_after_some_members_finished_starts_whole() {
    for restarted in [false, true] {
        let mut fake = FakeCluster::new();
        fake.node("n0", 3);
        fake.gang("g", 3);
        fake.pods_of("a", "g", 3, 1);
        fake.settle();
        fake.phase("a-0", Phase::Succeeded);
        // It is suspended: unfinished pods are deleted.
        fake.remove("a-1");
        fake.remove("a-2");
        fake.pod("other", "", 2);
        fake.settle();
        if restarted {
            fake.restart();
        }
        fake.pods_of("b", "g", 2, 1);
        fake.advance(60_000);
        assert_eq!(fake.bound_count("b"), 0, "there is room for one of two");
        fake.node("n1", 1);
        fake.advance(60_000);
        assert_eq!(fake.bound_count("b"), 2, "succeeded members count");
    }
}

#[test]
fn succeeded_members_count_after_a_restart() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pod_with("done", "g", 1, |pod| {
        pod.node = Some("n0".into());
        pod.phase = Phase::Succeeded;
    });
    fake.pods_of("a", "g", 2, 1);
    fake.gang("g", 3);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 2);
}

#[test]
fn new_members_of_a_running_gang_join_one_by_one() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    fake.pods_of("b", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound_count("b"), 1, "one more fits");
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!() };
    assert_eq!((shortfall.minimum, shortfall.held, shortfall.waiting), (0, 4, 2));
}

#[test]
fn replacement_in_a_gang_without_object_reports_why_it_is_pending() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.remove_group("g");
    fake.remove("a-0");
    fake.pod("b", "g", 1);
    fake.advance(20_000);
    assert!(fake.node_of("b").is_none());
    // The loss was reported first, and the members are still pending.
    assert_eq!(fake.reasons("g"), ["Scheduled", "Degraded", "WaitingForMembers"]);
    assert!(matches!(fake.group_diagnosis("g"), Diagnosis::Waiting(Waiting::GroupMissing { .. })));
}

#[test]
fn group_object_is_deleted_and_recreated() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.remove_group("g");
    fake.pod("b", "g", 1);
    fake.advance(6_000);
    assert!(fake.node_of("b").is_none());
    assert!(matches!(fake.group_diagnosis("g"), Diagnosis::Waiting(Waiting::GroupMissing { .. })));
    assert_eq!(fake.bound_count("a"), 2, "running pods are not touched");
    fake.gang("g", 2);
    fake.settle();
    assert!(fake.node_of("b").is_some());
}

#[test]
fn deleted_pending_member_puts_the_gang_below_its_quorum() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.remove("a-1");
    fake.advance(6_000);
    assert_eq!(fake.reasons("g").last(), Some(&"WaitingForMembers"));
    fake.node("n1", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound().len(), 0);
    fake.pod("a-2", "g", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound().len(), 2);
}

#[test]
fn members_after_all_others_are_gone_are_a_new_gang() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    for name in ["a-0", "a-1", "a-2"] {
        fake.remove(name);
    }
    fake.pod("b-0", "g", 1);
    fake.settle();
    assert_eq!(fake.bound().len(), 0, "the quorum starts from zero");
    fake.pods_of("c", "g", 2, 1);
    fake.settle();
    assert_eq!(fake.bound().len(), 3);
}

#[test]
fn basic_group_starts_all_that_fit() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.basic("g", None);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound().len(), 2);
    fake.node("n1", 1);
    fake.advance(2_000);
    assert_eq!(fake.bound().len(), 3);
    assert_eq!(fake.reasons("g").last(), Some(&"Scheduled"));
}

#[test]
fn basic_group_reports_whether_the_rest_could_ever_fit() {
    let proof = |cpu: i64| {
        let mut fake = FakeCluster::new();
        fake.node("n0", 2);
        fake.basic("g", None);
        fake.pod("a", "g", 1);
        fake.settle();
        fake.pod("b", "g", cpu);
        fake.settle();
        let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("the rest is pending") };
        shortfall.proof
    };
    assert_eq!(proof(2), Proof::Impossible);
    assert_eq!(proof(3), Proof::NeverFits);
}

#[test]
fn basic_group_waits_only_briefly_for_its_desired_count() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.basic("g", Some(3));
    fake.pod("a-0", "g", 1);
    fake.settle();
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Waiting(Waiting::DesiredCount { have: 1, desired: 3 }));
    fake.pods_of("b", "g", 2, 1);
    fake.settle();
    assert_eq!(fake.bound().len(), 3, "all members exist: no need to wait");

    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.basic("g", Some(3));
    fake.pod("a-0", "g", 1);
    fake.advance(999);
    assert_eq!(fake.bound().len(), 0);
    fake.advance(1);
    assert_eq!(fake.bound().len(), 1, "the hint never blocks");
}

#[test]
fn basic_group_waits_for_its_desired_count_only_at_its_start() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.basic("g", Some(4));
    fake.pods_of("a", "g", 2, 1);
    fake.advance(1_000);
    assert_eq!(fake.bound_count("a"), 2);
    fake.pod("b", "g", 1);
    fake.settle();
    assert_eq!(fake.bound_count("b"), 1, "it runs: new members may join");
    for name in ["a-0", "a-1", "b"] {
        fake.remove(name);
    }
    fake.advance(60_000);
    fake.pod("c", "g", 1);
    fake.settle();
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Waiting(Waiting::DesiredCount { have: 1, desired: 4 }));
    fake.advance(1_000);
    assert_eq!(fake.bound_count("c"), 1);
}

#[test]
fn degraded_gang_without_members_starts_like_a_new_one() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.remove("a-0");
    fake.remove("a-1");
    fake.pods_of("b", "g", 2, 1);
    fake.settle();
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 2, scheduled: 2 }, "a start, not a recovery");
    fake.advance(60_000);
    assert_eq!(fake.reasons("g"), ["Scheduled"], "the loss did not last");
}

#[test]
fn basic_group_prefers_a_placement_for_all_desired_members() {
    // Three large pods and a small one fill both nodes, but only if the small one does not use the first.
    let bound = |desired_count: Option<u32>| {
        let mut fake = FakeCluster::new();
        fake.node("n0", 4);
        fake.node("n1", 3);
        fake.basic("g", desired_count);
        fake.pods_of("large", "g", 2, 2);
        fake.pod("small", "g", 1);
        fake.advance(1_000);
        assert_eq!(fake.bound().len(), 3);
        fake.pod("late", "g", 2);
        fake.advance(10_000);
        fake.bound().len()
    };
    assert_eq!(
        bound(None),
        3,
        "without the hint the small one uses the first node: otherwise this test proves nothing"
    );
    assert_eq!(bound(Some(4)), 4);
}

#[test]
fn policy_may_change_its_kind() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound().len(), 0);
    fake.put_group(GroupSpec::with_policy(key("g"), Policy::Basic { desired_count: None }));
    fake.advance(2_000);
    assert_eq!(fake.bound().len(), 2);
}

#[test]
fn gang_with_lowered_minimum_may_lose_the_difference() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    fake.gang("g", 2);
    fake.remove("a-0");
    fake.advance(60_000);
    assert!(!fake.reasons("g").contains(&"Degraded"), "{:?}", fake.reasons("g"));
    fake.remove("a-1");
    fake.advance(6_000);
    assert_eq!(fake.reasons("g").last(), Some(&"Degraded"));
}

#[test]
fn minimum_changes_during_a_start() {
    let start = |min_count: u32, bound: usize| {
        let mut fake = FakeCluster::new();
        fake.node("n0", 3);
        fake.gang("g", 3);
        fake.pods_of("a", "g", 3, 1);
        fake.decide_all();
        fake.gang("g", min_count);
        for command in fake.in_flight.drain(..).take(bound).collect::<Vec<_>>() {
            fake.execute(command);
        }
        fake.decide_all();
        fake
    };
    let fake = start(2, 2);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 2, scheduled: 2 }, "two are enough now");
    let fake = start(4, 3);
    assert!(fake.reasons("g").contains(&"Scheduled"), "the decided start is confirmed; the fourth joins later");
}

#[test]
fn new_subset_of_a_group_starts_by_its_minimum() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 9);
    fake.subsets("g", &[("x", 1)]);
    let join = |fake: &mut FakeCluster, name: &str, subset: &str| {
        let subset = subset.to_owned();
        fake.pod_with(name, "g", 1, |pod| pod.membership.as_mut().unwrap().subset = subset);
    };
    join(&mut fake, "x-0", "x");
    fake.settle();
    assert_eq!(fake.bound(), ["x-0"]);
    fake.subsets("g", &[("x", 1), ("y", 2)]);
    join(&mut fake, "y-0", "y");
    fake.settle();
    assert_eq!(fake.bound(), ["x-0"], "one of two");
    join(&mut fake, "y-1", "y");
    fake.settle();
    assert_eq!(fake.bound().len(), 3);
}

/// A gang of three has started; its leader is gone, and the successor's group counts only pods created with it.
fn successor(fake: &mut FakeCluster) {
    fake.gang("g", 3);
    fake.pods_of("old", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound_count("old"), 3);
    fake.remove("old-0");
    fake.advance(10_000);
    let members_since_ms = Some(fake.now);
    fake.put_group(GroupSpec { members_since_ms, ..GroupSpec::gang(key("g"), 3) });
}

#[test]
fn pods_of_an_earlier_group_do_not_complete_a_later_one() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    successor(&mut fake);
    fake.pods_of("new", "g", 1, 1);
    fake.advance(400_000);
    assert_eq!(fake.bound_count("new"), 0, "the old ones are not of this group");
    assert_eq!(fake.bound_count("old"), 2, "nor are they rolled back with it");
    assert_eq!(
        fake.group_diagnosis("g"),
        Diagnosis::Waiting(Waiting::Members { subset: String::new(), have: 1, need: 3, stateful_set: None })
    );
    fake.pod("new-1", "g", 1);
    fake.pod("new-2", "g", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("new"), 0, "there is room for two of three");
    fake.remove("old-1");
    fake.advance(60_000);
    assert_eq!(fake.bound_count("new"), 3);
    assert_eq!(fake.reasons("g").last(), Some(&"Scheduled"));
}

#[test]
fn pending_pod_of_an_earlier_group_reports_it() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 3);
    fake.pods_of("old", "g", 2, 1);
    fake.advance(10_000);
    let members_since_ms = Some(fake.now);
    fake.put_group(GroupSpec { members_since_ms, ..GroupSpec::gang(key("g"), 3) });
    fake.pod("new", "g", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound(), [""; 0]);
    assert_eq!(fake.pod_diagnosis("old-0"), Diagnosis::Waiting(Waiting::Former { group: "ns/g".to_owned() }));
}

#[test]
fn new_object_of_the_same_name_has_not_started() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    let object =
        |uid: &str| GroupSpec { owner: Some(uid.to_owned()), uid: uid.to_owned(), ..GroupSpec::gang(key("g"), 3) };
    fake.put_group(object("first"));
    fake.pods_of("old", "g", 3, 1);
    fake.settle();
    assert_eq!(fake.bound_count("old"), 3);
    fake.remove("old-0");
    fake.remove("old-1");
    fake.put_group(object("second"));
    fake.pod("new-0", "g", 1);
    fake.advance(20_000);
    assert_eq!(fake.bound_count("new"), 0, "the remaining pod belongs to the former group and does not count");
    fake.pod("new-1", "g", 1);
    fake.advance(20_000);
    assert_eq!(fake.bound_count("new"), 2);
}
