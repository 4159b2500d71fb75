//! The `PodScheduled` condition and the nomination of pods, written in one patch.
//!
//! A new reason is written at once. A new message with the same reason is written only now and then, since the messages
//! of a large group change with everything that happens in the cluster. What the API already shows is not written.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::keys::conditions::POD_SCHEDULED;
use muster_api::keys::pod_reasons::WAITING_FOR_VICTIMS;
use muster_engine::model::pod::PodName;
use serde_json::{Value, json};

use super::backoff::backoff_ms;
use super::work_queue::WorkQueue;
use crate::actuator::{ApiRequest, WriteOutcome};
use crate::intake::Intake;
use crate::intake::pod_record::{ConditionText, PodRecord};
use crate::text::first_sentence;

/// How long a message stays before another message with the same reason replaces it.
const SAME_REASON_MS: u64 = 30_000;
/// With very many pending pods the interval is longer: this much per pod.
const SAME_REASON_MS_PER_POD: u64 = 20;

/// The conditions and nominations that have to be written.
#[derive(Debug, Default)]
pub(crate) struct PodStatusQueue {
    statuses: BTreeMap<Arc<str>, PendingStatus>,
    work_queue: WorkQueue<Arc<str>>,
}

#[derive(Debug)]
struct PendingStatus {
    pod: Arc<PodName>,
    wanted: Option<ConditionText>,
    /// The new nomination, if it has to change.
    nomination: Option<Nomination>,
    written: Option<ConditionText>,
    written_ms: u64,
    /// The condition in flight.
    sent: Option<ConditionText>,
    /// The nomination in flight.
    sent_nomination: Option<Nomination>,
    in_flight: bool,
    failures: u32,
}

/// The new nomination of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nomination {
    /// This node.
    Node(Arc<str>),
    /// None.
    Cleared,
}

impl PodStatusQueue {
    /// Sets the pod's condition. Returns whether the reason is new, or is about other victims than before.
    pub(crate) fn set_condition(
        &mut self,
        pod: &Arc<PodName>,
        condition: ConditionText,
        shown: Option<&ConditionText>,
        now_ms: u64,
    ) -> bool {
        let entry = self.entry(pod, shown);
        let new_reason = entry.wanted.as_ref().or(entry.written.as_ref()).is_none_or(|old| !is_same(old, &condition));
        let written_reason = entry.written.as_ref().is_some_and(|old| is_same(old, &condition));
        entry.wanted = Some(condition);
        let written_ms = entry.written_ms;
        let stands_ms = SAME_REASON_MS.max(self.statuses.len() as u64 * SAME_REASON_MS_PER_POD);
        let due_ms = if written_reason { now_ms.max(written_ms + stands_ms) } else { now_ms };
        self.set_due(&pod.uid, due_ms);
        new_reason
    }

    /// Whether the pod has a condition, or will get one.
    pub(crate) fn has_condition_for(&self, uid: &str) -> bool {
        self.statuses.get(uid).is_some_and(|entry| entry.wanted.is_some())
    }

    /// Sets the pod's nomination.
    pub(crate) fn nominate(&mut self, pod: &Arc<PodName>, to: Nomination, shown: Option<&ConditionText>, now_ms: u64) {
        self.entry(pod, shown).nomination = Some(to);
        self.set_due(&pod.uid, now_ms);
    }

    /// Drops a nomination that was not sent yet.
    pub(crate) fn forget_nomination(&mut self, uid: &str) {
        if let Some(entry) = self.statuses.get_mut(uid) {
            entry.nomination = None;
        }
    }

    /// Whether a nomination of the pod is waiting or in flight.
    pub(crate) fn is_nominating(&self, uid: &str) -> bool {
        self.statuses.get(uid).is_some_and(|entry| entry.nomination.is_some() || entry.sent_nomination.is_some())
    }

    /// Drops everything that was to be written for the pod.
    pub(crate) fn forget(&mut self, uid: &str) {
        if let Some((key, _)) = self.statuses.remove_entry(uid) {
            self.work_queue.remove(&key);
        }
    }

