//! The nodes of the cluster: added, changed, removed, starting up.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Cluster;
use super::event::ClusterEvent;
use super::journal::Touch;
use super::node::Node;
use crate::model::ids::NodeId;
use crate::model::node::NodeSpec;
use crate::model::resources::{PODS, ResourceVec};

/// The label that most volumes of one node are found by.
const HOSTNAME: &str = "kubernetes.io/hostname";

impl Cluster {
    /// Adds or updates a node.
    pub(crate) fn set_node(&mut self, spec: &NodeSpec) {
        let id = self.ensure_node(&spec.name);
        let mut allocatable = ResourceVec::default();
        let mut pods_max = 0;
        for (name, amount) in &spec.allocatable {
            if name == PODS {
                pods_max = *amount;
            } else if let Some(resource) = self.resources.intern(name) {
                allocatable.set(resource, *amount);
            }
        }
        let node = self.nodes.get_mut(id.0).expect("just ensured");
        let same = node.present
            && node.labels == spec.labels
            && node.taints == spec.taints
            && node.unschedulable == spec.unschedulable
            && node.allocatable == allocatable
            && node.pods_max == pods_max
            && node.features == spec.features;
        node.startup_taints.clone_from(&spec.startup_taints);
        node.created_ms = spec.created_ms;
        let settled = spec.startup_taints.is_empty() && self.starting.remove(&id);
        if !spec.startup_taints.is_empty() {
            self.starting.insert(id);
        }
        self.set_images(id, &spec.images);
        if !same {
            self.replace_node(id, spec, allocatable, pods_max);
            self.events.push(ClusterEvent::NodeChanged(id));
        }
        if settled {
            // It is ready or never will be: entities that do not fit there need not wait for it.
            self.events.push(ClusterEvent::UpcomingNodeSettled);
        }
    }

    fn replace_node(&mut self, id: NodeId, spec: &NodeSpec, allocatable: ResourceVec, pods_max: i64) {
        let node = self.nodes.get_mut(id.0).expect("just ensured");
        if !node.present {
            node.present = true;
            self.nodes_present += 1;
        }
        self.count_pods_on_node(id, false);
        let node = self.nodes.get_mut(id.0).expect("just ensured");
        self.storage.set_host(id, node.labels.get(HOSTNAME), spec.labels.get(HOSTNAME));
        node.labels.clone_from(&spec.labels);
        node.taints.clone_from(&spec.taints);
        node.unschedulable = spec.unschedulable;
        node.allocatable = allocatable;
        node.pods_max = pods_max;
        node.features.clone_from(&spec.features);
        self.topology.update_node(id, self.nodes.get(id.0));
        self.count_pods_on_node(id, true);
        self.touch(id, true);
    }

    /// Marks a node as gone; it is kept while pods refer to it.
    pub(crate) fn remove_node(&mut self, name: &str) {
        let Some(id) = self.node_id(name) else { return };
        let node = self.nodes.get_mut(id.0).expect("a listed node exists");
        if !node.present {
            return;
        }
        if self.starting.remove(&id) {
            self.events.push(ClusterEvent::UpcomingNodeSettled);
        }
        self.events.push(ClusterEvent::NodeDeleted(id));
        self.set_images(id, &BTreeMap::new());
        self.count_pods_on_node(id, false);
        self.topology.update_node(id, None);
        let node = self.nodes.get_mut(id.0).expect("a listed node exists");
        self.storage.set_host(id, node.labels.get(HOSTNAME), None);
        let kept = Node {
            name: node.name.clone(),
            load: std::mem::take(&mut node.load),
            pods: std::mem::take(&mut node.pods),
            nominated: std::mem::take(&mut node.nominated),
            nominated_load: node.nominated_load.take(),
            ..Node::default()
        };
        *node = kept;
        self.nodes_present -= 1;
        self.touch(id, true);
        self.remove_node_if_unused(id);
    }

    /// Sets the images of a node. Feasibility does not depend on them.
    fn set_images(&mut self, id: NodeId, images: &BTreeMap<Arc<str>, i64>) {
        let node = self.nodes.get_mut(id.0).expect("a node in use exists");
        if node.images == *images {
            return;
        }
        let old = std::mem::replace(&mut node.images, images.clone());
        self.images.replace(&old, images);
        // Only scores change, so the version stays and cached feasibility results remain valid.
        self.journal.touch(Touch { node: id, itself: false }, self.nodes.bound());
    }

    /// Whether the counts of images equal a recount.
    pub(crate) fn images_are_counted(&self) -> bool {
        self.images.match_recount(&self.nodes)
    }

    pub(super) fn ensure_node(&mut self, name: &str) -> NodeId {
        if let Some(id) = self.node_id(name) {
            return id;
        }
        let name: Arc<str> = name.into();
        let id = NodeId(self.nodes.insert(Node { name: name.clone(), ..Node::default() }));
        self.nodes_by_name.insert(name, id);
        self.touch(id, true);
        id
    }

    /// Removes a node that does not exist and that no pod refers to.
    pub(super) fn remove_node_if_unused(&mut self, id: NodeId) {
        let node = self.node(id);
        if !node.present && node.pods.is_empty() && node.nominated.is_empty() {
            let name = node.name.clone();
            self.nodes.remove(id.0);
            self.nodes_by_name.remove(&name);
            self.touch(id, true);
        }
    }

    /// The nodes that are starting up: those with startup taints.
    pub(crate) fn starting(&self) -> impl Iterator<Item = NodeId> {
        self.starting.iter().copied()
    }

    /// In a transaction: treats a node as if it were ready for its first pods, or no longer.
    pub(crate) fn set_assumed_ready(&mut self, id: NodeId, soon: bool) {
        self.nodes.get_mut(id.0).expect("a starting node exists").assumed_ready = soon;
        self.touch(id, true);
    }
}
