//! Ranking of nodes for a class with inter-pod terms, by sets of equivalent nodes.
//!
//! Equivalent nodes are in the same topology domains of several nodes, have the same pod counts in domains of a single
//! node, and the same static scores. So inter-pod filters and scores are evaluated once per set, regardless of how many
//! nodes it has: a pod that is placed in a zone changes a few sets, not thousands of nodes. Within a set, only the load
//! of a node decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use smallvec::SmallVec;

use super::candidate::Candidate;
use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::topology::rules::{InterPodRules, SpreadConstraint};
use crate::cluster::topology::{ExistingTerms, TopologyKey};
use crate::filter::{self, InterPodView};
use crate::model::ids::{ClassId, DomainCountsId, NodeId, Slab, TopologyKeyId};
use crate::score::inter_pod_affinity::Span;
use crate::score::{InterPodScore, Normalization, Scorer, StaticScore, topology_spread};

/// Stands for the domain of a node that is in none.
const NOWHERE: i64 = -1;
/// Stands for every domain of a single node.
const SINGLE: i64 = -2;
/// The label that identifies hosts.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Stands for the set of a node that is in none.
const NO_SET: u32 = u32::MAX;

/// Everything that the nodes of a set have in common, in a fixed order.
type Signature = SmallVec<[i64; 8]>;

#[derive(Clone, Debug)]
struct EquivalenceSet {
    signature: Signature,
    raw: StaticScore,
    /// The nodes with room, best first.
    nodes: BTreeSet<(Reverse<i64>, NodeId)>,
    feasible: bool,
    inter_pod: InterPodScore,
    /// The weighted scores except those of the node's load.
    total: i64,
}

impl EquivalenceSet {
    /// A representative node.
    fn first(&self) -> NodeId {
        self.nodes.first().expect("a set has nodes").1
    }
}

/// The number of domains of a topology key among the scored nodes.
#[derive(Clone, Debug, Default)]
struct DomainSizes {
    nodes: usize,
    /// Domains of a single node.
    single: usize,
    /// All other domains; nodes without the label count as one.
    domains: BTreeSet<Option<u32>>,
}

/// The nodes of a class in sets of equivalent nodes.
#[derive(Clone, Debug)]
pub(super) struct EquivalenceRanking {
    class: ClassId,
    priority: i32,
    /// The terms of existing pods on the class.
    pub(super) existing: ExistingTerms,
    /// The topology keys of all terms, and more, with their serial numbers.
    topology_keys: BTreeMap<TopologyKeyId, Option<u64>>,
    sets: Slab<EquivalenceSet>,
    by_signature: BTreeMap<Signature, u32>,
    /// By node slot: its set, and its load score there.
    set_by_node: Vec<(u32, i64)>,
    pub(super) normalized_by: Normalization,
}

impl EquivalenceRanking {
    pub(super) fn new(
        cluster: &Cluster,
        class: ClassId,
        (topology_keys, existing): (BTreeSet<TopologyKeyId>, ExistingTerms),
        priority: i32,
    ) -> Self {
        let serial = |key: TopologyKeyId| (key, cluster.topology.serial(key));
        Self {
            class,
            priority,
            existing,
            topology_keys: topology_keys.into_iter().map(serial).collect(),
            sets: Slab::default(),
            by_signature: BTreeMap::new(),
            set_by_node: vec![(NO_SET, 0); cluster.node_slots()],
            normalized_by: Normalization::default(),
        }
    }

    /// Whether nodes are told apart by these topology keys.
    pub(super) fn has_keys(&self, cluster: &Cluster, keys: &BTreeSet<TopologyKeyId>) -> bool {
        let mut known = self.topology_keys.iter();
        known.all(|(key, serial)| cluster.topology.serial(*key) == *serial)
            && keys.iter().all(|key| self.topology_keys.contains_key(key))
    }

    /// Moves a node to the set that it belongs to now. `rescale` then updates the scores.
    pub(super) fn put(&mut self, cluster: &Cluster, id: NodeId, candidate: Candidate) {
        let (old, load_score) = self.set_by_node[id.slot()];
        if let Some(set) = self.sets.get_mut(old) {
            set.nodes.remove(&(Reverse(load_score), id));
        }
        let new = if candidate.has_room {
            self.set_for(self.signature(cluster, id, candidate.raw), candidate.raw)
        } else {
            NO_SET
        };
        self.set_by_node[id.slot()] = (new, candidate.load_score);
        if let Some(set) = self.sets.get_mut(new) {
            set.nodes.insert((Reverse(candidate.load_score), id));
        }
        if self.sets.get(old).is_some_and(|set| set.nodes.is_empty()) {
            let set = self.sets.remove(old).expect("just seen");
            self.by_signature.remove(&set.signature);
        }
    }

