//! Bounds that are computed before a search: the hardest lots, and minimums that no placement can meet.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::affinity_placement;
use super::cache::Cache;
use super::request::{Lot, PlacementRequest};
use super::within::Within;
use crate::cluster::Cluster;
use crate::cluster::transaction::Transaction;
use crate::filter;
use crate::model::ids::{ClassId, NodeId, ResourceId};
use crate::model::plugin::FilterName;

/// Volumes are counted up to this number.
const ROOM_MAX: i64 = 1 << 20;

/// The lots with the least room first; among equals, those with the largest share of a node.
pub(super) fn hardest_first(
    transaction: &Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..request.lots.len()).collect();
    if !request.lots.windows(2).all(|pair| pair[0].class == pair[1].class) {
        let capacities: Vec<i64> =
            request.lots.iter().map(|lot| room_for_lot(transaction, cache, request, lot, i64::MAX)).collect();
        let shares: Vec<i64> = request.lots.iter().map(|lot| largest_share(transaction.cluster(), lot.class)).collect();
        order.sort_by_key(|lot| (capacities[*lot], Reverse(shares[*lot]), Reverse(request.lots[*lot].len()), *lot));
    }
    order
}

/// The largest share, in thousandths, of any resource of the largest node that a pod of the class requests.
fn largest_share(cluster: &Cluster, class: ClassId) -> i64 {
    let share = |(resource, amount): (ResourceId, i64)| {
        let largest = cluster.nodes().map(|(_, node)| node.allocatable.get(resource)).max().unwrap_or(0);
        i64::try_from(i128::from(amount) * 1000 / i128::from(largest.max(1))).unwrap_or(i64::MAX)
    };
    cluster.class(class).requests.iter().map(share).max().unwrap_or(0)
}

/// An upper bound of how many pods of a class fit if no others are placed, counted up to `enough`.
pub(super) fn room_for(
    cluster: &Cluster,
    cache: &mut Cache,
    class: ClassId,
    priority: i32,
    (avoid, within): (&[NodeId], Option<&Within>),
    enough: i64,
) -> i64 {
    let pod_class = cluster.class(class);
    // If placing pods can make more nodes feasible, only the load filters give an upper bound.
    let copies = if affinity_placement::may_gain_feasible_nodes(cluster, class) {
        filter::copies_max_ignoring_inter_pod
    } else {
        filter::copies_max
    };
    let volumes = pod_class.storage.as_deref().map_or(i64::MAX, |demand| {
        let most = usize::try_from(enough.min(ROOM_MAX)).unwrap_or(usize::MAX);
        cluster.storage.copies_max(demand, most) as i64
    });
    let mut room = 0_i64;
    for node in cache.feasible_nodes(cluster, (class, priority), within) {
        if avoid.contains(&node) {
            continue;
        }
        let view = filter::view(cluster, node, priority);
        room = room.saturating_add(copies(pod_class, cluster.node(node), &view));
        if room >= enough.min(volumes) {
            break;
        }
    }
    if volumes < enough.min(ROOM_MAX) { room.min(volumes) } else { room }
}

/// Whether the nodes that any of the pods may use depend on which volumes others get.
pub(super) fn shares_limits_of_storage(cluster: &Cluster, request: &PlacementRequest) -> bool {
    let demands = request.lots.iter().filter_map(|lot| cluster.class(lot.class).storage.as_deref());
    demands.into_iter().any(|demand| cluster.storage.has_shared_limits(demand))
}

/// An upper bound of how many pods of a lot fit if no others are placed, counted up to `enough`.
fn room_for_lot(
    transaction: &Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    lot: &Lot,
    enough: i64,
) -> i64 {
    let nodes = (&lot.avoid[..], request.within_of(lot));
    room_for(transaction.cluster(), cache, lot.class, request.priority, nodes, enough)
}

/// Whether the minimums exceed the room, by lot or by resource: then no placement exists.
pub(super) fn lacks_capacity(transaction: &Transaction<'_>, cache: &mut Cache, request: &PlacementRequest) -> bool {
    // Avoided nodes are a choice of the scheduler, not a fact of the cluster: they prove nothing.
    if request.has_avoided_nodes() {
        return false;
    }
    let mut reachable = vec![0_i64; request.needs.len()];
    for lot in &request.lots {
        let pods = lot.len() as i64;
        reachable[lot.subset] += room_for_lot(transaction, cache, request, lot, pods).min(pods);
    }
    let all_check_resources =
        request.lots.iter().all(|lot| transaction.cluster().class(lot.class).has_filter(FilterName::NodeResourcesFit));
    let by_lot = reachable.iter().zip(&request.needs).any(|(room, need)| *room < i64::from(*need));
    by_lot
        || all_check_resources
            && requested_resources(transaction, request)
                .into_iter()
                .any(|resource| lacks_resource(transaction, cache, request, resource))
}

fn requested_resources(transaction: &Transaction<'_>, request: &PlacementRequest) -> BTreeSet<ResourceId> {
    let classes = request.lots.iter().map(|lot| transaction.cluster().class(lot.class));
    classes.flat_map(|class| class.requests.iter().map(|(resource, _)| resource)).collect()
}

/// Whether even the smallest pods that meet the minimums request more of a resource than is free on all nodes that any
/// of the lots may use.
fn lacks_resource(
    transaction: &Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    resource: ResourceId,
) -> bool {
    let cluster = transaction.cluster();
    let mut nodes = BTreeSet::<NodeId>::new();
    let mut requested: Vec<Vec<(i64, usize)>> = vec![Vec::new(); request.needs.len()];
    for lot in &request.lots {
        let amount = cluster.class(lot.class).requests.get(resource);
        requested[lot.subset].push((amount, lot.len()));
        if amount > 0 {
            let shape = (lot.class, request.priority);
            nodes.extend(cache.feasible_nodes(cluster, shape, request.within_of(lot)));
        }
    }
    let free: i128 = nodes
        .iter()
        .map(|node| {
            let view = filter::view(cluster, *node, request.priority);
            i128::from(
                cluster.node(*node).allocatable.get(resource).saturating_sub(view.load.used.get(resource)).max(0),
            )
        })
        .sum();
    let least: i128 =
        requested.iter_mut().zip(&request.needs).map(|(lots, need)| smallest_request(lots, *need as usize)).sum();
    least > free
}

/// The smallest total request of `need` pods.
fn smallest_request(lots: &mut [(i64, usize)], mut need: usize) -> i128 {
    lots.sort_unstable();
    let mut sum = 0_i128;
    for (amount, pods) in lots.iter() {
        let taken = need.min(*pods);
        sum += i128::from(*amount) * taken as i128;
        need -= taken;
    }
    sum
}
