//! What is to be placed together, and the result.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::within::Within;
use crate::cluster::transaction::Transaction;
use crate::model::ids::{ClassId, NodeId, PodId};
use crate::model::topology::GroupTopology;
use crate::model::tree::{GroupTree, TreeMinimum};

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
    /// The domain to keep to, if it is narrower than that of the request.
    pub(crate) within: Option<Within>,
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

/// How far a leaf of a tree has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeafState {
    /// It has its minimum: further pods join one by one.
    Met,
    /// A part of the start under way.
    Starting,
    /// It may start, if all that it needs is placed.
    Open,
    /// It has too few pods to start.
    Incomplete,
}

/// A tree of which a part is to be placed.
#[derive(Clone, Debug)]
pub(crate) struct TreeRequest {
    pub(crate) tree: Arc<GroupTree>,
    /// By subset.
    pub(crate) leaves: Vec<LeafState>,
    /// By subset: how many members are missing from the minimum of a leaf that has started. They are replaced first.
    pub(crate) lost: Vec<u32>,
    /// By the position of a group with a topology constraint: the nodes of its members that are placed already.
    pub(crate) held: BTreeMap<usize, Vec<NodeId>>,
}

impl TreeRequest {
    /// Whether these pods of each subset are whole groups, and enough for the root.
    pub(crate) fn is_met_by(&self, needs: &[u32], pods: &[u32]) -> bool {
        let has = |subset: usize| pods[subset] >= needs[subset];
        let is_met = |subset: usize| match self.leaves[subset] {
            LeafState::Met => true,
            LeafState::Starting | LeafState::Open => has(subset),
            LeafState::Incomplete => false,
        };
        let whole = self.leaves.iter().enumerate().all(|(subset, state)| match state {
            LeafState::Met => true,
            LeafState::Starting => has(subset),
            LeafState::Open | LeafState::Incomplete => pods[subset] == 0 || is_met(subset),
        });
        let complete = self.tree.complete(is_met);
        whole && self.tree.is_met(is_met) && complete.iter().zip(pods).all(|(complete, pods)| *complete || *pods == 0)
    }

    /// The leaves that would start if the first groups did which have enough pods, beside what is starting: an example
    /// of what
    /// is needed.
    fn first_choice(&self) -> Vec<bool> {
        let state = |subset: usize| self.leaves[subset];
        let started = self.tree.met(|subset| matches!(state(subset), LeafState::Met | LeafState::Starting));
        let ready = self.tree.met(|subset| state(subset) != LeafState::Incomplete);
        let mut wanted = vec![false; self.tree.nodes().len()];
        match self.tree.extensions(&ready, &started).next().filter(|_| started[0]) {
            Some(extension) => wanted[extension] = true,
            None => wanted[0] = true,
        }
        for node in 0..wanted.len() {
            let TreeMinimum::Groups(needed) = self.tree.nodes()[node].minimum else { continue };
            if !wanted[node] || started[node] {
                continue;
            }
            let missing = needed.saturating_sub(self.tree.count(node, &started)) as usize;
            let children = self.tree.children(node).iter().filter(|child| !started[**child] && ready[**child]);
            for child in children.take(missing) {
                wanted[*child] = true;
            }
        }
        let leaves = self.tree.leaves().iter().zip(&self.leaves);
        leaves.map(|(leaf, state)| *state == LeafState::Starting || wanted[*leaf]).collect()
    }
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
    /// Whether nothing is placed beyond the minimums.
    pub(crate) needs_only: bool,
    /// The tree whose leaves the subsets are: not all of them may be needed.
    pub(crate) tree: Option<Arc<TreeRequest>>,
}

impl PlacementRequest {
    /// Whether all pods are of one class and no nodes are avoided, so that the first greedy pass is exact.
    pub(crate) fn has_one_class(&self) -> bool {
        self.tree.is_none()
            && self.lots.windows(2).all(|pair| pair[0].class == pair[1].class)
            && self.has_one_domain()
            && !self.has_avoided_nodes()
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
        !lot.avoid.contains(&node) && self.within_of(lot).is_none_or(|within| within.contains(node))
    }

    /// The domain that a lot keeps to.
    pub(crate) fn within_of<'r>(&'r self, lot: &'r Lot) -> Option<&'r Within> {
        lot.within.as_ref().or(self.within.as_ref())
    }

    /// Whether all lots may use the same nodes as far as domains go.
    pub(crate) fn has_one_domain(&self) -> bool {
        self.lots.windows(2).all(|pair| match (&pair[0].within, &pair[1].within) {
            (None, None) => true,
            (Some(one), Some(other)) => one.is(other),
            _ => false,
        })
    }

    /// Whether so many pods of each subset are what is needed.
    pub(crate) fn is_met_by(&self, pods: &[u32]) -> bool {
        match &self.tree {
            Some(tree) => tree.is_met_by(&self.needs, pods),
            None => pods.iter().zip(&self.needs).all(|(pods, need)| pods >= need),
        }
    }

    /// Of a tree, the same pods with an example of what is needed; any other request as it is.
    pub(crate) fn with_first_choice(&self) -> Cow<'_, Self> {
        let Some(tree) = &self.tree else { return Cow::Borrowed(self) };
        let chosen = tree.first_choice();
        let needs = self.needs.iter().zip(chosen).map(|(need, chosen)| if chosen { *need } else { 0 });
        Cow::Owned(Self { needs: needs.collect(), tree: None, ..self.clone() })
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
