//! Slices, spread and exclusive domains: where the parts of a group are placed, what replaces their members, and what a
//! group that waits for them reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::model::group::{GroupSpec, Policy};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::topology::{GroupTopology, LevelRule, WhenFull};

use crate::fake_cluster::{FakeCluster, key};

const ALL: LevelRule = LevelRule::Required { exclusive: false };
const ALONE: LevelRule = LevelRule::Required { exclusive: true };
const WISHED: LevelRule = LevelRule::Preferred;

fn slices(size: u32) -> LevelRule {
    LevelRule::Slices { size, exclusive: false }
}

fn at_least(min: u32) -> LevelRule {
    LevelRule::Spread { min, max: u32::MAX }
}

fn at_most(max: u32) -> LevelRule {
    LevelRule::Spread { min: 1, max }
}

fn topology(rules: &[(&str, LevelRule)]) -> Option<Arc<GroupTopology>> {
    GroupTopology::of_rules(rules.iter().map(|(key, rule)| ((*key).to_owned(), *rule))).map(Arc::new)
}

fn gang(fake: &mut FakeCluster, name: &str, min_count: u32, rules: &[(&str, LevelRule)]) {
    fake.put_group(GroupSpec { topology: topology(rules), ..GroupSpec::gang(key(name), min_count) });
}

/// A cluster of blocks of racks with nodes of so many CPUs: `[[2, 1], [4]]` is a block with two racks of one node each, and
/// one with one. The node of rack 1 of block 0 is `b0-r1`.
fn cluster(blocks: &[&[i64]]) -> FakeCluster {
    let mut fake = FakeCluster::new();
    for (block, racks) in blocks.iter().enumerate() {
        for (rack, cpus) in racks.iter().enumerate() {
            node(&mut fake, &format!("b{block}-r{rack}"), *cpus);
        }
    }
    fake
}

