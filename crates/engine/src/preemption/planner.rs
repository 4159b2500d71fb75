//! Chooses the victims for a group: the cheapest that any algorithm finds, first for its minimum, then for further
//! members.

use std::collections::BTreeSet;

use super::Limits;
use super::by_lot;
use super::capacity_without_victims::CapacityWithoutVictims;
use super::cost::Cost;
use super::declared_costs::{self, Effort, Exchange};
use super::dry_run::DryRun;
use super::improve::{Improvement, Proven, keep_cheaper};
use super::kep_5710::Kep5710;
use super::mixed::Mixed;
use super::plan::{NoPlan, PlanInput};
use super::shrink::{self, Search};
use super::victim_unit::{self, VictimUnit};
use crate::cluster::Cluster;
use crate::cluster::transaction::Transaction;
use crate::model::ids::{NodeId, PodId};
use crate::placement::cache::Cache;
use crate::placement::{self, PlacementRequest, Verdict};

/// With more victim units than this, sets are not enumerated.
const SEARCHED_UNITS_MAX: usize = 48;

/// The cheapest victims that were found for a request.
pub(super) struct Least {
    /// Indices of units.
    pub(super) taken: Vec<usize>,
    /// No set of victims is cheaper.
    pub(super) proven: bool,
    /// Every set has at least so many whole groups.
    pub(super) groups_min: u32,
    pub(super) request: PlacementRequest,
}

/// Looks for victims. The transaction is left unchanged by every function.
pub(super) struct Planner<'p, 'c> {
    pub(super) transaction: &'p mut Transaction<'c>,
    pub(super) cache: &'p mut Cache,
    pub(super) limits: Limits,
}

impl Planner<'_, '_> {
    /// The cheapest victims for exactly this request.
    pub(super) fn least(
        &mut self,
        request: &PlacementRequest,
        input: PlanInput<'_>,
        withheld: Option<NoPlan>,
    ) -> Result<Least, NoPlan> {
        if let Some(taken) = self.proven_at_once(request, input) {
            let proven = Proven { least: true, groups_at_least: input.costs.of(&taken).groups };
            return Ok(self.with_declared_costs(request, input, taken, proven));
        }
        match place_without(self.transaction, self.cache, request, input.units, self.limits).0 {
            Verdict::Placed => {}
            Verdict::NotFound { .. } => return Err(NoPlan::NotFound),
            Verdict::Impossible => return Err(NoPlan::of(input.units.is_empty(), withheld)),
        }
        let ((_, taken), proven) = cheapest_found(self.transaction, self.cache, request, input, self.limits)?;
        Ok(self.with_declared_costs(request, input, taken, proven))
    }

    /// Exchanges victims for others whose groups declare a lower cost. What they cost otherwise is not the least then.
    fn with_declared_costs(
        &mut self,
        request: &PlacementRequest,
        input: PlanInput<'_>,
        mut taken: Vec<usize>,
        proven: Proven,
    ) -> Least {
        let (PlanInput { units, costs, .. }, request) = (input, request.clone());
        let Proven { least: proven, groups_at_least } = proven;
        if taken.is_empty() || !costs.has_group_costs() {
            return Least { taken, proven, groups_min: groups_at_least, request };
        }
        let namespaces = declared_costs::namespaces(self.transaction.cluster(), units);
        let allowed: Vec<usize> = (0..units.len()).collect();
        let exchange = Exchange { units, costs, allowed: &allowed, namespaces: &namespaces, effort: Effort::DEAR };
        let exchanged = if capacity_is_additive(self.transaction.cluster(), &request) {
            let mut capacity = capacity_for(self.transaction.cluster(), self.cache, &request);
            Exchange { effort: Effort::CHEAP, ..exchange }.run_from(&mut capacity, &mut taken)
        } else {
            let mut mixed = Mixed::new(self.transaction, self.cache, &request, self.limits.placement_steps);
            exchange.run_from(&mut mixed, &mut taken)
        };
        Least { taken, proven: proven && !exchanged, groups_min: groups_at_least, request }
    }

