//! The nodes as they would be without some units, for like pods: how many of them fit where.
//!
//! For like pods what fits on one node does not depend on the others, so a sum over nodes is an exact answer, and
//! taking a unit away or putting it back costs one look at each of its nodes. That holds for pods that do not mind who is
//! near; no others are brought here.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::stage::Stage;
use super::unit::Unit;
use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::filter::{self, View};
use crate::model::class::PodClass;
use crate::model::ids::{ClassId, NodeId, PodId, ResourceId};
use crate::placement::cache::Cache;

/// Where there is no room of a node.
const NOWHERE: u32 = u32::MAX;

/// One node.
#[derive(Clone, Debug)]
struct Room {
    node: NodeId,
    load: Load,
    claimed: bool,
    copies: i64,
}

/// What a pod that could go holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) unit: usize,
    pub(crate) class: &'a PodClass,
}

impl Held<'_> {
    /// How much of a resource; a pod is one of the pods that a node may hold.
    pub(crate) fn amount(&self, resource: Option<ResourceId>) -> i64 {
        resource.map_or(1, |resource| self.class.requests.get(resource))
    }
}

/// All nodes that would do.
#[derive(Clone, Debug)]
pub(crate) struct Rooms<'a> {
    cluster: &'a Cluster,
    class: &'a PodClass,
    /// By pod slot: its class. They are asked for so often that the pods themselves would take too long to reach.
    classes: Vec<ClassId>,
    nodes: Vec<Room>,
    /// By node slot: its place in `nodes`.
    places: Vec<u32>,
    /// How many fit in all.
    total: i64,
    /// How many have to.
    need: i64,
}

impl<'a> Rooms<'a> {
    /// The nodes as they are, to somebody of this priority who asks for places for so many like pods.
    pub(crate) fn new(cluster: &'a Cluster, cache: &mut Cache, class: ClassId, priority: i32, need: u64) -> Self {
        let mut classes = Vec::new();
        for (id, pod) in cluster.pods() {
            classes.resize(id.slot(), class);
            classes.push(pod.class);
        }
        let mut rooms = Self {
            cluster,
            class: cluster.class(class),
            classes,
            nodes: Vec::new(),
            places: vec![NOWHERE; cluster.node_slots()],
            total: 0,
            need: i64::try_from(need).unwrap_or(i64::MAX),
        };
        for node in cache.candidates(cluster, class, priority).nodes_that_would_do() {
            let view = filter::view(cluster, node, priority);
            let copies = filter::copies_max(rooms.class, cluster.node(node), &view);
            rooms.places[node.slot()] = rooms.nodes.len() as u32;
            rooms.total += copies;
            rooms.nodes.push(Room { node, load: view.load.into_owned(), claimed: view.claimed, copies });
        }
        rooms
    }

    /// How many more have to fit.
    pub(crate) fn missing(&self) -> i64 {
        self.need - self.total
    }

    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Where a node stands in the list, if it would do.
    pub(crate) fn place(&self, node: NodeId) -> Option<usize> {
        self.places.get(node.slot()).filter(|place| **place != NOWHERE).map(|place| *place as usize)
    }

    /// How many fit at a place.
    pub(crate) fn copies(&self, place: usize) -> i64 {
        self.nodes[place].copies
    }

    /// How many would fit at a place with a load that differs.
    pub(crate) fn copies_with(&self, place: usize, load: &Load) -> i64 {
        let room = &self.nodes[place];
        let view = View { load: Cow::Borrowed(load), claimed: room.claimed, near: None };
        filter::copies_max(self.class, self.cluster.node(room.node), &view)
    }

    /// How many more would fit at a place without these pods.
    pub(crate) fn more_without(&self, place: usize, gone: &[Held<'_>]) -> i64 {
        let mut load = self.load(place).clone();
        for held in gone {
            load.sub(held.class);
        }
        self.copies_with(place, &load) - self.copies(place)
    }

    /// What has to be freed at a place for each one more to fit at least: so much of each resource, and of the number of
    /// pods, if there is too little. What is missing beyond what one asks for, where a node holds more than it has, is
    /// missing once and not for each.
    pub(crate) fn missing_for_one_more(&self, place: usize) -> SmallVec<[(Option<ResourceId>, i64); 4]> {
        let room = &self.nodes[place];
        let node = self.cluster.node(room.node);
        let view = View { load: Cow::Borrowed(&room.load), claimed: room.claimed, near: None };
        let mut missing = filter::resources::missing_for(self.class, node, &view, room.copies + 1);
        for (resource, amount) in &mut missing {
            *amount = (*amount).min(resource.map_or(1, |resource| self.class.requests.get(resource)));
        }
        missing
    }

    /// The load at a place.
    pub(crate) fn load(&self, place: usize) -> &Load {
        &self.nodes[place].load
    }

    /// The class of a pod.
    pub(crate) fn class_of(&self, pod: PodId) -> &'a PodClass {
        self.cluster.class(self.classes[pod.slot()])
    }

    fn change(&mut self, unit: &Unit, add: bool) {
        for (pod, node) in &unit.pods {
            let Some(place) = self.place(*node) else { continue };
            let class = self.class_of(*pod);
            let load = &mut self.nodes[place].load;
            if add {
                load.add(class);
            } else {
                load.sub(class);
            }
            let copies = self.copies_with(place, &self.nodes[place].load);
            self.total += copies - self.nodes[place].copies;
            self.nodes[place].copies = copies;
        }
    }
}

impl Stage for Rooms<'_> {
    fn remove(&mut self, unit: &Unit) {
        self.change(unit, false);
    }

    fn restore(&mut self, unit: &Unit) {
        self.change(unit, true);
    }

    fn fits(&mut self) -> bool {
        self.total >= self.need
    }
}