fn node(fake: &mut FakeCluster, name: &str, cpus: i64) {
    let (block, rack) = name.split_once('-').expect("block and rack");
    let labels = [("block".to_owned(), block.to_owned()), ("rack".to_owned(), rack.to_owned())];
    let allocatable = [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
    let labels = labels.into();
    fake.put_node(NodeSpec { name: name.into(), allocatable: allocatable.into(), labels, ..NodeSpec::default() });
}

/// How many bound pods with this prefix each node has.
fn counts(fake: &FakeCluster, prefix: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for pod in fake.bound().iter().filter(|name| name.starts_with(prefix)) {
        *counts.entry(fake.node_of(pod).expect("it is bound")).or_default() += 1;
    }
    counts
}

fn is(counts: &BTreeMap<String, usize>, expected: &[(&str, usize)]) -> bool {
    counts.iter().map(|(node, count)| (&**node, *count)).eq(expected.iter().copied())
}

fn occupy(fake: &mut FakeCluster, name: &str, cpus: i64, on: &str, priority: i32) {
    fake.pod_with(name, "", cpus, |pod| {
        pod.node = Some(on.to_owned());
        pod.priority = priority;
    });
}

fn text(fake: &mut FakeCluster, group: &str) -> String {
    fake.advance(10_000);
    fake.group_diagnosis(group).to_string()
}

/// One row: the racks of two blocks, how many pods, the rules, and how many pods are where.
type Row<'a> = (&'a [&'a [i64]], usize, &'a [(&'a str, LevelRule)], &'a [(&'a str, usize)]);

/// CPUs of the nodes by rack, members, rules, and what is said.
type Refused<'a> = (&'a [&'a [i64]], usize, &'a [(&'a str, LevelRule)], &'a str);

#[test]
fn slices_and_spread_of_like_pods() {
    let rows: &[Row<'_>] = &[
        // Kueue: rooms of 6, 5, 4, 3 and 2, slices of two: 12 pods take the largest, and the tightest that holds the rest.
        (&[&[6, 5, 4, 3, 2]], 12, &[("block", ALL), ("rack", slices(2))], &[("b0-r0", 6), ("b0-r2", 4), ("b0-r4", 2)]),
        // Kueue: rooms of 3, 3, 2 and 1 for 7 pods: the largest, and the tightest for the last one.
        (&[&[3, 3, 2, 1]], 7, &[("block", ALL), ("rack", WISHED)], &[("b0-r0", 3), ("b0-r1", 3), ("b0-r3", 1)]),
        // A rack with room for three holds one slice of two.
        (&[&[3, 3]], 4, &[("block", ALL), ("rack", slices(2))], &[("b0-r0", 2), ("b0-r1", 2)]),
        // The rest of a group is a smaller slice.
        (&[&[4, 2, 1]], 6, &[("block", ALL), ("rack", slices(4))], &[("b0-r0", 4), ("b0-r1", 2)]),
        (&[&[5, 1]], 5, &[("block", ALL), ("rack", slices(4))], &[("b0-r0", 5)]),
        // As many pods would fit into the first block, but no two slices.
        (&[&[3, 3, 2], &[4, 4]], 8, &[("block", ALL), ("rack", slices(4))], &[("b1-r0", 4), ("b1-r1", 4)]),
        // The tightest block by slices.
        (&[&[4, 4, 4], &[5, 7]], 8, &[("block", ALL), ("rack", slices(4))], &[("b1-r0", 4), ("b1-r1", 4)]),
        // Without a required level, slices may be anywhere; a preferred block holds them all if it can.
        (&[&[4], &[4, 4]], 8, &[("block", WISHED), ("rack", slices(4))], &[("b1-r0", 4), ("b1-r1", 4)]),
        (&[&[4], &[4]], 8, &[("block", WISHED), ("rack", slices(4))], &[("b0-r0", 4), ("b1-r0", 4)]),
        // Each slice in a rack of its own.
        (
            &[&[8, 4, 4]],
            12,
            &[("rack", LevelRule::Slices { size: 4, exclusive: true })],
            &[("b0-r0", 4), ("b0-r1", 4), ("b0-r2", 4)],
        ),
        // At least so many racks, evenly.
        (&[&[8, 8, 8, 8]], 6, &[("rack", at_least(3))], &[("b0-r0", 2), ("b0-r1", 2), ("b0-r2", 2)]),
        (&[&[8, 1, 8]], 7, &[("rack", at_least(3))], &[("b0-r0", 3), ("b0-r1", 1), ("b0-r2", 3)]),
        // At most so many, the fewest of them.
        (&[&[2, 3, 4]], 6, &[("rack", at_most(2))], &[("b0-r0", 2), ("b0-r2", 4)]),
        // Whole slices over at least two blocks.
        (
            &[&[4, 4, 4], &[4]],
            12,
            &[("block", at_least(2)), ("rack", slices(4))],
            &[("b0-r0", 4), ("b0-r1", 4), ("b1-r0", 4)],
        ),
        // A block, and in it at least two racks.
        (&[&[9], &[4, 5]], 6, &[("block", ALL), ("rack", at_least(2))], &[("b1-r0", 3), ("b1-r1", 3)]),
    ];
    for (number, (blocks, pods, rules, expected)) in rows.iter().enumerate() {
        let mut fake = cluster(blocks);
        gang(&mut fake, "g", *pods as u32, rules);
        fake.pods_of("a", "g", *pods, 1);
        fake.settle();
        let counts = counts(&fake, "a");
        assert!(is(&counts, expected), "row {number}: {counts:?}");
    }
}

#[test]
fn what_does_not_fit_waits_and_says_what_is_missing() {
    let rows: &[Refused<'_>] = &[
        (
            &[&[3, 3, 3]],
            8,
            &[("rack", slices(4))],
            "Every 4 of them have to share a domain of rack: the largest has room for 3.",
        ),
        (
            &[&[4, 3], &[4, 2]],
            8,
            &[("block", ALL), ("rack", slices(4))],
            "They have to share a domain of block: of 2 domains, b0 comes closest. Every 4 of them have to share a domain of \
             rack: there is room for 1 of 2 such slices.",
        ),
        (&[&[8, 0]], 4, &[("rack", at_least(2))], "They have to be in at least 2 domains of rack, and 1 have room."),
        (&[&[2, 2, 2]], 5, &[("rack", at_most(2))], "They have to be in at most 2 domains of rack, and 3 have room."),
    ];
    for (blocks, pods, rules, expected) in rows {
        let mut fake = cluster(blocks);
        gang(&mut fake, "g", *pods as u32, rules);
        fake.pods_of("a", "g", *pods, 1);
        let text = text(&mut fake, "g");
        assert_eq!(fake.bound_count("a"), 0, "{text}");
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("not a proof"), "{text}");
    }
}

#[test]
fn members_of_a_slice_follow_each_other_in_rank() {
    let mut fake = cluster(&[&[4, 4, 4]]);
    gang(&mut fake, "g", 12, &[("rack", slices(4))]);
    for rank in [7, 2, 9, 11, 0, 4, 1, 8, 3, 6, 10, 5] {
        fake.pod_with(&format!("a-{rank}"), "g", 1, |pod| pod.rank = Some(rank));
    }
    fake.settle();
    for slice in 0..3 {
        let nodes: BTreeSet<_> = (0..4).map(|at| fake.node_of(&format!("a-{}", slice * 4 + at)).unwrap()).collect();
        assert_eq!(nodes, [format!("b0-r{slice}")].into());
    }
}

#[test]
fn replacement_joins_its_slice_or_waits() {
    for ranked in [true, false] {
        let mut fake = cluster(&[&[4, 4, 8]]);
        gang(&mut fake, "g", 8, &[("rack", slices(4))]);
        for rank in 0..8 {
            fake.pod_with(&format!("a-{rank}"), "g", 1, |pod| pod.rank = ranked.then_some(rank));
        }
        fake.settle();
        let home = fake.node_of("a-5").unwrap();
        fake.remove("a-5");
        occupy(&mut fake, "other", 1, &home, 0);
        fake.pod_with("b-0", "g", 1, |pod| pod.rank = ranked.then_some(5));
        fake.advance(20_000);
        assert_eq!(fake.node_of("b-0"), None, "ranked: {ranked}: there is room elsewhere, but not beside its slice");
        fake.remove("other");
        fake.settle();
        assert_eq!(fake.node_of("b-0"), Some(home), "ranked: {ranked}");
    }
}

#[test]
fn member_beyond_the_minimum_waits_for_its_slice() {
    let mut fake = cluster(&[&[4, 2]]);
    gang(&mut fake, "g", 4, &[("rack", slices(4))]);
    fake.pods_of("a", "g", 8, 1);
    fake.advance(10_000);
    assert!(is(&counts(&fake, "a"), &[("b0-r0", 4)]), "a part of a slice does not start");
    node(&mut fake, "b0-r1", 4);
    fake.settle();
    assert!(is(&counts(&fake, "a"), &[("b0-r0", 4), ("b0-r1", 4)]));
}

#[test]
fn lost_domain_of_a_spread_is_replaced_by_another() {
    let mut fake = cluster(&[&[8, 8, 8]]);
    gang(&mut fake, "g", 4, &[("rack", LevelRule::Spread { min: 2, max: 2 })]);
    fake.pods_of("a", "g", 4, 1);
    fake.settle();
    assert!(is(&counts(&fake, "a"), &[("b0-r0", 2), ("b0-r1", 2)]));
    for pod in (0..4).map(|number| format!("a-{number}")).collect::<Vec<_>>() {
        if fake.node_of(&pod).as_deref() == Some("b0-r1") {
            fake.remove(&pod);
        }
    }
    occupy(&mut fake, "full", 8, "b0-r1", 0);
    fake.pods_of("b", "g", 2, 1);
    fake.settle();
    assert!(fake.node_of("b-0").is_some() && fake.node_of("b-1").is_some());
    assert_eq!(counts(&fake, "b").get("b0-r1"), None);
    assert!(counts(&fake, "b").contains_key("b0-r2"), "not all in one rack: {:?}", counts(&fake, "b"));
}

#[test]
fn exclusive_groups_share_no_domain_and_others_may_come() {
    let mut fake = cluster(&[&[8, 8]]);
    for name in ["one", "two", "three"] {
        gang(&mut fake, name, 2, &[("rack", ALONE)]);
        fake.pods_of(name, name, 2, 1);
        fake.settle();
    }
    let racks = [counts(&fake, "one"), counts(&fake, "two"), counts(&fake, "three")];
    assert!(racks[0] != racks[1] && racks[0].len() == 1 && racks[1].len() == 1, "{racks:?}");
    assert!(racks[2].is_empty());
    let text = text(&mut fake, "three");
    assert!(
        text.contains("They have to share a domain of rack, and other groups have the only 2 for themselves."),
        "{text}"
    );
    gang(&mut fake, "plain", 6, &[("rack", ALL)]);
    fake.pods_of("plain", "plain", 6, 1);
    fake.settle();
    assert_eq!(fake.bound_count("plain"), 6, "it excludes no group and is not excluded");
    // The rack of one is free again: not its last node, which is full otherwise.
    fake.remove("two-0");
    fake.settle();
    assert_eq!(fake.bound_count("three"), 0);
    fake.remove("two-1");
    fake.advance(20_000);
    assert_eq!(fake.bound_count("three"), 2);
}

/// The node that is left has no room for the group; another of its rack has.
#[test]
fn exclusive_domain_that_is_left_wakes_groups_that_fit_elsewhere_in_it() {
    let mut fake = FakeCluster::new();
    for (name, cpus) in [("small", 1), ("large", 4)] {
        let labels = [("rack".to_owned(), "r".to_owned())].into();
        let allocatable = [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 9)];
        fake.put_node(NodeSpec { name: name.into(), allocatable: allocatable.into(), labels, ..NodeSpec::default() });
    }
    occupy(&mut fake, "block", 4, "large", 0);
    gang(&mut fake, "one", 1, &[("rack", ALONE)]);
    fake.pods_of("one", "one", 1, 1);
    fake.settle();
    fake.remove("block");
    gang(&mut fake, "two", 1, &[("rack", ALONE)]);
    fake.pods_of("two", "two", 1, 3);
    fake.advance(120_000);
    assert_eq!(fake.bound_count("two"), 0);
    fake.remove("one-0");
    fake.advance(20_000);
    assert_eq!(fake.bound_count("two"), 1);
}

#[test]
fn exclusive_group_preempts_the_group_that_has_the_domain() {
    let mut fake = cluster(&[&[8, 1]]);
    gang(&mut fake, "low", 2, &[("rack", ALONE)]);
    fake.pods_of("low", "low", 2, 1);
    fake.settle();
    gang(&mut fake, "high", 3, &[("rack", ALONE)]);
    for number in 0..3 {
        fake.pod_with(&format!("high-{number}"), "high", 1, |pod| pod.priority = 10);
    }
    fake.settle();
    assert_eq!(fake.evicted(), ["low-0", "low-1"]);
    assert!(is(&counts(&fake, "high"), &[("b0-r0", 3)]));
}

#[test]
fn slices_preempt_only_what_makes_room_for_a_whole_one() {
    let mut fake = cluster(&[&[4, 4, 4]]);
    // Evicting the cheapest pods by number would free two CPUs on each of two racks.
    for (rack, priority) in [(0, 1), (1, 1)] {
        occupy(&mut fake, &format!("v{rack}"), 2, &format!("b0-r{rack}"), priority);
        occupy(&mut fake, &format!("w{rack}"), 2, &format!("b0-r{rack}"), 20);
    }
    occupy(&mut fake, "x", 3, "b0-r2", 5);
    gang(&mut fake, "g", 4, &[("rack", slices(4))]);
    for number in 0..4 {
        fake.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.priority = 10);
    }
    fake.settle();
    assert_eq!(fake.evicted(), ["x"]);
    assert!(is(&counts(&fake, "a"), &[("b0-r2", 4)]));
}

#[test]
fn slices_of_different_pods_are_tried() {
    let mut fake = cluster(&[&[4, 3, 5]]);
    gang(&mut fake, "g", 6, &[("rack", slices(3))]);
    // Each slice has a pod of two CPUs and two of one: racks of four hold one.
    for slice in 0..2 {
        fake.pod_with(&format!("lead-{slice}"), "g", 2, |pod| pod.rank = Some(slice * 3));
        for at in 1..3 {
            fake.pod_with(&format!("work-{slice}-{at}"), "g", 1, |pod| pod.rank = Some(slice * 3 + at));
        }
    }
    fake.settle();
    assert_eq!(fake.bound().len(), 6);
    for slice in 0..2 {
        let lead = fake.node_of(&format!("lead-{slice}"));
        assert!((1..3).all(|at| fake.node_of(&format!("work-{slice}-{at}")) == lead));
    }
}

#[test]
fn basic_group_starts_slice_by_slice() {
    let mut fake = cluster(&[&[4, 2]]);
    let spec = GroupSpec::with_policy(key("g"), Policy::Basic { desired_count: None });
    fake.put_group(GroupSpec { topology: topology(&[("rack", slices(4))]), ..spec });
    fake.pods_of("a", "g", 6, 1);
    fake.settle();
    assert!(is(&counts(&fake, "a"), &[("b0-r0", 4), ("b0-r1", 2)]), "{:?}", counts(&fake, "a"));
}

/// A gang of three that moves, on the first rack, whose other place is taken when it loses a member.
fn gang_without_room(fake: &mut FakeCluster, others: &[(&str, i64)]) {
    let moving = GroupTopology { when_full: WhenFull::Move, ..(*topology(&[("rack", ALL)]).unwrap()).clone() };
    fake.put_group(GroupSpec { topology: Some(Arc::new(moving)), ..GroupSpec::gang(key("g"), 3) });
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    assert!(is(&counts(fake, "a"), &[("b0-r0", 3)]));
    for (node, cpus) in others {
        occupy(fake, &format!("other-{node}"), *cpus, node, 0);
    }
    fake.remove("a-2");
    occupy(fake, "taken", 1, "b0-r0", 0);
    fake.pod("b-0", "g", 1);
}

#[test]
fn gang_moves_if_its_rack_is_full_and_another_has_room_for_all_of_it() {
    let mut fake = cluster(&[&[3, 4]]);
    gang_without_room(&mut fake, &[]);
    fake.advance(4_000);
    assert_eq!(fake.bound_count("a"), 2, "not at once");
    fake.advance(30_000);
    assert_eq!(fake.bound_count("a"), 0, "what is left is deleted");
    // Their controller creates them again.
    fake.pods_of("c", "g", 2, 1);
    fake.advance(30_000);
    assert!(is(&counts(&fake, "c"), &[("b0-r1", 2)]) && is(&counts(&fake, "b"), &[("b0-r1", 1)]));
}

#[test]
fn gang_stays_where_it_is_without_room_elsewhere_and_moves_when_there_is() {
    let mut fake = cluster(&[&[3, 4]]);
    gang_without_room(&mut fake, &[("b0-r1", 2)]);
    fake.advance(120_000);
    assert_eq!(fake.bound_count("a"), 2, "two places are not enough for three");
    fake.remove("other-b0-r1");
    fake.advance(30_000);
    assert_eq!(fake.bound_count("a"), 0);
}

#[test]
fn gang_with_room_at_home_does_not_move() {
    let mut fake = cluster(&[&[3, 4]]);
    gang_without_room(&mut fake, &[]);
    fake.advance(2_000);
    fake.remove("taken");
    fake.advance(60_000);
    assert!(is(&counts(&fake, "a"), &[("b0-r0", 2)]) && is(&counts(&fake, "b"), &[("b0-r0", 1)]));
}

#[test]
fn gang_does_not_move_before_its_members_are_there() {
    let mut fake = cluster(&[&[3, 4]]);
    gang_without_room(&mut fake, &[]);
    fake.remove("b-0");
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 2, "nothing waits for a place");
}
