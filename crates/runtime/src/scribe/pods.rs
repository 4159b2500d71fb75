//! What is said of pods: the `PodScheduled` condition and the nomination, in one patch.
//!
//! A new reason is written at once. New words for the same reason are written now and then, since the words of a large
//! group change with everything that happens in the cluster. What the API shows already is not written.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use muster_api::keys::conditions::POD_SCHEDULED;
use muster_api::keys::pod_reasons::WAITING_FOR_VICTIMS;
use muster_engine::model::pod::PodName;
use serde_json::{Value, json};

use super::agenda::Agenda;
use super::pause::pause_ms;
use crate::hands::{Errand, WriteOutcome};
use crate::intake::Intake;
use crate::intake::card::{Card, Said};
use crate::text::first_sentence;

/// How long words stand before other words for the same reason take their place.
const SAME_REASON_MS: u64 = 30_000;
/// With very many waiting pods it is longer: so much for each of them.
const SAME_REASON_MS_PER_POD: u64 = 20;

/// What is to be said of pods.
#[derive(Debug, Default)]
pub(crate) struct PodNotes {
    notes: BTreeMap<Arc<str>, Note>,
    agenda: Agenda<Arc<str>>,
}

#[derive(Debug)]
struct Note {
    pod: Arc<PodName>,
    want: Option<Said>,
    /// What the nomination is to be, if it is to change.
    nomination: Option<Nomination>,
    written: Option<Said>,
    written_ms: u64,
    /// What is on its way.
    sent: Option<Said>,
    /// The nomination that is on its way too.
    sent_nomination: Option<Nomination>,
    in_flight: bool,
    failures: u32,
}

/// What a pod's nomination is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Nomination {
    /// This node is kept free for it.
    Node(Arc<str>),
    /// There is none.
    Cleared,
}

impl PodNotes {
    /// The pod's condition is to say this. Gives whether the reason is a new one, or is about others than before.
    pub(crate) fn say(&mut self, pod: &Arc<PodName>, said: Said, shown: Option<&Said>, now_ms: u64) -> bool {
        let note = self.note(pod, shown);
        let new_reason = note.want.as_ref().or(note.written.as_ref()).is_none_or(|old| !is_like(old, &said));
        let written_reason = note.written.as_ref().is_some_and(|old| is_like(old, &said));
        note.want = Some(said);
        let written_ms = note.written_ms;
        let stands_ms = SAME_REASON_MS.max(self.notes.len() as u64 * SAME_REASON_MS_PER_POD);
        let due_ms = if written_reason { now_ms.max(written_ms + stands_ms) } else { now_ms };
        self.set_due(&pod.uid, due_ms);
        new_reason
    }

    /// Whether something was said of the pod, or is to be said.
    pub(crate) fn has_word_for(&self, uid: &str) -> bool {
        self.notes.get(uid).is_some_and(|note| note.want.is_some())
    }

    /// The pod's nomination is to be this.
    pub(crate) fn nominate(&mut self, pod: &Arc<PodName>, to: Nomination, shown: Option<&Said>, now_ms: u64) {
        self.note(pod, shown).nomination = Some(to);
        self.set_due(&pod.uid, now_ms);
    }

    /// A nomination that was not sent yet is not needed any more.
    pub(crate) fn forget_nomination(&mut self, uid: &str) {
        if let Some(note) = self.notes.get_mut(uid) {
            note.nomination = None;
        }
    }

    /// Whether a nomination of the pod is still to be written.
    pub(crate) fn is_nominating(&self, uid: &str) -> bool {
        self.notes.get(uid).is_some_and(|note| note.nomination.is_some() || note.sent_nomination.is_some())
    }

    /// Nothing is to be said of the pod any more.
    pub(crate) fn forget(&mut self, uid: &str) {
        if let Some((key, _)) = self.notes.remove_entry(uid) {
            self.agenda.remove(&key);
        }
    }

