//! The conditions of a JobSet, and what is said when one of them changes.
//!
//! Invariant: there is one of each type; one that was never true is not written as false. It must not know the API.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_api::wire::condition::Condition;

use super::written::JobSetStatus;
use crate::recorder::Tone;

/// Words about the set, for its events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Saying {
    pub(super) tone: Tone,
    pub(super) reason: String,
    pub(super) message: String,
}

/// A status that is being written, with what is to be said once it stands.
#[derive(Debug)]
pub(super) struct Draft {
    pub(super) status: JobSetStatus,
    pub(super) sayings: Vec<Saying>,
    now: Timestamp,
}

impl Draft {
    pub(super) fn new(status: JobSetStatus, now: Timestamp) -> Self {
        // Conditions carry whole seconds.
        Self { status, sayings: Vec::new(), now: Timestamp::from_second(now.as_second()).unwrap_or(now) }
    }

    pub(super) fn say(&mut self, tone: Tone, reason: &str, message: &str) {
        self.sayings.push(Saying { tone, reason: reason.to_owned(), message: message.to_owned() });
    }

    /// Sets a condition, and says so if that changes anything.
    pub(super) fn set(&mut self, kind: &str, is: bool, tone: Tone, reason: &str, message: &str) {
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
        let mut changed = self.exclude(kind, is);
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
            self.say(tone, reason, message);
        }
    }

    /// A start in order is either under way or complete.
    fn exclude(&mut self, kind: &str, is: bool) -> bool {
        let other = match kind {
            "StartupPolicyInProgress" => "StartupPolicyCompleted",
            "StartupPolicyCompleted" => "StartupPolicyInProgress",
            _ => return false,
        };
        let standing = self.status.conditions.iter_mut().find(|one| one.kind == other && one.is_true() && is);
        standing.map(|one| "False".clone_into(&mut one.status)).is_some()
    }

    /// The set has failed.
    pub(super) fn fail(&mut self, reason: &str, message: &str) {
        self.set("Failed", true, Tone::Warning, reason, message);
        self.set("RestartingJobSet", false, Tone::Normal, "JobSetFailed", "jobset failed");
        "Failed".clone_into(&mut self.status.terminal_state);
    }

    /// The set has all it wanted.
    pub(super) fn complete(&mut self) {
        let message = "jobset completed successfully";
        self.set("Completed", true, Tone::Normal, "AllJobsCompleted", message);
        self.set("RestartingJobSet", false, Tone::Normal, "JobSetCompleted", message);
        "Completed".clone_into(&mut self.status.terminal_state);
    }

    pub(super) fn suspend(&mut self) {
        let message = "jobset is suspended";
        self.set("Suspended", true, Tone::Normal, "SuspendedJobs", message);
        self.set("RestartingJobSet", false, Tone::Normal, "JobSetSuspended", message);
    }

    pub(super) fn resume(&mut self) {
        self.set("Suspended", false, Tone::Normal, "ResumeJobs", "jobset is resumed");
    }

    pub(super) fn ready(&mut self) {
        self.set("RestartingJobSet", false, Tone::Normal, "JobsReady", "all jobs are ready");
    }

    pub(super) fn start_in_order(&mut self, is_complete: bool) {
        let (kind, reason, message) = if is_complete {
            ("StartupPolicyCompleted", "InOrderStartupPolicyCompleted", "in order startup policy has completed")
        } else {
            ("StartupPolicyInProgress", "InOrderStartupPolicyInProgress", "in order startup policy is in progress")
        };
        self.set(kind, true, Tone::Normal, reason, message);
    }
}

/// When the set ended, if it has.
pub(super) fn ended_at(status: &JobSetStatus) -> Option<Timestamp> {
    let mut ends = status.conditions.iter().filter(|one| ["Completed", "Failed"].contains(&one.kind.as_str()));
    let end = ends.find(|one| one.is_true())?;
    Some(end.last_transition_time.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0))
}
