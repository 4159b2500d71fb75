//! A group: its definition, its members, and how many of them are in which state.
//!
//! The member counts are updated incrementally, so that a gang of thousands costs nothing per event: every change of a
//! member goes through the cluster, which removes it from the counts before and adds it again after.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::lifecycle::Lifecycle;
use super::pod::{Counted, MemberState, Pod, PodState};
use super::taken::Taken;
use crate::model::Millis;
use crate::model::group::{DegradedPolicy, GroupKey, GroupPriority, GroupSpec, Policy, Subset};
use crate::model::ids::PodId;
use crate::model::pod::OwnerAttempt;
use crate::model::subject::Subject;
use crate::model::tree::{GroupTree, TreeMinimum};

/// How many members of one subset are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MemberCounts {
    /// Could be placed now.
    pub(crate) waiting: u32,
    /// Behind scheduling gates.
    pub(crate) gated: u32,
    /// Refused because of an unsupported or invalid field.
    pub(crate) refused: u32,
    /// Assumed: placed, bind not confirmed.
    pub(crate) assumed: u32,
    /// Bound and not leaving.
    pub(crate) bound: u32,
    /// Succeeded.
    pub(crate) succeeded: u32,
}

impl MemberCounts {
    /// Members that are placed or have succeeded.
    pub(crate) fn placed(&self) -> u32 {
        self.assumed + self.scheduled()
    }

    /// Members that are bound or have succeeded.
    pub(crate) fn scheduled(&self) -> u32 {
        self.bound + self.succeeded
    }

    /// Members that can count towards the minimum.
    pub(crate) fn present(&self) -> u32 {
        self.waiting + self.gated + self.refused + self.placed()
    }

    fn slot(&mut self, member_state: MemberState) -> Option<&mut u32> {
        match member_state {
            MemberState::Waiting => Some(&mut self.waiting),
            MemberState::Gated => Some(&mut self.gated),
            MemberState::Refused => Some(&mut self.refused),
            MemberState::Assumed => Some(&mut self.assumed),
            MemberState::Bound => Some(&mut self.bound),
            MemberState::Succeeded => Some(&mut self.succeeded),
            MemberState::NotCounted => None,
        }
    }
}

/// Why a member is excluded from its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exclusion {
    /// It names a subset that the group does not have.
    UnknownSubset,
    /// Its priority is not the one that the members share.
    OtherPriority {
        /// The shared one.
        shared: i32,
    },
    /// It is left over from an earlier group of the same name, or from an earlier attempt of the owner.
    Former,
}

/// How many members there are of each attempt of one owner.
type Attempts = BTreeMap<u32, u32>;

/// What the object of a group says.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) enum Definition {
    /// No usable object was seen, or nothing of the group is left since.
    #[default]
    Unknown,
    /// No usable object was seen, and bound members are stamped with what it said.
    Stamped {
        spec: GroupSpec,
        /// When the start of that stamp was decided.
        decided_ms: Millis,
    },
    /// The object is there and can be used.
    Current(GroupSpec),
    /// The object is gone or cannot be used any more, and members have nodes. For those it holds; nothing new is
    /// placed.
    Former(GroupSpec),
}

impl Definition {
    /// The object, if it can be used.
    pub(crate) fn current(&self) -> Option<&GroupSpec> {
        match self {
            Self::Current(spec) => Some(spec),
            Self::Unknown | Self::Stamped { .. } | Self::Former(_) => None,
        }
    }

    /// The last object that could be used, or what the stamps of the members say about it.
    pub(crate) fn last(&self) -> Option<&GroupSpec> {
        match self {
            Self::Current(spec) | Self::Former(spec) | Self::Stamped { spec, .. } => Some(spec),
            Self::Unknown => None,
        }
    }

    /// Whether this process has seen an object that could be used.
    pub(crate) fn was_seen(&self) -> bool {
        matches!(self, Self::Current(_) | Self::Former(_))
    }

    /// The object is gone or cannot be used any more.
    fn withdraw(&mut self) {
        *self = match std::mem::take(self) {
            Self::Current(spec) | Self::Former(spec) => Self::Former(spec),
            other @ (Self::Unknown | Self::Stamped { .. }) => other,
        };
    }
}

