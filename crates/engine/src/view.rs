//! Read-only views of the engine's state of the cluster, for hosts and tests.
//!
//! A view borrows the engine and copies nothing. It names objects as the API does: ids stay inside the engine.

use std::fmt;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::group::Group;
use crate::cluster::node::Node;
use crate::cluster::pod::{Counted, Pod, PodState, StartRole};
use crate::model::class::ClassSpec;
use crate::model::group::{GroupKey, GroupSpec};
use crate::model::ids::{GroupId, PodId};
use crate::model::labels::Labels;
use crate::model::pod::{PodName, PodRefusal};
use crate::model::taint::Taint;
use crate::scheduler::{Engine, GroupState};

impl Engine {
    /// A pod by UID.
    pub fn pod_view(&self, uid: &str) -> Option<PodView<'_>> {
        Some(PodView::new(&self.cluster, self.cluster.pod_id(uid)?))
    }

    /// All pods.
    pub fn pod_views(&self) -> impl Iterator<Item = PodView<'_>> {
        self.cluster.pods().map(|(id, _)| PodView::new(&self.cluster, id))
    }

    /// A node by name; it may be known from pods only.
    pub fn node_view(&self, name: &str) -> Option<NodeView<'_>> {
        Some(NodeView { node: self.cluster.node(self.cluster.node_id(name)?) })
    }

    /// All nodes, including those that are known from pods only.
    pub fn node_views(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.cluster.nodes().map(|(_, node)| NodeView { node })
    }

    /// A group by key; it may be known from pods only.
    pub fn group_view(&self, key: &GroupKey) -> Option<GroupView<'_>> {
        Some(GroupView::new(&self.cluster, self.cluster.group_id(key)?))
    }

    /// All groups, including those that are known from pods only.
    pub fn group_views(&self) -> impl Iterator<Item = GroupView<'_>> {
        self.cluster.groups().map(|(id, _)| GroupView::new(&self.cluster, id))
    }
}

/// A pod.
#[derive(Clone, Copy)]
pub struct PodView<'e> {
    cluster: &'e Cluster,
    pod: &'e Pod,
    id: PodId,
}

impl<'e> PodView<'e> {
    fn new(cluster: &'e Cluster, id: PodId) -> Self {
        Self { cluster, pod: cluster.pod(id), id }
    }

    /// Its identity.
    pub fn name(&self) -> &'e PodName {
        &self.pod.id
    }

    /// Its labels.
    pub fn labels(&self) -> &'e Labels {
        &self.pod.labels
    }

    /// Everything that matters to its placement.
    pub fn class(&self) -> &'e Arc<ClassSpec> {
        &self.cluster.class(self.pod.class).spec
    }

    /// The group that it refers to.
    pub fn group(&self) -> Option<GroupView<'e>> {
        self.pod.group.map(|group| GroupView::new(self.cluster, group))
    }

    /// Whether its group excludes it: it counts as a pod without a group.
    pub fn is_excluded(&self) -> bool {
        self.pod.counted == Counted::Excluded
    }

    /// Why it must not be placed, if so: a field of its own, or one of its claims.
    pub fn refusal(&self) -> Option<&'e PodRefusal> {
        self.pod.refusal().map(|refusal| &**refusal)
    }

    /// Its priority for scheduling: that of its group, or its own.
    pub fn priority(&self) -> i32 {
        self.cluster.effective_priority(self.id)
    }

    /// The node that it is assumed on or bound to, until it has finished.
    pub fn node(&self) -> Option<NodeView<'e>> {
        self.pod.state.node().map(|node| NodeView { node: self.cluster.node(node) })
    }

    /// Its nominated node.
    pub fn nominated_node(&self) -> Option<NodeView<'e>> {
        self.pod.nominated.map(|node| NodeView { node: self.cluster.node(node) })
    }

    /// Whether it is placed and its bind is not confirmed.
    pub fn is_assumed(&self) -> bool {
        matches!(self.pod.state, PodState::Assumed(_))
    }

    /// How often its bind to the current node was sent.
    pub fn bind_tries(&self) -> u32 {
        self.pod.bind.as_ref().map_or(0, |bind| bind.tries)
    }

    /// Whether it was placed by a start that is not confirmed: it is deleted if that start fails.
    pub fn is_tentative(&self) -> bool {
        self.pod.start_role == StartRole::Tentative && self.pod.state.node().is_some() && !self.pod.is_leaving()
    }

    /// Whether it was ever seen running.
    pub fn has_run(&self) -> bool {
        self.pod.ran
    }

    /// Whether the API shows it as terminating.
    pub fn is_terminating(&self) -> bool {
        self.pod.terminating
    }

    /// Whether it is being preempted.
    pub fn is_evicted(&self) -> bool {
        self.pod.eviction.is_some()
    }

    /// Whether it is terminating, being preempted, or being deleted to roll back its bind.
    pub fn is_leaving(&self) -> bool {
        self.pod.is_leaving()
    }
}

