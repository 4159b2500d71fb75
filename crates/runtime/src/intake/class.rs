//! The scheduling requirements of a pod in the engine's types.
//!
//! Everything is exact: a field that cannot be parsed is an error with its path.
//! Must not depend on groups.

use std::borrow::Cow;
use std::sync::Arc;

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::node_selector::{
    NameRequirement as WrittenName, NodeTerm as WrittenTerm, PreferredTerm as WrittenPreferred, WrittenPreferredTerm,
};
use muster_api::pod_requests::pod_requests;
use muster_api::selector::{Operator, Requirement as WrittenRequirement, validate_match_labels};
use muster_api::toleration::{self, Tolerated, WrittenToleration};
use muster_api::wire::Pod;
use muster_api::wire::container::{Container, ContainerPort};
use muster_engine::model::class::{ClassSpec, ScoringRequest};
use muster_engine::model::inter_pod::{InterPodConstraints, Spread};
use muster_engine::model::labels::{LabelOperator, NameRequirement, NodeTerm, PreferredTerm, Requirement};
use muster_engine::model::port::{HostPort, Protocol};
use muster_engine::model::taint::{Effect, Toleration};

use super::features::features;
use super::inter_pod_affinity::inter_pod_constraints;
use super::pod_volumes::disks;
use crate::settings::Profile;

/// The class of a pod, for pods of ours with the additions of their profile. For pods on a node, the resources that the
/// node reports count too. Spread constraints and preferences of other schedulers' pods are ignored.
pub(crate) fn class(pod: &Pod, profile: Option<(u16, &Profile)>) -> Result<ClassSpec, InvalidField> {
    let placed = !pod.spec.node_name.is_empty();
    let requests = pod_requests(pod, placed).map_err(|error| InvalidField {
        field: error.field,
        value: error.value,
        reason: error.reason,
    })?;
    let scoring = ScoringRequest { cpu_milli: requests.scoring_cpu_milli, memory_bytes: requests.scoring_memory_bytes };
    let placed_scoring = ScoringRequest {
        cpu_milli: requests.placed_scoring_cpu_milli,
        memory_bytes: requests.placed_scoring_memory_bytes,
    };
    let mut class = ClassSpec {
        requests: requests.requests.into_iter().collect(),
        scoring_cpu_milli: scoring.cpu_milli,
        scoring_memory_bytes: scoring.memory_bytes,
        placed_scoring: (placed_scoring != scoring).then_some(placed_scoring),
        host_ports: host_ports(pod)?,
        disks: disks(pod),
        ..ClassSpec::default()
    };
    match placement(pod, &mut class) {
        // A pod on a node needs no placement any more, but its resources still count.
        Err(_) if placed => {}
        outcome => outcome?,
    }
    if let Some(constraints) = class.inter_pod.take() {
        let unspread = || Arc::new(InterPodConstraints { spread: Spread::default(), ..(*constraints).clone() });
        class.inter_pod = Some(if profile.is_some() { constraints.clone() } else { unspread() })
            .filter(|constraints| !constraints.is_empty());
    }
    if let Some((number, profile)) = profile {
        class.images = images(pod);
        class.features = features(pod);
        class.profile = number;
        class.enforced_terms.clone_from(&profile.enforced_terms);
        class.preferred_terms.extend(profile.preferred_terms.iter().cloned());
    }
    Ok(class)
}

/// The images of a pod, named as nodes name them.
fn images(pod: &Pod) -> Vec<Arc<str>> {
    let containers = pod.spec.init_containers.iter().chain(&pod.spec.containers).map(|container| &container.image);
    let volumes = pod.spec.volumes.iter().filter_map(|volume| volume.image.as_ref()).map(|image| &image.reference);
    containers.chain(volumes).map(|name| tagged(name).into()).collect()
}

/// The name of an image with its tag.
fn tagged(name: &str) -> Cow<'_, str> {
    if name.rfind(':') > name.rfind('/') { Cow::Borrowed(name) } else { Cow::Owned(format!("{name}:latest")) }
}