/// A group.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Group {
    /// Which group.
    pub(crate) key: GroupKey,
    /// What its object says, or said.
    pub(crate) definition: Definition,
    /// The subsets with their minimums, of the last object seen; before that, one without a minimum.
    pub(crate) rules: Vec<Subset>,
    /// The tree whose leaves the subsets are.
    pub(crate) tree: Option<Arc<GroupTree>>,
    /// All pods that refer to this group, oldest first.
    pub(crate) members: BTreeSet<(Millis, PodId)>,
    /// Members that could be placed now, oldest first.
    pub(crate) waiting: BTreeSet<(Millis, PodId)>,
    /// Members behind scheduling gates.
    pub(crate) gated: BTreeSet<PodId>,
    /// Members with an unsupported or invalid field.
    pub(crate) refused: BTreeSet<PodId>,
    /// Excluded members, and why.
    pub(crate) excluded: BTreeMap<PodId, Exclusion>,
    /// Members that were excluded or included again since the last review.
    pub(crate) exclusions_changed: BTreeSet<PodId>,
    /// How many members are in which state, per subset.
    pub(crate) member_counts: Vec<MemberCounts>,
    /// How many members have which priority.
    pub(crate) priorities: BTreeMap<i32, u32>,
    /// The same for those that are pending or hold a node.
    pub(crate) live_priorities: BTreeMap<i32, u32>,
    /// What its placed members take, if it has `minResources`.
    pub(crate) taken: Taken,
    /// By the UIDs of owners.
    attempts: BTreeMap<String, Attempts>,
    /// How far it has got.
    pub(crate) lifecycle: Lifecycle,
    /// The UID of the owner that its object was made for when it was last seen.
    pub(crate) owner: Option<String>,
    /// The preemptor that it was last evicted for as a whole, until it stays after all or is back on nodes.
    pub(crate) preempted_by: Option<Arc<Subject>>,
    /// When the latest confirmed start of found members was decided, and its minimum, according to their stamps.
    pub(crate) latest_stamp: Option<(Millis, u32)>,
    /// The number of placement decisions; distinguishes refused binds of one decision from those of the next.
    pub(crate) decisions: u32,
    /// The last decision with a refused bind.
    pub(crate) refused_decision: u32,
    /// The lowest priority among the victims that its minimum needed: members beyond the minimum preempt only below it.
    pub(crate) lowest_victim: Option<i32>,
    /// Its `minResources` when its last start was decided, if this process did.
    pub(crate) min_resources_at_start: Option<BTreeMap<String, i64>>,
    /// How many consecutive decisions had a refused bind.
    pub(crate) consecutive_refusals: u32,
    /// Members that were refused are not placed again before this time.
    pub(crate) repair_not_before: Millis,
    /// Until when a basic group waits for the rest of its desired members.
    pub(crate) desired_until: Option<Millis>,
    /// Counts changes that can affect whether it fits: of waiting members and of the rules.
    pub(crate) changes: u64,
    /// That count when it was last parked.
    pub(crate) changes_when_parked: u64,
    /// What it needed when it was last parked.
    pub(crate) needs_when_parked: Vec<u32>,
    /// How many members are nominated.
    pub(crate) nominations: u32,
    /// The priority under which its nominations were last counted.
    pub(crate) nominated_priority: i32,
}

impl Group {
    /// A group of which only the key is known.
    pub(crate) fn new(key: GroupKey) -> Self {
        Self {
            key,
            definition: Definition::Unknown,
            rules: vec![Subset { name: String::new(), min_member: 0 }],
            tree: None,
            members: BTreeSet::new(),
            waiting: BTreeSet::new(),
            gated: BTreeSet::new(),
            refused: BTreeSet::new(),
            excluded: BTreeMap::new(),
            exclusions_changed: BTreeSet::new(),
            member_counts: vec![MemberCounts::default()],
            priorities: BTreeMap::new(),
            live_priorities: BTreeMap::new(),
            taken: Taken::default(),
            attempts: BTreeMap::new(),
            lifecycle: Lifecycle::default(),
            owner: None,
            preempted_by: None,
            latest_stamp: None,
            decisions: 0,
            refused_decision: 0,
            lowest_victim: None,
            min_resources_at_start: None,
            consecutive_refusals: 0,
            repair_not_before: 0,
            desired_until: None,
            changes: 0,
            changes_when_parked: 0,
            needs_when_parked: Vec::new(),
            nominations: 0,
            nominated_priority: 0,
        }
    }

