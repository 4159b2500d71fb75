//! A naive pod-by-pod scheduler with the filters and scores of kube-scheduler 1.37: it evaluates every node for every
//! pod.
//!
//! It is the reference for the engine's choices, and the n × m baseline of the benchmarks: resource names are interned
//! once, and static filters and scores are evaluated once per class, in [`Prepared`]. Nodes do not change; pods are
//! added and removed. Must not depend on groups, queues or time.

mod matching;
mod scores;

use std::collections::BTreeMap;

use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::port::HostPort;
use muster_engine::{Scoring, Strategy};

pub(crate) use matching::ports_conflict;
use scores::{Column, SCORE_MAX};

/// The allocatable amount of this name is a number of pods, not a resource.
const PODS: &str = "pods";
const CPU: usize = 0;
const MEMORY: usize = 1;
const EPHEMERAL_STORAGE: usize = 2;

/// Why a node is infeasible, in the order of kube-scheduler's filters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FailureReason {
    /// The pod names another node.
    NodeName,
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the pod's selector or required affinity.
    NodeAffinity,
    /// A host port is taken.
    Ports,
    /// The node holds its maximum number of pods.
    TooManyPods,
    /// There is too little of this resource left.
    Insufficient(String),
}

/// The cluster as the naive scheduler sees it.
#[derive(Clone, Debug)]
pub struct Naive {
    names: Vec<String>,
    nodes: Vec<Node>,
    strategy: Strategy,
    /// Resources by index, and their weights.
    fit: Vec<(usize, i64)>,
    balanced: Vec<usize>,
    weights: Weights,
}

#[derive(Clone, Copy, Debug)]
struct Weights {
    taints: i64,
    node_affinity: i64,
    fit: i64,
    balanced: i64,
}

/// A node and its usage.
#[derive(Clone, Debug)]
struct Node {
    spec: NodeSpec,
    allocatable: Vec<i64>,
    used: Vec<i64>,
    /// CPU and memory as used for scoring.
    used_for_scores: [i64; 2],
    pods: i64,
    pods_max: i64,
    ports: Vec<HostPort>,
}

/// A class prepared for many placements. It belongs to the [`Naive`] that created it.
#[derive(Clone, Debug)]
pub struct Prepared {
    requests: Vec<i64>,
    /// Requested resources that no node has.
    unknown_resources: Vec<String>,
    requests_for_scores: [i64; 2],
    requests_for_scores_when_placed: [i64; 2],
    ports: Vec<HostPort>,
    static_fit: Vec<StaticFit>,
}

/// The static filters and scores of a node for a class.
#[derive(Clone, Debug)]
struct StaticFit {
    failure_reason: Option<FailureReason>,
    soft_taints: i64,
    preference: i64,
}

