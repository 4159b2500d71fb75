//! Changes of the cluster that may help pods and groups that wait.
//!
//! Every mutation of [`Cluster`](super::Cluster) appends its event, so none can be forgotten; a transaction appends
//! nothing before it is committed. `scheduler/queueing_hints.rs` maps each event to queue actions.

use std::collections::BTreeSet;

use crate::model::Millis;
use crate::model::budget::BudgetSpec;
use crate::model::ids::{ClaimId, GroupId, NodeId, PodId};

/// One change of the cluster. The state that it led to is in the cluster; an event only holds what is gone.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClusterEvent {
    /// A node was added or changed.
    NodeChanged(NodeId),
    /// A node was deleted.
    NodeDeleted(NodeId),
    /// A node that was starting up is ready, or is gone.
    UpcomingNodeSettled,
    /// A placement was committed.
    PodAssumed(PodId),
    /// A bind succeeded.
    BindConfirmed(PodId),
    /// A pod was seen on a node.
    AssignedPodAdded(PodId),
    /// A pod on a node is terminating.
    AssignedPodTerminating(PodId),
    /// A pod no longer uses its node: it is gone or finished, or its bind failed.
    AssignedPodDeleted {
        node: NodeId,
        /// The group that could not be evicted as a whole while the pod was there, and until when it could not.
        blocked: Option<(GroupId, Millis)>,
    },
    /// A pod of a group that excludes others from its topology domains has left one, or such a group does not any more.
    ExclusiveDomainLeft,
    /// The requirements of a pod changed.
    PodClassChanged(PodId),
    /// The labels of a namespace changed, and with them which selectors match the pods on these nodes.
    NamespaceChanged { nodes: BTreeSet<NodeId> },
    /// A pod is no longer nominated to this node.
    NominationCleared(NodeId),
    /// A pod on a node can be evicted from now on.
    PodPreemptible(PodId),
    /// A pod is not evicted, or its bind not rolled back, after all.
    EvictionCancelled(PodId),
    /// The disruption mode of a group changed.
    DisruptionModeChanged(GroupId),
    /// The priority of a group changed, and with it the precedence of its nominations to these nodes.
    GroupPriorityChanged { group: GroupId, nominated: Vec<NodeId> },
    /// A disruption budget covers other pods or allows another number of evictions. Holds the former or the new one.
    BudgetChanged(Box<BudgetSpec>),
    /// Claims of this storage class may be bound on nodes where they could not be before.
    StorageChanged(String),
    /// Claims that pods use have changed, or what they depend on.
    ClaimChanged(ClaimId),
    /// What a CSI driver publishes or requires has changed.
    DriverChanged(String),
    /// A reservation ended.
    ReservationEnded { nodes: Vec<NodeId> },
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::Cluster;
    use crate::cluster::pod::PodState;
    use crate::cluster::transaction::Transaction;
    use crate::model::class::ClassSpec;
    use crate::model::node::NodeSpec;

    fn node(cpu: i64) -> NodeSpec {
        let allocatable = [("cpu".to_owned(), cpu), ("pods".to_owned(), 9)].into();
        NodeSpec { name: "n0".into(), allocatable, ..NodeSpec::default() }
    }

    /// A node with a pod on it and a waiting pod, whose events were taken.
    fn cluster() -> (Cluster, PodId, PodId) {
        let mut cluster = Cluster::default();
        cluster.set_node(&node(4000));
        let mut add = |uid| {
            let labels = cluster.acquire_labels("", &Arc::default());
            let class = cluster.acquire_class(&Arc::new(ClassSpec::default()), labels);
            cluster.add_pod(crate::cluster::transaction::tests::pod(uid, class, labels))
        };
        let (placed, waiting) = (add(0), add(1));
        cluster.set_state(placed, PodState::Bound(NodeId(0)));
        cluster.take_events();
        (cluster, placed, waiting)
    }

    #[test]
    fn mutations_append_their_events() {
        let (mut cluster, placed, waiting) = cluster();
        let n0 = NodeId(0);
        cluster.set_node(&node(4000));
        assert_eq!(cluster.take_events(), [], "nothing changed");
        cluster.set_node(&node(5000));
        assert_eq!(cluster.take_events(), [ClusterEvent::NodeChanged(n0)]);
        cluster.set_nominated(waiting, Some(n0));
        assert_eq!(cluster.take_events(), [], "a nomination helps no other pod");
        cluster.set_nominated(waiting, None);
        assert_eq!(cluster.take_events(), [ClusterEvent::NominationCleared(n0)]);
        cluster.change_pod(placed, |pod| pod.terminating = true);
        assert_eq!(cluster.take_events(), [ClusterEvent::AssignedPodTerminating(placed)]);
        cluster.remove_pod(placed);
        assert_eq!(cluster.take_events(), [ClusterEvent::AssignedPodDeleted { node: n0, blocked: None }]);
        cluster.remove_node("n0");
        assert_eq!(cluster.take_events(), [ClusterEvent::NodeDeleted(n0)]);
    }

    #[test]
    fn transaction_appends_events_only_when_it_is_committed() {
        let (mut cluster, placed, waiting) = cluster();
        let mut transaction = Transaction::new(&mut cluster);
        transaction.remove(placed);
        transaction.place(waiting, NodeId(0));
        drop(transaction);
        assert_eq!(cluster.take_events(), []);
        let mut transaction = Transaction::new(&mut cluster);
        transaction.place(waiting, NodeId(0));
        transaction.commit();
        assert_eq!(cluster.take_events(), [ClusterEvent::PodAssumed(waiting)]);
    }
}
