//! One group, or one replica of a group: its members, what the engine knows of it, and its conditions.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_api::wire::condition::Condition;
use muster_engine::Diagnosis;
use muster_engine::model::group::{GroupSpec, RecordedStart};

use super::group_index::ObjectKey;
use crate::dialect::{GroupError, MadeFor};

/// One group, or one replica of a group. It exists while pods name it, or while its object, if that is the group
/// itself, exists.
#[derive(Clone, Debug)]
pub(crate) struct Instance {
    /// The object that defines it, or would.
    pub(crate) object: ObjectKey,
    /// The owner that the object was made for when it was last seen.
    pub(crate) made_for: Option<MadeFor>,
    /// The group inside the object; empty if the object is the group.
    pub(crate) group: String,
    /// The replica.
    pub(crate) replica: String,
    /// The UIDs of the pods that name it.
    pub(crate) members: BTreeSet<Arc<str>>,
    /// Whether a pod of ours has ever named it.
    pub(crate) was_ours: bool,
    /// Whether Muster evicts it as a whole, or did and its conditions still show that.
    pub(crate) was_evicted: bool,
    /// The last spec that the engine observed; `None` if there was none, or the group is gone.
    pub(crate) sent: Option<GroupSpec>,
    /// Its start according to the API when the engine first observed it.
    pub(crate) recorded: Option<RecordedStart>,
    /// Why its object cannot be used, if it exists.
    pub(crate) error: Option<GroupError>,
    /// The last diagnosis of the engine.
    pub(crate) last_diagnosis: Option<Diagnosis>,
    /// When a member last became pending.
    pub(crate) grew_ms: u64,
    /// Our conditions of it as they should be.
    pub(crate) conditions: Vec<Condition>,
}

impl Instance {
    pub(super) fn new(object: ObjectKey, group: &str, replica: &str) -> Self {
        Self {
            object,
            made_for: None,
            group: group.to_owned(),
            replica: replica.to_owned(),
            members: BTreeSet::new(),
            was_ours: false,
            was_evicted: false,
            sent: None,
            recorded: None,
            error: None,
            last_diagnosis: None,
            grew_ms: 0,
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
