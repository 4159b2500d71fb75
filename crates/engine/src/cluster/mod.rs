//! The state of the cluster: nodes, pods, nominations and groups, with everything derived from them.
//!
//! Every change of a pod's state goes through here, so that the loads of nodes and the member counts of groups always
//! equal a recount. What-if evaluation uses a [`Transaction`](transaction::Transaction). Must not depend on why
//! anything is changed.

pub(crate) mod audit;
pub(crate) mod class;
mod classes;
pub(crate) mod event;
pub(crate) mod forest;
pub(crate) mod group;
mod groups;
pub(crate) mod images;
mod inter_pod;
pub(crate) mod journal;
pub(crate) mod lifecycle;
pub(crate) mod load;
pub(crate) mod node;
mod nodes;
pub(crate) mod pod;
pub(crate) mod profile;
mod steps;
pub(crate) mod storage;
mod taken;
pub(crate) mod topology;
pub(crate) mod transaction;
mod trees;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::model::Millis;
use crate::model::budget::BudgetSpec;
use crate::model::class::ClassSpec;
use crate::model::group::GroupKey;
use crate::model::ids::{ClassId, GroupId, NodeId, PodId, Slab};
use crate::model::resources::ResourceNames;
use class::PodClass;
use classes::Classes;
use event::ClusterEvent;
use group::Group;
use images::Images;
use journal::{Journal, Touch};
use node::{Node, NominatedLoad};
use pod::{Pod, PodState};
use profile::ProfileRules;
use steps::StepCounter;
use storage::Storage;
use topology::{Presence, Topology};

/// The state of the cluster.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// Counts evaluations of nodes: what a decision costs, independent of the machine.
    pub(crate) steps: StepCounter,
    pub(crate) resources: ResourceNames,
    pub(crate) classes: Classes,
    nodes: Slab<Node>,
    nodes_by_name: BTreeMap<Arc<str>, NodeId>,
    nodes_present: usize,
    pods: Slab<Pod>,
    pods_by_uid: BTreeMap<Box<str>, PodId>,
    /// Leaving pods that are on nodes. A transaction does not change it.
    leaving: BTreeSet<PodId>,
    /// Nodes with startup taints.
    starting: BTreeSet<NodeId>,
    groups: Slab<Group>,
    groups_by_key: BTreeMap<GroupKey, GroupId>,
    /// Groups with placed members that take less than their `minResources`.
    debtors: BTreeSet<GroupId>,
    /// Groups that exclude others from their topology domains, as far as their objects say so now.
    exclusive: BTreeSet<GroupId>,
    /// By namespace and name.
    pub(crate) budgets: BTreeMap<(String, String), BudgetSpec>,
    pub(crate) topology: Topology,
    pub(crate) images: Images,
    pub(crate) storage: Storage,
    /// The profiles by index.
    pub(crate) profiles: Vec<ProfileRules>,
    /// Whether a group's own priority counts only up to the lowest of its members.
    pub(crate) group_priority_capped: bool,
    pub(crate) journal: Journal,
    events: Vec<ClusterEvent>,
    version: u64,
}

impl Cluster {
    // Reading.

