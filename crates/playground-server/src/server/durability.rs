//! A server with durable state: recovers it from disk, acknowledges only durable writes, and is read-only after a disk
//! failure.
//!
//! Invariant: clients never see a change that a crash could undo. A response waits until the revision that it saw is on
//! the disk; after a disk failure, changes that are not durable are rolled back and all writes are refused.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use muster_clock::Clock;
use muster_determinism::random::Random;
use muster_playground_store::{Contents, Disk, Entry, JournalError, StateError, StoredObject, persist};
use tokio::sync::watch;

use super::state::State;
use super::status_error::StatusError;
use super::{Server, Settings, dispatch};
use crate::controllers;
use crate::kinds::{Definition, is_established};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The progress of the disk.
#[derive(Clone, Debug)]
struct Progress {
    durable: u64,
    write_error: Option<Arc<str>>,
}

/// The writer thread and its progress.
pub(crate) struct Durability {
    progress: watch::Receiver<Progress>,
    writer: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server whose state is kept in a directory, and continues with the state found there. Needs a tokio
    /// runtime.
    ///
    /// No acknowledged write is lost, even if the process or the machine stops at any moment. UIDs and generated names
    /// do not come from the seed: they must not repeat after a restart.
    pub fn open(settings: Settings, folder: &Path) -> Result<Self, StateError> {
        let (disk, contents) = Disk::open(folder)?;
        Self::from_disk(disk, contents, settings)
    }

    pub(crate) fn from_disk(disk: Disk, contents: Contents, settings: Settings) -> Result<Self, StateError> {
        let clock = settings.start.map_or_else(Clock::real, Clock::starting_at);
        let mut state = State::new(&settings, clock.now());
        state.random = Random::new(random_seed());
        let revision = contents.revision;
        restore(&mut state, contents, disk.file())?;
        let (sender, entries) = mpsc::channel();
        state.store.resume(revision, sender);
        dispatch::bootstrap(&mut state);
        state.webhook = settings.admission;
        controllers::enqueue_all(&mut state);
        let state = Arc::new(Mutex::new(state));
        let durability = Durability::start(disk, entries, &state, revision);
        Ok(Self::with(state, clock, settings.controllers_delay, Some(durability)))
    }
}

/// A seed that differs for every start.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Fills a new state with the contents of the disk.
fn restore(state: &mut State, contents: Contents, file: &Path) -> Result<(), StateError> {
    let (definitions, others): (Vec<StoredObject>, _) =
        contents.objects.into_iter().partition(|stored| stored.table == DEFINITIONS);
    for stored in definitions {
        restore_one(state, stored, file)?;
    }
    serve_definitions(state);
    for stored in others {
        restore_one(state, stored, file)?;
    }
    Ok(())
}

fn restore_one(state: &mut State, stored: StoredObject, file: &Path) -> Result<(), StateError> {
    let Some(kind) = state.registry.of_table_name(&stored.table).cloned() else {
        return Err(StateError::NotServed { file: file.to_owned(), resource: stored.table });
    };
    let restored = state.store.restore(kind.table, stored.text, &kind.fields());
    let why = |error| format!("an object of {}: {error}", stored.table);
    restored.map_err(|error| StateError::Damaged { file: file.to_owned(), why: why(error) })
}

/// Serves the stored definitions. One that is being deleted is served until it is removed.
fn serve_definitions(state: &mut State) {
    let kind = state.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let stored = state.store.list(kind.table, None).map(|object| object.value());
    let served: Vec<Definition> =
        stored.filter(is_established).filter_map(|definition| Definition::of(&definition).ok()).collect();
    state.registry.define_only(&mut state.store, served);
}

impl Durability {
    fn start(disk: Disk, entries: Receiver<Entry>, state: &Arc<Mutex<State>>, revision: u64) -> Self {
        let (sender, progress) = watch::channel(Progress { durable: revision, write_error: None });
        let state = Arc::clone(state);
        let writer = std::thread::Builder::new().name("state".to_owned());
        let writer = writer.spawn(move || write(&disk, &entries, &state, &sender));
        Self { progress, writer: Some(writer.expect("a thread can be started")) }
    }

