//! Preemption: computes which victims of lower priority to evict for a pending pod or group, and at what cost.
//!
//! Planning changes nothing: the result is a [`Plan`] or the reason why there is none. A plan places every pod that it
//! is for; its execution nominates these pods and evicts all victim units of the plan or none.
//!
//! `victim_candidates` lists the possible victims, `budgets` the disruption budgets that cover them, `cost` the cost of a
//! set of them. `node` plans for a single pod, node by node like kube-scheduler. `planner` plans for a group: `improve`,
//! `greedy_by_density` and `tabu` look for a cheap set of victims by `capacity_without_victims`, and `lower_bound`
//! computes the least cost of any plan, which usually proves a plan optimal at once. Where it does not, `kep_5710` runs
//! the algorithm of KEP-5710, `mixed` places groups of different pods, for which `by_lot` begins with the victims for
//! some of them, and `shrink` removes unnecessary victims, or enumerates all sets if there are few. The cheapest result wins, so a plan never costs more than that of KEP-5710.
//! `by_domain` compares the plans for the topology domains that a group may be in.

mod budgets;
mod by_domain;
mod by_lot;
mod capacity_without_victims;
mod cost;
mod declared_costs;
mod dry_run;
mod greedy_by_density;
mod improve;
mod kep_5710;
mod lower_bound;
mod mixed;
mod node;
mod plan;
mod planner;
mod shrink;
mod tabu;
mod victim_candidates;
mod victim_unit;

use crate::cluster::transaction::Transaction;
use crate::placement::cache::Cache;
use crate::placement::{self, PlacementRequest};
pub use cost::Cost;
use cost::{CostModel, Loss};
pub(crate) use node::for_pod;
pub(crate) use plan::Plan;
use plan::PlanInput;
pub use plan::{NoPlan, PlanSummary, Victim};
use planner::{Least, Planner};
use victim_candidates::VictimCandidates;
pub(crate) use victim_candidates::{VictimRules, is_evicted_whole};
pub(crate) use victim_unit::VictimUnit;

/// The effort limits for a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The maximum steps of each placement search.
    pub(crate) placement_steps: u64,
    /// The maximum steps of the enumeration of victim sets.
    pub(crate) search_steps: u64,
    /// Whether to look for a plan that is cheaper than that of KEP-5710.
    pub(crate) cheaper: bool,
    /// Whether to evict for members beyond the minimum.
    pub(crate) beyond_minimum: bool,
    /// Only units below this priority are evicted for a group that has its minimum.
    pub(crate) below: i32,
}

/// Plans preemption for a group: first for its minimum, then for as many further members as fit without units that are
/// of a lower priority than everything the minimum needs. The transaction shows the cluster as the group sees it,
/// without terminating pods, and is left unchanged.
pub(crate) fn for_group(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    rules: VictimRules,
    limits: Limits,
) -> Result<Plan, NoPlan> {
    let below = if request.needs_total() == 0 { limits.below } else { request.priority };
    let candidates = victim_candidates::candidates_below(transaction.cluster(), below, rules);
    let VictimCandidates { units, withheld } = candidates;
    let Some(domains) = placement::domains::required(transaction.cluster(), cache, request) else {
        return plan_among(transaction, cache, request, (&units, withheld), rules, limits);
    };
    by_domain::cheapest(request, &units, domains, |request, units| {
        plan_among(transaction, cache, request, (units, withheld), rules, limits)
    })
}

/// Plans with these possible victims, or with those of them that the group is not attracted to.
fn plan_among(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    (units, withheld): (&[VictimUnit], Option<NoPlan>),
    rules: VictimRules,
    limits: Limits,
) -> Result<Plan, NoPlan> {
    match plan_with(transaction, cache, request, (units, withheld), rules, limits) {
        // Without the pods that its members have affinity to it may fit nowhere.
        Err(why @ (NoPlan::NotEnough | NoPlan::NotFound)) => {
            let cluster = transaction.cluster();
            let attracts = |unit: &VictimUnit| {
                request.lots.iter().any(|lot| victim_candidates::attracts(cluster, lot.class, unit))
            };
            let others: Vec<VictimUnit> = units.iter().filter(|unit| !attracts(unit)).cloned().collect();
            if others.len() == units.len() {
                return Err(why);
            }
            let plan = plan_with(transaction, cache, request, (&others, withheld), rules, limits);
            // Not every set of these pods was tried.
            plan.map_err(
                |why| if matches!(why, NoPlan::NotEnough | NoPlan::NoVictims) { NoPlan::NotFound } else { why },
            )
        }
        result => result,
    }
}

/// Plans with these possible victims.
fn plan_with(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    (units, withheld): (&[VictimUnit], Option<NoPlan>),
    rules: VictimRules,
    limits: Limits,
) -> Result<Plan, NoPlan> {
    let costs = CostModel::new(transaction.cluster(), units, Loss::Sum, rules.now);
    let input = PlanInput { units, violating: &costs.violating(), costs: &costs };
    let mut planner = Planner { transaction, cache, limits };
    let (least, lowest) = if request.needs_total() == 0 {
        (planner.without_minimum(request, input, withheld)?, None)
    } else {
        let minimum = planner.least(&request.trimmed_to_needs(), input, withheld)?;
        let lowest = minimum.taken.iter().map(|unit| units[*unit].priority).min();
        (planner.with_further_members(request, input, minimum), lowest)
    };
    let Least { mut taken, proven, groups_min: groups_at_least, request: placed } = least;
    let cost = costs.of(&taken);
    if rules.respects_budgets && cost.pdb_violations > 0 {
        return Err(NoPlan::Budgets);
    }
    taken.sort_unstable();
    let units: Vec<VictimUnit> = taken.iter().map(|unit| units[*unit].clone()).collect();
    // Members beyond the minimum that fit anyway are part of the plan.
    let all = PlacementRequest { needs: placed.needs.clone(), ..request.clone() };
    let places = planner.places_without(&all, &units).or_else(|| planner.places_without(&placed, &units));
    Ok(Plan { places: places.ok_or(NoPlan::NotFound)?, units, cost, proven, groups_at_least, lowest })
}
