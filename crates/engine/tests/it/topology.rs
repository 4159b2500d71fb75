//! Topology constraints: which domain a group is placed in, what replaces its members, and what it reports.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::model::group::{GroupSpec, Policy};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::topology::{DomainChoice, GroupTopology, RankDistance};
use muster_engine::{Config, Diagnosis, MemberVerdict, PodView};

use crate::fake_cluster::{FakeCluster, key};

const REQUIRED: bool = true;
const PREFERRED: bool = false;

fn topology(constraints: &[(&str, bool)]) -> Option<Arc<GroupTopology>> {
    GroupTopology::of(constraints.iter().map(|(key, required)| ((*key).to_owned(), *required))).map(Arc::new)
}

fn gang(fake: &mut FakeCluster, name: &str, min_count: u32, constraints: &[(&str, bool)]) {
    fake.put_group(GroupSpec { topology: topology(constraints), ..GroupSpec::gang(key(name), min_count) });
}

/// A node with labels, written as `key=value`.
fn node(fake: &mut FakeCluster, name: &str, cpus: i64, labels: &[&str]) {
    let labels = labels.iter().filter_map(|label| label.split_once('='));
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let allocatable = [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
    fake.put_node(NodeSpec { name: name.into(), allocatable: allocatable.into(), labels, ..NodeSpec::default() });
}

/// Racks with this many nodes of 2 CPUs each, named `r0-0`, `r0-1`, `r1-0`, ...
fn racks(fake: &mut FakeCluster, sizes: &[usize]) {
    for (rack, size) in sizes.iter().enumerate() {
        for number in 0..*size {
            node(fake, &format!("r{rack}-{number}"), 2, &[&format!("rack=r{rack}")]);
        }
    }
}

/// A pod of no group on a node.
fn occupy(fake: &mut FakeCluster, name: &str, cpus: i64, on: &str, priority: i32) {
    fake.pod_with(name, "", cpus, |pod| {
        pod.node = Some(on.to_owned());
        pod.priority = priority;
    });
}

/// The racks of the bound pods with this prefix.
fn racks_of(fake: &FakeCluster, prefix: &str) -> BTreeSet<String> {
    let bound = fake.bound().into_iter().filter(|name| name.starts_with(prefix));
    bound.filter_map(|name| fake.nodes[&fake.node_of(&name)?].labels.get("rack").cloned()).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

#[test]
fn gang_is_in_the_tightest_rack_that_holds_it() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[4, 2, 3]);
    gang(&mut fake, "g", 4, &[("rack", REQUIRED)]);
    fake.pods_of("a", "g", 4, 1);
    fake.settle();
    assert_eq!((fake.bound_count("a"), racks_of(&fake, "a")), (4, set(&["r1"])));
}

#[test]
fn gang_that_fits_into_no_rack_waits_and_names_the_closest() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 3]);
    node(&mut fake, "loose", 64, &[]);
    gang(&mut fake, "g", 7, &[("rack", REQUIRED)]);
    fake.pods_of("a", "g", 7, 1);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("a"), 0);
    assert_eq!(
        fake.group_diagnosis("g").to_string(),
        "6 of 7 waiting pods fit, the group needs 7 at once. No room for 1 pod: 0/6 nodes are available: \
         3 Insufficient cpu, 3 node(s) were in another topology domain or in none. Closest is node r1-0, which needs \
         1 cpu more. They have to share a domain of rack: of 2 domains, r1 comes closest. 1 node is in no domain, as it \
         lacks a label. Even the empty nodes of this cluster could not hold it. No pod of a lower priority could be \
         preempted."
    );
    // A further node in that rack is all it needs.
    node(&mut fake, "r1-3", 2, &["rack=r1"]);
    fake.settle();
    assert_eq!((fake.bound_count("a"), racks_of(&fake, "a")), (7, set(&["r1"])));
}

#[test]
fn gang_waits_for_the_label_if_no_node_has_it() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    gang(&mut fake, "g", 2, &[("rack", REQUIRED)]);
    fake.pods_of("a", "g", 2, 1);
    fake.advance(10_000);
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.contains("They have to share a domain of rack, and no node has the labels for one."), "{text}");
    node(&mut fake, "n0", 8, &["rack=r"]);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 2);
}

