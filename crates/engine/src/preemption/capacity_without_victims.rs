//! Node capacity without some victims, for identical pods: how many of them fit on each node.
//!
//! For identical pods without inter-pod terms, what fits on one node does not depend on the others, so a sum over nodes
//! is exact, and removing or restoring a unit only updates the nodes of its pods. Other pods are not handled here.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::dry_run::DryRun;
use super::victim_unit::VictimUnit;
use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::load::Load;
use crate::filter::{self, View};
use crate::model::ids::{ClassId, NodeId, PodId, ResourceId};
use crate::placement::Within;
use crate::placement::cache::Cache;

/// Marks a node that is not in the list.
const NOT_LISTED: u32 = u32::MAX;

/// The capacity of one node.
#[derive(Clone, Debug)]
struct NodeCapacity {
    node: NodeId,
    load: Load,
    blocked_by_reservation: bool,
    copies: i64,
}

/// A pod of a victim unit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimPod<'a> {
    pub(crate) unit: usize,
    pub(crate) class: &'a PodClass,
}

impl VictimPod<'_> {
    /// The amount of a resource that it requests; `None` is the number of pods.
    pub(crate) fn amount(&self, resource: Option<ResourceId>) -> i64 {
        resource.map_or(1, |resource| self.class.requests.get(resource))
    }
}

/// The capacity of all nodes that pass the static filters.
#[derive(Clone, Debug)]
pub(crate) struct CapacityWithoutVictims<'a> {
    cluster: &'a Cluster,
    class: &'a PodClass,
    /// By pod slot: its class. Looking it up through the pods would be too slow.
    classes: Vec<ClassId>,
    nodes: Vec<NodeCapacity>,
    /// By node slot: its index in `nodes`.
    indices: Vec<u32>,
    /// How many pods fit in total.
    total: i64,
    /// How many pods must fit.
    need: i64,
}

impl<'a> CapacityWithoutVictims<'a> {
    /// The current capacity for pods of this class and priority, of which `need` must fit.
    pub(crate) fn new(
        cluster: &'a Cluster,
        cache: &mut Cache,
        (class, priority): (ClassId, i32),
        within: Option<&Within>,
        need: u64,
    ) -> Self {
        let mut capacity = Self {
            cluster,
            class: cluster.class(class),
            classes: classes(cluster, class, within),
            nodes: Vec::new(),
            indices: vec![NOT_LISTED; cluster.node_slots()],
            total: 0,
            need: i64::try_from(need).unwrap_or(i64::MAX),
        };
        for node in cache.feasible_nodes(cluster, (class, priority), within) {
            let view = filter::view(cluster, node, priority);
            let copies = filter::copies_max(capacity.class, cluster.node(node), &view);
            capacity.indices[node.slot()] = capacity.nodes.len() as u32;
            capacity.total += copies;
            capacity.nodes.push(NodeCapacity {
                node,
                load: view.load.into_owned(),
                blocked_by_reservation: view.blocked_by_reservation,
                copies,
            });
        }
        capacity
    }

