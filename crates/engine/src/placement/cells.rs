//! The ranking of nodes for a class to which it matters who is near: nodes that are alike in that stand together.
//!
//! Nodes of one *cell* are in the same domains wherever a domain is more than one node, have the same numbers near where a
//! domain is a node of its own, and the same raw scores of their own. So whether a pod is welcome, and everything about a
//! score that depends on others, is found out once for a cell, however many nodes it has: a pod that comes to a zone
//! changes a few cells, not thousands of nodes. Within a cell only what is on a node decides.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use smallvec::SmallVec;

use super::candidates::Candidate;
use crate::cluster::Cluster;
use crate::cluster::neighbours::{Evenness, Rules};
use crate::filter::{self, Near};
use crate::model::class::PodClass;
use crate::model::ids::{AxisId, ClassId, NodeId, Slab, TallyId};
use crate::score::company::Span;
use crate::score::{Best, FixedScore, NearScore, Scorer, spread};

/// The number of a domain, or of pods, where a node is in no domain.
const NOWHERE: i64 = -1;
/// The number of every domain that is one node.
const SINGLE: i64 = -2;
/// The label that tells hosts apart.
const HOSTNAME: &str = "kubernetes.io/hostname";
/// The cell of a node that is in none.
const NO_CELL: u32 = u32::MAX;

/// Everything that nodes of a cell have in common, in a fixed order.
type Likeness = SmallVec<[i64; 8]>;

#[derive(Clone, Debug)]
struct Cell {
    likeness: Likeness,
    raw: FixedScore,
    /// The nodes that have room, best first.
    nodes: BTreeSet<(Reverse<i64>, NodeId)>,
    welcome: bool,
    near: NearScore,
    /// The weighted scores of all but what is on a node.
    total: i64,
}

impl Cell {
    /// A node that stands for all of them.
    fn first(&self) -> NodeId {
        self.nodes.first().expect("a cell has nodes").1
    }
}

/// How many domains a label has among the nodes that are judged.
#[derive(Clone, Debug, Default)]
struct Size {
    nodes: usize,
    /// Domains of one node.
    single: usize,
    /// The others; nodes without the label are together in one.
    domains: BTreeSet<Option<u32>>,
}

/// Nodes by cell.
#[derive(Clone, Debug)]
pub(super) struct Cells {
    rules: Arc<Rules>,
    priority: i32,
    /// The labels that matter.
    axes: Vec<AxisId>,
    slab: Slab<Cell>,
    by_likeness: BTreeMap<Likeness, u32>,
    /// By node slot: its cell, and the score by which it stands there.
    of: Vec<(u32, i64)>,
    pub(super) scaled_by: Best,
}

impl Cells {
    pub(super) fn new(cluster: &Cluster, rules: &Arc<Rules>, priority: i32) -> Self {
        let demands = rules.seeks.iter().chain(&rules.shuns).chain(&rules.shunned_by).copied();
        let spread = rules.spread.iter().map(|even| even.tally).chain(rules.should_spread.iter().copied());
        let tallies = demands.chain(spread).chain(rules.prefers.iter().map(|(tally, _)| *tally));
        let axes: BTreeSet<AxisId> = tallies.map(|tally| cluster.neighbours.tally(tally).axis).collect();
        Self {
            rules: rules.clone(),
            priority,
            axes: axes.into_iter().collect(),
            slab: Slab::default(),
            by_likeness: BTreeMap::new(),
            of: vec![(NO_CELL, 0); cluster.node_slots()],
            scaled_by: Best::default(),
        }
    }

    pub(super) fn are_of(&self, rules: &Arc<Rules>) -> bool {
        Arc::ptr_eq(&self.rules, rules)
    }

    /// Puts a node into the cell where it belongs by now. What follows is for `rescale` to see.
    pub(super) fn put(&mut self, cluster: &Cluster, id: NodeId, candidate: Candidate) {
        let (old, moving) = self.of[id.slot()];
        if let Some(cell) = self.slab.get_mut(old) {
            cell.nodes.remove(&(Reverse(moving), id));
        }
        let new = if candidate.has_room {
            self.cell_for(self.likeness(cluster, id, candidate.raw), candidate.raw)
        } else {
            NO_CELL
        };
        self.of[id.slot()] = (new, candidate.moving);
        if let Some(cell) = self.slab.get_mut(new) {
            cell.nodes.insert((Reverse(candidate.moving), id));
        }
        if self.slab.get(old).is_some_and(|cell| cell.nodes.is_empty()) {
            let cell = self.slab.remove(old).expect("just seen");
            self.by_likeness.remove(&cell.likeness);
        }
    }

