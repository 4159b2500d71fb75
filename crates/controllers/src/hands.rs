//! Carries out writes, one after the other for each subject, and tells how it went.
//!
//! A write that came too late for what it was decided for is not an error of anybody: it is decided anew when the watch
//! shows what is. It must not know why anything is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::write::{Target, Word, Write};

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How many words are remembered, so that they are not repeated.
const WORDS_MAX: usize = 10_000;
const MANAGER: &str = "muster-controllers";
/// The most characters of an event's note.
const NOTE_CHARS_MAX: usize = 1_024;

/// Until when a request may last that wants to last until the time given; `None` if nothing may be written.
pub type Deadline = Arc<dyn Fn(Instant) -> Option<Instant> + Send + Sync>;

/// What carries out writes.
#[derive(Clone)]
pub(crate) struct Hands {
    client: Client,
    identity: String,
    deadline: Deadline,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    told: Arc<Mutex<Told>>,
}

/// What was told of whom.
#[derive(Debug, Default)]
struct Told {
    words: BTreeMap<String, BTreeSet<(&'static str, String)>>,
    count: usize,
}

/// Why writes stopped.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("no answer in time")]
    TimedOut,
    #[error("this process may not write any more")]
    Fenced,
}

impl WriteError {
    /// Whether the object is not what it was when the write was decided.
    fn is_too_late(&self) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(status)) if matches!(status.code, 404 | 409))
    }
}

impl Hands {
    pub(crate) fn new(
        client: Client,
        identity: &str,
        deadline: Deadline,
        now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        Self { client, identity: identity.to_owned(), deadline, now, told: Arc::default() }
    }

    /// Carries out writes until one fails.
    pub(crate) async fn carry_out(&self, writes: Vec<Write>) -> Result<(), WriteError> {
        for write in writes {
            let until = (self.deadline)(Instant::now() + REQUEST_TIMEOUT).ok_or(WriteError::Fenced)?;
            let outcome = timeout_at(until, self.send(&write)).await.unwrap_or(Err(WriteError::TimedOut));
            match outcome {
                Ok(()) => {}
                Err(error) if error.is_too_late() => {
                    tracing::debug!(?write, %error, "a write came too late, and is decided anew");
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(what = %shown(&write), %error, "a write failed and will be tried again");
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    async fn send(&self, write: &Write) -> Result<(), WriteError> {
        match write {
            Write::Create { resource, object } => self.create(resource, object).await,
            Write::Patch { target, body } => {
                let mut body = body.clone();
                body["metadata"]["uid"] = json!(target.uid);
                let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
                self.api(target).patch(&target.name, &params, &Patch::Merge(body)).await?;
                Ok(())
            }
            Write::Delete { target } => {
                let preconditions = Preconditions { uid: Some(target.uid.clone()), resource_version: None };
                let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::background() };
                match self.api(target).delete(&target.name, &params).await {
                    Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
                    answer => answer.map(drop).map_err(Into::into),
                }
            }
            Write::Tell(word) => self.tell(word).await,
        }
    }

    async fn create(&self, resource: &ApiResource, object: &Value) -> Result<(), WriteError> {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), namespace, resource);
        let object: DynamicObject = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        api.create(&params, &object).await?;
        Ok(())
    }

    fn api(&self, target: &Target) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &target.namespace, &target.resource)
    }

    /// Tells users of an object, once. An event is a courtesy: if it cannot be written, the rest goes on.
    async fn tell(&self, word: &Word) -> Result<(), WriteError> {
        if !self.is_new(word) {
            return Ok(());
        }
        let note: String = word.note.chars().take(NOTE_CHARS_MAX).collect();
        let now = (self.now)();
        let name = format!("{}.{:x}", word.about.name, now.as_nanosecond());
        let event = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": word.about.namespace},
            "eventTime": format!("{now:.6}"), "reportingController": MANAGER, "reportingInstance": self.identity,
            "action": "Grouping", "reason": word.reason, "note": note,
            "type": if word.warning { "Warning" } else { "Normal" },
            "regarding": word.about.reference(),
        });
        let resource = ApiResource {
            group: "events.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "events.k8s.io/v1".to_owned(),
            kind: "Event".to_owned(),
            plural: "events".to_owned(),
        };
        if let Err(error) = self.create(&resource, &event).await {
            tracing::warn!(reason = word.reason, note = word.note, %error, "an event could not be written");
        }
        Ok(())
    }

    fn is_new(&self, word: &Word) -> bool {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.count >= WORDS_MAX {
            *told = Told::default();
        }
        let is_new = told.words.entry(word.about.uid.clone()).or_default().insert((word.reason, word.note.clone()));
        told.count += usize::from(is_new);
        is_new
    }
}

/// A write in a few words.
fn shown(write: &Write) -> String {
    match write {
        Write::Create { resource, object } => {
            let metadata = &object["metadata"];
            format!("create {} {}/{}", resource.kind, text(&metadata["namespace"]), text(&metadata["name"]))
        }
        Write::Patch { target, .. } => format!("patch {} {}/{}", target.resource.kind, target.namespace, target.name),
        Write::Delete { target } => format!("delete {} {}/{}", target.resource.kind, target.namespace, target.name),
        Write::Tell(word) => format!("tell {} {}/{}", word.about.resource.kind, word.about.namespace, word.about.name),
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl std::fmt::Debug for Hands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hands").field("identity", &self.identity).finish_non_exhaustive()
    }
}
