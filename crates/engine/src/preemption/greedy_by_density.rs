//! Greedy choice of victims for identical pods: the lowest cost per freed index first.
//!
//! A pod often needs several units gone from one node, so the candidates are sets: the units whose eviction makes room
//! for one more pod on a node, including all that this frees on other nodes. The best set is taken until all pods fit;
//! only affected nodes are evaluated again. This is a heuristic, not exact.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::capacity_without_victims::CapacityWithoutVictims;
use super::cost::CostModel;
use super::dry_run::DryRun;
use super::victim_unit::{VictimKind, VictimUnit};
use crate::cluster::load::Load;
use crate::model::ids::PodId;

/// Units that are evicted together.
#[derive(Clone, Debug)]
struct VictimSet {
    units: SmallVec<[usize; 4]>,
    cost: CostPerCopy,
}

/// The cost of a set of victims, and how many pods it makes room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CostPerCopy {
    weight: i64,
    groups: i64,
    preemption_cost: i64,
    lost_ms: u64,
    copies: i64,
}

impl CostPerCopy {
    /// Lower cost per copy first, in the order of [`Cost`](super::Cost); more copies among equals.
    fn compare(&self, other: &Self) -> Ordering {
        let cross = |own: i128, others: i128| (own * i128::from(other.copies)).cmp(&(others * i128::from(self.copies)));
        cross(self.weight.into(), other.weight.into())
            .then_with(|| cross(self.groups.into(), other.groups.into()))
            .then_with(|| cross(self.preemption_cost.into(), other.preemption_cost.into()))
            .then_with(|| cross(self.lost_ms.into(), other.lost_ms.into()))
            .then_with(|| other.copies.cmp(&self.copies))
    }
}

/// The best set of a node in the heap: the cheapest comes first.
struct Entry {
    cost: CostPerCopy,
    index: usize,
    stamp: u32,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        other.cost.compare(&self.cost).then_with(|| other.index.cmp(&self.index))
    }
}

/// A unit on a node: its index, and the range of its pods there.
#[derive(Clone, Debug)]
struct UnitOnNode {
    unit: usize,
    pods: Range<usize>,
}

/// The units by node. All nodes share two lists, to avoid an allocation per node.
#[derive(Clone, Debug)]
struct UnitsByNode {
    pods: Vec<PodId>,
    /// By node, lightest first.
    all: Vec<UnitOnNode>,
    /// By the index of a node: where its units begin; the next node's begin ends them.
    begins: Vec<usize>,
}

impl UnitsByNode {
    /// Lists these units, lightest first, on all nodes that pass the static filters.
    fn new(capacity: &CapacityWithoutVictims<'_>, units: &[VictimUnit], lightest_first: &[usize]) -> Self {
        let mut standing: Vec<(usize, usize, PodId)> = Vec::new();
        for (rank, unit) in lightest_first.iter().enumerate() {
            let pods = units[*unit].pods.iter();
            standing.extend(pods.filter_map(|(pod, node)| Some((capacity.index_of(*node)?, rank, *pod))));
        }
        standing.sort_unstable();
        let mut on_nodes =
            Self { pods: standing.iter().map(|(.., pod)| *pod).collect(), all: Vec::new(), begins: Vec::new() };
        let mut begin = 0;
        for there in standing.chunk_by(|one, two| (one.0, one.1) == (two.0, two.1)) {
            let (index, rank, _) = there[0];
            on_nodes.begins.resize(index + 1, on_nodes.all.len());
            on_nodes.all.push(UnitOnNode { unit: lightest_first[rank], pods: begin..begin + there.len() });
            begin += there.len();
        }
        on_nodes.begins.resize(capacity.len() + 1, on_nodes.all.len());
        on_nodes
    }

    /// The range of a node's units in the list.
    fn range(&self, index: usize) -> Range<usize> {
        self.begins[index]..self.begins[index + 1]
    }

    /// The units on a node.
    fn at(&self, index: usize) -> &[UnitOnNode] {
        &self.all[self.range(index)]
    }

    fn pods(&self, on_node: &UnitOnNode) -> &[PodId] {
        &self.pods[on_node.pods.clone()]
    }
}

