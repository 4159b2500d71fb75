//! Requests as problems of counts: what fits where in numbers, and the pods of a solution placed on their nodes.
//!
//! The problem has every limit that adds up on a node: resources, the number of pods, host ports, and volumes that are
//! attached. It leaves out what depends on other nodes, so what has no solution here cannot be placed; a solution is
//! checked pod by pod when it is placed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::affinity_placement;
use super::cache::Cache;
use super::counts::{self, Bin, Bottleneck, Counts, Kind, Outcome, Problem};
use super::greedy;
use super::request::{PlacementRequest, Verdict};
use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::transaction::Transaction;
use crate::filter;
use crate::model::ids::{ClassId, NodeId, ResourceId};
use crate::model::plugin::FilterName;
use crate::model::resources::PODS_PER_NODE_MAX;

/// Larger problems are not searched: the number of pods, and of counts.
const PODS_MAX: usize = 20_000;
const COUNTS_MAX: usize = 400_000;

/// A search gets this part of the steps that are left for the attempt. There may be many domains.
const SHARE: u64 = 2;
const SHARE_OF_DOMAIN: u64 = 8;

/// A problem, and what its kinds and bins stand for.
pub(super) struct Counted {
    pub(super) problem: Problem,
    /// By kind: the lots.
    lots: Vec<Vec<usize>>,
    /// By bin.
    pub(super) nodes: Vec<NodeId>,
    /// Nothing was left out: a solution can always be placed.
    faithful: bool,
    dimensions: Dimensions,
}

/// Searches for a placement that meets the minimums; the transaction holds it, and all other pods that fit, if there is
/// one. `None` if the request is none for this search.
pub(super) fn search(
    transaction: &mut Transaction<'_>,
    cache: &mut Cache,
    request: &PlacementRequest,
    steps_max: u64,
) -> Option<Verdict> {
    let counted = Counted::new(transaction.cluster(), cache, request)?;
    let share = if request.within.is_some() { SHARE_OF_DOMAIN } else { SHARE };
    let (outcome, steps) = cache.searches.run(&counted.problem, &counted.nodes, (steps_max, share));
    transaction.cluster().steps.add(usize::try_from(steps / STEPS_PER_EVALUATION).unwrap_or(usize::MAX));
    match outcome {
        Outcome::Found(counts) if counted.place(transaction, request, &counts) => {
            greedy::place_rest(transaction, cache, request, vec![false; request.lots.len()]);
            Some(Verdict::Placed)
        }
        Outcome::Impossible if !request.has_avoided_nodes() => Some(Verdict::Impossible),
        Outcome::Impossible | Outcome::Open if counted.faithful => Some(Verdict::NotFound { steps }),
        Outcome::Found(_) | Outcome::Impossible | Outcome::Open => None,
    }
}

/// What alone shows that there is no placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scarcity {
    /// The pods of these lots fit fewer times than they are needed, even without the others.
    Places { lots: Vec<usize>, fit: u32, need: u32 },
    /// The needed pods request more of a resource than they can use on the nodes that they may use.
    Resource { resource: ResourceId, asked: i64, usable: i64 },
    /// All pods of these lots do not fit together.
    Mix { lots: Vec<usize> },
}

/// Why there is no placement, if one reason is enough, and is found in so many steps.
pub(crate) fn scarcity(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    steps: u64,
) -> Option<Scarcity> {
    let counted = Counted::new(cluster, cache, request)?;
    cluster.steps.add(usize::try_from(steps / STEPS_PER_EVALUATION).unwrap_or(usize::MAX));
    let lots = |kinds: &[usize]| {
        let mut lots: Vec<usize> = kinds.iter().flat_map(|kind| counted.lots[*kind].iter().copied()).collect();
        lots.sort_unstable();
        lots
    };
    match counts::bottleneck(&counted.problem, steps)? {
        Bottleneck::Kinds { kinds, fit, need } => Some(Scarcity::Places { lots: lots(&kinds), fit, need }),
        Bottleneck::Mix { kinds } => Some(Scarcity::Mix { lots: lots(&kinds) }),
        Bottleneck::Dimension { dimension, asked, usable } => {
            let resource = *counted.dimensions.resources.get(dimension.checked_sub(1)?)?;
            Some(Scarcity::Resource { resource, asked, usable })
        }
    }
}

/// What lots of one kind have in common: the subset, what a pod uses, how many fit by node, and the lot if it is alone.
type KindKey = (usize, Vec<i64>, Vec<u32>, Option<usize>);

/// So many steps take about as long as the evaluation of one node.
const STEPS_PER_EVALUATION: u64 = 8;

