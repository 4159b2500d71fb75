//! All or nothing: the basic guarantees of gang scheduling.

use muster_engine::diagnosis::{Proof, Waiting};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::resources::PODS_PER_NODE_MAX;
use muster_engine::model::taint::{Effect, Taint};
use muster_engine::{Command, Diagnosis, MemberVerdict};

use crate::fake_cluster::FakeCluster;

#[test]
fn gang_starts_when_all_members_exist_and_fit() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 0);
    assert_eq!(
        fake.group_diagnosis("g"),
        Diagnosis::Waiting(Waiting::Members { subset: String::new(), have: 2, need: 3, stateful_set: None })
    );
    fake.pod("a-2", "g", 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 3, scheduled: 3 });
    assert_eq!(fake.reasons("g"), ["Scheduled"], "a short wait is not reported");
}

#[test]
fn member_beyond_the_minimum_starts_too() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 4, 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 4);
}

#[test]
fn pods_wait_for_their_group_object() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.pods_of("a", "g", 3, 1);
    fake.advance(6_000);
    assert_eq!(fake.bound_count("a"), 0);
    assert_eq!(fake.reasons("g"), ["WaitingForMembers"]);
    assert!(fake.group_diagnosis("g").to_string().contains("ns/g: no such object; 3 pods name it"));
    fake.gang("g", 3);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
}

#[test]
fn gang_without_room_starts_no_member_and_reports_why() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 2);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 0);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert_eq!((shortfall.would_fit, shortfall.waiting, shortfall.minimum), (2, 3, 3));
    let text = shortfall.to_string();
    assert!(text.starts_with("2 of 3 waiting pods fit, the group needs 3 at once."), "{text}");
    assert!(text.contains("0/2 nodes are available: 2 Insufficient cpu."), "{text}");
    assert!(text.contains("Closest is node n1, which needs 1 cpu more."), "{text}");
    // With one more node it fits.
    fake.node("n2", 2);
    fake.advance(2_000);
    assert_eq!(fake.bound_count("a"), 3);
}

#[test]
fn gang_that_can_never_fit_reports_it() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 2);
    fake.settle();
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert_eq!(shortfall.proof, Proof::NeverFits);
    fake.pod("big", "", 5);
    fake.settle();
    assert!(matches!(fake.pod_diagnosis("big"), Diagnosis::PodUnschedulable { never: true, .. }));
}

#[test]
fn members_beyond_the_minimum_are_bound_as_they_fit() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 4, 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("the rest is pending") };
    assert_eq!((shortfall.minimum, shortfall.held, shortfall.waiting), (0, 3, 1));
    fake.node("n1", 1);
    fake.advance(2_000);
    assert_eq!(fake.bound_count("a"), 4);
}

/// Generates every order in which the members of two gangs and a single pod can arrive.
fn orders(left: [usize; 3], so_far: &mut Vec<usize>, all: &mut Vec<Vec<usize>>) {
    if left.iter().sum::<usize>() == 0 {
        all.push(so_far.clone());
    }
    for member in 0..3 {
        if left[member] > 0 {
            let mut rest = left;
            rest[member] -= 1;
            so_far.push(member);
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
            let mut fake = FakeCluster::new();
            fake.node("n0", 2);
            fake.node("n1", 2);
            fake.gang("a", 3);
            fake.gang("b", 3);
            for (time, member) in order.iter().enumerate() {
                fake.now = time as u64 * 10;
                let (name, group) = [("a", "a"), ("b", "b"), ("single", "")][*member];
                fake.pod(&format!("{name}-{time}"), group, 1);
                if settle_between {
                    fake.settle();
                }
            }
            fake.advance(60_000);
            let (a, b, single) = (fake.bound_count("a"), fake.bound_count("b"), fake.bound_count("single"));
            assert_eq!((a + b, a * b, single), (3, 0, 1), "order {order:?}: one runs, the other is pending completely");
            // The running one ends; the other gets its turn.
            let running = if a == 3 { "a" } else { "b" };
            for name in fake.bound().into_iter().filter(|name| name.starts_with(running)) {
                fake.remove(&name);
            }
            fake.advance(60_000);
            let other = if a == 3 { "b" } else { "a" };
            assert_eq!(fake.bound_count(other), 3, "order {order:?}: the other starts after the first");
        }
    }
}

