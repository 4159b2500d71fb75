//! Preemption: room that could be taken from those of lower priority, and what that would cost.
//!
//! Computing changes nothing: the answer is a [`Plan`] or the reason why there is none. A plan places everybody that
//! it is for; whoever carries it out nominates them and evicts its units, all or none.
//!
//! `unit` says what can be taken, `budgets` what should not be, `cost` what it costs. `node` plans for a single pod, node
//! by node as kube-scheduler does. For a group of like pods `improve` and `bundle` look on `rooms` for what hurts least, and
//! `floor` says what must hurt: mostly that proves the plan at once. Where it does not, `plain` is the document's algorithm,
//! `mixed` places pods that are not alike, and `shrink` makes what was found smaller, or looks through all there is where
//! that is little. The cheapest of what they find is the answer, so it is never worse than the document's.

mod budgets;
mod bundle;
mod cost;
mod floor;
mod improve;
mod mixed;
mod node;
mod plain;
mod rooms;
mod shrink;
mod stage;
mod unit;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::trial::Trial;
use crate::model::group::GroupKey;
use crate::model::ids::{NodeId, PodId};
use crate::model::pod::PodName;
use crate::placement::cache::Cache;
use crate::placement::{self, Verdict, Want};
pub use cost::Cost;
use cost::{Loss, Prices};
use improve::{Improvement, keep_cheaper};
use mixed::Mixed;
pub(crate) use node::for_pod;
use plain::Plain;
use rooms::Rooms;
use shrink::Search;
use stage::Stage;
use unit::Below;
pub(crate) use unit::{Rules, Unit, can_be_taken, goes_whole};

/// With more units than this, sets are not looked through one by one.
const SEARCHED_UNITS_MAX: usize = 48;

/// How much may be spent on a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Steps of each search for a placement.
    pub(crate) placement_steps: u64,
    /// Steps of the search through sets of units.
    pub(crate) search_steps: u64,
    /// Whether anything is spent on finding a cheaper plan than the document's.
    pub(crate) cheaper: bool,
}

/// What could be taken, and at what price.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer<'o> {
    /// The most important first.
    pub(crate) units: &'o [Unit],
    /// The units that are taken against a budget, if all are taken.
    pub(crate) breaking: &'o [bool],
    pub(crate) prices: &'o Prices,
}

/// Who goes where, and who has to leave for it.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The places, of pods that wait.
    pub(crate) places: Vec<(PodId, NodeId)>,
    /// What has to be evicted, whole; nothing if it is enough that those leave who are leaving.
    pub(crate) units: Vec<Unit>,
    pub(crate) cost: Cost,
    /// No plan is cheaper.
    pub(crate) proven: bool,
}

impl Plan {
    /// The same in the words of the API.
    pub(crate) fn outlook(&self, cluster: &Cluster) -> Outlook {
        let name = |pod: &PodId| cluster.pod(*pod).id.clone();
        let places = self.places.iter().map(|(pod, node)| (name(pod), cluster.node(*node).name.clone())).collect();
        let victims = self.units.iter().map(|unit| Victim {
            group: unit.group.map(|group| cluster.group(group).key.clone()),
            whole: unit.is_whole(),
            pods: unit.pods.iter().map(|(pod, _)| name(pod)).collect(),
        });
        Outlook { places, victims: victims.collect(), cost: self.cost.clone(), proven: self.proven }
    }
}

/// A plan in the words of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outlook {
    /// Which pod would go where.
    pub places: Vec<(Arc<PodName>, Arc<str>)>,
    /// Who would have to leave.
    pub victims: Vec<Victim>,
    /// What that would cost.
    pub cost: Cost,
    /// No plan is cheaper.
    pub proven: bool,
}

/// Who has to leave, whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its group.
    pub group: Option<GroupKey>,
    /// All of the group goes.
    pub whole: bool,
    /// The pods.
    pub pods: Vec<Arc<PodName>>,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// Nobody of a lower priority is on any node.
    NobodyBelow,
    /// Even if all of them left there would be too little room.
    NotEnough,
    /// None was found, if all of them left; there may be one.
    NotFound,
    /// What was found goes against a disruption budget.
    Budgets,
    /// There is too little room as long as those are left alone whose eviction was refused.
    Spared,
    /// There is room for those who ask, and not for what their group will need in all.
    MinResources,
}

impl NoPlan {
    /// There is too little room without those that can be taken.
    fn of(nobody: bool, withheld: Option<Self>) -> Self {
        withheld.unwrap_or(if nobody { Self::NobodyBelow } else { Self::NotEnough })
    }
}

/// A plan for a group. The trial shows the cluster as the group sees it, without those who are leaving anyway, and is
/// given back as it was.
pub(crate) fn for_group(
    trial: &mut Trial<'_>,
    cache: &mut Cache,
    want: &Want,
    rules: Rules,
    limits: Limits,
) -> Result<Plan, NoPlan> {
    let Below { units, withheld } = unit::below(trial.cluster(), want.priority, rules);
    let prices = Prices::new(trial.cluster(), &units, Loss::Sum, rules.now);
    let all: Vec<usize> = (0..units.len()).collect();
    let offer = Offer { units: &units, breaking: &prices.budgets.breaking(&all), prices: &prices };
    let outright = if limits.cheaper { outright(trial.cluster(), cache, want, offer) } else { None };
    let (want, best, proven) = if let Some(best) = outright {
        (want.clone(), best, true)
    } else {
        let most = most_that_fit(trial, cache, want, &units, limits)?;
        let want = most.ok_or(NoPlan::of(units.is_empty(), withheld))?;
        let (best, proven) = cheapest_found(trial, cache, &want, offer, limits)?;
        (want, best, proven)
    };
    let (cost, mut taken) = best;
    if rules.keeps_budgets && cost.against_budgets > 0 {
        return Err(NoPlan::Budgets);
    }
    taken.sort_unstable();
    let units: Vec<Unit> = taken.iter().map(|unit| units[*unit].clone()).collect();
    let (verdict, places) = place_without(trial, cache, &want, &units, limits);
    if verdict != Verdict::Placed {
        return Err(NoPlan::NotFound);
    }
    Ok(Plan { places, units, cost, proven })
}