/// A further node would come up in any rack, but in a zone that the autoscaler knows.
#[test]
fn group_in_a_domain_is_a_demand_for_nodes_only_where_an_autoscaler_knows_the_label() {
    let zone = "topology.kubernetes.io/zone";
    for (label, expected) in [("rack", MemberVerdict::ScaleUpWouldNotHelp), (zone, MemberVerdict::NoRoom)] {
        let mut fake = FakeCluster::new();
        node(&mut fake, "n0", 2, &[&format!("{label}=a")]);
        gang(&mut fake, "g", 3, &[(label, REQUIRED)]);
        fake.pods_of("a", "g", 3, 1);
        fake.advance(10_000);
        let report = fake.reports.iter().rev().find(|report| !report.members.is_empty()).unwrap();
        let verdicts: Vec<MemberVerdict> = report.members.iter().map(|(_, verdict)| *verdict).collect();
        assert_eq!(verdicts, [MemberVerdict::WouldFit, MemberVerdict::WouldFit, expected], "{label}");
    }
}

#[test]
fn members_that_are_expected_count_when_the_rack_is_chosen() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[1, 3]);
    let spec = GroupSpec::with_policy(key("g"), Policy::Basic { desired_count: Some(6) });
    fake.put_group(GroupSpec { topology: topology(&[("rack", REQUIRED)]), ..spec });
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.advance(60_000);
    assert_eq!((fake.bound_count("a"), racks_of(&fake, "a")), (2, set(&["r1"])), "the other rack holds only two");
    fake.pods_of("b", "g", 4, 1);
    fake.settle();
    assert_eq!((fake.bound_count("b"), racks_of(&fake, "b")), (4, set(&["r1"])));
}

#[test]
fn more_members_than_the_minimum_choose_the_rack_that_holds_them_all() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 3]);
    gang(&mut fake, "g", 4, &[("rack", REQUIRED)]);
    fake.pods_of("a", "g", 6, 1);
    fake.settle();
    assert_eq!((fake.bound_count("a"), racks_of(&fake, "a")), (6, set(&["r1"])));
}

#[test]
fn domains_are_paths_where_levels_are_declared_and_flat_otherwise() {
    for (constraints, expected) in
        [(&[("block", PREFERRED), ("rack", REQUIRED)][..], 0), (&[("rack", REQUIRED)][..], 4)]
    {
        let mut fake = FakeCluster::new();
        node(&mut fake, "a", 2, &["block=a", "rack=1"]);
        node(&mut fake, "b", 2, &["block=b", "rack=1"]);
        gang(&mut fake, "g", 4, constraints);
        fake.pods_of("p", "g", 4, 1);
        fake.settle();
        assert_eq!(fake.bound_count("p"), expected, "{constraints:?}");
    }
}

#[test]
fn replacement_goes_to_the_rack_of_the_living_and_waits_for_it() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 3]);
    gang(&mut fake, "g", 3, &[("rack", REQUIRED)]);
    fake.pods_of("a", "g", 4, 1);
    fake.settle();
    assert_eq!(racks_of(&fake, "a"), set(&["r0"]));
    let lost = fake.node_of("a-3").unwrap();
    fake.remove("a-3");
    occupy(&mut fake, "other", 1, &lost, 0);
    fake.pod("a-4", "g", 1);
    fake.advance(10_000);
    assert_eq!(fake.node_of("a-4"), None, "the rest of its rack is taken");
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.contains("They have to be in domain r0 of rack, where members of the group are."), "{text}");
    fake.remove("other");
    fake.settle();
    assert_eq!(racks_of(&fake, "a"), set(&["r0"]));
    assert_eq!(fake.bound_count("a"), 4);
}

#[test]
fn labels_that_change_under_a_running_gang_do_not_stop_its_repair() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[3, 3]);
    gang(&mut fake, "g", 4, &[("rack", REQUIRED)]);
    fake.pods_of("a", "g", 4, 1);
    fake.settle();
    // One node of the gang moves to the other rack: the majority decides.
    let on = |fake: &FakeCluster, node: &str| {
        (0..4).filter(|pod| fake.node_of(&format!("a-{pod}")).unwrap() == node).count()
    };
    let moved = (0..4).map(|pod| fake.node_of(&format!("a-{pod}")).unwrap()).find(|node| on(&fake, node) == 1).unwrap();
    let rack = |fake: &FakeCluster, node: &str| fake.nodes[node].labels["rack"].clone();
    let home = rack(&fake, &moved);
    let mut spec = fake.nodes[&moved].clone();
    spec.labels.insert("rack".into(), "elsewhere".into());
    fake.put_node(spec);
    let lost = (0..4).find(|number| fake.node_of(&format!("a-{number}")).is_some_and(|node| node != moved)).unwrap();
    fake.remove(&format!("a-{lost}"));
    fake.pod("b-0", "g", 1);
    fake.settle();
    assert_eq!(rack(&fake, &fake.node_of("b-0").unwrap()), home);
    // All labels vanish: the rest is placed where a rack is.
    for name in fake.nodes.keys().filter(|name| rack(&fake, name) == home).cloned().collect::<Vec<_>>() {
        let mut spec = fake.nodes[&name].clone();
        spec.labels.remove("rack");
        fake.put_node(spec);
    }
    fake.remove("b-0");
    fake.pod("c-0", "g", 1);
    fake.settle();
    assert!(fake.node_of("c-0").is_some_and(|node| fake.nodes[&node].labels.contains_key("rack")));
}

