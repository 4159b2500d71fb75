//! All stories on a real control plane, with the kubectl of its version: what they tell is true there.

use muster_controlplane::{Plane, Profile, Version, required};

use super::kubectls::Kubectl;
use super::play::play_at;

/// What the playground has not: accounts in namespaces with what belongs to them, and a hint for kubelets.
const WITHOUT: [&str; 4] = [
    "--flag",
    "kube-apiserver=--disable-admission-plugins=ServiceAccount",
    "--flag",
    "kube-controller-manager=--controllers=*,-root-ca-certificate-publisher-controller,-ttl-controller",
];

#[test]
fn every_story_is_true_on_a_real_control_plane() {
    let Some(binary) = required(Version::V1_37, "the kubectl stories on a real control plane") else { return };
    let plane = Plane::start(&binary, Profile::Gates, &WITHOUT).unwrap_or_else(|error| panic!("{error}"));
    // The binary is kubectl when it is called so.
    let path = plane.folder().join("kubectl");
    std::os::unix::fs::symlink(binary.path(), &path).expect("a link");
    let kubectl = Kubectl { path, name: "kubectl-1.37".to_owned() };
    for story in super::stories() {
        play_at(&story, Some(&plane.kubeconfig()), std::slice::from_ref(&kubectl));
    }
}