    /// Whether it excludes other groups from its topology domains.
    pub(crate) fn excludes_others(&self) -> bool {
        let topology = self.definition.last().and_then(|spec| spec.topology.as_deref());
        topology.is_some_and(|topology| topology.exclusive.is_some())
    }

    /// Whether the group starts with its minimum or not at all.
    pub(crate) fn is_gang(&self) -> bool {
        self.tree.is_some() || self.rules.iter().any(|rule| rule.min_member > 0)
    }

    /// The sum over all subsets.
    pub(crate) fn total(&self) -> MemberCounts {
        self.member_counts.iter().fold(MemberCounts::default(), |mut sum, member_counts| {
            sum.waiting += member_counts.waiting;
            sum.gated += member_counts.gated;
            sum.refused += member_counts.refused;
            sum.assumed += member_counts.assumed;
            sum.bound += member_counts.bound;
            sum.succeeded += member_counts.succeeded;
            sum
        })
    }

    /// The sum of the minimums; of a tree, of the leaves that have started or are starting, or of all.
    pub(crate) fn min_total(&self) -> u64 {
        let all = || self.rules.iter().map(|rule| u64::from(rule.min_member)).sum();
        if self.tree.is_none() {
            return all();
        }
        match self.quorum().into_iter().map(u64::from).sum() {
            0 => all(),
            chosen => chosen,
        }
    }

    /// The current minimum of each subset. In a tree, only the leaves that have pods on nodes or have started count:
    /// which
    /// others start is not decided yet.
    pub(crate) fn quorum(&self) -> Vec<u32> {
        let is_chosen = |subset: usize| {
            self.tree.is_none() || self.member_counts[subset].placed() > 0 || self.has_started_subset(subset)
        };
        let rules = self.rules.iter().enumerate();
        rules.map(|(subset, rule)| if is_chosen(subset) { rule.min_member } else { 0 }).collect()
    }

    /// What the next start has to confirm: the current minimum, without the leaves of a tree that have started before.
    pub(crate) fn quorum_to_confirm(&self) -> Vec<u32> {
        let mut quorum = self.quorum();
        if self.tree.is_some() {
            for (subset, minimum) in quorum.iter_mut().enumerate() {
                *minimum = if self.has_started_subset(subset) { 0 } else { *minimum };
            }
        }
        quorum
    }

    /// Whether such a start is not one that was decided or confirmed before.
    pub(crate) fn is_new_start(&self, quorum: &[u32]) -> bool {
        let decided = self.lifecycle.attempt().map(|attempt| &attempt.quorum);
        let raised = |(now, then): (&u32, &u32)| now > then;
        match (&self.tree, decided) {
            (None, None) => !self.admits_single_members(),
            (None, Some(decided)) => !self.admits_single_members() && quorum.iter().zip(decided).any(raised),
            (Some(_), None) => quorum.iter().any(|minimum| *minimum > 0),
            (Some(_), Some(decided)) => quorum.iter().zip(decided).any(raised),
        }
    }

    /// Sets new rules; what was decided or confirmed under the old ones is carried over by subset name.
    pub(crate) fn set_policy(&mut self, policy: &Policy) {
        let rules = policy.rules();
        self.tree = policy.tree().cloned();
        self.lifecycle.set_rules(&self.rules, &rules, self.tree.is_some());
        self.rules = rules;
    }

    /// Whether the current minimum was confirmed before: then members may join one by one, unless the group is degraded
    /// and its policy requires a new quorum.
    pub(crate) fn admits_single_members(&self) -> bool {
        let policy = self.definition.last().map(|spec| spec.degraded_policy);
        let requires_quorum = self.lifecycle.loss().is_some() && policy == Some(DegradedPolicy::Requorum);
        !requires_quorum && self.has_reached_minimum()
    }

