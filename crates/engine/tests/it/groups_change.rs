//! Groups that change while they wait or run: members come, finish and go, minimums move, objects vanish.

use muster_engine::Diagnosis;
use muster_engine::diagnosis::{Proof, Waiting};
use muster_engine::model::group::{GroupSpec, Policy};
use muster_engine::model::pod::Phase;

use crate::world::{World, key};

#[test]
fn a_lower_minimum_unblocks_and_a_higher_one_blocks() {
    let mut world = World::new();
    world.node("n0", 9);
    world.gang("g", 5);
    world.pods_of("a", "g", 4, 1);
    world.settle();
    assert_eq!(world.bound().len(), 0);
    world.gang("g", 6);
    world.settle();
    assert_eq!(world.why_group("g"), Diagnosis::Waiting(Waiting::Members { subset: String::new(), have: 4, need: 6 }));
    world.gang("g", 4);
    world.settle();
    assert_eq!(world.bound().len(), 4);
}

#[test]
fn a_lower_minimum_that_fits_starts_a_parked_gang() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 5);
    world.pods_of("a", "g", 5, 1);
    world.settle();
    assert_eq!(world.bound().len(), 0);
    world.gang("g", 4);
    world.pass(2_000);
    assert_eq!(world.bound().len(), 4, "four of five fit, and four are enough now");
}

#[test]
fn a_minimum_raised_after_the_start_asks_for_the_rest_at_once() {
    // A leader alone first; then the whole replica, and only the whole of it.
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 1);
    world.pod("leader", "g", 1);
    world.settle();
    assert_eq!(world.bound(), ["leader"]);
    world.gang("g", 4);
    world.pods_of("worker", "g", 3, 1);
    world.pass(400_000);
    assert_eq!(world.bound(), ["leader"], "two of three workers would fit: none starts, the leader stays");
    assert!(!world.reasons("g").contains(&"ScheduleTimeout"), "nothing was started that could time out");
    world.node("n1", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("worker"), 3);
}

#[test]
fn members_that_finished_well_count() {
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    for name in ["a-0", "a-1", "a-2"] {
        world.phase(name, Phase::Running);
    }
    world.phase("a-0", Phase::Succeeded);
    world.phase("a-1", Phase::Failed);
    assert!(!world.reasons("g").is_empty());
    world.pod("a-3", "g", 1);
    world.settle();
    assert!(world.node_of("a-3").is_some(), "one finished, one runs, one replaces the one that failed");
}

#[test]
fn a_gang_that_is_resumed_after_some_finished_starts_whole() {
    for restarted in [false, true] {
        let mut world = World::new();
        world.node("n0", 3);
        world.gang("g", 3);
        world.pods_of("a", "g", 3, 1);
        world.settle();
        world.phase("a-0", Phase::Succeeded);
        // It is suspended: what has not finished is deleted.
        world.remove("a-1");
        world.remove("a-2");
        world.pod("other", "", 2);
        world.settle();
        if restarted {
            world.restart();
        }
        world.pods_of("b", "g", 2, 1);
        world.pass(60_000);
        assert_eq!(world.bound_count("b"), 0, "there is room for one of two");
        world.node("n1", 1);
        world.pass(60_000);
        assert_eq!(world.bound_count("b"), 2, "those who finished count");
    }
}

#[test]
fn finished_members_count_for_an_engine_that_never_saw_them_run() {
    let mut world = World::new();
    world.node("n0", 2);
    world.pod_with("done", "g", 1, |pod| {
        pod.node = Some("n0".into());
        pod.phase = Phase::Succeeded;
    });
    world.pods_of("a", "g", 2, 1);
    world.gang("g", 3);
    world.settle();
    assert_eq!(world.bound_count("a"), 2);
}

#[test]
fn new_members_of_a_running_gang_join_one_by_one() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    world.pods_of("b", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound_count("b"), 1, "one more fits");
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!() };
    assert_eq!((shortfall.minimum, shortfall.held, shortfall.waiting), (0, 4, 2));
}

#[test]
fn a_replacement_in_a_gang_whose_object_is_gone_is_told_why_it_waits() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.remove_group("g");
    world.remove("a-0");
    world.pod("b", "g", 1);
    world.pass(20_000);
    assert!(world.node_of("b").is_none());
    // The loss was told first, and the wait goes on.
    assert_eq!(world.reasons("g"), ["Scheduled", "Degraded", "WaitingForMembers"]);
    assert!(matches!(world.why_group("g"), Diagnosis::Waiting(Waiting::GroupMissing { .. })));
}

#[test]
fn a_group_object_deleted_and_made_again() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.remove_group("g");
    world.pod("b", "g", 1);
    world.pass(6_000);
    assert!(world.node_of("b").is_none());
    assert!(matches!(world.why_group("g"), Diagnosis::Waiting(Waiting::GroupMissing { .. })));
    assert_eq!(world.bound_count("a"), 2, "what runs is left alone");
    world.gang("g", 2);
    world.settle();
    assert!(world.node_of("b").is_some());
}

