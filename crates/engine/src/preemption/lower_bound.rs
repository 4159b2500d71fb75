//! Lower bound of the cost of any plan for identical pods: it proves a plan optimal where there are too many sets to
//! enumerate.
//!
//! Every pod carries an equal share of the cost of its unit. For one more pod on a node, pods must leave that hold what
//! is missing there; the cheapest way is to take those with the lowest share per amount, fractionally. Nodes are
//! independent, so the cheapest gains, as many as are missing, cost no more than any plan. The bound must never be too
//! high; it may be too low.

use std::ops::Range;

use super::capacity_without_victims::{CapacityWithoutVictims, VictimPod};
use super::cost::{Cost, CostModel, UnitCost};
use super::dry_run::DryRun;
use super::victim_unit::VictimUnit;
use crate::model::ids::{PodId, ResourceId};

/// The bits of the fraction of a share, so that rounding down loses nothing significant.
const FRACTION_BITS: u32 = 32;
/// Larger values are clamped to this, so that products of shares and amounts do not overflow.
const AMOUNT_MAX: i128 = 1 << 44;

/// The fields of a cost that are sums over units, most important first.
const SUMS: [Sum; 5] = [
    Sum { of_plan: |cost| cost.priorities.into(), of_unit: |unit| unit.weight.into() },
    Sum { of_plan: |cost| cost.groups.into(), of_unit: |unit| unit.whole.into() },
    Sum { of_plan: |cost| cost.pods.into(), of_unit: |unit| unit.pods.into() },
    Sum { of_plan: |cost| cost.preemption_cost.into(), of_unit: |unit| unit.preemption_cost.into() },
    Sum { of_plan: |cost| cost.lost_ms.into(), of_unit: |unit| unit.lost_ms.into() },
];

/// One field of a cost: its value for a plan, and the least that a unit adds to it.
struct Sum {
    of_plan: fn(&Cost) -> i128,
    of_unit: fn(&UnitCost) -> i128,
}

/// The lower bound for plans without victims above a priority.
pub(crate) struct LowerBound<'a> {
    highest: Option<i32>,
    /// Units below that priority are not enough.
    needed: bool,
    nodes: VictimPods<'a>,
    /// The lower bound of each sum, computed on demand; `None` where there is none.
    least: Vec<Option<i128>>,
}

impl<'a> LowerBound<'a> {
    /// All units are present, before and after the call.
    pub(crate) fn new(capacity: &mut CapacityWithoutVictims<'a>, units: &[VictimUnit], highest: Option<i32>) -> Self {
        let needed = !is_enough(capacity, units.iter().filter(|unit| Some(unit.priority) < highest));
        let nodes = VictimPods::new(capacity, units, highest);
        Self { highest, needed, nodes, least: Vec::new() }
    }

    /// Whether the bound applies to plans of this cost.
    pub(crate) fn is_for(&self, cost: &Cost) -> bool {
        self.highest == cost.highest
    }

    /// Whether no plan is cheaper than this. All units are present.
    pub(crate) fn is_least(
        &mut self,
        capacity: &CapacityWithoutVictims<'_>,
        units: &[VictimUnit],
        costs: &CostModel,
        cost: &Cost,
    ) -> bool {
        if !self.is_for(cost) || !self.needed || cost.pdb_violations > 0 {
            return false;
        }
        SUMS.iter()
            .enumerate()
            .all(|(at, sum)| self.least(capacity, units, costs, at).is_some_and(|least| least >= (sum.of_plan)(cost)))
    }

    /// The least number of groups that any plan without victims above that priority evicts whole. All units are
    /// present.
    pub(crate) fn groups_at_least(
        &mut self,
        capacity: &CapacityWithoutVictims<'_>,
        units: &[VictimUnit],
        costs: &CostModel,
    ) -> u32 {
        let least = self.least(capacity, units, costs, GROUPS).unwrap_or(0);
        u32::try_from(least).unwrap_or(0)
    }

    /// The lower bound of the sum at this position.
    fn least(
        &mut self,
        capacity: &CapacityWithoutVictims<'_>,
        units: &[VictimUnit],
        costs: &CostModel,
        at: usize,
    ) -> Option<i128> {
        while self.least.len() <= at {
            let sum = &SUMS[self.least.len()];
            self.least.push(self.nodes.at_least(capacity, units, costs, sum));
        }
        self.least[at]
    }
}