#[test]
fn preferred_level_is_tried_first_then_the_one_above_with_the_fewest_racks() {
    let mut fake = FakeCluster::new();
    for (name, cpus) in [("b0/r0", 2), ("b0/r1", 3), ("b1/r0", 4), ("b1/r1", 1), ("b1/r2", 2)] {
        let (block, rack) = name.split_once('/').unwrap();
        node(&mut fake, &name.replace('/', "-"), cpus, &[&format!("block={block}"), &format!("rack={rack}")]);
    }
    let racks = |fake: &FakeCluster, prefix: &str| {
        let bound = fake.bound().into_iter().filter(|name| name.starts_with(prefix));
        bound.filter_map(|name| fake.node_of(&name)).collect::<BTreeSet<_>>()
    };
    let both = [("block", PREFERRED), ("rack", PREFERRED)];
    gang(&mut fake, "one", 3, &both);
    fake.pods_of("one", "one", 3, 1);
    fake.settle();
    assert_eq!(racks(&fake, "one"), set(&["b0-r1"]), "the tightest rack");
    for number in 0..3 {
        fake.remove(&format!("one-{number}"));
    }
    // No rack holds five; block b0 does, tighter than b1.
    gang(&mut fake, "five", 5, &both);
    fake.pods_of("five", "five", 5, 1);
    fake.settle();
    assert_eq!(racks(&fake, "five"), set(&["b0-r0", "b0-r1"]));
    // Six need two of the racks of b1 and no more.
    gang(&mut fake, "six", 6, &both);
    fake.pods_of("six", "six", 6, 1);
    fake.settle();
    assert_eq!(racks(&fake, "six"), set(&["b1-r0", "b1-r2"]));
}

#[test]
fn preference_never_makes_a_group_wait() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[1, 2]);
    node(&mut fake, "loose", 1, &[]);
    gang(&mut fake, "g", 7, &[("rack", PREFERRED)]);
    fake.pods_of("a", "g", 7, 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 7);
}

#[test]
fn required_block_with_preferred_rack_keeps_the_block() {
    let mut fake = FakeCluster::new();
    for (name, cpus) in [("b0/r0", 4), ("b1/r0", 2), ("b1/r1", 3)] {
        let (block, rack) = name.split_once('/').unwrap();
        node(&mut fake, &name.replace('/', "-"), cpus, &[&format!("block={block}"), &format!("rack={rack}")]);
    }
    gang(&mut fake, "g", 5, &[("block", REQUIRED), ("rack", PREFERRED)]);
    fake.pods_of("a", "g", 5, 1);
    fake.settle();
    let on = |name: &str| fake.node_of(name).unwrap();
    assert!((0..5).all(|number| on(&format!("a-{number}")).starts_with("b1")));
}

#[test]
fn mixed_gang_is_in_one_rack_where_all_its_parts_fit() {
    let mut fake = FakeCluster::new();
    // r0 has more room in all, but no node for the large pod.
    for number in 0..4 {
        node(&mut fake, &format!("r0-{number}"), 2, &["rack=r0"]);
    }
    node(&mut fake, "r1-0", 4, &["rack=r1"]);
    node(&mut fake, "r1-1", 2, &["rack=r1"]);
    gang(&mut fake, "g", 3, &[("rack", REQUIRED)]);
    fake.pod("large", "g", 4);
    fake.pods_of("small", "g", 2, 1);
    fake.settle();
    assert_eq!((racks_of(&fake, "large"), racks_of(&fake, "small")), (set(&["r1"]), set(&["r1"])));
}

/// Images are preferences, so the pods share the room of a rack.
#[test]
fn pods_that_differ_in_preferences_share_the_room_of_a_rack() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[1, 1]);
    gang(&mut fake, "g", 3, &[("rack", REQUIRED)]);
    for (name, image) in [("a-0", "one"), ("a-1", "one"), ("a-2", "other")] {
        fake.pod_with(name, "g", 1, |pod| Arc::make_mut(&mut pod.class).images = vec![image.into()]);
    }
    fake.advance(10_000);
    assert_eq!(fake.bound_count("a"), 0);
}

