//! What can be known before searching: which lots are hard, and that some needs are beyond all room.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::cache::Cache;
use super::{Lot, Want, near};
use crate::cluster::Cluster;
use crate::cluster::trial::Trial;
use crate::filter::{self, FilterName};
use crate::model::ids::{ClassId, NodeId, ResourceId};

/// The lots, those with the least room first; the largest share of a node is hardest among equals.
pub(super) fn hardest_first(trial: &Trial<'_>, cache: &mut Cache, want: &Want) -> Vec<usize> {
    let mut order: Vec<usize> = (0..want.lots.len()).collect();
    if !want.lots.windows(2).all(|pair| pair[0].class == pair[1].class) {
        let rooms: Vec<i64> = want.lots.iter().map(|lot| room_for_lot(trial, cache, want, lot, i64::MAX)).collect();
        let shares: Vec<i64> = want.lots.iter().map(|lot| largest_share(trial.cluster(), lot.class)).collect();
        order.sort_by_key(|lot| (rooms[*lot], Reverse(shares[*lot]), Reverse(want.lots[*lot].len()), *lot));
    }
    order
}

/// The largest share, in thousandths, that a pod of the class takes of the largest node's amount of any resource.
fn largest_share(cluster: &Cluster, class: ClassId) -> i64 {
    let share = |(resource, amount): (ResourceId, i64)| {
        let largest = cluster.nodes().map(|(_, node)| node.allocatable.get(resource)).max().unwrap_or(0);
        i64::try_from(i128::from(amount) * 1000 / i128::from(largest.max(1))).unwrap_or(i64::MAX)
    };
    cluster.class(class).requests.iter().map(share).max().unwrap_or(0)
}

/// How many pods of a class would fit at best if they were alone, counted up to `enough`.
pub(super) fn room_for(
    cluster: &Cluster,
    cache: &mut Cache,
    class: ClassId,
    priority: i32,
    avoid: &[NodeId],
    enough: i64,
) -> i64 {
    let pod_class = cluster.class(class);
    // Whoever gains places by others may be given them.
    let copies = if near::may_gain_places(cluster, class) { filter::copies_max_alone } else { filter::copies_max };
    let mut room = 0_i64;
    for node in cache.candidates(cluster, class, priority).nodes_that_would_do() {
        if avoid.contains(&node) {
            continue;
        }
        let view = filter::view(cluster, node, priority);
        room = room.saturating_add(copies(pod_class, cluster.node(node), &view));
        if room >= enough {
            break;
        }
    }
    room
}

/// How many of one lot would fit if it were alone, counted up to `enough`.
fn room_for_lot(trial: &Trial<'_>, cache: &mut Cache, want: &Want, lot: &Lot, enough: i64) -> i64 {
    room_for(trial.cluster(), cache, lot.class, want.priority, &lot.avoid, enough)
}

/// Whether the needs are beyond the room, by lot or by resource: then no placement exists.
pub(super) fn too_little_room(trial: &Trial<'_>, cache: &mut Cache, want: &Want) -> bool {
    // Avoided nodes are a wish of ours, not a fact of the cluster: nothing is proven with them.
    if want.avoids() {
        return false;
    }
    let mut reachable = vec![0_i64; want.needs.len()];
    for lot in &want.lots {
        let units = lot.len() as i64;
        reachable[lot.subset] += room_for_lot(trial, cache, want, lot, units).min(units);
    }
    let counts_room =
        want.lots.iter().all(|lot| trial.cluster().class(lot.class).is_held_against(FilterName::NodeResourcesFit));
    let by_lot = reachable.iter().zip(&want.needs).any(|(room, need)| *room < i64::from(*need));
    by_lot
        || counts_room
            && resources_asked(trial, want).into_iter().any(|resource| too_little_of(trial, cache, want, resource))
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
            i128::from(
                cluster.node(*node).allocatable.get(resource).saturating_sub(view.load.used.get(resource)).max(0),
            )
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