    /// Waits until `revision` is on the disk.
    pub(crate) async fn wait_until_durable(&self, revision: u64) -> Result<(), StatusError> {
        let mut progress = self.progress.clone();
        let done = |progress: &Progress| progress.durable >= revision || progress.write_error.is_some();
        let write_error = match progress.wait_for(done).await {
            Ok(progress) if progress.durable >= revision => return Ok(()),
            Ok(progress) => progress.write_error.clone(),
            Err(_) => None,
        };
        let why = write_error.as_deref().unwrap_or("the writer has ended");
        Err(StatusError::internal(format!(
            "the state could not be written, and whether this took effect is not known: {why}"
        )))
    }

    /// Waits until everything is on the disk and the directory is released. The store must be closed.
    pub(crate) fn finish(&mut self) {
        if let Some(writer) = self.writer.take() {
            // A panic of the writer was reported to everything that waited for it.
            let _ = writer.join();
        }
    }
}

/// The body of the writer thread.
fn write(disk: &Disk, entries: &Receiver<Entry>, state: &Mutex<State>, sender: &watch::Sender<Progress>) {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let report_progress = |outcome| report_progress(&mut lock(), sender, outcome);
    let quiesce = || state.lock().ok();
    let outcome =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| persist(disk, entries, quiesce, report_progress)));
    if outcome.is_err() {
        report_progress(Err(JournalError::WriterPanicked { file: disk.file().to_owned() }));
    }
}

/// Publishes the progress or the failure of the disk.
fn report_progress(state: &mut State, sender: &watch::Sender<Progress>, outcome: Result<u64, JournalError>) {
    match outcome {
        Ok(durable) => {
            state.store.mark_durable(durable);
            sender.send_modify(|progress| progress.durable = durable);
        }
        Err(error) => {
            let why: Arc<str> = error.to_string().into();
            state.work_queue.clear();
            state.store.rollback(Arc::clone(&why));
            serve_definitions(state);
            sender.send_modify(|progress| progress.write_error = Some(why));
        }
    }
}

/// The error of writes after a disk failure.
pub(crate) fn read_only_error(why: &str) -> StatusError {
    StatusError::internal(format!("the server only reads since its state could not be written: {why}"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use muster_playground_store::faulty_disk::failing_after;
    use serde_json::{Value, json};

    use super::*;

    async fn send(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
        let response = server.answer(request.body(Body::from(body.to_string())).unwrap()).await;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap_or_default())
    }

    fn names(list: &Value) -> Vec<&str> {
        list["items"].as_array().unwrap().iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
    }

    #[tokio::test]
    async fn after_disk_failure_server_is_read_only_with_durable_state() {
        const PATH: &str = "/api/v1/namespaces/default/configmaps";
        for operations in [30, 55, 80, 120] {
            let contents = Contents { revision: 1, objects: Vec::new() };
            let server = Server::from_disk(failing_after(operations), contents, Settings::default()).unwrap();
            let (mut good, mut status, mut code) = (Vec::new(), Value::Null, 201);
            for turn in 0..500 {
                let name = format!("map-{turn:03}");
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                (code, status) = send(&server, "POST", PATH, &body).await;
                if code != 201 {
                    break;
                }
                good.push(name);
            }
            assert_eq!(code, 500, "{operations}: {status}");
            assert!(status["message"].as_str().unwrap().contains("no space left on this device"), "{status}");
            assert_eq!((&status["kind"], &status["reason"]), (&json!("Status"), &json!("InternalError")));
            // Acknowledged writes are there, others are not, and nothing can be written.
            let (code, list) = send(&server, "GET", PATH, &Value::Null).await;
            assert_eq!((code, names(&list)), (200, good.iter().map(String::as_str).collect()), "{operations}");
            assert_eq!(list["metadata"]["resourceVersion"], server.revision().to_string());
            for (method, path) in [("POST", PATH.to_owned()), ("DELETE", format!("{PATH}/map-000"))] {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
                let (code, status) = send(&server, method, &path, &body).await;
                assert_eq!(code, 500, "{status}");
                assert!(status["message"].as_str().unwrap().contains("only reads"), "{status}");
            }
            assert_eq!(send(&server, "GET", PATH, &Value::Null).await.1, list);
        }
    }
}
