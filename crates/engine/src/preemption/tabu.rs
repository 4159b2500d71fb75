//! Tabu search for a cheaper set of victims, for identical pods: one unit in, another one out, again and again.
//!
//! Where each node holds pods of several units, greedy choices end up with too many of them. A set that is cheaper than
//! the best so far, and not enough, is changed unit by unit towards more room; what was changed last stays for a while.
//! A node that is nearly emptied counts almost as much as one that is, so that units that meet on nodes find together.

use super::capacity_without_victims::{CapacityWithoutVictims, VictimPod};
use super::cost::Cost;
use super::dry_run::DryRun;
use super::improve;
use super::plan::PlanInput;
use super::shrink;
use crate::placement::draws::Draws;

/// A node may hold so many different units, and all tables may have so many entries: else there is no search.
const UNITS_OF_NODE_MAX: usize = 8;
const ENTRIES_MAX: usize = 1 << 20;
/// More units are not searched.
const UNITS_MAX: usize = 20_000;
/// The number of steps: a fixed part, and a part for each unit.
const STEPS: usize = 3000;
const STEPS_OF_UNIT: usize = 4;
const STEPS_MAX: usize = 20_000;
/// The credit of room for one pod; that of a part of it is less by half for every twelfth that is missing.
const CREDIT: i32 = 4096;
const HALVINGS: i64 = 12;
/// The price of the heaviest units.
const PRICE_MAX: i64 = 64;

/// Looks for a cheaper plan than the best one, all units present before and after. Returns whether it did.
pub(super) fn search(
    capacity: &mut CapacityWithoutVictims<'_>,
    input: PlanInput<'_>,
    best: &mut (Cost, Vec<usize>),
) -> bool {
    if best.0.pdb_violations > 0 || input.units.len() > UNITS_MAX {
        return false;
    }
    let is_allowed = |unit: &usize| Some(input.units[*unit].priority) <= best.0.highest && !input.violating[*unit];
    let allowed: Vec<usize> = (0..input.units.len()).filter(is_allowed).collect();
    let Some(nodes) = Nodes::new(capacity, input, &allowed) else { return false };
    let mut tabu = Tabu::new(nodes, input, &allowed, capacity.missing());
    let Some(taken) = tabu.run(&best.1) else { return true };
    let mut taken = taken;
    for unit in &taken {
        capacity.remove(&input.units[*unit]);
    }
    let fits = capacity.fits();
    if fits {
        shrink::put_back(capacity, input.units, &mut taken);
    }
    for unit in &taken {
        capacity.restore(&input.units[*unit]);
    }
    if fits {
        improve::keep_cheaper(best, input.costs, taken);
    }
    true
}

/// The nodes that can gain room. Each has a table with an entry for every set of its units that are evicted.
struct Nodes {
    /// By node: its units, and the number of its first entry.
    units: Vec<(Vec<usize>, usize)>,
    /// By entry: how many more pods fit, and the credit for that and for what is nearly free.
    gains: Vec<i32>,
    credits: Vec<i32>,
    /// By unit: its nodes, and the bit that it has there.
    places: Vec<Vec<(usize, usize)>>,
}