impl fmt::Debug for PodView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pod.fmt(f)
    }
}

/// A node.
#[derive(Clone, Copy, Debug)]
pub struct NodeView<'e> {
    node: &'e Node,
}

impl<'e> NodeView<'e> {
    /// Its name.
    pub fn name(&self) -> &'e str {
        &self.node.name
    }

    /// Whether it exists, and is not only known from pods.
    pub fn exists(&self) -> bool {
        self.node.present
    }

    /// Its labels.
    pub fn labels(&self) -> &'e Labels {
        &self.node.labels
    }

    /// Its taints.
    pub fn taints(&self) -> &'e [Taint] {
        &self.node.taints
    }

    /// Whether pods are nominated to it.
    pub fn has_nominations(&self) -> bool {
        !self.node.nominated.is_empty()
    }

    /// The priority of the starving group that it is reserved for.
    pub fn reservation_priority(&self) -> Option<i32> {
        self.node.reservation_priority
    }
}

/// A group.
#[derive(Clone, Copy)]
pub struct GroupView<'e> {
    cluster: &'e Cluster,
    group: &'e Group,
    id: GroupId,
}

impl<'e> GroupView<'e> {
    fn new(cluster: &'e Cluster, id: GroupId) -> Self {
        Self { cluster, group: cluster.group(id), id }
    }

    /// Which group.
    pub fn key(&self) -> &'e GroupKey {
        &self.group.key
    }

    /// The object, while it exists and can be used.
    pub fn spec(&self) -> Option<&'e GroupSpec> {
        self.group.definition.current()
    }

    /// The last object that could be used: what it said holds while members have nodes.
    pub fn last_spec(&self) -> Option<&'e GroupSpec> {
        self.group.definition.last()
    }

    /// Its priority, by the rule of its API.
    pub fn priority(&self) -> i32 {
        self.cluster.group_priority(self.id)
    }

    /// The minimum of each subset that was confirmed; empty if it never started.
    pub fn reached(&self) -> &'e [u32] {
        self.group.lifecycle.reached()
    }

    /// Its state in one word.
    pub fn state(&self) -> GroupState {
        GroupState::of(self.cluster, self.group)
    }

    /// Whether it had started and is below its minimum.
    pub fn is_degraded(&self) -> bool {
        self.group.lifecycle.loss().is_some()
    }

    /// How many more members each subset needs before anything may be bound.
    pub fn needs(&self) -> Vec<u32> {
        self.group.needs()
    }

    /// All pods that refer to it, oldest first.
    pub fn members(&self) -> impl Iterator<Item = PodView<'e>> + use<'e> {
        let cluster = self.cluster;
        self.group.members.iter().map(move |(_, member)| PodView::new(cluster, *member))
    }

    /// The members that could be placed now, oldest first.
    pub fn waiting_members(&self) -> impl Iterator<Item = PodView<'e>> + use<'e> {
        let cluster = self.cluster;
        self.group.waiting.iter().map(move |(_, member)| PodView::new(cluster, *member))
    }
}

impl fmt::Debug for GroupView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.group.fmt(f)
    }
}
