//! The view of the cluster on which preemption is planned: without what leaves anyway.
//!
//! Nothing has to be evicted where waiting is enough: for pods that are leaving, and for volumes that no pod uses any more,
//! which are detached in a while.

use super::Engine;
use crate::cluster::transaction::Transaction;
use crate::model::ids::{NodeId, PodId};

impl Engine {
    /// Whether volumes that no pod uses any more are still attached to the node of a pod that has volumes attached.
    pub(super) fn waits_for_detachment(&self, places: &[(PodId, NodeId)]) -> bool {
        let attaches = |(pod, _): &&(PodId, NodeId)| self.cluster.attaches_volumes(self.cluster.pod(*pod).class);
        let mut places = places.iter().filter(attaches).peekable();
        places.peek().is_some() && {
            let left = self.cluster.nodes_with_left_volumes();
            places.any(|(_, node)| left.contains(node))
        }
    }
}

/// Removes leaving pods: nothing has to be evicted for these pods where waiting is enough. Volumes that no pod uses any
/// more will be detached.
pub(super) fn remove_leaving_pods(transaction: &mut Transaction<'_>, pods: impl IntoIterator<Item = PodId>) {
    detach_left_volumes(transaction, pods);
    let leaving: Vec<PodId> = transaction.cluster().leaving().collect();
    for pod in leaving {
        transaction.remove(pod);
    }
}

/// Treats volumes that no pod uses any more as detached, if any of these pods has volumes attached: they are in a while.
pub(super) fn detach_left_volumes(transaction: &mut Transaction<'_>, pods: impl IntoIterator<Item = PodId>) {
    let cluster = transaction.cluster();
    if pods.into_iter().any(|pod| cluster.attaches_volumes(cluster.pod(pod).class)) {
        transaction.assume_detached();
    }
}
