//! Pods as they are observed.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::Millis;
use super::class::ClassSpec;
use super::group::GroupKey;
use super::labels::Labels;

/// Which pod: the UID is the identity, the rest is for people and for the API.
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

/// How far a pod has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Not running yet, on a node or not.
    #[default]
    Pending,
    /// Running on its node.
    Running,
    /// Finished well: it counts towards its group's minimum.
    Succeeded,
    /// Finished badly.
    Failed,
    /// Refused by the kubelet before it ran (`OutOfcpu` and its like): a bind that failed late.
    Refused,
}

/// The group that a pod names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Membership {
    /// Which group.
    pub group: GroupKey,
    /// Which of its subsets; empty if the pod names none.
    #[serde(default)]
    pub subset: String,
}

/// What of a pod cannot be honoured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodRefusal {
    /// What is wrong with it.
    pub kind: RefusalKind,
    /// The field, as its author wrote it.
    pub field: String,
    /// What stands there.
    pub value: String,
    /// Why that will not do.
    pub reason: String,
}

/// What is wrong with a field of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalKind {
    /// It asks for something that is not supported yet.
    Unsupported,
    /// It names a group in a way that is broken or contradicts itself.
    Reference,
    /// A field of it makes no sense.
    Invalid,
}

/// A pod as it is observed: always the whole of it, never a difference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodSpec {
    /// Which pod.
    pub id: Arc<PodName>,
    /// What matters to placement; shared by whoever observes many like pods.
    pub class: Arc<ClassSpec>,
    /// Its priority.
    pub priority: i32,
    /// The group that it names; fixed when the pod is first seen.
    pub membership: Option<Membership>,
    /// Whether Muster is to schedule it; pods of others are only counted.
    pub ours: bool,
    /// Whether scheduling gates hold it back.
    pub gated: bool,
    /// Why it must not be placed, if whoever observed it cannot do it justice. It matters only while the pod waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub refused: Option<Arc<PodRefusal>>,
    /// When it was created.
    pub created_ms: Millis,
    /// The node it is bound to.
    pub node: Option<String>,
    /// The node that is kept free for it.
    pub nominated: Option<String>,
    /// How far it has come.
    pub phase: Phase,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// Whether a controller would make it again after it was deleted.
    pub controlled: bool,
    /// Its labels: what disruption budgets select it by.
    #[serde(skip_serializing_if = "no_labels")]
    pub labels: Arc<Labels>,
    /// When it began to run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_ms: Option<Millis>,
    /// What its owner says that its loss would cost; more is dearer.
    #[serde(skip_serializing_if = "is_zero")]
    pub preemption_cost: i32,
    /// Whether its node runs it of its own accord: deleting it in the API does not make it leave.
    #[serde(skip_serializing_if = "is_false")]
    pub is_static: bool,
    /// Whether it may take no room from others, where no group decides that.
    #[serde(skip_serializing_if = "is_false")]
    pub never_preempts: bool,
    /// By when it has to be gone, if it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gone_by_ms: Option<Millis>,
    /// Whether it shows that we evict it for others. All of a unit show it before the first of them goes.
    #[serde(skip_serializing_if = "is_false")]
    pub marked: bool,
}

fn no_labels(labels: &Arc<Labels>) -> bool {
    labels.is_empty()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_zero(number: &i32) -> bool {
    *number == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it")]
fn is_false(flag: &bool) -> bool {
    !flag
}
