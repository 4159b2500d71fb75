//! Taking away what frees the most for the least, for like pods.
//!
//! A pod often needs several units gone from one node, so what is weighed is a bundle: the units whose going makes room
//! for one more on a node, with everything that it frees on other nodes. The best bundle is taken until there is room
//! for all; only nodes that it touched are looked at again. It is a good guess, not an exact answer.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::ops::Range;

use smallvec::{SmallVec, smallvec};

use super::cost::Prices;
use super::rooms::Rooms;
use super::stage::Stage;
use super::unit::{Kind, Unit};
use crate::cluster::load::Load;
use crate::model::ids::PodId;

/// Units that make room together.
#[derive(Clone, Debug)]
struct Bundle {
    units: SmallVec<[usize; 4]>,
    price: Price,
}

/// What a bundle frees, and what for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Price {
    weight: i64,
    groups: i64,
    asked: i64,
    lost_ms: u64,
    copies: i64,
}

impl Price {
    /// Cheaper for each copy first, in the order of a plan's cost; more copies among equals.
    fn compare(&self, other: &Self) -> Ordering {
        let cross = |own: i128, others: i128| (own * i128::from(other.copies)).cmp(&(others * i128::from(self.copies)));
        cross(self.weight.into(), other.weight.into())
            .then_with(|| cross(self.groups.into(), other.groups.into()))
            .then_with(|| cross(self.asked.into(), other.asked.into()))
            .then_with(|| cross(self.lost_ms.into(), other.lost_ms.into()))
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
    pods: Range<usize>,
}

/// Who stands where. All nodes share two lists: one for each would be as many allocations as there are nodes.
#[derive(Clone, Debug)]
struct Stakes {
    pods: Vec<PodId>,
    /// Node by node, lightest first.
    all: Vec<Stake>,
    /// By the place of a node: where its stakes begin; those of the next end them.
    begins: Vec<usize>,
}

impl Stakes {
    /// Of these units, lightest first, on all nodes that would do.
    fn new(rooms: &Rooms<'_>, units: &[Unit], lightest_first: &[usize]) -> Self {
        let mut standing: Vec<(usize, usize, PodId)> = Vec::new();
        for (rank, unit) in lightest_first.iter().enumerate() {
            let pods = units[*unit].pods.iter();
            standing.extend(pods.filter_map(|(pod, node)| Some((rooms.place(*node)?, rank, *pod))));
        }
        standing.sort_unstable();
        let mut stakes =
            Self { pods: standing.iter().map(|(.., pod)| *pod).collect(), all: Vec::new(), begins: Vec::new() };
        let mut begin = 0;
        for there in standing.chunk_by(|one, two| (one.0, one.1) == (two.0, two.1)) {
            let (place, rank, _) = there[0];
            stakes.begins.resize(place + 1, stakes.all.len());
            stakes.all.push(Stake { unit: lightest_first[rank], pods: begin..begin + there.len() });
            begin += there.len();
        }
        stakes.begins.resize(rooms.len() + 1, stakes.all.len());
        stakes
    }

    /// Where those on a node stand in the list.
    fn range(&self, place: usize) -> Range<usize> {
        self.begins[place]..self.begins[place + 1]
    }

    /// Those on a node.
    fn at(&self, place: usize) -> &[Stake] {
        &self.all[self.range(place)]
    }

    fn pods(&self, stake: &Stake) -> &[PodId] {
        &self.pods[stake.pods.clone()]
    }
}

/// Takes units away until there is room for all.
pub(crate) struct Greedy<'g, 'a> {
    rooms: &'g mut Rooms<'a>,
    units: &'g [Unit],
    prices: &'g Prices,
    /// Units that may be taken.
    stakes: Stakes,
    taken: Vec<bool>,
    /// How many more would fit on its node without a stake.
    gains: Vec<i64>,
    /// How many more would fit on all nodes without a unit: the sum of its gains.
    alone: Vec<i64>,
    stamps: Vec<u32>,
    heap: BinaryHeap<Entry>,
}

impl<'g, 'a> Greedy<'g, 'a> {
    /// `allowed` are the places of units that may be taken; all units are there.
    pub(crate) fn new(
        rooms: &'g mut Rooms<'a>,
        (units, prices): (&'g [Unit], &'g Prices),
        allowed: impl Iterator<Item = usize>,
    ) -> Self {
        let mut lightest_first: Vec<usize> = allowed.collect();
        lightest_first.sort_unstable_by_key(|unit| {
            let price = prices.unit(*unit);
            (price.weight, units[*unit].kind, price.asked, price.lost_ms, *unit)
        });
        let stakes = Stakes::new(rooms, units, &lightest_first);
        let (gains, alone) = (vec![0; stakes.all.len()], vec![0; units.len()]);
        let (stamps, taken) = (vec![0; rooms.len()], vec![false; units.len()]);
        Self { rooms, units, prices, stakes, taken, gains, alone, stamps, heap: BinaryHeap::new() }
    }