#[test]
fn gangs_that_fill_the_cluster_never_block_each_other() {
    let mut fake = FakeCluster::new();
    for node in 0..4 {
        fake.node(&format!("n{node}"), 4);
    }
    for gang in 0..10 {
        fake.gang(&format!("g{gang}"), 9);
        fake.pods_of(&format!("g{gang}"), &format!("g{gang}"), 9, 1);
    }
    let mut finished = 0;
    for _ in 0..10 {
        fake.advance(120_000);
        let bound = fake.bound();
        assert_eq!(bound.len(), 9, "exactly one gang runs");
        for name in bound {
            fake.remove(&name);
        }
        finished += 1;
    }
    assert_eq!((finished, fake.pods.len()), (10, 0));
}

#[test]
fn mixed_gang_is_placed_where_greedy_placement_fails() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 5);
    fake.node("n1", 4);
    fake.gang("g", 4);
    // 3+2 on the first, 2+2 on the second: the large one must not use the room of two small ones.
    fake.pod("large", "g", 3);
    fake.pods_of("small", "g", 3, 2);
    fake.settle();
    assert_eq!(fake.bound().len(), 4);
    assert_eq!(fake.node_of("large").as_deref(), Some("n0"));
}

#[test]
fn subsets_have_their_own_minimum() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.subsets("g", &[("ps", 1), ("worker", 3)]);
    let join = |fake: &mut FakeCluster, name: &str, subset: &str| {
        let subset = subset.to_owned();
        fake.pod_with(name, "g", 1, |pod| pod.membership.as_mut().unwrap().subset = subset);
    };
    for number in 0..4 {
        join(&mut fake, &format!("worker-{number}"), "worker");
    }
    fake.settle();
    assert_eq!(fake.bound_count("worker"), 0, "without a parameter server nothing starts");
    assert!(fake.group_diagnosis("g").to_string().contains("subset ps: 0 of 1"));
    join(&mut fake, "stranger", "driver");
    fake.advance(6_000);
    assert!(fake.pod_diagnosis("stranger").to_string().contains("has no subset \"driver\""));
    join(&mut fake, "ps-0", "ps");
    fake.settle();
    assert_eq!((fake.bound_count("worker"), fake.bound_count("ps")), (3, 1), "both minimums, then all that fit");
}

#[test]
fn gang_of_a_thousand_takes_one_decision() {
    let mut fake = FakeCluster::new();
    for node in 0..100 {
        fake.node(&format!("n{node}"), 10);
    }
    fake.gang("g", 1000);
    fake.pods_of("a", "g", 1000, 1);
    assert_eq!(fake.decide(), 1000);
    assert!(fake.in_flight.iter().all(|command| matches!(command, Command::Bind { .. })));
    fake.settle();
    assert_eq!(fake.bound_count("a"), 1000);
}

#[test]
fn group_of_a_tree_waits_for_its_parent() {
    use muster_engine::model::group::GroupSpec;
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    let parent = Some(crate::fake_cluster::key("above"));
    fake.put_group(GroupSpec { parent, ..GroupSpec::gang(crate::fake_cluster::key("g"), 1) });
    fake.pod("a", "g", 1);
    fake.advance(6_000);
    assert_eq!(fake.bound_count("a"), 0);
    assert_eq!(fake.reasons("g"), ["WaitingForMembers"]);
    let text = fake.group_diagnosis("g").to_string();
    assert_eq!(text, "Waiting for the parent group ns/above: no such object.");
}

