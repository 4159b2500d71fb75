//! How groups fare, in the one form that every dialect prints its status from.

use muster_api::wire::condition::Condition;

/// How many members stand where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// All that exist.
    pub(crate) total: i64,
    /// On a node, or finished well: what counts towards the minimum.
    pub(crate) scheduled: i64,
    /// Wait, and would fit if the group did.
    pub(crate) would_fit: i64,
    /// Wait, and have no room.
    pub(crate) no_room: i64,
    /// Running.
    pub(crate) running: i64,
    /// Finished well.
    pub(crate) succeeded: i64,
    /// Finished badly.
    pub(crate) failed: i64,
}

/// What is to be shown of one group or replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InstanceStatus {
    /// The group inside its object; empty if the object is the group.
    pub(crate) group: String,
    /// The replica.
    pub(crate) replica: String,
    /// Its minimum.
    pub(crate) minimum: u32,
    /// The word for its policy.
    pub(crate) policy: &'static str,
    /// All members.
    pub(crate) counts: Counts,
    /// Members by subset, in the order of the object; one without a name if it has no subsets.
    pub(crate) subsets: Vec<(String, Counts)>,
    /// Its conditions, by our own names.
    pub(crate) conditions: Vec<Condition>,
}

/// What is to be shown of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectStatus {
    /// The generation that was looked at.
    pub(crate) observed_generation: i64,
    /// The conditions of the object as a whole.
    pub(crate) conditions: Vec<Condition>,
    /// The groups and replicas, in the order of their names.
    pub(crate) instances: Vec<InstanceStatus>,
}
