//! `muster-lab up` as a process: it prints its address, its demo starts, clients work on it, the examples run, and it
//! stops gracefully.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use muster_api::wire::Pod;
use serde_json::Value;

/// Longer than anything takes on a busy machine.
const LONG: Duration = Duration::from_secs(120);

/// A cluster in its own process.
struct Up {
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
    kubeconfig: PathBuf,
}

impl Up {
    fn start(name: &str, arguments: &[&str]) -> Self {
        let kubeconfig = std::env::temp_dir().join(format!("muster-up-{}-{name}.kubeconfig", std::process::id()));
        let mut child = Command::new(env!("CARGO_BIN_EXE_muster-lab"))
            .args(["up", "--port", "0", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        let (output, lines) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| output.send(line)));
        let mut up = Self { child, lines, seen: Vec::new(), kubeconfig };
        up.wait_for("Ctrl-C ends all of it.");
        up
    }

    /// Reads the output up to a line with this text and returns that line.
    fn wait_for(&mut self, text: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LONG);
            let line = line.unwrap_or_else(|why| panic!("{text:?} was never printed ({why}): {:#?}", self.seen));
            self.seen.push(line.clone());
            if line.contains(text) {
                return line;
            }
        }
    }

    async fn client(&self) -> kube::Client {
        let read = kube::config::Kubeconfig::read_from(&self.kubeconfig).unwrap();
        let options = kube::config::KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(read, &options).await.unwrap();
        kube::Client::try_from(config).unwrap()
    }

    fn end(mut self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(kill.success());
        let ended = self.child.wait().unwrap();
        assert!(ended.success(), "{ended}: {:#?}", self.seen);
        assert!(!self.kubeconfig.exists(), "the kubeconfig is left behind");
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn demo_starts_a_gang_and_keeps_another_pending_until_it_fits() {
    let mut up = Up::start("training", &["--speed", "30"]);
    up.wait_for("PodGroup demo/train is placed: 8 pods on 8 nodes");
    up.wait_for("PodGroup demo/next waits: 4 of 8 waiting pods fit");
    let notebooks = Api::<Pod>::namespaced(up.client().await, "demo");
    let notebooks = notebooks.list(&ListParams::default().labels("app=notebook")).await.unwrap().items;
    assert_eq!(notebooks.iter().filter(|pod| !pod.spec.node_name.is_empty()).count(), 4);
    up.wait_for("PodGroup demo/next is placed: 8 pods on 8 nodes");
    up.end("-INT");
}

#[test]
fn deadlock_occurs_pod_by_pod_and_not_with_gangs() {
    let mut up = Up::start("deadlock", &["--demo", "deadlock", "--nodes", "4", "--speed", "10"]);
    up.wait_for("a has 2 of 3, b has 2 of 3; 16 of 16 GPUs held");
    up.wait_for("Muster: 2 of 2 gangs have done their work");
    up.wait_for("Pod by pod: 0 of 2 gangs have done their work, and 16 GPUs are held");
    up.end("-TERM");
}

#[test]
fn demo_topology_shows_ranks_on_racks_and_a_gang_that_waits_for_one() {
    let mut up = Up::start("topology", &["--demo", "topology", "--speed", "10"]);
    up.wait_for("zone-1  rack-2  wide:0 wide:1 wide:2 wide:3");
    up.wait_for("zone-1  rack-3  wide:4 wide:5 wide:6 wide:7");
    up.wait_for("PodGroup demo/next is placed: 4 pods on 4 nodes");
    up.end("-INT");
}

#[tokio::test]
async fn cluster_with_a_state_continues_after_it_was_killed() {
    let folder = std::env::temp_dir().join(format!("muster-up-state-{}", std::process::id()));
    let state = folder.to_str().unwrap();
    let mut up = Up::start("state", &["--state", state, "--demo", "deadlock", "--nodes", "4"]);
    up.wait_for("a runs all 3, b is pending; 12 of 16 GPUs held");
    up.child.kill().unwrap();
    up.child.wait().unwrap();
    drop(up);
    let mut up = Up::start("state-again", &["--state", state, "--nodes", "4", "--speed", "10"]);
    assert!(up.seen.iter().any(|line| line.contains("continues at revision")), "{:#?}", up.seen);
    // The running gang finishes its work, then the other is scheduled.
    up.wait_for("PodGroup demo/muster-b is placed: 3 pods on 2 nodes");
    let pods = Api::<Pod>::namespaced(up.client().await, "demo").list(&ListParams::default()).await.unwrap().items;
    assert_eq!(pods.len(), 12);
    up.end("-INT");
    std::fs::remove_dir_all(folder).unwrap();
}

#[tokio::test]
async fn every_example_passes_strict_validation_and_its_pods_run() {
    let mut up = Up::start("examples", &["--empty", "--speed", "5"]);
    up.wait_for("The cluster is empty");
    let client = up.client().await;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files: Vec<PathBuf> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(files.len() >= 5, "{files:?}");
    for file in &files {
        let text = std::fs::read_to_string(file).unwrap();
        let comments = text.lines().take_while(|line| line.starts_with("# ")).count();
        assert_eq!(comments, 3, "{}: three lines of comments are expected", file.display());
        let before = pods(&client).await.len();
        let wanted = before + apply(&up, &client, file, &text).await;
        let name = file.display();
        until(&format!("{name}: {wanted} pods have a node"), async || {
            let pods = pods(&client).await;
            pods.len() == wanted && pods.iter().all(|pod| !pod.spec.node_name.is_empty())
        })
        .await;
    }
    up.end("-INT");
}

/// The newest kubectl that was built for the tests, if there is one.
fn kubectl() -> Option<String> {
    let tool = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/kubectl/build");
    let built = Command::new(tool).arg("--built").output().ok()?;
    String::from_utf8(built.stdout).ok()?.lines().next().map(str::to_owned)
}

/// Creates the objects of a file, by kubectl if it is there, and returns the number of pods.
async fn apply(up: &Up, client: &kube::Client, file: &Path, text: &str) -> usize {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).unwrap();
    let kubectl = kubectl();
    if let Some(kubectl) = &kubectl {
        let mut command = Command::new(kubectl);
        let applied =
            command.arg("--kubeconfig").arg(&up.kubeconfig).arg("apply").arg("-f").arg(file).output().unwrap();
        assert!(applied.status.success(), "{}: {}", file.display(), String::from_utf8_lossy(&applied.stderr));
        assert!(applied.stderr.is_empty(), "{}", String::from_utf8_lossy(&applied.stderr));
    }
    let mut pods = 0;
    for document in documents {
        let number = |path: &str| document.pointer(path).and_then(Value::as_u64).map(|number| number as usize);
        pods += match document["kind"].as_str() {
            Some("Pod") => 1,
            Some("Job") => number("/spec/parallelism").unwrap(),
            Some("ReplicaSet" | "Deployment") => number("/spec/replicas").unwrap(),
            Some("LeaderWorkerSet") => {
                number("/spec/replicas").unwrap() * number("/spec/leaderWorkerTemplate/size").unwrap()
            }
            Some("JobSet") => pods_of_set(&document),
            _ => 0,
        };
        if kubectl.is_some() {
            continue;
        }
        let text = |field: &str| document[field].as_str().unwrap_or_default();
        let (group, version) = text("apiVersion").split_once('/').unwrap_or(("", text("apiVersion")));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")));
        let api: Api<DynamicObject> = match text("kind") {
            "StorageClass" => Api::all_with(client.clone(), &resource),
            _ => Api::namespaced_with(client.clone(), "default", &resource),
        };
        let path = api.resource_url().to_owned();
        let request = http::Request::post(format!("{path}?fieldValidation=Strict"));
        let request = request.header("Content-Type", "application/json").body(document.to_string().into_bytes());
        let created = client.request::<Value>(request.unwrap()).await;
        created.unwrap_or_else(|error| panic!("{document}: {error}"));
    }
    pods
}

/// The number of pods of a JobSet.
fn pods_of_set(set: &Value) -> usize {
    let of_job =
        |job: &Value| job["replicas"].as_u64().unwrap() * job["template"]["spec"]["parallelism"].as_u64().unwrap();
    set["spec"]["replicatedJobs"].as_array().unwrap().iter().map(of_job).sum::<u64>() as usize
}

async fn pods(client: &kube::Client) -> Vec<Pod> {
    Api::<Pod>::namespaced(client.clone(), "default").list(&ListParams::default()).await.unwrap().items
}

async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waited = tokio::time::timeout(LONG, async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what}: not within {} s", LONG.as_secs());
}
