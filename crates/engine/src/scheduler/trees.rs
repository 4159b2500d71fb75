//! Trees: keeps the groups that are scheduled, the roots, in line with the forest of observed groups, and reports about
//! a
//! root for each of its groups.
//!
//! A leaf that is no part of a tree (yet) is a group of its own that waits. When it gets its place, its pods become
//! members
//! of the root. Before the first decision everything has to be listed, so trees are composed then.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use crate::cluster::forest::{Composed, Forest, Problem};
use crate::cluster::group::{Group, sum_of};
use crate::cluster::lifecycle::Cause;
use crate::cluster::pod::PodState;
use crate::command::{Command, MemberVerdict, Report};
use crate::diagnosis::{Diagnosis, Waiting};
use crate::model::group::{GroupKey, GroupSpec, Policy, RecordedStart, Subset};
use crate::model::ids::{GroupId, PodId};
use crate::model::pod::{Membership, PodName};
use crate::model::subject::Subject;
use crate::queue::Entity;
use crate::validation_error::ValidationError;

impl Engine {
    /// The group and the subset that a pod with this membership belongs to.
    pub(super) fn home_of(&self, membership: &Membership) -> (GroupKey, Arc<str>) {
        match self.forest.place(&membership.group) {
            Some(place) => {
                let subset = place.subset.clone().unwrap_or_else(|| Arc::from(membership.subset.as_str()));
                (place.root.clone(), subset)
            }
            None => (membership.group.clone(), membership.subset.as_str().into()),
        }
    }

    /// A group object exists, which may be a part of a tree.
    pub(super) fn group_or_part_seen(&mut self, spec: GroupSpec) -> Result<(), ValidationError> {
        crate::validate::group(&spec)?;
        let is_part = Forest::is_part(&spec);
        if !is_part && self.forest.spec(&spec.key).is_none() {
            return self.group_seen(spec);
        }
        let key = spec.key.clone();
        let mut affected = self.affected_roots(&key);
        let was_gone = self.forest_gone.remove(&key);
        if is_part {
            if !self.forest.put(spec) && !was_gone {
                return Ok(());
            }
        } else {
            self.forest.remove(&key);
            self.group_seen(spec)?;
        }
        affected.extend(self.affected_roots(&key));
        if self.has_decided {
            self.compose_trees(&affected)?;
            self.update_waiting_parts(&self.forest.below(&key))?;
        }
        Ok(())
    }

    /// A group object is gone, which may be a part of a tree.
    pub(super) fn group_or_part_gone(&mut self, key: &GroupKey) {
        if self.forest.spec(key).is_none() {
            return self.group_gone(key);
        }
        let affected = self.affected_roots(key);
        let below = self.forest.below(key);
        if self.holds_nodes(key) {
            // What it was holds while members run.
            if self.forest.place(key).is_some_and(|place| place.root == *key) {
                self.group_gone(key);
            }
            self.forest_gone.insert(key.clone());
            return;
        }
        self.forest.remove(key);
        self.forest_gone.remove(key);
        self.group_gone(key);
        if self.has_decided {
            // What is left was valid before.
            let updated = self.compose_trees(&affected).and_then(|()| self.update_waiting_parts(&below));
            debug_assert!(updated.is_ok(), "{updated:?}");
        }
    }

    /// Whether a pod of a group, or of one below it, is on a node or about to be.
    fn holds_nodes(&self, key: &GroupKey) -> bool {
        let Some(place) = self.forest.place(key) else { return false };
        let Some(id) = self.cluster.group_id(&place.root) else { return false };
        let group = self.cluster.group(id);
        let Some(tree) = &group.tree else { return false };
        let is_below = |subset: usize| tree.path(tree.leaves()[subset]).any(|at| at == place.node);
        (0..group.rules.len()).any(|subset| is_below(subset) && group.member_counts[subset].placed() > 0)
    }

    /// The roots whose trees depend on a group.
    fn affected_roots(&self, key: &GroupKey) -> BTreeSet<GroupKey> {
        let placed = self.forest.place(key).map(|place| place.root.clone());
        placed.into_iter().chain(self.forest.root_of(key)).collect()
    }

    /// Everything has been listed: composes all trees.
    pub(super) fn compose_all_trees(&mut self) {
        let keys: Vec<GroupKey> = self.forest.keys().cloned().collect();
        let roots = keys.iter().filter_map(|key| self.forest.root_of(key).ok()).collect();
        let updated = self.compose_trees(&roots).and_then(|()| self.update_waiting_parts(&keys));
        debug_assert!(updated.is_ok(), "{updated:?}");
    }

    fn compose_trees(&mut self, roots: &BTreeSet<GroupKey>) -> Result<(), ValidationError> {
        for root in roots {
            self.compose_tree(root)?;
        }
        Ok(())
    }