    /// The cheapest victims for as many members as possible.
    pub(super) fn without_minimum(
        &mut self,
        request: &PlacementRequest,
        input: PlanInput<'_>,
        withheld: Option<NoPlan>,
    ) -> Result<Least, NoPlan> {
        let all = PlacementRequest { needs: request.pods_by_subset(), ..request.clone() };
        if let Some(taken) = self.proven_at_once(&all, input) {
            let proven = Proven { least: true, groups_at_least: input.costs.of(&taken).groups };
            return Ok(self.with_declared_costs(&all, input, taken, proven));
        }
        let most = self.most_that_fit(request, input.units)?.ok_or(NoPlan::of(input.units.is_empty(), withheld))?;
        self.least(&most, input, withheld)
    }

    /// Adds victims for members beyond the minimum: only units below all that the minimum needs, and none that violates
    /// a budget.
    pub(super) fn with_further_members(
        &mut self,
        request: &PlacementRequest,
        input: PlanInput<'_>,
        minimum: Least,
    ) -> Least {
        let PlanInput { units, costs, .. } = input;
        let pods: u64 = request.pods_by_subset().iter().map(|pods| u64::from(*pods)).sum();
        // Which groups of a tree start beyond its minimum is decided when there is room.
        if !self.limits.beyond_minimum || pods <= request.needs_total() || request.tree.is_some() {
            return minimum;
        }
        let lowest = minimum.taken.iter().map(|unit| units[*unit].priority).min();
        let is_below = |unit: &usize| lowest.is_none_or(|lowest| units[*unit].priority < lowest);
        let all_below: Vec<usize> = (0..units.len()).filter(is_below).collect();
        let budgets = costs.budgets.after(&minimum.taken, &all_below);
        let respects_budgets = |at: &usize| budgets.violations(&[*at]) == 0;
        let below: Vec<usize> = (0..all_below.len()).filter(respects_budgets).map(|at| all_below[at]).collect();
        let taken_units: Vec<VictimUnit> = minimum.taken.iter().map(|unit| units[*unit].clone()).collect();
        let below_units: Vec<VictimUnit> = below.iter().map(|unit| units[*unit].clone()).collect();
        let below_costs = costs.after(&minimum.taken, &below);
        let savepoint = self.transaction.savepoint();
        victim_unit::remove_all(self.transaction, taken_units.iter());
        let expected: usize = request.lots.iter().map(|lot| lot.expected).sum();
        let fit_anyway = self.places_without(request, &[]).map_or(0, |places| (places.len() + expected) as u64);
        let most = self.most_that_fit(request, &below_units).ok().flatten();
        let most = most.filter(|most| most.needs_total() > fit_anyway);
        let violating = below_costs.violating();
        let below_input = PlanInput { units: &below_units, violating: &violating, costs: &below_costs };
        let further = most.and_then(|most| self.least(&most, below_input, None).ok());
        self.transaction.rollback_to(savepoint);
        let Some(further) = further else { return minimum };
        if below_costs.budgets.violations(&further.taken) > 0 {
            return Least { proven: minimum.proven && further.proven, ..minimum };
        }
        let further_taken = further.taken.iter().map(|unit| below[*unit]);
        Least {
            taken: minimum.taken.iter().copied().chain(further_taken).collect(),
            proven: minimum.proven && further.proven,
            groups_min: minimum.groups_min,
            request: further.request,
        }
    }

    /// The cheapest victims for the minimums of a group of identical pods, if they are found and proven without placing
    /// pods.
    fn proven_at_once(&mut self, request: &PlacementRequest, input: PlanInput<'_>) -> Option<Vec<usize>> {
        let cluster = self.transaction.cluster();
        let is_exact = capacity_is_additive(cluster, request) && request.lots.iter().all(|lot| lot.expected == 0);
        if !self.limits.cheaper || request.lots.is_empty() || !is_exact {
            return None;
        }
        let mut capacity = capacity_for(cluster, self.cache, request);
        Improvement { capacity: &mut capacity, input }.proven_at_once().map(|(_, taken)| taken)
    }

    /// The same request with minimums raised to the number of pods that could be placed without all these units; `None`
    /// if that is not enough.
    fn most_that_fit(
        &mut self,
        request: &PlacementRequest,
        units: &[VictimUnit],
    ) -> Result<Option<PlacementRequest>, NoPlan> {
        let (verdict, places) = place_without(self.transaction, self.cache, request, units, self.limits);
        let placed: BTreeSet<PodId> = places.into_iter().map(|(pod, _)| pod).collect();
        let mut most = PlacementRequest { needs: vec![0; request.needs.len()], ..request.clone() };
        for lot in &request.lots {
            // Room for expected pods is always needed.
            let pods = lot.expected + lot.pods.iter().filter(|pod| placed.contains(pod)).count();
            most.needs[lot.subset] += pods as u32;
        }
        match verdict {
            Verdict::Placed if most.needs_total() > 0 => Ok(Some(most)),
            Verdict::NotFound { .. } => Err(NoPlan::NotFound),
            _ => Ok(None),
        }
    }