    /// Takes the best bundles until there is room for all. Answers the units that were taken, which stay away; `None`,
    /// with everything put back, if there is never enough.
    pub(crate) fn run(&mut self) -> Option<Vec<usize>> {
        for place in 0..self.rooms.len() {
            self.weigh(place);
        }
        for place in 0..self.rooms.len() {
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
            self.weigh(*place);
        }
        for place in touched {
            self.look(place);
        }
    }

    /// Finds out afresh how much each stake on a node holds back.
    fn weigh(&mut self, place: usize) {
        let there = self.stakes.range(place);
        if there.is_empty() {
            return;
        }
        let mut desk = Desk::new(self.rooms, &self.stakes, place);
        for at in there {
            let stake = &self.stakes.all[at];
            let gain = if self.taken[stake.unit] { 0 } else { desk.gain(stake) };
            self.alone[stake.unit] += gain - self.gains[at];
            self.gains[at] = gain;
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
    fn bundle(&self, place: usize) -> Option<Bundle> {
        let mut there = self.stakes.range(place);
        let alone = there.find(|at| self.gains[*at] > 0).map(|at| smallvec![self.stakes.all[at].unit]);
        let there: SmallVec<[&Stake; 8]> =
            self.stakes.at(place).iter().filter(|stake| !self.taken[stake.unit]).collect();
        let desk = (there.len() > 1).then(|| Desk::new(self.rooms, &self.stakes, place));
        let together = desk.and_then(|mut desk| desk.lightest_together(&there));
        let bundles: SmallVec<[Bundle; 2]> =
            alone.into_iter().chain(together).map(|units| self.priced(units)).collect();
        bundles.into_iter().min_by(|one, two| one.price.compare(&two.price))
    }

    fn priced(&self, units: SmallVec<[usize; 4]>) -> Bundle {
        let copies = match units[..] {
            [unit] => self.alone[unit],
            _ => self.freed(&units),
        };
        let copies = copies.min(self.rooms.missing().max(1));
        let mut price = Price { weight: 0, groups: 0, asked: 0, lost_ms: 0, copies };
        for unit in &units {
            let of_one = self.prices.unit(*unit);
            price.weight += of_one.weight;
            price.groups += i64::from(self.units[*unit].kind > Kind::Single);
            price.asked += of_one.asked;
            price.lost_ms = price.lost_ms.saturating_add(of_one.lost_ms);
        }
        Bundle { units, price }
    }

    /// How many more fit, on all nodes, without these units.
    fn freed(&self, units: &[usize]) -> i64 {
        let pods = units.iter().flat_map(|unit| &self.units[*unit].pods);
        let mut gone: SmallVec<[(usize, PodId); 16]> =
            pods.filter_map(|(pod, node)| Some((self.rooms.place(*node)?, *pod))).collect();
        gone.sort_unstable();
        gone.chunk_by(|one, two| one.0 == two.0)
            .map(|gone| {
                let place = gone[0].0;
                let mut load = self.rooms.load(place).clone();
                for (_, pod) in gone {
                    load.sub(self.rooms.class_of(*pod));
                }
                self.rooms.copies_with(place, &load) - self.rooms.copies(place)
            })
            .sum()
    }
}

/// One node, with its load as it would be without some units.
struct Desk<'d, 'a> {
    rooms: &'d Rooms<'a>,
    stakes: &'d Stakes,
    place: usize,
    load: Load,
}

impl<'d, 'a> Desk<'d, 'a> {
    fn new(rooms: &'d Rooms<'a>, stakes: &'d Stakes, place: usize) -> Self {
        Self { rooms, stakes, place, load: rooms.load(place).clone() }
    }

    /// How many more fit without this one. Everybody is there, and is there again afterwards.
    fn gain(&mut self, stake: &Stake) -> i64 {
        self.take(stake);
        let gain = self.more();
        self.give_back(stake);
        gain
    }

    /// The lightest units that are enough together, without those that are not needed after all.
    fn lightest_together(&mut self, there: &[&Stake]) -> Option<SmallVec<[usize; 4]>> {
        let mut enough = 0;
        while enough < 2 || self.more() <= 0 {
            self.take(there.get(enough)?);
            enough += 1;
        }
        let mut units = SmallVec::new();
        // The heaviest is asked first whether it can stay.
        for stake in there[..enough].iter().rev() {
            self.give_back(stake);
            if self.more() <= 0 {
                self.take(stake);
                units.push(stake.unit);
            }
        }
        units.reverse();
        Some(units)
    }

    fn take(&mut self, stake: &Stake) {
        for pod in self.stakes.pods(stake) {
            self.load.sub(self.rooms.class_of(*pod));
        }
    }

    fn give_back(&mut self, stake: &Stake) {
        for pod in self.stakes.pods(stake) {
            self.load.add(self.rooms.class_of(*pod));
        }
    }

    /// How many more fit than do now.
    fn more(&self) -> i64 {
        self.rooms.copies_with(self.place, &self.load) - self.rooms.copies(self.place)
    }
}
