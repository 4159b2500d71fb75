//! A server whose state is on a disk: opened from it, answered only with what is on it, read-only when it fails.
//!
//! Invariant: no client ever sees what a crash can take back. An answer waits until the revision that it saw is on the
//! disk; when the disk has failed, what did not get there is taken back and nothing is written any more.

use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;

use muster_determinism::clock::Clock;
use muster_determinism::random::Random;
use muster_playground_store::{Contents, Disk, Entry, Saved, StateError, keep};
use tokio::sync::watch;

use super::failure::Failure;
use super::state::State;
use super::{Server, Settings, dispatch};
use crate::housekeeping;
use crate::kinds::{Definition, is_established};

const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// How far the disk has got.
#[derive(Clone, Debug)]
struct Progress {
    settled: u64,
    broken: Option<Arc<str>>,
}

/// The thread that writes, and how far it has got.
pub(crate) struct Durability {
    progress: watch::Receiver<Progress>,
    writer: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts a server whose state is kept in a folder, and goes on with what is there. Needs a tokio runtime.
    ///
    /// Nothing that a client was told is lost, also if the process or the machine stops at any moment. UIDs and generated
    /// names are drawn by chance, not from the seed: they must not come again after a restart.
    pub fn open(settings: Settings, folder: &Path) -> Result<Self, StateError> {
        let (disk, contents) = Disk::open(folder)?;
        Self::on(disk, contents, settings)
    }

    pub(crate) fn on(disk: Disk, contents: Contents, settings: Settings) -> Result<Self, StateError> {
        let clock = settings.start.map_or_else(Clock::real, Clock::starting_at);
        let mut state = State::new(&settings, clock.now());
        state.random = Random::new(chance());
        let revision = contents.revision;
        restore(&mut state, contents, disk.file())?;
        let (sender, entries) = mpsc::channel();
        state.store.resume(revision, sender);
        dispatch::bootstrap(&mut state);
        state.admission = settings.admission;
        housekeeping::take_stock(&mut state);
        let state = Arc::new(Mutex::new(state));
        let durability = Durability::start(disk, entries, &state, revision);
        Ok(Self::with(state, clock, settings.housekeeping_delay, Some(durability)))
    }
}

/// A number that no other start draws.
fn chance() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}

/// Fills a fresh state with what the disk holds.
fn restore(state: &mut State, contents: Contents, file: &Path) -> Result<(), StateError> {
    let (definitions, others): (Vec<Saved>, _) =
        contents.objects.into_iter().partition(|saved| saved.table == DEFINITIONS);
    for saved in definitions {
        restore_one(state, saved, file)?;
    }
    serve_definitions(state);
    for saved in others {
        restore_one(state, saved, file)?;
    }
    Ok(())
}

fn restore_one(state: &mut State, saved: Saved, file: &Path) -> Result<(), StateError> {
    let Some(kind) = state.registry.of_table_name(&saved.table).cloned() else {
        return Err(StateError::NotServed { file: file.to_owned(), resource: saved.table });
    };
    let restored = state.store.restore(kind.table, saved.text, &kind.fields());
    let why = |error| format!("an object of {}: {error}", saved.table);
    restored.map_err(|error| StateError::Damaged { file: file.to_owned(), why: why(error) })
}

/// Serves the definitions that the store holds. One that is being deleted is served until it is gone.
fn serve_definitions(state: &mut State) {
    let kind = state.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let stored = state.store.list(kind.table, None).map(|object| object.value());
    let served: Vec<Definition> =
        stored.filter(is_established).filter_map(|definition| Definition::of(&definition).ok()).collect();
    state.registry.define_only(&mut state.store, served);
}

impl Durability {
    fn start(disk: Disk, entries: Receiver<Entry>, state: &Arc<Mutex<State>>, revision: u64) -> Self {
        let (told, progress) = watch::channel(Progress { settled: revision, broken: None });
        let state = Arc::clone(state);
        let writer = std::thread::Builder::new().name("state".to_owned());
        let writer = writer.spawn(move || write(&disk, &entries, &state, &told));
        Self { progress, writer: Some(writer.expect("a thread can be started")) }
    }

