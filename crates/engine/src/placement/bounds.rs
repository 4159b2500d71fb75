//! What can be known before searching: which lots are hard, and that some needs are beyond all room.

use std::collections::BTreeSet;

use super::Want;
use super::cache::Cache;
use crate::cluster::trial::Trial;
use crate::filter;
use crate::model::ids::{NodeId, ResourceId};

/// The lots, those with the least room first; a larger request is harder among equals.
pub(super) fn hardest_first(trial: &Trial<'_>, cache: &mut Cache, want: &Want) -> Vec<usize> {
    let mut order: Vec<usize> = (0..want.lots.len()).collect();
    if !want.lots.windows(2).all(|pair| pair[0].class == pair[1].class) {
        let rooms: Vec<i64> = (0..want.lots.len()).map(|lot| room_for(trial, cache, want, lot, i64::MAX)).collect();
        order.sort_by_key(|lot| (rooms[*lot], std::cmp::Reverse(want.lots[*lot].len()), *lot));
    }
    order
}

/// How many of one lot would fit if it were alone, counted up to `enough`.
pub(super) fn room_for(trial: &Trial<'_>, cache: &mut Cache, want: &Want, lot: usize, enough: i64) -> i64 {
    let (cluster, lot) = (trial.cluster(), &want.lots[lot]);
    let class = cluster.class(lot.class);
    let mut room = 0_i64;
    for node in cache.candidates(cluster, lot.class, want.priority).nodes_that_would_do() {
        if lot.avoid.contains(&node) {
            continue;
        }
        let view = filter::view(cluster, node, want.priority);
        room = room.saturating_add(filter::copies_max(class, cluster.node(node), &view));
        if room >= enough {
            break;
        }
    }
    room
}

/// Whether the needs are beyond the room, by lot or by resource: then no placement exists.
pub(super) fn too_little_room(trial: &Trial<'_>, cache: &mut Cache, want: &Want) -> bool {
    // Avoided nodes are a wish of ours, not a fact of the cluster: nothing is proven with them.
    if want.avoids() {
        return false;
    }
    let mut reachable = vec![0_i64; want.needs.len()];
    for (position, lot) in want.lots.iter().enumerate() {
        let units = lot.len() as i64;
        reachable[lot.subset] += room_for(trial, cache, want, position, units).min(units);
    }
    let by_lot = reachable.iter().zip(&want.needs).any(|(room, need)| *room < i64::from(*need));
    by_lot || resources_asked(trial, want).into_iter().any(|resource| too_little_of(trial, cache, want, resource))
}

fn resources_asked(trial: &Trial<'_>, want: &Want) -> BTreeSet<ResourceId> {
    let classes = want.lots.iter().map(|lot| trial.cluster().class(lot.class));
    classes.flat_map(|class| class.requests.iter().map(|(resource, _)| resource)).collect()
}

/// Whether even the most modest way to meet the needs asks for more of a resource than is free where any of
/// the askers may go.
fn too_little_of(trial: &Trial<'_>, cache: &mut Cache, want: &Want, resource: ResourceId) -> bool {
    let cluster = trial.cluster();
    let mut nodes = BTreeSet::<NodeId>::new();
    let mut asked: Vec<Vec<(i64, usize)>> = vec![Vec::new(); want.needs.len()];
    for lot in &want.lots {
        let amount = cluster.class(lot.class).requests.get(resource);
        asked[lot.subset].push((amount, lot.len()));
        if amount > 0 {
            nodes.extend(cache.candidates(cluster, lot.class, want.priority).nodes_that_would_do());
        }
    }
    let free: i128 = nodes
        .iter()
        .map(|node| {
            let view = filter::view(cluster, *node, want.priority);
            i128::from((cluster.node(*node).allocatable.get(resource) - view.load.used.get(resource)).max(0))
        })
        .sum();
    let least: i128 = asked.iter_mut().zip(&want.needs).map(|(lots, need)| cheapest(lots, *need as usize)).sum();
    least > free
}

/// The least that `need` units can ask for.
fn cheapest(lots: &mut [(i64, usize)], mut need: usize) -> i128 {
    lots.sort_unstable();
    let mut sum = 0_i128;
    for (amount, units) in lots.iter() {
        let taken = need.min(*units);
        sum += i128::from(*amount) * taken as i128;
        need -= taken;
    }
    sum
}
