//! The kubectl binaries to test: those that `tools/kubectl` has built, or the one in the PATH if it is supported.
//!
//! Without one the tests are skipped with a message; if `CI` is set they fail.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

/// The minor versions that are supported.
const SUPPORTED: std::ops::RangeInclusive<u32> = 32..=37;

/// A kubectl.
#[derive(Clone, Debug)]
pub(crate) struct Kubectl {
    pub(crate) path: PathBuf,
    /// `kubectl-1.37`.
    pub(crate) name: String,
}

/// All binaries to test, the newest first.
pub(crate) static KUBECTLS: LazyLock<Vec<Kubectl>> = LazyLock::new(find);

fn find() -> Vec<Kubectl> {
    let tool = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/kubectl/build");
    let built = Command::new(tool).arg("--built").output().map(|output| output.stdout).unwrap_or_default();
    let built = String::from_utf8_lossy(&built);
    let mut found: Vec<Kubectl> = built.lines().filter_map(|path| of_path(PathBuf::from(path))).collect();
    if std::env::var_os("CI").is_some() {
        let pinned = include_str!("../../../../tools/kubectl/versions");
        let pinned: Vec<&str> = pinned.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(found.len(), pinned.len(), "not all of {pinned:?} are built: run tools/kubectl/build");
    }
    if found.is_empty() {
        found.extend(in_path().and_then(of_path));
    }
    if found.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "there is no kubectl to test with: run tools/kubectl/build");
        // Written past the test harness, which hides the output of passing tests.
        let line = "=".repeat(70);
        let banner = format!(
            "{line}\nSKIPPED: the kubectl tests, since there is no kubectl of 1.32 to 1.37.\n\
             tools/kubectl/build builds one (it needs Go).\n{line}\n"
        );
        // A closed stderr is ignored.
        let _ = std::io::stderr().write_all(banner.as_bytes());
    }
    found
}

/// The kubectl in the PATH, by its full path: the test cases put a script named kubectl in front, which calls this one.
fn in_path() -> Option<PathBuf> {
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join("kubectl")).find(|path| path.is_file())
}

/// The kubectl at a path, if it exists and is supported.
fn of_path(path: PathBuf) -> Option<Kubectl> {
    let output = Command::new(&path).args(["version", "--client", "--output=json"]).output().ok()?;
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let minor = version["clientVersion"]["minor"].as_str()?.trim_end_matches('+');
    let minor: u32 = minor.parse().ok()?;
    SUPPORTED.contains(&minor).then(|| Kubectl { path, name: format!("kubectl-1.{minor}") })
}
