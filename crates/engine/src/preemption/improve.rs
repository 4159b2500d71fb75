//! Looks for a cheaper plan for identical pods: greedy by density, then a tabu search, or swaps if that is too large.
//!
//! It evicts no unit above the lowest sufficient priority, and at first no unit that would violate a budget.

use std::cmp::Reverse;

use super::capacity_without_victims::CapacityWithoutVictims;
use super::cost::{Cost, CostModel};
use super::dry_run::DryRun;
use super::greedy_by_density::GreedyByDensity;
use super::lower_bound::LowerBound;
use super::plan::PlanInput;
use super::shrink;
use super::tabu;

/// The maximum number of units of a plan to try to swap for cheaper ones.
const SWAPS_MAX: usize = 64;
/// The maximum number of pods that all swaps together may visit.
const SWAP_PODS_MAX: usize = 40_000;

/// The search for a cheaper plan. Leaves the capacity unchanged.
pub(crate) struct Improvement<'i, 'a> {
    pub(crate) capacity: &'i mut CapacityWithoutVictims<'a>,
    pub(crate) input: PlanInput<'i>,
}

/// What is proven about a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Proven {
    /// No plan is cheaper.
    pub(crate) least: bool,
    /// Every plan without victims of a higher priority evicts at least so many groups whole.
    pub(crate) groups_at_least: u32,
}

impl Proven {
    fn least(cost: &Cost) -> Self {
        Self { least: true, groups_at_least: cost.groups }
    }
}

/// Keeps the cheaper of two plans; the earlier one among equals.
pub(crate) fn keep_cheaper(best: &mut (Cost, Vec<usize>), costs: &CostModel, taken: Vec<usize>) {
    let cost = costs.of(&taken);
    if cost < best.0 {
        *best = (cost, taken);
    }
}

