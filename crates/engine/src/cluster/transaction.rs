//! Transactions: changes to the cluster that are undone unless they are committed.
//!
//! The undo log makes the cost of a transaction proportional to its changes. Placement, preemption and diagnosis all
//! use transactions; nothing tentative is left behind, because dropping a transaction undoes it.

use std::collections::BTreeSet;

use super::Cluster;
use super::event::ClusterEvent;
use super::pod::PodState;
use crate::model::ids::{ClassId, NodeId, PodId};

/// One change and what is needed to undo it.
#[derive(Debug)]
enum Undo {
    Placed { pod: PodId, node: NodeId },
    Occupied { class: ClassId, node: NodeId },
    Removed { pod: PodId, state: PodState, node: NodeId, place: usize },
    Restored { pod: PodId, node: NodeId },
    NominationCleared { pod: PodId, node: NodeId },
    ReservationLifted { node: NodeId, priority: i32 },
    AffinityMatchAssumed { class: ClassId, node: NodeId },
    NodeAssumedReady { node: NodeId },
    DetachmentAssumed { nodes: BTreeSet<NodeId> },
}

/// A point in a transaction to roll back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Savepoint(usize);

/// Tentative changes to a cluster.
#[derive(Debug)]
pub(crate) struct Transaction<'a> {
    cluster: &'a mut Cluster,
    log: Vec<Undo>,
    /// The version of the cluster before the transaction.
    version: u64,
    committed: bool,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(cluster: &'a mut Cluster) -> Self {
        let version = cluster.version();
        Self { cluster, log: Vec::new(), version, committed: false }
    }

    /// The cluster with the changes so far.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// Places a waiting pod on a node.
    pub(crate) fn place(&mut self, pod: PodId, node: NodeId) {
        assert_eq!(self.cluster.pod(pod).state, PodState::Waiting, "only a waiting pod can be placed");
        self.cluster.reserve_volumes(pod, node);
        self.cluster.add_to_node(pod, node);
        self.cluster.try_state(pod, PodState::Assumed(node));
        self.log.push(Undo::Placed { pod, node });
    }

    /// Uses the capacity of one pod of a class on a node, for an expected pod: it does not count for inter-pod
    /// constraints.
    pub(crate) fn occupy(&mut self, class: ClassId, node: NodeId) {
        self.cluster.change_load(node, class, true);
        self.log.push(Undo::Occupied { class, node });
    }

    /// Removes a pod from its node.
    pub(crate) fn remove(&mut self, pod: PodId) {
        let state = self.cluster.pod(pod).state;
        let node = state.node().expect("only a placed pod can be removed");
        let place = self.cluster.remove_from_node(pod, node);
        self.cluster.try_state(pod, PodState::Waiting);
        self.log.push(Undo::Removed { pod, state, node, place });
    }

    /// Puts a removed pod back on its node.
    pub(crate) fn restore(&mut self, pod: PodId, node: NodeId) {
        assert_eq!(self.cluster.pod(pod).state, PodState::Waiting, "only a removed pod can be restored");
        self.cluster.add_to_node(pod, node);
        self.cluster.try_state(pod, PodState::Bound(node));
        self.log.push(Undo::Restored { pod, node });
    }

    /// Clears a pod's nomination.
    pub(crate) fn clear_nomination(&mut self, pod: PodId) {
        if let Some(node) = self.cluster.pod(pod).nominated {
            self.cluster.unlist_nomination(pod, node);
            self.cluster.pod_mut(pod).nominated = None;
            self.log.push(Undo::NominationCleared { pod, node });
        }
    }

    /// Ends the reservation of a node.
    pub(crate) fn lift_reservation(&mut self, node: NodeId) {
        if let Some(priority) = self.cluster.node(node).reservation_priority {
            self.cluster.set_reservation(node, None);
            self.log.push(Undo::ReservationLifted { node, priority });
        }
    }

    /// Pretends that a pod is on a node that matches the required affinity of a class, so that the first pod of a
    /// self-affine class can be placed in that domain.
    pub(crate) fn assume_affinity_match(&mut self, class: ClassId, node: NodeId) {
        self.cluster.assume_affinity_match(class, node, true);
        self.log.push(Undo::AffinityMatchAssumed { class, node });
    }

    /// Treats a node that is starting up as ready.
    pub(crate) fn assume_node_ready(&mut self, node: NodeId) {
        self.cluster.set_assumed_ready(node, true);
        self.log.push(Undo::NodeAssumedReady { node });
    }

    /// Treats volumes that no pod uses any more as detached: they are in a while.
    pub(crate) fn assume_detached(&mut self) {
        let nodes = self.cluster.nodes_with_left_volumes();
        self.cluster.assume_detached(true, &nodes);
        self.log.push(Undo::DetachmentAssumed { nodes });
    }

    /// Whether nothing has been changed.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.log.is_empty()
    }

    /// The current position.
    pub(crate) fn savepoint(&self) -> Savepoint {
        Savepoint(self.log.len())
    }

    /// Undoes everything since a savepoint.
    pub(crate) fn rollback_to(&mut self, savepoint: Savepoint) {
        assert!(savepoint.0 <= self.log.len(), "a savepoint lies in the past");
        while self.log.len() > savepoint.0 {
            match self.log.pop().expect("longer than the savepoint") {
                Undo::Placed { pod, node } | Undo::Restored { pod, node } => {
                    self.cluster.remove_from_node(pod, node);
                    self.cluster.try_state(pod, PodState::Waiting);
                    self.cluster.release_volumes(pod);
                }
                Undo::Occupied { class, node } => self.cluster.change_load(node, class, false),
                Undo::Removed { pod, state, node, place } => {
                    self.cluster.add_to_node(pod, node);
                    let pods = &mut self.cluster.nodes.get_mut(node.0).expect("a pod's node exists").pods;
                    pods[place..].rotate_right(1);
                    self.cluster.try_state(pod, state);
                }
                Undo::ReservationLifted { node, priority } => self.cluster.set_reservation(node, Some(priority)),
                Undo::AffinityMatchAssumed { class, node } => self.cluster.assume_affinity_match(class, node, false),
                Undo::DetachmentAssumed { nodes } => self.cluster.assume_detached(false, &nodes),
                Undo::NodeAssumedReady { node } => self.cluster.set_assumed_ready(node, false),
                Undo::NominationCleared { pod, node } => {
                    self.cluster.list_nomination(pod, node);
                    self.cluster.pod_mut(pod).nominated = Some(node);
                }
            }
        }
    }

    /// The pods placed so far and where, in order.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (PodId, NodeId)> {
        self.placed_since(Savepoint(0))
    }

    /// The pods placed since a savepoint and where, in order.
    pub(crate) fn placed_since(&self, savepoint: Savepoint) -> impl Iterator<Item = (PodId, NodeId)> {
        self.log[savepoint.0..].iter().filter_map(|undo| match undo {
            Undo::Placed { pod, node } => Some((*pod, *node)),
            _ => None,
        })
    }

    /// Where room is used for expected pods since a savepoint, in order.
    pub(crate) fn occupied_since(&self, savepoint: Savepoint) -> Vec<(ClassId, NodeId)> {
        let occupied = self.log[savepoint.0..].iter().filter_map(|undo| match undo {
            Undo::Occupied { class, node } => Some((*class, *node)),
            _ => None,
        });
        occupied.collect()
    }

    /// Where room is used for expected pods, in order.
    pub(crate) fn occupied(&self) -> Vec<(ClassId, NodeId)> {
        self.occupied_since(Savepoint(0))
    }

    /// Commits the placements and undoes everything else. Returns the pods placed and where.
    pub(crate) fn commit(mut self) -> Vec<(PodId, NodeId)> {
        let placed: Vec<_> = self.placed().collect();
        let only_placements = self.log.iter().all(|undo| matches!(undo, Undo::Placed { .. }));
        self.committed = true;
        if !only_placements {
            self.rollback_to(Savepoint(0));
            for (pod, node) in &placed {
                self.cluster.reserve_volumes(*pod, *node);
                self.cluster.add_to_node(*pod, *node);
                self.cluster.try_state(*pod, PodState::Assumed(*node));
            }
        }
        for (pod, _) in &placed {
            self.cluster.count_out(*pod);
            self.cluster.list_if_leaving(*pod);
            self.cluster.count_in(*pod);
            self.cluster.record(ClusterEvent::PodAssumed(*pod));
        }
        placed
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.rollback_to(Savepoint(0));
            self.cluster.version = self.version;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::cluster::audit;
    use crate::cluster::pod::{Awaited, Counted, Pod, StartRole};
    use crate::model::class::ClassSpec;
    use crate::model::group::{GroupKey, GroupSpec};
    use crate::model::node::NodeSpec;
    use crate::model::pod::{Lifetime, PodName};
    use crate::model::port::{HostPort, Protocol};

    /// Three nodes; six pods of two classes, some placed, some nominated; if wanted, in a group with `minResources`.
    fn cluster(grouped: bool) -> Cluster {
        let mut cluster = Cluster::default();
        let group = grouped.then(|| {
            let id = cluster.ensure_group(&GroupKey::default());
            let min_resources = [("cpu".to_owned(), 4000), ("example.com/gpu".to_owned(), 7)].into();
            cluster.set_group(id, GroupSpec { min_resources, ..GroupSpec::gang(GroupKey::default(), 1) });
            id
        });
        for name in ["n0", "n1", "n2"] {
            let allocatable = [("cpu".to_owned(), 8000), ("example.com/gpu".to_owned(), 8), ("pods".to_owned(), 9)];
            cluster.set_node(&NodeSpec { name: name.into(), allocatable: allocatable.into(), ..NodeSpec::default() });
        }
        for number in 0..6_u32 {
            let port = HostPort { address: None, protocol: Protocol::Tcp, port: 80 };
            let spec = if number % 2 == 0 {
                ClassSpec {
                    requests: [("cpu".to_owned(), 1500)].into(),
                    host_ports: vec![port],
                    ..ClassSpec::default()
                }
            } else {
                let requests = [("example.com/gpu".to_owned(), 3), ("memory".to_owned(), 7)].into();
                ClassSpec { requests, scoring_cpu_milli: 100, ..ClassSpec::default() }
            };
            let labels = cluster.acquire_labels("", &Arc::default());
            let class = cluster.acquire_class(&Arc::new(spec), labels);
            let id = cluster.add_pod(Pod { group, ..pod(number, class, labels) });
            match number {
                0..=1 => cluster.set_state(id, PodState::Bound(NodeId(number))),
                2 => cluster.set_state(id, PodState::Assumed(NodeId(0))),
                3 => cluster.set_nominated(id, Some(NodeId(2))),
                _ => {}
            }
        }
        cluster
    }

    /// Whether two states are equal, except for the journal.
    fn same_state(one: &Cluster, other: &Cluster) -> bool {
        one.nodes == other.nodes
            && one.pods == other.pods
            && one.groups == other.groups
            && one.nodes_by_name == other.nodes_by_name
            && one.pods_by_uid == other.pods_by_uid
            && one.groups_by_key == other.groups_by_key
            && one.debtors == other.debtors
            && one.nodes_present == other.nodes_present
            && one.budgets == other.budgets
            && one.topology == other.topology
            && one.storage == other.storage
    }

    pub(crate) fn pod(number: u32, class: ClassId, label_set: crate::model::ids::LabelSetId) -> Pod {
        Pod {
            id: Arc::new(PodName { uid: number.to_string(), ..PodName::default() }),
            class,
            priority: 0,
            group: None,
            subset: "".into(),
            attempt: None,
            ours: true,
            gated: false,
            refused: None,
            terminating: false,
            is_static: false,
            labels: Arc::default(),
            label_set,
            started_ms: None,
            preemption_cost: 0,
            eviction: None,
            without_place: false,
            marked: false,
            not_preempted_before: 0,
            never_preempts: false,
            grace_period_ends_ms: None,
            rolling_back: false,
            controlled: false,
            is_running: false,
            ran: false,
            start_role: StartRole::None,
            start: None,
            stateful_set: None,
            rank: None,
            lifetime: Lifetime::default(),
            created_ms: 0,
            schedulable_since: None,
            state: PodState::Waiting,
            nominated: None,
            shows_nomination: false,
            awaited_nomination: Awaited::default(),
            bind: None,
            counted: Counted::Not,
            claims: Arc::default(),
            claim_ids: Vec::new(),
            unusable: None,
            volume_plan: None,
            volume_binding: None,
            counted_live: false,
            counted_taking: false,
        }
    }

    /// One random operation, if it is possible in the current state.
    fn act(transaction: &mut Transaction<'_>, savepoints: &mut Vec<Savepoint>, kind: u8, pod: u32, node: u32) {
        let (pod, node) = (PodId(pod), NodeId(node));
        let placed = transaction.cluster().pod(pod).state.node().is_some();
        match kind {
            0 if !placed => transaction.place(pod, node),
            1 if placed => transaction.remove(pod),
            6 if !placed => transaction.restore(pod, node),
            2 => transaction.occupy(transaction.cluster().pod(pod).class, node),
            3 => transaction.clear_nomination(pod),
            4 => savepoints.push(transaction.savepoint()),
            5 => {
                if let Some(savepoint) = savepoints.pop() {
                    transaction.rollback_to(savepoint);
                }
            }
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn dropped_transaction_leaves_no_changes(acts in prop::collection::vec((0_u8..7, 0_u32..6, 0_u32..3), 0..40)) {
            let mut cluster = cluster(true);
            let before = cluster.clone();
            let mut savepoints = Vec::new();
            let mut transaction = Transaction::new(&mut cluster);
            for (kind, pod, node) in acts {
                act(&mut transaction, &mut savepoints, kind, pod, node);
                prop_assert_eq!(audit::taken(transaction.cluster()), Ok(()));
            }
            drop(transaction);
            prop_assert!(same_state(&cluster, &before));
            prop_assert_eq!(audit::ledger(&cluster), Ok(()));
        }

        #[test]
        fn committed_transaction_keeps_only_its_placements(acts in prop::collection::vec((0_u8..6, 0_u32..6, 0_u32..3), 0..40)) {
            let mut cluster = cluster(false);
            let before = cluster.clone();
            let mut savepoints = Vec::new();
            let mut transaction = Transaction::new(&mut cluster);
            for (kind, pod, node) in acts {
                // Only preemption removes pods and places them again, and it never commits.
                if kind != 1 {
                    act(&mut transaction, &mut savepoints, kind, pod, node);
                }
            }
            let placed = transaction.commit();
            prop_assert_eq!(audit::ledger(&cluster), Ok(()));
            prop_assert_eq!(audit::nominations(&cluster).is_ok(), !placed.iter().any(|(pod, _)| pod.0 == 3));
            for (pod, node) in &placed {
                prop_assert_eq!(cluster.pod(*pod).state, PodState::Assumed(*node));
            }
            for (pod, _) in placed {
                cluster.set_state(pod, PodState::Waiting);
            }
            prop_assert!(same_state(&cluster, &before));
        }
    }
}