    fn cell_for(&mut self, likeness: Likeness, raw: FixedScore) -> u32 {
        if let Some(cell) = self.by_likeness.get(&likeness) {
            return *cell;
        }
        let near = NearScore::default();
        let cell = Cell { likeness: likeness.clone(), raw, nodes: BTreeSet::new(), welcome: false, near, total: 0 };
        let cell = self.slab.insert(cell);
        self.by_likeness.insert(likeness, cell);
        cell
    }

    fn likeness(&self, cluster: &Cluster, node: NodeId, raw: FixedScore) -> Likeness {
        let neighbours = &cluster.neighbours;
        let near = Near { cluster, node, priority: self.priority, deserted: false };
        let mut likeness: Likeness = [raw.taints, raw.affinity].into_iter().collect();
        likeness.extend(self.axes.iter().map(|axis| match neighbours.axis(*axis).domain(node) {
            None => NOWHERE,
            Some(domain) if neighbours.axis(*axis).nodes(domain).len() == 1 => SINGLE,
            Some(domain) => i64::from(domain),
        }));
        // Where a domain is a node of its own, what counts is who is there; where it is more, that is the domain's.
        let alone = |tally: &TallyId| domain_of_one(cluster, *tally, node);
        let count = |tally: &TallyId, domain| i64::from(neighbours.tally(*tally).count(domain));
        let of = |tally: &TallyId, number: &dyn Fn(u32) -> i64| alone(tally).map_or(0, number);
        let rules = &self.rules;
        likeness.extend(rules.seeks.iter().map(|tally| of(tally, &|domain| count(tally, domain).min(1))));
        let shuns = rules.shuns.iter().chain(&rules.shunned_by);
        likeness.extend(shuns.map(|tally| of(tally, &|_| i64::from(near.has_or_expects(*tally)))));
        for Evenness { tally, .. } in &rules.spread {
            let expected = of(tally, &|domain| i64::from(near.expected(*tally, domain)));
            likeness.extend([of(tally, &|domain| count(tally, domain)), expected]);
        }
        likeness.extend(rules.should_spread.iter().map(|tally| of(tally, &|domain| count(tally, domain))));
        let likes = rules.prefers.iter().map(|(tally, weight)| of(tally, &|domain| count(tally, domain) * weight));
        likeness.push(likes.sum());
        likeness
    }

    /// Finds out afresh where the class is welcome, and how good the cells are.
    pub(super) fn rescale(&mut self, cluster: &Cluster, scorer: &Scorer, class: ClassId) {
        let class = cluster.class(class);
        for cell in self.by_likeness.values() {
            let cell = self.slab.get_mut(*cell).expect("a listed cell exists");
            let node = cell.first();
            let view = filter::view(cluster, node, self.priority);
            cell.welcome = filter::is_welcome(class, cluster.node(node), &view);
            cell.near.company = company(cluster, &self.rules, node);
        }
        let spread = self.scale_spread(cluster, class);
        self.scaled_by = Best { spread, ..self.best_raw() };
        for cell in self.by_likeness.values() {
            let cell = self.slab.get_mut(*cell).expect("a listed cell exists");
            cell.total = scorer.proportional(cell.raw, cell.near, &self.scaled_by);
        }
    }

    fn welcoming(&self) -> impl Iterator<Item = &Cell> {
        self.slab.iter().map(|(_, cell)| cell).filter(|cell| cell.welcome)
    }

    fn best_raw(&self) -> Best {
        let company = self.welcoming().map(|cell| cell.near.company);
        let span = company.fold(None, |span: Option<Span>, company| {
            let span = span.unwrap_or(Span { least: company, most: company });
            Some(Span { least: span.least.min(company), most: span.most.max(company) })
        });
        Best {
            taints: self.welcoming().map(|cell| cell.raw.taints).max().unwrap_or(0),
            affinity: self.welcoming().map(|cell| cell.raw.affinity).max().unwrap_or(0),
            company: span.unwrap_or_default(),
            spread: None,
        }
    }

