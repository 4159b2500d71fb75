//! The status of a group: everything that its object shows about it, as one value derived from the engine's state.
//!
//! Where the engine has nothing to say, because it has not seen enough since it was started, what the object shows
//! holds: such a part is `None` or `Unchanged`. [`StartStatus`] is what a later process reads back as
//! [`RecordedStart`](crate::model::group::RecordedStart).

mod tree;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::group::{Group, sum_of};
use crate::cluster::pod::{Pod, PodState};
use crate::command::MemberVerdict;
use crate::diagnosis::{Diagnosis, Waiting};
use crate::model::Millis;
use crate::model::group::{GroupKey, GroupPriority, GroupSpec, RecordedStart, Subset, subset_of};
use crate::model::ids::GroupId;
use crate::model::pod::PodName;
use crate::model::subject::Subject;
use crate::queue::Entity;
use crate::scheduler::Engine;

/// The status of a group.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GroupStatus<'e> {
    /// The last object that could be used: what it said holds while members have nodes.
    pub spec: Option<&'e GroupSpec>,
    /// All pods that refer to it.
    pub counts: Counts,
    /// The members by subset; empty if no usable object was seen.
    pub subsets: Vec<(String, Counts)>,
    /// Whether a pod has a node and is not terminating, or has succeeded.
    pub has_nodes: bool,
    /// Whether it is scheduled.
    pub scheduled: ScheduledStatus<'e>,
    /// Whether it has started.
    pub start: StartStatus,
    /// Whether it has lost members since.
    pub health: Option<Health>,
    /// Whether it is being preempted as a whole.
    pub eviction: Option<EvictionStatus<'e>>,
    /// Whether all its pods have finished.
    pub completion: Option<Completion>,
    /// Pods with another priority than the group's own, which takes precedence.
    pub priority_mismatch: Option<PriorityMismatch<'e>>,
}

/// The number of pods by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All existing pods.
    pub total: i64,
    /// On a node, or succeeded: these count towards the minimum.
    pub scheduled: i64,
    /// Pending, and would fit if the whole group did.
    pub would_fit: i64,
    /// Pending, without sufficient capacity.
    pub no_room: i64,
    /// Running.
    pub running: i64,
    /// Succeeded.
    pub succeeded: i64,
    /// Failed.
    pub failed: i64,
}

/// Whether a group is scheduled.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum ScheduledStatus<'e> {
    /// Nothing new is known.
    #[default]
    Unchanged,
    /// It has no members.
    NoMembers,
    /// It has started, and the reports say nothing about it: what is shown holds if that says so too.
    Started,
    /// It is, with the pods that are counted as scheduled.
    Scheduled,
    /// It is although members wait, for this reason.
    ScheduledPartly(&'e Diagnosis),
    /// What the last report says about it.
    Reported(&'e Diagnosis),
    /// It is a part of a tree: what the last report about that means for it.
    OfTree(Diagnosis),
    /// No member waits, and those that were found on nodes are fewer than its minimum.
    Incomplete(Diagnosis),
}

/// Whether a gang has started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StartStatus {
    /// No usable object was seen, it is no gang at present, or its members on nodes do not count.
    #[default]
    Unchanged,
    /// No start was confirmed, or none of its members is left.
    NotStarted,
    /// Members are bound, and the minimum is not confirmed, or no longer is.
    Open,
    /// The rest of it was deleted after it had lost members: it starts again as a whole.
    GivenUp,
    /// It was confirmed.
    Started {
        /// With this minimum in each subset.
        minimum: Vec<Subset>,
        /// When it was decided, if that is known.
        decided_ms: Option<Millis>,
    },
}

impl StartStatus {
    /// What the next process reads, given what is recorded now.
    pub fn recorded(&self, now: &RecordedStart) -> RecordedStart {
        match self {
            Self::Unchanged => now.clone(),
            Self::NotStarted | Self::Open => RecordedStart::None,
            Self::GivenUp => RecordedStart::GivenUp,
            Self::Started { minimum, decided_ms } => {
                RecordedStart::Confirmed { minimum: Some(minimum.clone()), decided_ms: *decided_ms }
            }
        }
    }
}

