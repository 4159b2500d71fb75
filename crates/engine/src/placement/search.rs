//! Search for groups of different pods: deterministic, exact if it completes, and limited in steps.
//!
//! Depth first over the lots, hardest first. The pods of a lot go to nodes in an order that is fixed when the lot
//! begins, tightest first, never backwards (identical pods are interchangeable) unless they can make nodes feasible for
//! each other; of equivalent nodes only the first is tried. A branch ends as soon as the remaining lots cannot meet the
//! minimums. Where the minimums are smaller than the number of pods, the rest of a lot may be left out.

use std::collections::BTreeSet;

use super::affinity_placement;
use super::bounds;
use super::cache::Cache;
use super::request::{Lot, PlacementRequest, Verdict};
use crate::cluster::transaction::Transaction;
use crate::filter;
use crate::model::ids::{NodeId, ResourceId};
use crate::model::port::HostPort;

/// The maximum depth: a deeper search would not complete, and the stack is limited.
const PODS_MAX: usize = 1000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Found,
    /// There is no placement below this branch.
    Exhausted,
    OutOfSteps,
}

/// Searches for a placement that meets the minimums; the transaction holds it if there is one.
pub(super) fn search(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    order: &[usize],
    steps_max: u64,
) -> Verdict {
    let pods: usize = request.lots.iter().map(Lot::len).sum();
    if pods > PODS_MAX {
        return Verdict::NotFound { steps: 0 };
    }
    let eligible = request
        .lots
        .iter()
        .map(|lot| {
            let shape = (lot.class, request.priority);
            let nodes = cache.feasible_nodes(transaction.cluster(), shape, request.within_of(lot));
            let mut nodes: Vec<NodeId> = nodes.filter(|node| !lot.avoid.contains(node)).collect();
            nodes.sort_unstable();
            nodes
        })
        .collect();
    let mut resources: Vec<ResourceId> = request
        .lots
        .iter()
        .flat_map(|lot| transaction.cluster().class(lot.class).requests.iter().map(|(resource, _)| resource))
        .collect();
    resources.sort_unstable();
    resources.dedup();
    let shares_limits = bounds::shares_limits_of_storage(transaction.cluster(), request);
    let has_volumes = request.lots.iter().any(|lot| {
        let class = transaction.cluster().class(lot.class);
        class.storage.is_some() || !class.spec.disks.is_empty()
    });
    let has_inter_pod_terms =
        has_volumes || request.lots.iter().any(|lot| transaction.cluster().has_required_inter_pod_terms(lot.class));
    let mut search = Search {
        has_inter_pod_terms,
        transaction,
        request,
        order,
        eligible,
        resources,
        missing: request.needs.iter().map(|need| i64::from(*need)).collect(),
        steps_left: steps_max,
    };
    let savepoint = search.transaction.savepoint();
    let outcome = search.begin_lot(0);
    let steps = steps_max - search.steps_left;
    match outcome {
        Outcome::Found => Verdict::Placed,
        Outcome::Exhausted
            if !request.has_avoided_nodes()
                && affinity_placement::only_loses_feasible_nodes(transaction.cluster(), request)
                && !shares_limits =>
        {
            Verdict::Impossible
        }
        Outcome::Exhausted | Outcome::OutOfSteps => {
            transaction.rollback_to(savepoint);
            Verdict::NotFound { steps }
        }
    }
}

struct Search<'s, 'c> {
    transaction: &'s mut Transaction<'c>,
    request: &'s PlacementRequest,
    order: &'s [usize],
    /// The nodes that pass the static filters, by lot.
    eligible: Vec<Vec<NodeId>>,
    /// The resources that any lot requests.
    resources: Vec<ResourceId>,
    /// The remaining minimum of each subset; zero or negative when it is met.
    missing: Vec<i64>,
    /// Whether any lot has required inter-pod terms, or takes volumes that several nodes share.
    has_inter_pod_terms: bool,
    steps_left: u64,
}

impl Search<'_, '_> {
    /// Continues with the lot at this position of the order.
    fn begin_lot(&mut self, at: usize) -> Outcome {
        if self.missing.iter().all(|missing| *missing <= 0) {
            return Outcome::Found;
        }
        let Some(lot) = self.order.get(at).copied() else { return Outcome::Exhausted };
        let mut nodes: Vec<(i64, NodeId)> = self.eligible[lot].iter().map(|node| (self.slack(*node), *node)).collect();
        if !self.spend(nodes.len()) {
            return Outcome::OutOfSteps;
        }
        nodes.sort_unstable();
        let nodes: Vec<NodeId> = nodes.into_iter().map(|(_, node)| node).collect();
        self.place_next(at, 0, &nodes, 0)
    }

