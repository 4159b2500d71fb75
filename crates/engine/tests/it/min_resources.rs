//! Groups that will need more than those of their members who are there yet.

use muster_engine::model::group::{GroupPriority, GroupSpec};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::taint::{Effect, Taint};
use muster_engine::{Command, Diagnosis};

use crate::world::{World, key};

/// A leader whose replica will need so many CPUs in all.
fn leader(world: &mut World, cpu: i64) {
    let min_resources = [("cpu".to_owned(), cpu * 1000)].into();
    world.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("g"), 1) });
    world.pod("leader", "g", 1);
}

#[test]
fn a_leader_waits_for_room_for_the_whole_replica() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 2);
    leader(&mut world, 5);
    world.settle();
    assert_eq!(world.bound(), [""; 0]);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("{:?}", world.why_group("g")) };
    let gap = shortfall.gap.expect("what is missing is told");
    assert_eq!((gap.resource.as_str(), gap.asked, gap.taken, gap.left), ("cpu", 5000, 1000, 3000));
    assert_eq!((shortfall.would_fit, shortfall.waiting), (1, 1));
    world.node("n2", 1);
    world.pass(5_000);
    assert_eq!(world.bound(), ["leader"]);
    // What comes after the start needs only its own room.
    world.remove_node("n2");
    world.pods_of("worker", "g", 2, 1);
    world.pass(5_000);
    assert_eq!(world.bound_count("worker"), 2);
}

#[test]
fn nodes_that_its_pods_may_not_use_do_not_count() {
    let mut world = World::new();
    world.node("n0", 2);
    let taint = Taint { key: "gpu".into(), value: String::new(), effect: Effect::NoSchedule };
    let allocatable = [("cpu".to_owned(), 64_000), ("memory".to_owned(), 1 << 40), ("pods".to_owned(), 110)].into();
    world.put_node(NodeSpec { name: "n1".into(), taints: vec![taint], allocatable, ..NodeSpec::default() });
    leader(&mut world, 3);
    world.pass(60_000);
    assert_eq!(world.bound(), [""; 0]);
}

#[test]
fn resources_that_nobody_has_and_pods_count_too() {
    let mut world = World::new();
    world.node("n0", 2);
    for (resource, amount) in [("gpu", 1), ("pods", 1_000_000)] {
        let min_resources = [(resource.to_owned(), amount)].into();
        world.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key(resource), 1) });
        world.pod(resource, resource, 1);
    }
    world.pass(60_000);
    assert_eq!(world.bound(), [""; 0]);
}

#[test]
fn nobody_is_evicted_for_a_group_that_would_not_start_all_the_same() {
    let mut world = World::new();
    world.node("n0", 2);
    world.pods_of("low", "", 2, 1);
    world.settle();
    let min_resources = [("cpu".to_owned(), 3000)].into();
    world.put_group(GroupSpec { min_resources, priority: GroupPriority::Own(5), ..GroupSpec::gang(key("g"), 1) });
    world.pod("leader", "g", 1);
    world.pass(60_000);
    assert!(!world.acts.iter().any(|act| matches!(act, Command::Evict { .. })));
    assert_eq!(world.bound_count("low"), 2);
    world.node("n1", 3);
    world.pass(60_000);
    assert_eq!(world.bound_count("leader"), 1, "{:?}", world.why_group("g"));
    assert_eq!(world.bound_count("low"), 2);
}

#[test]
fn room_that_is_no_help_to_the_leader_itself_is_found_in_time() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 1);
    let uid = world.pod("half", "", 1);
    world.settle();
    let min_resources = [("cpu".to_owned(), 3000)].into();
    world.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("g"), 1) });
    world.pod("leader", "g", 2);
    world.pass(60_000);
    // Wherever the small pod stands: when it goes, three CPUs are free.
    assert_eq!(world.bound(), ["half"]);
    world.remove_pod(&uid);
    world.pass(400_000);
    assert_eq!(world.bound(), ["leader"]);
}

#[test]
fn two_leaders_do_not_count_on_the_same_room() {
    let mut world = World::new();
    (0..5).for_each(|index| world.node(&format!("n{index}"), 1));
    for name in ["a", "b"] {
        let min_resources = [("cpu".to_owned(), 3000)].into();
        world.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key(name), 1) });
        world.pod(&format!("{name}-leader"), name, 1);
    }
    world.pass(60_000);
    assert_eq!(world.bound(), ["a-leader"]);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("b") else { panic!("{:?}", world.why_group("b")) };
    let gap = shortfall.gap.expect("what is missing is told");
    assert_eq!((gap.asked, gap.left, gap.owed), (3000, 3000, 2000));
    // The others of the first come; then there is room for nobody's leader, until a node is there for it.
    world.pods_of("a-worker", "a", 2, 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("a-"), 3);
    assert_eq!(world.bound_count("b-"), 0);
    world.node("late", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("b-"), 1);
}

#[test]
fn a_group_that_is_complete_is_owed_nothing() {
    for says_how_many in [true, false] {
        let mut world = World::new();
        (0..5).for_each(|index| world.node(&format!("n{index}"), 1));
        // It said more than its pods ask for.
        let mut min_resources: std::collections::BTreeMap<_, _> = [("cpu".to_owned(), 4000)].into();
        min_resources.extend(says_how_many.then(|| ("pods".to_owned(), 2)));
        world.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("a"), 1) });
        world.pods_of("a", "a", 2, 1);
        world.pass(10_000);
        assert_eq!(world.bound_count("a"), 2);
        let min_resources = [("cpu".to_owned(), 3000)].into();
        world.put_group(GroupSpec { min_resources, ..GroupSpec::gang(key("b"), 1) });
        world.pod("b", "b", 1);
        world.pass(60_000);
        assert_eq!(world.bound_count("b"), usize::from(says_how_many), "who does not say may have more to come");
    }
}

#[test]
fn groups_of_a_family_need_their_resources_together() {
    let mut world = World::new();
    (0..5).for_each(|index| world.node(&format!("n{index}"), 1));
    for family in ["a", "b"] {
        for part in ["first", "second"] {
            let min_resources = [("cpu".to_owned(), 4000)].into();
            let name = format!("{family}-{part}");
            let spec = GroupSpec::gang(key(&name), 2);
            world.put_group(GroupSpec { min_resources, family: Some(family.to_owned()), ..spec });
        }
    }
    // The first parts are there; the second ones come when these run.
    world.pods_of("a-first-pod", "a-first", 2, 1);
    world.pods_of("b-first-pod", "b-first", 2, 1);
    world.pass(60_000);
    assert_eq!((world.bound_count("a-first-pod"), world.bound_count("b-first-pod")), (2, 0));
    world.pods_of("a-second-pod", "a-second", 2, 1);
    world.pass(60_000);
    assert_eq!((world.bound_count("a-"), world.bound_count("b-")), (4, 0));
    // Nothing is owed any more: with three more places the other family has its four.
    (0..3).for_each(|index| world.node(&format!("late{index}"), 1));
    world.pass(60_000);
    assert_eq!(world.bound_count("b-first-pod"), 2);
    world.pods_of("b-second-pod", "b-second", 2, 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("b-"), 4);
}