    /// The time at which the next pod is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.work_queue.next_due()
    }

    /// The requests that are due, limited by the free slots.
    pub(crate) fn take_due(&mut self, now_ms: u64, now: Timestamp, room: usize, intake: &Intake) -> Vec<ApiRequest> {
        let mut requests = Vec::new();
        while requests.len() < room
            && let Some(uid) = self.work_queue.pop_due(now_ms)
        {
            let Some(entry) = self.statuses.get_mut(&uid) else { continue };
            if entry.in_flight {
                // It is queued again when the write in flight ends.
                continue;
            }
            let Some(record) = intake.pod_record(&uid) else { continue };
            let condition =
                entry.wanted.clone().filter(|wanted| entry.written.as_ref() != Some(wanted) && record.is_pending());
            if condition.is_none() && entry.nomination.is_none() {
                continue;
            }
            entry.in_flight = true;
            entry.sent_nomination = entry.nomination.take();
            let patch = patch(record, condition.as_ref(), entry.sent_nomination.as_ref(), now);
            entry.sent = condition;
            requests.push(ApiRequest::PodStatus { pod: entry.pod.clone(), patch });
        }
        requests
    }

    /// A write has ended.
    pub(crate) fn done(&mut self, pod: &Arc<PodName>, outcome: &WriteOutcome, now_ms: u64) {
        let Some(entry) = self.statuses.get_mut(pod.uid.as_str()) else { return };
        entry.in_flight = false;
        match outcome {
            WriteOutcome::Written(_) => {
                entry.failures = 0;
                entry.sent_nomination = None;
                if let Some(sent) = entry.sent.take() {
                    entry.written = Some(sent);
                    entry.written_ms = now_ms;
                }
                // The condition may have changed since.
                let more = entry.nomination.is_some();
                if let Some(wanted) = entry.wanted.clone().filter(|wanted| entry.written.as_ref() != Some(wanted)) {
                    self.set_condition(pod, wanted, None, now_ms);
                }
                if more {
                    self.set_due(&pod.uid, now_ms);
                }
            }
            WriteOutcome::Gone => self.forget(&pod.uid),
            WriteOutcome::Conflict | WriteOutcome::Later { .. } | WriteOutcome::Refused(_) => {
                entry.failures += 1;
                let sent = entry.sent_nomination.take();
                entry.nomination = entry.nomination.take().or(sent);
                let due_ms = now_ms + backoff_ms(entry.failures).max(outcome.retry_after_ms());
                self.set_due(&pod.uid, due_ms);
            }
        }
    }

    fn entry(&mut self, pod: &Arc<PodName>, shown: Option<&ConditionText>) -> &mut PendingStatus {
        self.statuses.entry(pod.uid.as_str().into()).or_insert_with(|| PendingStatus {
            pod: pod.clone(),
            wanted: None,
            nomination: None,
            written: shown.cloned(),
            written_ms: 0,
            sent: None,
            sent_nomination: None,
            in_flight: false,
            failures: 0,
        })
    }

    fn set_due(&mut self, uid: &str, due_ms: u64) {
        if let Some((key, _)) = self.statuses.get_key_value(uid) {
            self.work_queue.put(key, due_ms);
        }
    }
}

/// Whether both have the same reason and, for pods that wait for victims, the same victims.
fn is_same(old: &ConditionText, new: &ConditionText) -> bool {
    let victims = |text: &ConditionText| first_sentence(&text.message).to_owned();
    old.reason == new.reason && (new.reason != WAITING_FOR_VICTIMS || victims(old) == victims(new))
}

