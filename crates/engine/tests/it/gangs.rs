//! Whole or not at all: the sentences that a gang scheduler lives by.

use muster_engine::diagnosis::{Proof, Waiting};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::resources::PODS_PER_NODE_MAX;
use muster_engine::model::taint::{Effect, Taint};
use muster_engine::{Command, Diagnosis, MemberVerdict};

use crate::world::World;

#[test]
fn a_gang_starts_when_all_are_there_and_there_is_room() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 3);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    assert_eq!(world.bound_count("a"), 0);
    assert_eq!(world.why_group("g"), Diagnosis::Waiting(Waiting::Members { subset: String::new(), have: 2, need: 3 }));
    world.pod("a-2", "g", 1);
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    assert_eq!(world.why_group("g"), Diagnosis::Scheduled { minimum: 3, secured: 3 });
    assert_eq!(world.reasons("g"), ["Scheduled"], "a wait that does not last is not told");
}

#[test]
fn a_member_beyond_the_minimum_starts_too() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 3);
    world.pods_of("a", "g", 4, 1);
    world.settle();
    assert_eq!(world.bound_count("a"), 4);
}

#[test]
fn pods_wait_for_their_group_object() {
    let mut world = World::new();
    world.node("n0", 4);
    world.pods_of("a", "g", 3, 1);
    world.pass(6_000);
    assert_eq!(world.bound_count("a"), 0);
    assert_eq!(world.reasons("g"), ["WaitingForMembers"]);
    assert!(world.why_group("g").to_string().contains("ns/g: no such object; 3 pods name it"));
    world.gang("g", 3);
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
}

#[test]
fn a_gang_without_room_starts_nothing_and_says_why() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 2);
    world.settle();
    assert_eq!(world.bound_count("a"), 0);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert_eq!((shortfall.would_fit, shortfall.waiting, shortfall.minimum), (2, 3, 3));
    let text = shortfall.to_string();
    assert!(text.starts_with("2 of 3 waiting pods fit, the group needs 3 at once."), "{text}");
    assert!(text.contains("0/2 nodes are available: 2 Insufficient cpu."), "{text}");
    assert!(text.contains("Closest is node n1, which needs 1 cpu more."), "{text}");
    // One more node, and it goes.
    world.node("n2", 2);
    world.pass(2_000);
    assert_eq!(world.bound_count("a"), 3);
}

#[test]
fn a_gang_that_could_never_fit_says_so() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 2);
    world.settle();
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert_eq!(shortfall.proof, Proof::NeverFits);
    world.pod("big", "", 5);
    world.settle();
    assert!(matches!(world.why_pod("big"), Diagnosis::PodUnschedulable { never: true, .. }));
}

#[test]
fn what_fits_beyond_the_minimum_is_bound_and_the_rest_comes_later() {
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 4, 1);
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("the rest waits") };
    assert_eq!((shortfall.minimum, shortfall.held, shortfall.waiting), (0, 3, 1));
    world.node("n1", 1);
    world.pass(2_000);
    assert_eq!(world.bound_count("a"), 4);
}

/// Every order in which the members of two gangs and a single pod can arrive.
fn orders(left: [usize; 3], so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if left.iter().sum::<usize>() == 0 {
        all.push(so_far.clone());
    }
    for who in 0..3 {
        if left[who] > 0 {
            let mut rest = left;
            rest[who] -= 1;
            so_far.push(who);
            orders(rest, so_far, all);
            so_far.pop();
        }
    }
}