    /// Waits until `revision` is on the disk.
    pub(crate) async fn settled(&self, revision: u64) -> Result<(), Failure> {
        let mut progress = self.progress.clone();
        let done = |progress: &Progress| progress.settled >= revision || progress.broken.is_some();
        let broken = match progress.wait_for(done).await {
            Ok(progress) if progress.settled >= revision => return Ok(()),
            Ok(progress) => progress.broken.clone(),
            Err(_) => None,
        };
        let why = broken.as_deref().unwrap_or("the writer has ended");
        Err(Failure::internal(format!(
            "the state could not be written, and whether this took effect is not known: {why}"
        )))
    }

    /// Waits until everything is on the disk and the folder is free. The store must be closed.
    pub(crate) fn finish(&mut self) {
        if let Some(writer) = self.writer.take() {
            // A panic of the writer was told to everybody who waited for it.
            let _ = writer.join();
        }
    }
}

/// What the thread does, to its end.
fn write(disk: &Disk, entries: &Receiver<Entry>, state: &Mutex<State>, told: &watch::Sender<Progress>) {
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let tell = |outcome| tell(&mut lock(), told, outcome);
    let at_rest = || state.lock().ok();
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| keep(disk, entries, at_rest, tell)));
    if outcome.is_err() {
        tell(Err(format!("{}: the writer has panicked", disk.file().display())));
    }
}

/// The disk has got so far, or has failed.
fn tell(state: &mut State, told: &watch::Sender<Progress>, outcome: Result<u64, String>) {
    match outcome {
        Ok(settled) => {
            state.store.settle(settled);
            told.send_modify(|progress| progress.settled = settled);
        }
        Err(why) => {
            let why: Arc<str> = why.into();
            state.chores.clear();
            state.store.take_back(Arc::clone(&why));
            serve_definitions(state);
            told.send_modify(|progress| progress.broken = Some(why));
        }
    }
}

/// What writes are told when the disk has failed.
pub(crate) fn refused(why: &str) -> Failure {
    Failure::internal(format!("the server only reads since its state could not be written: {why}"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;
    use http_body_util::BodyExt;
    use muster_playground_store::unlucky::failing_after;
    use serde_json::{Value, json};

    use super::*;

    async fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
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
    async fn when_the_disk_fails_the_server_says_so_and_shows_what_is_on_it() {
        const PATH: &str = "/api/v1/namespaces/default/configmaps";
        for steps in [30, 55, 80, 120] {
            let contents = Contents { revision: 1, objects: Vec::new() };
            let server = Server::on(failing_after(steps), contents, Settings::default()).unwrap();
            let (mut good, mut told, mut code) = (Vec::new(), Value::Null, 201);
            for turn in 0..500 {
                let name = format!("map-{turn:03}");
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}});
                (code, told) = ask(&server, "POST", PATH, &body).await;
                if code != 201 {
                    break;
                }
                good.push(name);
            }
            assert_eq!(code, 500, "{steps}: {told}");
            assert!(told["message"].as_str().unwrap().contains("no space left on this device"), "{told}");
            assert_eq!((&told["kind"], &told["reason"]), (&json!("Status"), &json!("InternalError")));
            // What was acknowledged is there, what was not is not, and nothing can be written.
            let (code, list) = ask(&server, "GET", PATH, &Value::Null).await;
            assert_eq!((code, names(&list)), (200, good.iter().map(String::as_str).collect()), "{steps}");
            assert_eq!(list["metadata"]["resourceVersion"], server.revision().to_string());
            for (method, path) in [("POST", PATH.to_owned()), ("DELETE", format!("{PATH}/map-000"))] {
                let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
                let (code, told) = ask(&server, method, &path, &body).await;
                assert_eq!(code, 500, "{told}");
                assert!(told["message"].as_str().unwrap().contains("only reads"), "{told}");
            }
            assert_eq!(ask(&server, "GET", PATH, &Value::Null).await.1, list);
        }
    }
}