    /// When something is due next.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.agenda.next_due()
    }

    /// What is due, but no more than there is room for.
    pub(crate) fn take_due(&mut self, now_ms: u64, now: Timestamp, room: usize, intake: &Intake) -> Vec<Errand> {
        let mut errands = Vec::new();
        while errands.len() < room
            && let Some(uid) = self.agenda.pop_due(now_ms)
        {
            let Some(note) = self.notes.get_mut(&uid) else { continue };
            if note.in_flight {
                // It is looked at again when the write that is on its way comes back.
                continue;
            }
            let Some(card) = intake.card(&uid) else { continue };
            let said = note.want.clone().filter(|want| note.written.as_ref() != Some(want) && card.waits());
            if said.is_none() && note.nomination.is_none() {
                continue;
            }
            note.in_flight = true;
            note.sent_nomination = note.nomination.take();
            let patch = patch(card, said.as_ref(), note.sent_nomination.as_ref(), now);
            note.sent = said;
            errands.push(Errand::PodStatus { pod: note.pod.clone(), patch });
        }
        errands
    }

    /// A write came to its end.
    pub(crate) fn done(&mut self, pod: &Arc<PodName>, outcome: &WriteOutcome, now_ms: u64) {
        let Some(note) = self.notes.get_mut(pod.uid.as_str()) else { return };
        note.in_flight = false;
        match outcome {
            WriteOutcome::Written(_) => {
                note.failures = 0;
                note.sent_nomination = None;
                if let Some(sent) = note.sent.take() {
                    note.written = Some(sent);
                    note.written_ms = now_ms;
                }
                // Other words may have been wanted meanwhile.
                let more = note.nomination.is_some();
                if let Some(want) = note.want.clone().filter(|want| note.written.as_ref() != Some(want)) {
                    self.say(pod, want, None, now_ms);
                }
                if more {
                    self.set_due(&pod.uid, now_ms);
                }
            }
            WriteOutcome::Gone => self.forget(&pod.uid),
            WriteOutcome::Conflict | WriteOutcome::Later { .. } | WriteOutcome::Refused(_) => {
                note.failures += 1;
                let sent = note.sent_nomination.take();
                note.nomination = note.nomination.take().or(sent);
                let due_ms = now_ms + pause_ms(note.failures).max(outcome.asked_pause_ms());
                self.set_due(&pod.uid, due_ms);
            }
        }
    }

    fn note(&mut self, pod: &Arc<PodName>, shown: Option<&Said>) -> &mut Note {
        self.notes.entry(pod.uid.as_str().into()).or_insert_with(|| Note {
            pod: pod.clone(),
            want: None,
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
        if let Some((key, _)) = self.notes.get_key_value(uid) {
            self.agenda.put(key, due_ms);
        }
    }
}

/// Whether both say about the same: of somebody who waits for others to leave, about the same others.
fn is_like(old: &Said, new: &Said) -> bool {
    let whom = |said: &Said| first_sentence(&said.message).to_owned();
    old.reason == new.reason && (new.reason != WAITING_FOR_VICTIMS || whom(old) == whom(new))
}

/// The patch holds only for the pod as it was last seen: words about waiting must not land on a pod that is bound
/// meanwhile.
fn patch(card: &Card, said: Option<&Said>, nomination: Option<&Nomination>, now: Timestamp) -> Value {
    let mut status = json!({});
    if let Some(said) = said {
        let mut condition = json!({
            "type": POD_SCHEDULED, "status": "False", "reason": said.reason, "message": said.message,
            "lastProbeTime": null,
        });
        // Other words for the same status are no transition.
        if card.said.is_none() {
            condition["lastTransitionTime"] = json!(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string());
        }
        status["conditions"] = json!([condition]);
    }
    match nomination {
        Some(Nomination::Node(node)) => status["nominatedNodeName"] = json!(&**node),
        Some(Nomination::Cleared) => status["nominatedNodeName"] = Value::Null,
        None => {}
    }
    json!({"metadata": {"uid": card.id.uid, "resourceVersion": card.version}, "status": status})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gates::FeatureGates;
    use crate::intake::{News, WatchTurn};
    use crate::settings::Profile;
    use muster_api::makers::GangedOwners;

    fn pod() -> Arc<PodName> {
        Arc::new(PodName { namespace: "ml".into(), name: "a".into(), uid: "u".into() })
    }

    fn said(reason: &str, message: &str) -> Said {
        Said { reason: reason.to_owned(), message: message.to_owned() }
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
        intake.take(News::Pod(WatchTurn::Seen(serde_json::from_str(&pod.to_string()).unwrap())), 0);
        intake
    }

    fn due(notes: &mut PodNotes, now_ms: u64, intake: &Intake) -> Vec<Value> {
        let patches =
            notes.take_due(now_ms, Timestamp::UNIX_EPOCH, 100, intake).into_iter().map(|errand| match errand {
                Errand::PodStatus { patch, .. } => patch["status"].clone(),
                other => panic!("{other:?}"),
            });
        patches.collect()
    }

    #[test]
    fn a_new_reason_is_written_at_once_and_new_words_later() {
        let (mut notes, intake, written) = (PodNotes::default(), intake(&json!([])), WriteOutcome::Written(None));
        assert!(notes.say(&pod(), said("WaitingForMembers", "1 of 3"), None, 1_000));
        assert_eq!(due(&mut notes, 1_000, &intake).len(), 1);
        notes.done(&pod(), &written, 1_000);
        assert!(!notes.say(&pod(), said("WaitingForMembers", "2 of 3"), None, 2_000));
        assert!(due(&mut notes, 2_000, &intake).is_empty());
        assert_eq!(notes.next_due(), Some(31_000));
        assert!(notes.say(&pod(), said("Unschedulable", "no room"), None, 3_000));
        assert_eq!(due(&mut notes, 3_000, &intake)[0]["conditions"][0]["reason"], "Unschedulable");
    }

    #[test]
    fn what_the_api_shows_already_is_not_written_again() {
        let (mut notes, intake) = (PodNotes::default(), intake(&json!([])));
        let shown = said("Unschedulable", "no room");
        assert!(!notes.say(&pod(), shown.clone(), Some(&shown), 0));
        assert!(due(&mut notes, 100_000, &intake).is_empty());
    }

    #[test]
    fn nomination_and_condition_travel_in_one_patch() {
        let (mut notes, intake) = (PodNotes::default(), intake(&json!([])));
        notes.nominate(&pod(), Nomination::Cleared, None, 0);
        notes.say(&pod(), said("Unschedulable", "no room"), None, 0);
        let patches = due(&mut notes, 0, &intake);
        assert_eq!(patches.len(), 1);
        assert!(patches[0]["nominatedNodeName"].is_null() && patches[0]["conditions"][0]["status"] == "False");
    }

    #[test]
    fn words_that_changed_on_the_way_follow_and_failures_are_tried_again() {
        let (mut notes, intake) = (PodNotes::default(), intake(&json!([])));
        notes.say(&pod(), said("WaitingForMembers", "1 of 3"), None, 0);
        assert_eq!(due(&mut notes, 0, &intake).len(), 1);
        notes.say(&pod(), said("Unschedulable", "no room"), None, 1);
        assert!(due(&mut notes, 1, &intake).is_empty(), "one write at a time");
        notes.done(&pod(), &WriteOutcome::Conflict, 2);
        assert!(due(&mut notes, 100, &intake).is_empty());
        assert_eq!(due(&mut notes, 202, &intake)[0]["conditions"][0]["reason"], "Unschedulable");
        notes.done(&pod(), &WriteOutcome::Written(None), 300);
        assert_eq!(notes.next_due(), None);
    }

    #[test]
    fn nothing_is_written_over_the_gates_of_a_pod() {
        let (mut notes, intake) = (PodNotes::default(), intake(&json!([{"name": "quota"}])));
        notes.say(&pod(), said("WaitingForGroup", "x"), None, 0);
        assert!(due(&mut notes, 0, &intake).is_empty());
    }
}
