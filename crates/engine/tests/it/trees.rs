//! Trees of groups: what starts together, what starts beside it, and what is left when it goes wrong.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::diagnosis::Waiting;
use muster_engine::model::group::{DisruptionMode, GroupPriority, GroupSpec, Policy};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::topology::GroupTopology;
use muster_engine::model::tree::{GroupTree, TreeMinimum, TreeNode};
use muster_engine::{BindOutcome, Command, Diagnosis, Observation};

use crate::fake_cluster::{FakeCluster, key};

/// A leaf that needs so many pods.
pub(crate) fn leaf(name: &str, parent: usize, pods: u32) -> TreeNode {
    TreeNode::new(name, parent, TreeMinimum::Pods(pods))
}

/// A group that needs so many of its child groups.
pub(crate) fn inner(name: &str, parent: usize, groups: u32) -> TreeNode {
    TreeNode::new(name, parent, TreeMinimum::Groups(groups))
}

pub(crate) fn tree_spec(name: &str, nodes: Vec<TreeNode>) -> GroupSpec {
    GroupSpec::with_policy(key(name), Policy::Tree(Arc::new(GroupTree::from(nodes))))
}

fn tree(fake: &mut FakeCluster, name: &str, nodes: Vec<TreeNode>) {
    fake.put_group(tree_spec(name, nodes));
}

/// Pods of a leaf, named `leaf-0`, `leaf-1`, ..., which request this much.
fn pods(fake: &mut FakeCluster, tree: &str, leaf: &str, count: usize, cpu: i64) {
    for number in 0..count {
        pod(fake, &format!("{leaf}-{number}"), tree, leaf, cpu);
    }
}

pub(crate) fn pod(fake: &mut FakeCluster, name: &str, tree: &str, leaf: &str, cpu: i64) {
    fake.pod_with(name, tree, cpu, |pod| leaf.clone_into(&mut pod.membership.as_mut().unwrap().subset));
}

fn bound(fake: &FakeCluster, leaves: &[&str]) -> Vec<usize> {
    leaves.iter().map(|leaf| fake.bound_count(&format!("{leaf}-"))).collect()
}

fn topology(constraints: &[(&str, bool)]) -> Option<Arc<GroupTopology>> {
    GroupTopology::of(constraints.iter().map(|(key, required)| ((*key).to_owned(), *required))).map(Arc::new)
}

fn node(fake: &mut FakeCluster, name: &str, cpus: i64, labels: &[(&str, &str)]) {
    let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let allocatable = [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
    fake.put_node(NodeSpec { name: name.into(), allocatable: allocatable.into(), labels, ..NodeSpec::default() });
}

/// The values of a label on the nodes of the bound pods of these leaves.
fn domains(fake: &FakeCluster, label: &str, leaves: &[&str]) -> BTreeSet<String> {
    let is_of = |name: &String| leaves.iter().any(|leaf| name.starts_with(&format!("{leaf}-")));
    let bound = fake.bound().into_iter().filter(is_of);
    bound.filter_map(|name| fake.nodes[&fake.node_of(&name)?].labels.get(label).cloned()).collect()
}

#[test]
fn tree_starts_when_all_that_the_root_needs_is_there_and_fits() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    tree(&mut fake, "g", vec![inner("", 0, 2), leaf("a", 0, 1), leaf("b", 0, 3)]);
    pods(&mut fake, "g", "a", 1, 1);
    pods(&mut fake, "g", "b", 2, 1);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b"]), [0, 0]);
    assert_eq!(
        fake.group_diagnosis("g"),
        Diagnosis::Waiting(Waiting::Members { subset: "b".into(), have: 2, need: 3, stateful_set: None })
    );
    pod(&mut fake, "b-2", "g", "b", 1);
    fake.settle();
    assert_eq!(bound(&fake, &["a", "b"]), [1, 3]);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 4, scheduled: 4 });
}

#[test]
fn tree_without_room_for_one_leaf_starts_none() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    tree(&mut fake, "g", vec![inner("", 0, 2), leaf("a", 0, 1), leaf("b", 0, 3)]);
    pods(&mut fake, "g", "a", 1, 1);
    pods(&mut fake, "g", "b", 3, 1);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b"]), [0, 0]);
    assert!(matches!(fake.group_diagnosis("g"), Diagnosis::GroupUnschedulable(_)));
    fake.node("n1", 1);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b"]), [1, 3]);
}

