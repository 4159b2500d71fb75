//! Groups that have topology domains for themselves: which pods keep other groups out, and which groups are
//! activated when one leaves.

use super::Engine;
use crate::model::ids::{GroupId, PodId};
use crate::model::topology::GroupTopology;
use crate::queue::Entity;

impl Engine {
    /// The pods of other groups that exclude this group from their domains: those that are placed, and those whose
    /// nomination has precedence.
    pub(super) fn rivals(&self, id: GroupId, wanted: &GroupTopology) -> Vec<PodId> {
        let Some(key) = wanted.exclusive_key() else { return Vec::new() };
        let priority = self.cluster.group_priority(id);
        let others = self.cluster.exclusive_groups().filter(|(other, of_key)| *other != id && *of_key == key);
        let members = others.flat_map(|(other, _)| self.cluster.group(other).members.iter().map(|(_, pod)| *pod));
        let counts = |pod: &PodId| {
            let member = self.cluster.pod(*pod);
            let is_kept = member.nominated.is_some() && self.cluster.effective_priority(*pod) >= priority;
            member.state.node().is_some() || is_kept
        };
        members.filter(counts).collect()
    }

    /// A group may have left a domain that it had for itself: activates those that may take it.
    pub(super) fn activate_for_exclusive_domain(&mut self) {
        let groups: Vec<GroupId> = self.cluster.exclusive_groups().map(|(id, _)| id).collect();
        for id in groups {
            self.queue.activate_parked(Entity::Group(id), self.now);
        }
    }
}
