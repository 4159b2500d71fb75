//! Topology constraints against an exact oracle: on small random clusters, whether a group is placed, in which domain, and
//! at which cost it preempts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use muster_engine::model::group::GroupSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::topology::GroupTopology;
use muster_oracle::random::Random;
use muster_oracle::seeds::{for_each_seed, one_seed_only};

use crate::domain_checker::domain;
use crate::fake_cluster::{FakeCluster, key};

type Path = Vec<String>;

/// A cluster of racks in blocks, with pods of other groups on it, and a gang of pods of these sizes.
struct Case {
    fake: FakeCluster,
    topology: GroupTopology,
    sizes: Vec<i64>,
    min_count: usize,
}

const LEVELS: [&str; 2] = ["block", "rack"];

fn case(seed: u64, alike: bool, with_victims: bool) -> Case {
    let mut random = Random::new(seed);
    let mut fake = FakeCluster::new();
    for number in 0..2 + random.below(6) {
        let mut labels = BTreeMap::new();
        for key in LEVELS {
            if random.chance(92) {
                labels.insert(key.to_owned(), random.below(2).to_string());
            }
        }
        let cpus = 1 + random.below(5) as i64;
        let allocatable = [("cpu".to_owned(), cpus * 1000), ("memory".to_owned(), 64 << 30), ("pods".to_owned(), 110)];
        let name = format!("n{number}");
        fake.put_node(NodeSpec { name: name.clone(), allocatable: allocatable.into(), labels, ..NodeSpec::default() });
        let mut left = cpus;
        while left > 0 && random.chance(if with_victims { 80 } else { 30 }) {
            let size = 1 + random.below(left as usize) as i64;
            left -= size;
            fake.pod_with(&format!("v{number}-{left}"), "", size, |pod| {
                pod.node = Some(name.clone());
                pod.priority = if with_victims { random.below(4) as i32 } else { 0 };
            });
        }
    }
    let constraints = match random.below(4) {
        0 => vec![("rack".to_owned(), true)],
        1 => vec![("block".to_owned(), true)],
        2 => vec![("block".to_owned(), true), ("rack".to_owned(), false)],
        _ => vec![("block".to_owned(), false), ("rack".to_owned(), true)],
    };
    let topology = GroupTopology::of(constraints).expect("there are constraints");
    let pods = 1 + random.below(5);
    let size = 1 + random.below(3) as i64;
    let sizes: Vec<i64> = (0..pods).map(|_| if alike { size } else { 1 + random.below(3) as i64 }).collect();
    let min_count = if with_victims || !alike { pods } else { 1 + random.below(pods) };
    fake.put_group(GroupSpec {
        topology: Some(Arc::new(topology.clone())),
        ..GroupSpec::gang(key("g"), min_count as u32)
    });
    for (number, size) in sizes.iter().enumerate() {
        fake.pod_with(&format!("a-{number}"), "g", *size, |pod| pod.priority = if with_victims { 5 } else { 0 });
    }
    Case { fake, topology, sizes, min_count }
}

impl Case {
    fn required(&self) -> usize {
        self.topology.required.expect("all cases require a level")
    }

    /// The free CPUs of the nodes of each domain of a level, without these pods.
    fn free(&self, level: usize, without: &BTreeSet<String>) -> BTreeMap<Path, Vec<i64>> {
        let mut free: BTreeMap<Path, Vec<i64>> = BTreeMap::new();
        for node in self.fake.nodes.values() {
            let Some(domain) = domain(node, &self.topology, level) else { continue };
            let there = self.fake.pods.values().filter(|pod| pod.node.as_ref() == Some(&node.name));
            let used: i64 = there
                .filter(|pod| !pod.id.name.starts_with('a') && !without.contains(&pod.id.name))
                .map(|pod| pod.class.requests["cpu"])
                .sum();
            free.entry(domain).or_default().push((node.allocatable["cpu"] - used) / 1000);
        }
        free
    }

    fn domain_of(&self, pod: &str, level: usize) -> Option<Path> {
        domain(&self.fake.nodes[&self.fake.node_of(pod)?], &self.topology, level)
    }
}

/// How many pods of one size fit.
fn room(free: &[i64], size: i64) -> usize {
    free.iter().map(|cpus| (cpus / size).max(0) as usize).sum()
}

/// Whether all pods fit: every assignment is tried.
fn all_fit(free: &mut [i64], sizes: &[i64]) -> bool {
    let Some((size, rest)) = sizes.split_first() else { return true };
    (0..free.len()).any(|node| {
        if free[node] < *size {
            return false;
        }
        free[node] -= size;
        let fits = all_fit(free, rest);
        free[node] += size;
        fits
    })
}

