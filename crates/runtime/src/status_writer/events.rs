//! Events, aggregated into series.
//!
//! The same event on the same object within ten minutes is one event with a growing count, written at most once a
//! minute. The number of remembered events is bounded; the oldest are forgotten first.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::actuator::{ApiRequest, WriteOutcome};
use crate::text::cut_bytes;

/// How long after the last occurrence an event still belongs to the same series.
const SERIES_MS: u64 = 600_000;
/// The minimum interval between two writes of an event's count.
const COUNT_WRITTEN_MS: u64 = 60_000;
/// The maximum number of remembered events.
const REMEMBERED_MAX: usize = 4096;
/// The maximum length of a note that the API accepts, in bytes.
const NOTE_BYTES_MAX: usize = 1024;
/// The maximum length of `reportingInstance` that the API accepts, in characters.
const INSTANCE_CHARS_MAX: usize = 128;
/// The maximum length of the object's name within an event's name, in characters.
const NAME_CHARS_MAX: usize = 200;

/// The object of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regarding {
    pub(crate) api_version: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}

/// The content of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EventDetails {
    /// Whether its type is `Warning`.
    pub(crate) warning: bool,
    pub(crate) reason: &'static str,
    pub(crate) action: Action,
    pub(crate) note: String,
}

/// The `action` of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Scheduling,
    Preempting,
}

#[derive(Debug)]
struct Series {
    namespace: String,
    name: String,
    count: u64,
    last_ms: u64,
    written_ms: u64,
}

/// Creates events and remembers recent ones.
#[derive(Debug)]
pub(crate) struct EventRecorder {
    controller: String,
    instance: String,
    recent: BTreeMap<u64, Series>,
}

impl EventRecorder {
    pub(crate) fn new(controller: &str, instance: &str) -> Self {
        let instance = instance.chars().take(INSTANCE_CHARS_MAX).collect();
        Self { controller: controller.to_owned(), instance, recent: BTreeMap::new() }
    }

    /// Records an event; returns the request to write it, if one is due.
    pub(crate) fn record(
        &mut self,
        regarding: &Regarding,
        details: &EventDetails,
        now_ms: u64,
        now: Timestamp,
    ) -> Option<ApiRequest> {
        let key = fingerprint(&[&regarding.uid, &regarding.kind, &regarding.name, details.reason, &details.note]);
        if let Some(series) = self.recent.get_mut(&key).filter(|series| now_ms < series.last_ms + SERIES_MS) {
            series.count += 1;
            series.last_ms = now_ms;
            if now_ms < series.written_ms + COUNT_WRITTEN_MS {
                return None;
            }
            series.written_ms = now_ms;
            let body = json!({"series": {"count": series.count, "lastObservedTime": micros(now)}});
            let (namespace, name) = (series.namespace.clone(), series.name.clone());
            return Some(ApiRequest::Event { key, namespace, name, body, again: true });
        }
        let stem: String = regarding.name.chars().take(NAME_CHARS_MAX).collect();
        // These characters are not allowed before a dot in a name.
        let stem = stem.trim_end_matches(['-', '.']);
        let name = format!("{stem}.{:016x}", key ^ now_ms.rotate_left(20));
        let namespace = if regarding.namespace.is_empty() { "default".to_owned() } else { regarding.namespace.clone() };
        self.make_room();
        let (series_namespace, series_name) = (namespace.clone(), name.clone());
        let series =
            Series { namespace: series_namespace, name: series_name, count: 1, last_ms: now_ms, written_ms: now_ms };
        self.recent.insert(key, series);
        let body = self.body(&namespace, &name, regarding, details, now);
        Some(ApiRequest::Event { key, namespace, name, body, again: false })
    }

    /// A write has ended. An event that is gone or was rejected is created again the next time.
    pub(crate) fn done(&mut self, key: u64, outcome: &WriteOutcome) {
        if !matches!(outcome, WriteOutcome::Written(_)) {
            self.recent.remove(&key);
        }
    }

    fn make_room(&mut self) {
        if self.recent.len() < REMEMBERED_MAX {
            return;
        }
        let oldest = self.recent.iter().min_by_key(|(key, series)| (series.last_ms, **key)).map(|(key, _)| *key);
        oldest.map(|key| self.recent.remove(&key));
    }

    fn body(&self, namespace: &str, name: &str, about: &Regarding, what: &EventDetails, now: Timestamp) -> Value {
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

    fn record(events: &mut EventRecorder, note: &str, now_ms: u64) -> Option<ApiRequest> {
        let details = EventDetails {
            warning: true,
            reason: "FailedScheduling",
            action: Action::Scheduling,
            note: note.to_owned(),
        };
        let now = Timestamp::from_millisecond(now_ms as i64).unwrap();
        events.record(&about(), &details, now_ms, now)
    }

    #[test]
    fn repeated_events_are_counted_in_one_series() {
        let mut events = EventRecorder::new("muster", "me");
        let Some(ApiRequest::Event { name, again: false, .. }) = record(&mut events, "no room", 1000) else {
            panic!("not created")
        };
        assert!(record(&mut events, "no room", 2000).is_none());
        let Some(ApiRequest::Event { name: later, body, again: true, .. }) = record(&mut events, "no room", 70_000)
        else {
            panic!("not counted")
        };
        assert_eq!((later, &body["series"]["count"]), (name, &json!(3)));
        assert!(matches!(record(&mut events, "another", 70_000), Some(ApiRequest::Event { again: false, .. })));
        assert!(matches!(record(&mut events, "no room", 800_000), Some(ApiRequest::Event { again: false, .. })));
    }

    #[test]
    fn the_number_of_remembered_events_is_bounded() {
        let mut events = EventRecorder::new("muster", "me");
        for number in 0..REMEMBERED_MAX as u64 + 10 {
            assert!(record(&mut events, &number.to_string(), number).is_some());
        }
        assert_eq!(events.recent.len(), REMEMBERED_MAX);
    }
}