/// The cheapest plan for like pods where it is found and proven at once: nobody has to be placed for that. It is for all
/// of them.
fn outright(cluster: &Cluster, cache: &mut Cache, want: &Want, offer: Offer<'_>) -> Option<(Cost, Vec<usize>)> {
    if !adds_up(cluster, want) || want.lots.iter().any(|lot| lot.expected > 0) {
        return None;
    }
    let class = want.lots.first()?.class;
    let pods = want.lots.iter().map(|lot| lot.pods.len() as u64).sum();
    let mut rooms = Rooms::new(cluster, cache, class, want.priority, pods);
    Improvement { rooms: &mut rooms, offer }.outright()
}

/// Whether the room on each node is all that matters: like pods who do not mind who is near.
fn adds_up(cluster: &Cluster, want: &Want) -> bool {
    want.is_like() && !want.lots.iter().any(|lot| cluster.class(lot.class).has_demands())
}

/// The cheapest of what the ways to a plan find, and whether it is proven that there is none cheaper.
fn cheapest_found(
    trial: &mut Trial<'_>,
    cache: &mut Cache,
    want: &Want,
    offer: Offer<'_>,
    limits: Limits,
) -> Result<((Cost, Vec<usize>), bool), NoPlan> {
    let Offer { units, breaking, prices } = offer;
    let steps_max = limits.placement_steps;
    let plain = Plain { trial, cache, want, units, breaking, steps_max }.run().ok_or(NoPlan::NotFound)?;
    let mut best = (prices.of(&plain), plain);
    let proven = if !limits.cheaper {
        best.1.is_empty()
    } else if adds_up(trial.cluster(), want) {
        let mut rooms = Rooms::new(trial.cluster(), cache, want.lots[0].class, want.priority, want.needs_total());
        Improvement { rooms: &mut rooms, offer }.run(&mut best) || search(&mut rooms, offer, limits, &mut best)
    } else {
        let mut mixed = Mixed::new(trial, cache, want, steps_max);
        let mut taken = best.1.clone();
        for unit in &taken {
            mixed.remove(&units[*unit]);
        }
        shrink::put_back(&mut mixed, units, &mut taken);
        mixed.give_back();
        keep_cheaper(&mut best, prices, taken);
        search(&mut mixed, offer, limits, &mut best)
    };
    Ok((best, proven))
}

/// The same want, with a place for as many as could have one if everybody below left; `None` if that is not enough.
fn most_that_fit(
    trial: &mut Trial<'_>,
    cache: &mut Cache,
    want: &Want,
    units: &[Unit],
    limits: Limits,
) -> Result<Option<Want>, NoPlan> {
    let (verdict, places) = place_without(trial, cache, want, units, limits);
    let placed: BTreeSet<PodId> = places.into_iter().map(|(pod, _)| pod).collect();
    let mut most = Want { needs: vec![0; want.needs.len()], ..want.clone() };
    for lot in &want.lots {
        most.needs[lot.subset] += lot.pods.iter().filter(|pod| placed.contains(pod)).count() as u32;
    }
    match verdict {
        Verdict::Placed if most.needs_total() > 0 => Ok(Some(most)),
        Verdict::NotFound { .. } => Err(NoPlan::NotFound),
        _ => Ok(None),
    }
}

/// Looks through all sets if there are few units. Says whether the best is proven to be the cheapest.
fn search(stage: &mut impl Stage, offer: Offer<'_>, limits: Limits, best: &mut (Cost, Vec<usize>)) -> bool {
    let Offer { units, prices, .. } = offer;
    if best.1.is_empty() {
        return true;
    }
    // Whoever is above the highest that has to be hurt is out of the question, unless a budget would be spared.
    let highest = best.0.highest;
    let in_question = |unit: &usize| best.0.against_budgets > 0 || Some(units[*unit].priority) <= highest;
    let order: Vec<usize> = (0..units.len()).filter(in_question).collect();
    order.len() <= SEARCHED_UNITS_MAX && Search::new(stage, (units, &order), prices, limits.search_steps, best).run()
}

/// Where everybody goes if these units are gone. The trial is given back as it was.
fn place_without(
    trial: &mut Trial<'_>,
    cache: &mut Cache,
    want: &Want,
    units: &[Unit],
    limits: Limits,
) -> (Verdict, Vec<(PodId, NodeId)>) {
    let mark = trial.mark();
    unit::remove_all(trial, units.iter());
    let verdict = placement::place(trial, cache, want, limits.placement_steps);
    let places = trial.placed_since(mark).collect();
    trial.undo_to(mark);
    (verdict, places)
}