    fn compose_tree(&mut self, root: &GroupKey) -> Result<(), ValidationError> {
        if self.forest_gone.contains(root) {
            // What it was holds for the pods that have nodes, and for no others.
            return Ok(());
        }
        let before: BTreeSet<GroupKey> = self.forest.tree(root).iter().cloned().collect();
        let (composed, lost) = self.forest.compose(root);
        for key in &lost {
            self.move_members_back(key, root);
        }
        let Some(Composed { spec, keys }) = composed else {
            self.group_gone(root);
            return Ok(());
        };
        let recorded = spec.recorded.clone();
        self.group_seen(spec)?;
        let new: Vec<&GroupKey> = keys.iter().filter(|key| !before.contains(*key)).collect();
        let Some(id) = self.cluster.group_id(root) else { return Ok(()) };
        self.use_records_of_leaves(id, &new, &recorded);
        for key in new {
            self.move_members_home(key, id);
        }
        self.review_group(id);
        Ok(())
    }

    /// Leaves that are new in a tree may have started before, according to the API.
    fn use_records_of_leaves(&mut self, id: GroupId, new: &[&GroupKey], recorded: &RecordedStart) {
        let RecordedStart::Confirmed { minimum: Some(minimum), .. } = recorded else { return };
        let is_new = |rule: &Subset| {
            let is_leaf = |key: &&GroupKey| {
                self.forest.place(key).is_some_and(|place| place.subset.as_deref() == Some(rule.name.as_str()))
            };
            rule.min_member > 0 && new.iter().copied().any(|key| is_leaf(&key))
        };
        let added: Vec<bool> = minimum.iter().map(is_new).collect();
        if !added.contains(&true) {
            return;
        }
        let group = self.cluster.group_mut(id);
        if group.lifecycle.is_pending() {
            group.lifecycle.apply(Cause::Recorded(recorded.clone()));
        } else if let Some(confirmed) = group.lifecycle.confirmed_mut() {
            for ((reached, rule), _) in
                confirmed.minimum.iter_mut().zip(minimum).zip(&added).filter(|(_, added)| **added)
            {
                *reached = (*reached).max(rule.min_member);
            }
        }
    }

    /// The pods of a leaf that has got its place become members of the root.
    fn move_members_home(&mut self, key: &GroupKey, root: GroupId) {
        let Some(subset) = self.forest.place(key).and_then(|place| place.subset.clone()) else { return };
        let Some(from) = self.cluster.group_id(key).filter(|from| *from != root) else { return };
        let members: Vec<PodId> = self.cluster.group(from).members.iter().map(|(_, member)| *member).collect();
        self.move_members(&members, root, &subset);
        self.group_gone(key);
    }

    /// The pods of a leaf that has lost its place are members of its own group again.
    fn move_members_back(&mut self, key: &GroupKey, root: &GroupKey) {
        let Some(from) = self.cluster.group_id(root) else { return };
        let is_of = |pod: &PodId| *self.cluster.pod(*pod).subset == *key.name;
        let members = self.cluster.group(from).members.iter().map(|(_, member)| *member);
        let members: Vec<PodId> = members.filter(is_of).collect();
        if members.is_empty() {
            return;
        }
        let to = self.cluster.ensure_group(key);
        self.move_members(&members, to, "");
        self.review_group(to);
    }

    fn move_members(&mut self, members: &[PodId], to: GroupId, subset: &str) {
        for member in members {
            self.clear_nomination(*member);
            self.cluster.move_to_group(*member, to, subset);
            if matches!(self.cluster.pod(*member).state, PodState::Bound(_)) {
                self.adopt(*member);
            }
        }
    }

    /// Leaves that are no part of a tree wait as groups of their own.
    fn update_waiting_parts(&mut self, keys: &[GroupKey]) -> Result<(), ValidationError> {
        for key in keys {
            let is_leaf = |spec: &&GroupSpec| !matches!(spec.policy, Policy::Groups { .. });
            let waits = self.forest.problem(key).is_some();
            if let Some(spec) = self.forest.spec(key).filter(is_leaf).filter(|_| waits).cloned() {
                self.group_seen(spec)?;
                if let Some(id) = self.cluster.group_id(key) {
                    self.review_group(id);
                }
            }
        }
        Ok(())
    }

    /// Why a group is no part of a tree, as users see it.
    pub(crate) fn problem_of(&self, key: &GroupKey) -> Option<Waiting> {
        let root = self.forest.root_of(key).ok().filter(|root| self.forest_gone.contains(root));
        if let Some(root) = root.filter(|_| self.forest.place(key).is_none()) {
            return Some(Waiting::Parent { parent: root.to_string() });
        }
        Some(match self.forest.problem(key)? {
            Problem::Missing(parent) => Waiting::Parent { parent: parent.to_string() },
            Problem::Invalid { field, value, reason } => {
                Waiting::TreeInvalid { field: field.to_owned(), value, reason: reason.to_owned() }
            }
        })
    }