    /// Places the pod at this index of the lot on one of `nodes[from..]`, or leaves the rest of the lot out.
    fn place_next(&mut self, at: usize, index: usize, nodes: &[NodeId], from: usize) -> Outcome {
        let position = self.order[at];
        let lot = &self.request.lots[position];
        if self.missing.iter().all(|missing| *missing <= 0) {
            return Outcome::Found;
        }
        if index == lot.len() || self.missing[lot.subset] <= 0 {
            return self.begin_lot(at + 1);
        }
        match self.can_still_meet_needs(at, index) {
            Some(true) => {}
            Some(false) => return Outcome::Exhausted,
            None => return Outcome::OutOfSteps,
        }
        let mut tried: BTreeSet<NodeSignature> = BTreeSet::new();
        for (place, node) in nodes.iter().enumerate().skip(from) {
            if !self.spend(1) {
                return Outcome::OutOfSteps;
            }
            if self.copies_max(position, *node) < 1 {
                continue;
            }
            if !tried.insert(self.signature(*node)) {
                continue;
            }
            let savepoint = self.transaction.savepoint();
            lot.place(index, *node, self.transaction);
            self.missing[lot.subset] -= 1;
            // If a placed pod can make other nodes feasible, earlier nodes may be used again.
            let next = if affinity_placement::may_gain_feasible_nodes(self.transaction.cluster(), lot.class) {
                0
            } else {
                place
            };
            let outcome = self.place_next(at, index + 1, nodes, next);
            if outcome == Outcome::Found {
                return outcome;
            }
            self.missing[lot.subset] += 1;
            self.transaction.rollback_to(savepoint);
            if outcome == Outcome::OutOfSteps {
                return outcome;
            }
        }
        // Leave the rest of the lot out: other lots may meet the minimums.
        self.begin_lot(at + 1)
    }

    /// Whether the remaining lots could meet the minimums if each were placed on its own; `None` if the steps ran out.
    fn can_still_meet_needs(&mut self, at: usize, index: usize) -> Option<bool> {
        let mut missing = self.missing.clone();
        for (later, position) in self.order.iter().copied().enumerate().skip(at) {
            let lot = &self.request.lots[position];
            let pods = if later == at { lot.len() - index } else { lot.len() } as i64;
            if missing[lot.subset] <= 0 {
                continue;
            }
            let mut room = 0;
            for index in 0..self.eligible[position].len() {
                if room >= pods {
                    break;
                }
                if !self.spend(1) {
                    return None;
                }
                room += self.copies_max_optimistic(position, self.eligible[position][index]);
            }
            missing[lot.subset] -= room.min(pods);
        }
        Some(missing.iter().all(|missing| *missing <= 0))
    }

    fn copies_max(&self, lot: usize, node: NodeId) -> i64 {
        let cluster = self.transaction.cluster();
        let view = filter::view(cluster, node, self.request.priority);
        filter::copies_max(cluster.class(self.request.lots[lot].class), cluster.node(node), &view)
    }

    /// An upper bound of how many pods of a lot fit on a node, regardless of other placements.
    fn copies_max_optimistic(&self, lot: usize, node: NodeId) -> i64 {
        let (cluster, class) = (self.transaction.cluster(), self.request.lots[lot].class);
        if !affinity_placement::may_gain_feasible_nodes(cluster, class) {
            return self.copies_max(lot, node);
        }
        let view = filter::view(cluster, node, self.request.priority);
        filter::copies_max_ignoring_inter_pod(cluster.class(class), cluster.node(node), &view)
    }

    /// The share of the requested resources that is unused on a node, in thousandths: less is tighter.
    fn slack(&self, id: NodeId) -> i64 {
        let node = self.transaction.cluster().node(id);
        self.resources
            .iter()
            .map(|resource| {
                let (all, used) = (node.allocatable.get(*resource), node.load.used.get(*resource));
                if all == 0 { 0 } else { (i128::from(all.saturating_sub(used).max(0)) * 1000 / i128::from(all)) as i64 }
            })
            .sum()
    }

    /// Everything about a node that matters to the rest of the search.
    fn signature(&self, id: NodeId) -> NodeSignature {
        let cluster = self.transaction.cluster();
        let (node, view) = (cluster.node(id), filter::view(cluster, id, self.request.priority));
        let load = &view.load;
        let free = self
            .resources
            .iter()
            .map(|resource| node.allocatable.get(*resource).saturating_sub(load.used.get(*resource)));
        let mut numbers: Vec<i64> = free.collect();
        numbers.push(node.pods_max - load.pods as i64);
        numbers.push(i64::from(view.blocked_by_reservation));
        if self.has_inter_pod_terms {
            // Nodes may differ in their topology domains.
            numbers.push(i64::from(id.0));
        }
        numbers.extend(self.eligible.iter().map(|nodes| i64::from(nodes.binary_search(&id).is_ok())));
        NodeSignature { numbers, ports: load.ports.clone() }
    }

    fn spend(&mut self, steps: usize) -> bool {
        let steps = steps as u64;
        if self.steps_left < steps {
            self.steps_left = 0;
            return false;
        }
        self.steps_left -= steps;
        true
    }
}

/// Nodes with equal signatures are interchangeable for the rest of the search.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NodeSignature {
    numbers: Vec<i64>,
    ports: Vec<HostPort>,
}
