//! Pods as observed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Millis;
use super::class::ClassSpec;
use super::group::{DisruptionMode, GroupKey};
use super::labels::Labels;
use super::storage::ClaimUse;

/// The identity of a pod: the UID is unique, namespace and name are for users and the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PodName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The phase of a pod.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not running yet, on a node or not.
    #[default]
    Pending,
    /// Running on its node.
    Running,
    /// Finished successfully: it counts towards its group's minimum.
    Succeeded,
    /// Failed.
    Failed,
    /// Rejected by the kubelet before it ran (`OutOfcpu` and similar): a bind that failed late.
    #[serde(rename = "Refused")]
    Rejected,
}

/// The group that a pod belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Which group.
    pub group: GroupKey,
    /// The subset; empty if the pod names none.
    #[serde(default)]
    pub subset: String,
    /// The attempt of its owner that it belongs to, if its owner starts it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<OwnerAttempt>,
}

/// One attempt of an owner that starts all of its pods again when one fails. Once a group has a member of a later
/// attempt, those of earlier ones do not count any more, also while they still run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerAttempt {
    /// The UID of the owner.
    pub owner: String,
    /// The attempt, from 0.
    pub number: u32,
}

impl Membership {
    /// A member of a group without subsets.
    pub fn of(group: GroupKey) -> Self {
        Self { group, subset: String::new(), attempt: None }
    }
}

/// What a bind writes on a member of a group: the start that it belongs to. It survives the process, the object and the
/// gates, so it decides after a restart what may be rolled back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartStamp {
    /// The UID of the group's object.
    pub group_uid: String,
    /// When the start was decided: it distinguishes the starts of one group.
    pub decided_ms: Millis,
    /// Whether that start was confirmed already: the pod joined later.
    pub confirmed: bool,
    /// The total minimum of the group.
    pub minimum: u32,
    /// How the group may be disrupted.
    pub disruption_mode: DisruptionMode,
    /// The group's priority.
    pub priority: i32,
}

/// Why a pod cannot be scheduled as specified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRefusal {
    /// The kind of problem.
    pub kind: RefusalKind,
    /// The field, as spelled in the pod.
    pub field: String,
    /// The value of the field.
    pub value: String,
    /// Why that value is not accepted.
    pub reason: String,
}

/// The kind of problem with a field of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// The field requests something that is not supported yet.
    Unsupported,
    /// The group reference is malformed or contradicts itself.
    Reference,
    /// The value is invalid.
    Invalid,
    /// A claim of the pod cannot be used, at least not yet.
    Volume,
}

/// A pod as observed: always the complete state, never a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    /// The identity.
    pub id: Arc<PodName>,
    /// Everything that matters to placement; identical pods share it.
    pub class: Arc<ClassSpec>,
    /// Its priority.
    pub priority: i32,
    /// The group that it belongs to; fixed when the pod is first seen.
    pub membership: Option<Membership>,
    /// Whether Muster schedules it; other schedulers' pods are only counted.
    pub ours: bool,
    /// Whether it has scheduling gates.
    pub gated: bool,
    /// Why it must not be placed, if its specification cannot be honoured. It matters only while the pod is pending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Arc<PodRefusal>>,
    /// When it was created.
    pub created_ms: Millis,
    /// The node it is bound to.
    pub node: Option<String>,
    /// The nominated node.
    pub nominated: Option<String>,
    /// The phase.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether a controller would recreate it after a deletion.
    pub controlled: bool,
    /// Its labels; disruption budgets select by them.
    #[serde(skip_serializing_if = "no_labels")]
    pub labels: Arc<Labels>,
    /// When it started to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<Millis>,
    /// The cost of its eviction as declared by its owner; higher is worse.
    #[serde(skip_serializing_if = "is_zero")]
    pub preemption_cost: i32,
    /// Whether it is a static pod: deleting it in the API does not stop it.
    #[serde(skip_serializing_if = "is_false")]
    pub is_static: bool,
    /// Whether it never preempts, unless its group decides that.
    #[serde(skip_serializing_if = "is_false")]
    pub never_preempts: bool,
    /// The end of its grace period, if it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(rename = "gone_by_ms")]
    pub grace_period_ends_ms: Option<Millis>,
    /// Whether it is marked as preempted. All pods of a victim unit are marked before the first of them is deleted.
    #[serde(skip_serializing_if = "is_false")]
    pub marked: bool,
    /// The start that its bind belongs to, as stamped on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<Arc<StartStamp>>,
    /// The StatefulSet that created it, which may create the next pod only when this one is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stateful_set: Option<Arc<str>>,
    /// Its rank among the members of its group, by which neighbours communicate the most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// How long it runs.
    #[serde(skip_serializing_if = "Lifetime::is_unlimited")]
    pub lifetime: Lifetime,
    /// The claims that it uses.
    #[serde(skip_serializing_if = "no_claims")]
    pub claims: Arc<Vec<ClaimUse>>,
}

/// How long a pod runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Lifetime {
    /// Until it is deleted.
    #[default]
    Unlimited,
    /// Until it has done its work, whenever that is.
    ToCompletion,
    /// At most so long after it has started.
    Deadline(Millis),
}

impl Lifetime {
    fn is_unlimited(&self) -> bool {
        *self == Self::Unlimited
    }

    /// Whether a pod that started at this time, or has yet to start, is expected to end until then. One that has run
    /// for longer than the time that is left is not expected to complete in it.
    pub fn ends_until(self, started_ms: Option<Millis>, now: Millis, until: Millis) -> bool {
        let started_ms = started_ms.unwrap_or(now);
        match self {
            Self::Unlimited => false,
            Self::ToCompletion => now.saturating_sub(started_ms) <= until.saturating_sub(now),
            Self::Deadline(deadline_ms) => started_ms.saturating_add(deadline_ms) <= until,
        }
    }
}

fn no_claims(claims: &Arc<Vec<ClaimUse>>) -> bool {
    claims.is_empty()
}

fn no_labels(labels: &Arc<Labels>) -> bool {
    labels.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn is_false(flag: &bool) -> bool {
    !flag
}
