//! A plane as a client sees it: its kubeconfig read, its kubectl called.

use std::process::Output;

use kube::config::{KubeConfigOptions, Kubeconfig};
use muster_controlplane::Plane;

/// How to reach a plane, with all rights.
pub(crate) async fn config_of(plane: &Plane) -> kube::Config {
    let file = Kubeconfig::read_from(plane.kubeconfig()).expect("a kubeconfig");
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config")
}

pub(crate) async fn client_of(plane: &Plane) -> kube::Client {
    kube::Client::try_from(config_of(plane).await).expect("a client")
}

/// Calls the kubectl of the plane's own version; it must end well.
pub(crate) fn kubectl(plane: &Plane, arguments: &[&str]) -> Output {
    let mut command = plane.binary().program("kubectl");
    let done = command.arg("--kubeconfig").arg(plane.kubeconfig()).args(arguments).output().expect("kubectl");
    assert!(done.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    done
}
