//! `muster-lab bench cluster` in small: all three contestants place all gangs on a real control plane, and nothing comes to harm.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The newest control plane that is built.
fn control_plane() -> Option<PathBuf> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/controlplane/build");
    let built = Command::new(tool).arg("--built").output().ok()?;
    let paths = String::from_utf8(built.stdout).ok()?;
    paths.lines().find(|path| path.contains("-v1.37.")).map(PathBuf::from)
}

#[test]
fn everybody_places_all_gangs() {
    let Some(control_plane) = control_plane() else {
        assert!(std::env::var_os("CI").is_none(), "there is no control plane: run tools/controlplane/build");
        eprintln!("SKIPPED: there is no control plane. tools/controlplane/build makes one (it needs Go).");
        return;
    };
    let file = std::env::temp_dir().join(format!("muster-bench-cluster-{}.json", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_muster-lab"))
        .args(["bench", "cluster", "--only", "gangs-of-3", "--scale", "0.02", "--lenient", "--controlplane"])
        .arg(control_plane)
        .arg("--json")
        .arg(&file)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let tallies = report["tallies"].as_array().unwrap();
    let names: Vec<_> = tallies.iter().map(|tally| tally["contestant"].as_str().unwrap()).collect();
    assert_eq!(names, ["kube-scheduler", "muster", "null-binder"]);
    for tally in tallies {
        assert_eq!((&tally["pods"], &tally["writes"]["POST pods/binding"]), (&60.into(), &60.into()), "{tally:#}");
        assert_eq!((&tally["partial_gangs"], &tally["overcommitted_nodes"]), (&0.into(), &0.into()), "{tally:#}");
    }
}
