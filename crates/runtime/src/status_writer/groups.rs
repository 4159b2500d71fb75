//! Which group objects have to be written, when, and by which scheduler.
//!
//! A changed condition is written soon, counters alone at most once a second, and only what differs from the object's
//! current status.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use kube::core::ApiResource;
use muster_api::keys::GROUP;
use muster_api::keys::conditions::DISRUPTION_TARGET;
use muster_api::wire::condition::Condition;

use super::backoff::backoff_ms;
use super::work_queue::WorkQueue;
use crate::actuator::WriteOutcome;
use crate::dialect::{GroupObject, ObjectStatus, StatusPatch};
use crate::intake::Intake;
use crate::intake::group_index::ObjectKey;
use crate::intake::instance::Instance;

/// How long changes are batched before they are written.
const BATCH_MS: u64 = 100;
/// The minimum interval between two writes of conditions, should they flap.
const CONDITIONS_MS: u64 = 300;
/// The minimum interval between two writes of counters.
const COUNTERS_MS: u64 = 1_000;
/// The longest delay of a status that another writer keeps overwriting.
const OVERWRITTEN_MS_MAX: u64 = 300_000;
/// Which objects have to be written, and when.
#[derive(Debug, Default)]
pub(crate) struct GroupStatusQueue {
    work_queue: WorkQueue<ObjectKey>,
    /// Writes in flight, and whether the object has changed since.
    in_flight: BTreeMap<ObjectKey, bool>,
    written_ms: BTreeMap<ObjectKey, u64>,
    /// Consecutive failures, and the earliest time of the next attempt.
    failures: BTreeMap<ObjectKey, (u32, u64)>,
    /// The last status written.
    last_written: BTreeMap<ObjectKey, WrittenStatus>,
}

/// The last status written. Having to write it again means that another writer overwrote it.
#[derive(Debug, Default)]
struct WrittenStatus {
    digest: u64,
    /// The server has accepted it.
    accepted: bool,
    overwritten: u32,
}

impl GroupStatusQueue {
    /// An object has to be written: its conditions, or only its counters.
    pub(crate) fn touch(&mut self, key: &ObjectKey, conditions: bool, now_ms: u64) {
        let interval_ms = if conditions { CONDITIONS_MS } else { COUNTERS_MS };
        let due_ms = (now_ms + BATCH_MS).max(self.written_ms.get(key).map_or(0, |written_ms| written_ms + interval_ms));
        let not_before = self.failures.get(key).map_or(0, |(_, not_before)| *not_before);
        self.work_queue.put(key, due_ms.max(not_before));
    }

    /// Checks the object again at this time, if that is in the future.
    pub(crate) fn check_again(&mut self, key: &ObjectKey, at_ms: u64, now_ms: u64) {
        if at_ms > now_ms {
            self.work_queue.put(key, at_ms);
        }
    }

    /// The time at which the next object is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.work_queue.next_due()
    }

    /// The objects that are due.
    pub(crate) fn take_due(&mut self, now_ms: u64) -> Vec<ObjectKey> {
        let mut keys = Vec::new();
        while let Some(key) = self.work_queue.pop_due(now_ms) {
            match self.in_flight.get_mut(&key) {
                // It is queued again when the write in flight ends.
                Some(more) => *more = true,
                None => keys.push(key),
            }
        }
        keys
    }

    /// Whether this status may be written now. A status that another writer keeps overwriting is written less and less
    /// often, so that two writers that disagree do not keep each other busy.
    pub(crate) fn may_repeat(&mut self, key: &ObjectKey, patch: &StatusPatch, now_ms: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        patch.body()["status"].to_string().hash(&mut hasher);
        let digest = hasher.finish();
        let last_written = self.last_written.entry(key.clone()).or_default();
        if last_written.digest != digest {
            *last_written = WrittenStatus { digest, ..WrittenStatus::default() };
            return true;
        }
        if !last_written.accepted {
            return true;
        }
        let written_ms = self.written_ms.get(key).copied().unwrap_or(0);
        let not_before =
            written_ms + COUNTERS_MS.saturating_mul(1 << last_written.overwritten.min(16)).min(OVERWRITTEN_MS_MAX);
        if now_ms < not_before {
            self.work_queue.put(key, not_before);
            return false;
        }
        last_written.overwritten += 1;
        last_written.accepted = false;
        true
    }

    /// A write is in flight.
    pub(crate) fn sent(&mut self, key: &ObjectKey, now_ms: u64) {
        self.in_flight.insert(key.clone(), false);
        self.written_ms.insert(key.clone(), now_ms);
    }

    /// A write has ended.
    pub(crate) fn done(&mut self, key: &ObjectKey, outcome: &WriteOutcome, now_ms: u64) {
        let more = self.in_flight.remove(key).unwrap_or(false);
        match outcome {
            WriteOutcome::Written(_) => {
                self.failures.remove(key);
                if let Some(last_written) = self.last_written.get_mut(key) {
                    last_written.accepted = true;
                }
                if more {
                    self.work_queue.put(key, now_ms);
                }
            }
            WriteOutcome::Gone => self.forget(key),
            WriteOutcome::Conflict | WriteOutcome::Later { .. } | WriteOutcome::Refused(_) => {
                let (failures, not_before) = self.failures.entry(key.clone()).or_insert((0, 0));
                *failures += 1;
                *not_before = now_ms + backoff_ms(*failures).max(outcome.retry_after_ms());
                self.work_queue.remove(key);
                self.work_queue.put(key, *not_before);
            }
        }
    }

    /// The object is gone.
    pub(crate) fn forget(&mut self, key: &ObjectKey) {
        self.work_queue.remove(key);
        self.written_ms.remove(key);
        self.failures.remove(key);
        self.last_written.remove(key);
    }
}

