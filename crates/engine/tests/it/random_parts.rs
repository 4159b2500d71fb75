//! Slices, spread and exclusive domains against brute force: on small random clusters, how many pods of a group start,
//! whether they keep to the rules, and at which cost it preempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::model::group::GroupSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::topology::{GroupTopology, LevelRule};
use muster_oracle::parts::{Parts, Rack, Spread};
use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::fake_cluster::{FakeCluster, key};

/// A cluster of racks in blocks and a gang of pods of one CPU, or of these sizes.
struct Case {
    fake: FakeCluster,
    /// The names of the racks, each of one or two nodes.
    racks: Vec<(usize, String)>,
    parts: Parts,
    sizes: Vec<i64>,
    minimum: usize,
}

fn case(seed: u64, alike: bool, victims: bool) -> Case {
    let mut random = Random::new(seed);
    let mut fake = FakeCluster::new();
    let mut racks = Vec::new();
    for block in 0..=random.below(3) {
        for rack in 0..=random.below(3) {
            let name = format!("b{block}-r{rack}");
            for number in 0..=random.below(2) {
                add_node(&mut fake, &mut random, (block, &name), number, victims);
            }
            racks.push((block, name));
        }
    }
    let parts = parts(&mut random);
    let pods = 1 + random.below(if alike { 9 } else { 6 });
    let sizes: Vec<i64> = (0..pods).map(|_| if alike { 1 } else { 1 + random.below(2) as i64 }).collect();
    let minimum = if victims || !alike { pods } else { 1 + random.below(pods) };
    let topology = GroupTopology::of_rules(rules(&mut random, &parts)).map(Arc::new);
    fake.put_group(GroupSpec { topology, ..GroupSpec::gang(key("g"), minimum as u32) });
    let ranked = random.chance(50);
    for (number, size) in sizes.iter().enumerate() {
        fake.pod_with(&format!("a-{number}"), "g", *size, |pod| {
            pod.priority = if victims { 5 } else { 0 };
            pod.rank = (ranked || !alike).then_some(number as u64);
        });
    }
    Case { fake, racks, parts, sizes, minimum }
}

