//! Events: what a controller tells about an object, said again by counting and never in floods.
//!
//! The rules are those of client-go: the same words count up; more than ten different messages for one reason within ten
//! minutes are combined into one; an object gets 25 events at once and one more every five minutes.
//! An event that cannot be written is lost: nobody waits for it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use muster_determinism::clock::{self, Clock};
use muster_playground_client::refusal::is_not_found;
use serde_json::json;

const SIMILAR_MAX: usize = 10;
const SIMILAR_SECONDS: i64 = 600;
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// How many objects and sentences are remembered; those that were used longest ago start anew.
const MEMORY_MAX: usize = 4096;

/// Whether all is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Normal,
    Warning,
}

impl Tone {
    fn word(self) -> &'static str {
        match self {
            Tone::Normal => "Normal",
            Tone::Warning => "Warning",
        }
    }
}

/// UID of the object, tone and reason.
type Topic = (String, &'static str, String);

/// What is left of an object's share of events.
#[derive(Debug)]
struct Share {
    left: f64,
    at: Timestamp,
}

/// Different messages about one topic.
#[derive(Debug)]
struct Similar {
    messages: Vec<String>,
    at: Timestamp,
}

/// An event that was written.
#[derive(Debug, Default)]
struct Said {
    name: String,
    count: i32,
}

/// Writes the events of one controller.
pub(crate) struct Recorder {
    client: Client,
    clock: Clock,
    component: &'static str,
    shares: Memory<String, Share>,
    similar: Memory<Topic, Similar>,
    said: Memory<(Topic, String), Said>,
    /// Makes names differ that are made at one time.
    written: i128,
}

impl Recorder {
    pub(crate) fn new(client: Client, clock: Clock, component: &'static str) -> Self {
        Self {
            client,
            clock,
            component,
            shares: Memory::new(MEMORY_MAX),
            similar: Memory::new(MEMORY_MAX),
            said: Memory::new(MEMORY_MAX),
            written: 0,
        }
    }

    /// Says something about an object.
    pub(crate) async fn say(&mut self, about: ObjectReference, tone: Tone, reason: &str, message: String) {
        let now = self.clock.now();
        let topic: Topic = (about.uid.clone().unwrap_or_default(), tone.word(), reason.to_owned());
        let (key, message) = self.combined(&topic, message, now);
        if !self.has_share(&topic.0, now) {
            return;
        }
        let events: Api<Event> = Api::namespaced(self.client.clone(), about.namespace.as_deref().unwrap_or("default"));
        if let Some(said) = self.said.get(&(topic.clone(), key.clone())) {
            said.count += 1;
            let again = json!({"count": said.count, "lastTimestamp": clock::seconds(now), "message": message});
            let answer = events.patch(&said.name, &PatchParams::default(), &Patch::Merge(again)).await;
            if !answer.is_err_and(|error| is_not_found(&error)) {
                return;
            }
        }
        let event = self.event(about, tone, reason, message, now);
        let name = event.metadata.name.clone().unwrap_or_default();
        if events.create(&PostParams::default(), &event).await.is_ok() {
            *self.said.recall((topic, key), Said::default) = Said { name, count: 1 };
        }
    }

    /// The key and the words under which a message is told.
    fn combined(&mut self, topic: &Topic, message: String, now: Timestamp) -> (String, String) {
        let similar = self.similar.recall(topic.clone(), || Similar { messages: Vec::new(), at: Timestamp::MIN });
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

    fn has_share(&mut self, object: &str, now: Timestamp) -> bool {
        let share = self.shares.recall(object.to_owned(), || Share { left: BURST, at: now });
        let passed = now.duration_since(share.at).as_secs_f64();
        share.left = (share.left + passed / REFILL_SECONDS).min(BURST);
        share.at = now;
        let has = share.left >= 1.0;
        if has {
            share.left -= 1.0;
        }
        has
    }

    fn event(&mut self, about: ObjectReference, tone: Tone, reason: &str, message: String, now: Timestamp) -> Event {
        self.written += 1;
        let name = format!("{}.{:x}", about.name.as_deref().unwrap_or_default(), now.as_nanosecond() + self.written);
        Event {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: Some(about.namespace.clone().unwrap_or_else(|| "default".to_owned())),
                ..ObjectMeta::default()
            },
            involved_object: about,
            reason: Some(reason.to_owned()),
            message: Some(message),
            source: Some(EventSource { component: Some(self.component.to_owned()), host: None }),
            reporting_component: Some(self.component.to_owned()),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            count: Some(1),
            type_: Some(tone.word().to_owned()),
            ..Event::default()
        }
    }
}

/// What is remembered: so much, and what was used longest ago makes room for what is new.
#[derive(Debug)]
struct Memory<K, V> {
    room: usize,
    /// With the number of the last use.
    known: BTreeMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Ord + Clone, V> Memory<K, V> {
    fn new(room: usize) -> Self {
        Self { room, known: BTreeMap::new(), by_use: BTreeMap::new(), uses: 0 }
    }

    /// Uses what is known under a key.
    fn get(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.known.get_mut(key)?;
        self.by_use.remove(used);
        self.uses += 1;
        *used = self.uses;
        self.by_use.insert(self.uses, key.clone());
        Some(value)
    }

    /// The same, which is new if it is not known.
    fn recall(&mut self, key: K, new: impl FnOnce() -> V) -> &mut V {
        if let Some((used, _)) = self.known.get(&key) {
            self.by_use.remove(used);
        } else if self.known.len() >= self.room
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.known.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        let (used, value) = self.known.entry(key).or_insert_with(|| (0, new()));
        *used = self.uses;
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_used_longest_ago_is_forgotten_and_only_for_something_new() {
        let mut memory: Memory<&str, u32> = Memory::new(3);
        for (key, value) in [("c", 1), ("a", 2), ("b", 3)] {
            *memory.recall(key, u32::default) = value;
        }
        assert_eq!((*memory.recall("c", u32::default), memory.known.len()), (1, 3), "nothing new, nothing forgotten");
        memory.recall("d", u32::default);
        assert_eq!(memory.known.keys().copied().collect::<Vec<_>>(), ["b", "c", "d"], "the oldest, not the smallest");
        assert_eq!(memory.get(&"b"), Some(&mut 3));
        memory.recall("e", u32::default);
        assert_eq!(memory.known.keys().copied().collect::<Vec<_>>(), ["b", "d", "e"]);
        assert_eq!(memory.get(&"c"), None);
        assert_eq!(memory.by_use.len(), 3);
    }
}
