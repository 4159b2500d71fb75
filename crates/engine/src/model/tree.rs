//! Trees of groups: groups of which each needs some of its child groups, down to the leaves, whose members are pods.
//!
//! The root is the group that the engine schedules; its subsets are the leaves, in the order of the list. So a tree
//! starts
//! whole, like any group, and what is known about a leaf is known about a subset.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::group::{DisruptionMode, Subset};
use super::topology::GroupTopology;

/// A tree with more levels is refused, the leaves included.
pub const DEPTH_MAX: usize = 4;
/// A tree with more groups is refused.
pub const NODES_MAX: usize = 1_024;

/// What a group of a tree needs to start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TreeMinimum {
    /// A leaf: so many pods, from 1. A leaf without a minimum of its own needs one.
    Pods(u32),
    /// An inner group: so many of its child groups, from 1.
    Groups(u32),
}

/// A group of a tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeNode {
    /// Its name, unique in the tree. The pods of a leaf name it as their subset.
    pub name: String,
    /// The position of its parent, which comes before it; the root has 0.
    #[serde(default)]
    pub parent: usize,
    /// What it needs.
    pub minimum: TreeMinimum,
    /// The topology domains that its pods share, in addition to those of its ancestors. That of the root is the
    /// group's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Arc<GroupTopology>>,
    /// Whether its pods are evicted together. The highest group on the way to the root decides. That of the root is the
    /// group's.
    #[serde(default)]
    pub disruption_mode: DisruptionMode,
    /// The priority that protects its pods from preemption, at least that of its parent; `None` if it has that. The
    /// tree is
    /// scheduled with the priority of the root, which is the group's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
}

impl TreeNode {
    /// A group below the group at this position, without further constraints.
    pub fn new(name: &str, parent: usize, minimum: TreeMinimum) -> Self {
        Self {
            name: name.to_owned(),
            parent,
            minimum,
            topology: None,
            disruption_mode: DisruptionMode::default(),
            priority: None,
        }
    }
}

/// The groups of a tree, root first, each after its parent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<TreeNode>", into = "Vec<TreeNode>")]
pub struct GroupTree {
    nodes: Vec<TreeNode>,
    /// By node.
    children: Vec<Vec<usize>>,
    /// The nodes of the leaves: the subsets.
    leaves: Vec<usize>,
    /// By node: its subset, if it is a leaf.
    subsets: Vec<Option<usize>>,
}

impl From<Vec<TreeNode>> for GroupTree {
    fn from(nodes: Vec<TreeNode>) -> Self {
        let mut children = vec![Vec::new(); nodes.len()];
        let mut leaves = Vec::new();
        let mut subsets = vec![None; nodes.len()];
        for (at, node) in nodes.iter().enumerate() {
            if at > 0 && node.parent < at {
                children[node.parent].push(at);
            }
            if matches!(node.minimum, TreeMinimum::Pods(_)) {
                subsets[at] = Some(leaves.len());
                leaves.push(at);
            }
        }
        Self { nodes, children, leaves, subsets }
    }
}

impl From<GroupTree> for Vec<TreeNode> {
    fn from(tree: GroupTree) -> Self {
        tree.nodes
    }
}

impl GroupTree {
    /// All groups, root first.
    pub fn nodes(&self) -> &[TreeNode] {
        &self.nodes
    }

    /// The children of a group.
    pub fn children(&self, node: usize) -> &[usize] {
        &self.children[node]
    }

    /// The groups whose members are pods, in the order of the subsets.
    pub fn leaves(&self) -> &[usize] {
        &self.leaves
    }

    /// The subset of a group, if it is a leaf.
    pub fn subset(&self, node: usize) -> Option<usize> {
        self.subsets[node]
    }

    /// A group, its parent and so on up to the root.
    pub fn path(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        std::iter::successors(Some(node), |at| (*at > 0).then(|| self.nodes[*at].parent))
    }

    /// The leaves, as subsets with their minimums.
    pub fn rules(&self) -> Vec<Subset> {
        let rule = |leaf: &usize| {
            let TreeNode { name, minimum, .. } = &self.nodes[*leaf];
            let min_member = if let TreeMinimum::Pods(pods) = minimum { *pods } else { 0 };
            Subset { name: name.clone(), min_member }
        };
        self.leaves.iter().map(rule).collect()
    }

    /// Which groups have what they need, if this tells it for a leaf by its subset.
    pub fn met(&self, is_met: impl Fn(usize) -> bool) -> Vec<bool> {
        let mut met = vec![false; self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            met[at] = match (self.nodes[at].minimum, self.subsets[at]) {
                (TreeMinimum::Groups(needed), _) => self.count(at, &met) >= needed,
                (TreeMinimum::Pods(_), subset) => subset.is_some_and(&is_met),
            };
        }
        met
    }