    /// The node in a slot.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0).expect("a node in use exists")
    }

    /// The node in a slot, if there is one.
    pub(crate) fn node_if_any(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)
    }

    /// The slot of a node by name.
    pub(crate) fn node_id(&self, name: &str) -> Option<NodeId> {
        self.nodes_by_name.get(name).copied()
    }

    /// All nodes in slot order, including those that are only known from pods.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().map(|(slot, node)| (NodeId(slot), node))
    }

    /// One past the highest node slot.
    pub(crate) fn node_slots(&self) -> usize {
        self.nodes.bound()
    }

    /// How many nodes exist.
    pub(crate) fn nodes_present(&self) -> usize {
        self.nodes_present
    }

    /// The pod in a slot.
    pub(crate) fn pod(&self, id: PodId) -> &Pod {
        self.pods.get(id.0).expect("a pod in use exists")
    }

    /// The pod in a slot, if there is one.
    pub(crate) fn pod_if_any(&self, id: PodId) -> Option<&Pod> {
        self.pods.get(id.0)
    }

    /// The slot of a pod by UID.
    pub(crate) fn pod_id(&self, uid: &str) -> Option<PodId> {
        self.pods_by_uid.get(uid).copied()
    }

    /// One past the highest pod slot.
    pub(crate) fn pod_slots(&self) -> usize {
        self.pods.bound()
    }

    /// All pods in slot order.
    pub(crate) fn pods(&self) -> impl Iterator<Item = (PodId, &Pod)> {
        self.pods.iter().map(|(slot, pod)| (PodId(slot), pod))
    }

    /// The leaving pods that are on nodes.
    pub(crate) fn leaving(&self) -> impl Iterator<Item = PodId> {
        self.leaving.iter().copied()
    }

    /// The group in a slot.
    pub(crate) fn group(&self, id: GroupId) -> &Group {
        self.groups.get(id.0).expect("a group in use exists")
    }

    /// The group in a slot, if there is one.
    pub(crate) fn group_if_any(&self, id: GroupId) -> Option<&Group> {
        self.groups.get(id.0)
    }

    /// The slot of a group by key.
    pub(crate) fn group_id(&self, key: &GroupKey) -> Option<GroupId> {
        self.groups_by_key.get(key).copied()
    }

    /// All groups in slot order, including those that are only known from pods.
    pub(crate) fn groups(&self) -> impl Iterator<Item = (GroupId, &Group)> {
        self.groups.iter().map(|(slot, group)| (GroupId(slot), group))
    }

    /// A class in use.
    pub(crate) fn class(&self, id: ClassId) -> &PodClass {
        self.classes.get(id)
    }

    /// The names of resources.
    pub(crate) fn resource_names(&self) -> &ResourceNames {
        &self.resources
    }

    /// The group's priority, by the rule of its API.
    pub(crate) fn group_priority(&self, id: GroupId) -> i32 {
        let group = self.group(id);
        let oldest = || group.members.first().map(|(_, oldest)| self.pod(*oldest).priority);
        group.priority(self.group_priority_capped, oldest)
    }

    /// The priority of a pod for scheduling: its group's, or its own.
    pub(crate) fn effective_priority(&self, id: PodId) -> i32 {
        let pod = self.pod(id);
        pod.group.map_or(pod.priority, |group| self.group_priority(group))
    }

    /// The profile of a class.
    pub(crate) fn profile(&self, class: &ClassSpec) -> ProfileRules {
        self.profiles.get(usize::from(class.profile)).copied().unwrap_or_default()
    }

    /// The version of the state; it changes with every node. A transaction that is undone restores it.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    fn touch(&mut self, node: NodeId, itself: bool) {
        self.version += 1;
        self.journal.touch(Touch { node, itself }, self.nodes.bound());
    }

    // Events.

    /// Appends an event that is not caused by a mutation but by time.
    pub(crate) fn record(&mut self, event: ClusterEvent) {
        self.events.push(event);
    }

    /// Whether there are events that were not taken.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the events since the last call, in order.
    pub(crate) fn take_events(&mut self) -> Vec<ClusterEvent> {
        std::mem::take(&mut self.events)
    }

    // Pods.

    /// Adds a pod; its state is set afterwards.
    pub(crate) fn add_pod(&mut self, pod: Pod) -> PodId {
        debug_assert!(pod.state == PodState::Waiting && pod.nominated.is_none());
        let uid: Box<str> = pod.id.uid.as_str().into();
        let (group, created_ms, priority) = (pod.group, pod.created_ms, pod.priority);
        let attempt = pod.attempt.clone();
        let shared = group.and_then(|group| self.shared_priority(group));
        let label_set = pod.label_set;
        let id = PodId(self.pods.insert(pod));
        self.topology.add_pod(label_set, id);
        self.pods_by_uid.insert(uid, id);
        self.list_if_leaving(id);
        if let Some(group_id) = group {
            let group = self.group_mut(group_id);
            group.members.insert((created_ms, id));
            group.count_member(priority, true);
            let is_new_attempt = attempt.is_some_and(|attempt| group.add_attempt(&attempt));
            self.count_in(id);
            if is_new_attempt {
                self.recount(group_id);
            } else {
                self.recount_if_shared_priority_changed(group_id, shared);
            }
        }
        id
    }

    /// Removes a pod and everything that it uses.
    pub(crate) fn remove_pod(&mut self, id: PodId) -> Pod {
        let shared = self.pod(id).group.and_then(|group| self.shared_priority(group));
        self.set_nominated(id, None);
        self.set_state(id, PodState::Finished { succeeded: false });
        self.set_claims(id, &Arc::default());
        self.count_out(id);
        let pod = self.pods.remove(id.0).expect("a removed pod exists");
        self.pods_by_uid.remove(pod.id.uid.as_str());
        self.topology.remove_pod(pod.label_set, id);
        self.topology.release_labels(pod.label_set);
        if let Some(group_id) = pod.group {
            let group = self.group_mut(group_id);
            group.members.remove(&(pod.created_ms, id));
            group.exclusions_changed.remove(&id);
            group.count_member(pod.priority, false);
            if pod.attempt.as_ref().is_some_and(|attempt| group.remove_attempt(attempt)) {
                self.recount(group_id);
            } else {
                self.recount_if_shared_priority_changed(group_id, shared);
            }
        }
        self.release_class(pod.class);
        pod
    }

    /// Changes the class of a pod, because its requirements changed.
    pub(crate) fn set_class(&mut self, id: PodId, class: ClassId) {
        self.replace_class(id, class);
        self.events.push(ClusterEvent::PodClassChanged(id));
    }

    /// Changes the class of a pod, also in the load of its node.
    fn replace_class(&mut self, id: PodId, class: ClassId) {
        let pod = self.pod(id);
        let (old, node) = (pod.class, pod.state.node());
        if let Some(node_id) = node {
            self.change_load(node_id, old, false);
            self.change_load(node_id, class, true);
        }
        let nominated = self.pod(id).nominated;
        self.count_pod(id, false);
        self.change_pod(id, |pod| pod.class = class);
        self.count_pod(id, true);
        if let Some(node_id) = nominated {
            self.update_nominated_load(node_id);
        }
        self.release_class(old);
    }

    /// Changes the state of a pod.
    pub(crate) fn set_state(&mut self, id: PodId, state: PodState) {
        let old = self.pod(id).state;
        self.replace_state(id, state);
        if state.node().is_some() && old != state {
            self.events.push(ClusterEvent::AssignedPodAdded(id));
        }
    }

    /// A bind succeeded.
    pub(crate) fn confirm_bind(&mut self, id: PodId, node: NodeId) {
        self.replace_state(id, PodState::Bound(node));
        self.events.push(ClusterEvent::BindConfirmed(id));
    }

    /// Changes the state of a pod, with the load of its node and the member counts of its group.
    fn replace_state(&mut self, id: PodId, state: PodState) {
        let old = self.pod(id).state;
        if old == state {
            return;
        }
        if let Some(node) = old.node().filter(|node| state.node() != Some(*node)) {
            let blocked = self.pod(id).group.zip(self.pod(id).not_evictable_before());
            self.events.push(ClusterEvent::AssignedPodDeleted { node, blocked });
            self.note_exclusive_domain_left(id);
        }
        if matches!(old, PodState::Assumed(_)) {
            self.release_volumes_for_others(id);
        }
        self.count_out(id);
        if old.node() != state.node() {
            if let Some(node) = old.node() {
                self.remove_from_node(id, node);
            }
            if let Some(node) = state.node() {
                self.add_to_node(id, node);
            }
        }
        self.pod_mut(id).state = state;
        self.list_if_leaving(id);
        self.count_in(id);
        if let Some(node) = old.node().filter(|node| state.node() != Some(*node)) {
            self.remove_node_if_unused(node);
        }
    }

    /// Changes fields that do not affect a node's load; updates the member counts.
    pub(crate) fn change_pod(&mut self, id: PodId, change: impl FnOnce(&mut Pod)) {
        self.count_out(id);
        let was_terminating = self.pod(id).terminating;
        change(self.pod_mut(id));
        if self.pod(id).terminating != was_terminating {
            self.update_spread_counts(id);
            if self.pod(id).terminating && self.pod(id).state.node().is_some() {
                self.events.push(ClusterEvent::AssignedPodTerminating(id));
            }
        }
        self.list_if_leaving(id);
        self.count_in(id);
    }

    fn list_if_leaving(&mut self, id: PodId) {
        let pod = self.pod(id);
        if pod.is_leaving() && pod.state.node().is_some() {
            self.leaving.insert(id);
        } else {
            self.leaving.remove(&id);
        }
    }

    /// The pod, for fields that neither loads nor member counts depend on.
    pub(crate) fn pod_mut(&mut self, id: PodId) -> &mut Pod {
        self.pods.get_mut(id.0).expect("a pod in use exists")
    }

    /// The slot of a node by name, created if needed: pods can be bound before their node is seen.
    pub(crate) fn node_for_pod(&mut self, name: &str) -> NodeId {
        self.ensure_node(name)
    }

    /// Sets or clears the nominated node of a pod.
    pub(crate) fn set_nominated(&mut self, id: PodId, node: Option<NodeId>) {
        let old = self.pod(id).nominated;
        if old == node {
            return;
        }
        if let Some(old) = old {
            self.unlist_nomination(id, old);
        }
        if let Some(new) = node {
            self.list_nomination(id, new);
        }
        self.pod_mut(id).nominated = node;
        if let Some(old) = old {
            self.remove_node_if_unused(old);
            self.events.push(ClusterEvent::NominationCleared(old));
            self.note_exclusive_domain_left(id);
        }
    }

    /// The group of this pod may have left a domain that it had for itself.
    fn note_exclusive_domain_left(&mut self, id: PodId) {
        if self.pod(id).group.is_some_and(|group| self.exclusive.contains(&group)) {
            self.events.push(ClusterEvent::ExclusiveDomainLeft);
        }
    }

    /// Updates the nominated load of the nodes of a group's nominations, if its priority changed.
    pub(crate) fn update_group_priority(&mut self, id: GroupId) {
        let priority = self.group_priority(id);
        if std::mem::replace(&mut self.group_mut(id).nominated_priority, priority) == priority {
            return;
        }
        let members = self.group(id).members.iter();
        let nominated: Vec<NodeId> = members.filter_map(|(_, member)| self.pod(*member).nominated).collect();
        for node in &nominated {
            self.update_nominated_load(*node);
        }
        self.events.push(ClusterEvent::GroupPriorityChanged { group: id, nominated });
    }

    /// A pod is not evicted after all, and cannot be until this time.
    pub(crate) fn cancel_eviction(&mut self, id: PodId, not_preempted_before: Millis) {
        self.change_pod(id, |pod| {
            pod.eviction = None;
            pod.not_preempted_before = not_preempted_before;
        });
        self.events.push(ClusterEvent::EvictionCancelled(id));
    }

    /// The bind of a pod is not rolled back after all: plans that counted on it may not be valid any more.
    pub(crate) fn cancel_roll_back(&mut self, id: PodId) {
        self.change_pod(id, |pod| pod.rolling_back = false);
        self.events.push(ClusterEvent::EvictionCancelled(id));
    }

    /// Recomputes the load of a node with its nominated pods.
    fn update_nominated_load(&mut self, id: NodeId) {
        let node = self.node(id);
        let mut load = node.load.clone();
        let mut lowest_priority = i32::MAX;
        for pod in &node.nominated {
            load.add(self.class(self.pod(*pod).class));
            lowest_priority = lowest_priority.min(self.effective_priority(*pod));
        }
        let nominated_load = (!node.nominated.is_empty()).then(|| Box::new(NominatedLoad { load, lowest_priority }));
        self.nodes.get_mut(id.0).expect("a nominated node exists").nominated_load = nominated_load;
        self.touch(id, false);
    }

    /// Adds or removes one pod of a class on a node.
    fn change_load(&mut self, id: NodeId, class: ClassId, add: bool) {
        let class = self.classes.get(class);
        let node = self.nodes.get_mut(id.0).expect("a node in use exists");
        let nominated_load = node.nominated_load.as_mut().map(|nominated| &mut nominated.load);
        for load in std::iter::once(&mut node.load).chain(nominated_load) {
            if add { load.add(class) } else { load.sub(class) }
        }
        self.touch(id, false);
    }

    /// Reserves a node for a group of this priority, or ends the reservation.
    pub(crate) fn set_reservation(&mut self, id: NodeId, priority: Option<i32>) {
        self.nodes.get_mut(id.0).expect("a reserved node exists").reservation_priority = priority;
        self.touch(id, false);
    }

    /// Ends the reservation of nodes.
    pub(crate) fn end_reservation(&mut self, nodes: Vec<NodeId>) {
        for node in &nodes {
            self.set_reservation(*node, None);
        }
        self.events.push(ClusterEvent::ReservationEnded { nodes });
    }

    // Budgets.

    /// Adds or updates a disruption budget.
    pub(crate) fn set_budget(&mut self, spec: &BudgetSpec) {
        let key = (spec.namespace.clone(), spec.name.clone());
        let old = self.budgets.insert(key, spec.clone());
        if let Some(old) = old.filter(|old| old != spec) {
            self.events.push(ClusterEvent::BudgetChanged(Box::new(old)));
            self.events.push(ClusterEvent::BudgetChanged(Box::new(spec.clone())));
        }
    }

    /// Removes a disruption budget.
    pub(crate) fn remove_budget(&mut self, namespace: String, name: String) {
        if let Some(old) = self.budgets.remove(&(namespace, name)) {
            self.events.push(ClusterEvent::BudgetChanged(Box::new(old)));
        }
    }

    fn list_nomination(&mut self, id: PodId, node: NodeId) {
        let list = &mut self.nodes.get_mut(node.0).expect("a nominated node exists").nominated;
        let place = list.partition_point(|other| *other < id);
        list.insert(place, id);
        self.count_inter_pod(id, node, Presence::Nominated, true);
        if let Some(group) = self.pod(id).group {
            self.group_mut(group).nominations += 1;
        }
        self.update_nominated_load(node);
    }

    fn unlist_nomination(&mut self, id: PodId, node: NodeId) {
        let list = &mut self.nodes.get_mut(node.0).expect("a nominated node exists").nominated;
        list.retain(|other| *other != id);
        self.count_inter_pod(id, node, Presence::Nominated, false);
        if let Some(group) = self.pod(id).group {
            self.group_mut(group).nominations -= 1;
        }
        self.update_nominated_load(node);
    }

    fn add_to_node(&mut self, id: PodId, node: NodeId) {
        self.change_load(node, self.pod(id).class, true);
        self.count_inter_pod(id, node, Presence::Placed, true);
        self.count_claims(id, true);
        self.nodes.get_mut(node.0).expect("a pod's node exists").pods.push(id);
    }

    /// Removes a pod from its node and returns its index in the node's list.
    fn remove_from_node(&mut self, id: PodId, node: NodeId) -> usize {
        self.change_load(node, self.pod(id).class, false);
        self.count_inter_pod(id, node, Presence::Placed, false);
        self.count_claims(id, false);
        let pods = &mut self.nodes.get_mut(node.0).expect("a pod's node exists").pods;
        let place = pods.iter().rposition(|other| *other == id).expect("a pod is listed on its node");
        pods.remove(place);
        place
    }
}