#[test]
fn missing_nodes_are_not_counted() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.node("n1", 1);
    fake.remove_node("n1");
    // Bound to a node that is not observed yet.
    fake.pod_with("stranger", "", 1, |pod| pod.node = Some("n2".into()));
    fake.pod("p", "", 2);
    fake.settle();
    let text = fake.pod_diagnosis("p").to_string();
    assert!(text.starts_with("0/1 nodes are available: 1 Insufficient cpu."), "{text}");
}

#[test]
fn closest_node_lacks_the_smallest_share() {
    let mut fake = FakeCluster::new();
    let mut put_node = |name: &str, cpu_milli: i64, gpus: i64, tainted: bool| {
        let allocatable = [("cpu".to_owned(), cpu_milli), ("gpu".to_owned(), gpus), ("pods".to_owned(), 9)].into();
        let taint = Taint { key: "t".into(), value: String::new(), effect: Effect::NoSchedule };
        let taints = if tainted { vec![taint] } else { vec![] };
        fake.put_node(NodeSpec { name: name.into(), allocatable, taints, ..NodeSpec::default() });
    };
    // A node that only lacks room comes before one that is never feasible, regardless of its room.
    put_node("n0", 9_000, 9, true);
    // Three of four GPUs are more than half a CPU of two.
    put_node("n1", 2_000, 1, false);
    put_node("n2", 1_500, 4, false);
    put_node("n3", 1_500, 4, false);
    fake.pod_with("p", "", 2, |pod| {
        std::sync::Arc::make_mut(&mut pod.class).requests.insert("gpu".into(), 4);
    });
    fake.settle();
    let text = fake.pod_diagnosis("p").to_string();
    assert!(text.contains("Closest is node n2, which needs 500m cpu more."), "{text}");
}

#[test]
fn missing_amount_includes_nominated_pods() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.pod_with("other", "", 1, |pod| {
        pod.ours = false;
        pod.nominated = Some("n0".into());
    });
    fake.pod("p", "", 2);
    fake.settle();
    let text = fake.pod_diagnosis("p").to_string();
    assert!(text.contains("Closest is node n0, which needs 1 cpu more."), "{text}");
}

#[test]
fn unschedulable_gang_lists_every_member_in_order() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 3);
    fake.pod("b", "g", 2);
    fake.pod("a", "g", 1);
    fake.pod("c", "g", 2);
    fake.settle();
    let report = fake.reports.last().expect("it is reported");
    let names: Vec<(&str, MemberVerdict)> =
        report.members.iter().map(|(pod, verdict)| (pod.name.as_str(), *verdict)).collect();
    let expected = [("a", MemberVerdict::WouldFit), ("b", MemberVerdict::WouldFit), ("c", MemberVerdict::NoRoom)];
    assert_eq!(names, expected);
}

#[test]
fn node_holds_no_more_pods_than_the_engine_can_count() {
    let mut fake = FakeCluster::new();
    let allocatable = [("cpu".to_owned(), 9_000_000), ("pods".to_owned(), 1 << 40)].into();
    fake.put_node(NodeSpec { name: "n0".into(), allocatable, ..NodeSpec::default() });
    let limit = PODS_PER_NODE_MAX;
    fake.gang("g", limit as u32 + 1);
    fake.pods_of("a", "g", limit + 1, 1);
    fake.settle();
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("not unschedulable") };
    assert_eq!((shortfall.would_fit as usize, shortfall.proof), (limit, Proof::NeverFits));
}

#[test]
fn members_of_a_stateful_set_are_told_that_it_may_create_them_one_by_one() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 2);
    fake.pod_with("web-0", "g", 1, |pod| pod.stateful_set = Some("web".into()));
    fake.advance(10_000);
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.starts_with("Waiting for members: 1 of 2 are there. If StatefulSet web has"), "{text}");
    assert!(text.ends_with("create it with podManagementPolicy Parallel."), "{text}");
}
