//! A Muster process that is restarted as by a Deployment when it loses its lease.
//!
//! Invariant: no process outlives its value, and an unexpected exit is a failure.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The exit code of a process that lost its lease.
const LOST: i32 = 1;
/// The time limit of a graceful shutdown.
const END_WITHIN: Duration = Duration::from_secs(20);
const POLL_EVERY: Duration = Duration::from_millis(20);
/// How many lines of its log a failing test prints.
const SHOWN_MAX: usize = 30;

/// A lease that expires soon, but not on a machine that is merely busy.
pub(crate) fn short_lease() -> Value {
    json!({"leaseDuration": "8s", "renewDeadline": "6s", "retryPeriod": "1s"})
}

/// One replica.
pub(crate) struct Replica {
    name: String,
    arguments: Vec<String>,
    log: PathBuf,
    child: Option<Child>,
    /// How often it was restarted because it had lost its lease.
    restarts: u32,
}

impl Replica {
    /// Starts a process. `name` is the prefix of its identity as lease holder.
    pub(crate) fn start(name: &str, log: PathBuf, arguments: Vec<String>) -> Self {
        let mut replica = Self { name: name.to_owned(), arguments, log, child: None, restarts: 0 };
        replica.start_again();
        replica
    }

    /// Starts the process again after it has ended.
    pub(crate) fn start_again(&mut self) {
        assert!(self.child.is_none(), "{} runs", self.name);
        let log = File::options().create(true).append(true).open(&self.log).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["run", "--listen", "127.0.0.1:0"])
            .args(&self.arguments)
            .env("POD_NAME", &self.name)
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("muster can be started"));
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Restarts the process if it lost its lease; an error if it ended unexpectedly.
    pub(crate) fn check_process(&mut self) -> Result<(), String> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let Some(ended) = child.try_wait().expect("the state of a process") else { return Ok(()) };
        self.child = None;
        if ended.code() != Some(LOST) {
            return Err(format!("{} ended unexpectedly: {ended}", self.name));
        }
        self.restarts += 1;
        self.start_again();
        Ok(())
    }

    /// Sends a signal, such as `-STOP`.
    pub(crate) fn signal(&self, signal: &str) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("kill");
        assert!(sent.success(), "kill {signal} {id}");
    }

    /// Kills the process (SIGKILL). It is not restarted.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a process of ours");
            child.wait().expect("a process of ours");
        }
    }

    /// Stops the process (SIGTERM) and waits for its exit.
    pub(crate) fn end(&mut self) -> ExitStatus {
        self.signal("-TERM");
        let mut child = self.child.take().expect("it runs");
        let until = Instant::now() + END_WITHIN;
        loop {
            if let Some(ended) = child.try_wait().expect("the state of a process") {
                return ended;
            }
            if Instant::now() >= until {
                child.kill().expect("a process of ours");
                panic!("{} did not end within {END_WITHIN:?}:\n{}", self.name, self.dump());
            }
            std::thread::sleep(POLL_EVERY);
        }
    }

    /// All log lines, including those before restarts.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    /// The end of its log, without lines that are logged for each pod.
    pub(crate) fn dump(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().filter(|line| !line.contains(r#""message":"bind""#)).collect();
        let tail = &lines[lines.len().saturating_sub(SHOWN_MAX)..];
        format!("the log of {} ({}) ends with:\n{}", self.name, self.log.display(), tail.join("\n"))
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        self.kill();
    }
}
