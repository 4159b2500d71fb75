//! The decision record: every input of the engine as a line of JSON, in a new file per start.
//!
//! The scheduling loop only appends lines to a buffer; a thread writes them out at least once a second and at the end.
//! A record has no gaps: when the file is full, or the disk fails or is too slow, the record ends there with an error
//! in the log, and scheduling goes on.
//! Must not depend on what the lines mean.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use jiff::Timestamp;
use muster_engine::{Config, Observation};
use serde::Serialize;

use crate::config::RecordSettings;

const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// A larger buffer means that the disk does not keep up.
const WAITING_BYTES_MAX: usize = 256 << 20;
/// From this size on the writer is woken early.
const WAITING_BYTES_MANY: usize = 1 << 20;

/// A record that is being written. Clones write to the same file; it is complete when the last one is dropped.
#[derive(Clone, Debug)]
pub struct Record {
    inner: Arc<Inner>,
}

/// Why a record cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("recording decisions to {path}: {source}", path = path.display())]
pub struct RecordError {
    path: PathBuf,
    source: io::Error,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    path: PathBuf,
    writer: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    waiting: Vec<u8>,
    /// How many bytes may still be written.
    room_bytes: u64,
    /// The last record is dropped.
    ends: bool,
    /// Why the record has ended early, if it has.
    stopped: Option<String>,
}