impl Naive {
    /// A cluster without pods.
    pub fn new(nodes: &[NodeSpec], scoring: &Scoring) -> Self {
        let mut names: Vec<String> = ["cpu", "memory", "ephemeral-storage"].map(str::to_owned).into();
        let mut number = |name: &str| {
            names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            })
        };
        let fit = scoring.fit_resources.iter().map(|resource| (number(&resource.name), resource.weight)).collect();
        let balanced = scoring.balanced_resources.iter().map(|name| number(name)).collect();
        for name in nodes.iter().flat_map(|node| node.allocatable.keys()).filter(|name| *name != PODS) {
            number(name);
        }
        let nodes = nodes.iter().map(|spec| Node::new(spec, &names)).collect();
        let weights = Weights {
            taints: scoring.weight_taints,
            node_affinity: scoring.weight_node_affinity,
            fit: scoring.weight_fit,
            balanced: scoring.weight_balanced,
        };
        Self { names, nodes, strategy: scoring.strategy.clone(), fit, balanced, weights }
    }

    /// Computes once what is the same for every pod of a class.
    pub fn prepare(&self, class: &ClassSpec) -> Prepared {
        let requested = class.requests.iter().filter(|(_, amount)| **amount > 0);
        let unknown_resources =
            requested.filter(|(name, _)| !self.names.contains(name)).map(|(name, _)| name.clone()).collect();
        let scoring_requests = [class.scoring_cpu_milli, class.scoring_memory_bytes];
        let placed = class.placed_scoring.map(|placed| [placed.cpu_milli, placed.memory_bytes]);
        Prepared {
            requests: by_number(&class.requests, &self.names),
            unknown_resources,
            requests_for_scores: scoring_requests,
            requests_for_scores_when_placed: placed.unwrap_or(scoring_requests),
            ports: class.host_ports.clone(),
            static_fit: self.nodes.iter().map(|node| StaticFit::new(class, &node.spec)).collect(),
        }
    }

    /// Whether the node is feasible for one more pod of the class.
    pub fn feasible(&self, node: usize, class: &ClassSpec) -> bool {
        self.feasible_prepared(node, &self.prepare(class))
    }

    /// All reasons of the first filter that fails; empty if the node is feasible.
    pub fn failure_reasons(&self, node: usize, class: &ClassSpec) -> Vec<FailureReason> {
        let (class, place) = (self.prepare(class), &self.nodes[node]);
        if let Some(reason) = &class.static_fit[node].failure_reason {
            return vec![reason.clone()];
        }
        if ports_conflict(&class.ports, &place.ports) {
            return vec![FailureReason::Ports];
        }
        let too_many = (place.pods + 1 > place.pods_max).then_some(FailureReason::TooManyPods);
        let short = (0..self.names.len()).filter(|resource| place.is_insufficient(&class, *resource));
        let short = short.map(|resource| &self.names[resource]).chain(&class.unknown_resources);
        too_many.into_iter().chain(short.map(|name| FailureReason::Insufficient(name.clone()))).collect()
    }

    /// The weighted total score of each node; `None` where it is infeasible.
    pub fn totals(&self, class: &ClassSpec) -> Vec<Option<i64>> {
        self.totals_prepared(&self.prepare(class))
    }

    /// Places one pod on the best node, the first among equals.
    pub fn place(&mut self, class: &ClassSpec) -> Option<usize> {
        self.place_prepared(&self.prepare(class))
    }

    /// The same as [`Naive::place`], for one of many pods of a class.
    pub fn place_prepared(&mut self, class: &Prepared) -> Option<usize> {
        let mut best: Option<(i64, usize)> = None;
        for (node, total) in self.totals_prepared(class).into_iter().enumerate() {
            if let Some(total) = total
                && best.is_none_or(|(most, _)| total > most)
            {
                best = Some((total, node));
            }
        }
        let (_, node) = best?;
        self.nodes[node].occupy(class);
        Some(node)
    }

    /// Puts a pod on a node without any checks.
    pub fn occupy(&mut self, node: usize, class: &ClassSpec) {
        let class = self.prepare(class);
        self.nodes[node].occupy(&class);
    }

    /// Removes a pod from its node.
    pub fn release(&mut self, node: usize, class: &ClassSpec) {
        let class = self.prepare(class);
        self.nodes[node].release(&class);
    }

    fn feasible_prepared(&self, node: usize, class: &Prepared) -> bool {
        let place = &self.nodes[node];
        class.static_fit[node].failure_reason.is_none()
            && class.unknown_resources.is_empty()
            && place.pods < place.pods_max
            && !(0..self.names.len()).any(|resource| place.is_insufficient(class, resource))
            && !ports_conflict(&class.ports, &place.ports)
    }

    fn totals_prepared(&self, class: &Prepared) -> Vec<Option<i64>> {
        let feasible: Vec<bool> = (0..self.nodes.len()).map(|node| self.feasible_prepared(node, class)).collect();
        let static_fit = || {
            class.static_fit.iter().zip(&feasible).filter(|(_, feasible)| **feasible).map(|(static_fit, _)| static_fit)
        };
        let max_taints = static_fit().map(|static_fit| static_fit.soft_taints).max().unwrap_or(0);
        let max_preference = static_fit().map(|static_fit| static_fit.preference).max().unwrap_or(0);
        let total = |node: usize| {
            let static_fit = &class.static_fit[node];
            let taints = SCORE_MAX - share(static_fit.soft_taints, max_taints);
            let preference = share(static_fit.preference, max_preference);
            let (fit, balance) = (self.fit_score(node, class), self.balance_score(node, class));
            self.weights.taints * taints
                + self.weights.node_affinity * preference
                + self.weights.fit * fit
                + self.weights.balanced * balance
        };
        feasible.iter().enumerate().map(|(node, feasible)| feasible.then(|| total(node))).collect()
    }

    fn fit_score(&self, node: usize, class: &Prepared) -> i64 {
        let place = &self.nodes[node];
        let columns = self.fit.iter().filter_map(|(resource, weight)| match *resource {
            CPU | MEMORY => {
                place.column(*resource, *weight, class.requests_for_scores[*resource], place.used_for_scores[*resource])
            }
            _ => place.column(*resource, *weight, class.requests[*resource], place.used[*resource]),
        });
        scores::fit(&self.strategy, columns)
    }

    fn balance_score(&self, node: usize, class: &Prepared) -> i64 {
        // A pod that requests none of them would prefer nodes that are already balanced.
        if self.balanced.iter().all(|resource| class.requests[*resource] == 0) {
            return 0;
        }
        let place = &self.nodes[node];
        let column = |resource: &usize| place.column(*resource, 1, class.requests[*resource], place.used[*resource]);
        scores::balance(self.balanced.iter().filter_map(column))
    }
}

impl Node {
    fn new(spec: &NodeSpec, names: &[String]) -> Self {
        Self {
            spec: spec.clone(),
            allocatable: by_number(&spec.allocatable, names),
            used: vec![0; names.len()],
            used_for_scores: [0; 2],
            pods: 0,
            pods_max: spec.allocatable.get(PODS).copied().unwrap_or(0),
            ports: Vec::new(),
        }
    }