/// The position of the number of groups among the sums.
const GROUPS: usize = 1;

/// Whether all pods fit without these units.
fn is_enough<'u>(
    capacity: &mut CapacityWithoutVictims<'_>,
    units: impl Iterator<Item = &'u VictimUnit> + Clone,
) -> bool {
    for unit in units.clone() {
        capacity.remove(unit);
    }
    let enough = capacity.fits();
    for unit in units {
        capacity.restore(unit);
    }
    enough
}

/// The pods that can be evicted, by node.
struct VictimPods<'a> {
    held: Vec<VictimPod<'a>>,
    /// What must be freed for one more pod to fit.
    missing: Vec<(Option<ResourceId>, i64)>,
    /// The nodes that would have more room without these pods.
    nodes: Vec<NodeGain>,
}

/// A node that would have more room without all pods that can be evicted.
struct NodeGain {
    /// The range of its pods in `held`.
    held: Range<usize>,
    /// The range of its missing amounts in `missing`.
    missing: Range<usize>,
    /// How many more pods would fit.
    gain: i64,
}

impl<'a> VictimPods<'a> {
    fn new(capacity: &CapacityWithoutVictims<'a>, units: &[VictimUnit], highest: Option<i32>) -> Self {
        let allowed = units.iter().enumerate().filter(|(_, unit)| Some(unit.priority) <= highest);
        let pods = allowed.flat_map(|(number, unit)| unit.pods.iter().map(move |(pod, node)| (number, *pod, *node)));
        let mut standing: Vec<(usize, usize, PodId)> =
            pods.filter_map(|(unit, pod, node)| Some((capacity.index_of(node)?, unit, pod))).collect();
        standing.sort_unstable();
        let held: Vec<VictimPod<'a>> =
            standing.iter().map(|(_, unit, pod)| VictimPod { unit: *unit, class: capacity.class_of(*pod) }).collect();
        let (mut nodes, mut missing) = (Vec::new(), Vec::new());
        let mut begin = 0;
        for there in standing.chunk_by(|one, two| one.0 == two.0) {
            let range = begin..begin + there.len();
            begin = range.end;
            let index = there[0].0;
            let gain = capacity.gain_without(index, &held[range.clone()]);
            if gain > 0 {
                let first = missing.len();
                missing.extend(capacity.missing_for_one_more(index));
                nodes.push(NodeGain { held: range, missing: first..missing.len(), gain });
            }
        }
        Self { held, missing, nodes }
    }

    /// The lower bound of this sum; `None` if there is none.
    fn at_least(
        &self,
        capacity: &CapacityWithoutVictims<'_>,
        units: &[VictimUnit],
        costs: &CostModel,
        sum: &Sum,
    ) -> Option<i128> {
        let mut shares = Vec::with_capacity(units.len());
        for (number, unit) in units.iter().enumerate() {
            let whole = (sum.of_unit)(costs.unit(number)).min(AMOUNT_MAX);
            if whole < 0 {
                return None;
            }
            shares.push((whole << FRACTION_BITS) / unit.pods.len() as i128);
        }
        let mut holders = Vec::new();
        let mut gains: Vec<(i128, i64)> = Vec::with_capacity(self.nodes.len());
        for NodeGain { held, missing, gain } in &self.nodes {
            let (held, missing) = (&self.held[held.clone()], &self.missing[missing.clone()]);
            gains.push((cost_of_one_more(held, missing, &shares, &mut holders), *gain));
        }
        let mut missing = capacity.missing();
        // Every node gains at least one place: no more nodes are needed than places are missing.
        let needed = usize::try_from(missing).unwrap_or(0);
        if needed < gains.len() {
            gains.select_nth_unstable(needed);
            gains.truncate(needed);
        }
        gains.sort_unstable();
        let mut total = 0;
        for (cost, gain) in gains {
            let taken = gain.min(missing.max(0));
            total += cost * i128::from(taken);
            missing -= taken;
        }
        let parts = 1_i128 << FRACTION_BITS;
        Some((total + parts - 1) / parts)
    }
}

/// The lower bound, in shares, of what must leave for one more pod on a node: the scarcest resource decides. `holders`
/// is a reused buffer.
fn cost_of_one_more(
    held: &[VictimPod<'_>],
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
