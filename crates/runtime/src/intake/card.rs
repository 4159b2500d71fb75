//! The card of a pod: what must be remembered of it once the object is dropped.
//!
//! Invariant: the group that a pod names is the one it named when it was first seen.

use std::sync::Arc;

use muster_api::keys::conditions::POD_SCHEDULED;
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodName, PodRefusal};

/// What is remembered of a pod.
#[derive(Clone, Debug)]
pub(crate) struct Card {
    /// Who it is.
    pub(crate) id: Arc<PodName>,
    /// The group that it names.
    pub(crate) group: Option<Arc<GroupKey>>,
    /// What was wrong with its reference when it was first seen. Only a new pod mends that.
    pub(crate) broken: Option<Arc<PodRefusal>>,
    /// The subset that it names.
    pub(crate) subset: Box<str>,
    /// Its priority.
    pub(crate) priority: i32,
    /// Whether we schedule it.
    pub(crate) ours: bool,
    /// Whether scheduling gates hold it back.
    pub(crate) gated: bool,
    /// Whether it asks for what cannot be honoured, or makes no sense.
    pub(crate) refused: bool,
    /// Whether it is being deleted.
    pub(crate) terminating: bool,
    /// How far it has come.
    pub(crate) stage: Stage,
    /// When it was created.
    pub(crate) created_ms: u64,
    /// How many pods its replica has, if it is a worker of a LeaderWorkerSet.
    pub(crate) replica_size: Option<u32>,
    /// Since when it could be scheduled: since it was created, or since its gates were seen to be gone.
    pub(crate) asked_ms: u64,
    /// The version in which a pod of ours that waits was last seen.
    pub(crate) version: Option<Box<str>>,
    /// What its `PodScheduled` condition says while it waits.
    pub(crate) said: Option<Box<Said>>,
    /// The reference that it carries, if that is not the one it was first seen with: told once.
    pub(crate) changed_reference: Option<Box<str>>,
    /// It is held back for something that our controllers are about to do: give it its reference, or make its group
    /// as it has to be.
    pub(crate) held: bool,
}

/// How far a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Has no node.
    Waiting,
    /// Has a node and does not run yet.
    Bound,
    /// Runs.
    Running,
    /// Finished well.
    Succeeded,
    /// Finished badly.
    Failed,
}

/// What a pod's condition says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Said {
    /// The reason.
    pub(crate) reason: String,
    /// The sentence.
    pub(crate) message: String,
}

impl Card {
    /// Whether the pod waits for us and nothing but us: what conditions may be written on it.
    pub(crate) fn waits(&self) -> bool {
        self.ours && self.stage == Stage::Waiting && !self.gated && !self.terminating
    }
}

/// What the pod's condition says while it has no node.
pub(crate) fn said(pod: &Pod) -> Option<Box<Said>> {
    if !pod.spec.node_name.is_empty() {
        return None;
    }
    let condition = Condition::find(&pod.status.conditions, POD_SCHEDULED).filter(|one| one.status == "False")?;
    Some(Box::new(Said { reason: condition.reason.clone(), message: condition.message.clone() }))
}
