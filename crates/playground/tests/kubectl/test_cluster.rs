//! The cluster that a test case runs on: its own playground, or the cluster of a kubeconfig.
//!
//! On a playground everything is simulated. On another cluster only the nodes are, and the pod controllers are its own.
//! Must not depend on the content of test cases.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use muster_playground::clock::Clock;
use muster_playground::components::{Cluster, KubeletSettings, Kubelets, Shape};
use muster_playground::{Server, Settings, kubectl};
use tokio::runtime::Runtime;

/// The nodes of every test case: node-0 to node-3.
const NODES: &str = r#"{"pools": [{
    "name": "node", "count": 4,
    "capacity": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"},
    "domains": [{"key": "playground.muster.dev/rack", "count": 2}]
}]}"#;

/// One runtime for all servers, with its own threads: the tests wait for processes.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Runtime::new().expect("a runtime"));

fn shape() -> Shape {
    Shape::from_json(NODES).expect("nodes")
}

/// The cluster.
pub(crate) enum TestCluster {
    Playground { url: String, _cluster: Box<Cluster> },
    Other { kubeconfig: PathBuf, _nodes: OtherNodes, _alone: MutexGuard<'static, ()> },
}

/// Simulated nodes of another cluster, and the proxy through which they reach it.
pub(crate) struct OtherNodes {
    proxy: Child,
    _kubelets: Kubelets,
}

impl TestCluster {
    /// The cluster of the kubeconfig, or a new playground.
    pub(crate) fn open(kubectl: &Path, kubeconfig: Option<&Path>) -> Self {
        match kubeconfig {
            Some(kubeconfig) => Self::other(kubectl, kubeconfig.to_owned()),
            None => Self::playground(),
        }
    }

    pub(crate) fn is_playground(&self) -> bool {
        matches!(self, TestCluster::Playground { .. })
    }

    fn playground() -> Self {
        RUNTIME.block_on(async {
            let server = Server::start(Settings::default()).with_presentation(kubectl());
            let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
            let url = format!("http://{}", listener.local_addr().expect("an address"));
            let cluster = Cluster::start(&server.client(), &shape(), server.clock()).expect("nodes");
            tokio::spawn(async move { server.serve(listener).await });
            TestCluster::Playground { url, _cluster: Box::new(cluster) }
        })
    }

    fn other(kubectl: &Path, kubeconfig: PathBuf) -> Self {
        // Test cases share its nodes, and so run one after the other.
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut proxy = Command::new(kubectl)
            .args(["proxy", "--port=0", "--kubeconfig"])
            .arg(&kubeconfig)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a proxy");
        let mut line = String::new();
        BufReader::new(proxy.stdout.take().expect("its output")).read_line(&mut line).expect("a line");
        let address = line.trim().rsplit(' ').next().expect("an address");
        let url = format!("http://{address}").parse().expect("an address");
        let kubelets = RUNTIME.block_on(async {
            let client = kube::Client::try_from(kube::Config::new(url)).expect("a client");
            Kubelets::start(client, &shape(), KubeletSettings::default(), Clock::real()).expect("nodes")
        });
        TestCluster::Other { kubeconfig, _nodes: OtherNodes { proxy, _kubelets: kubelets }, _alone: alone }
    }

    /// Writes a kubeconfig whose default namespace is this one.
    pub(crate) fn write_kubeconfig(&self, path: &Path, kubectl: &Path, namespace: &str) {
        match self {
            TestCluster::Playground { url, .. } => {
                let text = format!(
                    "apiVersion: v1\nkind: Config\nclusters: [{{name: here, cluster: {{server: \"{url}\"}}}}]\n\
                     contexts: [{{name: here, context: {{cluster: here, user: me, namespace: {namespace}}}}}]\n\
                     users: [{{name: me, user: {{}}}}]\ncurrent-context: here\n"
                );
                std::fs::write(path, text).expect("a kubeconfig");
            }
            TestCluster::Other { kubeconfig, .. } => {
                std::fs::copy(kubeconfig, path).expect("a kubeconfig");
                let set = Command::new(kubectl)
                    .args(["config", "set-context", "--current", "--namespace", namespace, "--kubeconfig"])
                    .arg(path)
                    .stdout(Stdio::null())
                    .status();
                assert!(set.is_ok_and(|status| status.success()), "a namespace in the kubeconfig");
            }
        }
    }
}

impl Drop for OtherNodes {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.proxy.kill();
        let _ = self.proxy.wait();
    }
}
