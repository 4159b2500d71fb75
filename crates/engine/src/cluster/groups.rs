//! The groups of the cluster: what defines them, and which of their members count.

use super::Cluster;
use super::event::ClusterEvent;
use super::group::{Definition, Group, MemberCounts};
use super::pod::{Counted, StartRole};
use super::taken::Taken;
use crate::model::Millis;
use crate::model::group::{GroupKey, GroupPriority, GroupSpec};
use crate::model::ids::{GroupId, PodId};

impl Cluster {
    /// The slot of a group by key, created if needed: pods can be seen before their group.
    pub(crate) fn ensure_group(&mut self, key: &GroupKey) -> GroupId {
        if let Some(id) = self.group_id(key) {
            return id;
        }
        let id = GroupId(self.groups.insert(Group::new(key.clone())));
        self.groups_by_key.insert(key.clone(), id);
        id
    }

    /// Adds or updates a group and counts its members by its rules.
    pub(crate) fn set_group(&mut self, id: GroupId, spec: GroupSpec) {
        let group = self.group_mut(id);
        let (mode, old) = (spec.disruption_mode, group.definition.last().map(|old| old.disruption_mode));
        group.set_policy(&spec.policy);
        let was_exclusive = group.excludes_others();
        group.definition = Definition::Current(spec);
        group.changes += 1;
        let is_exclusive = group.excludes_others();
        self.recount(id);
        if is_exclusive {
            self.exclusive.insert(id);
        } else if was_exclusive {
            self.events.push(ClusterEvent::ExclusiveDomainLeft);
        }
        if old != Some(mode) {
            self.events.push(ClusterEvent::DisruptionModeChanged(id));
        }
    }

    pub(crate) fn group_mut(&mut self, id: GroupId) -> &mut Group {
        self.groups.get_mut(id.0).expect("a group in use exists")
    }

    /// Uses what a stamp says about the object of a group, which this process has not seen.
    pub(crate) fn set_stamped_definition(&mut self, id: GroupId, spec: GroupSpec, decided_ms: Millis) {
        let group = self.group_mut(id);
        debug_assert!(!group.definition.was_seen(), "an object that was seen says more than a stamp");
        group.set_policy(&spec.policy);
        group.definition = Definition::Stamped { spec, decided_ms };
        group.changes += 1;
        if group.excludes_others() {
            self.exclusive.insert(id);
        }
        self.recount(id);
    }

    /// Forgets what the former object of a group said, if no member has a node any more.
    pub(crate) fn forget_former_definition(&mut self, id: GroupId) {
        let (group, total) = (self.group(id), self.group(id).total());
        if !matches!(group.definition, Definition::Former(_) | Definition::Stamped { .. })
            || total.assumed + total.bound > 0
        {
            return;
        }
        // Members that are leaving or of another scheduler are not counted.
        let placed = |(_, member): &(Millis, PodId)| self.pod(*member).state.node().is_some();
        if !group.members.iter().any(placed) {
            let group = self.group_mut(id);
            group.definition = Definition::Unknown;
            group.changes += 1;
            self.recount(id);
        }
    }

    /// Removes a group that has neither object nor members. Returns whether it did.
    pub(crate) fn remove_group_if_unused(&mut self, id: GroupId) -> bool {
        if !self.group(id).is_unused() {
            return false;
        }
        let group = self.groups.remove(id.0).expect("a group in use exists");
        self.groups_by_key.remove(&group.key);
        self.debtors.remove(&id);
        self.exclusive.remove(&id);
        true
    }

    /// The groups that exclude others from their topology domains, each with the label of these.
    pub(crate) fn exclusive_groups(&self) -> impl Iterator<Item = (GroupId, &str)> {
        let key = |id: &GroupId| self.group(*id).definition.last()?.topology.as_deref()?.exclusive_key();
        self.exclusive.iter().filter_map(move |id| Some((*id, key(id)?)))
    }

    /// Counts all members again, after the rules changed.
    pub(super) fn recount(&mut self, id: GroupId) {
        let members: Vec<(Millis, PodId)> = self.group(id).members.iter().copied().collect();
        let group = self.group_mut(id);
        group.member_counts = vec![MemberCounts::default(); group.rules.len()];
        group.waiting.clear();
        group.gated.clear();
        group.refused.clear();
        group.live_priorities.clear();
        group.taken = Taken::default();
        let excluded = std::mem::take(&mut group.excluded);
        group.exclusions_changed.extend(excluded.into_keys());
        for (_, member) in members {
            let pod = self.pod_mut(member);
            (pod.counted, pod.counted_live, pod.counted_taking) = (Counted::Not, false, false);
            self.count_in(member);
        }
        self.list_if_debtor(id);
    }

    pub(super) fn recount_if_shared_priority_changed(&mut self, group: GroupId, before: Option<i32>) {
        if self.shared_priority(group) != before {
            self.recount(group);
        }
    }

    /// The priority that all members must have, if the group's API requires it.
    pub(super) fn shared_priority(&self, id: GroupId) -> Option<i32> {
        let group = self.group(id);
        let rule = group.definition.last().map(|spec| spec.priority);
        (rule == Some(GroupPriority::SharedByMembers)).then(|| self.group_priority(id))
    }

    pub(super) fn count_in(&mut self, id: PodId) {
        let pod = self.pod(id);
        let Some(group_id) = pod.group else { return };
        let verdict = self.group(group_id).subset_of(pod, self.shared_priority(group_id));
        let (member_state, member) = (pod.member_state(), (pod.created_ms, id));
        let group = self.group_mut(group_id);
        let counted = match verdict {
            Ok(subset) => {
                let subset = u16::try_from(subset).expect("a group has few subsets");
                group.count(subset, member_state, member, true);
                Counted::In { subset, member_state }
            }
            Err(exclusion) => {
                group.excluded.insert(id, exclusion);
                group.exclusions_changed.insert(id);
                Counted::Excluded
            }
        };
        let is_former = self.group(group_id).is_former(id);
        let pod = self.pod_mut(id);
        if is_former {
            // What it was part of is over.
            pod.start_role = StartRole::None;
        }
        pod.counted = counted;
        pod.counted_live = pod.state.node().is_some() || (pod.is_pending() && !is_former);
        if pod.counted_live {
            let priority = pod.priority;
            self.group_mut(group_id).count_live(priority, true);
        }
        self.update_taken(id);
    }

    pub(super) fn count_out(&mut self, id: PodId) {
        self.remove_taken(id);
        let pod = self.pod(id);
        let (Some(group_id), counted, member) = (pod.group, pod.counted, (pod.created_ms, id)) else { return };
        let group = self.group_mut(group_id);
        match counted {
            Counted::Not => {}
            Counted::Excluded => {
                group.excluded.remove(&id);
                group.exclusions_changed.insert(id);
            }
            Counted::In { subset, member_state } => group.count(subset, member_state, member, false),
        }
        let pod = self.pod_mut(id);
        pod.counted = Counted::Not;
        if std::mem::take(&mut pod.counted_live) {
            let priority = pod.priority;
            self.group_mut(group_id).count_live(priority, false);
        }
    }
}
