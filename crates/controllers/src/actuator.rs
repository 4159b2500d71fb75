//! The actuator: sends the writes of one reconcile in order and returns the outcome.
//!
//! A write that meets a changed or deleted object is not an error: the item is reconciled again when the watch delivers
//! the current state. Must not depend on why an object is written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::http::HeaderValue;
use jiff::Timestamp;
use kube::Client;
use kube::Resource as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, Request};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::refusals::Refusals;
use crate::write::{ConditionChange, ObjectEvent, Target, Write};

/// How long one request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How many recorded events are remembered in order not to repeat them.
const RECORDED_EVENTS_MAX: usize = 10_000;
const MANAGER: &str = "muster-controllers";
/// The maximum length of an event's note, in characters.
const NOTE_CHARS_MAX: usize = 1_024;

/// Maps the time until which a request would like to run to the time until which it may run; `None` if this process
/// must not write.
pub type Deadline = Arc<dyn Fn(Instant) -> Option<Instant> + Send + Sync>;

/// Sends writes to the API server.
#[derive(Clone)]
pub(crate) struct Actuator {
    client: Client,
    identity: String,
    deadline: Deadline,
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    recorded: Arc<Mutex<RecordedEvents>>,
    /// Conditions that the server does not let Muster write.
    refusals: Arc<Mutex<Refusals>>,
}

/// The events recorded so far, by object UID.
#[derive(Debug, Default)]
struct RecordedEvents {
    by_uid: BTreeMap<String, BTreeSet<(&'static str, String)>>,
    count: usize,
}

/// Why a write failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    #[error(transparent)]
    Kube(#[from] kube::Error),
    #[error("no answer in time")]
    TimedOut,
    #[error("this process may not write any more")]
    Fenced,
    #[error("the server refuses this condition")]
    Refused,
}

impl WriteError {
    /// Whether the object has changed or is gone since the write was decided.
    fn is_stale(&self) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(status)) if matches!(status.code, 404 | 409))
    }

    /// Whether the same request would be refused again. It may also have met an object that has changed since: it is
    /// decided on again when the watch shows that.
    fn is_permanent(&self) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(status)) if matches!(status.code, 400 | 413 | 422))
    }

    fn is_api_error(&self, code: u16) -> bool {
        matches!(self, Self::Kube(kube::Error::Api(status)) if status.code == code)
    }
}

impl Actuator {
    pub(crate) fn new(
        client: Client,
        identity: &str,
        deadline: Deadline,
        now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    ) -> Self {
        Self {
            client,
            identity: identity.to_owned(),
            deadline,
            now,
            recorded: Arc::default(),
            refusals: Arc::default(),
        }
    }