/// A patch that applies only to the pod as it was last seen: a condition about waiting must not be written to a pod
/// that has been bound since.
fn patch(
    record: &PodRecord,
    condition: Option<&ConditionText>,
    nomination: Option<&Nomination>,
    now: Timestamp,
) -> Value {
    let mut status = json!({});
    if let Some(condition) = condition {
        let mut condition = json!({
            "type": POD_SCHEDULED, "status": "False", "reason": condition.reason, "message": condition.message,
            "lastProbeTime": null,
        });
        // A new message with the same status is no transition.
        if record.condition.is_none() {
            condition["lastTransitionTime"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        status["conditions"] = json!([condition]);
    }
    match nomination {
        Some(Nomination::Node(node)) => status["nominatedNodeName"] = json!(&**node),
        Some(Nomination::Cleared) => status["nominatedNodeName"] = Value::Null,
        None => {}
    }
    json!({"metadata": {"uid": record.id.uid, "resourceVersion": record.version}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::FeatureGates;
    use crate::intake::WatchEvent;
    use crate::settings::Profile;
    use muster_api::owners::GangedOwners;
    use muster_reflector::Delta;

    fn pod() -> Arc<PodName> {
        Arc::new(PodName { namespace: "ml".into(), name: "a".into(), uid: "u".into() })
    }

    fn condition(reason: &str, message: &str) -> ConditionText {
        ConditionText { reason: reason.to_owned(), message: message.to_owned() }
    }

    fn intake(gates: &Value) -> Intake {
        let mut intake = Intake::new(
            vec![Profile::default()],
            Vec::new(),
            FeatureGates::default(),
            GangedOwners::default(),
            Vec::new(),
        );
        let pod = json!({
            "metadata": {"namespace": "ml", "name": "a", "uid": "u"},
            "spec": {"schedulerName": "muster", "schedulingGates": gates, "containers": []},
        });
        intake.handle(WatchEvent::Pod(Delta::Applied(serde_json::from_str(&pod.to_string()).unwrap())), 0);
        intake
    }

    fn due(statuses: &mut PodStatusQueue, now_ms: u64, intake: &Intake) -> Vec<Value> {
        let patches =
            statuses.take_due(now_ms, Timestamp::UNIX_EPOCH, 100, intake).into_iter().map(|request| match request {
                ApiRequest::PodStatus { patch, .. } => patch["status"].clone(),
                other => panic!("{other:?}"),
            });
        patches.collect()
    }

    #[test]
    fn a_new_reason_is_written_at_once_and_a_new_message_later() {
        let (mut statuses, intake, written) =
            (PodStatusQueue::default(), intake(&json!([])), WriteOutcome::Written(None));
        assert!(statuses.set_condition(&pod(), condition("WaitingForMembers", "1 of 3"), None, 1_000));
        assert_eq!(due(&mut statuses, 1_000, &intake).len(), 1);
        statuses.done(&pod(), &written, 1_000);
        assert!(!statuses.set_condition(&pod(), condition("WaitingForMembers", "2 of 3"), None, 2_000));
        assert!(due(&mut statuses, 2_000, &intake).is_empty());
        assert_eq!(statuses.next_due(), Some(31_000));
        assert!(statuses.set_condition(&pod(), condition("Unschedulable", "no room"), None, 3_000));
        assert_eq!(due(&mut statuses, 3_000, &intake)[0]["conditions"][0]["reason"], "Unschedulable");
    }

    #[test]
    fn a_condition_that_the_api_already_shows_is_not_written_again() {
        let (mut statuses, intake) = (PodStatusQueue::default(), intake(&json!([])));
        let shown = condition("Unschedulable", "no room");
        assert!(!statuses.set_condition(&pod(), shown.clone(), Some(&shown), 0));
        assert!(due(&mut statuses, 100_000, &intake).is_empty());
    }

    #[test]
    fn nomination_and_condition_are_written_in_one_patch() {
        let (mut statuses, intake) = (PodStatusQueue::default(), intake(&json!([])));
        statuses.nominate(&pod(), Nomination::Cleared, None, 0);
        statuses.set_condition(&pod(), condition("Unschedulable", "no room"), None, 0);
        let patches = due(&mut statuses, 0, &intake);
        assert_eq!(patches.len(), 1);
        assert!(patches[0]["nominatedNodeName"].is_null() && patches[0]["conditions"][0]["status"] == "False");
    }

    #[test]
    fn a_condition_changed_during_a_write_follows_and_failures_are_retried() {
        let (mut statuses, intake) = (PodStatusQueue::default(), intake(&json!([])));
        statuses.set_condition(&pod(), condition("WaitingForMembers", "1 of 3"), None, 0);
        assert_eq!(due(&mut statuses, 0, &intake).len(), 1);
        statuses.set_condition(&pod(), condition("Unschedulable", "no room"), None, 1);
        assert!(due(&mut statuses, 1, &intake).is_empty(), "one write at a time");
        statuses.done(&pod(), &WriteOutcome::Conflict, 2);
        assert!(due(&mut statuses, 100, &intake).is_empty());
        assert_eq!(due(&mut statuses, 202, &intake)[0]["conditions"][0]["reason"], "Unschedulable");
        statuses.done(&pod(), &WriteOutcome::Written(None), 300);
        assert_eq!(statuses.next_due(), None);
    }

    #[test]
    fn no_condition_is_written_while_a_pod_is_gated() {
        let (mut statuses, intake) = (PodStatusQueue::default(), intake(&json!([{"name": "quota"}])));
        statuses.set_condition(&pod(), condition("WaitingForGroup", "x"), None, 0);
        assert!(due(&mut statuses, 0, &intake).is_empty());
    }
}
