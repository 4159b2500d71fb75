//! `muster run` as a process: it connects, leads, serves probes, and exits with the right code.
//!
//! The test waits for log lines and for the exit of the process, never for a fixed time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{Patch, PatchParams};
use muster_playground::{Server, Settings};
use serde_json::{Value, json};

/// A playground on a socket, with its own runtime.
struct Cluster {
    runtime: tokio::runtime::Runtime,
    server: Server,
    kubeconfig: PathBuf,
}

impl Cluster {
    fn start(name: &str) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (server, address) = runtime.block_on(async {
            let server = Server::start(Settings::default());
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let served = server.clone();
            tokio::spawn(async move { served.serve(listener).await });
            (server, address)
        });
        let kubeconfig = std::env::temp_dir().join(format!("muster-run-{}-{name}", std::process::id()));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": {}}],
        });
        std::fs::write(&kubeconfig, text.to_string()).unwrap();
        Self { runtime, server, kubeconfig }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.server.client(), "default")
    }

    fn lease(&self) -> LeaseSpec {
        self.runtime.block_on(async { self.leases().get("muster").await.unwrap().spec.unwrap() })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// A Muster process and its log.
struct Process {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    seen: Vec<String>,
    address: SocketAddr,
}

impl Process {
    fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[])
    }

    fn start_with(cluster: &Cluster, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_muster"))
            .args(["run", "--lease-namespace", "default", "--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(&cluster.kubeconfig)
            .args(arguments)
            .env("POD_NAME", "me")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut process = Self { child, log, seen: Vec::new(), address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let line = process.wait_for("serves health and metrics");
        process.address = line["address"].as_str().and_then(|text| text.parse().ok()).expect("an address");
        process
    }

    /// Reads the log up to a line with this message and returns that line.
    fn wait_for(&mut self, message: &str) -> Value {
        loop {
            let mut line = String::new();
            assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "{message} was never logged: {:#?}", self.seen);
            let value: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
            self.seen.push(line);
            if value["message"].as_str().is_some_and(|text| text.contains(message)) {
                return value;
            }
        }
    }

    fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: muster\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the exit; returns the exit code and the last line of the log.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        let last = rest.lines().last().or(self.seen.last().map(String::as_str)).unwrap_or_default().to_owned();
        (self.child.wait().unwrap().code(), last)
    }
}

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
