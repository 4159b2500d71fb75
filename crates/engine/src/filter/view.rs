//! What filters see of a node: its load and its topology domains, as they are for a certain priority.

use std::borrow::Cow;

use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::cluster::topology::ExistingTerms;
use crate::model::ids::NodeId;

/// A node as seen by a pod or group of a certain priority.
#[derive(Debug)]
pub(crate) struct View<'a> {
    /// The load of the node, including nominated pods of the same or a higher priority.
    pub(crate) load: Cow<'a, Load>,
    /// The cluster, for what nodes share, and the slot of the node.
    pub(crate) cluster: &'a Cluster,
    pub(crate) node: NodeId,
    /// The node is reserved for a group of the same or a higher priority.
    pub(crate) blocked_by_reservation: bool,
    /// The rest of the cluster, for inter-pod filters; `None` skips them.
    pub(crate) inter_pod: Option<InterPodView<'a>>,
}

/// A node within its topology domains, as seen by a pod or group of a certain priority.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InterPodView<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) node: NodeId,
    pub(crate) priority: i32,
    /// The terms of existing pods on the class, if they are known already.
    pub(crate) existing: Option<&'a ExistingTerms>,
    /// Evaluate as if the cluster had no pods.
    pub(crate) without_pods: bool,
}

impl<'a> View<'a> {
    /// Whether it is a node of a cluster without any pods except its load.
    pub(crate) fn without_pods(&self) -> bool {
        self.inter_pod.as_ref().is_some_and(|inter_pod| inter_pod.without_pods)
    }

    /// A node of a cluster without any pods except this load.
    pub(crate) fn of_empty_cluster(cluster: &'a Cluster, node: NodeId, load: Cow<'a, Load>) -> Self {
        View {
            load,
            cluster,
            node,
            blocked_by_reservation: false,
            inter_pod: Some(InterPodView { cluster, node, priority: i32::MAX, existing: None, without_pods: true }),
        }
    }
}

/// A node as seen by a pod or group of this priority.
pub(crate) fn view(cluster: &Cluster, id: NodeId, priority: i32) -> View<'_> {
    cluster.steps.add(1);
    let node = cluster.node(id);
    let load = match &node.nominated_load {
        None => Cow::Borrowed(&node.load),
        Some(nominated) if priority <= nominated.lowest_priority => Cow::Borrowed(&nominated.load),
        Some(_) => Cow::Owned(nominated_at_least(cluster, id, priority)),
    };
    let blocked_by_reservation = node.reservation_priority.is_some_and(|claim| priority <= claim);
    View {
        load,
        cluster,
        node: id,
        blocked_by_reservation,
        inter_pod: Some(InterPodView { cluster, node: id, priority, existing: None, without_pods: false }),
    }
}

fn nominated_at_least(cluster: &Cluster, id: NodeId, priority: i32) -> Load {
    let node = cluster.node(id);
    let mut load = node.load.clone();
    for pod in &node.nominated {
        if cluster.effective_priority(*pod) >= priority {
            load.add(cluster.class(cluster.pod(*pod).class));
        }
    }
    load
}
