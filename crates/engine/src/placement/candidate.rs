//! The evaluation of one node for a class, by filters and scores.

use crate::cluster::Cluster;
use crate::filter;
use crate::model::ids::{ClassId, NodeId};
use crate::score::{Scorer, StaticScore};

/// The evaluation of one node for a class and priority.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Candidate {
    pub(super) raw: StaticScore,
    /// The scores that depend on the node's load.
    pub(super) load_score: i64,
    pub(super) passes_static_filters: bool,
    /// It also passes the load filters for one more pod; inter-pod filters are not considered.
    pub(super) has_room: bool,
}

impl Candidate {
    /// Evaluates the node again; the static filters only if the node itself changed.
    pub(super) fn updated(
        mut self,
        cluster: &Cluster,
        scorer: &Scorer,
        (class, priority): (ClassId, i32),
        id: NodeId,
        itself: bool,
    ) -> Self {
        let Some(node) = cluster.node_if_any(id) else { return Self::default() };
        let class = cluster.class(class);
        if itself {
            self.passes_static_filters = filter::passes_static_filters(class, node);
            self.raw =
                if self.passes_static_filters { Scorer::static_score(class, node) } else { StaticScore::default() };
        }
        let view = filter::view(cluster, id, priority);
        self.has_room = self.passes_static_filters && filter::has_room_ignoring_inter_pod(class, node, &view);
        self.load_score = if self.has_room { scorer.load_score(class, node, cluster) } else { 0 };
        self
    }
}
