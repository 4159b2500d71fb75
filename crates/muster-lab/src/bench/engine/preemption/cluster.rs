//! Clusters that are full of gangs of ten, as observations.

use std::sync::Arc;

use muster_engine::Observation;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::group::{DisruptionMode, GroupKey, GroupPriority, GroupSpec};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::{Membership, Phase, PodName, PodSpec};
use muster_oracle::random::Random;

use super::shapes::{GANG, Layout, Preemptor, Shape};

const GPU: &str = "nvidia.com/gpu";
/// Fixed, so that plans are the same in every run.
const SEED: u64 = 1;
const LOW: i32 = 0;
const HIGH: i32 = 100;

/// The nodes and all running pods.
pub(super) fn running(shape: &Shape) -> Vec<Observation> {
    let mut seen: Vec<Observation> = (0..shape.nodes).map(|number| Observation::NodeSeen(node(number))).collect();
    let seats = nodes_of_running(shape);
    let gangs = seats.len() / GANG;
    for gang in 0..gangs {
        let mut spec = gang_spec(&format!("low-{gang}"), GANG, LOW);
        spec.disruption_mode = DisruptionMode::Group;
        seen.push(Observation::GroupSeen(spec));
    }
    let class = Arc::new(class_of_running(shape.layout));
    for (number, seat) in seats.iter().enumerate() {
        let membership = Some(member_of(&format!("low-{}", number / GANG)));
        let pod = PodSpec { membership, ..running_pod(&format!("low-{number}"), *seat, &class) };
        seen.push(Observation::PodSeen(pod));
    }
    if shape.layout == Layout::Hopeless {
        let little = Arc::new(class_with(&[("cpu", 1000)]));
        let holds = |number| PodSpec { priority: HIGH, ..running_pod(&format!("high-{number}"), number, &little) };
        seen.extend((0..shape.nodes).map(|number| Observation::PodSeen(holds(number))));
    }
    seen
}

/// The pending pods.
pub(super) fn pending(shape: &Shape) -> Vec<Observation> {
    let class = Arc::new(class_of_pending(shape));
    let gang = shape.preemptor != Preemptor::Singles;
    let group = gang.then(|| Observation::GroupSeen(gang_spec("preemptor", shape.pods, HIGH)));
    let pod = |number: usize| PodSpec {
        membership: gang.then(|| member_of("preemptor")),
        priority: HIGH,
        ..pod(&format!("preemptor-{number}"), &class)
    };
    group.into_iter().chain((0..shape.pods).map(|number| Observation::PodSeen(pod(number)))).collect()
}

/// The node of every running pod, gang by gang.
fn nodes_of_running(shape: &Shape) -> Vec<usize> {
    let on_a_node = shape.layout.pods_on_a_node();
    let block = GANG * on_a_node;
    // Ten adjacent nodes are one block: each gang has one pod on each.
    let mut nodes: Vec<usize> = (0..shape.nodes * on_a_node).map(|seat| seat / block * GANG + seat % GANG).collect();
    if !matches!(shape.layout, Layout::Neighbours | Layout::Interleaved) {
        Random::new(SEED).shuffle(&mut nodes);
    }
    nodes
}

fn node(number: usize) -> NodeSpec {
    let amounts = [("cpu", 96_000), ("memory", 1 << 40), ("pods", 110), (GPU, 8)];
    let name = node_name(number);
    let labels = [("kubernetes.io/hostname".to_owned(), name.clone())].into();
    let allocatable = amounts.map(|(name, amount)| (name.to_owned(), amount)).into();
    NodeSpec { name, labels, allocatable, ..NodeSpec::default() }
}

fn node_name(number: usize) -> String {
    format!("node-{number:05}")
}

fn class_with(requests: &[(&str, i64)]) -> ClassSpec {
    let requests = requests.iter().map(|(name, amount)| ((*name).to_owned(), *amount)).collect();
    ClassSpec { requests, scoring_cpu_milli: 1000, scoring_memory_bytes: 1 << 30, ..ClassSpec::default() }
}

fn class_of_running(layout: Layout) -> ClassSpec {
    match layout {
        Layout::Neighbours | Layout::Scattered => class_with(&[("cpu", 32_000), (GPU, 8)]),
        Layout::Interleaved | Layout::Mingled | Layout::Hopeless => class_with(&[("cpu", 8_000), (GPU, 2)]),
        Layout::Crowded => class_with(&[("cpu", 9_600)]),
    }
}

fn class_of_pending(shape: &Shape) -> ClassSpec {
    match shape.layout {
        Layout::Hopeless => class_with(&[("cpu", 96_000), (GPU, 8)]),
        Layout::Crowded => class_with(&[("cpu", 9_600)]),
        _ => class_with(&[("cpu", 32_000), (GPU, 8)]),
    }
}

fn gang_spec(name: &str, minimum: usize, priority: i32) -> GroupSpec {
    let mut spec = GroupSpec::gang(key(name), minimum as u32);
    spec.priority = GroupPriority::Own(priority);
    spec
}

fn key(name: &str) -> GroupKey {
    let (origin, namespace) = ("muster.dev/PodGroup".to_owned(), "default".to_owned());
    GroupKey { origin, namespace, name: name.to_owned(), replica: String::new() }
}

fn member_of(group: &str) -> Membership {
    Membership::of(key(group))
}

fn pod(name: &str, class: &Arc<ClassSpec>) -> PodSpec {
    let id = PodName { namespace: "default".into(), name: name.to_owned(), uid: format!("uid-{name}") };
    PodSpec { id: Arc::new(id), class: class.clone(), ours: true, controlled: true, ..PodSpec::default() }
}

fn running_pod(name: &str, node: usize, class: &Arc<ClassSpec>) -> PodSpec {
    let node = Some(node_name(node));
    PodSpec { node, phase: Phase::Running, started_ms: Some(0), priority: LOW, ..pod(name, class) }
}
