//! The record of a pod: what is kept of it once the object is dropped.
//!
//! Invariant: the group of a pod is the one that it named when it was first seen.

use std::sync::Arc;

use muster_api::keys::conditions::POD_SCHEDULED;
use muster_api::wire::Pod;
use muster_api::wire::condition::Condition;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{OwnerAttempt, Phase, PodName, PodRefusal, PodSpec};

use super::group_reference::NamedGroup;
use super::{recreated_owners, replicas};
use crate::dialect::Dialect;
use muster_clock::millis;

/// What is kept of a pod.
#[derive(Clone, Debug)]
pub(crate) struct PodRecord {
    /// Its namespace, name and UID.
    pub(crate) id: Arc<PodName>,
    /// The group that it names.
    pub(crate) group: Option<Arc<GroupKey>>,
    /// What was wrong with its group reference when it was first seen. Only a new pod can fix that.
    pub(crate) broken: Option<Arc<PodRefusal>>,
    /// The subset that it names.
    pub(crate) subset: Box<str>,
    /// The Job or JobSet that made it, and in which attempt.
    pub(crate) attempt: Option<OwnerAttempt>,
    /// Whether Muster schedules it.
    pub(crate) ours: bool,
    /// Whether it has scheduling gates.
    pub(crate) gated: bool,
    /// Whether it is invalid or uses an unsupported feature.
    pub(crate) refused: bool,
    /// Whether it is being deleted.
    pub(crate) terminating: bool,
    /// Whether it has no node and has not ended.
    has_no_node: bool,
    /// When it was created.
    pub(crate) created_ms: u64,
    /// How many pods its replica has, if it is a worker of a LeaderWorkerSet.
    pub(crate) replica_size: Option<u32>,
    /// Since when it could be scheduled: since its creation, or since its gates were seen to be removed.
    pub(crate) pending_since_ms: u64,
    /// The last seen `resourceVersion`, for a pending pod of ours.
    pub(crate) version: Option<Box<str>>,
    /// Its `PodScheduled` condition while it is pending.
    pub(crate) condition: Option<Box<ConditionText>>,
    /// The group reference that it has now, if it differs from the one it was first seen with: reported once.
    pub(crate) changed_reference: Option<Box<str>>,
    /// It is held back until our controllers have set its group reference or completed its group.
    pub(crate) held: bool,
    /// Why its group does not accept it yet, according to its leader and its controller.
    pub(super) held_by_group: Option<Arc<PodRefusal>>,
}

/// The reason and message of a pod's `PodScheduled` condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConditionText {
    /// The reason.
    pub(crate) reason: String,
    /// The message.
    pub(crate) message: String,
}

impl PodRecord {
    /// The record of a new pod, without its group.
    pub(super) fn new(id: Arc<PodName>, pod: &Pod) -> Self {
        let created_ms = pod.metadata.creation_timestamp.as_ref().map_or(0, |time| millis(time.0));
        Self {
            id,
            group: None,
            broken: None,
            subset: "".into(),
            attempt: recreated_owners::attempt_of(pod),
            ours: false,
            gated: false,
            refused: false,
            terminating: false,
            has_no_node: true,
            created_ms,
            replica_size: replicas::size_for_worker(pod),
            pending_since_ms: created_ms,
            version: None,
            condition: None,
            changed_reference: None,
            held: false,
            held_by_group: None,
        }
    }

    /// Takes over what the pod says now.
    pub(super) fn update(&mut self, pod: &Pod, spec: &PodSpec, now_ms: u64) {
        self.ours = spec.ours;
        if self.gated && !spec.gated {
            self.pending_since_ms = now_ms;
        }
        self.gated = spec.gated;
        self.terminating = spec.terminating;
        self.has_no_node = spec.node.is_none() && spec.phase == Phase::Pending;
        self.condition = read_condition(pod).filter(|_| spec.ours);
        let version = pod.metadata.resource_version.as_deref().filter(|_| spec.ours && spec.node.is_none());
        self.version = version.map(Into::into);
    }

    /// Compares the group that the pod names now with the first one. Returns a message about a change that was not
    /// reported yet.
    pub(super) fn note_reference(&mut self, named: &NamedGroup, dialects: &[Box<dyn Dialect>]) -> Option<String> {
        let now = (!named.is_that_of(self, dialects)).then(|| named.describe());
        let is_reported = self.changed_reference.as_deref() == now.as_deref();
        self.changed_reference = now.as_deref().map(Into::into);
        let now = now.filter(|_| !is_reported)?;
        let none = || if self.broken.is_some() { "a broken reference" } else { "no group" }.to_owned();
        let was = self.group.as_ref().map_or_else(none, |key| format!("the group {key}"));
        Some(format!("The pod was first seen with {was}; it now names {now}. That has no effect."))
    }

    /// Whether it named a group when it was first seen, or tried to.
    pub(super) fn named_group(&self) -> bool {
        self.group.is_some() || self.broken.is_some()
    }

    /// Whether the pod is pending and only waits for this scheduler, so that conditions may be written.
    pub(crate) fn is_pending(&self) -> bool {
        self.ours && self.has_no_node && !self.gated && !self.terminating
    }
}

/// The pod's condition while it has no node.
fn read_condition(pod: &Pod) -> Option<Box<ConditionText>> {
    if !pod.spec.node_name.is_empty() {
        return None;
    }
    let condition = Condition::find(&pod.status.conditions, POD_SCHEDULED).filter(|one| one.status == "False")?;
    Some(Box::new(ConditionText { reason: condition.reason.clone(), message: condition.message.clone() }))
}
