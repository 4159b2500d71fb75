//! `muster-lab bench cluster` at a small scale: all three schedulers bind all gangs on a real control plane without
//! violations.

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
fn all_schedulers_bind_all_gangs() {
    let Some(control_plane) = control_plane() else {
        assert!(std::env::var_os("CI").is_none(), "there is no control plane: run tools/controlplane/build");
        eprintln!("SKIPPED: there is no control plane. tools/controlplane/build builds one (it needs Go).");
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
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    let report: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    let measurements = report["tallies"].as_array().unwrap();
    let names: Vec<_> = measurements.iter().map(|measurement| measurement["contestant"].as_str().unwrap()).collect();
    assert_eq!(names, ["kube-scheduler", "muster", "null-binder"]);
    for measurement in measurements {
        assert_eq!(
            (&measurement["pods"], &measurement["writes"]["POST pods/binding"]),
            (&60.into(), &60.into()),
            "{measurement:#}"
        );
        assert_eq!(
            (&measurement["partial_gangs"], &measurement["overcommitted_nodes"]),
            (&0.into(), &0.into()),
            "{measurement:#}"
        );
    }
}