impl Nodes {
    /// `None` if there are too many units on one node, or too many entries.
    fn new(capacity: &CapacityWithoutVictims<'_>, input: PlanInput<'_>, allowed: &[usize]) -> Option<Self> {
        let mut standing: Vec<(usize, usize, VictimPod<'_>)> = Vec::new();
        for unit in allowed {
            let pods = input.units[*unit].pods.iter();
            standing.extend(pods.filter_map(|(pod, node)| {
                Some((capacity.index_of(*node)?, *unit, VictimPod { unit: *unit, class: capacity.class_of(*pod) }))
            }));
        }
        standing.sort_by_key(|(index, unit, _)| (*index, *unit));
        let mut nodes = Self {
            units: Vec::new(),
            gains: Vec::new(),
            credits: Vec::new(),
            places: vec![Vec::new(); input.units.len()],
        };
        for there in standing.chunk_by(|one, other| one.0 == other.0) {
            let pods: Vec<VictimPod<'_>> = there.iter().map(|(.., pod)| *pod).collect();
            let by_unit: Vec<&[VictimPod<'_>]> = pods.chunk_by(|one, other| one.unit == other.unit).collect();
            let entries = 1_usize.checked_shl(by_unit.len() as u32).unwrap_or(usize::MAX);
            if by_unit.len() > UNITS_OF_NODE_MAX || nodes.gains.len() + entries > ENTRIES_MAX {
                return None;
            }
            nodes.add(capacity, there[0].0, &by_unit);
        }
        Some(nodes)
    }

    /// Adds a node, unless it gains nothing without all of its units.
    fn add(&mut self, capacity: &CapacityWithoutVictims<'_>, index: usize, by_unit: &[&[VictimPod<'_>]]) {
        if capacity.gain_without(index, &by_unit.concat()) <= 0 {
            return;
        }
        let (first, number) = (self.gains.len(), self.units.len());
        let entries = 1_usize << by_unit.len();
        self.gains.resize(first + entries, 0);
        self.credits.resize(first + entries, 0);
        let mut load = capacity.load(index).clone();
        let now = capacity.copies(index);
        for step in 0..entries {
            // One unit after the other leaves or returns, so that every set comes up once.
            let set = step ^ (step >> 1);
            if step > 0 {
                let bit = step.trailing_zeros() as usize;
                let leaves = set & (1 << bit) != 0;
                by_unit[bit].iter().for_each(|pod| if leaves { load.sub(pod.class) } else { load.add(pod.class) });
            }
            let copies = capacity.copies_with(index, &load);
            let gain = (copies - now).clamp(0, 1 << 12) as i32;
            let part = capacity.part_of_one_more(index, &load, copies, HALVINGS);
            self.gains[first + set] = gain;
            self.credits[first + set] = gain * CREDIT + (CREDIT >> (HALVINGS - part));
        }
        for (bit, pods) in by_unit.iter().enumerate() {
            self.places[pods[0].unit].push((number, bit));
        }
        self.units.push((by_unit.iter().map(|pods| pods[0].unit).collect(), first));
    }
}

struct Tabu {
    nodes: Nodes,
    /// By node: the set of units that are evicted there.
    sets: Vec<usize>,
    /// By unit.
    taken: Vec<bool>,
    weights: Vec<i64>,
    /// By unit: what its credit is divided by, so that cheap units come first.
    prices: Vec<i64>,
    /// By unit: the change of the credit of all nodes, if it was evicted or put back.
    changes: Vec<i64>,
    /// By unit: the credit to be added by, and the one that is lost by putting it back; extreme if that is tabu.
    to_add: Vec<i64>,
    to_put_back: Vec<i64>,
    /// What is tabu, by the step at which it ends.
    ends: Vec<Vec<usize>>,
    until: Vec<usize>,
    missing: i64,
    weight: i64,
    draws: Draws,
}

impl Tabu {
    fn new(nodes: Nodes, input: PlanInput<'_>, allowed: &[usize], missing: i64) -> Self {
        let units = input.units.len();
        let weights: Vec<i64> = (0..units).map(|unit| input.costs.unit(unit).weight.max(1)).collect();
        let heaviest = allowed.iter().map(|unit| weights[*unit]).max().unwrap_or(1);
        let price = |weight: &i64| (i128::from(*weight) * i128::from(PRICE_MAX) / i128::from(heaviest)).max(1) as i64;
        // What may not be evicted is taken as nothing: it is on no node.
        let mut tabu = Self {
            sets: vec![0; nodes.units.len()],
            nodes,
            taken: vec![false; units],
            prices: weights.iter().map(price).collect(),
            weights,
            changes: vec![0; units],
            to_add: vec![i64::MIN; units],
            to_put_back: vec![i64::MAX; units],
            ends: vec![Vec::new(); STEPS_MAX + 256],
            until: vec![0; units],
            missing,
            weight: 0,
            draws: Draws::new(),
        };
        for unit in allowed {
            tabu.changes[*unit] = tabu.nodes.places[*unit].iter().map(|(node, bit)| tabu.change(*node, *bit)).sum();
            tabu.list(*unit, 0);
        }
        tabu
    }

