//! A running control plane, from `controlplane up` to `controlplane down`.
//!
//! Invariant: a plane is stopped with its value. The leftovers of a killed process are removed by the next start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use thiserror::Error;

use crate::binary::Binary;

const FOLDER_PREFIX: &str = "muster-plane-";

/// The APIs that a cluster serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Profile {
    /// The scheduling API and its feature gates are on.
    Gates,
    /// The defaults of a stock cluster.
    Stock,
}

impl Profile {
    /// As in `controlplane up --profile gates`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gates => "gates",
            Self::Stock => "stock",
        }
    }
}

/// Why a plane or one of its programs could not be started or stopped.
#[derive(Debug, Error)]
pub enum PlaneError {
    /// The command could not be run at all.
    #[error("{command}: {source}")]
    NotRun {
        /// The command.
        command: String,
        /// The cause.
        source: io::Error,
    },
    /// The command failed.
    #[error("{command} failed:\n{output}")]
    Failed {
        /// The command.
        command: String,
        /// Its output.
        output: String,
    },
}

/// Each certificate signer uses one of the 128 inotify instances that Linux gives a user. They are not needed here, and
/// without them a third more planes can run at a time.
const NO_SIGNERS: [&str; 4] = [
    "--flag",
    "kube-controller-manager=--cluster-signing-cert-file=",
    "--flag",
    "kube-controller-manager=--cluster-signing-key-file=",
];

/// A control plane. It is stopped with this value.
#[derive(Debug)]
pub struct Plane {
    binary: Binary,
    folder: PathBuf,
}

impl Plane {
    /// Starts one and waits until it is ready. `arguments` are additional flags of `controlplane up`.
    pub fn start(binary: &Binary, profile: Profile, arguments: &[&str]) -> Result<Self, PlaneError> {
        static STARTED: AtomicU32 = AtomicU32::new(0);
        remove_orphans(binary);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("{FOLDER_PREFIX}{}-{number}", std::process::id()));
        let plane = Self { binary: binary.clone(), folder };
        let up = || {
            let mut up = plane.command("up");
            up.args(["--profile", profile.name()]).args(NO_SIGNERS).args(arguments);
            run(up)
        };
        // Another plane may have taken a port between its choice and its use.
        up().or_else(|_| up())?;
        Ok(plane)
    }

    /// The kubeconfig of a cluster admin.
    pub fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The folder with its logs and data.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The binary that it was started from.
    pub fn binary(&self) -> &Binary {
        &self.binary
    }

    /// The process of one of its programs, if it runs.
    pub fn pid(&self, program: &str) -> Option<u32> {
        fs::read_to_string(self.folder.join(format!("{program}.pid"))).ok()?.trim().parse().ok()
    }

    /// Restarts one of its programs, with the same flags and data.
    pub fn start_program(&self, program: &str) -> Result<(), PlaneError> {
        let mut start = self.command("start");
        start.arg(program);
        run(start)
    }

    fn command(&self, name: &str) -> Command {
        let mut command = self.binary.program(name);
        command.arg("--folder").arg(&self.folder);
        command
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        if let Err(error) = run(self.command("down")) {
            eprintln!("a control plane was left behind in {}: {error}", self.folder.display());
        }
    }
}

/// Runs a command to its end; its output is shown only if it fails.
fn run(mut command: Command) -> Result<(), PlaneError> {
    let shown = format!("{command:?}");
    let not_run = |source| PlaneError::NotRun { command: shown.clone(), source };
    let done = command.stdin(Stdio::null()).output().map_err(not_run)?;
    if done.status.success() {
        return Ok(());
    }
    let output = [done.stdout, done.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    Err(PlaneError::Failed { command: shown, output })
}

/// Stops planes whose owner has ended without doing so.
fn remove_orphans(binary: &Binary) {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)) else { continue };
        let Some(owner) = rest.split('-').next().and_then(|owner| owner.parse::<u32>().ok()) else { continue };
        if !Path::new(&format!("/proc/{owner}")).exists() {
            let mut down = binary.program("down");
            down.arg("--folder").arg(entry.path());
            // Another process may be doing the same.
            run(down).ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_a_failing_command_is_reported() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo no room >&2; exit 3"]);
        let error = run(command).unwrap_err().to_string();
        assert!(error.contains("no room"), "{error}");
        let error = run(Command::new("/nowhere/at/all")).unwrap_err().to_string();
        assert!(error.starts_with("\"/nowhere/at/all\": "), "{error}");
    }
}