/// Removes units until all pods fit.
pub(crate) struct GreedyByDensity<'g, 'a> {
    capacity: &'g mut CapacityWithoutVictims<'a>,
    units: &'g [VictimUnit],
    costs: &'g CostModel,
    /// Units that may be evicted.
    on_nodes: UnitsByNode,
    taken: Vec<bool>,
    /// By unit and node: how many more pods would fit on the node without the unit.
    gains: Vec<i64>,
    /// By unit: how many more pods would fit on all nodes without it, the sum of its gains.
    unit_gains: Vec<i64>,
    stamps: Vec<u32>,
    heap: BinaryHeap<Entry>,
}

impl<'g, 'a> GreedyByDensity<'g, 'a> {
    /// `allowed` are the indices of units that may be evicted; no unit is removed yet.
    pub(crate) fn new(
        capacity: &'g mut CapacityWithoutVictims<'a>,
        (units, costs): (&'g [VictimUnit], &'g CostModel),
        allowed: impl Iterator<Item = usize>,
    ) -> Self {
        let mut lightest_first: Vec<usize> = allowed.collect();
        lightest_first.sort_unstable_by_key(|unit| {
            let cost = costs.unit(*unit);
            (cost.weight, units[*unit].kind, cost.preemption_cost, cost.lost_ms, *unit)
        });
        let on_nodes = UnitsByNode::new(capacity, units, &lightest_first);
        let (gains, unit_gains) = (vec![0; on_nodes.all.len()], vec![0; units.len()]);
        let (stamps, taken) = (vec![0; capacity.len()], vec![false; units.len()]);
        Self { capacity, units, costs, on_nodes, taken, gains, unit_gains, stamps, heap: BinaryHeap::new() }
    }

    /// Removes the best sets until all pods fit. Returns the removed units, which stay removed; `None`, with everything
    /// restored, if there is never enough room.
    pub(crate) fn run(&mut self) -> Option<Vec<usize>> {
        for index in 0..self.capacity.len() {
            self.update_gains(index);
        }
        for index in 0..self.capacity.len() {
            self.push_best_set(index);
        }
        while self.capacity.missing() > 0 {
            let Some(entry) = self.heap.pop() else {
                for unit in self.taken_units() {
                    self.capacity.restore(&self.units[unit]);
                }
                return None;
            };
            if entry.stamp != self.stamps[entry.index] {
                continue;
            }
            let Some(victim_set) = self.victim_set(entry.index) else { continue };
            if victim_set.cost.compare(&entry.cost) == Ordering::Greater {
                // Its cost has risen since: others may come first now.
                self.heap.push(Entry { cost: victim_set.cost, ..entry });
                continue;
            }
            self.take(&victim_set);
        }
        Some(self.taken_units())
    }

    fn taken_units(&self) -> Vec<usize> {
        self.taken.iter().enumerate().filter(|(_, taken)| **taken).map(|(unit, _)| unit).collect()
    }

    fn take(&mut self, victim_set: &VictimSet) {
        let mut touched = Vec::new();
        for unit in &victim_set.units {
            self.capacity.remove(&self.units[*unit]);
            self.taken[*unit] = true;
            touched.extend(self.units[*unit].pods.iter().filter_map(|(_, node)| self.capacity.index_of(*node)));
        }
        touched.sort_unstable();
        touched.dedup();
        for index in &touched {
            self.update_gains(*index);
        }
        for index in touched {
            self.push_best_set(index);
        }
    }

    /// Computes again how many more pods would fit without each unit on a node.
    fn update_gains(&mut self, index: usize) {
        let there = self.on_nodes.range(index);
        if there.is_empty() {
            return;
        }
        let mut node = NodeWhatIf::new(self.capacity, &self.on_nodes, index);
        for at in there {
            let on_node = &self.on_nodes.all[at];
            let gain = if self.taken[on_node.unit] { 0 } else { node.gain(on_node) };
            self.unit_gains[on_node.unit] += gain - self.gains[at];
            self.gains[at] = gain;
        }
    }

    /// Pushes the best set of a node.
    fn push_best_set(&mut self, index: usize) {
        self.stamps[index] += 1;
        if let Some(victim_set) = self.victim_set(index) {
            self.heap.push(Entry { cost: victim_set.cost, index, stamp: self.stamps[index] });
        }
    }

