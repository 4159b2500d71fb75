//! Records events about objects, with the correlation of client-go.
//!
//! Equal events increase a count; ten or more different messages for one reason within ten minutes are combined into
//! one; an object gets 25 events at once and one more every five minutes.
//! An event that cannot be written is dropped.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use muster_clock::{self as clock, Clock};
use serde_json::json;
use tokio::sync::mpsc;

use crate::api_errors::is_not_found;
use crate::task::Task;

const SIMILAR_MAX: usize = 10;
const SIMILAR_SECONDS: i64 = 600;
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// The capacity of each cache; the least recently used entries are evicted.
const CACHE_MAX: usize = 4096;

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventType {
    /// Information.
    Normal,
    /// Something is wrong.
    Warning,
}

impl EventType {
    fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

/// UID of the object, event type and reason.
type AggregationKey = (String, &'static str, String);

/// The rate limit of an object's events.
#[derive(Debug)]
struct TokenBucket {
    tokens: f64,
    at: Timestamp,
}

/// Different messages for one aggregation key.
#[derive(Debug)]
struct SimilarEvents {
    messages: Vec<String>,
    at: Timestamp,
}

/// An event that was written.
#[derive(Debug, Default)]
struct WrittenEvent {
    name: String,
    count: i32,
}

/// Writes the events of one controller.
pub struct EventRecorder {
    client: Client,
    clock: Clock,
    component: &'static str,
    buckets: LruCache<String, TokenBucket>,
    similar: LruCache<AggregationKey, SimilarEvents>,
    written_events: LruCache<(AggregationKey, String), WrittenEvent>,
    /// Makes the names of events unique that are created at the same time.
    written_count: i128,
}

impl EventRecorder {
    /// A recorder for this component.
    pub fn new(client: Client, clock: Clock, component: &'static str) -> Self {
        Self {
            client,
            clock,
            component,
            buckets: LruCache::new(CACHE_MAX),
            similar: LruCache::new(CACHE_MAX),
            written_events: LruCache::new(CACHE_MAX),
            written_count: 0,
        }
    }

    /// Records an event about an object.
    pub async fn record(&mut self, object: ObjectReference, event_type: EventType, reason: &str, message: String) {
        let now = self.clock.now();
        let aggregation_key: AggregationKey =
            (object.uid.clone().unwrap_or_default(), event_type.as_str(), reason.to_owned());
        let (key, message) = self.aggregate(&aggregation_key, message, now);
        if !self.take_token(&aggregation_key.0, now) {
            return;
        }
        let events: Api<Event> = Api::namespaced(self.client.clone(), object.namespace.as_deref().unwrap_or("default"));
        if let Some(event) = self.written_events.get(&(aggregation_key.clone(), key.clone())) {
            event.count += 1;
            let again = json!({"count": event.count, "lastTimestamp": clock::seconds(now), "message": message});
            let answer = events.patch(&event.name, &PatchParams::default(), &Patch::Merge(again)).await;
            if !answer.is_err_and(|error| is_not_found(&error)) {
                return;
            }
        }
        let event = self.event(object, event_type, reason, message, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        if events.create(&PostParams::default(), &event).await.is_ok() {
            *self.written_events.get_or_insert_with((aggregation_key, key), WrittenEvent::default) =
                WrittenEvent { name, count: 1 };
        }
    }

    /// The key and the message under which an event is recorded.
    fn aggregate(&mut self, aggregation_key: &AggregationKey, message: String, now: Timestamp) -> (String, String) {
        let similar = self
            .similar
            .get_or_insert_with(aggregation_key.clone(), || SimilarEvents { messages: Vec::new(), at: Timestamp::MIN });
        if clock::after(similar.at, SIMILAR_SECONDS) < now {
            similar.messages.clear();
        }
        similar.at = now;
        if !similar.messages.contains(&message) {
            if similar.messages.len() + 1 >= SIMILAR_MAX {
                return (String::new(), format!("(combined from similar events): {message}"));
            }
            similar.messages.push(message.clone());
        }
        (message.clone(), message)
    }

    fn take_token(&mut self, object: &str, now: Timestamp) -> bool {
        let bucket = self.buckets.get_or_insert_with(object.to_owned(), || TokenBucket { tokens: BURST, at: now });
        let passed = now.duration_since(bucket.at).as_secs_f64();
        bucket.tokens = (bucket.tokens + passed / REFILL_SECONDS).min(BURST);
        bucket.at = now;
        let has_token = bucket.tokens >= 1.0;
        if has_token {
            bucket.tokens -= 1.0;
        }
        has_token
    }

    fn event(
        &mut self,
        object: ObjectReference,
        event_type: EventType,
        reason: &str,
        message: String,
        now: Timestamp,
    ) -> Event {
        self.written_count += 1;
        let name =
            format!("{}.{:x}", object.name.as_deref().unwrap_or_default(), now.as_nanosecond() + self.written_count);
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(object.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: object,
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource { component: Some(self.component.to_owned()), host: None }),
            reporting_component: Some(self.component.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            type_: Some(event_type.as_str().to_owned()),
            ..Event::default()
        }
    }
}

/// How many events wait to be written; further ones are dropped.
const QUEUE_MAX: usize = 1000;

/// Events that are written by a task of their own, so that their controller does not wait for them.
#[derive(Debug)]
pub struct EventQueue {
    events: mpsc::Sender<(ObjectReference, EventType, &'static str, String)>,
    _task: Task,
}

impl EventQueue {
    /// Starts the task. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock, component: &'static str) -> Self {
        let (events, mut queued) = mpsc::channel(QUEUE_MAX);
        let mut recorder = EventRecorder::new(client, clock, component);
        let work = async move {
            while let Some((object, event_type, reason, message)) = queued.recv().await {
                recorder.record(object, event_type, reason, message).await;
            }
        };
        Self { events, _task: Task::start(component, work) }
    }

    /// Records an event about an object.
    pub fn record(&self, object: ObjectReference, event_type: EventType, reason: &'static str, message: String) {
        self.events.try_send((object, event_type, reason, message)).ok();
    }
}

/// A cache of bounded size that evicts the least recently used entry.
#[derive(Debug)]
struct LruCache<K, V> {
    capacity: usize,
    /// With the number of the last use.
    entries: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Ord + Clone, V> LruCache<K, V> {
    fn new(capacity: usize) -> Self {
        Self { capacity, entries: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// Returns the value of a key and marks it as used.
    fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key.clone());
        Some(value)
    }

    /// The same, inserting a new value if the key is absent.
    fn get_or_insert_with(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        if let Some((used, _)) = self.entries.get(&key) {
            self.by_use.remove(used);
        } else if self.entries.len() >= self.capacity
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        let (used, value) = self.entries.entry(key).or_insert_with(|| (0, new()));
        *used = self.uses;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn least_recently_used_entry_is_evicted_only_for_a_new_one() {
        let mut cache: LruCache<&str, u32> = LruCache::new(3);
        for (key, value) in [("c", 1), ("a", 2), ("b", 3)] {
            *cache.get_or_insert_with(key, u32::default) = value;
        }
        assert_eq!(
            (*cache.get_or_insert_with("c", u32::default), cache.entries.len()),
            (1, 3),
            "no new entry, no eviction"
        );
        cache.get_or_insert_with("d", u32::default);
        assert_eq!(
            cache.entries.keys().copied().collect::<Vec<_>>(),
            ["b", "c", "d"],
            "the least recently used, not the smallest"
        );
        assert_eq!(cache.get(&"b"), Some(&mut 3));
        cache.get_or_insert_with("e", u32::default);
        assert_eq!(cache.entries.keys().copied().collect::<Vec<_>>(), ["b", "d", "e"]);
        assert_eq!(cache.get(&"c"), None);
        assert_eq!(cache.by_use.len(), 3);
    }
}
