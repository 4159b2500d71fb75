//! Runs all test cases on a real control plane, with the kubectl of its version.

use muster_controlplane::{Plane, Profile, Version, required};

use super::kubectls::Kubectl;
use super::runner::run_test_case_on;

/// Disables what the playground lacks: service accounts in namespaces with their objects, and the TTL annotation of
/// nodes.
const WITHOUT: [&str; 4] = [
    "--flag",
    "kube-apiserver=--disable-admission-plugins=ServiceAccount",
    "--flag",
    "kube-controller-manager=--controllers=*,-root-ca-certificate-publisher-controller,-ttl-controller",
];

#[test]
fn every_test_case_passes_on_a_real_control_plane() {
    let Some(binary) = required(Version::V1_37, "the kubectl tests on a real control plane") else { return };
    let plane = Plane::start(&binary, Profile::Gates, &WITHOUT).unwrap_or_else(|error| panic!("{error}"));
    // The binary acts as kubectl when it is called by that name.
    let path = plane.folder().join("kubectl");
    std::os::unix::fs::symlink(binary.path(), &path).expect("a link");
    let kubectl = Kubectl { path, name: "kubectl-1.37".to_owned() };
    for test_case in super::test_cases() {
        run_test_case_on(&test_case, Some(&plane.kubeconfig()), std::slice::from_ref(&kubectl));
    }
}
