//! Taking away what frees the most for the least, for like pods.
//!
//! A pod often needs several units gone from one node, so what is weighed is a bundle: the units whose going makes room
//! for one more on a node, with everything that it frees on other nodes. The best bundle is taken until there is room
//! for all; only nodes that it touched are looked at again. It is a good guess, not an exact answer.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::rooms::Rooms;
use super::stage::Stage;
use super::unit::{Kind, Unit};
use crate::model::ids::PodId;

/// Units that make room together.
#[derive(Clone, Debug)]
struct Bundle {
    units: Vec<usize>,
    price: Price,
}

/// What a bundle frees, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Price {
    weight: i64,
    groups: i64,
    copies: i64,
}

impl Price {
    /// Cheaper for each copy first; fewer groups for each copy among equals; more copies among those.
    fn compare(&self, other: &Self) -> Ordering {
        let cross = |own: i64, others: i64| {
            (i128::from(own) * i128::from(other.copies)).cmp(&(i128::from(others) * i128::from(self.copies)))
        };
        cross(self.weight, other.weight)
            .then_with(|| cross(self.groups, other.groups))
            .then_with(|| other.copies.cmp(&self.copies))
    }
}

/// A node's best bundle in the heap: the cheapest comes first.
struct Entry {
    price: Price,
    place: usize,
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
        other.price.compare(&self.price).then_with(|| other.place.cmp(&self.place))
    }
}

/// A unit on a node: its number, and which of its pods are there.
#[derive(Clone, Debug)]
struct Stake {
    unit: usize,
    pods: Vec<PodId>,
}

/// Takes units away until there is room for all.
pub(crate) struct Greedy<'g, 'a> {
    rooms: &'g mut Rooms<'a>,
    units: &'g [Unit],
    /// Units that may be taken, by the place of a node, lightest first.
    stakes: Vec<Vec<Stake>>,
    taken: Vec<bool>,
    /// How many copies a unit frees alone, as long as that is known.
    alone: Vec<Option<i64>>,
    stamps: Vec<u32>,
    heap: BinaryHeap<Entry>,
}

impl<'g, 'a> Greedy<'g, 'a> {
    /// `allowed` are the places of units that may be taken; all units are there.
    pub(crate) fn new(rooms: &'g mut Rooms<'a>, units: &'g [Unit], allowed: impl Iterator<Item = usize>) -> Self {
        let mut stakes: Vec<Vec<Stake>> = vec![Vec::new(); rooms.len()];
        let mut lightest_first: Vec<usize> = allowed.collect();
        lightest_first.sort_unstable_by_key(|unit| (units[*unit].weight(), units[*unit].kind, *unit));
        for unit in lightest_first {
            for (pod, node) in &units[unit].pods {
                let Some(place) = rooms.place(*node) else { continue };
                match stakes[place].last_mut().filter(|stake| stake.unit == unit) {
                    Some(stake) => stake.pods.push(*pod),
                    None => stakes[place].push(Stake { unit, pods: vec![*pod] }),
                }
            }
        }
        let (stamps, taken, alone) = (vec![0; stakes.len()], vec![false; units.len()], vec![None; units.len()]);
        Self { rooms, units, stakes, taken, alone, stamps, heap: BinaryHeap::new() }
    }

    /// Takes the best bundles until there is room for all. Answers the units that were taken, which stay away; `None`,
    /// with everything put back, if there is never enough.
    pub(crate) fn run(&mut self) -> Option<Vec<usize>> {
        for place in 0..self.stakes.len() {
            self.look(place);
        }
        while self.rooms.missing() > 0 {
            let Some(entry) = self.heap.pop() else {
                for unit in self.list() {
                    self.rooms.restore(&self.units[unit]);
                }
                return None;
            };
            if entry.stamp != self.stamps[entry.place] {
                continue;
            }
            let Some(bundle) = self.bundle(entry.place) else { continue };
            if bundle.price.compare(&entry.price) == Ordering::Greater {
                // It got dearer since: others may come first now.
                self.heap.push(Entry { price: bundle.price, ..entry });
                continue;
            }
            self.take(&bundle);
        }
        Some(self.list())
    }