#[test]
fn no_leaf_takes_more_than_its_minimum_before_its_siblings_have_theirs() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    tree(&mut fake, "g", vec![inner("", 0, 2), leaf("a", 0, 1), leaf("b", 0, 2)]);
    pods(&mut fake, "g", "a", 4, 1);
    pods(&mut fake, "g", "b", 2, 1);
    fake.settle();
    assert_eq!(bound(&fake, &["a", "b"]), [2, 2]);
}

#[test]
fn root_that_needs_some_groups_takes_those_that_fit() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    tree(&mut fake, "g", vec![inner("", 0, 2), leaf("a", 0, 5), leaf("b", 0, 2), leaf("c", 0, 2)]);
    pods(&mut fake, "g", "a", 5, 1);
    pods(&mut fake, "g", "b", 2, 1);
    pods(&mut fake, "g", "c", 2, 1);
    fake.settle();
    assert_eq!(bound(&fake, &["a", "b", "c"]), [0, 2, 2]);
    assert!(fake.engine.engine().group_view(&key("g")).unwrap().reached() == [0, 2, 2]);
    fake.node("n1", 5);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b", "c"]), [5, 2, 2], "the third starts when there is room");
}

/// The first and the second fit, and so do the first and the third, but the first needs what the second leaves.
#[test]
fn groups_are_exchanged_until_enough_of_them_fit_together() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.node("n1", 4);
    let nodes = vec![inner("", 0, 2), leaf("a", 0, 1), leaf("b", 0, 1), leaf("c", 0, 2), leaf("d", 0, 1)];
    tree(&mut fake, "g", nodes);
    // `a` takes a whole node and `c` more than half of both.
    pods(&mut fake, "g", "a", 1, 4);
    pods(&mut fake, "g", "b", 1, 5);
    pods(&mut fake, "g", "c", 2, 3);
    pods(&mut fake, "g", "d", 1, 1);
    fake.settle();
    assert_eq!(bound(&fake, &["a", "b", "c", "d"]), [1, 0, 0, 1]);
}

#[test]
fn further_group_starts_whole_or_not_at_all() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    tree(&mut fake, "g", vec![inner("", 0, 1), leaf("a", 0, 2), leaf("b", 0, 3)]);
    pods(&mut fake, "g", "a", 2, 1);
    pods(&mut fake, "g", "b", 3, 1);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b"]), [2, 0], "two of three would have had room");
    let Diagnosis::GroupUnschedulable(shortfall) = fake.group_diagnosis("g") else { panic!("the rest is pending") };
    assert_eq!((shortfall.minimum, shortfall.started), (0, true));
    assert_eq!(Diagnosis::GroupUnschedulable(shortfall).group_reason(), "Scheduled");
    fake.node("n1", 1);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b"]), [2, 3]);
}

#[test]
fn quorum_is_recursive() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 20);
    let nodes = vec![
        inner("", 0, 2),
        inner("x", 0, 2),
        leaf("x1", 1, 2),
        leaf("x2", 1, 2),
        inner("y", 0, 1),
        leaf("y1", 4, 2),
        leaf("y2", 4, 3),
    ];
    tree(&mut fake, "g", nodes);
    pods(&mut fake, "g", "x1", 2, 1);
    pods(&mut fake, "g", "y1", 2, 1);
    fake.advance(10_000);
    assert_eq!(fake.bound().len(), 0, "x lacks x2");
    pods(&mut fake, "g", "x2", 2, 1);
    fake.settle();
    assert_eq!(bound(&fake, &["x1", "x2", "y1", "y2"]), [2, 2, 2, 0]);
    pods(&mut fake, "g", "y2", 2, 1);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["y2"]), [0], "its quorum is not there");
    pod(&mut fake, "y2-2", "g", "y2", 1);
    fake.settle();
    assert_eq!(bound(&fake, &["y2"]), [3]);
}

