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
use serde_json::json;

use super::reconcile::is_not_found;
use crate::clock::{self, Clock};

const SIMILAR_MAX: usize = 10;
const SIMILAR_SECONDS: i64 = 600;
const BURST: f64 = 25.0;
const REFILL_SECONDS: f64 = 300.0;
/// How many objects and sentences are remembered; older ones start anew.
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
#[derive(Debug)]
struct Said {
    name: String,
    count: i32,
}

/// Writes the events of one controller.
pub(crate) struct Recorder {
    client: Client,
    clock: Clock,
    component: &'static str,
    shares: BTreeMap<String, Share>,
    similar: BTreeMap<Topic, Similar>,
    said: BTreeMap<(Topic, String), Said>,
    /// Makes names differ that are made at one time.
    written: i128,
}

impl Recorder {
    pub(crate) fn new(client: Client, clock: Clock, component: &'static str) -> Self {
        Self {
            client,
            clock,
            component,
            shares: BTreeMap::new(),
            similar: BTreeMap::new(),
            said: BTreeMap::new(),
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
        if let Some(said) = self.said.get_mut(&(topic.clone(), key.clone())) {
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
            trim(&mut self.said);
            self.said.insert((topic, key), Said { name, count: 1 });
        }
    }

    /// The key and the words under which a message is told.
    fn combined(&mut self, topic: &Topic, message: String, now: Timestamp) -> (String, String) {
        trim(&mut self.similar);
        let similar =
            self.similar.entry(topic.clone()).or_insert_with(|| Similar { messages: Vec::new(), at: Timestamp::MIN });
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
        trim(&mut self.shares);
        let share = self.shares.entry(object.to_owned()).or_insert(Share { left: BURST, at: now });
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

fn trim<K: Ord + Clone, V>(memory: &mut BTreeMap<K, V>) {
    while memory.len() >= MEMORY_MAX {
        memory.pop_first();
    }
}
