//! Client access to a control plane: its kubeconfig and its kubectl.

use std::io::Write as _;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_controlplane::Plane;

const SERVED_WITHIN: Duration = Duration::from_secs(60);

/// The client configuration of a control plane, with all permissions.
pub(crate) async fn config_of(plane: &Plane) -> kube::Config {
    let file = Kubeconfig::read_from(plane.kubeconfig()).expect("a kubeconfig");
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config")
}

pub(crate) async fn client_of(plane: &Plane) -> kube::Client {
    kube::Client::try_from(config_of(plane).await).expect("a client")
}

/// Calls the kubectl of the control plane's version; it must succeed.
pub(crate) fn kubectl(plane: &Plane, arguments: &[&str]) -> Output {
    kubectl_fed(plane, arguments, "")
}

/// Adds the field `gangConfig` to the CRD of JobSets, as users do, and waits until it is served.
pub(crate) fn add_gang_config(plane: &Plane) {
    let patch = Command::new(env!("CARGO_BIN_EXE_muster")).args(["manifests", "--jobset-gang-config"]).output();
    let patch = String::from_utf8(patch.expect("muster").stdout).expect("text");
    kubectl(plane, &["patch", "crd", "jobsets.jobset.x-k8s.io", "--type=json", "--patch", &patch]);
    let explained = || {
        let mut explain = plane.binary().program("kubectl");
        explain.arg("--kubeconfig").arg(plane.kubeconfig()).args(["explain", "jobsets.spec.gangConfig.gangMode"]);
        explain.output().expect("kubectl").status.success()
    };
    let until = Instant::now() + SERVED_WITHIN;
    while !explained() {
        assert!(Instant::now() < until, "the patched CRD of JobSets is not served");
    }
}

/// The same with standard input, for `-f -`.
pub(crate) fn kubectl_fed(plane: &Plane, arguments: &[&str], input: &str) -> Output {
    let mut command = plane.binary().program("kubectl");
    command.arg("--kubeconfig").arg(plane.kubeconfig()).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kubectl");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
    let done = child.wait_with_output().expect("kubectl ends");
    assert!(done.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    done
}
