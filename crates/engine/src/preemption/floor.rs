//! What every plan for like pods costs at least: it shows that a plan is the cheapest where there are too many to look
//! through.
//!
//! Every pod bears an equal share of what its unit costs. For one more place on a node pods have to go that hold what is
//! missing there, and those with the smallest shares for it are the cheapest way, even if pods could go in part. Places
//! on nodes are independent, so the cheapest of them, as many as are missing, cost no more than any plan.
//! It must not be too high, ever; it may be too low.

use std::ops::Range;

use super::cost::{Cost, Price, Prices};
use super::rooms::{Held, Rooms};
use super::stage::Stage;
use super::unit::Unit;
use crate::model::ids::{PodId, ResourceId};

/// Shares are counted in parts this small, so that rounding them down loses nothing that could be seen.
const PARTS: u32 = 32;
/// More than this counts as this: products of shares and amounts stay in range.
const MEASURE_MAX: i128 = 1 << 44;

/// Parts of a cost that are sums over units, in the order of their importance.
const SUMS: [Sum; 5] = [
    Sum { of_plan: |cost| cost.priorities.into(), of_unit: |price| price.weight.into() },
    Sum { of_plan: |cost| cost.groups.into(), of_unit: |price| price.whole.into() },
    Sum { of_plan: |cost| cost.pods.into(), of_unit: |price| price.pods.into() },
    Sum { of_plan: |cost| cost.asked.into(), of_unit: |price| price.asked.into() },
    Sum { of_plan: |cost| cost.lost_ms.into(), of_unit: |price| price.lost_ms.into() },
];

/// One part of a cost: what a plan has of it, and what a unit adds to that at least.
struct Sum {
    of_plan: fn(&Cost) -> i128,
    of_unit: fn(&Price) -> i128,
}

/// What is known of the least that plans cost which hurt nobody above a priority.
pub(crate) struct Floor<'a> {
    highest: Option<i32>,
    /// Those below that priority are not enough.
    needed: bool,
    nodes: Nodes<'a>,
    /// The least of each sum, as far as it was asked for; `None` where it cannot be told.
    least: Vec<Option<i128>>,
}

impl<'a> Floor<'a> {
    /// All units are there, and are there again afterwards.
    pub(crate) fn new(rooms: &mut Rooms<'a>, units: &[Unit], highest: Option<i32>) -> Self {
        let needed = !is_enough(rooms, units.iter().filter(|unit| Some(unit.priority) < highest));
        let nodes = Nodes::new(rooms, units, highest);
        Self { highest, needed, nodes, least: Vec::new() }
    }

    /// Whether it is about plans that cost so much.
    pub(crate) fn is_for(&self, cost: &Cost) -> bool {
        self.highest == cost.highest
    }

    /// Whether no plan is cheaper than this. All units are there.
    pub(crate) fn is_least(&mut self, rooms: &Rooms<'_>, units: &[Unit], prices: &Prices, cost: &Cost) -> bool {
        if !self.is_for(cost) || !self.needed || cost.against_budgets > 0 {
            return false;
        }
        SUMS.iter().enumerate().all(|(at, sum)| {
            if self.least.len() <= at {
                self.least.push(self.nodes.at_least(rooms, units, prices, sum));
            }
            self.least[at].is_some_and(|least| least >= (sum.of_plan)(cost))
        })
    }
}

/// Whether there is room for all without these units.
fn is_enough<'u>(rooms: &mut Rooms<'_>, units: impl Iterator<Item = &'u Unit> + Clone) -> bool {
    for unit in units.clone() {
        rooms.remove(unit);
    }
    let enough = rooms.fits();
    for unit in units {
        rooms.restore(unit);
    }
    enough
}

/// Who could go from which node, node by node.
struct Nodes<'a> {
    held: Vec<Held<'a>>,
    /// What has to be freed for one more to fit.
    missing: Vec<(Option<ResourceId>, i64)>,
    /// The places that would have more room then.
    places: Vec<Place>,
}