/// Whether the status of a group is left to another scheduler: the group belongs to it, Muster evicts none of its pods,
/// and it shows no condition of ours that would have to be kept up to date.
pub(crate) fn is_left_to_other_scheduler(intake: &Intake, key: &ObjectKey, resource: &ApiResource) -> bool {
    let shows =
        |object: &GroupObject| object.current_status.instances.values().any(|shown| !shown.conditions.is_empty());
    let is_reported = |object: &GroupObject| !object.current_status.may_be_written_by_others && shows(object);
    belongs_to_other_scheduler(intake, key, resource)
        && (resource.group == GROUP || !intake.groups.object(key).is_some_and(is_reported))
        && !instances(intake, key).any(|instance| instance.was_evicted)
}

/// Whether a group belongs to another scheduler: that scheduler reads its kind too, no pod of ours ever named it, and
/// it shows none of our conditions from when one did. For our own kinds these are the groups that only pods of others
/// name: another instance of Muster may write their status, and two writers would overwrite each other forever.
pub(crate) fn belongs_to_other_scheduler(intake: &Intake, key: &ObjectKey, resource: &ApiResource) -> bool {
    if resource.group == GROUP {
        let concerns_us = |instance: &Instance| instance.was_ours || instance.was_evicted;
        return instances(intake, key).any(|instance| !instance.members.is_empty())
            && !instances(intake, key).any(concerns_us);
    }
    let is_not_disruption = |one: &Condition| one.kind != DISRUPTION_TARGET;
    let shows = |object: &GroupObject| {
        object.current_status.instances.values().flat_map(|shown| &shown.conditions).any(is_not_disruption)
    };
    let is_reported = |object: &GroupObject| !object.current_status.may_be_written_by_others && shows(object);
    !intake.groups.object(key).is_some_and(is_reported) && !instances(intake, key).any(|instance| instance.was_ours)
}

fn instances<'i>(intake: &'i Intake, key: &ObjectKey) -> impl Iterator<Item = &'i Instance> {
    intake.groups.instances_of(key).filter_map(|group| intake.groups.instance(group))
}

/// Keeps only the `DisruptionTarget` condition: the rest is written by the group's own scheduler.
pub(crate) fn retain_disruption_target(status: &mut ObjectStatus) {
    for instance in &mut status.instances {
        instance.conditions.retain(|one| one.kind == DISRUPTION_TARGET);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_status_that_is_always_overwritten_is_written_less_and_less_often() {
        let key = ObjectKey { dialect: 0, namespace: "ml".to_owned(), name: "g".to_owned() };
        let patch = |phase: &str| StatusPatch::Merge(json!({"status": {"phase": phase}}));
        let (mut queue, mut writes) = (GroupStatusQueue::default(), Vec::new());
        // Another writer changes the phase as soon as ours is there.
        for now_ms in (0..600_000).step_by(100) {
            if queue.may_repeat(&key, &patch("Pending"), now_ms) {
                queue.sent(&key, now_ms);
                queue.done(&key, &WriteOutcome::Written(None), now_ms);
                writes.push(now_ms);
            }
        }
        assert_eq!(writes[..4], [0, 1_000, 3_000, 7_000]);
        assert!(writes.len() < 12, "{writes:?}");
        // A new status is written at once, and so is one that failed.
        assert!(queue.may_repeat(&key, &patch("Running"), 600_000));
        queue.sent(&key, 600_000);
        queue.done(&key, &WriteOutcome::Conflict, 600_000);
        assert!(queue.may_repeat(&key, &patch("Running"), 600_200));
    }
}
