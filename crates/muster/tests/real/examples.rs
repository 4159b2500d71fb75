//! Every example on a real cluster: applied by its kubectl, scheduled by `muster run`, until its pods run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube::Api;
use kube::api::ListParams;
use muster_api::wire::Pod;
use muster_controlplane::{Plane, Profile, Version, required};
use muster_playground::clock::Clock;
use muster_playground::components::{KubeletSettings, Kubelets, Shape, StorageDrivers};
use serde_json::Value;

use crate::cluster::{client_of, kubectl};

const LONG: Duration = Duration::from_secs(60);

/// Nodes with capacity for all examples.
const NODES: &str = r#"{"pools": [{
    "name": "node", "count": 4, "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": "8"},
    "labels": {"topology.kubernetes.io/zone": "zone-0"}
}]}"#;

/// `muster run`, stopped when dropped.
struct Muster(Child);

impl Muster {
    fn start(plane: &Plane) -> Self {
        let log = std::fs::File::create(plane.folder().join("muster.log")).expect("a log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_muster"));
        command.args(["run", "--lease-namespace", "default", "--listen", "127.0.0.1:0", "--kubeconfig"]);
        Self(command.arg(plane.kubeconfig()).stdin(Stdio::null()).stderr(log).spawn().expect("a process"))
    }
}

impl Drop for Muster {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn examples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files: Vec<PathBuf> =
        folder.read_dir().expect("a folder").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    files
}

/// The number of pods that a file creates.
fn pods_of(file: &Path) -> usize {
    let text = std::fs::read_to_string(file).expect("an example");
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).expect("documents");
    let number =
        |document: &Value, path: &str| document.pointer(path).and_then(Value::as_u64).expect("a number") as usize;
    let pods = documents.iter().map(|document| match document["kind"].as_str() {
        Some("Pod") => 1,
        Some("Job") => number(document, "/spec/parallelism"),
        Some("ReplicaSet" | "Deployment") => number(document, "/spec/replicas"),
        Some("LeaderWorkerSet") => {
            number(document, "/spec/replicas") * number(document, "/spec/leaderWorkerTemplate/size")
        }
        Some("JobSet") => {
            let jobs = document["spec"]["replicatedJobs"].as_array().expect("a list").iter();
            jobs.map(|job| number(job, "/replicas") * number(job, "/template/spec/parallelism")).sum()
        }
        _ => 0,
    });
    pods.sum()
}

/// Pods that are bound and have started.
fn has_begun(pod: &Pod) -> bool {
    !pod.spec.node_name.is_empty() && pod.status.phase != "Pending"
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_example_runs_on_a_real_control_plane() {
    let Some(binary) = required(Version::V1_37, "the examples on a real control plane") else { return };
    let with = ["--with", "jobset,lws"];
    let plane = Plane::start(&binary, Profile::Gates, &with).unwrap_or_else(|error| panic!("{error}"));
    let client = client_of(&plane).await;
    let shape = Shape::from_json(NODES).expect("a shape");
    let _kubelets = Kubelets::start(client.clone(), &shape, KubeletSettings::default(), Clock::real()).expect("nodes");
    let _drivers = StorageDrivers::start(client.clone(), Clock::real());
    let definitions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../api/crds");
    kubectl(&plane, &["apply", "-R", "-f", &definitions.to_string_lossy()]);
    let _muster = Muster::start(&plane);
    let api: Api<Pod> = Api::namespaced(client, "default");
    let mut wanted = 0;
    for file in examples() {
        let output = kubectl(&plane, &["apply", "-f", &file.to_string_lossy()]);
        assert!(output.stderr.is_empty(), "{}: {}", file.display(), String::from_utf8_lossy(&output.stderr));
        wanted += pods_of(&file);
        let all_began = async {
            loop {
                let pods = api.list(&ListParams::default()).await.expect("pods").items;
                if pods.len() == wanted && pods.iter().all(has_begun) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        if tokio::time::timeout(LONG, all_began).await.is_err() {
            let log = std::fs::read_to_string(plane.folder().join("muster.log")).unwrap_or_default();
            let pods = kubectl(&plane, &["get", "pods", "-o", "wide"]);
            panic!(
                "{}: not all of {wanted} pods started\n{}\n{log}",
                file.display(),
                String::from_utf8_lossy(&pods.stdout)
            );
        }
    }
}
