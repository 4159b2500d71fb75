//! Node features that a pod requires, with the names of Kubernetes.

use std::collections::BTreeSet;

use muster_api::wire::Pod;

/// The features that the pod's node must declare.
pub(super) fn features(pod: &Pod) -> BTreeSet<String> {
    let spec = &pod.spec;
    let containers = || spec.containers.iter().chain(&spec.init_containers);
    let restarts_all =
        containers().flat_map(|one| &one.restart_policy_rules).any(|rule| rule.action == "RestartAllContainers");
    let mounts = containers().chain(&spec.ephemeral_containers).flat_map(|one| &one.volume_mounts);
    let mounts_with_options = mounts.into_iter().any(|mount| !mount.bind_mount_options.is_empty());
    let own_users_on_host_network = spec.host_network && spec.host_users == Some(false);
    let needs = [
        ("RestartAllContainersOnContainerExits", restarts_all),
        ("UserNamespacesHostNetworkSupport", own_users_on_host_network),
        ("VolumeBindMountOptions", mounts_with_options),
    ];
    needs.into_iter().filter(|(_, needed)| *needed).map(|(name, _)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(spec: &Value) -> Vec<String> {
        features(&serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()).into_iter().collect()
    }

    #[test]
    fn required_features_are_found() {
        let rule = |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [1]}}]);
        let with = |action: &str| json!({"containers": [{"name": "a", "restartPolicyRules": rule(action)}]});
        assert_eq!(of(&with("RestartAllContainers")), ["RestartAllContainersOnContainerExits"]);
        assert!(of(&with("Restart")).is_empty());
        assert!(of(&json!({"containers": [], "hostNetwork": true})).is_empty());
        let own = json!({"containers": [], "hostNetwork": true, "hostUsers": false});
        assert_eq!(of(&own), ["UserNamespacesHostNetworkSupport"]);
        let mount = json!([{"name": "v", "bindMountOptions": ["noexec"]}]);
        let late = json!({"containers": [], "ephemeralContainers": [{"name": "a", "volumeMounts": mount}]});
        assert_eq!(of(&late), ["VolumeBindMountOptions"]);
    }
}
