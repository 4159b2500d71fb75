//! A plain pod-by-pod scheduler with kube-scheduler 1.37's filters and scores: every pod looks at every node.
//!
//! It is the measure for the engine's choices, and the fair n × m baseline of the benchmarks: resource names are
//! interned once, and what only depends on the node itself is worked out once per class, in [`Prepared`].
//! Nodes do not change, pods come and go. It must not know about groups, queues or time.

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

/// Why a node will not do, in the order in which kube-scheduler asks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WhyNot {
    /// The pod insists on another node.
    NodeName,
    /// The node is cordoned.
    Unschedulable,
    /// The node has a taint that the pod does not tolerate.
    Taints,
    /// The node does not match the pod's selector or required affinity.
    NodeAffinity,
    /// A host port is taken.
    Ports,
    /// The node holds as many pods as it may.
    TooManyPods,
    /// There is too little of this resource.
    Insufficient(String),
}

/// The cluster as the naive scheduler sees it.
#[derive(Clone, Debug)]
pub struct Naive {
    names: Vec<String>,
    nodes: Vec<Place>,
    strategy: Strategy,
    /// Resources by number, and their weights.
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

/// A node and what is on it.
#[derive(Clone, Debug)]
struct Place {
    spec: NodeSpec,
    offers: Vec<i64>,
    used: Vec<i64>,
    /// CPU and memory as scores count them.
    used_for_scores: [i64; 2],
    pods: i64,
    pods_max: i64,
    ports: Vec<HostPort>,
}

/// A class ready to be placed many times. It belongs to the [`Naive`] that made it.
#[derive(Clone, Debug)]
pub struct Prepared {
    requests: Vec<i64>,
    /// What no node has ever heard of.
    unheard_of: Vec<String>,
    requests_for_scores: [i64; 2],
    requests_for_scores_when_placed: [i64; 2],
    ports: Vec<HostPort>,
    suits: Vec<Suits>,
}

/// How a node itself suits a class.
#[derive(Clone, Debug)]
struct Suits {
    why_not: Option<WhyNot>,
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
        let nodes = nodes.iter().map(|spec| Place::new(spec, &names)).collect();
        let weights = Weights {
            taints: scoring.weight_taints,
            node_affinity: scoring.weight_node_affinity,
            fit: scoring.weight_fit,
            balanced: scoring.weight_balanced,
        };
        Self { names, nodes, strategy: scoring.strategy.clone(), fit, balanced, weights }
    }

    /// Works out once what is the same for every pod of a class.
    pub fn prepare(&self, class: &ClassSpec) -> Prepared {
        let asked = class.requests.iter().filter(|(_, amount)| **amount > 0);
        let unheard_of = asked.filter(|(name, _)| !self.names.contains(name)).map(|(name, _)| name.clone()).collect();
        let asked_for_scores = [class.scoring_cpu_milli, class.scoring_memory_bytes];
        let placed = class.placed_scoring.map(|placed| [placed.cpu_milli, placed.memory_bytes]);
        Prepared {
            requests: by_number(&class.requests, &self.names),
            unheard_of,
            requests_for_scores: asked_for_scores,
            requests_for_scores_when_placed: placed.unwrap_or(asked_for_scores),
            ports: class.host_ports.clone(),
            suits: self.nodes.iter().map(|node| Suits::new(class, &node.spec)).collect(),
        }
    }

    /// Whether one more pod of the class can go to the node.
    pub fn feasible(&self, node: usize, class: &ClassSpec) -> bool {
        self.feasible_prepared(node, &self.prepare(class))
    }

    /// Why not: all reasons of the first filter that says no; none if the pod can go there.
    pub fn why_not(&self, node: usize, class: &ClassSpec) -> Vec<WhyNot> {
        let (class, place) = (self.prepare(class), &self.nodes[node]);
        if let Some(why_not) = &class.suits[node].why_not {
            return vec![why_not.clone()];
        }
        if ports_conflict(&class.ports, &place.ports) {
            return vec![WhyNot::Ports];
        }
        let too_many = (place.pods + 1 > place.pods_max).then_some(WhyNot::TooManyPods);
        let short = (0..self.names.len()).filter(|resource| place.too_little(&class, *resource));
        let short = short.map(|resource| &self.names[resource]).chain(&class.unheard_of);
        too_many.into_iter().chain(short.map(|name| WhyNot::Insufficient(name.clone()))).collect()
    }

    /// The weighted total score of each node; `None` where the pod cannot go.
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

    /// Puts a pod on a node without asking.
    pub fn occupy(&mut self, node: usize, class: &ClassSpec) {
        let class = self.prepare(class);
        self.nodes[node].occupy(&class);
    }

    /// Takes a pod from its node.
    pub fn release(&mut self, node: usize, class: &ClassSpec) {
        let class = self.prepare(class);
        self.nodes[node].release(&class);
    }

