//! Victim units: what is evicted together, and how important it is.
//!
//! A unit is a pod, or a whole group if its disruption mode requires that; it is evicted completely or not at all. Its
//! priority is that of the group, or the pod's own.

use std::cmp::{Ordering, Reverse};

use crate::cluster::transaction::Transaction;
use crate::model::Millis;
use crate::model::ids::{GroupId, NodeId, PodId};

/// The kind of loss; among equals, earlier kinds are evicted first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum VictimKind {
    /// A member of a gang beyond its minimum.
    Surplus,
    /// A pod without a group, or of a group without a minimum.
    Single,
    /// A member that its gang needs for its minimum.
    Needed,
    /// A whole group.
    Whole,
}

/// Pods that are evicted together or not at all.
#[derive(Clone, Debug)]
pub(crate) struct VictimUnit {
    /// Its pods and their nodes.
    pub(crate) pods: Vec<(PodId, NodeId)>,
    /// Its group, whether it is evicted whole or not.
    pub(crate) group: Option<GroupId>,
    pub(crate) kind: VictimKind,
    pub(crate) priority: i32,
    /// When its first pod started.
    pub(crate) started_ms: Millis,
}

impl VictimUnit {
    /// Removes its pods from their nodes.
    pub(crate) fn remove_from(&self, transaction: &mut Transaction<'_>) {
        for (pod, _) in &self.pods {
            transaction.remove(*pod);
        }
    }

    /// Restores its pods to their nodes.
    pub(crate) fn restore_to(&self, transaction: &mut Transaction<'_>) {
        for (pod, node) in &self.pods {
            transaction.restore(*pod, *node);
        }
    }

    /// Its part of the sum of priorities: every pod counts, even at the lowest priority.
    pub(crate) fn weight(&self) -> i64 {
        let of_one = i64::from(self.priority) - i64::from(i32::MIN);
        of_one * self.pods.len() as i64
    }

    /// Whether it is a whole group.
    pub(crate) fn is_whole_group(&self) -> bool {
        self.kind == VictimKind::Whole
    }

    /// Orders units most important first.
    pub(crate) fn by_importance(&self, other: &Self) -> Ordering {
        let key = |unit: &Self| {
            (
                Reverse(unit.priority),
                Reverse(unit.kind),
                Reverse(unit.pods.len()),
                unit.started_ms,
                unit.pods.first().copied(),
            )
        };
        key(self).cmp(&key(other))
    }
}

/// Removes units from their nodes, node by node, so that each node is looked up only once.
pub(crate) fn remove_all<'u>(transaction: &mut Transaction<'_>, units: impl Iterator<Item = &'u VictimUnit>) {
    let mut pods: Vec<(NodeId, PodId)> = units.flat_map(|unit| &unit.pods).map(|(pod, node)| (*node, *pod)).collect();
    pods.sort_unstable();
    for (_, pod) in pods {
        transaction.remove(pod);
    }
}