/// Whether a started gang has lost members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// It has what it needs.
    Healthy,
    /// It has not started, and no pod of it is on a node.
    NothingLeft,
    /// It is below its minimum: a `Degraded` diagnosis.
    Degraded(Diagnosis),
}

/// Whether a group is being preempted as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EvictionStatus<'e> {
    /// It is not: members have nodes.
    NotEvicted,
    /// That is ordered, and no member is being deleted yet: it may be refused or fail.
    Ordered,
    /// It is or was preempted, and no member stays on a node.
    Evicted {
        /// The preemptor.
        by: &'e Subject,
    },
}

/// Whether all pods of a group have finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Some have not.
    NotFinished,
    /// All have; the counts say how.
    Finished,
}

/// Pods with another priority than the group's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PriorityMismatch<'e> {
    /// The group's priority.
    pub own: i32,
    /// The lower priority that counts instead, if a group's own is capped.
    pub capped: Option<i32>,
    /// How many pods differ.
    pub pods: usize,
    /// One of them.
    pub example: &'e Arc<PodName>,
    /// Its priority.
    pub example_priority: i32,
}

impl Engine {
    /// The status of a group; the default if it is not known.
    pub fn group_status(&self, key: &GroupKey) -> GroupStatus<'_> {
        if self.forest.spec(key).is_some() && self.forest.place(key).is_none_or(|place| place.root != *key) {
            return self.status_in_tree(key);
        }
        self.cluster.group_id(key).map_or_else(GroupStatus::default, |id| self.status_of(id))
    }

    pub(crate) fn status_of(&self, id: GroupId) -> GroupStatus<'_> {
        let (group, entity) = (self.cluster.group(id), Entity::Group(id));
        let mut status = members_of(&self.cluster, group, self.reports.verdicts(entity));
        status.scheduled = scheduled(group, &status, self.reports.standing(entity));
        status.start = start(&self.cluster, group);
        status.health = health(&self.cluster, group, self.reports.standing(entity));
        status.eviction = eviction(&self.cluster, group);
        status.completion = completion(&self.cluster, group, &status.counts);
        status.priority_mismatch = priority_mismatch(&self.cluster, group);
        status
    }
}

fn pods<'e>(cluster: &'e Cluster, group: &'e Group) -> impl Iterator<Item = &'e Pod> {
    group.members.iter().map(|(_, member)| cluster.pod(*member))
}

/// The spec of the group and the counts of its pods.
fn members_of<'e>(
    cluster: &'e Cluster,
    group: &'e Group,
    verdicts: &[(Arc<PodName>, MemberVerdict)],
) -> GroupStatus<'e> {
    let spec = group.definition.last();
    let (rules, open) = spec.map_or((&[][..], false), |spec| (&group.rules[..], spec.open));
    let mut subsets: Vec<(String, Counts)> = rules.iter().map(|rule| (rule.name.clone(), Counts::default())).collect();
    let (mut counts, mut has_nodes) = (Counts::default(), false);
    let verdicts: BTreeMap<&str, MemberVerdict> =
        verdicts.iter().map(|(pod, verdict)| (pod.uid.as_str(), *verdict)).collect();
    for pod in pods(cluster, group) {
        let verdict = verdicts.get(pod.id.uid.as_str()).copied();
        counts.add(pod, verdict);
        if let Some(index) = subset_of(rules, open, &pod.subset) {
            subsets[index].1.add(pod, verdict);
        }
        has_nodes |= holds_node(pod);
    }
    GroupStatus { spec, counts, subsets, has_nodes, ..GroupStatus::default() }
}

impl Counts {
    pub(crate) fn add(&mut self, pod: &Pod, verdict: Option<MemberVerdict>) {
        self.total += 1;
        match pod.state {
            PodState::Bound(_) => {
                self.scheduled += 1;
                self.running += i64::from(pod.is_running);
            }
            PodState::Finished { succeeded: true } => {
                self.scheduled += 1;
                self.succeeded += 1;
            }
            PodState::Finished { succeeded: false } => self.failed += 1,
            PodState::Waiting | PodState::Assumed(_) if !pod.ours || pod.gated || pod.terminating => {}
            PodState::Waiting | PodState::Assumed(_) => match verdict {
                Some(MemberVerdict::WouldFit) => self.would_fit += 1,
                Some(MemberVerdict::NoRoom | MemberVerdict::ScaleUpWouldNotHelp) => self.no_room += 1,
                Some(MemberVerdict::NotTried) | None => {}
            },
        }
    }
}