    /// Judges how evenly the class would be spread; what it is to be set in proportion to is the answer.
    fn scale_spread(&mut self, cluster: &Cluster, class: &PodClass) -> Option<spread::Scale> {
        let should = &class.spec.company.as_ref().filter(|_| !self.rules.should_spread.is_empty())?.spread;
        let bears = should.bears_missing_labels;
        let mut sizes: Vec<Size> = vec![Size::default(); should.should.len()];
        for cell in self.welcoming() {
            let near = counts(cluster, &self.rules, cell);
            if !bears && near.iter().any(Option::is_none) {
                continue;
            }
            let one =
                self.rules.should_spread.iter().map(|tally| domain_of_one(cluster, *tally, cell.first()).is_some());
            for ((size, near), is_one) in sizes.iter_mut().zip(near).zip(one) {
                size.nodes += cell.nodes.len();
                if is_one {
                    size.single += cell.nodes.len();
                } else {
                    size.domains.insert(near.map(|(domain, _)| domain));
                }
            }
        }
        // Of hosts, kube-scheduler counts the nodes, whatever their labels say.
        let sizes = should.should.iter().zip(sizes).map(|(term, size)| {
            if term.topology_key == HOSTNAME { size.nodes } else { size.single + size.domains.len() }
        });
        let mut scale = spread::Scale { weights: sizes.map(spread::weight).collect(), least: i64::MAX, most: 0 };
        for cell in self.by_likeness.values() {
            let cell = self.slab.get_mut(*cell).expect("a listed cell exists");
            let near = counts(cluster, &self.rules, cell);
            cell.near.spread = (bears || near.iter().all(Option::is_some)).then(|| {
                let terms = near.iter().zip(&scale.weights).zip(&should.should);
                spread::raw(terms.filter_map(|((near, weight), term)| Some(((*near)?.1, *weight, term.skew_max))))
            });
            if let Some(raw) = cell.near.spread.filter(|_| cell.welcome) {
                (scale.least, scale.most) = (scale.least.min(raw), scale.most.max(raw));
            }
        }
        Some(scale)
    }

    /// The best node but these few; the lowest slot among equals.
    pub(super) fn best_except(&self, except: &[NodeId]) -> Option<NodeId> {
        let first = |cell: &Cell| {
            let (moving, node) = *cell.nodes.iter().find(|(_, node)| !except.contains(node))?;
            Some((Reverse(cell.total + moving.0), node))
        };
        self.welcoming().filter_map(first).min().map(|(_, node)| node)
    }

    fn cell(&self, node: NodeId) -> Option<&Cell> {
        self.of.get(node.slot()).and_then(|(cell, _)| self.slab.get(*cell))
    }

    pub(super) fn welcomes(&self, node: NodeId) -> bool {
        self.cell(node).is_some_and(|cell| cell.welcome)
    }

    pub(super) fn near(&self, node: NodeId) -> NearScore {
        self.cell(node).map_or_else(NearScore::default, |cell| cell.near)
    }

    /// The score of a node without what is on it.
    pub(super) fn total(&self, node: NodeId) -> i64 {
        self.cell(node).map_or(0, |cell| cell.total)
    }
}

/// The domain of a node in a tally, if it is the node alone.
fn domain_of_one(cluster: &Cluster, tally: TallyId, node: NodeId) -> Option<u32> {
    let axis = cluster.neighbours.axis(cluster.neighbours.tally(tally).axis);
    axis.domain(node).filter(|domain| axis.nodes(*domain).len() == 1)
}

/// What the company near a node is worth.
fn company(cluster: &Cluster, rules: &Rules, node: NodeId) -> i64 {
    let near = |tally| cluster.neighbours.count_near(tally, node).map_or(0, i64::from);
    rules.prefers.iter().map(|(tally, weight)| near(*tally) * weight).sum()
}

/// By term: the domain of a cell, and how many are there among whom the class should be spread.
fn counts(cluster: &Cluster, rules: &Rules, cell: &Cell) -> SmallVec<[Option<(u32, u32)>; 2]> {
    let node = cell.first();
    let near = |tally: &TallyId| {
        let tally = cluster.neighbours.tally(*tally);
        let domain = cluster.neighbours.axis(tally.axis).domain(node)?;
        Some((domain, tally.count(domain)))
    };
    rules.should_spread.iter().map(near).collect()
}