#[test]
fn two_gangs_of_more_than_half_and_a_pod_between_them_in_every_order() {
    let mut all = Vec::new();
    orders([3, 3, 1], &mut Vec::new(), &mut all);
    assert_eq!(all.len(), 140);
    for settle_between in [false, true] {
        for order in &all {
            let mut world = World::new();
            world.node("n0", 2);
            world.node("n1", 2);
            world.gang("a", 3);
            world.gang("b", 3);
            for (time, who) in order.iter().enumerate() {
                world.now = time as u64 * 10;
                let (name, group) = [("a", "a"), ("b", "b"), ("single", "")][*who];
                world.pod(&format!("{name}-{time}"), group, 1);
                if settle_between {
                    world.settle();
                }
            }
            world.pass(60_000);
            let (a, b, single) = (world.bound_count("a"), world.bound_count("b"), world.bound_count("single"));
            assert_eq!((a + b, a * b, single), (3, 0, 1), "order {order:?}: one runs, one waits whole");
            // The one that runs ends; the other gets its turn.
            let running = if a == 3 { "a" } else { "b" };
            for name in world.bound().into_iter().filter(|name| name.starts_with(running)) {
                world.remove(&name);
            }
            world.pass(60_000);
            let other = if a == 3 { "b" } else { "a" };
            assert_eq!(world.bound_count(other), 3, "order {order:?}: the other starts when the first is gone");
        }
    }
}

#[test]
fn gangs_that_fill_the_cluster_in_turn_never_block_each_other() {
    let mut world = World::new();
    for node in 0..4 {
        world.node(&format!("n{node}"), 4);
    }
    for gang in 0..10 {
        world.gang(&format!("g{gang}"), 9);
        world.pods_of(&format!("g{gang}"), &format!("g{gang}"), 9, 1);
    }
    let mut finished = 0;
    for _ in 0..10 {
        world.pass(120_000);
        let bound = world.bound();
        assert_eq!(bound.len(), 9, "exactly one gang runs");
        for name in bound {
            world.remove(&name);
        }
        finished += 1;
    }
    assert_eq!((finished, world.pods.len()), (10, 0));
}

#[test]
fn a_mixed_gang_is_placed_where_greed_would_fail() {
    let mut world = World::new();
    world.node("n0", 5);
    world.node("n1", 4);
    world.gang("g", 4);
    // 3+2 on the first, 2+2 on the second: the large one must not go where two twos would.
    world.pod("large", "g", 3);
    world.pods_of("small", "g", 3, 2);
    world.settle();
    assert_eq!(world.bound().len(), 4);
    assert_eq!(world.node_of("large").as_deref(), Some("n0"));
}

#[test]
fn subsets_have_their_own_minimum() {
    let mut world = World::new();
    world.node("n0", 4);
    world.subsets("g", &[("ps", 1), ("worker", 3)]);
    let join = |world: &mut World, name: &str, subset: &str| {
        let subset = subset.to_owned();
        world.pod_with(name, "g", 1, |pod| pod.membership.as_mut().unwrap().subset = subset);
    };
    for number in 0..4 {
        join(&mut world, &format!("worker-{number}"), "worker");
    }
    world.settle();
    assert_eq!(world.bound_count("worker"), 0, "without a parameter server nothing starts");
    assert!(world.why_group("g").to_string().contains("subset ps: 0 of 1"));
    join(&mut world, "stranger", "driver");
    world.pass(6_000);
    assert!(world.why_pod("stranger").to_string().contains("has no subset \"driver\""));
    join(&mut world, "ps-0", "ps");
    world.settle();
    assert_eq!((world.bound_count("worker"), world.bound_count("ps")), (3, 1), "both minimums, then what fits");
}

#[test]
fn a_gang_of_a_thousand_is_one_decision() {
    let mut world = World::new();
    for node in 0..100 {
        world.node(&format!("n{node}"), 10);
    }
    world.gang("g", 1000);
    world.pods_of("a", "g", 1000, 1);
    assert_eq!(world.decide(), 1000);
    assert!(world.in_flight.iter().all(|command| matches!(command, Command::Bind { .. })));
    world.settle();
    assert_eq!(world.bound_count("a"), 1000);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    use muster_engine::model::group::{GroupSpec, TopologyConstraint};
    let mut world = World::new();
    world.node("n0", 4);
    let topology = vec![TopologyConstraint { key: "rack".into(), required: true }];
    world.put_group(GroupSpec { topology, ..GroupSpec::gang(crate::world::key("g"), 1) });
    world.pod("a", "g", 1);
    world.pass(6_000);
    assert_eq!(world.bound_count("a"), 0);
    assert_eq!(world.reasons("g"), ["Unsupported"]);
    assert_eq!(
        world.why_group("g").to_string(),
        "The group's topology (rack) is not supported yet; without it the group would be tried."
    );
}

