//! Events: told once, and counted when they happen again.
//!
//! The same thing said of the same object within ten minutes is one event whose count grows, written at most once a
//! minute. Only so many are remembered; the oldest are forgotten first.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::hands::{Errand, WriteOutcome};
use crate::text::cut_bytes;

/// How long after the last time the same thing still counts as the same event.
const SERIES_MS: u64 = 600_000;
/// How often the count of an event is written at most.
const COUNT_WRITTEN_MS: u64 = 60_000;
/// How many events are remembered.
const REMEMBERED_MAX: usize = 4096;
/// The most bytes of a note that the API takes.
const NOTE_BYTES_MAX: usize = 1024;
/// The most characters of the reporting instance that the API takes.
const INSTANCE_CHARS_MAX: usize = 128;
/// The most characters of an object's name in the name of an event.
const NAME_CHARS_MAX: usize = 200;

/// Whom an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regarding {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Happening {
    /// Whether it is something to worry about.
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) action: Action,
    pub(crate) note: String,
}

/// What was being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Scheduling,
    Preempting,
}

#[derive(Debug)]
struct Told {
    namespace: String,
    name: String,
    count: u64,
    last_ms: u64,
    written_ms: u64,
}

/// The events that were told.
#[derive(Debug)]
pub(crate) struct EventNotes {
    controller: String,
    instance: String,
    told: BTreeMap<u64, Told>,
}

impl EventNotes {
    pub(crate) fn new(controller: &str, instance: &str) -> Self {
        let instance = instance.chars().take(INSTANCE_CHARS_MAX).collect();
        Self { controller: controller.to_owned(), instance, told: BTreeMap::new() }
    }

    /// Something happened; gives what has to be written, if anything.
    pub(crate) fn tell(
        &mut self,
        regarding: &Regarding,
        happening: &Happening,
        now_ms: u64,
        now: Timestamp,
    ) -> Option<Errand> {
        let key = fingerprint(&[&regarding.uid, &regarding.kind, &regarding.name, happening.reason, &happening.note]);
        if let Some(told) = self.told.get_mut(&key).filter(|told| now_ms < told.last_ms + SERIES_MS) {
            told.count += 1;
            told.last_ms = now_ms;
            if now_ms < told.written_ms + COUNT_WRITTEN_MS {
                return None;
            }
            told.written_ms = now_ms;
            let body = json!({"series": {"count": told.count, "lastObservedTime": micros(now)}});
            let (namespace, name) = (told.namespace.clone(), told.name.clone());
            return Some(Errand::Event { key, namespace, name, body, again: true });
        }
        let stem: String = regarding.name.chars().take(NAME_CHARS_MAX).collect();
        // A name may not have these before a dot.
        let stem = stem.trim_end_matches(['-', '.']);
        let name = format!("{stem}.{:016x}", key ^ now_ms.rotate_left(20));
        let namespace = if regarding.namespace.is_empty() { "default".to_owned() } else { regarding.namespace.clone() };
        self.make_room();
        let (told_namespace, told_name) = (namespace.clone(), name.clone());
        let told = Told { namespace: told_namespace, name: told_name, count: 1, last_ms: now_ms, written_ms: now_ms };
        self.told.insert(key, told);
        let body = self.body(&namespace, &name, regarding, happening, now);
        Some(Errand::Event { key, namespace, name, body, again: false })
    }

    /// A write came to its end. An event that is gone or was refused is told anew the next time.
    pub(crate) fn done(&mut self, key: u64, outcome: &WriteOutcome) {
        if !matches!(outcome, WriteOutcome::Written(_)) {
            self.told.remove(&key);
        }
    }

    fn make_room(&mut self) {
        if self.told.len() < REMEMBERED_MAX {
            return;
        }
        let oldest = self.told.iter().min_by_key(|(key, told)| (told.last_ms, **key)).map(|(key, _)| *key);
        oldest.map(|key| self.told.remove(&key));
    }

    fn body(&self, namespace: &str, name: &str, about: &Regarding, what: &Happening, now: Timestamp) -> Value {
        json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"namespace": namespace, "name": name},
            "eventTime": micros(now),
            "reportingController": self.controller, "reportingInstance": self.instance,
            "action": format!("{:?}", what.action), "reason": what.reason, "note": cut_bytes(&what.note, NOTE_BYTES_MAX),
            "type": if what.warning { "Warning" } else { "Normal" },
            "regarding": {
                "apiVersion": about.api_version, "kind": about.kind, "namespace": about.namespace,
                "name": about.name, "uid": about.uid,
            },
        })
    }
}

fn micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// FNV-1a over the parts: the same on every machine and in every run.
fn fingerprint(parts: &[&str]) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about() -> Regarding {
        let text = str::to_owned;
        Regarding { api_version: text("v1"), kind: text("Pod"), namespace: text("ml"), name: text("a"), uid: text("u") }
    }

    fn tell(events: &mut EventNotes, note: &str, now_ms: u64) -> Option<Errand> {
        let happening =
            Happening { warning: true, reason: "FailedScheduling", action: Action::Scheduling, note: note.to_owned() };
        let now = Timestamp::from_millisecond(now_ms as i64).unwrap();
        events.tell(&about(), &happening, now_ms, now)
    }

    #[test]
    fn the_same_thing_is_told_once_and_counted() {
        let mut events = EventNotes::new("muster", "me");
        let Some(Errand::Event { name, again: false, .. }) = tell(&mut events, "no room", 1000) else {
            panic!("told at once")
        };
        assert!(tell(&mut events, "no room", 2000).is_none());
        let Some(Errand::Event { name: later, body, again: true, .. }) = tell(&mut events, "no room", 70_000) else {
            panic!("counted")
        };
        assert_eq!((later, &body["series"]["count"]), (name, &json!(3)));
        assert!(matches!(tell(&mut events, "another", 70_000), Some(Errand::Event { again: false, .. })));
        assert!(matches!(tell(&mut events, "no room", 800_000), Some(Errand::Event { again: false, .. })));
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut events = EventNotes::new("muster", "me");
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            assert!(tell(&mut events, &number.to_string(), number).is_some());
        }
        assert_eq!(events.told.len(), REMEMBERED_MAX);
    }
}