impl Counted {
    /// The problem of a request; `None` if it is too large, or resources are not checked.
    pub(super) fn new(cluster: &Cluster, cache: &mut Cache, request: &PlacementRequest) -> Option<Self> {
        let needed = |lot: &usize| request.needs[request.lots[*lot].subset] > 0 && request.lots[*lot].len() > 0;
        let lots: Vec<usize> = (0..request.lots.len()).filter(needed).collect();
        let classes: Vec<&PodClass> = lots.iter().map(|lot| cluster.class(request.lots[*lot].class)).collect();
        let pods: usize = lots.iter().map(|lot| request.lots[*lot].len()).sum();
        if lots.is_empty()
            || pods > PODS_MAX
            || classes.iter().any(|class| !class.has_filter(FilterName::NodeResourcesFit))
        {
            return None;
        }
        let nodes = request.within.as_ref().map_or(cluster.node_slots(), |within| within.nodes().len());
        if nodes.saturating_mul(lots.len()) > COUNTS_MAX {
            return None;
        }
        let most = most_by_node(cluster, cache, request, &lots, pods);
        let dimensions = Dimensions::of(&classes);
        let mut merged: BTreeMap<KindKey, Vec<usize>> = BTreeMap::new();
        for (at, lot) in lots.iter().enumerate() {
            let by_node = most.values().map(|most| most[at]).collect();
            let alone = (!adds_up(cluster, request.lots[*lot].class)).then_some(at);
            let key = (request.lots[*lot].subset, dimensions.amounts(at, classes[at]), by_node, alone);
            merged.entry(key).or_default().push(*lot);
        }
        let mut kinds = Vec::new();
        let mut bins: Vec<Bin> = most
            .keys()
            .map(|node| Bin { free: dimensions.free(cluster, *node, request.priority), most: Vec::new() })
            .collect();
        let mut of_kind = Vec::new();
        for ((subset, amounts, by_node, _), lots) in merged {
            let count = lots.iter().map(|lot| request.lots[*lot].len() as u32).sum();
            kinds.push(Kind { amounts, count, subset });
            bins.iter_mut().zip(by_node).for_each(|(bin, most)| bin.most.push(most));
            of_kind.push(lots);
        }
        let left_out = |class: &ClassId| {
            let pod_class = cluster.class(*class);
            cluster.has_required_inter_pod_terms(*class)
                || pod_class.storage.is_some()
                || !pod_class.spec.disks.is_empty()
        };
        let faithful = !lots.iter().any(|lot| left_out(&request.lots[*lot].class));
        let (bins, nodes) = without_needless(bins, most.into_keys(), pods);
        let problem = Problem { kinds, bins, needs: request.needs.clone() };
        Some(Self { problem, lots: of_kind, nodes, faithful, dimensions })
    }

    /// Places the pods of a solution. Returns whether all of them could be; otherwise nothing is placed.
    fn place(&self, transaction: &mut Transaction<'_>, request: &PlacementRequest, counts: &Counts) -> bool {
        let savepoint = transaction.savepoint();
        let mut next = vec![0; request.lots.len()];
        for (node, counts) in self.nodes.iter().zip(counts) {
            for (kind, count) in counts.iter().enumerate() {
                for _ in 0..*count {
                    let lot = self.lots[kind].iter().copied().find(|lot| next[*lot] < request.lots[*lot].len());
                    let placed = lot.is_some_and(|lot| {
                        let class = transaction.cluster().class(request.lots[lot].class);
                        let view = filter::view(transaction.cluster(), *node, request.priority);
                        let fits = filter::copies_max(class, transaction.cluster().node(*node), &view) >= 1;
                        if fits {
                            request.lots[lot].place(next[lot], *node, transaction);
                            next[lot] += 1;
                        }
                        fits
                    });
                    if !placed {
                        transaction.rollback_to(savepoint);
                        return false;
                    }
                }
            }
        }
        true
    }
}

/// By node that any of these lots may use: how many pods of each lot fit there without the others.
fn most_by_node(
    cluster: &Cluster,
    cache: &mut Cache,
    request: &PlacementRequest,
    lots: &[usize],
    pods: usize,
) -> BTreeMap<NodeId, Vec<u32>> {
    let mut most: BTreeMap<NodeId, Vec<u32>> = BTreeMap::new();
    for (at, lot) in lots.iter().map(|lot| &request.lots[*lot]).enumerate() {
        let class = cluster.class(lot.class);
        let copies = if affinity_placement::may_gain_feasible_nodes(cluster, lot.class) {
            filter::copies_max_ignoring_inter_pod
        } else {
            filter::copies_max
        };
        for node in cache.feasible_nodes(cluster, (lot.class, request.priority), request.within_of(lot)) {
            if lot.avoid.contains(&node) {
                continue;
            }
            let view = filter::view(cluster, node, request.priority);
            let fit = copies(class, cluster.node(node), &view);
            if fit > 0 {
                let fit = u32::try_from(fit).unwrap_or(u32::MAX).min(pods as u32);
                most.entry(node).or_insert_with(|| vec![0; lots.len()])[at] = fit;
            }
        }
    }
    most
}