    /// How many more pods must fit.
    pub(crate) fn missing(&self) -> i64 {
        self.need - self.total
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The index of a node in the list, if it passes the static filters.
    pub(crate) fn index_of(&self, node: NodeId) -> Option<usize> {
        self.indices.get(node.slot()).filter(|index| **index != NOT_LISTED).map(|index| *index as usize)
    }

    /// How many pods fit on the node at this index.
    pub(crate) fn copies(&self, index: usize) -> i64 {
        self.nodes[index].copies
    }

    /// How many pods would fit on the node with this load.
    pub(crate) fn copies_with(&self, index: usize, load: &Load) -> i64 {
        let entry = &self.nodes[index];
        let view = View {
            load: Cow::Borrowed(load),
            cluster: self.cluster,
            node: entry.node,
            blocked_by_reservation: entry.blocked_by_reservation,
            inter_pod: None,
        };
        filter::copies_max(self.class, self.cluster.node(entry.node), &view)
    }

    /// How many more pods would fit on the node without these pods.
    pub(crate) fn gain_without(&self, index: usize, gone: &[VictimPod<'_>]) -> i64 {
        let mut load = self.load(index).clone();
        for held in gone {
            load.sub(held.class);
        }
        self.copies_with(index, &load) - self.copies(index)
    }

    /// A lower bound of what must be freed on the node per additional pod: the missing amount of each resource, and of
    /// the number of pods. On an over-committed node, what is missing beyond the request of one pod is missing only
    /// once and not per pod.
    pub(crate) fn missing_for_one_more(&self, index: usize) -> SmallVec<[(Option<ResourceId>, i64); 4]> {
        let entry = &self.nodes[index];
        let node = self.cluster.node(entry.node);
        let view = View {
            load: Cow::Borrowed(&entry.load),
            cluster: self.cluster,
            node: entry.node,
            blocked_by_reservation: entry.blocked_by_reservation,
            inter_pod: None,
        };
        let mut missing = filter::resources::missing_for(self.class, node, &view, entry.copies + 1);
        for (resource, amount) in &mut missing {
            *amount = (*amount).min(resource.map_or(1, |resource| self.class.requests.get(resource)));
        }
        missing
    }

    /// How many of so many parts of what one more pod needs would be free on the node with this load, on which `copies`
    /// fit.
    pub(crate) fn part_of_one_more(&self, index: usize, load: &Load, copies: i64, parts: i64) -> i64 {
        let node = self.cluster.node(self.nodes[index].node);
        let view = View {
            load: Cow::Borrowed(load),
            cluster: self.cluster,
            node: self.nodes[index].node,
            blocked_by_reservation: false,
            inter_pod: None,
        };
        let missing = filter::resources::missing_for(self.class, node, &view, copies + 1);
        let of_one = |resource: Option<ResourceId>| resource.map_or(1, |resource| self.class.requests.get(resource));
        let part = |(resource, missing): &(Option<ResourceId>, i64)| {
            let whole = of_one(*resource).max(1);
            (i128::from(parts) * i128::from((whole - missing).max(0)) / i128::from(whole)) as i64
        };
        missing.iter().map(part).min().unwrap_or(0)
    }

    /// The load of the node at this index.
    pub(crate) fn load(&self, index: usize) -> &Load {
        &self.nodes[index].load
    }

    /// The class of a pod.
    pub(crate) fn class_of(&self, pod: PodId) -> &'a PodClass {
        self.cluster.class(self.classes[pod.slot()])
    }

    fn change(&mut self, unit: &VictimUnit, add: bool) {
        for (pod, node) in &unit.pods {
            let Some(index) = self.index_of(*node) else { continue };
            let class = self.class_of(*pod);
            let load = &mut self.nodes[index].load;
            if add {
                load.add(class);
            } else {
                load.sub(class);
            }
            let copies = self.copies_with(index, &self.nodes[index].load);
            self.total += copies - self.nodes[index].copies;
            self.nodes[index].copies = copies;
        }
    }
}

/// By pod slot: the class of each pod, or of those within a domain.
fn classes(cluster: &Cluster, class: ClassId, within: Option<&Within>) -> Vec<ClassId> {
    let mut classes = vec![class; cluster.pod_slots()];
    let mut set = |pod: PodId| classes[pod.slot()] = cluster.pod(pod).class;
    match within {
        None => cluster.pods().for_each(|(pod, _)| set(pod)),
        Some(within) => {
            let pods = within.nodes().iter().flat_map(|node| cluster.node(*node).pods.iter().copied());
            pods.for_each(set);
        }
    }
    classes
}

impl DryRun for CapacityWithoutVictims<'_> {
    fn remove(&mut self, unit: &VictimUnit) {
        self.change(unit, false);
    }

    fn restore(&mut self, unit: &VictimUnit) {
        self.change(unit, true);
    }

    fn fits(&mut self) -> bool {
        self.total >= self.need
    }
}