    fn is_insufficient(&self, class: &Prepared, resource: usize) -> bool {
        let requested = class.requests[resource];
        requested > 0 && requested > self.allocatable[resource] - self.used[resource]
    }

    /// The input of a score for one resource; `None` if the node does not have it, or if it is a scalar resource that
    /// the pod does not request.
    fn column(&self, resource: usize, weight: i64, requested: i64, allocated: i64) -> Option<Column> {
        let allocatable = self.allocatable[resource];
        if allocatable == 0 || (requested == 0 && resource > EPHEMERAL_STORAGE) {
            return None;
        }
        Some(Column { weight, requested: allocated + requested, allocated, allocatable })
    }

    fn occupy(&mut self, class: &Prepared) {
        self.pods += 1;
        self.count(class, 1);
        self.ports.extend(class.ports.iter().cloned());
    }

    fn release(&mut self, class: &Prepared) {
        self.pods -= 1;
        self.count(class, -1);
        for port in &class.ports {
            let held = self.ports.iter().position(|held| held == port).expect("a removed pod held its ports");
            self.ports.swap_remove(held);
        }
    }

    fn count(&mut self, class: &Prepared, sign: i64) {
        for (used, requested) in self.used.iter_mut().zip(&class.requests) {
            *used += sign * requested;
        }
        for (used, requested) in self.used_for_scores.iter_mut().zip(class.requests_for_scores_when_placed) {
            *used += sign * requested;
        }
    }
}

impl StaticFit {
    fn new(class: &ClassSpec, node: &NodeSpec) -> Self {
        let failure_reason = if matching::names_another_node(class, node) {
            Some(FailureReason::NodeName)
        } else if matching::rejects_by_cordon(class, node) {
            Some(FailureReason::Unschedulable)
        } else if matching::rejects_by_taints(class, node) {
            Some(FailureReason::Taints)
        } else if !matching::matches_required(class, node) {
            Some(FailureReason::NodeAffinity)
        } else {
            None
        };
        let (soft_taints, preference) =
            (matching::untolerated_soft_taints(class, node), matching::preference(class, node));
        Self { failure_reason, soft_taints, preference }
    }
}

/// Kubernetes' `DefaultNormalizeScore`, not reversed.
fn share(raw: i64, most: i64) -> i64 {
    if most == 0 { 0 } else { SCORE_MAX * raw / most }
}

fn by_number(amounts: &BTreeMap<String, i64>, names: &[String]) -> Vec<i64> {
    names.iter().map(|name| amounts.get(name).copied().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amounts(cpu: i64, memory: i64) -> BTreeMap<String, i64> {
        [("cpu".to_owned(), cpu), ("memory".to_owned(), memory), (PODS.to_owned(), 2)].into()
    }

    fn class(cpu: i64, memory: i64) -> ClassSpec {
        let mut requests = amounts(cpu, memory);
        requests.remove(PODS);
        ClassSpec { requests, scoring_cpu_milli: cpu, scoring_memory_bytes: memory, ..ClassSpec::default() }
    }

    #[test]
    fn totals_by_hand() {
        let node =
            |name: &str, cpu| NodeSpec { name: name.into(), allocatable: amounts(cpu, 10), ..NodeSpec::default() };
        let mut naive = Naive::new(&[node("a", 4000), node("b", 8000), node("c", 500)], &Scoring::default());
        let pod = class(1000, 5);
        // Taints 300, no preference, fit (75 + 50) / 2 = 62, balance 50 + (50 + 87 - 100) / 2 = 68.
        // The second: (87 + 50) / 2 = 68, balance 50 + (50 + 81 - 100) / 2 = 65.
        assert_eq!(naive.totals(&pod), [Some(430), Some(433), None]);
        assert_eq!(naive.failure_reasons(2, &pod), [FailureReason::Insufficient("cpu".into())]);
        assert_eq!(naive.place(&pod), Some(1));
        naive.release(1, &pod);
        assert_eq!(naive.totals(&pod)[1], Some(433));
    }

    #[test]
    fn prepared_class_is_placed_until_the_nodes_are_full() {
        let node = NodeSpec { name: "a".into(), allocatable: amounts(4000, 10), ..NodeSpec::default() };
        let mut naive = Naive::new(&[node], &Scoring::default());
        let pod = naive.prepare(&class(0, 1));
        assert_eq!([(); 3].map(|()| naive.place_prepared(&pod)), [Some(0), Some(0), None]);
        assert_eq!(naive.failure_reasons(0, &class(0, 1)), [FailureReason::TooManyPods]);
        let unknown = ClassSpec { requests: [("example.com/x".to_owned(), 1)].into(), ..ClassSpec::default() };
        assert!(!naive.feasible(0, &unknown));
    }
}