    /// Whether it is a tree whose root has what it needs: further parts may wait.
    pub(crate) fn has_started_tree(&self) -> bool {
        self.tree.is_some() && self.has_reached_minimum()
    }

    /// Whether the minimum of a subset, or a higher one, was confirmed before.
    pub(crate) fn has_started_subset(&self, subset: usize) -> bool {
        let reached = self.lifecycle.reached().get(subset);
        reached.is_some_and(|reached| self.rules[subset].min_member <= *reached)
    }

    /// Whether the current minimum, or a higher one, was confirmed before; of a tree, that of the leaves which the root
    /// needs.
    pub(crate) fn has_reached_minimum(&self) -> bool {
        match &self.tree {
            Some(tree) => tree.is_met(|subset| self.has_started_subset(subset)),
            None => {
                self.lifecycle.reached().len() == self.rules.len()
                    && (0..self.rules.len()).all(|subset| self.has_started_subset(subset))
            }
        }
    }

    /// Whether the current minimum is there, if so many members of each subset count.
    fn is_met_by(&self, count: impl Fn(&MemberCounts) -> u32) -> bool {
        let is_met = |subset: usize| count(&self.member_counts[subset]) >= self.rules[subset].min_member;
        match &self.tree {
            Some(tree) => tree.is_met(|subset| is_met(subset) || self.has_started_subset(subset)),
            None => (0..self.rules.len()).all(is_met),
        }
    }

    /// Whether a start with this minimum is complete: all of it is bound, and in a tree it is what the root needs.
    pub(crate) fn is_start_complete(&self, quorum: &[u32]) -> bool {
        let is_met = |subset: usize| {
            let minimum = self.rules[subset].min_member;
            self.has_started_subset(subset) || (quorum[subset] > 0 && self.member_counts[subset].scheduled() >= minimum)
        };
        self.scheduled_at_least(quorum) && self.tree.as_ref().is_none_or(|tree| tree.is_met(is_met))
    }

    /// The minimum that is confirmed with a start: in a tree, also that of the leaves that started before.
    pub(crate) fn with_started_subsets(&self, mut quorum: Vec<u32>) -> Vec<u32> {
        if self.tree.is_some() {
            for (minimum, reached) in quorum.iter_mut().zip(self.lifecycle.reached()) {
                *minimum = (*minimum).max(*reached);
            }
        }
        quorum
    }

    /// Of a start whose time is over, the part of the tree that is complete, if the root has what it needs: the minimum
    /// to
    /// confirm. `None` if nothing of it is.
    pub(crate) fn complete_part(&self, quorum: &[u32]) -> Option<Vec<u32>> {
        let tree = self.tree.as_ref()?;
        let is_met = |subset: usize| {
            let scheduled = self.member_counts[subset].scheduled();
            self.has_started_subset(subset) || (quorum[subset] > 0 && scheduled >= quorum[subset])
        };
        let complete = tree.complete(is_met);
        let part = quorum.iter().zip(&complete).map(|(minimum, complete)| if *complete { *minimum } else { 0 });
        let part: Vec<u32> = part.collect();
        (tree.is_met(is_met) && sum_of(&part) > 0).then_some(part)
    }

    /// The amount of a resource in its `minResources`, at most what it was at the start.
    pub(crate) fn min_resource_at_start(&self, resource: &str) -> Option<i64> {
        let now = *self.definition.last()?.min_resources.get(resource)?;
        let then = self.min_resources_at_start.as_ref().map(|all| all.get(resource).copied().unwrap_or(0));
        Some(then.map_or(now, |then| now.min(then)))
    }

    /// Whether it has `minResources` and has not started.
    pub(crate) fn must_fit_min_resources(&self) -> bool {
        !self.admits_single_members() && self.definition.current().is_some_and(|spec| !spec.min_resources.is_empty())
    }

