//! Queueing hints: which parked entities each event of the cluster activates.
//!
//! This is the only place that activates entities because of a change of the cluster. Every event has its queue action
//! in `handle_event`; the compiler asks for that of a new one. Parked entities are found by the shapes of their pods.
//! An
//! attempt is cheap and a missed placement or plan is not, so in doubt entities are activated.
//!
//! The events of an observation or timer are handled at its end. Within a scheduling attempt they are handled after
//! each
//! change, while the entity of the attempt is not parked: it is not activated by its own changes.

use std::collections::BTreeSet;

use super::Engine;
use crate::cluster::event::ClusterEvent;
use crate::cluster::pod::Pod;
use crate::cluster::storage::{Storage, StorageDemand};
use crate::filter;
use crate::model::budget::BudgetSpec;
use crate::model::ids::{ClaimId, GroupId, NodeId, PodId};
use crate::model::topology::GroupTopology;
use crate::placement;
use crate::queue::{Entity, PodShape};

/// For so many shapes, an event checks whether they fit anywhere now; others are attempted without a check.
const CHECKS_MAX: usize = 8;

impl Engine {
    /// Handles all events since the last call, in order.
    pub(super) fn handle_events(&mut self) {
        // Many pods of one node may have gone at once.
        let (mut handled, mut domain_left) = (BTreeSet::new(), false);
        for event in self.cluster.take_events() {
            if let ClusterEvent::NominationCleared(node) = event
                && !handled.insert(node)
            {
                continue;
            }
            if matches!(event, ClusterEvent::ExclusiveDomainLeft) && std::mem::replace(&mut domain_left, true) {
                continue;
            }
            self.handle_event(event);
        }
        debug_assert!(!self.cluster.has_events(), "queue actions do not change the cluster");
    }

    fn handle_event(&mut self, event: ClusterEvent) {
        match event {
            ClusterEvent::NodeChanged(node) => {
                self.activate_for_node(node);
                self.activate_for_domain_of_members(node);
            }
            ClusterEvent::NominationCleared(node) => self.activate_for_node(node),
            ClusterEvent::NodeDeleted(node) => {
                self.recheck_plans_on(node);
                self.note_volume_changes_on(node);
                self.activate_for_domains();
            }
            ClusterEvent::UpcomingNodeSettled => self.activate_waiting_for_nodes(),
            ClusterEvent::PodAssumed(pod) => self.activate_for_placed_pod(pod),
            ClusterEvent::BindConfirmed(pod) | ClusterEvent::PodPreemptible(pod) => self.activate_for_victim(pod),
            ClusterEvent::AssignedPodAdded(pod) => {
                self.recheck_plans_of(pod);
                self.activate_for_victim(pod);
                self.activate_for_placed_pod(pod);
            }
            ClusterEvent::AssignedPodTerminating(pod) => self.handle_terminating(pod),
            ClusterEvent::AssignedPodDeleted { node, blocked } => {
                self.activate_for_node(node);
                if let Some((group, _)) = blocked.filter(|(_, until)| self.now < *until) {
                    self.activate_for_unblocked_group(group);
                }
            }
            ClusterEvent::ExclusiveDomainLeft => self.activate_for_exclusive_domain(),
            ClusterEvent::PodClassChanged(pod) => {
                let Some(pod) = self.cluster.pod_if_any(pod) else { return };
                self.activate_for_nodes(pod.state.node().into_iter().chain(pod.nominated));
            }
            ClusterEvent::NamespaceChanged { nodes } => self.activate_for_nodes(nodes),
            ClusterEvent::EvictionCancelled(pod) => self.recheck_plans_of(pod),
            ClusterEvent::DisruptionModeChanged(group) => self.activate_for_victim_group(group),
            ClusterEvent::GroupPriorityChanged { group, nominated } => {
                self.activate_for_nodes(nominated);
                self.activate_for_victim_group(group);
            }
            ClusterEvent::BudgetChanged(budget) => self.activate_for_budget(&budget),
            ClusterEvent::StorageChanged(class) => self.activate_for_storage(&class),
            ClusterEvent::ClaimChanged(claim) => self.activate_for_claim(claim),
            ClusterEvent::DriverChanged(driver) => self.activate_for_driver(&driver),
            ClusterEvent::ReservationEnded { nodes } => {
                self.activate_for_nodes(nodes);
                self.activate_starving();
            }
        }
    }

    fn activate_for_nodes(&mut self, nodes: impl IntoIterator<Item = NodeId>) {
        for node in nodes {
            self.activate_for_node(node);
        }
    }