    /// Whether the root has what it needs.
    pub fn is_met(&self, is_met: impl Fn(usize) -> bool) -> bool {
        self.met(is_met).first() == Some(&true)
    }

    /// How many children of a group are among these.
    pub fn count(&self, node: usize, among: &[bool]) -> u32 {
        self.children[node].iter().filter(|child| among[**child]).count() as u32
    }

    /// Which leaves, by subset, are in groups that all have what they need, up to the root. The others are not a part
    /// of
    /// what has started.
    pub fn complete(&self, is_met: impl Fn(usize) -> bool) -> Vec<bool> {
        let met = self.met(is_met);
        self.leaves.iter().map(|leaf| self.path(*leaf).all(|at| met[at])).collect()
    }

    /// The groups that could start beside what has: they have what they need, their parents have started, and they have
    /// not. `ready` and `started` are by node.
    pub fn extensions<'t>(&'t self, ready: &'t [bool], started: &'t [bool]) -> impl Iterator<Item = usize> + 't {
        (1..self.nodes.len()).filter(|at| started[self.nodes[*at].parent] && !started[*at] && ready[*at])
    }

    /// The highest group on the way from a leaf to the root, below the root, whose pods are evicted together.
    pub fn unit(&self, leaf: usize) -> Option<usize> {
        let is_whole = |at: &usize| *at > 0 && self.nodes[*at].disruption_mode == DisruptionMode::Group;
        self.path(leaf).filter(is_whole).last()
    }

    /// The priority that protects the pods of a group, if it is not that of the root.
    pub fn priority(&self, node: usize) -> Option<i32> {
        self.path(node).find_map(|at| self.nodes[at].priority)
    }

    /// How many groups there are on the way from a group to the root, both included.
    pub fn depth(&self, node: usize) -> usize {
        self.path(node).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two of three groups, of which the second needs two of two leaves.
    fn tree() -> GroupTree {
        GroupTree::from(vec![
            TreeNode::new("root", 0, TreeMinimum::Groups(2)),
            TreeNode::new("a", 0, TreeMinimum::Pods(2)),
            TreeNode::new("b", 0, TreeMinimum::Groups(2)),
            TreeNode::new("b1", 2, TreeMinimum::Pods(1)),
            TreeNode::new("b2", 2, TreeMinimum::Pods(1)),
            TreeNode::new("c", 0, TreeMinimum::Pods(3)),
        ])
    }

    #[test]
    fn leaves_are_the_subsets() {
        let tree = tree();
        let rules: Vec<(String, u32)> = tree.rules().into_iter().map(|rule| (rule.name, rule.min_member)).collect();
        let expected = [("a", 2), ("b1", 1), ("b2", 1), ("c", 3)].map(|(name, min)| (name.to_owned(), min));
        assert_eq!(rules, expected);
        assert_eq!((tree.subset(4), tree.subset(2), tree.depth(4)), (Some(2), None, 3));
    }

    #[test]
    fn quorum_is_recursive() {
        let tree = tree();
        let met = |subsets: &[usize]| tree.is_met(|subset| subsets.contains(&subset));
        assert!(!met(&[0]) && !met(&[0, 1]) && !met(&[1, 2]));
        assert!(met(&[0, 3]) && met(&[0, 1, 2]) && met(&[1, 2, 3]));
        assert_eq!(tree.complete(|subset| [0, 1, 3].contains(&subset)), [true, false, false, true]);
    }

    #[test]
    fn groups_start_beside_their_started_parents() {
        let tree = tree();
        let started = tree.met(|subset| [0, 3].contains(&subset));
        let ready = tree.met(|subset| subset != 2);
        assert_eq!(tree.extensions(&ready, &started).count(), 0, "b needs both of its leaves");
        let ready = tree.met(|_| true);
        assert_eq!(tree.extensions(&ready, &started).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn highest_group_decides_what_is_evicted_together() {
        let mut nodes: Vec<TreeNode> = tree().into();
        nodes[3].disruption_mode = DisruptionMode::Group;
        assert_eq!(GroupTree::from(nodes.clone()).unit(3), Some(3));
        nodes[2].disruption_mode = DisruptionMode::Group;
        let tree = GroupTree::from(nodes);
        assert_eq!((tree.unit(3), tree.unit(4), tree.unit(1)), (Some(2), Some(2), None));
    }
}