#[test]
fn a_deleted_member_that_waited_puts_the_gang_below_its_quorum() {
    let mut world = World::new();
    world.node("n0", 1);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.remove("a-1");
    world.pass(6_000);
    assert_eq!(world.reasons("g").last(), Some(&"WaitingForMembers"));
    world.node("n1", 1);
    world.pass(60_000);
    assert_eq!(world.bound().len(), 0);
    world.pod("a-2", "g", 1);
    world.pass(60_000);
    assert_eq!(world.bound().len(), 2);
}

#[test]
fn when_all_members_are_gone_the_next_ones_are_a_new_gang() {
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    for name in ["a-0", "a-1", "a-2"] {
        world.remove(name);
    }
    world.pod("b-0", "g", 1);
    world.settle();
    assert_eq!(world.bound().len(), 0, "the quorum counts afresh");
    world.pods_of("c", "g", 2, 1);
    world.settle();
    assert_eq!(world.bound().len(), 3);
}

#[test]
fn a_basic_group_starts_what_fits() {
    let mut world = World::new();
    world.node("n0", 2);
    world.basic("g", None);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound().len(), 2);
    world.node("n1", 1);
    world.pass(2_000);
    assert_eq!(world.bound().len(), 3);
    assert_eq!(world.reasons("g").last(), Some(&"Scheduled"));
}

#[test]
fn a_basic_group_says_whether_what_is_left_could_ever_fit() {
    let proof = |cpu: i64| {
        let mut world = World::new();
        world.node("n0", 2);
        world.basic("g", None);
        world.pod("a", "g", 1);
        world.settle();
        world.pod("b", "g", cpu);
        world.settle();
        let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("the rest waits") };
        shortfall.proof
    };
    assert_eq!(proof(2), Proof::Impossible);
    assert_eq!(proof(3), Proof::NeverFits);
}

#[test]
fn a_basic_group_waits_a_moment_for_its_desired_count_and_never_longer() {
    let mut world = World::new();
    world.node("n0", 9);
    world.basic("g", Some(3));
    world.pod("a-0", "g", 1);
    world.settle();
    assert_eq!(world.why_group("g"), Diagnosis::Waiting(Waiting::DesiredCount { have: 1, desired: 3 }));
    world.pods_of("b", "g", 2, 1);
    world.settle();
    assert_eq!(world.bound().len(), 3, "all are there: no need to wait");

    let mut world = World::new();
    world.node("n0", 9);
    world.basic("g", Some(3));
    world.pod("a-0", "g", 1);
    world.pass(999);
    assert_eq!(world.bound().len(), 0);
    world.pass(1);
    assert_eq!(world.bound().len(), 1, "the hint never blocks");
}

#[test]
fn a_basic_group_waits_for_its_desired_count_when_it_starts_and_not_when_it_grows() {
    let mut world = World::new();
    world.node("n0", 9);
    world.basic("g", Some(4));
    world.pods_of("a", "g", 2, 1);
    world.pass(1_000);
    assert_eq!(world.bound_count("a"), 2);
    world.pod("b", "g", 1);
    world.settle();
    assert_eq!(world.bound_count("b"), 1, "it runs: whoever comes may join");
    for name in ["a-0", "a-1", "b"] {
        world.remove(name);
    }
    world.pass(60_000);
    world.pod("c", "g", 1);
    world.settle();
    assert_eq!(world.why_group("g"), Diagnosis::Waiting(Waiting::DesiredCount { have: 1, desired: 4 }));
    world.pass(1_000);
    assert_eq!(world.bound_count("c"), 1);
}

#[test]
fn a_gang_that_was_degraded_and_is_gone_starts_like_any_other() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.remove("a-0");
    world.remove("a-1");
    world.pods_of("b", "g", 2, 1);
    world.settle();
    assert_eq!(world.why_group("g"), Diagnosis::Scheduled { minimum: 2, secured: 2 }, "a start, not a recovery");
    world.pass(60_000);
    assert_eq!(world.reasons("g"), ["Scheduled"], "the loss did not last");
}

#[test]
fn a_basic_group_prefers_a_placement_that_would_hold_all_desired_members() {
    // Three large ones and a small one fill both nodes, but only if the small one leaves the first to the large.
    let bound = |desired_count: Option<u32>| {
        let mut world = World::new();
        world.node("n0", 4);
        world.node("n1", 3);
        world.basic("g", desired_count);
        world.pods_of("large", "g", 2, 2);
        world.pod("small", "g", 1);
        world.pass(1_000);
        assert_eq!(world.bound().len(), 3);
        world.pod("late", "g", 2);
        world.pass(10_000);
        world.bound().len()
    };
    assert_eq!(bound(None), 3, "without the hint the small one is in the way: else this test shows nothing");
    assert_eq!(bound(Some(4)), 4);
}