    /// A node may have more free capacity: activates entities that have a pod of a shape that may fit there now.
    fn activate_for_node(&mut self, node: NodeId) {
        let Some(place) = self.cluster.node_if_any(node).filter(|place| place.present) else { return };
        let reserved = place.reservation_priority.is_some();
        let nominated = place.nominated.clone();
        let mut checks_left = CHECKS_MAX;
        for shape in self.parked_shapes() {
            if self.node_may_help(node, shape, &mut checks_left) {
                self.queue.activate(shape, self.now);
            } else if self.cluster.has_required_inter_pod_terms(shape.0) {
                // The pod that left may have blocked places on other nodes that are nominated.
                self.queue.activate_waiting_for_victims(shape, self.now);
            }
        }
        // Nominated capacity is not visible to other shapes, so the nominated entities are activated directly.
        for entity in nominated.into_iter().flat_map(|pod| self.entities_of_nominee(pod)).collect::<BTreeSet<Entity>>()
        {
            if self.victims_are_gone(entity) {
                self.queue.activate_now(entity, self.now);
            } else {
                self.queue.activate_parked(entity, self.now);
            }
        }
        // Reserved nodes are not visible to other shapes, so the owner of the reservation is activated directly.
        if let Some(reservation) = self.reservation.as_ref().filter(|_| reserved) {
            self.queue.activate_parked(Entity::Group(reservation.group), self.now);
        }
    }

    /// A node may have moved to another topology domain: activates the groups that have to be where their members on it
    /// are.
    fn activate_for_domain_of_members(&mut self, node: NodeId) {
        let Some(node) = self.cluster.node_if_any(node) else { return };
        let groups: BTreeSet<GroupId> = node.pods.iter().filter_map(|pod| self.cluster.pod(*pod).group).collect();
        for id in groups {
            let spec = self.cluster.group(id).definition.current();
            let topology = spec.and_then(|spec| spec.topology.as_deref());
            if topology.is_some_and(GroupTopology::must_be_met) {
                self.queue.activate_parked(Entity::Group(id), self.now);
            }
        }
    }

    /// The shapes of parked entities, without those whose class lost its last pod just now.
    fn parked_shapes(&self) -> Vec<PodShape> {
        self.queue.parked_shapes().filter(|(class, _)| self.cluster.classes.contains(*class)).collect()
    }

    /// Whether a pod of this shape may fit now that this node has changed.
    fn node_may_help(&mut self, node: NodeId, (class, priority): PodShape, checks_left: &mut usize) -> bool {
        // A pod that leaves a node may have blocked all nodes of the domain.
        if self.cluster.has_required_inter_pod_terms(class) && self.may_fit_anywhere((class, priority), checks_left) {
            return true;
        }
        let (class, place) = (self.cluster.class(class), self.cluster.node(node));
        let view = filter::view(&self.cluster, node, priority);
        filter::passes_static_filters(class, place)
            && (filter::has_room(class, place, &view) || self.fits_with_preemption(class, node, priority, view))
    }

    /// A domain lost a node: activates entities that fit now.
    fn activate_for_domains(&mut self) {
        let mut checks_left = CHECKS_MAX;
        for shape in self.parked_shapes() {
            if self.cluster.has_required_inter_pod_terms(shape.0) && self.may_fit_anywhere(shape, &mut checks_left) {
                self.queue.activate(shape, self.now);
            }
        }
    }

    /// Whether a pod of this shape may fit on any node. With preemption it may fit where it does not fit now, and only
    /// the first shapes of an event are checked: otherwise an attempt finds out, which is charged to its namespace and
    /// has to wait for its backoff.
    fn may_fit_anywhere(&mut self, (class, priority): PodShape, checks_left: &mut usize) -> bool {
        if self.config.preemption.on {
            return true;
        }
        let Some(left) = checks_left.checked_sub(1) else { return true };
        *checks_left = left;
        self.cache.candidates(&self.cluster, class, priority).best().is_some()
    }

    /// A pod was placed: activates entities with affinity to it, or whose topology spread it evens out.
    fn activate_for_placed_pod(&mut self, pod: PodId) {
        let Some(pod) = self.cluster.pod_if_any(pod).map(|pod| pod.class) else { return };
        let mut checks_left = CHECKS_MAX;
        for shape in self.parked_shapes() {
            let gains = placement::gains_feasible_nodes_by(&self.cluster, shape.0, pod);
            if gains && self.may_fit_anywhere(shape, &mut checks_left) {
                self.queue.activate(shape, self.now);
            }
        }
    }

    /// A pod is terminating: the expected waiting time of entities that wait for it may have changed.
    fn handle_terminating(&mut self, id: PodId) {
        let Some(pod) = self.cluster.pod_if_any(id) else { return };
        let (Some(node), blocked) = (pod.state.node(), pod.is_static || pod.not_preempted_before > self.now) else {
            return;
        };
        self.recheck_plans_on(node);
        if self.cluster.counts_for_spread(id) {
            // It no longer counts for topology spread.
            self.activate_for_node(node);
        }
        if blocked {
            // It may have kept its whole group from being preempted.
            self.activate_for_victim(id);
        } else if self.config.preemption.on {
            self.unschedulable.forget_plans();
            self.activate_for_node(node);
        }
    }

    /// Volumes of a storage class can be bound or provisioned: activates entities with claims of that class.
    fn activate_for_storage(&mut self, class: &str) {
        self.activate_by_demand(|_, demand| demand.asked.contains_key(class));
    }