    /// Sends a report; one about the root of a tree also for each of its groups.
    pub(super) fn send_report(&mut self, mut report: Report) {
        let Subject::Group(root) = &report.subject else { return self.outbox.push(Command::Report(Box::new(report))) };
        let keys = self.forest.tree(root).to_vec();
        let Some(id) = self.cluster.group_id(root).filter(|_| !keys.is_empty()) else {
            return self.outbox.push(Command::Report(Box::new(report)));
        };
        let members = std::mem::take(&mut report.members);
        let parts: Vec<Report> =
            keys.iter().skip(1).map(|key| self.part_of_report(key, id, &report, &members)).collect();
        self.outbox.push(Command::Report(Box::new(report)));
        self.outbox.extend(parts.into_iter().map(|part| Command::Report(Box::new(part))));
    }

    fn part_of_report(
        &self,
        key: &GroupKey,
        root: GroupId,
        report: &Report,
        members: &[(Arc<PodName>, MemberVerdict)],
    ) -> Report {
        let subset = self.forest.place(key).and_then(|place| place.subset.clone());
        let is_of = |pod: &PodName| {
            let pod = self.cluster.pod_id(&pod.uid).map(|id| self.cluster.pod(id));
            pod.is_some_and(|pod| Some(&*pod.subset) == subset.as_deref())
        };
        let members = members.iter().filter(|(pod, _)| is_of(pod)).cloned().collect();
        let node = self.forest.place(key).map_or(0, |place| place.node);
        let diagnosis = part_diagnosis(self.cluster.group(root), node, &report.diagnosis);
        Report { subject: Subject::Group(key.clone()), diagnosis, members }
    }

    /// The entity that schedules a group: its root, if it is a part of a tree.
    pub(crate) fn entity_of(&self, key: &GroupKey) -> Option<Entity> {
        let key = self.forest.place(key).map_or(key, |place| &place.root);
        self.cluster.group_id(key).map(Entity::Group)
    }

    /// The key of a group, if objects of its tree may be gone.
    pub(super) fn root_with_gone_parts(&self, id: GroupId) -> Option<GroupKey> {
        let key = (!self.forest_gone.is_empty()).then(|| self.cluster.group_if_any(id).map(|group| &group.key))??;
        (!self.forest.tree(key).is_empty()).then(|| key.clone())
    }

    /// Forgets groups of a tree whose objects are gone and which have no pods on nodes any more.
    pub(super) fn forget_gone_parts(&mut self, root: &GroupKey) {
        let gone: Vec<GroupKey> =
            self.forest.tree(root).iter().filter(|key| self.forest_gone.contains(*key)).cloned().collect();
        for key in gone.into_iter().rev() {
            if !self.holds_nodes(&key) {
                self.group_or_part_gone(&key);
            }
        }
    }
}

/// What a diagnosis of a tree means for one of its groups.
pub(crate) fn part_diagnosis(group: &Group, node: usize, of_root: &Diagnosis) -> Diagnosis {
    let Some(tree) = &group.tree else { return of_root.clone() };
    if node >= tree.nodes().len() {
        return of_root.clone();
    }
    let below: Vec<usize> =
        (0..group.rules.len()).filter(|subset| tree.path(tree.leaves()[*subset]).any(|at| at == node)).collect();
    let scheduled: u32 = below.iter().map(|subset| group.member_counts[*subset].scheduled()).sum();
    let reached: Vec<u32> =
        below.iter().map(|subset| group.lifecycle.reached().get(*subset).copied().unwrap_or(0)).collect();
    let has_started = tree.met(|subset| group.has_started_subset(subset))[node];
    match of_root {
        Diagnosis::Degraded { .. } | Diagnosis::TimedOut { .. } => of_root.clone(),
        Diagnosis::GroupUnschedulable(shortfall) if has_started => {
            Diagnosis::GroupUnschedulable(crate::diagnosis::Shortfall {
                started: true,
                minimum: 0,
                ..shortfall.clone()
            })
        }
        Diagnosis::GroupUnschedulable(shortfall) => {
            let minimum = below.iter().map(|subset| group.rules[*subset].min_member).sum();
            Diagnosis::GroupUnschedulable(crate::diagnosis::Shortfall { started: false, minimum, ..shortfall.clone() })
        }
        _ if has_started => Diagnosis::Scheduled { minimum: sum_of(&reached), scheduled },
        Diagnosis::Scheduled { .. } | Diagnosis::Healthy { .. } => {
            let lacking =
                below.iter().find(|subset| group.member_counts[**subset].present() < group.rules[**subset].min_member);
            let subset = lacking.or(below.first()).copied();
            let have = subset.map_or(0, |subset| group.member_counts[subset].present());
            let need = subset.map_or(1, |subset| group.rules[subset].min_member);
            let name = subset.filter(|_| tree.subset(node).is_none()).map(|subset| group.rules[subset].name.clone());
            Diagnosis::Waiting(Waiting::Members { subset: name.unwrap_or_default(), have, need, stateful_set: None })
        }
        other => other.clone(),
    }
}
