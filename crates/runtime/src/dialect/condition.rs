//! The conditions of groups: which we write, how one follows another, and what they remember.
//!
//! Invariant: the time of a transition changes only with the status. What others wrote stays.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_api::keys::conditions::{
    COMPLETED, DEGRADED, DISRUPTION_TARGET, POD_GROUP_SCHEDULED, PODS_NOT_MATCHING_PRIORITY, STARTED,
};
use muster_api::wire::condition::Condition;

use crate::text::cut;

/// The most characters of a condition's message.
const MESSAGE_CHARS_MAX: usize = 8_000;
/// The start of the reason that remembers for which minimum a group started.
const WITH_MINIMUM: &str = "WithMinimum";

/// What an object's status shows now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Shown {
    /// The generation that was looked at.
    pub(crate) observed_generation: i64,
    /// The conditions of the object.
    pub(crate) conditions: Vec<Condition>,
    /// What it shows of each group and replica.
    pub(crate) instances: BTreeMap<(String, String), ShownInstance>,
    /// Whether it has more groups than it shows, or has no room for any.
    pub(crate) is_cut_off: bool,
    /// Whether somebody else says that the group has started: for which minimum is not known.
    pub(crate) may_have_started: bool,
    /// The word for how it fares, where its kind has one.
    pub(crate) phase: String,
    /// Conditions that are not ours, where a write has to repeat them in another form than ours.
    pub(crate) others: Vec<serde_json::Value>,
    /// What it shows may have been written by others as well as by us.
    pub(crate) may_be_of_others: bool,
    /// The whole of the status that is ours, to see whether a write would change anything.
    pub(crate) text: String,
}

/// What a status shows of one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ShownInstance {
    /// Its conditions, by our own names.
    pub(crate) conditions: Vec<Condition>,
}

/// A list of conditions that is brought up to date.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Conditions {
    list: Vec<Condition>,
    now: Timestamp,
    generation: i64,
}

impl Conditions {
    /// Starts from what is shown.
    pub(crate) fn from(shown: &[Condition], now: Timestamp, generation: i64) -> Self {
        Self { list: shown.to_vec(), now, generation }
    }

    /// The conditions as they are to be.
    pub(crate) fn into_list(self) -> Vec<Condition> {
        self.list
    }

    /// The condition of a type.
    pub(crate) fn get(&self, kind: &str) -> Option<&Condition> {
        Condition::find(&self.list, kind)
    }

    /// Whether a condition is there and true.
    pub(crate) fn is_true(&self, kind: &str) -> bool {
        self.get(kind).is_some_and(Condition::is_true)
    }

    /// Says something. Nothing changes if it is said already.
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

    /// Says that something no longer holds, if it was ever said.
    pub(crate) fn unset(&mut self, kind: &str, reason: &str, message: &str) {
        if self.is_true(kind) {
            self.set(kind, false, reason, message);
        }
    }

    /// Remembers that the group has started with this minimum.
    pub(crate) fn set_started(&mut self, minimum: u32) {
        let reason = format!("{WITH_MINIMUM}{minimum}");
        self.set(STARTED, true, &reason, "The group has had its minimum.");
    }
}

/// The condition that a group has which started with this minimum, as far as another field shows it.
pub(crate) fn started(minimum: u32, since: Time) -> Condition {
    Condition {
        kind: STARTED.to_owned(),
        status: "True".to_owned(),
        reason: format!("{WITH_MINIMUM}{minimum}"),
        last_transition_time: Some(since),
        ..Condition::default()
    }
}

/// Whether a condition of this type on a group is for us to write.
pub(crate) fn is_ours(kind: &str) -> bool {
    [POD_GROUP_SCHEDULED, STARTED, DEGRADED, COMPLETED, PODS_NOT_MATCHING_PRIORITY, DISRUPTION_TARGET].contains(&kind)
}

/// The minimum with which the group has started, if it is remembered.
pub(crate) fn started_minimum(conditions: &[Condition]) -> Option<u32> {
    let started = Condition::find(conditions, STARTED).filter(|one| one.is_true())?;
    started.reason.strip_prefix(WITH_MINIMUM)?.parse().ok()
}

/// A status as text, to see whether another one differs.
pub(crate) fn text_of(status: &impl serde::Serialize) -> String {
    serde_json::to_string(status).unwrap_or_default()
}

/// Times in conditions have whole seconds.
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
    fn a_transition_is_a_change_of_the_status_only() {
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

    #[test]
    fn the_minimum_of_a_start_is_remembered() {
        let mut conditions = Conditions::from(&[], at(1), 1);
        conditions.set_started(3);
        assert_eq!(started_minimum(&conditions.clone().into_list()), Some(3));
        conditions.unset(STARTED, "NothingLeft", "");
        assert_eq!(started_minimum(&conditions.clone().into_list()), None);
        assert!(!conditions.is_true(STARTED) && conditions.get(STARTED).is_some());
    }
}
