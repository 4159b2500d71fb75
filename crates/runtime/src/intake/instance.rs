//! One group or replica of a group: its members, what the engine knows of it, and what is said of it.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::wire::condition::Condition;
use muster_engine::Diagnosis;
use muster_engine::model::group::{GroupSpec, History};

use super::groups::ObjectKey;
use crate::dialect::Flaw;

/// One group or replica of a group. It is there while pods name it, or while its object is nothing but it.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// The object that defines it, or would.
    pub(crate) object: ObjectKey,
    /// The UID of the object that was last seen.
    pub(crate) object_uid: String,
    /// Whether the object belonged to a leader when it was last seen.
    pub(crate) is_led: bool,
    /// The group inside the object; empty if the object is the group.
    pub(crate) group: String,
    /// The replica.
    pub(crate) replica: String,
    /// The UIDs of the pods that name it.
    pub(crate) members: BTreeSet<Arc<str>>,
    /// Whether a pod of ours has ever named it.
    pub(crate) was_ours: bool,
    /// What the engine was told of it; `None` if nothing, or that it is gone.
    pub(crate) sent: Option<GroupSpec>,
    /// What the API remembered of it when the engine was first told.
    pub(crate) history: Option<History>,
    /// Why its object cannot be used, if it is there.
    pub(crate) flaw: Option<Flaw>,
    /// What the engine said last.
    pub(crate) told: Option<Diagnosis>,
    /// Members that would fit if the group did, when the engine last spoke.
    pub(crate) would_fit: BTreeSet<Arc<str>>,
    /// Members that had no room then.
    pub(crate) no_room: BTreeSet<Arc<str>>,
    /// When a member last began to wait.
    pub(crate) grew_ms: u64,
    /// What was left of it was deleted because it had lost members, and it has not started since.
    pub(crate) given_up: bool,
    /// For whom it is to be evicted whole, or was, as long as it is not spared or back on nodes.
    pub(crate) preempted_by: Option<String>,
    /// Our conditions of it as they are to be.
    pub(crate) conditions: Vec<Condition>,
}

impl Instance {
    pub(super) fn new(object: ObjectKey, group: &str, replica: &str) -> Self {
        Self {
            object,
            object_uid: String::new(),
            is_led: false,
            group: group.to_owned(),
            replica: replica.to_owned(),
            members: BTreeSet::new(),
            was_ours: false,
            sent: None,
            history: None,
            flaw: None,
            told: None,
            would_fit: BTreeSet::new(),
            no_room: BTreeSet::new(),
            grew_ms: 0,
            given_up: false,
            preempted_by: None,
            conditions: Vec::new(),
        }
    }

    /// Forgets what became of it: the next object of its name is another group. Who names it still does.
    pub(super) fn begin_anew(&mut self) {
        let new = Self::new(self.object.clone(), &self.group, &self.replica);
        let (members, sent) = (std::mem::take(&mut self.members), self.sent.take());
        *self = Self { members, sent, was_ours: self.was_ours, grew_ms: self.grew_ms, ..new };
    }
}