    /// Whether it has later pods and has not started.
    pub(crate) fn must_fit_later_pods(&self) -> bool {
        !self.admits_single_members() && self.definition.current().is_some_and(|spec| !spec.later.is_empty())
    }

    /// Whether more must fit than its members when it starts.
    pub(crate) fn must_fit_more(&self) -> bool {
        self.must_fit_min_resources() || self.must_fit_later_pods()
    }

    /// Whether it has bound members of a start that is not confirmed, or was reopened after a kubelet refused a
    /// founder.
    pub(crate) fn start_is_open(&self) -> bool {
        let is_bound = self.lifecycle.attempt().is_some() || self.lifecycle.is_partially_bound();
        is_bound && self.lifecycle.confirmed().is_none()
    }

    /// Whether it waits for members that may not be placed: without them its minimum is not there, or nothing is. A
    /// start under way, and members that join one by one, do not wait for others.
    pub(crate) fn waits_for_held_back_members(&self) -> bool {
        let total = self.total();
        self.lifecycle.attempt().is_none()
            && !self.admits_single_members()
            && (total.waiting + total.placed() == 0 || !self.is_met_by(|counts| counts.waiting + counts.placed()))
    }

    /// Whether it has members to place, now or once they are no longer gated or refused.
    pub(crate) fn has_pending_members(&self) -> bool {
        let held_back = !self.gated.is_empty() || !self.refused.is_empty();
        !self.waiting.is_empty() || (held_back && self.waits_for_held_back_members())
    }

    /// How many more members each subset needs before anything may be bound.
    pub(crate) fn needs(&self) -> Vec<u32> {
        let admits_all = self.tree.is_none() && self.admits_single_members();
        let counts = self.rules.iter().zip(&self.member_counts).enumerate();
        counts
            .map(|(subset, (rule, counts))| {
                let admits = admits_all || (self.tree.is_some() && self.has_started_subset(subset));
                if admits { 0 } else { rule.min_member.saturating_sub(counts.placed()) }
            })
            .collect()
    }

    /// Whether all members that the next or current start needs are placed.
    pub(crate) fn is_start_placed(&self) -> bool {
        match (&self.tree, self.lifecycle.attempt()) {
            (Some(_), Some(attempt)) => {
                let quorum = self.cap_at_minimum(&attempt.quorum);
                self.is_met_by(MemberCounts::placed)
                    && self.member_counts.iter().zip(quorum).all(|(counts, minimum)| counts.placed() >= minimum)
            }
            _ => self.needs().iter().all(|need| *need == 0),
        }
    }

    /// Of a tree: whether there are pods that can be placed now, of leaves that have started, or for what still has to
    /// start.
    pub(crate) fn has_ready_part(&self) -> bool {
        let Some(tree) = &self.tree else { return true };
        let has_started = |subset: usize| self.has_started_subset(subset);
        let has_pods = |subset: usize| {
            let counts = &self.member_counts[subset];
            counts.waiting + counts.placed() >= self.rules[subset].min_member
        };
        let ready = tree.met(|subset| has_started(subset) || has_pods(subset));
        let started = tree.met(has_started);
        if !started[0] {
            return ready[0];
        }
        (0..self.rules.len()).any(|subset| has_started(subset) && self.member_counts[subset].waiting > 0)
            || tree.extensions(&ready, &started).next().is_some()
    }

    /// The minimum that a start must confirm: the one it was decided for, or a lower current one.
    pub(crate) fn cap_at_minimum(&self, decided: &[u32]) -> Vec<u32> {
        let decided = |position: usize| decided.get(position).copied().unwrap_or(u32::MAX);
        self.rules.iter().enumerate().map(|(position, rule)| rule.min_member.min(decided(position))).collect()
    }

    /// Whether at least this many members of each subset are bound or have succeeded.
    pub(crate) fn scheduled_at_least(&self, quorum: &[u32]) -> bool {
        self.member_counts.iter().zip(quorum).all(|(member_counts, min)| member_counts.scheduled() >= *min)
    }

    /// Whether only succeeded members are left of a start, and fewer than the minimum.
    pub(crate) fn is_spent(&self) -> bool {
        let total = self.total();
        total.placed() == 0 || (total.assumed + total.bound == 0 && !self.is_met_by(MemberCounts::scheduled))
    }