    /// Where the pods are placed without these units.
    pub(super) fn places_without(
        &mut self,
        request: &PlacementRequest,
        units: &[VictimUnit],
    ) -> Option<Vec<(PodId, NodeId)>> {
        let (verdict, places) = place_without(self.transaction, self.cache, request, units, self.limits);
        (verdict == Verdict::Placed).then_some(places)
    }
}

/// The capacity for the minimums of a request for identical pods.
pub(super) fn capacity_for<'c>(
    cluster: &'c Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
) -> CapacityWithoutVictims<'c> {
    let class = request.lots[0].class;
    let shape = (class, request.priority);
    CapacityWithoutVictims::new(cluster, cache, shape, request.within.as_ref(), request.needs_total())
}

/// Whether capacity adds up over nodes: identical pods without required inter-pod terms.
pub(super) fn capacity_is_additive(cluster: &Cluster, request: &PlacementRequest) -> bool {
    request.has_one_class()
        && !request.has_structure()
        && !request.lots.iter().any(|lot| cluster.has_required_inter_pod_terms(lot.class))
}

/// The cheapest set of victims that any algorithm finds, and whether it is proven optimal.
fn cheapest_found(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    input: PlanInput<'_>,
    limits: Limits,
) -> Result<((Cost, Vec<usize>), Proven), NoPlan> {
    let PlanInput { units, violating, costs } = input;
    let steps_max = limits.placement_steps;
    let kep_5710 =
        Kep5710 { transaction, cache, request, units, violating, steps_max }.run().ok_or(NoPlan::NotFound)?;
    let mut best = (costs.of(&kep_5710), kep_5710);
    let proven = if !limits.cheaper {
        Proven { least: best.1.is_empty(), groups_at_least: 0 }
    } else if capacity_is_additive(transaction.cluster(), request) {
        let mut capacity = capacity_for(transaction.cluster(), cache, request);
        let proven = Improvement { capacity: &mut capacity, input }.run(&mut best);
        Proven { least: proven.least || search(&mut capacity, input, limits, &mut best), ..proven }
    } else {
        let of_lots = by_lot::sets(transaction.cluster(), cache, request, input, &best);
        let mut mixed = Mixed::new(transaction, cache, request, steps_max);
        for mut taken in std::iter::once(best.1.clone()).chain(of_lots) {
            let mut fits = by_lot::complete(&mut mixed, input, &best.0, &mut taken);
            if fits {
                shrink::put_back(&mut mixed, units, &mut taken);
                fits = mixed.fits();
            }
            mixed.restore_all();
            if fits {
                keep_cheaper(&mut best, costs, taken);
            }
        }
        Proven { least: search(&mut mixed, input, limits, &mut best), groups_at_least: 0 }
    };
    Ok((best, proven))
}

/// Enumerates all victim sets if there are few units. Returns whether the best set is proven optimal.
fn search(dry_run: &mut impl DryRun, input: PlanInput<'_>, limits: Limits, best: &mut (Cost, Vec<usize>)) -> bool {
    let PlanInput { units, costs, .. } = input;
    if best.1.is_empty() {
        return true;
    }
    // Units above the highest priority of the best set cannot be part of a cheaper one, unless that would avoid
    // violating a budget.
    let highest = best.0.highest;
    let in_question = |unit: &usize| best.0.pdb_violations > 0 || Some(units[*unit].priority) <= highest;
    let order: Vec<usize> = (0..units.len()).filter(in_question).collect();
    order.len() <= SEARCHED_UNITS_MAX && Search::new(dry_run, (units, &order), costs, limits.search_steps, best).run()
}

/// The placement without these units. The transaction is left unchanged.
fn place_without(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    units: &[VictimUnit],
    limits: Limits,
) -> (Verdict, Vec<(PodId, NodeId)>) {
    let savepoint = transaction.savepoint();
    victim_unit::remove_all(transaction, units.iter());
    let verdict = placement::place(transaction, cache, request, limits.placement_steps);
    let places = transaction.placed_since(savepoint).collect();
    transaction.rollback_to(savepoint);
    (verdict, places)
}
