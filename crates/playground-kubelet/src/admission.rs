//! Kubelet admission: the checks of a real kubelet for a pod that was bound to its node, with the same order and
//! messages.
//!
//! Must not depend on the clock or on how pods run.

use muster_api::invalid::FieldPath;
use muster_api::node_selector::NodeSelector;
use muster_api::pod_requests::pod_requests;
use muster_api::resources::{BaseUnits, CPU, MEMORY, ResourceKind};
use muster_api::selector::{Labels, Requirement, validate_match_labels};
use muster_api::toleration::{Effect, Taint, Toleration, WrittenToleration};
use muster_api::wire::pod::PodSpec;
use muster_api::wire::{Pod, container::ContainerPort};
use muster_playground_client::untyped::UntypedPod;

const EPHEMERAL_STORAGE: &str = "ephemeral-storage";
const PODS: &str = "pods";
const ANY_ADDRESS: &str = "0.0.0.0";

/// Why a pod is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: String,
    pub(super) message: String,
}

/// What a pod requires of its node.
#[derive(Clone, Debug)]
pub(super) struct PodRequirements {
    requests: BaseUnits,
    ports: Vec<Port>,
    selector: Vec<Requirement>,
    affinity: Option<NodeSelector>,
    tolerations: Vec<Toleration>,
}

/// A host port.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Port {
    number: i32,
    protocol: String,
    address: String,
}

/// The node's properties that admission checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeInfo<'a> {
    pub(super) name: &'a str,
    pub(super) labels: &'a Labels,
    pub(super) taints: &'a [Taint],
    pub(super) allocatable: &'a BaseUnits,
}

impl PodRequirements {
    /// Reads the requirements from the pod's spec.
    pub(super) fn read(pod: &UntypedPod) -> Result<Self, Rejection> {
        // A pod that the server accepted can be read; otherwise it is rejected like any unexpected error in a real
        // kubelet.
        let unexpected = |why: String| Rejection { reason: "UnexpectedAdmissionError".to_owned(), message: why };
        let spec: PodSpec = serde_json::from_value(pod.spec.clone()).map_err(|error| unexpected(error.to_string()))?;
        let pod = Pod { metadata: pod.metadata.clone(), spec, ..Pod::default() };
        let requests = pod_requests(&pod, false).map_err(|error| unexpected(error.to_string()))?.requests;
        let spec = &pod.spec;
        let affinity = spec.affinity.as_ref().and_then(|all| all.node_affinity.as_ref()?.required.as_ref());
        let path = FieldPath::Root("spec");
        let rules = || {
            let affinity = affinity.map(|one| one.validate(&path.child("affinity"))).transpose()?;
            let selector = validate_match_labels(&spec.node_selector, &path.child("nodeSelector"))?;
            let tolerations = WrittenToleration::validate_all(&spec.tolerations, &path.child("tolerations"))?;
            Ok((affinity, selector, tolerations))
        };
        let (affinity, selector, tolerations) =
            rules().map_err(|error: muster_api::invalid::InvalidField| unexpected(error.to_string()))?;
        let containers = spec.containers.iter().chain(spec.init_containers.iter().filter(|one| one.is_sidecar()));
        let ports = containers.flat_map(|one| &one.ports).filter_map(Port::of).collect();
        Ok(Self { requests, ports, selector, affinity, tolerations })
    }