    /// The group's priority, by the rule of its API; its own counts only up to the lowest of its live members if it is
    /// capped.
    pub(crate) fn priority(&self, capped: bool, oldest_member: impl FnOnce() -> Option<i32>) -> i32 {
        match self.definition.last().map(|spec| spec.priority) {
            Some(GroupPriority::Own(priority)) => {
                let lowest = self.lowest_live_priority().filter(|_| capped);
                lowest.map_or(priority, |lowest| lowest.min(priority))
            }
            Some(GroupPriority::SharedByMembers) => oldest_member().unwrap_or(0),
            Some(GroupPriority::LowestMember) | None => self.lowest_member_priority().unwrap_or(0),
        }
    }

    /// The first subset with fewer members than its minimum, and how many it has. In a tree, the first that its parent
    /// lacks.
    pub(crate) fn incomplete_subset(&self) -> Option<(&Subset, u32)> {
        let present = |subset: usize| self.member_counts[subset].present();
        let lacks = |subset: &usize| present(*subset) < self.rules[*subset].min_member;
        let met = self.tree.as_ref().map(|tree| {
            let met = tree.met(|subset| self.has_started_subset(subset) || !lacks(&subset));
            (tree, met)
        });
        let is_lacked = |subset: &usize| {
            met.as_ref().is_none_or(|(tree, met)| {
                tree.path(tree.leaves()[*subset]).skip(1).all(|at| !met[at]) && !self.has_started_subset(*subset)
            })
        };
        let subset = (0..self.rules.len()).filter(lacks).find(is_lacked)?;
        Some((&self.rules[subset], present(subset)))
    }

    /// The subset that a pod belongs to in a tree, also if it is not counted there.
    pub(crate) fn leaf_of(&self, pod: &Pod) -> Option<usize> {
        match pod.counted {
            Counted::In { subset, .. } => Some(usize::from(subset)),
            Counted::Excluded | Counted::Not => self.rules.iter().position(|rule| *rule.name == *pod.subset),
        }
    }

    /// The first group of the tree with fewer child groups than it needs, how many it has, and how many it needs.
    pub(crate) fn group_without_children(&self) -> Option<(&str, u32, u32)> {
        self.tree.as_ref()?.nodes().iter().enumerate().find_map(|(at, node)| {
            let there = self.tree.as_ref()?.children(at).len() as u32;
            match node.minimum {
                TreeMinimum::Groups(needed) if there < needed => Some((node.name.as_str(), there, needed)),
                _ => None,
            }
        })
    }

    /// The lowest priority among its members.
    pub(crate) fn lowest_member_priority(&self) -> Option<i32> {
        self.priorities.keys().next().copied()
    }

    /// The lowest priority among its members that are pending or hold a node.
    pub(crate) fn lowest_live_priority(&self) -> Option<i32> {
        self.live_priorities.keys().next().copied()
    }

    /// The subset of a member, or why it is excluded. No member is excluded before the object is seen, and no placed
    /// member for its priority.
    pub(crate) fn subset_of(&self, pod: &Pod, shared_priority: Option<i32>) -> Result<usize, Exclusion> {
        let since = self.definition.last().and_then(|spec| spec.members_since_ms);
        if since.is_some_and(|since| pod.created_ms < since) || self.has_later_attempt(pod) || self.has_other_owner(pod)
        {
            return Err(Exclusion::Former);
        }
        if let Some(shared) = shared_priority
            && pod.priority != shared
            && pod.state == PodState::Waiting
        {
            return Err(Exclusion::OtherPriority { shared });
        }
        let open = self.definition.last().is_some_and(|spec| spec.open);
        let subset = crate::model::group::subset_of(&self.rules, open, &pod.subset);
        subset.or(self.definition.last().is_none().then_some(0)).ok_or(Exclusion::UnknownSubset)
    }

    /// Whether a member is left over from an earlier start.
    pub(crate) fn is_former(&self, member: PodId) -> bool {
        self.excluded.get(&member) == Some(&Exclusion::Former)
    }