/// A node that would have more room if all went who could.
struct Place {
    /// Where they stand.
    held: Range<usize>,
    /// Where what is missing stands.
    missing: Range<usize>,
    /// How many more would fit.
    more: i64,
}

impl<'a> Nodes<'a> {
    fn new(rooms: &Rooms<'a>, units: &[Unit], highest: Option<i32>) -> Self {
        let allowed = units.iter().enumerate().filter(|(_, unit)| Some(unit.priority) <= highest);
        let pods = allowed.flat_map(|(number, unit)| unit.pods.iter().map(move |(pod, node)| (number, *pod, *node)));
        let mut standing: Vec<(usize, usize, PodId)> =
            pods.filter_map(|(unit, pod, node)| Some((rooms.place(node)?, unit, pod))).collect();
        standing.sort_unstable();
        let held: Vec<Held<'a>> =
            standing.iter().map(|(_, unit, pod)| Held { unit: *unit, class: rooms.class_of(*pod) }).collect();
        let (mut places, mut missing) = (Vec::new(), Vec::new());
        let mut begin = 0;
        for there in standing.chunk_by(|one, two| one.0 == two.0) {
            let range = begin..begin + there.len();
            begin = range.end;
            let place = there[0].0;
            let more = rooms.more_without(place, &held[range.clone()]);
            if more > 0 {
                let first = missing.len();
                missing.extend(rooms.missing_for_one_more(place));
                places.push(Place { held: range, missing: first..missing.len(), more });
            }
        }
        Self { held, missing, places }
    }

    /// What a plan has of this at least; `None` if that cannot be told.
    fn at_least(&self, rooms: &Rooms<'_>, units: &[Unit], prices: &Prices, sum: &Sum) -> Option<i128> {
        let mut shares = Vec::with_capacity(units.len());
        for (number, unit) in units.iter().enumerate() {
            let whole = (sum.of_unit)(prices.unit(number)).min(MEASURE_MAX);
            if whole < 0 {
                return None;
            }
            shares.push((whole << PARTS) / unit.pods.len() as i128);
        }
        let mut holders = Vec::new();
        let mut offers: Vec<(i128, i64)> = Vec::with_capacity(self.places.len());
        for Place { held, missing, more } in &self.places {
            let (held, missing) = (&self.held[held.clone()], &self.missing[missing.clone()]);
            offers.push((one_more(held, missing, &shares, &mut holders), *more));
        }
        let mut missing = rooms.missing();
        // Every offer is of one place at least: no more of them are needed than are missing.
        let needed = usize::try_from(missing).unwrap_or(0);
        if needed < offers.len() {
            offers.select_nth_unstable(needed);
            offers.truncate(needed);
        }
        offers.sort_unstable();
        let mut total = 0;
        for (price, more) in offers {
            let taken = more.min(missing.max(0));
            total += price * i128::from(taken);
            missing -= taken;
        }
        let parts = 1_i128 << PARTS;
        Some((total + parts - 1) / parts)
    }
}

/// What has to go for one more place on a node at least, in shares: the scarcest resource decides. `holders` is room to
/// work in.
fn one_more(
    held: &[Held<'_>],
    missing: &[(Option<ResourceId>, i64)],
    shares: &[i128],
    holders: &mut Vec<(i128, i128)>,
) -> i128 {
    let mut most = 0;
    for (resource, missing) in missing {
        holders.clear();
        let amounts = held.iter().map(|held| (shares[held.unit], i128::from(held.amount(*resource))));
        holders.extend(amounts.filter(|(_, amount)| *amount > 0));
        holders.sort_unstable_by(|one, two| (one.0 * two.1).cmp(&(two.0 * one.1)));
        let (mut left, mut sum) = (i128::from(*missing), 0);
        for (share, amount) in holders.iter() {
            let part = left.min(*amount);
            sum += if part == *amount { *share } else { share * part / amount };
            left -= part;
            if left == 0 {
                break;
            }
        }
        most = most.max(sum);
    }
    most
}