/// An image that comes to one node changes the scores of all that have it.
#[test]
fn scores_that_change_everywhere_lose_no_node_of_a_rack() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 3]);
    let with_image = |fake: &mut FakeCluster, name: &str| {
        let images = [("image".into(), 900 << 20)].into();
        fake.put_node(NodeSpec { images, ..fake.nodes[name].clone() });
    };
    with_image(&mut fake, "r0-0");
    with_image(&mut fake, "r0-1");
    for name in ["one", "two"] {
        gang(&mut fake, name, 2, &[("rack", REQUIRED)]);
        for number in 0..2 {
            fake.pod_with(&format!("{name}-{number}"), name, 1, |pod| {
                Arc::make_mut(&mut pod.class).images = vec!["image".into()];
            });
        }
        fake.settle();
        with_image(&mut fake, "r1-0");
    }
    assert_eq!((racks_of(&fake, "one"), racks_of(&fake, "two")), (set(&["r0"]), set(&["r0"])));
}

/// kube-scheduler's own example: racks of 2, 3, 3 and 1 nodes of 2 CPUs, with 2 CPUs used in the second and 1 in the third.
#[test]
fn most_allocated_rack_is_chosen_as_in_kube_scheduler() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 3, 3, 1]);
    occupy(&mut fake, "used-1", 2, "r1-0", 0);
    occupy(&mut fake, "used-2", 1, "r2-0", 0);
    let wanted =
        GroupTopology { choice: DomainChoice::MostAllocated, ..(*topology(&[("rack", REQUIRED)]).unwrap()).clone() };
    fake.put_group(GroupSpec { topology: Some(Arc::new(wanted)), ..GroupSpec::gang(key("g"), 3) });
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    assert_eq!(racks_of(&fake, "a"), set(&["r1"]), "5/6 of it are allocated then, more than 3/4 and 4/6");
}

#[test]
fn cheapest_rack_is_preempted() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 2, 2]);
    for (rack, priority) in [(0, 5), (1, 1), (2, 3)] {
        for node in 0..2 {
            occupy(&mut fake, &format!("v{rack}-{node}"), 2, &format!("r{rack}-{node}"), priority);
        }
    }
    gang(&mut fake, "g", 4, &[("rack", REQUIRED)]);
    for number in 0..4 {
        fake.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.priority = 10);
    }
    fake.settle();
    assert_eq!(fake.evicted(), ["v1-0", "v1-1"]);
    assert_eq!((fake.bound_count("a"), racks_of(&fake, "a")), (4, set(&["r1"])));
}

#[test]
fn nothing_is_evicted_if_no_rack_can_hold_it() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 2]);
    for rack in 0..2 {
        occupy(&mut fake, &format!("v{rack}"), 2, &format!("r{rack}-0"), 1);
    }
    gang(&mut fake, "g", 5, &[("rack", REQUIRED)]);
    for number in 0..5 {
        fake.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.priority = 10);
    }
    fake.advance(120_000);
    assert_eq!((fake.evicted(), fake.bound_count("a")), (vec![], 0));
}

#[test]
fn additional_member_preempts_in_its_rack_only() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 2]);
    gang(&mut fake, "g", 3, &[("rack", REQUIRED)]);
    for number in 0..3 {
        fake.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.priority = 10);
    }
    fake.settle();
    let home = racks_of(&fake, "a").pop_first().unwrap();
    let other = if home == "r0" { "r1" } else { "r0" };
    // A cheaper victim is in the other rack.
    occupy(&mut fake, "cheap", 2, &format!("{other}-0"), 0);
    occupy(&mut fake, "cheap-too", 2, &format!("{other}-1"), 0);
    let used =
        |fake: &FakeCluster, node: &str| fake.pods.values().filter(|pod| pod.node.as_deref() == Some(node)).count();
    let free = (0..2).map(|number| format!("{home}-{number}")).find(|node| used(&fake, node) < 2).unwrap();
    occupy(&mut fake, "dear", 1, &free, 5);
    fake.pod_with("a-3", "g", 1, |pod| pod.priority = 10);
    fake.settle();
    assert_eq!(fake.evicted(), ["dear"]);
    assert_eq!(racks_of(&fake, "a"), set(&[&home]));
}