    /// Sends writes in order until one fails.
    pub(crate) async fn execute(&self, writes: Vec<Write>) -> Result<(), WriteError> {
        for write in writes {
            let until = (self.deadline)(Instant::now() + REQUEST_TIMEOUT).ok_or(WriteError::Fenced)?;
            let outcome = timeout_at(until, self.send(&write)).await.unwrap_or(Err(WriteError::TimedOut));
            match outcome {
                Ok(()) => {}
                // What follows reports the condition, and would be repeated with every change of it.
                Err(WriteError::Refused) => return Ok(()),
                Err(error) if error.is_stale() => {
                    tracing::debug!(?write, %error, "a write met a changed object; reconciling again");
                    return Err(error);
                }
                Err(error) => {
                    tracing::warn!(what = %describe(&write), %error, "a write failed and will be retried");
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
            Write::Condition(change) => self.change_condition(change).await,
            Write::Event(event) => self.record(event).await,
        }
    }

    async fn change_condition(&self, change: &ConditionChange) -> Result<(), WriteError> {
        if self.refusals().cover(change, Instant::now()) {
            return Err(WriteError::Refused);
        }
        let Err(error) = self.send_condition(change).await else { return Ok(()) };
        let (kind, what) = (&change.target.resource.plural, describe(&Write::Condition(change.clone())));
        if error.is_api_error(403) {
            if self.refusals().forbid(change, Instant::now()) {
                tracing::warn!(kind, %error, "a condition cannot be written: does Muster have the right to patch {kind}/status?");
            }
        } else if error.is_permanent() {
            self.refusals().refuse(change);
            tracing::warn!(what, %error, "a condition was refused and is not tried again before the object changes");
        } else {
            return Err(error);
        }
        Err(WriteError::Refused)
    }

    fn refusals(&self) -> MutexGuard<'_, Refusals> {
        self.refusals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn send_condition(&self, change: &ConditionChange) -> Result<(), WriteError> {
        let target = &change.target;
        let condition = change.condition.clone().map(|mut condition| {
            if condition["lastTransitionTime"].is_null() {
                condition["lastTransitionTime"] = json!(format!("{:.0}", (self.now)()));
            }
            condition
        });
        let version = json!(change.resource_version);
        let patch = if change.is_first {
            json!({"metadata": {"resourceVersion": version}, "status": {"conditions": condition.into_iter().collect::<Vec<_>>()}})
        } else {
            let at = change.index.map_or_else(|| "-".to_owned(), |index| index.to_string());
            let operation = match (change.index, &condition) {
                (_, None) => "remove",
                (Some(_), Some(_)) => "replace",
                (None, Some(_)) => "add",
            };
            let mut edit = json!({"op": operation, "path": format!("/status/conditions/{at}")});
            if let Some(condition) = condition {
                edit["value"] = condition;
            }
            // An object that has changed since makes this a conflict.
            json!([{"op": "replace", "path": "/metadata/resourceVersion", "value": version}, edit])
        };
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let path = DynamicObject::url_path(&target.resource, Some(&target.namespace));
        let mut request = Request::new(path)
            .patch_subresource("status", &target.name, &params, &Patch::Merge(patch))
            .map_err(kube::Error::BuildRequest)?;
        if !change.is_first {
            request.headers_mut().insert("content-type", HeaderValue::from_static("application/json-patch+json"));
        }
        self.client.request::<Value>(request).await?;
        Ok(())
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

    /// Records an event, once. Events are best effort: if one cannot be written, the other writes continue.
    async fn record(&self, event: &ObjectEvent) -> Result<(), WriteError> {
        if !self.is_new(event) {
            return Ok(());
        }
        let note: String = event.note.chars().take(NOTE_CHARS_MAX).collect();
        let now = (self.now)();
        let name = format!("{}.{:x}", event.regarding.name, now.as_nanosecond());
        let object = json!({
            "apiVersion": "events.k8s.io/v1", "kind": "Event",
            "metadata": {"name": name, "namespace": event.regarding.namespace},
            "eventTime": format!("{now:.6}"), "reportingController": MANAGER, "reportingInstance": self.identity,
            "action": "Grouping", "reason": event.reason, "note": note,
            "type": if event.warning { "Warning" } else { "Normal" },
            "regarding": event.regarding.reference(),
        });
        let resource = ApiResource {
            group: "events.k8s.io".to_owned(),
            version: "v1".to_owned(),
            api_version: "events.k8s.io/v1".to_owned(),
            kind: "Event".to_owned(),
            plural: "events".to_owned(),
        };
        if let Err(error) = self.create(&resource, &object).await {
            tracing::warn!(reason = event.reason, note = event.note, %error, "an event could not be written");
        }
        Ok(())
    }

    fn is_new(&self, event: &ObjectEvent) -> bool {
        let mut recorded = self.recorded.lock().unwrap_or_else(PoisonError::into_inner);
        if recorded.count >= RECORDED_EVENTS_MAX {
            *recorded = RecordedEvents::default();
        }
        let is_new =
            recorded.by_uid.entry(event.regarding.uid.clone()).or_default().insert((event.reason, event.note.clone()));
        recorded.count += usize::from(is_new);
        is_new
    }
}

/// A short description of a write, for logs.
fn describe(write: &Write) -> String {
    match write {
        Write::Create { resource, object } => {
            let metadata = &object["metadata"];
            format!("create {} {}/{}", resource.kind, text(&metadata["namespace"]), text(&metadata["name"]))
        }
        Write::Patch { target, .. } => format!("patch {} {}/{}", target.resource.kind, target.namespace, target.name),
        Write::Delete { target } => format!("delete {} {}/{}", target.resource.kind, target.namespace, target.name),
        Write::Condition(change) => {
            let target = &change.target;
            format!("patch the status of {} {}/{}", target.resource.kind, target.namespace, target.name)
        }
        Write::Event(event) => {
            format!("event on {} {}/{}", event.regarding.resource.kind, event.regarding.namespace, event.regarding.name)
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

impl std::fmt::Debug for Actuator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Actuator").field("identity", &self.identity).finish_non_exhaustive()
    }
}
