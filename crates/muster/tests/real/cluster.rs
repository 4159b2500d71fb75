//! Client access to a control plane: its kubeconfig and its kubectl.

use std::io::Write as _;
use std::process::{Output, Stdio};

use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_controlplane::Plane;

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