    fn list(&self) -> Vec<usize> {
        self.taken.iter().enumerate().filter(|(_, taken)| **taken).map(|(unit, _)| unit).collect()
    }

    fn take(&mut self, bundle: &Bundle) {
        let mut touched = Vec::new();
        for unit in &bundle.units {
            self.rooms.remove(&self.units[*unit]);
            self.taken[*unit] = true;
            touched.extend(self.units[*unit].pods.iter().filter_map(|(_, node)| self.rooms.place(*node)));
        }
        touched.sort_unstable();
        touched.dedup();
        for place in &touched {
            for stake in &self.stakes[*place] {
                self.alone[stake.unit] = None;
            }
        }
        for place in touched {
            self.look(place);
        }
    }

    /// Looks at a node afresh.
    fn look(&mut self, place: usize) {
        self.stamps[place] += 1;
        if let Some(bundle) = self.bundle(place) {
            self.heap.push(Entry { price: bundle.price, place, stamp: self.stamps[place] });
        }
    }

    /// The cheapest units found whose going makes room for one more at a place: one that is enough alone, or the
    /// lightest together.
    fn bundle(&mut self, place: usize) -> Option<Bundle> {
        let there: Vec<&Stake> = self.stakes[place].iter().filter(|stake| !self.taken[stake.unit]).collect();
        let alone = there.iter().find(|stake| self.makes_room(place, &[stake])).map(|stake| vec![stake.unit]);
        let together = self.lightest_together(place, &there);
        let bundles: Vec<Bundle> = alone.into_iter().chain(together).map(|units| self.priced(units)).collect();
        bundles.into_iter().min_by(|one, two| one.price.compare(&two.price))
    }

    fn lightest_together(&self, place: usize, there: &[&Stake]) -> Option<Vec<usize>> {
        let enough = (2..=there.len()).find(|count| self.makes_room(place, &there[..*count]))?;
        let mut stakes = there[..enough].to_vec();
        // The heaviest that is not needed after all goes first.
        for at in (0..enough).rev().filter(|_| enough > 1) {
            let mut fewer = stakes.clone();
            fewer.remove(at);
            if !fewer.is_empty() && self.makes_room(place, &fewer) {
                stakes = fewer;
            }
        }
        Some(stakes.iter().map(|stake| stake.unit).collect())
    }

    /// Whether one more fits at a place without these units.
    fn makes_room(&self, place: usize, stakes: &[&Stake]) -> bool {
        let mut load = self.rooms.load(place).clone();
        for pod in stakes.iter().flat_map(|stake| &stake.pods) {
            load.sub(self.rooms.class_of(*pod));
        }
        self.rooms.copies_with(place, &load) > self.rooms.copies(place)
    }

    fn priced(&mut self, units: Vec<usize>) -> Bundle {
        let copies = match units[..] {
            [unit] => self.alone[unit].unwrap_or_else(|| self.freed(&units)),
            _ => self.freed(&units),
        };
        if let [unit] = units[..] {
            self.alone[unit] = Some(copies);
        }
        let weight = units.iter().map(|unit| self.units[*unit].weight()).sum();
        let groups = units.iter().filter(|unit| self.units[**unit].kind > Kind::Single).count() as i64;
        Bundle { units, price: Price { weight, groups, copies: copies.min(self.rooms.missing().max(1)) } }
    }

    /// How many more fit, on all nodes, without these units.
    fn freed(&mut self, units: &[usize]) -> i64 {
        let before = self.rooms.total();
        for unit in units {
            self.rooms.remove(&self.units[*unit]);
        }
        let freed = self.rooms.total() - before;
        for unit in units {
            self.rooms.restore(&self.units[*unit]);
        }
        freed
    }
}
