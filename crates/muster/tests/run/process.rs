//! A playground on a socket and a `muster run` process next to it.
//!
//! Tests wait for log lines and for the exit of the process, never for a fixed time.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use muster_playground::{Server, Settings};
use serde_json::{Value, json};

/// After this long without an answer a request has failed, even on a busy machine.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// A playground on a socket, with its own runtime.
pub(crate) struct Cluster {
    pub(crate) runtime: tokio::runtime::Runtime,
    pub(crate) server: Server,
    kubeconfig: PathBuf,
}

impl Cluster {
    pub(crate) fn start(name: &str) -> Self {
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

    pub(crate) fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.server.client(), "default")
    }

    pub(crate) fn lease(&self) -> LeaseSpec {
        self.runtime.block_on(async { self.leases().get("muster").await.unwrap().spec.unwrap() })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// A Muster process and its log.
pub(crate) struct Process {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    seen: Vec<String>,
    /// The address of health and metrics.
    pub(crate) address: SocketAddr,
}

impl Process {
    pub(crate) fn start(cluster: &Cluster) -> Self {
        Self::start_with(cluster, &[])
    }

    pub(crate) fn start_with(cluster: &Cluster, arguments: &[&str]) -> Self {
        let mut child = Command::new("sh")
            // The limit of open files that many container runtimes set.
            .args(["-c", "ulimit -n 1024; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_muster")])
            .args(["run", "--lease-namespace", "default", "--listen", "127.0.0.1:0", "--kubeconfig"])
            .arg(&cluster.kubeconfig)
            .args(arguments)
            .env("POD_NAME", "me")
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut process = Self { child, log, seen: Vec::new(), address: SocketAddr::from(([127, 0, 0, 1], 0)) };
        let line = process.wait_for("serves health");
        process.address = line["address"].as_str().and_then(|text| text.parse().ok()).expect("an address");
        process
    }

    /// The first line of the log with this message, which may have been read already: threads log in any order.
    pub(crate) fn wait_for(&mut self, message: &str) -> Value {
        for number in 0.. {
            if number == self.seen.len() {
                let mut line = String::new();
                assert_ne!(self.log.read_line(&mut line).unwrap(), 0, "{message} was never logged: {:#?}", self.seen);
                self.seen.push(line);
            }
            let line = &self.seen[number];
            let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
            if value["message"].as_str().is_some_and(|text| text.contains(message)) {
                return value;
            }
        }
        unreachable!("the log ends first")
    }

    pub(crate) fn ask(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: muster\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// The most memory that the process has had so far.
    pub(crate) fn memory_mib_peak(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a peak");
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() >> 10
    }

    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }

    /// Waits for the exit; returns the exit code and the last line of the log.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).unwrap();
        let last = rest.lines().last().or(self.seen.last().map(String::as_str)).unwrap_or_default().to_owned();
        (self.child.wait().unwrap().code(), last)
    }
}

impl Drop for Process {
    /// A failed test leaves no process behind.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