#[test]
fn like_gangs_are_placed_in_the_tightest_domain_whenever_there_is_one() {
    let mut placed = 0;
    for_each_seed(600, |seed| {
        let mut case = case(seed, true, false);
        case.fake.settle();
        let (size, pods) = (case.sizes[0], case.sizes.len());
        let level = case.required();
        let rooms: BTreeMap<Path, usize> =
            case.free(level, &BTreeSet::new()).into_iter().map(|(domain, free)| (domain, room(&free, size))).collect();
        let bound = case.fake.bound_count("a-");
        let most = rooms.values().copied().max().unwrap_or(0).min(pods);
        if most < case.min_count {
            assert_eq!(bound, 0, "{rooms:?}");
            return;
        }
        placed += 1;
        assert_eq!(bound, most, "as many as fit into one domain: {rooms:?}");
        let used: BTreeSet<Path> = (0..pods).filter_map(|pod| case.domain_of(&format!("a-{pod}"), level)).collect();
        let [chosen] = used.iter().collect::<Vec<_>>()[..] else { panic!("{used:?} is not one domain") };
        let tightest = rooms.values().copied().filter(|room| *room >= most).min().unwrap_or(0);
        assert_eq!(rooms[chosen], tightest, "{chosen:?} of {rooms:?}");
        if let Some(preferred) = case.topology.preferred {
            check_fewest_narrower_domains(&case, preferred, chosen, most);
        }
    });
    assert!(placed > 200 || one_seed_only(), "{placed}");
}

/// The pods are in as few narrower domains as possible; nodes in none of them count as one each.
fn check_fewest_narrower_domains(case: &Case, level: usize, chosen: &Path, pods: usize) {
    let inside = case.free(level, &BTreeSet::new());
    let mut rooms: Vec<usize> = inside
        .iter()
        .filter(|(domain, _)| domain.starts_with(chosen))
        .map(|(_, free)| room(free, case.sizes[0]))
        .filter(|room| *room > 0)
        .collect();
    rooms.sort_unstable_by(|one, other| other.cmp(one));
    let (mut left, mut least) = (pods, 0);
    for room in rooms {
        if left > 0 {
            left = left.saturating_sub(room);
            least += 1;
        }
    }
    let domains = (0..case.sizes.len()).map(|pod| format!("a-{pod}")).filter(|pod| case.fake.node_of(pod).is_some());
    let used: Vec<Option<Path>> = domains.map(|pod| case.domain_of(&pod, level)).collect();
    let labelled: BTreeSet<&Path> = used.iter().flatten().collect();
    if left == 0 {
        assert_eq!((labelled.len(), used.contains(&None)), (least, false), "{used:?}");
    }
}

#[test]
fn mixed_gangs_are_placed_whenever_some_domain_holds_them() {
    let (mut found, mut possible) = (0, 0);
    for_each_seed(600, |seed| {
        let mut case = case(seed, false, false);
        case.fake.settle();
        let level = case.required();
        let fits = case.free(level, &BTreeSet::new()).into_values().any(|mut free| all_fit(&mut free, &case.sizes));
        let bound = case.fake.bound_count("a-");
        assert!(bound == 0 || bound == case.sizes.len(), "never a part of a gang");
        assert!(bound == 0 || fits, "placed where nothing fits");
        let used: BTreeSet<_> = (0..bound).map(|pod| case.domain_of(&format!("a-{pod}"), level)).collect();
        assert!(used.len() <= 1 && !used.contains(&None), "{used:?}");
        possible += usize::from(fits);
        found += usize::from(fits && bound > 0);
    });
    assert!(found * 100 >= possible * 99, "{found} of {possible} were found");
    assert!(possible > 150 || one_seed_only(), "{possible}");
}

/// What victims cost: the highest priority first, then the sum of the priorities by pod.
fn cost(case: &Case, victims: &BTreeSet<String>) -> (Option<i32>, i64, usize) {
    let pods: Vec<i32> =
        case.fake.pods.values().filter(|pod| victims.contains(&pod.id.name)).map(|pod| pod.priority).collect();
    let weight = |priority: &i32| i64::from(*priority) - i64::from(i32::MIN) + 1;
    (pods.iter().copied().max(), pods.iter().map(weight).sum(), pods.len())
}

#[test]
fn cheapest_domain_is_preempted() {
    let mut preempted = 0;
    for_each_seed(400, |seed| {
        let mut case = case(seed, seed.is_multiple_of(2), true);
        let victims: Vec<String> =
            case.fake.pods.values().map(|pod| pod.id.name.clone()).filter(|name| name.starts_with('v')).collect();
        if victims.len() > 12 {
            return;
        }
        let level = case.required();
        let mut cheapest = None;
        for chosen in 0..1_u32 << victims.len() {
            let set: BTreeSet<String> = (0..victims.len())
                .filter(|index| chosen >> index & 1 == 1)
                .map(|index| victims[index].clone())
                .collect();
            let cost = cost(&case, &set);
            if cheapest.as_ref().is_none_or(|least| cost < *least)
                && case.free(level, &set).into_values().any(|mut free| all_fit(&mut free, &case.sizes))
            {
                cheapest = Some(cost);
            }
        }
        let before = case.fake.pods.clone();
        case.fake.settle();
        let evicted: BTreeSet<String> = case.fake.evicted().into_iter().collect();
        case.fake.pods.extend(before.into_iter().filter(|(_, pod)| evicted.contains(&pod.id.name)));
        match cheapest {
            None => assert!(evicted.is_empty() && case.fake.bound_count("a-") == 0, "{evicted:?}"),
            Some(least) => {
                preempted += usize::from(!evicted.is_empty());
                assert_eq!(cost(&case, &evicted), least, "{evicted:?}");
                assert_eq!(case.fake.bound_count("a-"), case.sizes.len());
            }
        }
    });
    assert!(preempted > 80 || one_seed_only(), "{preempted}");
}