#[test]
fn root_waits_for_groups_that_do_not_exist_yet() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    tree(&mut fake, "g", vec![inner("", 0, 2), leaf("a", 0, 1)]);
    pods(&mut fake, "g", "a", 1, 1);
    fake.advance(10_000);
    assert_eq!(fake.group_diagnosis("g").to_string(), "Waiting for groups: 1 of 2 are there.");
    tree(&mut fake, "g", vec![inner("", 0, 2), leaf("a", 0, 1), leaf("b", 0, 1)]);
    pods(&mut fake, "g", "b", 1, 1);
    fake.settle();
    assert_eq!(bound(&fake, &["a", "b"]), [1, 1]);
}

#[test]
fn replacement_joins_its_leaf_after_a_restart() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    tree(&mut fake, "g", vec![inner("", 0, 1), leaf("a", 0, 2), leaf("b", 0, 2)]);
    pods(&mut fake, "g", "a", 2, 1);
    pods(&mut fake, "g", "b", 2, 1);
    fake.settle();
    assert_eq!(bound(&fake, &["a", "b"]), [2, 0]);
    fake.advance(60_000);
    fake.restart();
    fake.advance(60_000);
    assert_eq!(bound(&fake, &["a", "b"]), [2, 0]);
    fake.remove("a-0");
    pod(&mut fake, "a-2", "g", "a", 1);
    fake.advance(60_000);
    assert_eq!(bound(&fake, &["a", "b"]), [2, 0], "a replacement, not half of the other group");
    assert!(fake.evicted().is_empty());
}

/// Answers all binds in flight: pods with this prefix are bound, the others fail.
fn bind_only(fake: &mut FakeCluster, prefix: &str) {
    for command in std::mem::take(&mut fake.in_flight) {
        match &command {
            Command::Bind { pod, node, .. } if !pod.name.starts_with(prefix) => {
                let outcome = BindOutcome::Transient { message: "busy".into() };
                fake.observe(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
            }
            _ => fake.execute(command),
        }
    }
}

fn rolled_back(fake: &FakeCluster) -> Vec<String> {
    let of = |command: &Command| match command {
        Command::RollBack { pod } => Some(pod.name.clone()),
        _ => None,
    };
    fake.issued.iter().filter_map(of).collect()
}

#[test]
fn start_that_fails_is_rolled_back_in_all_leaves() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    tree(&mut fake, "g", vec![inner("", 0, 2), leaf("a", 0, 2), leaf("b", 0, 2)]);
    pods(&mut fake, "g", "a", 2, 1);
    pods(&mut fake, "g", "b", 2, 1);
    fake.decide_all();
    while rolled_back(&fake).is_empty() {
        bind_only(&mut fake, "a-");
        fake.now = fake.engine.engine().next_wakeup().expect("there is a deadline");
        fake.decide_all();
    }
    assert_eq!(rolled_back(&fake), ["a-0", "a-1"]);
}

#[test]
fn part_of_a_tree_that_can_go_on_is_not_rolled_back() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    tree(&mut fake, "g", vec![inner("", 0, 1), leaf("a", 0, 2), leaf("b", 0, 2)]);
    pods(&mut fake, "g", "a", 2, 1);
    pods(&mut fake, "g", "b", 2, 1);
    fake.decide_all();
    // One pod of `b` is never bound.
    let sent = std::mem::take(&mut fake.in_flight);
    for command in sent {
        if matches!(&command, Command::Bind { pod, .. } if pod.name != "b-1") {
            fake.execute(command);
        } else {
            fake.in_flight.push(command);
        }
    }
    while rolled_back(&fake).is_empty() {
        bind_only(&mut fake, "none");
        fake.now = fake.engine.engine().next_wakeup().expect("there is a deadline");
        fake.decide_all();
    }
    assert_eq!(rolled_back(&fake), ["b-0"], "and the pods of `a` stay");
    fake.in_flight.clear();
    assert_eq!(fake.engine.engine().group_view(&key("g")).unwrap().reached(), [2, 0]);
}

