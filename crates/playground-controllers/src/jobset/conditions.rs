//! The conditions of a JobSet, and the events recorded when one of them changes.
//!
//! Invariant: there is one condition of each type; one that was never true is not written as false. Must not depend on
//! the API.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_api::wire::condition::Condition;

use super::object::JobSetStatus;
use crate::recorder::EventType;

/// An event about the set, to be recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PendingEvent {
    pub(super) event_type: EventType,
    pub(super) reason: String,
    pub(super) message: String,
}

/// A status update, with the events to record once it is written.
#[derive(Debug)]
pub(super) struct StatusUpdate {
    pub(super) status: JobSetStatus,
    pub(super) events: Vec<PendingEvent>,
    now: Timestamp,
}

impl StatusUpdate {
    pub(super) fn new(status: JobSetStatus, now: Timestamp) -> Self {
        // Conditions have whole seconds.
        Self { status, events: Vec::new(), now: Timestamp::from_second(now.as_second()).unwrap_or(now) }
    }

    pub(super) fn add_event(&mut self, event_type: EventType, reason: &str, message: &str) {
        self.events.push(PendingEvent { event_type, reason: reason.to_owned(), message: message.to_owned() });
    }

    /// Sets a condition, and adds an event if that changes anything.
    pub(super) fn set(&mut self, kind: &str, is: bool, event_type: EventType, reason: &str, message: &str) {
        let status = if is { "True" } else { "False" };
        let time = Some(Time(self.now));
        let mut new = Condition {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message: message.to_owned(),
            last_transition_time: time,
            ..Condition::default()
        };
        let mut changed = self.clear_opposite(kind, is);
        match self.status.conditions.iter_mut().find(|one| one.kind == kind) {
            Some(old) if old.status == status && old.reason == reason && old.message == message => {}
            Some(old) => {
                if old.status == status {
                    new.last_transition_time.clone_from(&old.last_transition_time);
                }
                *old = new;
                changed = true;
            }
            None if is => {
                self.status.conditions.push(new);
                changed = true;
            }
            None => {}
        }
        if changed {
            self.add_event(event_type, reason, message);
        }
    }

    /// Only one of the two startup conditions can be true: clears the other.
    fn clear_opposite(&mut self, kind: &str, is: bool) -> bool {
        let other = match kind {
            "StartupPolicyInProgress" => "StartupPolicyCompleted",
            "StartupPolicyCompleted" => "StartupPolicyInProgress",
            _ => return false,
        };
        let opposite = self.status.conditions.iter_mut().find(|one| one.kind == other && one.is_true() && is);
        opposite.map(|one| "False".clone_into(&mut one.status)).is_some()
    }

    /// The set has failed.
    pub(super) fn fail(&mut self, reason: &str, message: &str) {
        self.set("Failed", true, EventType::Warning, reason, message);
        self.set("RestartingJobSet", false, EventType::Normal, "JobSetFailed", "jobset failed");
        "Failed".clone_into(&mut self.status.terminal_state);
    }

    /// The set has completed.
    pub(super) fn complete(&mut self) {
        let message = "jobset completed successfully";
        self.set("Completed", true, EventType::Normal, "AllJobsCompleted", message);
        self.set("RestartingJobSet", false, EventType::Normal, "JobSetCompleted", message);
        "Completed".clone_into(&mut self.status.terminal_state);
    }

    pub(super) fn suspend(&mut self) {
        let message = "jobset is suspended";
        self.set("Suspended", true, EventType::Normal, "SuspendedJobs", message);
        self.set("RestartingJobSet", false, EventType::Normal, "JobSetSuspended", message);
    }

    pub(super) fn resume(&mut self) {
        self.set("Suspended", false, EventType::Normal, "ResumeJobs", "jobset is resumed");
    }

    pub(super) fn ready(&mut self) {
        self.set("RestartingJobSet", false, EventType::Normal, "JobsReady", "all jobs are ready");
    }

    pub(super) fn start_in_order(&mut self, is_complete: bool) {
        let (kind, reason, message) = if is_complete {
            ("StartupPolicyCompleted", "InOrderStartupPolicyCompleted", "in order startup policy has completed")
        } else {
            ("StartupPolicyInProgress", "InOrderStartupPolicyInProgress", "in order startup policy is in progress")
        };
        self.set(kind, true, EventType::Normal, reason, message);
    }
}

/// When the set finished, if it has.
pub(super) fn finished_at(status: &JobSetStatus) -> Option<Timestamp> {
    let mut ends = status.conditions.iter().filter(|one| ["Completed", "Failed"].contains(&one.kind.as_str()));
    let end = ends.find(|one| one.is_true())?;
    Some(end.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}