    /// The cheapest set found that makes room for one more pod on a node: a single sufficient unit, or the lightest
    /// units together.
    fn victim_set(&self, index: usize) -> Option<VictimSet> {
        let mut there = self.on_nodes.range(index);
        let single = there.find(|at| self.gains[*at] > 0).map(|at| smallvec![self.on_nodes.all[at].unit]);
        let there: SmallVec<[&UnitOnNode; 8]> =
            self.on_nodes.at(index).iter().filter(|on_node| !self.taken[on_node.unit]).collect();
        let node = (there.len() > 1).then(|| NodeWhatIf::new(self.capacity, &self.on_nodes, index));
        let together = node.and_then(|mut node| node.lightest_together(&there));
        let sets: SmallVec<[VictimSet; 2]> =
            single.into_iter().chain(together).map(|units| self.with_cost(units)).collect();
        sets.into_iter().min_by(|one, two| one.cost.compare(&two.cost))
    }

    fn with_cost(&self, units: SmallVec<[usize; 4]>) -> VictimSet {
        let copies = match units[..] {
            [unit] => self.unit_gains[unit],
            _ => self.gain_without(&units),
        };
        let copies = copies.min(self.capacity.missing().max(1));
        let mut cost = CostPerCopy { weight: 0, groups: 0, preemption_cost: 0, lost_ms: 0, copies };
        for unit in &units {
            let unit_cost = self.costs.unit(*unit);
            cost.weight += unit_cost.weight;
            cost.groups += i64::from(self.units[*unit].kind > VictimKind::Single);
            cost.preemption_cost += unit_cost.preemption_cost;
            cost.lost_ms = cost.lost_ms.saturating_add(unit_cost.lost_ms);
        }
        VictimSet { units, cost }
    }

    /// How many more pods fit on all nodes without these units.
    fn gain_without(&self, units: &[usize]) -> i64 {
        let pods = units.iter().flat_map(|unit| &self.units[*unit].pods);
        let mut gone: SmallVec<[(usize, PodId); 16]> =
            pods.filter_map(|(pod, node)| Some((self.capacity.index_of(*node)?, *pod))).collect();
        gone.sort_unstable();
        gone.chunk_by(|one, two| one.0 == two.0)
            .map(|gone| {
                let index = gone[0].0;
                let mut load = self.capacity.load(index).clone();
                for (_, pod) in gone {
                    load.sub(self.capacity.class_of(*pod));
                }
                self.capacity.copies_with(index, &load) - self.capacity.copies(index)
            })
            .sum()
    }
}

/// One node with its load without some units.
struct NodeWhatIf<'d, 'a> {
    capacity: &'d CapacityWithoutVictims<'a>,
    on_nodes: &'d UnitsByNode,
    index: usize,
    load: Load,
}

impl<'d, 'a> NodeWhatIf<'d, 'a> {
    fn new(capacity: &'d CapacityWithoutVictims<'a>, on_nodes: &'d UnitsByNode, index: usize) -> Self {
        Self { capacity, on_nodes, index, load: capacity.load(index).clone() }
    }

    /// How many more pods fit without this unit. The load is restored afterwards.
    fn gain(&mut self, on_node: &UnitOnNode) -> i64 {
        self.take(on_node);
        let gain = self.gain_now();
        self.restore(on_node);
        gain
    }

    /// The cheapest units that free enough capacity together, minus those that turn out unnecessary.
    fn lightest_together(&mut self, there: &[&UnitOnNode]) -> Option<SmallVec<[usize; 4]>> {
        let mut enough = 0;
        while enough < 2 || self.gain_now() <= 0 {
            self.take(there.get(enough)?);
            enough += 1;
        }
        let mut units = SmallVec::new();
        // Try to keep the heaviest first.
        for on_node in there[..enough].iter().rev() {
            self.restore(on_node);
            if self.gain_now() <= 0 {
                self.take(on_node);
                units.push(on_node.unit);
            }
        }
        units.reverse();
        Some(units)
    }

    fn take(&mut self, on_node: &UnitOnNode) {
        for pod in self.on_nodes.pods(on_node) {
            self.load.sub(self.capacity.class_of(*pod));
        }
    }

    fn restore(&mut self, on_node: &UnitOnNode) {
        for pod in self.on_nodes.pods(on_node) {
            self.load.add(self.capacity.class_of(*pod));
        }
    }

    /// How many more pods fit than at the start.
    fn gain_now(&self) -> i64 {
        self.capacity.copies_with(self.index, &self.load) - self.capacity.copies(self.index)
    }
}
