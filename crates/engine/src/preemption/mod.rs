//! Preemption: computes which victims of lower priority to evict for a pending pod or group, and at what cost.
//!
//! Planning changes nothing: the result is a [`Plan`] or the reason why there is none. A plan places every pod that it
//! is for; its execution nominates these pods and evicts all victim units of the plan or none.
//!
//! `victim_candidates` lists the possible victims, `budgets` the disruption budgets that cover them, `cost` the cost of a set
//! of them. `node` plans for a single pod, node by node like kube-scheduler. For a group of identical pods, `improve`
//! and `greedy_by_density` look for a cheap set of victims by `capacity_without_victims`, and `lower_bound` computes
//! the least cost of any plan, which usually proves a plan optimal at once. Where it does not, `kep_5710` runs the
//! algorithm of KEP-5710, `mixed` places groups of different pods, and `shrink` removes unnecessary victims, or
//! enumerates all sets if there are few. The cheapest result wins, so a plan never costs more than that of KEP-5710.

mod budgets;
mod capacity_without_victims;
mod cost;
mod dry_run;
mod greedy_by_density;
mod improve;
mod kep_5710;
mod lower_bound;
mod mixed;
mod node;
mod plan;
mod shrink;
mod victim_candidates;
mod victim_unit;

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::cluster::transaction::Transaction;
use crate::model::ids::{NodeId, PodId};
use crate::placement::cache::Cache;
use crate::placement::{self, PlacementRequest, Verdict};
use capacity_without_victims::CapacityWithoutVictims;
pub use cost::Cost;
use cost::{CostModel, Loss};
use dry_run::DryRun;
use improve::{Improvement, keep_cheaper};
use kep_5710::Kep5710;
use mixed::Mixed;
pub(crate) use node::for_pod;
pub(crate) use plan::Plan;
use plan::PlanInput;
pub use plan::{NoPlan, PlanSummary, Victim};
use shrink::Search;
use victim_candidates::VictimCandidates;
pub(crate) use victim_candidates::{VictimRules, is_evicted_whole};
pub(crate) use victim_unit::VictimUnit;

/// With more victim units than this, sets are not enumerated.
const SEARCHED_UNITS_MAX: usize = 48;

/// The effort limits for a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum steps of each placement search.
    pub(crate) placement_steps: u64,
    /// The maximum steps of the enumeration of victim sets.
    pub(crate) search_steps: u64,
    /// Whether to look for a plan that is cheaper than that of KEP-5710.
    pub(crate) cheaper: bool,
}

/// Plans preemption for a group. The transaction shows the cluster as the group sees it, without terminating pods, and
/// is left unchanged.
pub(crate) fn for_group(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    rules: VictimRules,
    limits: Limits,
) -> Result<Plan, NoPlan> {
    let VictimCandidates { units, withheld } =
        victim_candidates::candidates_below(transaction.cluster(), request.priority, rules);
    let costs = CostModel::new(transaction.cluster(), &units, Loss::Sum, rules.now);
    let all: Vec<usize> = (0..units.len()).collect();
    let input = PlanInput { units: &units, violating: &costs.budgets.violating(&all), costs: &costs };
    let proven_at_once =
        if limits.cheaper { proven_at_once(transaction.cluster(), cache, request, input) } else { None };
    let (request, best, proven) = if let Some(best) = proven_at_once {
        (request.clone(), best, true)
    } else {
        let most = most_that_fit(transaction, cache, request, &units, limits)?;
        let request = most.ok_or(NoPlan::of(units.is_empty(), withheld))?;
        let (best, proven) = cheapest_found(transaction, cache, &request, input, limits)?;
        (request, best, proven)
    };
    let (cost, mut taken) = best;
    if rules.respects_budgets && cost.pdb_violations > 0 {
        return Err(NoPlan::Budgets);
    }
    taken.sort_unstable();
    let units: Vec<VictimUnit> = taken.iter().map(|unit| units[*unit].clone()).collect();
    let (verdict, places) = place_without(transaction, cache, &request, &units, limits);
    if verdict != Verdict::Placed {
        return Err(NoPlan::NotFound);
    }
    Ok(Plan { places, units, cost, proven })
}

/// The cheapest plan for all pods of a group of identical pods, if it is found and proven without placing pods.
fn proven_at_once(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    input: PlanInput<'_>,
) -> Option<(Cost, Vec<usize>)> {
    if !capacity_is_additive(cluster, request) || request.lots.iter().any(|lot| lot.expected > 0) {
        return None;
    }
    let class = request.lots.first()?.class;
    let pods = request.lots.iter().map(|lot| lot.pods.len() as u64).sum();
    let mut capacity = CapacityWithoutVictims::new(cluster, cache, class, request.priority, pods);
    Improvement { capacity: &mut capacity, input }.proven_at_once()
}

/// Whether capacity adds up over nodes: identical pods without required inter-pod terms.
fn capacity_is_additive(cluster: &Cluster, request: &PlacementRequest) -> bool {
    request.has_one_class() && !request.lots.iter().any(|lot| cluster.class(lot.class).has_required_inter_pod_terms())
}

/// The cheapest set of victims that any algorithm finds, and whether it is proven optimal.
fn cheapest_found(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    input: PlanInput<'_>,
    limits: Limits,
) -> Result<((Cost, Vec<usize>), bool), NoPlan> {
    let PlanInput { units, violating, costs } = input;
    let steps_max = limits.placement_steps;
    let kep_5710 =
        Kep5710 { transaction, cache, request, units, violating, steps_max }.run().ok_or(NoPlan::NotFound)?;
    let mut best = (costs.of(&kep_5710), kep_5710);
    let proven = if !limits.cheaper {
        best.1.is_empty()
    } else if capacity_is_additive(transaction.cluster(), request) {
        let mut capacity = CapacityWithoutVictims::new(
            transaction.cluster(),
            cache,
            request.lots[0].class,
            request.priority,
            request.needs_total(),
        );
        Improvement { capacity: &mut capacity, input }.run(&mut best) || search(&mut capacity, input, limits, &mut best)
    } else {
        let mut mixed = Mixed::new(transaction, cache, request, steps_max);
        let mut taken = best.1.clone();
        for unit in &taken {
            mixed.remove(&units[*unit]);
        }
        shrink::put_back(&mut mixed, units, &mut taken);
        mixed.restore_all();
        keep_cheaper(&mut best, costs, taken);
        search(&mut mixed, input, limits, &mut best)
    };
    Ok((best, proven))
}

/// The same request with minimums raised to the number of pods that could be placed without all victims; `None` if that
/// is not enough.
fn most_that_fit(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    units: &[VictimUnit],
    limits: Limits,
) -> Result<Option<PlacementRequest>, NoPlan> {
    let (verdict, places) = place_without(transaction, cache, request, units, limits);
    let placed: BTreeSet<PodId> = places.into_iter().map(|(pod, _)| pod).collect();
    let mut most = PlacementRequest { needs: vec![0; request.needs.len()], ..request.clone() };
    for lot in &request.lots {
        most.needs[lot.subset] += lot.pods.iter().filter(|pod| placed.contains(pod)).count() as u32;
    }
    match verdict {
        Verdict::Placed if most.needs_total() > 0 => Ok(Some(most)),
        Verdict::NotFound { .. } => Err(NoPlan::NotFound),
        _ => Ok(None),
    }
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