    fn feasible_prepared(&self, node: usize, class: &Prepared) -> bool {
        let place = &self.nodes[node];
        class.suits[node].why_not.is_none()
            && class.unheard_of.is_empty()
            && place.pods < place.pods_max
            && !(0..self.names.len()).any(|resource| place.too_little(class, resource))
            && !ports_conflict(&class.ports, &place.ports)
    }

    fn totals_prepared(&self, class: &Prepared) -> Vec<Option<i64>> {
        let feasible: Vec<bool> = (0..self.nodes.len()).map(|node| self.feasible_prepared(node, class)).collect();
        let suits = || class.suits.iter().zip(&feasible).filter(|(_, feasible)| **feasible).map(|(suits, _)| suits);
        let most_taints = suits().map(|suits| suits.soft_taints).max().unwrap_or(0);
        let most_liked = suits().map(|suits| suits.preference).max().unwrap_or(0);
        let total = |node: usize| {
            let suits = &class.suits[node];
            let taints = SCORE_MAX - share(suits.soft_taints, most_taints);
            let liked = share(suits.preference, most_liked);
            let (fit, balance) = (self.fit_score(node, class), self.balance_score(node, class));
            self.weights.taints * taints
                + self.weights.node_affinity * liked
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
        scores::fullness(&self.strategy, columns)
    }

    fn balance_score(&self, node: usize, class: &Prepared) -> i64 {
        // A pod that asks for none of them would go to whatever node is even already.
        if self.balanced.iter().all(|resource| class.requests[*resource] == 0) {
            return 0;
        }
        let place = &self.nodes[node];
        let column = |resource: &usize| place.column(*resource, 1, class.requests[*resource], place.used[*resource]);
        scores::balance(self.balanced.iter().filter_map(column))
    }
}

impl Place {
    fn new(spec: &NodeSpec, names: &[String]) -> Self {
        Self {
            spec: spec.clone(),
            offers: by_number(&spec.allocatable, names),
            used: vec![0; names.len()],
            used_for_scores: [0; 2],
            pods: 0,
            pods_max: spec.allocatable.get(PODS).copied().unwrap_or(0),
            ports: Vec::new(),
        }
    }

    fn too_little(&self, class: &Prepared, resource: usize) -> bool {
        let asked = class.requests[resource];
        asked > 0 && asked > self.offers[resource] - self.used[resource]
    }

    /// What a score sees of one resource; nothing if the node does not offer it, or if it is a device that the pod
    /// does not ask for.
    fn column(&self, resource: usize, weight: i64, asked: i64, allocated: i64) -> Option<Column> {
        let allocatable = self.offers[resource];
        if allocatable == 0 || (asked == 0 && resource > EPHEMERAL_STORAGE) {
            return None;
        }
        Some(Column { weight, requested: allocated + asked, allocated, allocatable })
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
            let held = self.ports.iter().position(|held| held == port).expect("a pod that leaves held its ports");
            self.ports.swap_remove(held);
        }
    }

    fn count(&mut self, class: &Prepared, sign: i64) {
        for (used, asked) in self.used.iter_mut().zip(&class.requests) {
            *used += sign * asked;
        }
        for (used, asked) in self.used_for_scores.iter_mut().zip(class.requests_for_scores_when_placed) {
            *used += sign * asked;
        }
    }
}

impl Suits {
    fn new(class: &ClassSpec, node: &NodeSpec) -> Self {
        let why_not = if matching::insists_on_another_node(class, node) {
            Some(WhyNot::NodeName)
        } else if matching::kept_off_by_cordon(class, node) {
            Some(WhyNot::Unschedulable)
        } else if matching::kept_off_by_taints(class, node) {
            Some(WhyNot::Taints)
        } else if !matching::matches_required(class, node) {
            Some(WhyNot::NodeAffinity)
        } else {
            None
        };
        let (soft_taints, preference) = (matching::soft_taints_against(class, node), matching::preference(class, node));
        Self { why_not, soft_taints, preference }
    }
}

/// Kubernetes' `DefaultNormalizeScore`, the right way round.
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
        assert_eq!(naive.why_not(2, &pod), [WhyNot::Insufficient("cpu".into())]);
        assert_eq!(naive.place(&pod), Some(1));
        naive.release(1, &pod);
        assert_eq!(naive.totals(&pod)[1], Some(433));
    }

    #[test]
    fn a_prepared_class_is_placed_until_the_nodes_are_full() {
        let node = NodeSpec { name: "a".into(), allocatable: amounts(4000, 10), ..NodeSpec::default() };
        let mut naive = Naive::new(&[node], &Scoring::default());
        let pod = naive.prepare(&class(0, 1));
        assert_eq!([(); 3].map(|()| naive.place_prepared(&pod)), [Some(0), Some(0), None]);
        assert_eq!(naive.why_not(0, &class(0, 1)), [WhyNot::TooManyPods]);
        let strange = ClassSpec { requests: [("example.com/x".to_owned(), 1)].into(), ..ClassSpec::default() };
        assert!(!naive.feasible(0, &strange));
    }
}
