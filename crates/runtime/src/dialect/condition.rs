//! The conditions of groups: which ones Muster writes, and how they change.
//!
//! Invariant: the transition time changes only with the status. Conditions of other writers stay.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_api::keys::conditions::{
    COMPLETED, DEGRADED, DISRUPTION_TARGET, POD_GROUP_SCHEDULED, PODS_NOT_MATCHING_PRIORITY, PRIORITY_RESOLVED,
    STARTED, UNUSABLE,
};
use muster_api::wire::condition::Condition;

use crate::text::cut;

/// The maximum length of a condition's message, in characters.
const MESSAGE_CHARS_MAX: usize = 8_000;

/// The current status of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CurrentStatus {
    /// The observed generation.
    pub(crate) observed_generation: i64,
    /// The conditions of the object.
    pub(crate) conditions: Vec<Condition>,
    /// The status of each group and replica.
    pub(crate) instances: BTreeMap<(String, String), CurrentInstance>,
    /// Whether it has more groups than the status shows, or the status has no field for them.
    pub(crate) is_truncated: bool,
    /// Whether another scheduler's condition shows that the group has started; the minimum is not known.
    pub(crate) may_have_started: bool,
    /// The phase, where its kind has one.
    pub(crate) phase: String,
    /// Conditions of other writers, where a write has to repeat them in another form than ours.
    pub(crate) others: Vec<serde_json::Value>,
    /// Whether the status may have been written by others as well as by Muster.
    pub(crate) may_be_written_by_others: bool,
    /// The part of the status that Muster writes, as text, to detect whether a write would change anything.
    pub(crate) text: String,
}

/// The status of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CurrentInstance {
    /// Its conditions, with our own type names.
    pub(crate) conditions: Vec<Condition>,
}

/// A list of conditions that is being updated.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conditions {
    list: Vec<Condition>,
    now: Timestamp,
    generation: i64,
}

impl Conditions {
    /// Starts from the current conditions.
    pub(crate) fn from(shown: &[Condition], now: Timestamp, generation: i64) -> Self {
        Self { list: shown.to_vec(), now, generation }
    }

    /// The updated conditions.
    pub(crate) fn into_list(self) -> Vec<Condition> {
        self.list
    }

    /// The condition of a type.
    pub(crate) fn get(&self, kind: &str) -> Option<&Condition> {
        Condition::find(&self.list, kind)
    }

    /// Whether a condition exists and is true.
    pub(crate) fn is_true(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(Condition::is_true)
    }

    /// Sets a condition. An equal condition stays as it is.
    pub(crate) fn set(&mut self, kind: &str, holds: bool, reason: &str, message: &str) {
        let status = if holds { "True" } else { "False" };
        let message = cut(message, MESSAGE_CHARS_MAX);
        let time = Time(whole_seconds(self.now));
        let new = |transition: Option<Time>| Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            observed_generation: self.generation,
            last_transition_time: transition,
            last_update_time: Some(time.clone()),
            reason: reason.to_owned(),
            message: message.clone(),
        };
        match self.list.iter_mut().find(|one| one.kind == kind) {
            Some(old) if old.status == status && old.reason == reason && old.message == message => {
                if old.observed_generation != self.generation {
                    old.observed_generation = self.generation;
                }
            }
            Some(old) => {
                let transition = if old.status == status { old.last_transition_time.clone() } else { None };
                *old = new(transition.or_else(|| Some(time.clone())));
            }
            None => {
                let condition = new(Some(time.clone()));
                self.list.push(condition);
            }
        }
    }

    /// Sets a condition to false, if it is true.
    pub(crate) fn unset(&mut self, kind: &str, reason: &str, message: &str) {
        if self.is_true(kind) {
            self.set(kind, false, reason, message);
        }
    }
}

/// Whether Muster writes conditions of this type on groups.
pub(crate) fn is_ours(kind: &str) -> bool {
    [
        POD_GROUP_SCHEDULED,
        STARTED,
        DEGRADED,
        COMPLETED,
        PODS_NOT_MATCHING_PRIORITY,
        PRIORITY_RESOLVED,
        UNUSABLE,
        DISRUPTION_TARGET,
    ]
    .contains(&kind)
}

/// A status as text, for comparison.
pub(crate) fn text_of(status: &impl serde::Serialize) -> String {
    serde_json::to_string(status).unwrap_or_default()
}

/// Condition times have whole seconds.
fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn the_transition_time_changes_only_with_the_status() {
        let mut conditions = Conditions::from(&[], at(10), 1);
        conditions.set("PodGroupScheduled", false, "WaitingForMembers", "1 of 2");
        let first = conditions.into_list();
        let mut conditions = Conditions::from(&first, at(20), 1);
        conditions.set("PodGroupScheduled", false, "WaitingForMembers", "1 of 2");
        assert_eq!(conditions.clone().into_list(), first);
        conditions.set("PodGroupScheduled", false, "Unschedulable", "no room");
        let second = conditions.into_list();
        assert_eq!(second[0].last_transition_time, first[0].last_transition_time);
        assert_eq!(second[0].last_update_time, Some(Time(at(20))));
        let mut conditions = Conditions::from(&second, at(30), 2);
        conditions.set("PodGroupScheduled", true, "Scheduled", "");
        assert_eq!(conditions.into_list()[0].last_transition_time, Some(Time(at(30))));
    }
}