/// Whether only amounts limit how many pods of a class fit on a node: then others with equal amounts are of its kind.
fn adds_up(cluster: &Cluster, class: ClassId) -> bool {
    let pod_class = cluster.class(class);
    let volumes_add_up = pod_class.storage.as_deref().is_none_or(|demand| {
        demand.exclusive.is_empty() && demand.attached_shared.is_empty() && demand.unbound.is_empty()
    });
    let is_alone = !pod_class.spec.host_ports.is_empty() || !pod_class.spec.disks.is_empty();
    volumes_add_up && !is_alone && !cluster.has_required_inter_pod_terms(class)
}

/// The bins and their nodes, without those for which there are as many equal ones as pods.
fn without_needless(bins: Vec<Bin>, nodes: impl Iterator<Item = NodeId>, pods: usize) -> (Vec<Bin>, Vec<NodeId>) {
    let mut seen: BTreeMap<Bin, usize> = BTreeMap::new();
    let mut is_needed = |bin: &Bin| {
        let equal = seen.entry(bin.clone()).or_default();
        *equal += 1;
        *equal <= pods
    };
    bins.into_iter().zip(nodes).filter(|(bin, _)| is_needed(bin)).unzip()
}

/// What adds up on a node.
struct Dimensions {
    resources: Vec<ResourceId>,
    /// Drivers of attached volumes.
    drivers: Vec<Arc<str>>,
    /// Two lots of different ports that exclude each other.
    conflicts: Vec<(usize, usize)>,
}

impl Dimensions {
    fn of(classes: &[&PodClass]) -> Self {
        let requests = classes.iter().flat_map(|class| class.requests.iter());
        let resources: BTreeSet<ResourceId> = requests.map(|(resource, _)| resource).collect();
        let mut drivers = BTreeSet::new();
        if classes.iter().all(|class| class.has_filter(FilterName::NodeVolumeLimits)) {
            let demands = classes.iter().filter_map(|class| class.storage.as_deref());
            drivers.extend(demands.flat_map(|demand| demand.attached.iter().map(|(driver, _)| driver.clone())));
        }
        let mut conflicts = Vec::new();
        for (at, class) in classes.iter().enumerate() {
            for (other_at, other) in classes.iter().enumerate().skip(at + 1) {
                if exclude_each_other(class, other) {
                    conflicts.push((at, other_at));
                }
            }
        }
        Self { resources: resources.into_iter().collect(), drivers: drivers.into_iter().collect(), conflicts }
    }

    /// What a pod of the class of the lot at this position uses.
    fn amounts(&self, at: usize, class: &PodClass) -> Vec<i64> {
        let resources = self.resources.iter().map(|resource| class.requests.get(*resource));
        let volumes = self.drivers.iter().map(|driver| {
            let attached = class.storage.iter().flat_map(|demand| &demand.attached);
            attached.filter(|(of, _)| of == driver).map(|(_, volumes)| i64::from(*volumes)).sum()
        });
        let conflicts = self.conflicts.iter().map(|(one, other)| i64::from(*one == at || *other == at));
        std::iter::once(1).chain(resources).chain(volumes).chain(conflicts).collect()
    }

    /// What a node has left.
    fn free(&self, cluster: &Cluster, id: NodeId, priority: i32) -> Vec<i64> {
        let (node, view) = (cluster.node(id), filter::view(cluster, id, priority));
        let pods = node.pods_max.min(PODS_PER_NODE_MAX as i64) - view.load.pods as i64;
        let resources = self
            .resources
            .iter()
            .map(|resource| node.allocatable.get(*resource).saturating_sub(view.load.used.get(*resource)));
        let is_on_node = |claim| cluster.is_used_on(claim, id);
        let volumes = self.drivers.iter().map(|driver| {
            let load = view.load.attached.as_deref();
            cluster.storage.attachable(driver, node, load, &is_on_node).unwrap_or(i64::from(u32::MAX))
        });
        let conflicts = self.conflicts.iter().map(|_| 1);
        std::iter::once(pods).chain(resources).chain(volumes).chain(conflicts).collect()
    }
}

/// Whether no pods of these two classes can be on one node because of their ports.
fn exclude_each_other(one: &PodClass, other: &PodClass) -> bool {
    let filtered = |class: &PodClass| class.has_filter(FilterName::NodePorts);
    let conflict = || {
        let ports = one.spec.host_ports.iter();
        ports
            .flat_map(|port| other.spec.host_ports.iter().map(move |other| (port, other)))
            .any(|(a, b)| a.conflicts_with(b))
    };
    filtered(one) && filtered(other) && conflict()
}
