//! Gangs of different pods: finding a place is hard, so "not found" is an answer; a wrong one is not.
//!
//! The instances are tight: most are cut from a placement that fills the nodes to the brim, so that taking the best
//! node pod by pod often leads nowhere. The others are about nodes that look the same and are not.

use std::collections::BTreeMap;

use muster_engine::diagnosis::Proof;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::labels::{NameDemand, NodeTerm};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::port::{HostPort, Protocol};
use muster_oracle::brute::Lot;
use muster_oracle::random::Random;

use crate::instance::{self, GIB, GPU};
use crate::play::{Gang, Outcome};
use muster_oracle::seeds::{for_each_seed, one_seed_only};

const CASES: u64 = 20_000;
const LARGER_CASES: u64 = 500;
const RESOURCES: [&str; 3] = ["cpu", "memory", GPU];

#[derive(Debug, Default)]
struct Tally {
    /// Placeable and placed.
    placed: u32,
    /// Placeable and not found.
    missed: u32,
    /// Not placeable and proven so.
    proven: u32,
    /// Of these: not placeable on an empty cluster either, said or not.
    for_ever: u32,
    /// Not placeable and not found.
    not_found: u32,
    /// Placeable, but not for the naive scheduler.
    beyond_naive: u32,
    steps_max: u64,
}

#[test]
fn nothing_is_claimed_wrongly_and_hardly_anything_is_missed() {
    let mut tally = Tally::default();
    for_each_seed(CASES, |seed| {
        let random = &mut Random::new(seed);
        let gang = if random.chance(60) { tight_gang(random) } else { gang_among_twins(random) };
        judge(&gang, &mut tally);
    });
    let possible = tally.placed + tally.missed;
    let percent = |part: u32| 100.0 * f64::from(part) / f64::from(possible.max(1));
    println!("mixed groups: {tally:?}");
    println!("mixed groups: {:.2} % of the placeable ones placed", percent(tally.placed));
    println!("mixed groups: {:.2} % of the placeable ones are beyond the naive scheduler", percent(tally.beyond_naive));
    assert!(tally.placed * 1000 >= possible * 995, "too many were missed: {tally:?}");
    let alone = one_seed_only();
    assert!(alone || percent(tally.beyond_naive) > 15.0, "the instances have become too easy: {tally:?}");
    assert!(alone || tally.proven > CASES as u32 / 10, "too few instances are impossible: {tally:?}");
}

fn judge(gang: &Gang, tally: &mut Tally) {
    let possible = gang.placeable();
    match gang.play() {
        Outcome::Placed(bound) => {
            assert!(possible, "placed what cannot be placed: {gang:#?}");
            gang.check_placed(&bound);
            tally.placed += 1;
        }
        Outcome::Refused(shortfall) => match shortfall.proof {
            Proof::NotFound { steps } => {
                tally.steps_max = tally.steps_max.max(steps);
                *(if possible { &mut tally.missed } else { &mut tally.not_found }) += 1;
            }
            Proof::Impossible | Proof::NeverFits => {
                assert!(!possible, "proved what is not true: {gang:#?}");
                let ever = gang.placeable_when_empty();
                assert!(shortfall.proof == Proof::Impossible || !ever, "not for ever: {gang:#?}");
                tally.proven += 1;
                tally.for_ever += u32::from(!ever);
            }
            Proof::NodesLeftOut => panic!("no node has refused anything: {gang:#?}"),
        },
    }
    tally.beyond_naive += u32::from(possible && !naive_places(gang));
}

/// Whether the naive scheduler meets the needs, taking the pods as they come.
fn naive_places(gang: &Gang) -> bool {
    let mut naive = gang.naive();
    let mut placed = vec![0; gang.needs.len()];
    for lot in &gang.lots {
        placed[lot.subset] += (0..lot.count).filter(|_| naive.place(&lot.class).is_some()).count() as u32;
    }
    placed.iter().zip(&gang.needs).all(|(placed, need)| placed >= need)
}

#[test]
fn of_larger_groups_that_fill_the_nodes_none_is_called_impossible() {
    let (mut placed, mut not_found, mut beyond_naive) = (0, 0, 0);
    for_each_seed(LARGER_CASES, |seed| {
        let gang = larger_gang(&mut Random::new(seed));
        match gang.play() {
            Outcome::Placed(bound) => {
                gang.check_placed(&bound);
                placed += 1;
            }
            Outcome::Refused(shortfall) => {
                assert!(matches!(shortfall.proof, Proof::NotFound { .. }), "proved what is not true: {gang:#?}");
                not_found += 1;
            }
        }
        beyond_naive += u32::from(!naive_places(&gang));
    });
    println!("larger groups, all placeable: {placed} placed, {not_found} not found, {beyond_naive} beyond naive");
    assert!(one_seed_only() || placed > 3 * not_found, "larger groups: {placed} placed, {not_found} not found");
}

