//! What the placed members of groups with `minResources` take of each resource, and which of these groups lack some.
//!
//! The sums follow every change of a member, also within a transaction, so that no decision adds up the pods of a group.
//! Must not depend on what the sums are compared with.

use std::collections::{BTreeMap, BTreeSet};

use super::Cluster;
use super::group::{Exclusion, Group};
use super::pod::{MemberState, Pod, PodState};
use crate::model::Millis;
use crate::model::ids::{GroupId, PodId};
use crate::model::resources::{PODS, ResourceNames, ResourceVec};

/// What members take that have a node or have succeeded.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Taken {
    /// These members, oldest first.
    members: BTreeSet<(Millis, PodId)>,
    amounts: ResourceVec,
}

impl Taken {
    /// The oldest of these members.
    pub(crate) fn oldest(&self) -> Option<PodId> {
        self.members.first().map(|(_, member)| *member)
    }

    /// The amount of a resource by name.
    pub(crate) fn amount(&self, names: &ResourceNames, resource: &str) -> i64 {
        match names.get(resource) {
            _ if resource == PODS => self.members.len() as i64,
            Some(known) => self.amounts.get(known),
            None => 0,
        }
    }
}

impl Group {
    /// Whether what its members take is added up. Where later pods are known, sums say nothing.
    fn sums_are_kept(&self) -> bool {
        self.definition.last().is_some_and(|spec| !spec.min_resources.is_empty() && spec.later.is_empty())
    }

    /// Whether a member takes part of its `minResources`.
    fn is_taking(&self, id: PodId, pod: &Pod) -> bool {
        let is_placed =
            matches!(pod.member_state(), MemberState::Bound | MemberState::Assumed | MemberState::Succeeded);
        self.sums_are_kept() && is_placed && self.excluded.get(&id) != Some(&Exclusion::Former)
    }

    /// Whether its placed members take less than it asked for when it started. If as many pods as requested have a node
    /// it lacks nothing, even if they request less.
    fn lacks_resources(&self, names: &ResourceNames) -> bool {
        let Some(spec) = self.definition.last().filter(|_| self.sums_are_kept()) else { return false };
        let taken = |resource: &str| self.taken.amount(names, resource);
        let is_complete = spec.min_resources.get(PODS).is_some_and(|asked| taken(PODS) >= *asked);
        let lacks =
            |resource: &String| self.min_resource_at_start(resource).is_some_and(|asked| asked > taken(resource));
        self.taken.oldest().is_some() && !is_complete && spec.min_resources.keys().any(lacks)
    }
}

impl Cluster {
    /// The groups with placed members that take less than their `minResources`.
    pub(crate) fn debtors(&self) -> impl Iterator<Item = GroupId> {
        self.debtors.iter().copied()
    }

    /// Remembers the `minResources` of a group that starts: it cannot raise later what it keeps from others.
    pub(crate) fn record_min_resources_at_start(&mut self, id: GroupId) {
        let group = self.group_mut(id);
        group.min_resources_at_start = group.definition.current().map(|spec| spec.min_resources.clone());
        self.list_if_debtor(id);
    }

    /// Changes the state of a pod in a transaction: its node has its load already, and the members are not counted again.
    pub(super) fn try_state(&mut self, id: PodId, state: PodState) {
        self.pod_mut(id).state = state;
        self.update_taken(id);
    }

    /// Adds a pod to what its group takes, or removes it, as its state requires.
    pub(super) fn update_taken(&mut self, id: PodId) {
        let pod = self.pod(id);
        let Some(group) = pod.group else { return };
        if self.group(group).is_taking(id, pod) != pod.counted_taking {
            self.change_taken(group, id, !pod.counted_taking);
        }
    }

    /// Removes a pod from what its group takes.
    pub(super) fn remove_taken(&mut self, id: PodId) {
        let pod = self.pod(id);
        if let Some(group) = pod.group.filter(|_| pod.counted_taking) {
            self.change_taken(group, id, false);
        }
    }

    fn change_taken(&mut self, group: GroupId, id: PodId, into: bool) {
        let pod = self.pods.get_mut(id.0).expect("a pod in use exists");
        pod.counted_taking = into;
        let member = (pod.created_ms, id);
        let requests = &self.classes.get(pod.class).requests;
        let taken = &mut self.groups.get_mut(group.0).expect("a group in use exists").taken;
        if into {
            taken.members.insert(member);
            taken.amounts.add(requests);
        } else {
            taken.members.remove(&member);
            taken.amounts.sub(requests);
        }
        self.list_if_debtor(group);
    }

    /// Adds a group to the debtors, or removes it.
    pub(super) fn list_if_debtor(&mut self, id: GroupId) {
        let names = &self.resources;
        if self.groups.get(id.0).is_some_and(|group| group.lacks_resources(names)) {
            self.debtors.insert(id);
        } else {
            self.debtors.remove(&id);
        }
    }
}

/// What groups take equals a recount, and the debtors are those that lack some of it.
pub(super) fn audit(cluster: &Cluster) -> Result<(), String> {
    let mut sums: BTreeMap<GroupId, Taken> = BTreeMap::new();
    for (id, pod) in cluster.pods() {
        if let Some(group) = pod.group.filter(|group| cluster.group(*group).is_taking(id, pod)) {
            let taken = sums.entry(group).or_default();
            taken.members.insert((pod.created_ms, id));
            taken.amounts.add(&cluster.class(pod.class).requests);
        }
    }
    for (id, group) in cluster.groups() {
        let recount = sums.remove(&id).unwrap_or_default();
        if group.taken != recount {
            return Err(format!("group {}: takes {:?}, recount {recount:?}", group.key, group.taken));
        }
        let (lacks, is_listed) = (group.lacks_resources(&cluster.resources), cluster.debtors.contains(&id));
        if lacks != is_listed {
            return Err(format!("group {}: lacks resources {lacks}, listed as a debtor {is_listed}", group.key));
        }
    }
    let gone = cluster.debtors.iter().find(|id| cluster.group_if_any(**id).is_none());
    gone.map_or(Ok(()), |id| Err(format!("{id:?} is gone and listed as a debtor")))
}
