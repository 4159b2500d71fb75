//! The request to place a tree of groups: which of its leaves have started, are starting, or may start.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Engine;
use crate::cluster::group::{Exclusion, Group};
use crate::cluster::pod::Counted;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::model::tree::GroupTree;
use crate::placement::{LeafState, PlacementRequest, TreeRequest};

impl Engine {
    /// The request for a tree.
    pub(super) fn tree_request(
        &self,
        id: GroupId,
        tree: &Arc<GroupTree>,
        mut request: PlacementRequest,
    ) -> PlacementRequest {
        let group = self.cluster.group(id);
        let pods = request.pods_by_subset();
        let leaves: Vec<LeafState> =
            (0..group.rules.len()).map(|subset| state_of(group, subset, pods[subset], request.needs[subset])).collect();
        for (need, state) in request.needs.iter_mut().zip(&leaves) {
            *need = if *state == LeafState::Incomplete { 0 } else { *need };
        }
        let held = self.held_in_tree(id, tree);
        let lost = group.rules.iter().zip(&group.member_counts).enumerate().map(|(subset, (rule, counts))| {
            let has_started = group.has_started_subset(subset);
            if has_started { rule.min_member.saturating_sub(counts.placed()) } else { 0 }
        });
        request.tree = Some(Arc::new(TreeRequest { tree: tree.clone(), leaves, lost: lost.collect(), held }));
        request
    }

    /// The nodes of the members that are placed already, for each group of a tree with a topology constraint.
    fn held_in_tree(&self, id: GroupId, tree: &GroupTree) -> BTreeMap<usize, Vec<NodeId>> {
        let group = self.cluster.group(id);
        let has_constraint = |at: &usize| tree.nodes()[*at].topology.as_ref().is_some_and(|own| own.is_constraint());
        let mut held: BTreeMap<usize, Vec<NodeId>> = BTreeMap::new();
        if !(0..tree.nodes().len()).any(|at| has_constraint(&at)) {
            return held;
        }
        let stays = |pod: &PodId| group.excluded.get(pod) != Some(&Exclusion::Former);
        for member in group.members.iter().map(|(_, pod)| *pod).filter(stays) {
            let pod = self.cluster.pod(member);
            if let (Counted::In { subset, .. }, Some(node), false) = (pod.counted, pod.state.node(), pod.is_leaving()) {
                for at in tree.path(tree.leaves()[usize::from(subset)]).filter(has_constraint) {
                    held.entry(at).or_default().push(node);
                }
            }
        }
        held
    }
}

fn state_of(group: &Group, subset: usize, pods: u32, need: u32) -> LeafState {
    let starts =
        group.lifecycle.attempt().is_some_and(|attempt| attempt.quorum.get(subset).is_some_and(|min| *min > 0));
    match need {
        0 => LeafState::Met,
        need if pods < need => LeafState::Incomplete,
        _ if starts => LeafState::Starting,
        _ => LeafState::Open,
    }
}