fn add_node(fake: &mut FakeCluster, random: &mut Random, (block, rack): (usize, &str), number: usize, victims: bool) {
    let cpus = random.below(5) as i64;
    let allocatable = [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
    let labels = [("block".to_owned(), format!("b{block}")), ("rack".to_owned(), rack.to_owned())].into();
    let name = format!("{rack}-n{number}");
    fake.put_node(NodeSpec { name: name.clone(), allocatable: allocatable.into(), labels, ..NodeSpec::default() });
    let mut left = cpus;
    while victims && left > 0 && random.chance(60) {
        let size = 1 + random.below(left as usize) as i64;
        left -= size;
        fake.pod_with(&format!("v-{name}-{left}"), "", size, |pod| {
            pod.node = Some(name.clone());
            pod.priority = random.below(3) as i32;
        });
    }
}

fn parts(random: &mut Random) -> Parts {
    let size = 1 + random.below(4);
    let one_block = random.chance(40);
    let over_blocks = size > 1 && !one_block;
    let has_spread = (size == 1 || over_blocks) && random.chance(60);
    let (min, more) = (1 + random.below(3), random.below(3));
    let spread = has_spread.then_some(Spread { over_blocks, min, max: min + more });
    Parts { size, alone: size > 1 && random.chance(20), one_block, spread }
}

fn rules(random: &mut Random, parts: &Parts) -> Vec<(String, LevelRule)> {
    let spread = parts.spread.map(|spread| {
        let rule = LevelRule::Spread { min: spread.min as u32, max: spread.max as u32 };
        (if spread.over_blocks { "block" } else { "rack" }, rule)
    });
    let mut rules = Vec::new();
    if parts.one_block {
        rules.push(("block", LevelRule::Required { exclusive: false }));
    } else if spread.is_none_or(|(key, _)| key != "block") && random.chance(50) {
        rules.push(("block", LevelRule::Preferred));
    }
    rules.extend(spread);
    if parts.size > 1 {
        rules.push(("rack", LevelRule::Slices { size: parts.size as u32, exclusive: parts.alone }));
    } else if parts.spread.is_none() {
        rules.push(("rack", LevelRule::Preferred));
    }
    rules.into_iter().map(|(key, rule)| (key.to_owned(), rule)).collect()
}

impl Case {
    /// The free CPUs of the nodes of each rack, without these pods and those of the gang.
    fn free(&self, without: &BTreeSet<String>) -> Vec<Vec<i64>> {
        let of_node = |node: &NodeSpec| {
            let there = self.fake.pods.values().filter(|pod| pod.node.as_ref() == Some(&node.name));
            let counted = there.filter(|pod| pod.id.name.starts_with('v') && !without.contains(&pod.id.name));
            (node.allocatable["cpu"] - counted.map(|pod| pod.class.requests["cpu"]).sum::<i64>()) / 1000
        };
        let nodes = |rack: &str| {
            let inside = self.fake.nodes.values().filter(|node| node.labels["rack"] == rack);
            inside.map(of_node).collect::<Vec<i64>>()
        };
        self.racks.iter().map(|(_, rack)| nodes(rack)).collect()
    }

    /// Each rack with its room for pods of one CPU.
    fn rooms(&self, without: &BTreeSet<String>) -> Vec<Rack> {
        let rooms = self.free(without).into_iter().map(|free| free.iter().sum::<i64>().max(0) as usize);
        self.racks.iter().map(|(block, _)| *block).zip(rooms).collect()
    }

    /// How many pods of the gang are in each rack.
    fn placed(&self) -> Vec<usize> {
        let rack_of = |pod: &str| self.fake.nodes[&self.fake.node_of(pod).unwrap()].labels["rack"].clone();
        let bound: Vec<String> =
            self.fake.bound().into_iter().filter(|name| name.starts_with("a-")).map(|name| rack_of(&name)).collect();
        self.racks.iter().map(|(_, rack)| bound.iter().filter(|other| *other == rack).count()).collect()
    }
}

#[test]
fn as_many_like_pods_start_as_brute_force_finds() {
    let (mut placed, mut waiting) = (0, 0);
    for_each_seed(1500, |seed| {
        let mut case = case(seed, true, false);
        case.fake.settle();
        let (rooms, pods) = (case.rooms(&BTreeSet::new()), case.sizes.len());
        let counts = case.placed();
        let bound: usize = counts.iter().sum();
        let expected = case.parts.starts(&rooms, pods, case.minimum);
        // A slice that begins with the minimum grows as far as its rack has room, and the last one may be beside it.
        let grows = expected > 0 && ![0, pods % case.parts.size].contains(&(expected % case.parts.size));
        assert!(grows || case.parts.hold(&rooms, &counts), "{counts:?} in {rooms:?} by {:?}", case.parts);
        // Where a smaller slice may be depends on the domains of the others then.
        let is_exact = case.parts.spread.is_none() || pods.is_multiple_of(case.parts.size);
        if is_exact {
            let Case { parts, minimum, .. } = &case;
            let text = || format!("of {pods}, at least {minimum}, in {rooms:?} by {parts:?}: {counts:?}");
            assert!(bound == expected || grows && bound > expected, "{expected} {}", text());
        }
        placed += usize::from(bound > 0);
        waiting += usize::from(bound == 0);
    });
    assert!((placed > 300 && waiting > 100) || one_seed_only(), "{placed} {waiting}");
}

/// Whether slices of pods fit: every rack for every slice, and every node for every pod.
fn slices_fit(case: &Case, free: &mut Vec<Vec<i64>>, slices: &[Vec<i64>], used: &mut Vec<usize>) -> bool {
    let Some((slice, rest)) = slices.split_first() else {
        let counts: Vec<usize> = (0..case.racks.len())
            .map(|rack| {
                used.iter()
                    .zip(case.sizes.chunks(case.parts.size))
                    .filter(|(at, _)| **at == rack)
                    .map(|(_, slice)| slice.len())
                    .sum()
            })
            .collect();
        let rooms: Vec<Rack> = case.racks.iter().map(|(block, _)| (*block, 0)).collect();
        return case.parts.hold(&rooms, &counts);
    };
    (0..free.len()).any(|rack| {
        used.push(rack);
        let before = free[rack].clone();
        let found = place_slice(case, free, (rack, slice), rest, used);
        free[rack] = before;
        used.pop();
        found
    })
}

fn place_slice(
    case: &Case,
    free: &mut Vec<Vec<i64>>,
    (rack, slice): (usize, &[i64]),
    rest: &[Vec<i64>],
    used: &mut Vec<usize>,
) -> bool {
    let Some((size, others)) = slice.split_first() else { return slices_fit(case, free, rest, used) };
    (0..free[rack].len()).any(|node| {
        if free[rack][node] < *size {
            return false;
        }
        free[rack][node] -= size;
        let found = place_slice(case, free, (rack, others), rest, used);
        free[rack][node] += size;
        found
    })
}

#[test]
fn different_pods_in_slices_are_placed_nearly_whenever_possible() {
    let (mut found, mut possible) = (0, 0);
    for_each_seed(800, |seed| {
        let mut case = case(seed, false, false);
        case.fake.settle();
        let slices: Vec<Vec<i64>> = case.sizes.chunks(case.parts.size).map(<[i64]>::to_vec).collect();
        let fits = slices_fit(&case, &mut case.free(&BTreeSet::new()), &slices, &mut Vec::new());
        let counts = case.placed();
        let bound: usize = counts.iter().sum();
        assert!(bound == 0 || (bound == case.sizes.len() && fits), "{counts:?} by {:?}", case.parts);
        assert!(case.parts.hold(&case.rooms(&BTreeSet::new()), &counts), "{counts:?} by {:?}", case.parts);
        possible += usize::from(fits);
        found += usize::from(fits && bound > 0);
    });
    assert!(found * 100 >= possible * 99, "{found} of {possible} were found");
    assert!(possible > 200 || one_seed_only(), "{possible}");
}

#[test]
fn members_of_a_slice_share_a_rack() {
    for_each_seed(400, |seed| {
        let mut case = case(seed, false, false);
        case.fake.settle();
        let mut racks: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
        for number in 0..case.sizes.len() {
            if let Some(node) = case.fake.node_of(&format!("a-{number}")) {
                let rack = case.fake.nodes[&node].labels["rack"].clone();
                racks.entry(number / case.parts.size).or_default().insert(rack);
            }
        }
        assert!(racks.values().all(|racks| racks.len() == 1), "{racks:?}");
    });
}

/// What victims cost: the highest priority first, then the sum of the priorities by pod.
fn cost(case: &Case, victims: &BTreeSet<String>) -> (Option<i32>, i64, usize) {
    let pods: Vec<i32> =
        case.fake.pods.values().filter(|pod| victims.contains(&pod.id.name)).map(|pod| pod.priority).collect();
    let weight = |priority: &i32| i64::from(*priority) - i64::from(i32::MIN) + 1;
    (pods.iter().copied().max(), pods.iter().map(weight).sum(), pods.len())
}

#[test]
fn cheapest_room_for_parts_is_preempted() {
    let (mut preempted, mut best) = (0, 0);
    for_each_seed(500, |seed| {
        let mut case = case(seed, true, true);
        let victims: Vec<String> =
            case.fake.pods.values().map(|pod| pod.id.name.clone()).filter(|name| name.starts_with('v')).collect();
        if victims.len() > 9 {
            return;
        }
        let pods = case.sizes.len();
        let sets = (0..1_u32 << victims.len()).map(|chosen| {
            let is_chosen = |index: &usize| chosen >> index & 1 == 1;
            (0..victims.len()).filter(is_chosen).map(|index| victims[index].clone()).collect::<BTreeSet<String>>()
        });
        let enough = sets.filter(|set| case.parts.can_place(&case.rooms(set), pods));
        let least = enough.map(|set| cost(&case, &set)).min();
        let before = case.fake.pods.clone();
        case.fake.settle();
        let evicted: BTreeSet<String> = case.fake.evicted().into_iter().collect();
        let counts = case.placed();
        case.fake.pods.extend(before.into_iter().filter(|(_, pod)| evicted.contains(&pod.id.name)));
        assert!(case.parts.hold(&case.rooms(&evicted), &counts), "{counts:?} by {:?}", case.parts);
        let is_exact = case.parts.spread.is_none() || pods.is_multiple_of(case.parts.size);
        match least.filter(|_| is_exact) {
            None if is_exact => assert!(evicted.is_empty() && counts.iter().sum::<usize>() == 0, "{evicted:?}"),
            None => {}
            Some(least) => {
                assert_eq!(counts.iter().sum::<usize>(), pods, "{least:?} is possible by {:?}", case.parts);
                preempted += usize::from(!evicted.is_empty());
                best += usize::from(!evicted.is_empty() && cost(&case, &evicted) == least);
                assert_eq!(cost(&case, &evicted), least, "{evicted:?} by {:?}", case.parts);
            }
        }
    });
    assert!((preempted > 80 && best == preempted) || one_seed_only(), "{best} of {preempted}");
}
