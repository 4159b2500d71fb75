//! Preemption for a group whose members have to be in one topology domain: a plan for each domain, of which the cheapest
//! is taken.
//!
//! Victims outside of a domain make no room in it, so each plan considers only the units that have pods there.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{NoPlan, Plan};
use super::victim_unit::VictimUnit;
use crate::placement::domains::DomainId;
use crate::placement::{PlacementRequest, Within};

/// For so many domains a plan is made, in the order of their rooms.
const DOMAINS_MAX: usize = 256;

/// The cheapest of the plans for these domains; of equal ones, the first.
pub(super) fn cheapest(
    request: &PlacementRequest,
    units: &[VictimUnit],
    domains: Vec<Within>,
    mut plan: impl FnMut(&PlacementRequest, &[VictimUnit]) -> Result<Plan, NoPlan>,
) -> Result<Plan, NoPlan> {
    let all = domains.len();
    let (mut best, mut proven, mut why) = (None::<Plan>, all <= DOMAINS_MAX, NoPlan::NoVictims);
    let mut units_by_domain = units_by_domain(units, &domains);
    for within in domains.into_iter().take(DOMAINS_MAX) {
        let near = units_by_domain.remove(&within.domain).unwrap_or_default();
        let near: Vec<VictimUnit> = near.into_iter().map(|unit| units[unit].clone()).collect();
        let request = PlacementRequest { within: Some(within), ..request.clone() };
        match plan(&request, &near) {
            Ok(plan) => {
                proven &= plan.proven;
                let is_free = plan.units.is_empty();
                if best.as_ref().is_none_or(|best| plan.cost < best.cost) {
                    best = Some(plan);
                }
                if is_free {
                    break;
                }
            }
            Err(reason) => {
                proven &= reason != NoPlan::NotFound;
                why = more_telling(why, reason);
            }
        }
    }
    match best {
        // Other domains may need fewer groups.
        Some(best) => {
            let groups_at_least = if all == 1 || proven { best.groups_at_least } else { 0 };
            Ok(Plan { proven, groups_at_least, ..best })
        }
        None if all > DOMAINS_MAX => Err(NoPlan::NotFound),
        None => Err(why),
    }
}

/// The units that have pods in a domain, for each of these domains of one level.
fn units_by_domain(units: &[VictimUnit], domains: &[Within]) -> BTreeMap<DomainId, Vec<usize>> {
    let mut near: BTreeMap<DomainId, Vec<usize>> = BTreeMap::new();
    let Some(first) = domains.first() else { return near };
    let (tree, depth) = (&first.tree, first.tree.depth(first.domain));
    for (index, unit) in units.iter().enumerate() {
        let domains: BTreeSet<DomainId> =
            unit.pods.iter().filter_map(|(_, node)| tree.domain_at(*node, depth)).collect();
        for domain in domains {
            near.entry(domain).or_default().push(index);
        }
    }
    near
}

/// Of two reasons, the one that leaves more hope.
fn more_telling(one: NoPlan, other: NoPlan) -> NoPlan {
    let hope = |why: NoPlan| match why {
        NoPlan::NoVictims => 0,
        NoPlan::NotEnough => 1,
        NoPlan::MinResources | NoPlan::LaterPods => 2,
        NoPlan::Budgets => 3,
        NoPlan::EvictionBackoff => 4,
        NoPlan::NotFound => 5,
    };
    if hope(other) > hope(one) { other } else { one }
}
