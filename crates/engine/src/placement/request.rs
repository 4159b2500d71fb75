//! What is to be placed together, and the result.

use std::sync::Arc;

use super::within::Within;
use crate::cluster::transaction::Transaction;
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::model::topology::GroupTopology;

/// Pods of one class and subset in one request.
#[derive(Clone, Debug)]
pub(crate) struct Lot {
    pub(crate) class: ClassId,
    pub(crate) subset: usize,
    /// The pods, in the order in which they are placed.
    pub(crate) pods: Vec<PodId>,
    /// The number of further pods that are expected; the placement looks for room for them after the pods.
    pub(crate) expected: usize,
    /// Nodes that rejected these pods.
    pub(crate) avoid: Vec<NodeId>,
}

impl Lot {
    pub(crate) fn len(&self) -> usize {
        self.pods.len() + self.expected
    }

    /// Places the pod at this index, or reserves room for one that is expected.
    pub(super) fn place(&self, index: usize, node: NodeId, transaction: &mut Transaction<'_>) {
        match self.pods.get(index) {
            Some(pod) => transaction.place(*pod, node),
            None => transaction.occupy(self.class, node),
        }
    }
}

/// The topology domains that the pods of a request have to share.
#[derive(Clone, Debug)]
pub(crate) struct TopologyRequest {
    pub(crate) wanted: Arc<GroupTopology>,
    /// The nodes of the members that are placed already, one entry for each member.
    pub(crate) held: Vec<NodeId>,
    /// Their ranks, in the same order.
    pub(crate) held_ranks: Vec<Option<u64>>,
    /// The pods of other groups that exclude others from domains of the same label, as this one does.
    pub(crate) rivals: Vec<PodId>,
}

/// A request to place pods together.
#[derive(Clone, Debug)]
pub(crate) struct PlacementRequest {
    pub(crate) lots: Vec<Lot>,
    /// The minimum of each subset: all minimums are met or nothing is placed.
    pub(crate) needs: Vec<u32>,
    /// The priority of the pod or group.
    pub(crate) priority: i32,
    /// The domains to share, if there is a constraint.
    pub(crate) topology: Option<Arc<TopologyRequest>>,
    /// The domain to keep to, if one is chosen.
    pub(crate) within: Option<Within>,
}

impl PlacementRequest {
    /// Whether all pods are of one class and no nodes are avoided, so that the first greedy pass is exact.
    pub(crate) fn has_one_class(&self) -> bool {
        self.lots.windows(2).all(|pair| pair[0].class == pair[1].class) && !self.has_avoided_nodes()
    }

    /// Whether domains decide if it can be placed.
    pub(crate) fn is_bound_to_domains(&self) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.wanted.must_be_met())
    }

    /// Whether more than the room of its domain decides if it can be placed there.
    pub(crate) fn has_structure(&self) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.wanted.is_structured())
    }

    /// Whether a node may be used.
    pub(super) fn may_use(&self, lot: &Lot, node: NodeId) -> bool {
        !lot.avoid.contains(&node) && self.within.as_ref().is_none_or(|within| within.contains(node))
    }

    /// Whether some nodes are avoided: then a negative result proves nothing.
    pub(crate) fn has_avoided_nodes(&self) -> bool {
        self.lots.iter().any(|lot| !lot.avoid.is_empty())
    }

    /// Whether there are too few pods to meet the minimums, regardless of room.
    pub(super) fn has_too_few_pods(&self) -> bool {
        let there = |subset| self.lots.iter().filter(|lot| lot.subset == subset).map(Lot::len).sum::<usize>();
        self.needs.iter().enumerate().any(|(subset, need)| there(subset) < *need as usize)
    }

    /// The same request without some of its pods; the lots stay.
    pub(crate) fn without(&self, is_placed: impl Fn(PodId) -> bool) -> Self {
        let mut rest = self.clone();
        for lot in &mut rest.lots {
            lot.pods.retain(|pod| !is_placed(*pod));
        }
        rest
    }

    /// The number of pods of each subset, expected ones included.
    pub(crate) fn pods_by_subset(&self) -> Vec<u32> {
        let mut pods = vec![0; self.needs.len()];
        for lot in &self.lots {
            pods[lot.subset] += lot.len() as u32;
        }
        pods
    }

    /// The same request without the pods beyond the minimum of each subset whose pods are of one class: its first pods
    /// make up the minimum. Which pods of different classes do is up to the placement.
    pub(crate) fn trimmed_to_needs(&self) -> Self {
        let mut trimmed = self.clone();
        for (subset, need) in self.needs.iter().enumerate() {
            let mut classes = self.lots.iter().filter(|lot| lot.subset == subset).map(|lot| lot.class);
            let first = classes.next();
            if *need > 0 && classes.any(|class| Some(class) != first) {
                continue;
            }
            let mut left = *need as usize;
            for lot in trimmed.lots.iter_mut().filter(|lot| lot.subset == subset) {
                lot.pods.truncate(left);
                left -= lot.pods.len();
                lot.expected = lot.expected.min(left);
                left -= lot.expected;
            }
        }
        trimmed.lots.retain(|lot| lot.len() > 0);
        trimmed
    }

    pub(crate) fn needs_total(&self) -> u64 {
        self.needs.iter().map(|need| u64::from(*need)).sum()
    }
}

/// The result. For `Placed`, the transaction holds the placement; otherwise it is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The minimums are met, and all other pods that fit are placed, too.
    Placed,
    /// There is no placement.
    Impossible,
    /// No placement was found; there may be one.
    NotFound {
        /// The number of search steps.
        steps: u64,
    },
}

impl Verdict {
    /// The verdict on several parts of the cluster, in a further one of which no placement was found.
    pub(super) fn and_not_found(self, steps: u64) -> Self {
        let before = if let Self::NotFound { steps } = self { steps } else { 0 };
        Self::NotFound { steps: before.saturating_add(steps) }
    }
}
