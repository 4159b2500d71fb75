//! `muster run` as a process: it connects, leads, serves probes, withstands hostile clients, and exits with the right code.

mod hostile_clients;
mod process;
mod secure_metrics;
mod tls_client;

use std::path::PathBuf;
use std::process::Command;

use kube::api::{Patch, PatchParams};
use serde_json::json;

use self::process::{Cluster, Process};

#[test]
fn leads_serves_probes_and_releases_the_lease_on_sigterm() {
    let cluster = Cluster::start("well");
    let mut process = Process::start(&cluster);
    process.wait_for("this process leads");
    let holder = cluster.lease().holder_identity.unwrap();
    assert!(holder.starts_with("me_"), "{holder}");
    assert!(process.ask("/livez").starts_with("HTTP/1.1 200"));
    assert!(process.ask("/metrics").contains("muster_leader 1"));
    process.signal("-TERM");
    let (code, last) = process.end();
    assert_eq!(code, Some(0), "{last}");
    assert_eq!(cluster.lease().holder_identity.as_deref(), Some(""));
}

#[test]
fn second_replica_is_ready_without_leading() {
    let cluster = Cluster::start("standby");
    let mut first = Process::start(&cluster);
    first.wait_for("this process leads");
    let mut second = Process::start(&cluster);
    second.wait_for("stands by");
    assert!(second.ask("/readyz").starts_with("HTTP/1.1 200"));
    assert!(second.ask("/metrics").contains("muster_leader 0"));
    second.signal("-INT");
    assert_eq!(second.end().0, Some(0));
    first.signal("-TERM");
    assert_eq!(first.end().0, Some(0));
}

#[test]
fn lost_lease_exits_with_code_one_and_logs_it() {
    let cluster = Cluster::start("lost");
    let mut process = Process::start(&cluster);
    process.wait_for("this process leads");
    let thief = Patch::Merge(json!({"spec": {"holderIdentity": "thief"}}));
    cluster
        .runtime
        .block_on(async { cluster.leases().patch("muster", &PatchParams::default(), &thief).await.unwrap() });
    let (code, last) = process.end();
    assert_eq!(code, Some(1));
    assert!(last.contains("no longer leads: the lease is held by thief"), "{last}");
}

#[test]
fn decisions_are_recorded_and_replayed() {
    let cluster = Cluster::start("record");
    let folder = std::env::temp_dir().join(format!("muster-run-{}-records", std::process::id()));
    let mut process = Process::start_with(&cluster, &["--record-dir", folder.to_str().unwrap()]);
    process.wait_for("decisions are recorded");
    process.signal("-TERM");
    assert_eq!(process.end().0, Some(0));
    let records: Vec<PathBuf> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(records.len(), 1, "{records:?}");
    let out = Command::new(env!("CARGO_BIN_EXE_muster")).arg("replay").arg(&records[0]).output().unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(out.status.success(), "{out:?}");
    assert!(String::from_utf8(out.stdout).unwrap().contains("decisions"));
}

#[test]
fn printed_configuration_can_be_read_back() {
    let muster = |arguments: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_muster")).arg("run").args(arguments).output().unwrap();
        (out.status.code(), String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap())
    };
    let (code, printed, _) =
        muster(&["--print-config", "--feature-gates=GangScheduling=false", "--leader-elect=false"]);
    assert_eq!(code, Some(0));
    assert!(printed.contains("GangScheduling: false"), "{printed}");
    let path = std::env::temp_dir().join(format!("muster-config-{}.yaml", std::process::id()));
    std::fs::write(&path, &printed).unwrap();
    let (_, again, _) = muster(&["--print-config", "--config", path.to_str().unwrap()]);
    assert_eq!(again, printed);
    std::fs::write(&path, printed.replacen("listen:", "listne:", 1)).unwrap();
    let (code, _, error) = muster(&["--config", path.to_str().unwrap()]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(code, Some(2));
    assert!(error.contains("listne: unknown field `listne`"), "{error}");
}