/// Up to 60 pods that fill up to 12 nodes exactly: too many to try everything, but placeable by how they are made.
fn larger_gang(random: &mut Random) -> Gang {
    let count = 4 + random.below(9);
    let kinds = 2 + random.below(5);
    let used = &RESOURCES[..=random.below(3)];
    let mut lots: Vec<Lot> =
        (0..kinds).map(|_| Lot { class: kind_of_pod(random, used, 0), subset: 0, count: 1 }).collect();
    for _ in kinds..(count * (2 + random.below(4))) {
        lots[random.below(kinds)].count += 1;
    }
    let mut nodes = nodes_around(random, count, &lots, &[]);
    for node in &mut nodes {
        node.taints.clear();
    }
    let needs = vec![lots.iter().map(|lot| lot.count).sum()];
    Gang { nodes, lots, needs, ..Gang::default() }
}

fn tight_gang(random: &mut Random) -> Gang {
    let count = 2 + random.below(4);
    let kinds = 2 + random.below(3);
    let picky = random.chance(30);
    let used = &RESOURCES[..=random.below(3)];
    let mut lots: Vec<Lot> = (0..kinds)
        .map(|kind| Lot { class: kind_of_pod(random, used, if picky { count } else { 0 }), subset: kind, count: 1 })
        .collect();
    for _ in kinds..(5 + random.below(5)) {
        lots[random.below(kinds)].count += 1;
    }
    let occupied: Vec<(usize, ClassSpec)> =
        (0..random.below(3)).map(|_| (random.below(count), kind_of_pod(random, used, 0))).collect();
    let needs = divide_into_subsets(random, &mut lots);
    random.shuffle(&mut lots);
    let members_there = if random.chance(20) { 1 + random.below(2) } else { 0 };
    let held = (0..members_there).map(|_| (random.below(count), random.below(kinds))).collect();
    let mut gang = Gang { nodes: Vec::new(), occupied, held, lots, needs };
    gang.nodes = nodes_around(random, count, &gang.lots, &gang.there());
    if random.chance(35) {
        take_a_bit(random, &mut gang.nodes);
    }
    gang
}

/// Taking the best node fails from both ends here, and the last node, whose port is taken, is the only right one for
/// the pod that has no ports.
#[test]
fn nodes_that_differ_in_a_taken_port_are_not_the_same() {
    let port = || vec![HostPort { address: None, protocol: Protocol::Tcp, port: 80 }];
    let mut nodes: Vec<NodeSpec> = (0..5).map(|number| instance::plain_node(number, 4000, 0, 0, 110)).collect();
    for (node, zone) in nodes.iter_mut().zip(["b", "b", "a", "a", "a"]) {
        node.labels.insert("zone".to_owned(), zone.to_owned());
    }
    let on = |node, host_ports| (node, ClassSpec { host_ports, ..ClassSpec::default() });
    let occupied = vec![on(0, vec![]), on(1, vec![]), on(2, vec![]), on(3, vec![]), on(4, port())];
    let lot = |cpu: i64, zone: Option<&str>, host_ports, count| {
        let mut class = instance::plain_class([("cpu".to_owned(), cpu)].into());
        class.node_selector.extend(zone.map(|zone| ("zone".to_owned(), zone.to_owned())));
        Lot { class: ClassSpec { host_ports, ..class }, subset: 0, count }
    };
    let lots = vec![lot(4000, Some("b"), vec![], 1), lot(3000, Some("a"), vec![], 1), lot(2000, None, port(), 3)];
    let gang = Gang { nodes, occupied, lots, needs: vec![5], ..Gang::default() };
    let Outcome::Placed(bound) = gang.play() else { panic!("not found: {gang:#?}") };
    gang.check_placed(&bound);
}

/// Nodes of one size that differ in labels and taken ports only, and pods that care: a search that takes two nodes
/// for the same must look at more than their room.
fn gang_among_twins(random: &mut Random) -> Gang {
    let count = 2 + random.below(4);
    let cpu = random.between(3, 7) * unit("cpu");
    let mut nodes: Vec<NodeSpec> = (0..count).map(|number| instance::plain_node(number, cpu, GIB, 0, 110)).collect();
    for node in &mut nodes {
        node.labels.insert("zone".to_owned(), (*random.pick(&["a", "b"])).to_owned());
    }
    let kinds = 2 + random.below(3);
    let mut lots: Vec<Lot> =
        (0..kinds).map(|_| Lot { class: choosy_pod(random, count), subset: 0, count: 1 }).collect();
    for _ in kinds..(4 + random.below(6)) {
        lots[random.below(kinds)].count += 1;
    }
    // One pod on each, with a port or without: twins hold equally many.
    let occupied = (0..count).map(|node| {
        let host_ports = if random.chance(40) { vec![one_port(random)] } else { Vec::new() };
        (node, ClassSpec { host_ports, ..ClassSpec::default() })
    });
    let occupied = occupied.collect();
    let needs = divide_into_subsets(random, &mut lots);
    random.shuffle(&mut lots);
    Gang { nodes, occupied, lots, needs, ..Gang::default() }
}