    fn set_for(&mut self, signature: Signature, raw: StaticScore) -> u32 {
        if let Some(set) = self.by_signature.get(&signature) {
            return *set;
        }
        let inter_pod = InterPodScore::default();
        let set = EquivalenceSet {
            signature: signature.clone(),
            raw,
            nodes: BTreeSet::new(),
            feasible: false,
            inter_pod,
            total: 0,
        };
        let set = self.sets.insert(set);
        self.by_signature.insert(signature, set);
        set
    }

    fn signature(&self, cluster: &Cluster, node: NodeId, raw: StaticScore) -> Signature {
        let topology = &cluster.topology;
        let inter_pod = InterPodView {
            cluster,
            node,
            priority: self.priority,
            existing: Some(&self.existing),
            without_pods: false,
        };
        let mut signature: Signature = [raw.taints, raw.node_affinity].into_iter().collect();
        signature.extend(self.topology_keys.keys().map(|topology_key| {
            match topology.topology_key(*topology_key).domain(node) {
                None => NOWHERE,
                Some(domain) if topology.topology_key(*topology_key).nodes(domain).len() == 1 => SINGLE,
                Some(domain) => i64::from(domain),
            }
        }));
        // For a domain of a single node, its counts are part of the signature; for a larger domain, the domain itself
        // is.
        let single = |counts: &DomainCountsId| single_node_domain(cluster, *counts, node);
        let count = |counts: &DomainCountsId, domain| i64::from(topology.count(*counts, domain));
        let of = |counts: &DomainCountsId, number: &dyn Fn(u32) -> i64| single(counts).map_or(0, number);
        let class = cluster.class(self.class);
        let rules = &class.rules;
        signature
            .extend(rules.required_affinity.iter().map(|counts| of(counts, &|domain| count(counts, domain).min(1))));
        let anti_affinity = rules.anti_affinity.iter();
        signature.extend(anti_affinity.map(|counts| of(counts, &|_| i64::from(inter_pod.has_matching_pod(*counts)))));
        let is_single = |key| has_single_node_domain(topology.topology_key(key), node);
        signature.push(i64::from(inter_pod.is_avoided(class, &self.existing, is_single)));
        for SpreadConstraint { counts, .. } in &rules.spread {
            let nominated = of(counts, &|domain| i64::from(inter_pod.nominated_count(*counts, domain)));
            signature.extend([of(counts, &|domain| count(counts, domain)), nominated]);
        }
        signature.extend(rules.spread_scoring.iter().map(|counts| of(counts, &|domain| count(counts, domain))));
        let preferences =
            rules.preferred.iter().map(|(counts, weight)| of(counts, &|domain| count(counts, domain) * weight));
        signature.push(preferences.sum::<i64>() + self.existing.score(topology, node, is_single));
        signature
    }

    /// Evaluates the inter-pod filters and scores of all sets again.
    pub(super) fn rescale(&mut self, cluster: &Cluster, scorer: &Scorer, class: ClassId) {
        let class = cluster.class(class);
        cluster.steps.add(self.by_signature.len());
        for set in self.by_signature.values() {
            let set = self.sets.get_mut(*set).expect("a listed set exists");
            let node = set.first();
            let mut view = filter::view(cluster, node, self.priority);
            if let Some(inter_pod) = &mut view.inter_pod {
                inter_pod.existing = Some(&self.existing);
            }
            set.feasible = filter::passes_inter_pod_filters(class, cluster.node(node), &view);
            set.inter_pod.affinity = inter_pod_affinity(cluster, class, &self.existing, node);
        }
        let spread = self.scale_spread(cluster, class);
        self.normalized_by = Normalization { spread, ..self.raw_ranges() };
        for set in self.by_signature.values() {
            let set = self.sets.get_mut(*set).expect("a listed set exists");
            set.total = scorer.normalized_score(set.raw, set.inter_pod, &self.normalized_by);
        }
    }

    fn feasible_sets(&self) -> impl Iterator<Item = &EquivalenceSet> {
        self.sets.iter().map(|(_, set)| set).filter(|set| set.feasible)
    }

    fn raw_ranges(&self) -> Normalization {
        let affinities = self.feasible_sets().map(|set| set.inter_pod.affinity);
        let span = affinities.fold(None, |span: Option<Span>, affinity| {
            let span = span.unwrap_or(Span { least: affinity, most: affinity });
            Some(Span { least: span.least.min(affinity), most: span.most.max(affinity) })
        });
        Normalization {
            taints: self.feasible_sets().map(|set| set.raw.taints).max().unwrap_or(0),
            node_affinity: self.feasible_sets().map(|set| set.raw.node_affinity).max().unwrap_or(0),
            inter_pod_affinity: span.unwrap_or_default(),
            spread: None,
        }
    }