#[test]
fn each_group_keeps_to_its_domain_inside_that_of_its_parent() {
    let mut fake = FakeCluster::new();
    // Zone a has more room, but no two racks of two.
    for (zone, rack, size) in
        [("a", "r1", 1), ("a", "r2", 1), ("a", "r3", 1), ("a", "r4", 2), ("b", "r1", 2), ("b", "r2", 2)]
    {
        for number in 0..size {
            node(&mut fake, &format!("{zone}-{rack}-{number}"), 1, &[("zone", zone), ("rack", rack)]);
        }
    }
    let in_rack = |name: &str| TreeNode { topology: topology(&[("rack", true)]), ..leaf(name, 0, 2) };
    let spec = tree_spec("g", vec![inner("", 0, 2), in_rack("a"), in_rack("b")]);
    fake.put_group(GroupSpec { topology: topology(&[("zone", true)]), ..spec });
    pods(&mut fake, "g", "a", 2, 1);
    pods(&mut fake, "g", "b", 2, 1);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b"]), [2, 2]);
    assert_eq!(domains(&fake, "zone", &["a", "b"]), BTreeSet::from(["b".to_owned()]));
    assert_eq!(domains(&fake, "rack", &["a"]).len(), 1);
    assert_eq!(domains(&fake, "rack", &["b"]).len(), 1);
    assert_ne!(domains(&fake, "rack", &["a"]), domains(&fake, "rack", &["b"]));
    // A replacement stays in the rack of its leaf, also if that is full and others are not.
    let rack = domains(&fake, "rack", &["a"]);
    fake.remove("a-0");
    fake.node("n0", 4);
    pod(&mut fake, "a-2", "g", "a", 1);
    fake.advance(10_000);
    assert_eq!((bound(&fake, &["a"]), domains(&fake, "rack", &["a"])), (vec![2], rack));
}

#[test]
fn siblings_leave_each_other_the_domains_that_they_need() {
    let mut fake = FakeCluster::new();
    // The rack of three is the tightest for `a`, and the only one for `b`.
    for (rack, size) in [("r1", 3), ("r2", 4)] {
        for number in 0..size {
            node(&mut fake, &format!("{rack}-{number}"), if rack == "r1" { 2 } else { 1 }, &[("rack", rack)]);
        }
    }
    let in_rack = |name: &str, pods| TreeNode { topology: topology(&[("rack", true)]), ..leaf(name, 0, pods) };
    tree(&mut fake, "g", vec![inner("", 0, 2), in_rack("a", 4), in_rack("b", 3)]);
    pods(&mut fake, "g", "a", 4, 1);
    pods(&mut fake, "g", "b", 3, 2);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b"]), [4, 3]);
    assert_eq!(domains(&fake, "rack", &["b"]), BTreeSet::from(["r1".to_owned()]));
}

/// A tree of priority `own` whose groups have no constraints.
fn with_priority(name: &str, own: i32, nodes: Vec<TreeNode>) -> GroupSpec {
    GroupSpec { priority: GroupPriority::Own(own), ..tree_spec(name, nodes) }
}

#[test]
fn tree_evicts_for_all_that_it_needs_or_nothing() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 2);
    for number in 0..4 {
        fake.pod(&format!("low-{number}"), "", 1);
    }
    fake.settle();
    fake.put_group(with_priority("g", 10, vec![inner("", 0, 2), leaf("a", 0, 1), leaf("b", 0, 1), leaf("c", 0, 1)]));
    pods(&mut fake, "g", "a", 1, 3);
    pods(&mut fake, "g", "b", 1, 1);
    fake.advance(10_000);
    assert!(fake.evicted().is_empty(), "a fits nowhere, and c has no pods");
    pods(&mut fake, "g", "c", 1, 2);
    fake.advance(10_000);
    assert_eq!(bound(&fake, &["a", "b", "c"]), [0, 1, 1]);
    assert_eq!(fake.evicted().len(), 3);
}

#[test]
fn tree_is_evicted_whole_if_its_root_says_so() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    let spec = with_priority("g", 1, vec![inner("", 0, 2), leaf("a", 0, 1), leaf("b", 0, 2)]);
    fake.put_group(GroupSpec { disruption_mode: DisruptionMode::Group, ..spec });
    pods(&mut fake, "g", "a", 1, 1);
    pods(&mut fake, "g", "b", 2, 1);
    fake.settle();
    fake.pod_with("high", "", 2, |pod| pod.priority = 10);
    fake.advance(10_000);
    assert_eq!((fake.bound_count("high"), fake.evicted().len()), (1, 3));
}