/// The engine's `record::Line`, borrowed.
#[derive(Serialize)]
enum Line<'a> {
    Start(&'a Config),
    Observe(u64, &'a Observation),
    Decide(u64),
}

impl Record {
    /// Creates a new file in the directory, named by time and identity, and writes the configuration to it.
    pub fn create(
        settings: &RecordSettings,
        config: &Config,
        identity: &str,
        now: Timestamp,
    ) -> Result<Self, RecordError> {
        let path = settings.dir.join(file_name(identity, now));
        let fail = |source| RecordError { path: path.clone(), source };
        std::fs::create_dir_all(&settings.dir).map_err(fail)?;
        let file = OpenOptions::new().write(true).create_new(true).open(&path).map_err(fail)?;
        let state = State { waiting: Vec::new(), room_bytes: settings.size_max_bytes, ends: false, stopped: None };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        let writer = {
            let (shared, path) = (Arc::clone(&shared), path.clone());
            let write = move || write_out(&shared, file, &path);
            std::thread::Builder::new().name("record".to_owned()).spawn(write).map_err(fail)?
        };
        let record = Self { inner: Arc::new(Inner { shared, path, writer: Some(writer) }) };
        record.add(&Line::Start(config));
        Ok(record)
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// Records an observation.
    pub fn observe(&self, now_ms: u64, observation: &Observation) {
        self.add(&Line::Observe(now_ms, observation));
    }

    /// Records a call for a decision.
    pub fn decide(&self, now_ms: u64) {
        self.add(&Line::Decide(now_ms));
    }

    /// Why the record ended early, if it did.
    pub fn stopped(&self) -> Option<String> {
        self.inner.shared.state().stopped.clone()
    }

    fn add(&self, line: &Line<'_>) {
        let mut state = self.inner.shared.state();
        if state.stopped.is_some() {
            return;
        }
        let before = state.waiting.len();
        serde_json::to_writer(&mut state.waiting, line).expect("plain data can always be written as JSON");
        state.waiting.push(b'\n');
        let size = (state.waiting.len() - before) as u64;
        let reason = match state.room_bytes.checked_sub(size) {
            None => "the file has reached its size limit",
            Some(_) if state.waiting.len() > WAITING_BYTES_MAX => "the disk does not keep up",
            Some(rest) => {
                state.room_bytes = rest;
                if before < WAITING_BYTES_MANY && state.waiting.len() >= WAITING_BYTES_MANY {
                    self.inner.shared.changed.notify_one();
                }
                return;
            }
        };
        // A line that does not fit is left out completely.
        state.waiting.truncate(before);
        stop(&mut state, &self.inner.path, reason);
    }
}

fn stop(state: &mut State, path: &Path, reason: &str) {
    tracing::error!(file = %path.display(), "the record of decisions ends here: {reason}");
    state.stopped = Some(reason.to_owned());
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.state().ends = true;
        self.shared.changed.notify_one();
        if let Some(writer) = self.writer.take() {
            // A writer that panicked need not be waited for.
            let _ = writer.join();
        }
    }
}

fn write_out(shared: &Shared, mut file: File, path: &Path) {
    let mut chunk = Vec::new();
    loop {
        let mut state = shared.state();
        if !state.ends && state.waiting.len() < WAITING_BYTES_MANY {
            let waited = shared.changed.wait_timeout(state, FLUSH_EVERY);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let ends = state.ends;
        std::mem::swap(&mut chunk, &mut state.waiting);
        drop(state);
        if let Err(error) = file.write_all(&chunk) {
            stop(&mut shared.state(), path, &error.to_string());
            return;
        }
        chunk.clear();
        if ends {
            return;
        }
    }
}

/// Sorts by time; contains only characters that every file system accepts.
fn file_name(identity: &str, now: Timestamp) -> String {
    let plain = |text: &str| -> String {
        text.chars()
            .map(|character| if character.is_ascii_alphanumeric() || character == '.' { character } else { '-' })
            .collect()
    };
    let time = plain(&now.strftime("%Y%m%dT%H%M%S%.3fZ").to_string());
    format!("muster-{time}-{}.jsonl", plain(identity))
}

#[cfg(test)]
mod tests {
    use muster_engine::model::node::NodeSpec;
    use muster_engine::record::{self, Recorder};

    use super::*;

    fn settings(name: &str, size_max_bytes: u64) -> RecordSettings {
        let dir = std::env::temp_dir().join(format!("muster-record-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        RecordSettings { dir, size_max_bytes }
    }

    fn create(settings: &RecordSettings) -> Record {
        Record::create(settings, &Config::default(), "host_1", Timestamp::from_millisecond(1_500).unwrap()).unwrap()
    }

    fn node(name: &str) -> Observation {
        Observation::NodeSeen(NodeSpec { name: name.into(), ..NodeSpec::default() })
    }

    #[test]
    fn the_recorded_lines_are_those_of_the_engine() {
        let settings = settings("same", 1 << 20);
        let record = create(&settings);
        let mut recorder = Recorder::new(Config::default()).unwrap();
        for number in 0..100 {
            let seen = node(&format!("n{number}"));
            record.observe(number, &seen);
            recorder.observe(number, seen).unwrap();
            record.decide(number);
            recorder.decide(number);
        }
        let path = record.path().to_owned();
        assert_eq!(path.file_name().unwrap(), "muster-19700101T000001.500Z-host-1.jsonl");
        drop(record);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().eq(recorder.take_lines().iter().map(String::as_str)));
        assert_eq!(record::replay(text.lines()).unwrap().len(), 100);
        std::fs::remove_dir_all(settings.dir).unwrap();
    }

    #[test]
    fn a_full_file_ends_with_a_complete_line() {
        let settings = settings("full", 2_000);
        let record = create(&settings);
        let mut taken = 0;
        while record.stopped().is_none() {
            record.decide(taken);
            taken += 1;
        }
        record.decide(0);
        assert!(record.stopped().unwrap().contains("size limit"));
        let path = record.path().to_owned();
        drop(record);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.len() <= 2_000 && text.ends_with("}\n"), "{}", text.len());
        assert_eq!(record::replay(text.lines()).unwrap().len() as u64, taken - 1);
        std::fs::remove_dir_all(settings.dir).unwrap();
    }

    #[test]
    fn an_unusable_directory_is_named() {
        let settings = RecordSettings { dir: PathBuf::from("/proc/no"), size_max_bytes: 1 };
        let error = Record::create(&settings, &Config::default(), "a", Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(error.to_string().starts_with("recording decisions to /proc/no/muster-"), "{error}");
    }
}
