//! Random clusters and pods: small enough for brute force, varied enough to reach every rule.

use std::collections::BTreeMap;

use muster_engine::model::class::{ClassSpec, ScoringRequest};
use muster_engine::model::labels::{LabelOperator, NameRequirement, NodeTerm, PreferredTerm, Requirement};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::port::{HostPort, Protocol};
use muster_engine::model::taint::{Effect, Taint, Toleration};
use muster_oracle::random::Random;

pub(crate) const GPU: &str = "nvidia.com/gpu";
pub(crate) const GIB: i64 = 1 << 30;

/// A node without labels, taints or a cordon.
pub(crate) fn plain_node(number: usize, cpu_milli: i64, memory: i64, gpus: i64, pods: i64) -> NodeSpec {
    let amounts = [("cpu", cpu_milli), ("memory", memory), (GPU, gpus), ("pods", pods)];
    let allocatable = amounts.into_iter().filter(|(_, amount)| *amount > 0);
    NodeSpec {
        name: node_name(number),
        allocatable: allocatable.map(|(name, amount)| (name.to_owned(), amount)).collect(),
        ..NodeSpec::default()
    }
}

pub(crate) fn node_name(number: usize) -> String {
    format!("n{number}")
}

/// A node of random size with labels, and sometimes taints or a cordon.
pub(crate) fn node(random: &mut Random, number: usize) -> NodeSpec {
    let cpu = if random.chance(95) { random.between(2, 10) * 500 } else { 0 };
    let memory = if random.chance(95) { random.between(2, 10) * GIB / 2 } else { 0 };
    let gpus = if random.chance(50) { random.between(1, 4) } else { 0 };
    let pods = if random.chance(25) { random.between(0, 5) } else { 110 };
    let mut node = plain_node(number, cpu, memory, gpus, pods);
    for (key, values) in LABELS {
        if random.chance(70) {
            node.labels.insert((*key).to_owned(), (*random.pick(values)).to_owned());
        }
    }
    if random.chance(10) {
        node.allocatable.insert("ephemeral-storage".to_owned(), random.between(1, 4) * GIB);
    }
    for _ in 0..2 {
        if random.chance(15) {
            node.taints.push(taint(random));
        }
    }
    node.unschedulable = random.chance(8);
    node
}

const LABELS: &[(&str, &[&str])] = &[("zone", &["a", "b"]), ("gen", &["1", "2", "x"])];
const TAINTED: [&str; 2] = ["dedicated", "old"];
const EFFECTS: [Effect; 4] =
    [Effect::NoSchedule, Effect::PreferNoSchedule, Effect::PreferNoSchedule, Effect::NoExecute];

fn taint(random: &mut Random) -> Taint {
    Taint {
        key: (*random.pick(&TAINTED)).to_owned(),
        value: (*random.pick(&["", "yes"])).to_owned(),
        effect: *random.pick(&EFFECTS),
    }
}

/// Random requests.
pub(crate) fn requests(random: &mut Random) -> BTreeMap<String, i64> {
    let mut requests = BTreeMap::new();
    if random.chance(85) {
        requests.insert("cpu".to_owned(), random.between(1, 6) * 250);
    }
    if random.chance(60) {
        requests.insert("memory".to_owned(), random.between(1, 6) * GIB / 4);
    }
    if random.chance(20) {
        requests.insert(GPU.to_owned(), random.between(0, 2));
    }
    if random.chance(3) {
        requests.insert("ephemeral-storage".to_owned(), GIB);
    }
    if random.chance(1) {
        requests.insert("example.com/unavailable".to_owned(), random.between(0, 1));
    }
    requests
}

/// A class with these requests and no constraints.
pub(crate) fn plain_class(requests: BTreeMap<String, i64>) -> ClassSpec {
    let scored = |name: &str, missing: i64| requests.get(name).copied().unwrap_or(missing);
    ClassSpec {
        scoring_cpu_milli: scored("cpu", 100),
        scoring_memory_bytes: scored("memory", 200 << 20),
        requests,
        ..ClassSpec::default()
    }
}

/// A class of random size with node constraints; `constrained` is the probability of each of them in percent.
pub(crate) fn class(random: &mut Random, nodes: usize, constrained: u64) -> ClassSpec {
    let mut class = plain_class(requests(random));
    if random.chance(constrained / 4) {
        class.node_name = Some(node_name(random.below(nodes)));
    }
    if random.chance(constrained) {
        let (key, values) = random.pick(LABELS);
        class.node_selector.insert((*key).to_owned(), (*random.pick(values)).to_owned());
    }
    if random.chance(constrained) {
        class.required_terms = Some((0..random.between(0, 3)).map(|_| term(random, nodes)).collect());
    }
    for _ in 0..2 {
        if random.chance(2 * constrained) {
            class.tolerations.push(toleration(random));
        }
    }
    if random.chance(constrained) {
        class.host_ports = (0..random.between(1, 2)).map(|_| port(random)).collect();
    }
    class
}

/// Adds what only scores use: preferences, and scoring requests that differ once the pod is placed.
pub(crate) fn add_preferences(random: &mut Random, nodes: usize, class: &mut ClassSpec) {
    for _ in 0..random.below(3) {
        let preferred = PreferredTerm { weight: random.between(1, 100) as i32, term: term(random, nodes) };
        class.preferred_terms.push(preferred);
    }
    if random.chance(10) {
        let placed = ScoringRequest { cpu_milli: random.between(0, 3000), memory_bytes: random.between(0, 2 * GIB) };
        class.placed_scoring = Some(placed);
    }
}

fn term(random: &mut Random, nodes: usize) -> NodeTerm {
    let mut term = NodeTerm::default();
    for _ in 0..random.below(3) {
        let (key, values) = random.pick(LABELS);
        let some = || vec![(*values[0]).to_owned()];
        let demands = [
            LabelOperator::In(some()),
            LabelOperator::NotIn(some()),
            LabelOperator::Exists,
            LabelOperator::DoesNotExist,
            LabelOperator::Gt(1),
            LabelOperator::Lt(2),
        ];
        term.labels.push(Requirement { key: (*key).to_owned(), operator: random.pick(&demands).clone() });
    }
    if random.chance(20) {
        let name = node_name(random.below(nodes));
        term.names.push(if random.chance(50) { NameRequirement::Is(name) } else { NameRequirement::IsNot(name) });
    }
    term
}

fn toleration(random: &mut Random) -> Toleration {
    let keys = [None, Some(TAINTED[0]), Some(TAINTED[1]), Some("node.kubernetes.io/unschedulable")];
    let effects = [None, Some(Effect::NoSchedule), Some(Effect::PreferNoSchedule), Some(Effect::NoExecute)];
    Toleration {
        key: random.pick(&keys).map(str::to_owned),
        value: random.pick(&[None, None, Some(""), Some("yes")]).map(str::to_owned),
        effect: *random.pick(&effects),
    }
}

fn port(random: &mut Random) -> HostPort {
    HostPort {
        address: random.pick(&[None, None, Some("10.0.0.1"), Some("10.0.0.2")]).map(str::to_owned),
        protocol: *random.pick(&[Protocol::Tcp, Protocol::Tcp, Protocol::Udp]),
        port: *random.pick(&[80, 443]),
    }
}

/// Pods on the nodes; they may not fit, like static pods.
pub(crate) fn occupied(random: &mut Random, nodes: usize) -> Vec<(usize, ClassSpec)> {
    (0..random.below(2 * nodes)).map(|_| (random.below(nodes), class(random, nodes, 10))).collect()
}
