//! Nodes that are being set up: room that is on its way, so that nobody is evicted for what a moment's patience gives.
//!
//! A new node carries taints that are taken off when it is ready for its first pods. For so long after it was made it is
//! waited for. It must not know which taints those are.

use super::cycle::own_view;
use super::preempt::without_the_leaving;
use super::{Engine, min_resources};
use crate::cluster::trial::Trial;
use crate::diagnosis::Preemption;
use crate::model::Millis;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::placement::{self, Verdict, Want};
use crate::preemption::Plan;
use crate::queue::Entity;

impl Engine {
    /// Refuses to evict for somebody who fits once the nodes are ready that are being set up.
    pub(super) fn not_before_nodes_arrive(
        &mut self,
        plan: &Plan,
        fits: impl FnOnce(&mut Self, &[NodeId]) -> bool,
    ) -> Result<(), Preemption> {
        let nodes: Vec<NodeId> = self.arriving().map(|(node, _)| node).collect();
        if plan.units.is_empty() || nodes.is_empty() || !fits(self, &nodes) {
            return Ok(());
        }
        Err(Preemption::NodesArriving { nodes: nodes.len() as u32 })
    }

    /// Until when at the latest the next of them is waited for.
    pub(super) fn nodes_awaited_until(&self) -> Option<Millis> {
        self.arriving().map(|(_, until)| until).min()
    }

    /// The nodes that are waited for, and until when.
    fn arriving(&self) -> impl Iterator<Item = (NodeId, Millis)> {
        let until = |node| self.cluster.node(node).created_ms.saturating_add(self.config.preemption.arrival_ms);
        self.cluster.starting().map(move |node| (node, until(node))).filter(|(_, until)| self.now < *until)
    }

    /// Whether a single pod fits when these nodes are ready and those have left who are leaving.
    pub(super) fn pod_fits_when_ready(&mut self, id: PodId, nodes: &[NodeId]) -> bool {
        let (class, priority) = self.line_of(id);
        let avoid = self.avoided(id);
        let mut trial = Trial::new(&mut self.cluster);
        trial.release(id);
        without_the_leaving(&mut trial);
        for node in nodes {
            trial.await_node(*node);
        }
        self.cache.candidates(trial.cluster(), class, priority).best_except(&avoid).is_some()
    }

    /// Whether a group fits when these nodes are ready and those have left who are leaving.
    pub(super) fn group_fits_when_ready(&mut self, id: GroupId, want: &Want, nodes: &[NodeId]) -> bool {
        let (claimed, steps_max) = (self.claimed_by(id), self.steps_max(Entity::Group(id)));
        let mut trial = own_view(&mut self.cluster, want, &claimed);
        without_the_leaving(&mut trial);
        for node in nodes {
            trial.await_node(*node);
        }
        let verdict = placement::place(&mut trial, &mut self.cache, want, steps_max);
        verdict == Verdict::Placed
            && trial.placed().next().is_some()
            && min_resources::gap(trial.cluster(), id, want).is_none()
    }

    /// Somebody evicts nobody because of nodes that are being set up.
    pub(super) fn awaits_nodes(&mut self, entity: Entity, preemption: Preemption) {
        if matches!(preemption, Preemption::NodesArriving { .. }) {
            self.awaiting_nodes.insert(entity);
        }
    }

    /// A node is no longer being set up, or is gone: who waited for it looks again.
    pub(super) fn arrival_called_off(&mut self) {
        for entity in std::mem::take(&mut self.awaiting_nodes) {
            self.queue.wake_parked(entity, self.now);
        }
    }
}