    /// Checks whether the node admits the pod next to its current pods, and returns the first reason against it.
    pub(super) fn admit<'a>(
        &self,
        node: &NodeInfo<'_>,
        others: impl Iterator<Item = &'a PodRequirements>,
    ) -> Result<(), Rejection> {
        let others: Vec<&PodRequirements> = others.collect();
        self.check_resources(node, &others)?;
        let selected = self.selector.iter().all(|one| one.matches(node.labels))
            && self.affinity.as_ref().is_none_or(|one| one.matches(node.labels, node.name));
        if !selected {
            return Err(predicate("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
        }
        if others
            .iter()
            .any(|other| self.ports.iter().any(|port| other.ports.iter().any(|taken| port.conflicts_with(taken))))
        {
            return Err(predicate("NodePorts", "node(s) didn't have free ports for the requested pod ports"));
        }
        let mut taints = node.taints.iter().filter(|taint| taint.effect == Effect::NoExecute);
        if taints.any(|taint| !self.tolerations.iter().any(|one| one.tolerates(taint))) {
            return Err(predicate("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
        }
        Ok(())
    }

    fn check_resources(&self, node: &NodeInfo<'_>, others: &[&PodRequirements]) -> Result<(), Rejection> {
        let capacity = |name: &str| node.allocatable.get(name).copied().unwrap_or_default();
        let used = others.len() as i64;
        if used + 1 > capacity(PODS) {
            return Err(insufficient(PODS, 1, used, capacity(PODS)));
        }
        let first = [CPU, MEMORY, EPHEMERAL_STORAGE];
        let rest = self.requests.keys().map(String::as_str).filter(|name| !first.contains(name));
        for name in first.into_iter().chain(rest) {
            let Some(&requested) = self.requests.get(name) else { continue };
            // As a real kubelet does, ignores extended resources that the node does not have.
            let foreign = ResourceKind::of(name).is_ok_and(|kind| kind == ResourceKind::Extended);
            if foreign && !node.allocatable.contains_key(name) {
                continue;
            }
            let used: i64 = others.iter().filter_map(|other| other.requests.get(name)).sum();
            if requested > capacity(name) - used {
                return Err(insufficient(name, requested, used, capacity(name)));
            }
        }
        Ok(())
    }
}

impl Port {
    fn of(port: &ContainerPort) -> Option<Self> {
        let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { text.to_owned() };
        (port.host_port > 0).then(|| Self {
            number: port.host_port,
            protocol: or(&port.protocol, "TCP"),
            address: or(&port.host_ip, ANY_ADDRESS),
        })
    }

    fn conflicts_with(&self, other: &Self) -> bool {
        let any_address = self.address == ANY_ADDRESS || other.address == ANY_ADDRESS;
        self.number == other.number && self.protocol == other.protocol && (any_address || self.address == other.address)
    }
}

fn insufficient(name: &str, requested: i64, used: i64, capacity: i64) -> Rejection {
    let message =
        format!("Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}");
    Rejection { reason: format!("OutOf{name}"), message }
}

fn predicate(name: &str, why: &str) -> Rejection {
    Rejection { reason: name.to_owned(), message: format!("Predicate {name} failed: {why}") }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn requirements(spec: Value) -> PodRequirements {
        let pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": spec});
        PodRequirements::read(&serde_json::from_value(pod).unwrap()).unwrap()
    }

    fn requesting(requests: Value) -> PodRequirements {
        requirements(json!({"containers": [{"name": "c", "resources": {"requests": requests}}]}))
    }

    fn with_port(port: Value) -> PodRequirements {
        requirements(json!({"containers": [{"name": "c", "ports": [port]}]}))
    }

    fn reason(pod: &PodRequirements, others: &[PodRequirements]) -> Option<(String, String)> {
        let labels = [("zone".to_owned(), "a".to_owned())].into();
        let allocatable = [("cpu", 4000), ("memory", 1000), ("pods", 3), ("nvidia.com/gpu", 2)];
        let allocatable = allocatable.map(|(name, amount)| (name.to_owned(), amount)).into();
        let taint = |key: &str, effect| Taint { key: key.to_owned(), value: String::new(), effect };
        let taints = [taint("gone", Effect::NoExecute), taint("full", Effect::NoSchedule)];
        let node = NodeInfo { name: "n", labels: &labels, taints: &taints, allocatable: &allocatable };
        let tolerant = Toleration {
            taints: muster_api::toleration::Tolerated::Key("gone".to_owned()),
            effect: None,
            seconds: Some(5),
        };
        let mut pod = pod.clone();
        if !pod.tolerations.iter().any(|one| one.seconds == Some(-1)) {
            pod.tolerations.push(tolerant);
        }
        pod.admit(&node, others.iter()).err().map(|rejection| (rejection.reason, rejection.message))
    }

    #[test]
    fn resources_of_other_pods_are_subtracted() {
        let others = [requesting(json!({"cpu": "3500m", "memory": "400", "nvidia.com/gpu": "2"}))];
        assert_eq!(reason(&requesting(json!({"cpu": "500m", "memory": "600"})), &others), None);
        for (requests, reason_expected, rest) in [
            (json!({"cpu": "1", "memory": "601"}), "OutOfcpu", "cpu, requested: 1000, used: 3500, capacity: 4000"),
            (json!({"memory": "601"}), "OutOfmemory", "memory, requested: 601, used: 400, capacity: 1000"),
            (
                json!({"nvidia.com/gpu": "1"}),
                "OutOfnvidia.com/gpu",
                "nvidia.com/gpu, requested: 1, used: 2, capacity: 2",
            ),
            (
                json!({"ephemeral-storage": "1"}),
                "OutOfephemeral-storage",
                "ephemeral-storage, requested: 1, used: 0, capacity: 0",
            ),
        ] {
            let expected = (reason_expected.to_owned(), format!("Node didn't have enough resource: {rest}"));
            assert_eq!(reason(&requesting(requests), &others), Some(expected));
        }
        // An extended resource that the node does not have is not checked.
        assert_eq!(reason(&requesting(json!({"example.com/fpga": "1"})), &others), None);
    }

    #[test]
    fn pod_count_is_checked_first() {
        let others = vec![requesting(json!({"cpu": "1300m"})); 3];
        let (reason, message) = reason(&requesting(json!({"cpu": "9"})), &others).unwrap();
        assert_eq!(reason, "OutOfpods");
        assert_eq!(message, "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3");
    }

    #[test]
    fn selectors_and_taints_are_checked() {
        let no = |name: &str, why: &str| Some((name.to_owned(), format!("Predicate {name} failed: {why}")));
        let away = no("NodeAffinity", "node(s) didn't match Pod's node affinity/selector");
        assert_eq!(reason(&requirements(json!({"nodeSelector": {"zone": "a"}})), &[]), None);
        assert_eq!(reason(&requirements(json!({"nodeSelector": {"zone": "b"}})), &[]), away);
        let affinity = |value: &str| {
            json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [value]}]}]}}}})
        };
        assert_eq!(reason(&requirements(affinity("a")), &[]), None);
        assert_eq!(reason(&requirements(affinity("b")), &[]), away);
        let strict = json!({"tolerations": [{"key": "x", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": -1}]});
        let tainted = no("TaintToleration", "node(s) had taints that the pod didn't tolerate");
        assert_eq!(reason(&requirements(strict), &[]), tainted);
    }

    #[test]
    fn host_port_is_used_once() {
        let others = [with_port(json!({"containerPort": 80, "hostPort": 8080, "hostIP": "10.0.0.1"}))];
        for (port, taken) in [
            (json!({"containerPort": 1, "hostPort": 8080}), true),
            (json!({"containerPort": 1, "hostPort": 8080, "hostIP": "10.0.0.1"}), true),
            (json!({"containerPort": 1, "hostPort": 8080, "hostIP": "10.0.0.2"}), false),
            (json!({"containerPort": 1, "hostPort": 8080, "protocol": "UDP"}), false),
            (json!({"containerPort": 8080}), false),
        ] {
            let rejected = reason(&with_port(port.clone()), &others).map(|(reason, _)| reason);
            assert_eq!(rejected.as_deref(), taken.then_some("NodePorts"), "{port}");
        }
    }
}