/// One of few, so that there is trouble.
fn one_port(random: &mut Random) -> HostPort {
    HostPort { address: None, protocol: Protocol::Tcp, port: *random.pick(&[80, 443]) }
}

/// A pod that asks for CPU, and maybe for a zone, a port, or not to be on some node.
fn choosy_pod(random: &mut Random, nodes: usize) -> ClassSpec {
    let mut class = instance::plain_class([("cpu".to_owned(), random.between(1, 4) * unit("cpu"))].into());
    if random.chance(30) {
        class.node_selector.insert("zone".to_owned(), (*random.pick(&["a", "b"])).to_owned());
    }
    if random.chance(50) {
        class.host_ports.push(one_port(random));
    }
    if random.chance(20) {
        let elsewhere = NameDemand::IsNot(instance::node_name(random.below(nodes)));
        class.required_terms = Some(vec![NodeTerm { names: vec![elsewhere], ..NodeTerm::default() }]);
    }
    class
}

/// A pod of one to five units of each resource; with demands on its node if there are nodes to name.
fn kind_of_pod(random: &mut Random, resources: &[&str], nodes: usize) -> ClassSpec {
    let mut requests = BTreeMap::new();
    for resource in resources {
        let units = if random.chance(80) { random.between(1, 5) } else { 0 };
        requests.insert((*resource).to_owned(), units * unit(resource));
    }
    if nodes == 0 {
        return instance::plain_class(requests);
    }
    let sized = instance::plain_class(requests.clone());
    let demanding = instance::class(random, nodes, 10);
    let (scoring_cpu_milli, scoring_memory_bytes) = (sized.scoring_cpu_milli, sized.scoring_memory_bytes);
    ClassSpec { requests, scoring_cpu_milli, scoring_memory_bytes, ..demanding }
}

fn unit(resource: &str) -> i64 {
    match resource {
        "cpu" => 1000,
        "memory" => GIB,
        _ => 1,
    }
}

/// Nodes that are just large enough for one placement of all the pods.
fn nodes_around(random: &mut Random, count: usize, lots: &[Lot], there: &[(usize, ClassSpec)]) -> Vec<NodeSpec> {
    let mut nodes: Vec<NodeSpec> = (0..count).map(|number| instance::node(random, number)).collect();
    for node in &mut nodes {
        node.allocatable = [("pods".to_owned(), 0)].into();
        node.taints.truncate(usize::from(random.chance(20)));
        node.unschedulable = false;
    }
    let pods = lots.iter().flat_map(|lot| (0..lot.count).map(|_| &lot.class));
    let mut put = |node: usize, class: &ClassSpec| {
        for (name, amount) in &class.requests {
            *nodes[node].allocatable.entry(name.clone()).or_default() += amount;
        }
        *nodes[node].allocatable.entry("pods".to_owned()).or_default() += 1;
    };
    for class in pods {
        put(random.below(count), class);
    }
    for (node, class) in there {
        put(*node, class);
    }
    for node in &mut nodes {
        if random.chance(80) {
            node.allocatable.insert("pods".to_owned(), 110);
        }
        if random.chance(20) {
            *node.allocatable.entry("cpu".to_owned()).or_default() += unit("cpu");
        }
    }
    nodes
}

/// Takes one unit of something from some node.
fn take_a_bit(random: &mut Random, nodes: &mut [NodeSpec]) {
    let node = random.below(nodes.len());
    let names: Vec<String> = nodes[node].allocatable.keys().cloned().collect();
    let name = random.pick(&names);
    let amount = nodes[node].allocatable.get_mut(name).expect("a name from the list");
    *amount = (*amount - unit(name)).max(0);
}

/// Gives each lot a subset and each subset a need: mostly all of its pods, sometimes fewer.
fn divide_into_subsets(random: &mut Random, lots: &mut [Lot]) -> Vec<u32> {
    let subsets = if random.chance(60) { 1 } else { 2 + random.below(lots.len() - 1) };
    let mut pods = vec![0; subsets];
    for (number, lot) in lots.iter_mut().enumerate() {
        lot.subset = number % subsets;
        pods[lot.subset] += lot.count;
    }
    let all = random.chance(60);
    pods.into_iter()
        .map(|pods| if all { pods } else { random.between((i64::from(pods) + 1) / 2, i64::from(pods)) as u32 })
        .collect()
}