#[test]
fn a_policy_may_change_its_kind() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound().len(), 0);
    world.put_group(GroupSpec::with_policy(key("g"), Policy::Basic { desired_count: None }));
    world.pass(2_000);
    assert_eq!(world.bound().len(), 2);
}

#[test]
fn a_gang_whose_minimum_was_lowered_may_lose_the_difference() {
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    world.gang("g", 2);
    world.remove("a-0");
    world.pass(60_000);
    assert!(!world.reasons("g").contains(&"Degraded"), "{:?}", world.reasons("g"));
    world.remove("a-1");
    world.pass(6_000);
    assert_eq!(world.reasons("g").last(), Some(&"Degraded"));
}

#[test]
fn a_minimum_that_moves_while_the_start_is_under_way() {
    let start = |min_count: u32, bound: usize| {
        let mut world = World::new();
        world.node("n0", 3);
        world.gang("g", 3);
        world.pods_of("a", "g", 3, 1);
        world.decide_all();
        world.gang("g", min_count);
        for command in world.in_flight.drain(..).take(bound).collect::<Vec<_>>() {
            world.carry_out(command);
        }
        world.decide_all();
        world
    };
    let world = start(2, 2);
    assert_eq!(world.why_group("g"), Diagnosis::Scheduled { minimum: 2, secured: 2 }, "two are enough now");
    let world = start(4, 3);
    assert!(world.reasons("g").contains(&"Scheduled"), "what was decided is confirmed; the fourth comes after it");
}

#[test]
fn a_group_that_gets_another_subset_starts_it_by_its_minimum() {
    let mut world = World::new();
    world.node("n0", 9);
    world.subsets("g", &[("x", 1)]);
    let join = |world: &mut World, name: &str, subset: &str| {
        let subset = subset.to_owned();
        world.pod_with(name, "g", 1, |pod| pod.membership.as_mut().unwrap().subset = subset);
    };
    join(&mut world, "x-0", "x");
    world.settle();
    assert_eq!(world.bound(), ["x-0"]);
    world.subsets("g", &[("x", 1), ("y", 2)]);
    join(&mut world, "y-0", "y");
    world.settle();
    assert_eq!(world.bound(), ["x-0"], "one of two");
    join(&mut world, "y-1", "y");
    world.settle();
    assert_eq!(world.bound().len(), 3);
}

/// A gang of three has started; its leader is gone, and its successor's group counts only who came with it.
fn successor(world: &mut World) {
    world.gang("g", 3);
    world.pods_of("old", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound_count("old"), 3);
    world.remove("old-0");
    world.pass(10_000);
    let members_since_ms = Some(world.now);
    world.put_group(GroupSpec { members_since_ms, ..GroupSpec::gang(key("g"), 3) });
}

#[test]
fn who_is_left_of_an_earlier_group_completes_no_later_one() {
    let mut world = World::new();
    world.node("n0", 4);
    successor(&mut world);
    world.pods_of("new", "g", 1, 1);
    world.pass(400_000);
    assert_eq!(world.bound_count("new"), 0, "the old ones are not of this group");
    assert_eq!(world.bound_count("old"), 2, "nor are they taken back with it");
    assert_eq!(world.why_group("g"), Diagnosis::Waiting(Waiting::Members { subset: String::new(), have: 1, need: 3 }));
    world.pod("new-1", "g", 1);
    world.pod("new-2", "g", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("new"), 0, "there is room for two of three");
    world.remove("old-1");
    world.pass(60_000);
    assert_eq!(world.bound_count("new"), 3);
    assert_eq!(world.reasons("g").last(), Some(&"Scheduled"));
}

#[test]
fn who_is_left_of_an_earlier_group_and_waits_is_told_so() {
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 3);
    world.pods_of("old", "g", 2, 1);
    world.pass(10_000);
    let members_since_ms = Some(world.now);
    world.put_group(GroupSpec { members_since_ms, ..GroupSpec::gang(key("g"), 3) });
    world.pod("new", "g", 1);
    world.pass(60_000);
    assert_eq!(world.bound(), [""; 0]);
    assert_eq!(world.why_pod("old-0"), Diagnosis::Waiting(Waiting::Former { group: "ns/g".to_owned() }));
}

#[test]
fn another_object_of_the_same_name_has_yet_to_start() {
    let mut world = World::new();
    world.node("n0", 3);
    let object = |uid: &str| GroupSpec { incarnation: Some(uid.to_owned()), ..GroupSpec::gang(key("g"), 3) };
    world.put_group(object("first"));
    world.pods_of("old", "g", 3, 1);
    world.settle();
    assert_eq!(world.bound_count("old"), 3);
    world.remove("old-0");
    world.remove("old-1");
    world.put_group(object("second"));
    world.pod("new-0", "g", 1);
    world.pass(20_000);
    assert_eq!(world.bound_count("new"), 0, "the one that is left is of a group that is gone, and replaces nobody");
    world.pod("new-1", "g", 1);
    world.pass(20_000);
    assert_eq!(world.bound_count("new"), 2);
}