impl<'a> Improvement<'_, 'a> {
    /// The cheapest plan, if it is found and proven at once.
    pub(crate) fn proven_at_once(&mut self) -> Option<(Cost, Vec<usize>)> {
        let highest = self.highest_to_touch();
        let taken = self.plan_within(&[], highest, true, None)?;
        let best = (self.input.costs.of(&taken), taken);
        self.is_least(&best, &mut None).then_some(best)
    }

    /// The lowest priority such that all pods fit without the units up to it; the highest priority of all units if
    /// those below it are not enough, and `None` if all pods fit now.
    fn highest_to_touch(&mut self) -> Option<i32> {
        if self.capacity.fits() {
            return None;
        }
        let mut highest = self.input.units.first().map(|unit| unit.priority);
        let lower = self.input.units.partition_point(|unit| Some(unit.priority) == highest);
        let mut away = self.input.units.len();
        for same_priority in self.input.units[lower..].chunk_by(|one, two| one.priority == two.priority).rev() {
            away -= same_priority.len();
            for unit in same_priority {
                self.capacity.remove(unit);
            }
            if self.capacity.fits() {
                highest = same_priority.first().map(|unit| unit.priority);
                break;
            }
        }
        for unit in &self.input.units[away..] {
            self.capacity.restore(unit);
        }
        highest
    }

    /// Improves the best plan if possible. Returns what is proven about it.
    pub(crate) fn run(&mut self, best: &mut (Cost, Vec<usize>)) -> Proven {
        let mut lower_bound = None;
        if self.is_least(best, &mut lower_bound) {
            return Proven::least(&best.0);
        }
        for respect_budgets in [true, false] {
            if let Some(taken) = self.plan_within(&[], best.0.highest, respect_budgets, None) {
                keep_cheaper(best, self.input.costs, taken);
            }
            if best.0.pdb_violations == 0 {
                break;
            }
        }
        if let Some(taken) = self.plan_without_violations() {
            keep_cheaper(best, self.input.costs, taken);
        }
        if self.is_least(best, &mut lower_bound) {
            return Proven::least(&best.0);
        }
        if !tabu::search(self.capacity, self.input, best) {
            self.swap(best);
        }
        if self.is_least(best, &mut lower_bound) {
            return Proven::least(&best.0);
        }
        let groups_at_least = lower_bound.map_or(0, |mut lower_bound| {
            lower_bound.groups_at_least(self.capacity, self.input.units, self.input.costs)
        });
        Proven { least: false, groups_at_least }
    }

    /// Whether the best plan is proven optimal. The lower bound is kept for the next call.
    fn is_least(&mut self, best: &(Cost, Vec<usize>), lower_bound: &mut Option<LowerBound<'a>>) -> bool {
        let (cost, taken) = best;
        if taken.is_empty() {
            return true;
        }
        let known = lower_bound.take().filter(|lower_bound| lower_bound.is_for(cost));
        let lower_bound =
            lower_bound.insert(known.unwrap_or_else(|| LowerBound::new(self.capacity, self.input.units, cost.highest)));
        lower_bound.is_least(self.capacity, self.input.units, self.input.costs, cost)
    }

    /// Tries to replace each of the most expensive units by others.
    fn swap(&mut self, best: &mut (Cost, Vec<usize>)) {
        let mut dearest = best.1.clone();
        dearest.sort_by_key(|unit| (Reverse(self.input.units[*unit].weight()), *unit));
        let pods: usize = self.input.units.iter().map(|unit| unit.pods.len()).sum();
        for unit in dearest.into_iter().take(SWAPS_MAX.min(SWAP_PODS_MAX / pods.max(1))) {
            if !best.1.contains(&unit) {
                continue;
            }
            let kept: Vec<usize> = best.1.iter().copied().filter(|kept| *kept != unit).collect();
            if let Some(taken) = self.plan_within(&kept, best.0.highest, true, Some(unit)) {
                keep_cheaper(best, self.input.costs, taken);
            }
        }
    }

    /// A plan that evicts `first` and the best other units, except `excluded` and units above `highest` and, with
    /// `respect_budgets`, units that violate a budget.
    fn plan_within(
        &mut self,
        first: &[usize],
        highest: Option<i32>,
        respect_budgets: bool,
        excluded: Option<usize>,
    ) -> Option<Vec<usize>> {
        let PlanInput { units, violating, .. } = self.input;
        let mut is_first = vec![false; units.len()];
        for unit in first {
            is_first[*unit] = true;
        }
        let is_allowed = |unit: &usize| {
            Some(*unit) != excluded
                && Some(units[*unit].priority) <= highest
                && !(respect_budgets && violating[*unit])
                && !is_first[*unit]
        };
        let allowed: Vec<usize> = (0..units.len()).filter(is_allowed).collect();
        self.plan_with(first, allowed)
    }

    /// A plan that violates no budget and evicts only units up to the lowest possible priority. The least important
    /// units use up the budgets first.
    fn plan_without_violations(&mut self) -> Option<Vec<usize>> {
        let PlanInput { units, costs, .. } = self.input;
        let least_important_first: Vec<usize> = (0..units.len()).rev().collect();
        let violating = costs.budgets.violating(&least_important_first);
        let mut allowed = Vec::new();
        let mut fits = false;
        for (at, unit) in least_important_first.iter().enumerate() {
            if !violating[at] {
                self.capacity.remove(&units[*unit]);
                allowed.push(*unit);
            }
            let is_last = *unit == 0 || units[*unit - 1].priority > units[*unit].priority;
            fits = is_last && self.capacity.fits();
            if fits {
                break;
            }
        }
        for unit in &allowed {
            self.capacity.restore(&units[*unit]);
        }
        if fits { self.plan_with(&[], allowed) } else { None }
    }

    /// A plan that evicts `first` and the best of the allowed units.
    fn plan_with(&mut self, first: &[usize], allowed: Vec<usize>) -> Option<Vec<usize>> {
        let PlanInput { units, costs, .. } = self.input;
        for unit in first {
            self.capacity.remove(&units[*unit]);
        }
        let more = GreedyByDensity::new(self.capacity, (units, costs), allowed.into_iter()).run();
        let mut taken: Vec<usize> = first.iter().copied().chain(more.iter().flatten().copied()).collect();
        if more.is_some() {
            shrink::put_back(self.capacity, units, &mut taken);
        }
        for unit in &taken {
            self.capacity.restore(&units[*unit]);
        }
        more.map(|_| taken)
    }
}
