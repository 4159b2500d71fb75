//! Planted groups: different pods that fit by construction, and leave little room.
//!
//! Nodes are filled with pods at random; these pods, taken off again, are the group. Then each node is cut to what they
//! use there, in some resources.

use std::collections::BTreeMap;

use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;

use crate::brute::Lot;
use crate::random::Random;

/// How large groups are; every number is drawn up to these.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// The least and the most kinds of pods.
    pub kinds: (i64, i64),
    /// The least and the most nodes.
    pub nodes: (i64, i64),
    /// The most pods.
    pub pods: u32,
}

/// In how many of the three resources nodes are cut to what is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// In none: room is left wherever no pod fitted any more.
    None,
    /// In two; in all nodes the same ones, or not.
    Two,
    /// In all three: no room is left.
    All,
}

/// A group that fits, and its cluster.
#[derive(Clone, Debug)]
pub struct Planted {
    /// The nodes.
    pub nodes: Vec<NodeSpec>,
    /// Pods that are there already.
    pub occupied: Vec<(usize, ClassSpec)>,
    /// The group.
    pub lots: Vec<Lot>,
    /// The minimum of each subset.
    pub needs: Vec<u32>,
}

const RESOURCES: [&str; 3] = ["cpu", "memory", "nvidia.com/gpu"];
const UNITS: [i64; 3] = [500, 1 << 29, 1];

/// A planted group.
pub fn planted(random: &mut Random, size: Size, cut: Cut) -> Planted {
    let style = random.below(4);
    let kinds: Vec<[i64; 3]> = (0..random.between(size.kinds.0, size.kinds.1)).map(|_| kind(random, style)).collect();
    let nodes = random.between(size.nodes.0, size.nodes.1) as usize;
    let of_node = (i64::from(size.pods) * random.between(50, 100) / 100 / nodes as i64).clamp(2, 16);
    let mean = |resource: usize| kinds.iter().map(|kind| kind[resource]).sum::<i64>() / kinds.len() as i64 + 1;
    let largest = |resource: usize| kinds.iter().map(|kind| kind[resource]).max().unwrap_or(0);
    let shapes: Vec<[i64; 3]> = (0..=random.below(4))
        .map(|_| {
            [0, 1, 2].map(|resource| (mean(resource) * of_node * random.between(60, 150) / 100).max(largest(resource)))
        })
        .collect();
    let spared = random.chance(50).then(|| random.below(3));
    let mut planted = Planted { nodes: Vec::new(), occupied: Vec::new(), lots: Vec::new(), needs: Vec::new() };
    let mut counts = vec![0_u32; kinds.len()];
    for number in 0..nodes {
        let mut room = *random.pick(&shapes);
        let load = if random.chance(30) { room.map(|room| room * random.between(0, 40) / 100) } else { [0; 3] };
        let used =
            fill(random, &kinds, &mut counts, [0, 1, 2].map(|resource| room[resource] - load[resource]), size.pods);
        let spared = spared.unwrap_or_else(|| random.below(3));
        for resource in 0..3 {
            if cut == Cut::All || cut == Cut::Two && resource != spared {
                room[resource] = used[resource] + load[resource];
            }
        }
        if load != [0; 3] {
            planted.occupied.push((number, class(load)));
        }
        planted.nodes.push(node(number, room));
    }
    for (kind, count) in kinds.iter().zip(counts).filter(|(_, count)| *count > 0) {
        planted.lots.push(Lot { class: class(*kind), subset: 0, count });
    }
    random.shuffle(&mut planted.lots);
    planted.divide(random);
    planted
}

/// What a pod of a kind requests, in units: any numbers, powers of two, small numbers, or large ones.
fn kind(random: &mut Random, style: usize) -> [i64; 3] {
    let gpus = random.chance(50);
    let mut power = |bound: usize| 1 << random.below(bound);
    match style {
        0 => [random.between(1, 32), random.between(1, 64), if gpus { random.between(1, 4) } else { 0 }],
        1 => [power(6), power(7), if gpus { power(4) } else { 0 }],
        2 => [random.between(1, 8), random.between(1, 8), random.between(0, 4)],
        _ => [random.between(1, 160), random.between(1, 320), if gpus { random.between(1, 8) } else { 0 }],
    }
}

/// Puts random pods into a room until some do not fit. Returns what they use.
fn fill(random: &mut Random, kinds: &[[i64; 3]], counts: &mut [u32], room: [i64; 3], pods_max: u32) -> [i64; 3] {
    let (mut used, mut failures) = ([0; 3], 0);
    while failures < 3 && counts.iter().sum::<u32>() < pods_max {
        let kind = random.below(kinds.len());
        let then = [0, 1, 2].map(|resource| used[resource] + kinds[kind][resource]);
        if then.iter().zip(&room).all(|(then, room)| then <= room) {
            used = then;
            counts[kind] += 1;
        } else {
            failures += 1;
        }
    }
    used
}

fn class(units: [i64; 3]) -> ClassSpec {
    let amounts = RESOURCES.iter().zip(units).zip(UNITS).filter(|((_, units), _)| *units > 0);
    let requests: BTreeMap<String, i64> =
        amounts.map(|((name, units), unit)| ((*name).to_owned(), units * unit)).collect();
    let scored = |name: &str, default: i64| requests.get(name).copied().unwrap_or(default);
    ClassSpec {
        scoring_cpu_milli: scored("cpu", 100),
        scoring_memory_bytes: scored("memory", 200 << 20),
        requests,
        ..ClassSpec::default()
    }
}

fn node(number: usize, units: [i64; 3]) -> NodeSpec {
    let amounts =
        RESOURCES.iter().zip(units).zip(UNITS).map(|((name, units), unit)| ((*name).to_owned(), units * unit));
    let allocatable = amounts.chain([("pods".to_owned(), 110)]).collect();
    NodeSpec { name: format!("n{number}"), allocatable, ..NodeSpec::default() }
}

impl Planted {
    /// Divides the lots into subsets with minimums, mostly one with all pods.
    fn divide(&mut self, random: &mut Random) {
        let subsets = if random.chance(70) { 1 } else { random.between(1, self.lots.len().max(1) as i64) as usize };
        self.needs = vec![0; subsets];
        for (number, lot) in self.lots.iter_mut().enumerate() {
            lot.subset = number % subsets;
            self.needs[lot.subset] += lot.count;
        }
        if random.chance(15) {
            for need in &mut self.needs {
                *need = random.between((i64::from(*need) * 3 + 3) / 4, i64::from(*need)) as u32;
            }
        }
    }

    /// The number of pods.
    pub fn pods(&self) -> u32 {
        self.lots.iter().map(|lot| lot.count).sum()
    }

    /// Takes one unit of a resource from some node: the group fits no more, or only otherwise.
    pub fn take_one_unit(&mut self, random: &mut Random) {
        let (node, resource) = (random.below(self.nodes.len()), random.below(3));
        if let Some(amount) = self.nodes[node].allocatable.get_mut(RESOURCES[resource]) {
            *amount = (*amount - UNITS[resource]).max(0);
        }
    }
}