    /// Changes the plan. Returns the cheapest that is enough, if it is cheaper.
    fn run(&mut self, plan: &[usize]) -> Option<Vec<usize>> {
        for unit in plan {
            self.toggle(*unit, 0);
        }
        let units = self.weights.len();
        let steps = (STEPS + STEPS_OF_UNIT * units).min(STEPS_MAX);
        let tenure = 3 + units / 64;
        let (mut best, mut lightest) = (None, self.weight);
        for step in 1..=steps {
            for unit in std::mem::take(&mut self.ends[step]) {
                self.list(unit, step);
            }
            if self.missing <= 0 && self.weight < lightest || step == 1 {
                if step > 1 {
                    best = Some(self.taken_units());
                }
                lightest = self.weight;
            } else {
                let Some(unit) = self.extreme(true) else { continue };
                self.toggle(unit, step);
                let tenure = tenure + self.draws.below(tenure);
                self.forbid(unit, step + tenure.min(127));
            }
            while self.weight >= lightest {
                let Some(unit) = self.extreme(false) else { break };
                self.toggle(unit, step);
                let tenure = tenure / 2 + self.draws.below(tenure);
                self.forbid(unit, step + 1 + tenure.min(127));
            }
        }
        best
    }

    fn taken_units(&self) -> Vec<usize> {
        (0..self.taken.len()).filter(|unit| self.taken[*unit]).collect()
    }

    /// The best unit to add or to put back; of equal ones, any.
    fn extreme(&mut self, add: bool) -> Option<usize> {
        let keys = if add { &self.to_add } else { &self.to_put_back };
        let best = if add { keys.iter().max() } else { keys.iter().min() }.copied()?;
        if best == i64::MIN || best == i64::MAX {
            return None;
        }
        let begin = self.draws.below(keys.len());
        let after = keys[begin..].iter().position(|key| *key == best).map(|at| begin + at);
        after.or_else(|| keys[..begin].iter().position(|key| *key == best))
    }

    /// The change of a node's credit if one unit is evicted or put back.
    fn change(&self, node: usize, bit: usize) -> i64 {
        let credits = &self.nodes.credits[self.nodes.units[node].1..];
        let set = self.sets[node];
        i64::from(credits[set ^ (1 << bit)] - credits[set])
    }

    /// Evicts a unit or puts it back.
    fn toggle(&mut self, unit: usize, step: usize) {
        let places = std::mem::take(&mut self.nodes.places[unit]);
        for (node, bit) in &places {
            let (set, first) = (self.sets[*node], self.nodes.units[*node].1);
            let units = self.nodes.units[*node].0.len();
            for other in 0..units {
                let change = self.change(*node, other);
                self.changes[self.nodes.units[*node].0[other]] -= change;
            }
            self.sets[*node] ^= 1 << bit;
            self.missing -= i64::from(self.nodes.gains[first + self.sets[*node]] - self.nodes.gains[first + set]);
            for other in 0..units {
                let change = self.change(*node, other);
                self.changes[self.nodes.units[*node].0[other]] += change;
            }
        }
        self.nodes.places[unit] = places;
        self.taken[unit] = !self.taken[unit];
        self.weight += if self.taken[unit] { self.weights[unit] } else { -self.weights[unit] };
        for at in 0..self.nodes.places[unit].len() {
            let node = self.nodes.places[unit][at].0;
            for other in 0..self.nodes.units[node].0.len() {
                self.list(self.nodes.units[node].0[other], step);
            }
        }
        self.list(unit, step);
    }

    fn forbid(&mut self, unit: usize, until: usize) {
        self.until[unit] = until;
        if until < self.ends.len() {
            self.ends[until].push(unit);
        }
        self.to_add[unit] = i64::MIN;
        self.to_put_back[unit] = i64::MAX;
    }

    /// Updates by how much a unit changes the credit, unless it is tabu.
    fn list(&mut self, unit: usize, step: usize) {
        if step < self.until[unit] {
            return;
        }
        let (change, price) = (self.changes[unit], self.prices[unit]);
        let by_price = if price == PRICE_MAX { change } else { change * PRICE_MAX / price };
        let taken = self.taken[unit];
        self.to_add[unit] = if taken { i64::MIN } else { by_price };
        self.to_put_back[unit] = if taken { -by_price } else { i64::MAX };
    }
}
