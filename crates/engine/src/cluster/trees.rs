//! Pods of trees: what they are evicted with, what protects them, and their move between a group and the root of its
//! tree.

use super::Cluster;
use super::pod::{Pod, StartRole};
use crate::model::group::DisruptionMode;
use crate::model::ids::{GroupId, PodId};
use crate::model::tree::TreeNode;

impl Cluster {
    /// The priority that protects a pod from preemption: in a tree, at least that for scheduling.
    pub(crate) fn victim_priority(&self, id: PodId) -> i32 {
        let (pod, own) = (self.pod(id), self.effective_priority(id));
        let Some(group) = pod.group.map(|group| self.group(group)) else { return own };
        let tree = group.tree.as_ref();
        let protected = tree.and_then(|tree| tree.priority(*tree.leaves().get(group.leaf_of(pod)?)?));
        protected.map_or(own, |protected| protected.max(own))
    }

    /// The part of its group that a pod is evicted with: the position of a group in the tree, or 0 for all of it.
    /// `None` if
    /// the pod can be evicted alone.
    pub(crate) fn unit_of(&self, pod: &Pod) -> Option<usize> {
        let group = self.group(pod.group?);
        if group.definition.last()?.disruption_mode == DisruptionMode::Group {
            return Some(0);
        }
        let tree = group.tree.as_ref()?;
        tree.unit(*tree.leaves().get(group.leaf_of(pod)?)?)
    }

    /// Whether pods of a group can only be evicted together, all of them or those of some groups of the tree.
    pub(crate) fn has_units(&self, id: GroupId) -> bool {
        let group = self.group(id);
        let is_whole = |node: &TreeNode| node.disruption_mode == DisruptionMode::Group;
        group.definition.last().is_some_and(|spec| spec.disruption_mode == DisruptionMode::Group)
            || group.tree.as_ref().is_some_and(|tree| tree.nodes().iter().skip(1).any(is_whole))
    }

    /// Moves a pod to a subset of another group, as which its own turned out to be a part of a tree or not.
    pub(crate) fn move_to_group(&mut self, id: PodId, to: GroupId, subset: &str) {
        let pod = self.pod(id);
        let (from, created_ms, priority, attempt) = (pod.group, pod.created_ms, pod.priority, pod.attempt.clone());
        self.set_nominated(id, None);
        self.count_out(id);
        if let Some(from) = from {
            let shared = self.shared_priority(from);
            let group = self.group_mut(from);
            group.members.remove(&(created_ms, id));
            group.exclusions_changed.remove(&id);
            group.count_member(priority, false);
            if attempt.as_ref().is_some_and(|attempt| group.remove_attempt(attempt)) {
                self.recount(from);
            } else {
                self.recount_if_shared_priority_changed(from, shared);
            }
        }
        let pod = self.pod_mut(id);
        (pod.group, pod.subset, pod.start_role) = (Some(to), subset.into(), StartRole::None);
        let shared = self.shared_priority(to);
        let group = self.group_mut(to);
        group.members.insert((created_ms, id));
        group.count_member(priority, true);
        let is_new_attempt = attempt.is_some_and(|attempt| group.add_attempt(&attempt));
        self.count_in(id);
        if is_new_attempt {
            self.recount(to);
        } else {
            self.recount_if_shared_priority_changed(to, shared);
        }
    }
}
