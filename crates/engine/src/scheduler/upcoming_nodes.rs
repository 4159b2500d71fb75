//! Waits for nodes that are starting up, so that no pod is preempted for capacity that is about to exist.
//!
//! A new node carries startup taints until it is ready for its first pods. It is waited for until a limit after its
//! creation. Must not depend on which taints those are.

use super::planning_view::remove_leaving_pods;
use super::scheduling_cycle::view_for_group;
use super::{Engine, min_resources};
use crate::cluster::transaction::Transaction;
use crate::diagnosis::Preemption;
use crate::model::Millis;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::placement::{self, PlacementRequest, Verdict};
use crate::preemption::Plan;
use crate::queue::Entity;

impl Engine {
    /// Refuses preemption for an entity that fits once the upcoming nodes are ready.
    pub(super) fn check_upcoming_nodes(
        &mut self,
        plan: &Plan,
        fits: impl FnOnce(&mut Self, &[NodeId]) -> bool,
    ) -> Result<(), Preemption> {
        let nodes: Vec<NodeId> = self.upcoming_nodes().map(|(node, _)| node).collect();
        if plan.units.is_empty() || nodes.is_empty() || !fits(self, &nodes) {
            return Ok(());
        }
        Err(Preemption::UpcomingNodes { nodes: nodes.len() as u32 })
    }

    /// When the wait for the first of the upcoming nodes ends at the latest.
    pub(super) fn upcoming_nodes_until(&self) -> Option<Millis> {
        self.upcoming_nodes().map(|(_, until)| until).min()
    }

    /// The nodes that are waited for, and until when.
    fn upcoming_nodes(&self) -> impl Iterator<Item = (NodeId, Millis)> {
        let until =
            |node| self.cluster.node(node).created_ms.saturating_add(self.config.preemption.upcoming_node_wait_ms);
        self.cluster.starting().map(move |node| (node, until(node))).filter(|(_, until)| self.now < *until)
    }

    /// Whether a single pod fits once these nodes are ready and all leaving pods are gone.
    pub(super) fn pod_fits_when_ready(&mut self, id: PodId, nodes: &[NodeId]) -> bool {
        let (class, priority) = self.shape_of(id);
        let avoid = self.avoided(id);
        let mut transaction = Transaction::new(&mut self.cluster);
        transaction.clear_nomination(id);
        remove_leaving_pods(&mut transaction, [id]);
        for node in nodes {
            transaction.assume_node_ready(*node);
        }
        self.cache.candidates(transaction.cluster(), class, priority).best_except(&avoid).is_some()
    }

    /// Whether a group fits once these nodes are ready and all leaving pods are gone.
    pub(super) fn group_fits_when_ready(&mut self, id: GroupId, request: &PlacementRequest, nodes: &[NodeId]) -> bool {
        let (aside, steps_max) = (self.set_aside_for(id), self.steps_max(Entity::Group(id)));
        let started_after = self.debtors_started_after();
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        remove_leaving_pods(&mut transaction, request.lots.iter().flat_map(|lot| lot.pods.iter().copied()));
        for node in nodes {
            transaction.assume_node_ready(*node);
        }
        let verdict = placement::place(&mut transaction, &mut self.cache, request, steps_max);
        verdict == Verdict::Placed
            && transaction.placed().next().is_some()
            && min_resources::gap(transaction.cluster(), id, request, started_after).is_none()
    }

    /// Records that an entity does not preempt because of upcoming nodes.
    pub(super) fn record_wait_for_nodes(&mut self, entity: Entity, preemption: Preemption) {
        if matches!(preemption, Preemption::UpcomingNodes { .. }) {
            self.awaiting_nodes.insert(entity);
        }
    }
}