/// Whether a pod of ours is on a node and not terminating. It may be about to be evicted or rolled back.
fn is_on_node(pod: &Pod) -> bool {
    pod.ours && matches!(pod.state, PodState::Bound(_)) && !pod.terminating
}

/// Whether a pod of any scheduler has a node or has succeeded there.
pub(crate) fn holds_node(pod: &Pod) -> bool {
    match pod.state {
        PodState::Bound(_) => !pod.terminating,
        PodState::Finished { succeeded } => succeeded,
        PodState::Waiting | PodState::Assumed(_) => false,
    }
}

fn scheduled<'e>(group: &'e Group, status: &GroupStatus<'e>, standing: Option<&'e Diagnosis>) -> ScheduledStatus<'e> {
    let waits = |diagnosis: &&Diagnosis| {
        matches!(diagnosis, Diagnosis::GroupUnschedulable(_) | Diagnosis::WaitingForVictims(_) | Diagnosis::Waiting(_))
    };
    let has_started = group.lifecycle.confirmed().is_some();
    let standing = standing.filter(|diagnosis| !is_outdated(group, diagnosis));
    // Pods without a matching subset are no members.
    let members: i64 = status.subsets.iter().map(|(_, counts)| counts.total).sum();
    match standing {
        _ if status.counts.total == 0 || (members == 0 && standing.is_none() && !has_started) => {
            ScheduledStatus::NoMembers
        }
        // A basic group is scheduled as soon as one of its pods is.
        _ if status.spec.is_some() && !group.is_gang() && status.counts.scheduled > 0 => {
            standing.filter(waits).map_or(ScheduledStatus::Scheduled, ScheduledStatus::ScheduledPartly)
        }
        // Of a tree that has started, only a further part can wait.
        Some(diagnosis @ Diagnosis::Waiting(_)) if group.has_started_tree() => {
            ScheduledStatus::ScheduledPartly(diagnosis)
        }
        Some(diagnosis) => ScheduledStatus::Reported(diagnosis),
        None if has_started && group.is_gang() && group.has_reached_minimum() => ScheduledStatus::Started,
        None => missing(group).filter(|_| !has_started).map_or(ScheduledStatus::Unchanged, ScheduledStatus::Incomplete),
    }
}

/// What a group lacks of whose members only some were found on nodes, and none waits.
fn missing(group: &Group) -> Option<Diagnosis> {
    if group.definition.current().is_none() || group.total().bound == 0 || group.has_pending_members() {
        return None;
    }
    let (rule, have) = group.incomplete_subset()?;
    let (subset, need) = (rule.name.clone(), rule.min_member);
    Some(Diagnosis::Waiting(Waiting::Members { subset, have, need, stateful_set: None }))
}

/// Whether the group has changed since a report so that this is not true any more.
fn is_outdated(group: &Group, diagnosis: &Diagnosis) -> bool {
    let has_started = group.lifecycle.confirmed().is_some();
    match diagnosis {
        Diagnosis::Scheduled { .. } | Diagnosis::Healthy { .. } => !has_started,
        Diagnosis::TimedOut { .. } | Diagnosis::Degraded { .. } => has_started,
        Diagnosis::Waiting(Waiting::GroupMissing { .. }) => group.definition.current().is_some(),
        Diagnosis::Waiting(Waiting::Volumes { .. }) => group.total().assumed == 0,
        Diagnosis::BindFailed { .. }
        | Diagnosis::VolumeBindFailed { .. }
        | Diagnosis::Waiting(_)
        | Diagnosis::PodUnschedulable { .. }
        | Diagnosis::GroupUnschedulable(_)
        | Diagnosis::WaitingForVictims(_) => !group.has_pending_members(),
    }
}

