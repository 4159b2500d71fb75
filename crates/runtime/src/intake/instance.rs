//! One group, or one replica of a group: its members, what the engine knows of it, and its conditions.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::wire::condition::Condition;
use muster_engine::Diagnosis;
use muster_engine::model::group::{GroupSpec, History};

use super::group_index::ObjectKey;
use crate::dialect::GroupError;

/// One group, or one replica of a group. It exists while pods name it, or while its object, if that is the group
/// itself, exists.
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
    /// The last spec that the engine observed; `None` if there was none, or the group is gone.
    pub(crate) sent: Option<GroupSpec>,
    /// Its history according to the API when the engine first observed it.
    pub(crate) history: Option<(History, Option<u64>)>,
    /// Why its object cannot be used, if it exists.
    pub(crate) error: Option<GroupError>,
    /// The last diagnosis of the engine.
    pub(crate) last_diagnosis: Option<Diagnosis>,
    /// Members that would fit if the whole group did, according to the last report.
    pub(crate) would_fit: BTreeSet<Arc<str>>,
    /// Members that lacked capacity, according to the last report.
    pub(crate) no_room: BTreeSet<Arc<str>>,
    /// When a member last became pending.
    pub(crate) grew_ms: u64,
    /// Its remaining pods were deleted because it had lost members, and it has not started since.
    pub(crate) given_up: bool,
    /// The preemptor for which the whole group is or was evicted, until it stays after all or is back on nodes.
    pub(crate) preempted_by: Option<String>,
    /// Our conditions of it as they should be.
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
            error: None,
            last_diagnosis: None,
            would_fit: BTreeSet::new(),
            no_room: BTreeSet::new(),
            grew_ms: 0,
            given_up: false,
            preempted_by: None,
            conditions: Vec::new(),
        }
    }

    /// Resets its state: the next object of its name is another group. The pods that name it stay.
    pub(super) fn reset(&mut self) {
        let new = Self::new(self.object.clone(), &self.group, &self.replica);
        let (members, sent) = (std::mem::take(&mut self.members), self.sent.take());
        *self = Self { members, sent, was_ours: self.was_ours, grew_ms: self.grew_ms, ..new };
    }
}