    /// A CSI driver may be required on fewer nodes, or limit what is provisioned to less: activates entities that
    /// depend on it.
    fn activate_for_driver(&mut self, driver: &str) {
        self.activate_by_demand(|storage, demand| storage.depends_on_driver(demand, driver));
    }

    fn activate_by_demand(&mut self, may_fit: impl Fn(&Storage, &StorageDemand) -> bool) {
        for shape in self.parked_shapes() {
            let demand = self.cluster.class(shape.0).storage.as_deref();
            if demand.is_some_and(|demand| may_fit(&self.cluster.storage, demand)) {
                self.queue.activate(shape, self.now);
            }
        }
    }

    /// A claim has changed, or the volume that it is bound to or reserved: activates the entities that use it.
    fn activate_for_claim(&mut self, claim: ClaimId) {
        let users = self.cluster.storage.claim_if_any(claim).map(|claim| claim.users.clone()).unwrap_or_default();
        for pod in users {
            let entity = self.cluster.pod(pod).group.map_or(Entity::Pod(pod), Entity::Group);
            self.queue.activate_parked(entity, self.now);
        }
    }

    /// A disruption budget changed: activates entities that may preempt the pods it covers.
    fn activate_for_budget(&mut self, budget: &BudgetSpec) {
        if !self.config.preemption.on || !self.config.preemption.respects_budgets {
            return;
        }
        let of_budget = |pod: &Pod| {
            let counts = |pod: &Pod| budget.counts(&pod.id.name, &pod.labels);
            pod.id.namespace == budget.namespace && pod.state.node().is_some() && counts(pod)
        };
        let (mut groups, mut singles) = (BTreeSet::new(), Vec::new());
        for (id, pod) in self.cluster.pods().filter(|(_, pod)| of_budget(pod)) {
            match pod.group.filter(|group| self.evicts_together(*group)) {
                Some(group) => _ = groups.insert(group),
                None => singles.push(id),
            }
        }
        for group in groups {
            self.activate_for_victim_group(group);
        }
        for pod in singles {
            self.activate_for_victim(pod);
        }
    }

    /// A pod can be evicted, or is leaving, that was not before; its whole group, if that is evicted as a whole.
    fn activate_for_victim(&mut self, id: PodId) {
        let Some(pod) = self.cluster.pod_if_any(id).filter(|_| self.config.preemption.on) else { return };
        let (group, node) = (pod.group, pod.state.node());
        self.unschedulable.forget_plans();
        match group.filter(|group| self.evicts_together(*group)) {
            // A part of a tree can be evicted while others start.
            Some(group) if !self.is_evicted_whole(group) => self.activate_for_victim_group(group),
            Some(group) => self.activate_for_unblocked_group(group),
            None => self.activate_for_nodes(node),
        }
    }

    /// The last member that kept its group from being preempted is gone or failed to bind.
    fn activate_for_unblocked_group(&mut self, group: GroupId) {
        // A group with binds in flight cannot be evicted.
        let binds = self.cluster.group_if_any(group).is_none_or(|group| group.total().assumed > 0);
        if !binds && self.is_evicted_whole(group) {
            self.activate_for_victim_group(group);
        }
    }

    /// Whether pods of a group can only be evicted together.
    fn evicts_together(&self, group: GroupId) -> bool {
        self.rules().whole_groups && self.cluster.has_units(group)
    }

    /// Which entities can preempt a group may have changed: activates those that fit without it.
    fn activate_for_victim_group(&mut self, group: GroupId) {
        if !self.config.preemption.on {
            return;
        }
        self.unschedulable.forget_plans();
        let members = self.cluster.group_if_any(group).into_iter().flat_map(|group| &group.members);
        let nodes = members.filter_map(|(_, member)| self.cluster.pod(*member).state.node());
        self.activate_for_nodes(nodes.collect::<BTreeSet<NodeId>>());
    }

    /// Something changed on the node of a pod: activates the entities that are nominated to it.
    fn recheck_plans_of(&mut self, pod: PodId) {
        if let Some(node) = self.cluster.pod_if_any(pod).and_then(|pod| pod.state.node()) {
            self.recheck_plans_on(node);
        }
    }

    /// Something changed on a node: activates the entities that are nominated to it, to check their plans.
    fn recheck_plans_on(&mut self, node: NodeId) {
        for pod in self.cluster.node_if_any(node).map(|node| node.nominated.clone()).unwrap_or_default() {
            for entity in self.entities_of_nominee(pod) {
                self.queue.activate_parked(entity, self.now);
            }
        }
    }

    /// An upcoming node is ready or gone: activates the entities that waited for it.
    fn activate_waiting_for_nodes(&mut self) {
        for entity in std::mem::take(&mut self.awaiting_nodes) {
            self.queue.activate_parked(entity, self.now);
        }
    }

    /// Activates all starving gangs: one of them may reserve nodes next.
    fn activate_starving(&mut self) {
        let groups = self.queue.entries().filter(|(entity, entry)| self.starves(*entity, entry));
        for entity in groups.map(|(entity, _)| entity).collect::<Vec<_>>() {
            self.queue.activate_parked(entity, self.now);
        }
    }
}
