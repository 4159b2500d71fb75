//! Placement under inter-pod constraints: when greedy placement is still exact, and placement of groups with required
//! affinity to themselves.
//!
//! Anti-affinity only makes nodes infeasible, so it behaves like missing room. With required affinity among its own
//! pods, a group can only follow its first pod, which may have gone to the wrong domain. So if the group does not fit
//! where the scores put it, every domain that might hold it is tried. A topology spread constraint makes the domain of
//! a placed pod less and all others more feasible.

use super::cache::Cache;
use super::greedy;
use super::request::{Lot, PlacementRequest};
use crate::cluster::Cluster;
use crate::cluster::transaction::Transaction;
use crate::filter;
use crate::model::ids::{ClassId, NodeId};

/// Whether placing other pods can make more nodes feasible for a class: pods that match its required affinity, or pods
/// that raise the minimum of a spread constraint.
pub(crate) fn may_gain_feasible_nodes(cluster: &Cluster, class: ClassId) -> bool {
    let rules = &cluster.class(class).rules;
    !rules.required_affinity.is_empty() || !rules.spread.is_empty()
}

/// Whether placing a pod of another class can make more nodes feasible for a class.
pub(crate) fn gains_feasible_nodes_by(cluster: &Cluster, class: ClassId, placed: ClassId) -> bool {
    let (rules, placed) = (&cluster.class(class).rules, cluster.class(placed));
    let spread = rules.spread.iter().map(|constraint| &constraint.counts);
    rules.required_affinity.iter().chain(spread).any(|counts| cluster.topology.is_counted_in(placed, *counts))
}

/// Whether placing pods of the request can only make nodes infeasible.
pub(super) fn only_loses_feasible_nodes(cluster: &Cluster, request: &PlacementRequest) -> bool {
    !request.lots.iter().any(|lot| may_gain_feasible_nodes(cluster, lot.class))
}

/// Whether filling nodes best first, domain by domain for self-affine pods, places as many pods of equal requirements
/// as possible.
pub(super) fn greedy_is_exact(cluster: &Cluster, request: &PlacementRequest) -> bool {
    let Some(rules) = request.lots.first().map(|lot| &cluster.class(lot.class).rules) else { return true };
    let topology_key = |counts| cluster.topology.domain_counts(counts).topology_key;
    // In a domain of a single node, anti-affinity limits the room on that node only.
    let mut keys: Vec<_> = rules.matches_own_anti_affinity.iter().map(|counts| topology_key(*counts)).collect();
    keys.retain(|topology_key| !cluster.topology.topology_key(*topology_key).has_single_node_domains());
    if rules.matches_own_affinity {
        keys.extend(rules.required_affinity.iter().map(|counts| topology_key(*counts)));
    }
    // A placed pod only reduces what its own domain may take and increases it for the others. So if some order places
    // one more pod in a domain than the greedy pass did, the greedy pass could have done so, too.
    keys.extend(
        rules
            .spread
            .iter()
            .filter(|constraint| constraint.matches_itself)
            .map(|constraint| topology_key(constraint.counts)),
    );
    keys.sort_unstable();
    keys.dedup();
    // The nodes of a domain are interchangeable. With several keys whose domains overlap, the choice of the node would
    // matter.
    keys.len() <= 1
}

/// Places a group with required affinity to itself domain by domain, smallest sufficient domain first. Undoes
/// everything if no domain holds it.
pub(super) fn place_in_one_domain(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    order: &[usize],
) -> bool {
    let Some(lot) = order
        .iter()
        .map(|lot| &request.lots[*lot])
        .find(|lot| is_first_of_self_affine(transaction.cluster(), lot.class))
    else {
        return false;
    };
    let savepoint = transaction.savepoint();
    for node in domains(transaction.cluster(), request, lot) {
        transaction.assume_affinity_match(lot.class, node);
        if greedy::place(transaction, cache, request, order) {
            return true;
        }
        transaction.rollback_to(savepoint);
    }
    false
}

/// Whether the next pod of a class would be the first that matches its own required affinity.
fn is_first_of_self_affine(cluster: &Cluster, class: ClassId) -> bool {
    let rules = &cluster.class(class).rules;
    rules.matches_own_affinity && rules.required_affinity.iter().all(|counts| cluster.topology.counts_none(*counts))
}

/// A node of each domain that might hold the required pods of a lot, smallest domain first.
fn domains(cluster: &Cluster, request: &PlacementRequest, lot: &Lot) -> Vec<NodeId> {
    let class = cluster.class(lot.class);
    let Some(counts) = class.rules.required_affinity.first() else { return Vec::new() };
    let topology_key = cluster.topology.topology_key(cluster.topology.domain_counts(*counts).topology_key);
    let others: usize = request.lots.iter().filter(|other| other.subset == lot.subset).map(Lot::len).sum();
    let needed = (request.needs[lot.subset] as usize).saturating_sub(others - lot.len()).max(1) as i64;
    // Spread pods may gain feasible nodes, so only room counts.
    let copies = if class.rules.spread.is_empty() { filter::copies_max } else { filter::copies_max_ignoring_inter_pod };
    let room = |domain: u32| {
        let nodes = topology_key
            .nodes(domain)
            .iter()
            .filter(|node| request.may_use(lot, **node) && filter::passes_static_filters(class, cluster.node(**node)));
        nodes.fold(0_i64, |sum, node| {
            let view = filter::view(cluster, *node, request.priority);
            sum.saturating_add(copies(class, cluster.node(*node), &view))
        })
    };
    let mut domains: Vec<(i64, NodeId)> = topology_key
        .domains()
        .filter_map(|domain| {
            let nodes = topology_key.nodes(domain).iter().filter(|node| request.may_use(lot, **node));
            Some((room(domain), *nodes.min()?))
        })
        .filter(|(room, _)| *room >= needed)
        .collect();
    domains.sort_unstable();
    domains.into_iter().map(|(_, node)| node).collect()
}
