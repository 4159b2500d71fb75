//! The status of groups, in the form from which every dialect writes its own.

use muster_api::wire::condition::Condition;
use muster_engine::status::Counts;

/// The status of one group or replica.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct InstanceStatus {
    /// The group inside its object; empty if the object is the group.
    pub(crate) group: String,
    /// The replica.
    pub(crate) replica: String,
    /// Its minimum.
    pub(crate) minimum: u32,
    /// The name of its policy.
    pub(crate) policy: &'static str,
    /// All members.
    pub(crate) counts: Counts,
    /// Members by subset, in the order of the object; one without a name if it has no subsets.
    pub(crate) subsets: Vec<(String, Counts)>,
    /// Its conditions, with our own type names.
    pub(crate) conditions: Vec<Condition>,
}

/// The status of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ObjectStatus {
    /// The observed generation.
    pub(crate) observed_generation: i64,
    /// The conditions of the object as a whole.
    pub(crate) conditions: Vec<Condition>,
    /// The groups and replicas, in the order of their names.
    pub(crate) instances: Vec<InstanceStatus>,
}