#[test]
fn nodes_that_are_not_there_are_not_counted() {
    let mut world = World::new();
    world.node("n0", 1);
    world.node("n1", 1);
    world.remove_node("n1");
    // Bound to a node that nobody has shown yet.
    world.pod_with("stranger", "", 1, |pod| pod.node = Some("n2".into()));
    world.pod("p", "", 2);
    world.settle();
    let text = world.why_pod("p").to_string();
    assert!(text.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{text}");
}

#[test]
fn the_closest_node_is_the_one_that_lacks_the_smallest_share() {
    let mut world = World::new();
    let mut put_node = |name: &str, cpu_milli: i64, gpus: i64, tainted: bool| {
        let allocatable = [("cpu".to_owned(), cpu_milli), ("gpu".to_owned(), gpus), ("pods".to_owned(), 9)].into();
        let taint = Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule };
        let taints = if tainted { vec![taint] } else { vec![] };
        world.put_node(NodeSpec { name: name.into(), allocatable, taints, ..NodeSpec::default() });
    };
    // A node that only needs room comes before one that will never do, whatever that one has.
    put_node("n0", 9_000, 9, true);
    // Three of four GPUs are more than half a CPU of two.
    put_node("n1", 2_000, 1, false);
    put_node("n2", 1_500, 4, false);
    put_node("n3", 1_500, 4, false);
    world.pod_with("p", "", 2, |pod| {
        std::sync::Arc::make_mut(&mut pod.class).requests.insert("gpu".into(), 4);
    });
    world.settle();
    let text = world.why_pod("p").to_string();
    assert!(text.contains("Closest is node n2, which needs 500m cpu more."), "{text}");
}

#[test]
fn what_a_node_lacks_counts_what_it_is_kept_free_for() {
    let mut world = World::new();
    world.node("n0", 2);
    world.pod_with("other", "", 1, |pod| {
        pod.ours = false;
        pod.nominated = Some("n0".into());
    });
    world.pod("p", "", 2);
    world.settle();
    let text = world.why_pod("p").to_string();
    assert!(text.contains("Closest is node n0, which needs 1 cpu more."), "{text}");
}

#[test]
fn a_refused_gang_names_every_member_in_order() {
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 3);
    world.pod("b", "g", 2);
    world.pod("a", "g", 1);
    world.pod("c", "g", 2);
    world.settle();
    let report = world.reports.last().expect("it is said");
    let names: Vec<(&str, MemberVerdict)> =
        report.members.iter().map(|(pod, verdict)| (pod.name.as_str(), *verdict)).collect();
    let expected = [("a", MemberVerdict::WouldFit), ("b", MemberVerdict::WouldFit), ("c", MemberVerdict::NoRoom)];
    assert_eq!(names, expected);
}

#[test]
fn a_node_holds_no_more_pods_than_the_engine_can_count() {
    let mut world = World::new();
    let allocatable = [("cpu".to_owned(), 9_000_000), ("pods".to_owned(), 1 << 40)].into();
    world.put_node(NodeSpec { name: "n0".into(), allocatable, ..NodeSpec::default() });
    let limit = PODS_PER_NODE_MAX;
    world.gang("g", limit as u32 + 1);
    world.pods_of("a", "g", limit + 1, 1);
    world.settle();
    let Diagnosis::GroupUnschedulable(shortfall) = world.why_group("g") else { panic!("not refused") };
    assert_eq!((shortfall.would_fit as usize, shortfall.proof), (limit, Proof::NeverFits));
}