fn start(cluster: &Cluster, group: &Group) -> StartStatus {
    let is_left = || pods(cluster, group).any(is_on_node);
    let is_known = group.definition.was_seen() && group.is_gang();
    match group.lifecycle.confirmed() {
        _ if !is_known && (group.lifecycle.confirmed().is_some() || is_left()) => StartStatus::Unchanged,
        _ if group.start_is_open() => StartStatus::Open,
        Some(confirmed) => {
            let subset = |(rule, minimum): (&Subset, &u32)| Subset { name: rule.name.clone(), min_member: *minimum };
            let minimum = group.rules.iter().zip(&confirmed.minimum).map(subset).collect();
            StartStatus::Started { minimum, decided_ms: confirmed.decided_ms }
        }
        None => match group.lifecycle.recorded() {
            RecordedStart::GivenUp => StartStatus::GivenUp,
            // Members that are to be evicted, or are excluded, are not counted: the record protects them.
            _ if is_left() => StartStatus::Unchanged,
            RecordedStart::Confirmed { .. } | RecordedStart::None => StartStatus::NotStarted,
        },
    }
}

fn health(cluster: &Cluster, group: &Group, standing: Option<&Diagnosis>) -> Option<Health> {
    let Some(confirmed) = group.lifecycle.confirmed() else {
        if !pods(cluster, group).any(is_on_node) {
            return Some(Health::NothingLeft);
        }
        // What is left of a group that was given up is being deleted.
        let given_up = standing.filter(|diagnosis| matches!(diagnosis, Diagnosis::Degraded { .. }));
        return given_up.map(|diagnosis| Health::Degraded(diagnosis.clone()));
    };
    match &confirmed.loss {
        None => Some(Health::Healthy),
        // A short loss is not shown.
        Some(loss) if loss.reported => {
            let minimum = sum_of(&group.cap_at_minimum(&confirmed.minimum));
            Some(Health::Degraded(Diagnosis::Degraded { minimum, scheduled: loss.scheduled, evicted: 0 }))
        }
        Some(_) => None,
    }
}

/// A group is evicted from when its first pod is being deleted until the group stays after all or is back on nodes.
/// Pods
/// of other schedulers can be victims, too.
fn eviction<'e>(cluster: &Cluster, group: &'e Group) -> Option<EvictionStatus<'e>> {
    let is_placed = |pod: &Pod| matches!(pod.state, PodState::Bound(_));
    let goes = pods(cluster, group).any(|pod| pod.eviction.is_some())
        && pods(cluster, group).any(|pod| pod.terminating && pod.state != PodState::Waiting);
    let stays = !goes && pods(cluster, group).any(|pod| is_placed(pod) && !pod.terminating);
    match &group.preempted_by {
        None if stays => Some(EvictionStatus::NotEvicted),
        Some(_) if stays => Some(EvictionStatus::Ordered),
        Some(by) => Some(EvictionStatus::Evicted { by }),
        None => None,
    }
}

/// While pods are being deleted that did not succeed, the result is open: the deletion may have made them fail. The
/// pods
/// that are left of a group that was given up do not complete it.
fn completion(cluster: &Cluster, group: &Group, counts: &Counts) -> Option<Completion> {
    let given_up = *group.lifecycle.recorded() == RecordedStart::GivenUp;
    if counts.total == 0 || given_up || pods(cluster, group).any(is_ending) {
        return None;
    }
    let finished = counts.succeeded + counts.failed == counts.total;
    Some(if finished { Completion::Finished } else { Completion::NotFinished })
}

/// Whether a pod is being deleted that did not succeed.
pub(crate) fn is_ending(pod: &Pod) -> bool {
    pod.terminating && pod.state != PodState::Finished { succeeded: true }
}

fn priority_mismatch<'e>(cluster: &'e Cluster, group: &'e Group) -> Option<PriorityMismatch<'e>> {
    let Some(GroupPriority::Own(own)) = group.definition.last().map(|spec| spec.priority) else { return None };
    let mut differing = pods(cluster, group).filter(|pod| pod.priority != own).peekable();
    let first = *differing.peek()?;
    let (example, example_priority) = (&first.id, first.priority);
    let capped = group.lowest_live_priority().filter(|lowest| cluster.group_priority_capped && *lowest < own);
    Some(PriorityMismatch { own, capped, pods: differing.count(), example, example_priority })
}