    fn has_later_attempt(&self, pod: &Pod) -> bool {
        pod.attempt.as_ref().is_some_and(|attempt| self.latest_attempt(&attempt.owner) > Some(attempt.number))
    }

    /// The latest attempt of an owner of which there is a member.
    fn latest_attempt(&self, owner: &str) -> Option<u32> {
        self.attempts.get(owner)?.last_key_value().map(|(number, _)| *number)
    }

    fn has_other_owner(&self, pod: &Pod) -> bool {
        let owner = self.definition.last().and_then(|spec| spec.owner.as_ref());
        owner.zip(pod.attempt.as_ref()).is_some_and(|(owner, attempt)| attempt.owner != *owner)
    }

    /// A member of this attempt is new. Returns whether those of an earlier one do not count any more.
    pub(crate) fn add_attempt(&mut self, attempt: &OwnerAttempt) -> bool {
        let former = self.latest_attempt(&attempt.owner);
        let attempts = self.attempts.entry(attempt.owner.clone()).or_default();
        *attempts.entry(attempt.number).or_default() += 1;
        former.is_some_and(|former| former < attempt.number)
    }

    /// A member of this attempt is gone. Returns whether those of an earlier one count again: a pod with a wrong number
    /// must not keep its group out for longer than it exists.
    pub(crate) fn remove_attempt(&mut self, attempt: &OwnerAttempt) -> bool {
        let former = self.latest_attempt(&attempt.owner);
        let Some(attempts) = self.attempts.get_mut(&attempt.owner) else { return false };
        let members = attempts.get_mut(&attempt.number).expect("a member of this attempt was counted");
        *members -= 1;
        if *members == 0 {
            attempts.remove(&attempt.number);
        }
        if attempts.is_empty() {
            self.attempts.remove(&attempt.owner);
            return false;
        }
        self.latest_attempt(&attempt.owner) != former
    }

    /// Adds one member to the counts of its state, or removes it.
    pub(crate) fn count(&mut self, subset: u16, member_state: MemberState, member: (Millis, PodId), into: bool) {
        if let Some(slot) = self.member_counts[usize::from(subset)].slot(member_state) {
            if into { *slot += 1 } else { *slot -= 1 }
        }
        let changed = match (member_state, into) {
            (MemberState::Waiting, true) => self.waiting.insert(member),
            (MemberState::Waiting, false) => self.waiting.remove(&member),
            (MemberState::Gated, true) => self.gated.insert(member.1),
            (MemberState::Gated, false) => self.gated.remove(&member.1),
            (MemberState::Refused, true) => self.refused.insert(member.1),
            (MemberState::Refused, false) => self.refused.remove(&member.1),
            _ => true,
        };
        debug_assert!(changed, "a member is counted once");
        if member_state == MemberState::Waiting {
            self.changes += 1;
        }
    }

    /// Counts the priority of one member that is pending or holds a node, or removes it.
    pub(crate) fn count_live(&mut self, priority: i32, into: bool) {
        count_priority(&mut self.live_priorities, priority, into);
    }

    /// Counts the priority of one member, or removes it.
    pub(crate) fn count_member(&mut self, priority: i32, into: bool) {
        count_priority(&mut self.priorities, priority, into);
    }

    /// The object is gone or cannot be used any more. What it said holds while members have nodes.
    pub(crate) fn withdraw_definition(&mut self) {
        self.definition.withdraw();
        self.changes += 1;
    }

    /// Whether the group has neither object nor members.
    pub(crate) fn is_unused(&self) -> bool {
        self.definition.current().is_none() && self.members.is_empty()
    }
}

fn count_priority(priorities: &mut BTreeMap<i32, u32>, priority: i32, into: bool) {
    let count = priorities.entry(priority).or_default();
    if into {
        *count += 1;
    } else {
        *count -= 1;
    }
    if *count == 0 {
        priorities.remove(&priority);
    }
}

/// The saturating sum of minimums.
pub(crate) fn sum_of(quorum: &[u32]) -> u32 {
    quorum.iter().fold(0, |sum: u32, count| sum.saturating_add(*count))
}