/// Fills in the placement requirements.
fn placement(pod: &Pod, class: &mut ClassSpec) -> Result<(), InvalidField> {
    let spec = FieldPath::Root("spec");
    validate_match_labels(&pod.spec.node_selector, &spec.child("nodeSelector"))?;
    class.node_selector = pod.spec.node_selector.clone().into_iter().collect();
    let affinity = pod.spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    if let Some(affinity) = affinity {
        let path = FieldPath::Root("spec.affinity.nodeAffinity");
        if let Some(required) = &affinity.required {
            let required = required.validate(&path.child("requiredDuringSchedulingIgnoredDuringExecution"))?;
            class.required_terms = Some(required.terms().iter().map(node_term).collect());
        }
        let path = path.child("preferredDuringSchedulingIgnoredDuringExecution");
        let preferred = WrittenPreferredTerm::validate_all(&affinity.preferred, &path)?;
        class.preferred_terms = preferred.iter().map(preferred_term).collect();
    }
    let tolerations = WrittenToleration::validate_all(&pod.spec.tolerations, &spec.child("tolerations"))?;
    class.tolerations = tolerations.into_iter().map(engine_toleration).collect();
    class.inter_pod = inter_pod_constraints(pod)?.map(Arc::new);
    Ok(())
}

pub(crate) fn preferred_term(written: &WrittenPreferred) -> PreferredTerm {
    PreferredTerm { weight: written.weight.into(), term: node_term(&written.term) }
}

pub(crate) fn node_term(term: &WrittenTerm) -> NodeTerm {
    NodeTerm {
        labels: term.labels().iter().map(requirement).collect(),
        names: term
            .names()
            .iter()
            .map(|name| match name {
                WrittenName::Is(name) => NameRequirement::Is(name.clone()),
                WrittenName::IsNot(name) => NameRequirement::IsNot(name.clone()),
            })
            .collect(),
    }
}

pub(crate) fn requirement(written: &WrittenRequirement) -> Requirement {
    let list = |values: &std::collections::BTreeSet<String>| values.iter().cloned().collect();
    let demand = match &written.operator {
        Operator::In(values) => LabelOperator::In(list(values)),
        Operator::NotIn(values) => LabelOperator::NotIn(list(values)),
        Operator::Exists => LabelOperator::Exists,
        Operator::DoesNotExist => LabelOperator::DoesNotExist,
        Operator::Gt(number) => LabelOperator::Gt(*number),
        Operator::Lt(number) => LabelOperator::Lt(*number),
    };
    Requirement { key: written.key.clone(), operator: demand }
}

pub(crate) fn effect(effect: toleration::Effect) -> Effect {
    match effect {
        toleration::Effect::NoSchedule => Effect::NoSchedule,
        toleration::Effect::PreferNoSchedule => Effect::PreferNoSchedule,
        toleration::Effect::NoExecute => Effect::NoExecute,
    }
}

fn engine_toleration(written: toleration::Toleration) -> Toleration {
    let (key, value) = match written.taints {
        Tolerated::Every => (None, None),
        Tolerated::Key(key) => (Some(key), None),
        Tolerated::KeyAndValue(key, value) => (Some(key), Some(value)),
    };
    Toleration { key, value, effect: written.effect.map(effect) }
}

/// The host ports of a pod. Init containers free theirs before the others start, sidecars do not.
fn host_ports(pod: &Pod) -> Result<Vec<HostPort>, InvalidField> {
    let mut ports = Vec::new();
    let sidecars = pod.spec.init_containers.iter().enumerate().filter(|(_, container)| container.is_sidecar());
    let lists = pod.spec.containers.iter().enumerate().map(|one| ("containers", one));
    for (list, (index, container)) in lists.chain(sidecars.map(|one| ("initContainers", one))) {
        container_ports(list, index, container, &mut ports)?;
    }
    ports.sort();
    ports.dedup();
    Ok(ports)
}

fn container_ports(
    list: &str,
    index: usize,
    container: &Container,
    ports: &mut Vec<HostPort>,
) -> Result<(), InvalidField> {
    let spec = FieldPath::Root("spec");
    let (list, place) = (spec.child(list), index);
    let container_path = list.index(place);
    for (index, port) in container.ports.iter().enumerate().filter(|(_, port)| port.host_port != 0) {
        let ports_path = container_path.child("ports");
        ports.push(host_port(port, &ports_path.index(index))?);
    }
    Ok(())
}

fn host_port(port: &ContainerPort, path: &FieldPath<'_>) -> Result<HostPort, InvalidField> {
    let number = u16::try_from(port.host_port)
        .map_err(|_| path.child("hostPort").invalid(&port.host_port, "must be from 1 to 65535"))?;
    let protocol = match port.protocol.as_str() {
        "" | "TCP" => Protocol::Tcp,
        "UDP" => Protocol::Udp,
        "SCTP" => Protocol::Sctp,
        other => return Err(path.child("protocol").invalid(other, "must be TCP, UDP or SCTP")),
    };
    let address = Some(port.host_ip.clone()).filter(|address| !address.is_empty() && address != "0.0.0.0");
    Ok(HostPort { address, protocol, port: number })
}