/// Ten pods on three racks of four places each.
#[test]
fn neighbours_in_rank_share_racks() {
    let mut fake = FakeCluster::new();
    for rack in 0..3 {
        for number in 0..2 {
            node(&mut fake, &format!("r{rack}-{number}"), 2, &["block=b", &format!("rack=r{rack}")]);
        }
    }
    gang(&mut fake, "g", 10, &[("block", REQUIRED), ("rack", PREFERRED)]);
    for number in [7, 2, 9, 0, 4, 1, 8, 3, 6, 5] {
        fake.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.rank = Some(number));
    }
    fake.settle();
    let rack = |number: u64| fake.nodes[&fake.node_of(&format!("a-{number}")).unwrap()].labels["rack"].clone();
    let racks: Vec<String> = (0..10).map(rack).collect();
    let sizes: Vec<usize> = racks.chunk_by(|one, other| one == other).map(<[String]>::len).collect();
    assert_eq!(sizes.len(), 3, "ranks of one rack follow each other: {racks:?}");
    let node = |number: u64| fake.node_of(&format!("a-{number}")).unwrap();
    let nodes: Vec<String> = (0..10).map(node).collect();
    let used = nodes.iter().collect::<BTreeSet<_>>().len();
    assert_eq!(nodes.chunk_by(|one, other| one == other).count(), used, "so do those of one node: {nodes:?}");
}

#[test]
fn declared_levels_make_a_rack_of_one_block_and_order_ranks_without_a_constraint() {
    let levels = ["block".to_owned(), "rack".to_owned()].into();
    let mut fake = FakeCluster::with(Config { topology_levels: levels, ..Config::default() });
    for (block, rack) in [("a", "1"), ("b", "1"), ("a", "2"), ("b", "2")] {
        node(&mut fake, &format!("{block}{rack}"), 2, &[&format!("block={block}"), &format!("rack={rack}")]);
    }
    gang(&mut fake, "one", 3, &[("rack", REQUIRED)]);
    fake.pods_of("one", "one", 3, 1);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("one"), 0, "rack 1 of block a and rack 1 of block b are two domains");
    let text = fake.group_diagnosis("one").to_string();
    assert!(text.contains("of 4 domains, a/1 comes closest."), "{text}");
    for number in 0..3 {
        fake.remove(&format!("one-{number}"));
    }
    fake.gang("all", 8);
    for number in [6, 1, 4, 3, 0, 7, 2, 5] {
        fake.pod_with(&format!("p-{number}"), "all", 1, |pod| pod.rank = Some(number));
    }
    let mut distance = None;
    for _ in 0..3 {
        fake.decide();
        distance = distance.or(fake.engine.engine().last_attempt().and_then(|attempt| attempt.rank_distance));
    }
    assert_eq!(distance, Some(RankDistance { pairs: 7, levels: 2 + 3 + 2 }), "between racks, and once between blocks");
    fake.settle();
    let nodes: Vec<String> = (0..8).map(|number| fake.node_of(&format!("p-{number}")).unwrap()).collect();
    assert_eq!(nodes, ["a1", "a1", "a2", "a2", "b1", "b1", "b2", "b2"]);
}

#[test]
fn one_odd_rank_does_not_disturb_the_others() {
    let mut fake = FakeCluster::new();
    racks(&mut fake, &[2, 2]);
    gang(&mut fake, "g", 8, &[("rack", PREFERRED)]);
    for (name, rank) in
        [("x", None), ("a-3", Some(3)), ("a-0", Some(0)), ("y", Some(0)), ("a-2", Some(2)), ("a-1", Some(1))]
    {
        fake.pod_with(name, "g", 1, |pod| pod.rank = rank);
    }
    fake.pods_of("z", "g", 2, 1);
    fake.settle();
    assert_eq!(fake.bound_count(""), 8);
    assert_eq!(racks_of(&fake, "a").len(), 1);
}

#[test]
fn reserved_nodes_of_a_starving_gang_are_one_rack() {
    let mut fake = FakeCluster::with(Config {
        starving_after_ms: 10_000,
        reservation_nodes_percent_max: 100,
        ..Config::default()
    });
    racks(&mut fake, &[2, 2]);
    for (name, on) in [("v0", "r0-0"), ("v1", "r0-1"), ("v2", "r1-0"), ("v3", "r1-1")] {
        occupy(&mut fake, name, 1, on, 0);
    }
    gang(&mut fake, "g", 4, &[("rack", REQUIRED)]);
    fake.pods_of("a", "g", 4, 1);
    fake.advance(20_000);
    let reserved = fake.engine.engine().node_views().filter(|node| node.reservation_priority().is_some());
    let reserved: BTreeSet<String> = reserved.map(|node| fake.nodes[node.name()].labels["rack"].clone()).collect();
    assert_eq!(reserved.len(), 1, "{reserved:?}");
    assert!(!fake.engine.engine().pod_views().any(|pod: PodView<'_>| pod.is_leaving()));
    assert!(matches!(fake.group_diagnosis("g"), Diagnosis::GroupUnschedulable(_)));
}
