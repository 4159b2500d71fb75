//! Finds the binary with all programs of one Kubernetes version, where `tools/controlplane/build` put it.
//!
//! Nothing is built here: a build takes many minutes and belongs before the tests, not into one of them.

use std::fmt;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A minor version of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// 1.35: Workloads of `scheduling.k8s.io/v1alpha1`.
    V1_35,
    /// 1.36: Workloads and PodGroups of `scheduling.k8s.io/v1alpha2`.
    V1_36,
    /// 1.37: Workloads and PodGroups of `scheduling.k8s.io/v1beta1` and `v1alpha3`.
    V1_37,
}

impl Version {
    /// All of them, the newest first.
    pub const ALL: [Self; 3] = [Self::V1_37, Self::V1_36, Self::V1_35];

    /// As in `tools/controlplane/build 1.37`.
    pub fn name(self) -> &'static str {
        match self {
            Self::V1_35 => "1.35",
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// All programs of one version in one file. Its first argument selects the program.
#[derive(Clone, Debug)]
pub struct Binary {
    path: PathBuf,
}

impl Binary {
    /// The binary of a version, if it was built.
    pub fn find(version: Version) -> Option<Self> {
        let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/controlplane/build");
        let output = Command::new(tool).arg("--built").output().ok()?;
        let paths = String::from_utf8(output.stdout).ok()?;
        Some(Self { path: of_version(&paths, version)?.into() })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command that runs one of its programs.
    pub fn program(&self, name: &str) -> Command {
        let mut command = Command::new(&self.path);
        command.arg(name);
        command
    }
}

/// The path of a version's binary.
fn of_version(paths: &str, version: Version) -> Option<&str> {
    let name = format!("controlplane-v{version}.");
    paths.lines().find(|path| path.rsplit('/').next().is_some_and(|file| file.starts_with(&name)))
}

/// The binary that a test needs. Without it the test has to skip `what`, which is reported on stderr; if `CI` is set it
/// is a failure.
pub fn required(version: Version, what: &str) -> Option<Binary> {
    let found = Binary::find(version);
    if found.is_none() {
        let message =
            format!("SKIPPED: {what}: Kubernetes {version} is not built (tools/controlplane/build {version})");
        assert!(std::env::var_os("CI").is_none(), "{message}");
        let line = "=".repeat(message.len());
        // Written past the test harness, which hides the output of passing tests. A closed stderr is ignored.
        let _ = writeln!(std::io::stderr(), "{line}\n{message}\n{line}");
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_is_found_by_version() {
        let paths = "/c/controlplane-v1.37.1-0a\n/controlplane-v1.36.0/controlplane-v1.35.8-0b\n";
        assert_eq!(of_version(paths, Version::V1_37), Some("/c/controlplane-v1.37.1-0a"));
        assert_eq!(of_version(paths, Version::V1_35), Some("/controlplane-v1.36.0/controlplane-v1.35.8-0b"));
        assert_eq!(of_version(paths, Version::V1_36), None);
    }
}