    /// Scores the topology spread of all sets and returns the scale for their normalization.
    fn scale_spread(&mut self, cluster: &Cluster, class: &PodClass) -> Option<topology_spread::Scale> {
        let rules = &class.rules;
        let should = &class.spec.inter_pod.as_ref().filter(|_| !rules.spread_scoring.is_empty())?.spread;
        let tolerates_missing = should.scores_nodes_without_keys;
        let mut sizes: Vec<DomainSizes> = vec![DomainSizes::default(); should.schedule_anyway.len()];
        for set in self.feasible_sets() {
            let counts = domain_counts(cluster, rules, set);
            if !tolerates_missing && counts.iter().any(Option::is_none) {
                continue;
            }
            let one =
                rules.spread_scoring.iter().map(|counts| single_node_domain(cluster, *counts, set.first()).is_some());
            for ((size, count), is_one) in sizes.iter_mut().zip(counts).zip(one) {
                size.nodes += set.nodes.len();
                if is_one {
                    size.single += set.nodes.len();
                } else {
                    size.domains.insert(count.map(|(domain, _)| domain));
                }
            }
        }
        // For the hostname key, kube-scheduler counts nodes, regardless of their labels.
        let sizes = should.schedule_anyway.iter().zip(sizes).map(|(term, size)| {
            if term.topology_key == HOSTNAME { size.nodes } else { size.single + size.domains.len() }
        });
        let mut scale =
            topology_spread::Scale { weights: sizes.map(topology_spread::weight).collect(), least: i64::MAX, most: 0 };
        for set in self.by_signature.values() {
            let set = self.sets.get_mut(*set).expect("a listed set exists");
            let counts = domain_counts(cluster, rules, set);
            set.inter_pod.spread = (tolerates_missing || counts.iter().all(Option::is_some)).then(|| {
                let terms = counts.iter().zip(&scale.weights).zip(&should.schedule_anyway);
                topology_spread::raw(
                    terms.filter_map(|((count, weight), term)| Some(((*count)?.1, *weight, term.max_skew))),
                )
            });
            if let Some(raw) = set.inter_pod.spread.filter(|_| set.feasible) {
                (scale.least, scale.most) = (scale.least.min(raw), scale.most.max(raw));
            }
        }
        Some(scale)
    }

    /// The best node except these; the lowest slot among equals.
    pub(super) fn best_except(&self, except: &[NodeId]) -> Option<NodeId> {
        let first = |set: &EquivalenceSet| {
            let (load_score, node) = *set.nodes.iter().find(|(_, node)| !except.contains(node))?;
            Some((Reverse(set.total + load_score.0), node))
        };
        self.feasible_sets().filter_map(first).min().map(|(_, node)| node)
    }

    fn set_of(&self, node: NodeId) -> Option<&EquivalenceSet> {
        self.set_by_node.get(node.slot()).and_then(|(set, _)| self.sets.get(*set))
    }

    pub(super) fn is_feasible(&self, node: NodeId) -> bool {
        self.set_of(node).is_some_and(|set| set.feasible)
    }

    pub(super) fn inter_pod_score(&self, node: NodeId) -> InterPodScore {
        self.set_of(node).map_or_else(InterPodScore::default, |set| set.inter_pod)
    }

    /// The score of a node except that of its load.
    pub(super) fn total(&self, node: NodeId) -> i64 {
        self.set_of(node).map_or(0, |set| set.total)
    }
}

/// The domain of a node, if the node is the only one in it.
fn single_node_domain(cluster: &Cluster, counts: DomainCountsId, node: NodeId) -> Option<u32> {
    let topology_key = cluster.topology.topology_key(cluster.topology.domain_counts(counts).topology_key);
    topology_key.domain(node).filter(|_| has_single_node_domain(topology_key, node))
}

/// Whether a node is the only one in its domain.
fn has_single_node_domain(topology_key: &TopologyKey, node: NodeId) -> bool {
    topology_key.domain(node).is_some_and(|domain| topology_key.nodes(domain).len() == 1)
}

/// The raw inter-pod affinity score of a node.
fn inter_pod_affinity(cluster: &Cluster, class: &PodClass, existing: &ExistingTerms, node: NodeId) -> i64 {
    let count = |counts| cluster.topology.count_near(counts, node).map_or(0, i64::from);
    let own: i64 = class.rules.preferred.iter().map(|(counts, weight)| count(*counts) * weight).sum();
    own + existing.score(&cluster.topology, node, |_| true)
}

/// By constraint: the domain of a set, and the number of matching pods in it.
fn domain_counts(cluster: &Cluster, rules: &InterPodRules, set: &EquivalenceSet) -> SmallVec<[Option<(u32, u32)>; 2]> {
    let node = set.first();
    let count = |id: &DomainCountsId| {
        let counts = cluster.topology.domain_counts(*id);
        let domain = cluster.topology.topology_key(counts.topology_key).domain(node)?;
        Some((domain, cluster.topology.count(*id, domain)))
    };
    rules.spread_scoring.iter().map(count).collect()
}
