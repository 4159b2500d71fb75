//! Which child groups of a tree start, and in which domains: tried in the order of the tree, depth first, within a
//! limit.
//!
//! A group with a topology constraint of its own is placed as soon as its domain is chosen, so that its siblings see
//! what
//! is left. The minimums of all others are placed together at the end: for them, the usual search decides.

use super::super::domains;
use super::super::request::{LeafState, PlacementRequest, TopologyRequest, Verdict};
use super::super::within::Within;
use super::domains::Options;
use super::{Forest, Part, proof};
use crate::model::tree::TreeMinimum;

/// So many combinations of groups and domains are tried.
const ENDS_MAX: usize = 128;
/// So many before groups are left out that do not fit even alone.
const ENDS_MAX_AT_FIRST: usize = 8;

/// What is still to be done.
#[derive(Clone)]
enum Task {
    /// Place what this group needs, within a domain.
    Group(usize, Option<Within>),
    /// Place so many of these child groups, within a domain.
    Children(Vec<usize>, u32, Option<Within>),
}

/// Chooses groups and domains.
pub(super) struct Choice<'s, 'f, 'c> {
    forest: &'s mut Forest<'f, 'c>,
    ends: usize,
    ends_max: usize,
    /// By node: it cannot be placed, whatever else is.
    excluded: Vec<bool>,
    /// Whether there was anything to choose, or a leaf was placed before others.
    chose: bool,
    has_order: bool,
    steps: u64,
}

/// The state of one attempt.
#[derive(Clone)]
struct Attempt {
    part: Part,
    /// By subset: leaves that are placed together at the end.
    together: Vec<bool>,
}

impl<'s, 'f, 'c> Choice<'s, 'f, 'c> {
    pub(super) fn new(forest: &'s mut Forest<'f, 'c>) -> Self {
        let excluded = vec![false; forest.tree.tree.nodes().len()];
        Self { forest, ends: 0, ends_max: ENDS_MAX_AT_FIRST, excluded, chose: false, has_order: false, steps: 0 }
    }

    /// Places what the root needs and what is starting. The transaction keeps what was tried last if there is no part.
    pub(super) fn needed(&mut self, start: Part) -> Result<Part, Verdict> {
        let savepoint = self.forest.transaction.savepoint();
        let within = self.forest.request.within.clone();
        if let Some(part) = self.attempt(Task::Group(0, within.clone()), start.clone()) {
            return Ok(part);
        }
        self.forest.transaction.rollback_to(savepoint);
        if !self.chose && !self.has_order && self.ends == 1 && self.steps == 0 {
            // There was one combination, and the search has proven that it does not fit.
            return Err(Verdict::Impossible);
        }
        let proof = proof::examine(self.forest, &start);
        if proof.is_impossible {
            return Err(Verdict::Impossible);
        }
        if self.chose {
            (self.excluded, self.ends, self.ends_max) = (proof.excluded, 0, ENDS_MAX);
            if let Some(part) = self.attempt(Task::Group(0, within), start) {
                return Ok(part);
            }
            self.forest.transaction.rollback_to(savepoint);
        }
        Err(Verdict::NotFound { steps: self.steps })
    }

    /// Places what one further group needs.
    pub(super) fn one(&mut self, node: usize, part: Part) -> Option<Part> {
        let parent = self.forest.tree.tree.nodes()[node].parent;
        let within = super::domains::of_started(self.forest, parent, &part);
        self.attempt(Task::Group(node, within), part)
    }

    fn attempt(&mut self, task: Task, part: Part) -> Option<Part> {
        let together = vec![false; part.met.len()];
        self.solve(vec![task], Attempt { part, together })
    }

    /// Does the last task, then the others; `None` if that is impossible, or was not found.
    fn solve(&mut self, mut tasks: Vec<Task>, attempt: Attempt) -> Option<Part> {
        if self.ends >= self.ends_max {
            return None;
        }
        match tasks.pop() {
            None => self.place_together(attempt),
            Some(Task::Group(node, within)) => self.solve_group(node, within, &tasks, &attempt),
            Some(Task::Children(children, missing, within)) => {
                self.solve_children(&children, missing, within.as_ref(), &tasks, &attempt)
            }
        }
    }

    /// Places the minimums that need no domain of their own, all at once.
    fn place_together(&mut self, mut attempt: Attempt) -> Option<Part> {
        self.ends += 1;
        let request = self.forest.minimums_of(&attempt.together, &attempt.part);
        if !request.lots.is_empty() || request.needs_total() > 0 {
            match self.place_flat(&request) {
                Verdict::Placed => {}
                Verdict::Impossible => return None,
                Verdict::NotFound { steps } => {
                    self.steps = self.steps.saturating_add(steps.max(1));
                    return None;
                }
            }
        }
        for (met, placed) in attempt.part.met.iter_mut().zip(&attempt.together) {
            *met |= *placed;
        }
        Some(attempt.part)
    }

    fn place_flat(&mut self, request: &PlacementRequest) -> Verdict {
        let forest = &mut *self.forest;
        super::super::place(forest.transaction, forest.cache, request, forest.steps_max)
    }

    fn solve_group(&mut self, node: usize, within: Option<Within>, tasks: &[Task], attempt: &Attempt) -> Option<Part> {
        let tree = self.forest.tree.tree.clone();
        if tree.met(|subset| attempt.part.met[subset])[node] && !self.is_starting(node) {
            return self.solve(tasks.to_vec(), attempt.clone());
        }
        let options = Options::of(self.forest, node, within.as_ref(), &attempt.part);
        self.chose |= options.domains.len() > 1;
        if let (Some(subset), false) = (tree.subset(node), options.is_constrained) {
            let mut attempt = attempt.clone();
            attempt.together[subset] = true;
            attempt.part.within[subset] = within;
            return self.solve(tasks.to_vec(), attempt);
        }
        for domain in options.domains {
            let savepoint = self.forest.transaction.savepoint();
            let solved = if let Some(subset) = tree.subset(node) {
                self.place_leaf(subset, domain, options.topology.as_ref(), tasks, attempt)
            } else {
                let mut tasks = tasks.to_vec();
                tasks.push(self.children(node, domain, &attempt.part));
                self.solve(tasks, attempt.clone())
            };
            if solved.is_some() {
                return solved;
            }
            self.forest.transaction.rollback_to(savepoint);
            if self.ends >= self.ends_max {
                break;
            }
        }
        None
    }

    /// The child groups that a group needs: those that have pods already, and some of the others.
    fn children(&self, node: usize, within: Option<Within>, part: &Part) -> Task {
        let tree = &self.forest.tree.tree;
        let TreeMinimum::Groups(needed) = tree.nodes()[node].minimum else {
            return Task::Children(Vec::new(), 0, within);
        };
        let met = tree.met(|subset| part.met[subset]);
        let (there, open): (Vec<usize>, Vec<usize>) =
            tree.children(node).iter().partition(|child| met[**child] || self.is_starting(**child));
        let missing = needed.saturating_sub(there.len() as u32);
        // Those that are starting come first.
        Task::Children(there.iter().chain(&open).copied().collect(), missing + there.len() as u32, within)
    }

    /// Whether a leaf of a group is a part of the start under way.
    fn is_starting(&self, node: usize) -> bool {
        let tree = &self.forest.tree.tree;
        let is_below = |leaf: &usize| tree.path(*leaf).any(|at| at == node);
        let leaves = tree.leaves().iter().zip(&self.forest.tree.leaves);
        leaves.filter(|(_, state)| **state == LeafState::Starting).any(|(leaf, _)| is_below(leaf))
    }

    /// Takes the first of these child groups, or leaves it out.
    fn solve_children(
        &mut self,
        children: &[usize],
        missing: u32,
        within: Option<&Within>,
        tasks: &[Task],
        attempt: &Attempt,
    ) -> Option<Part> {
        if missing == 0 {
            return self.solve(tasks.to_vec(), attempt.clone());
        }
        if children.len() < missing as usize {
            return None;
        }
        let (first, others) = (children[0], &children[1..]);
        let mut others = others.to_vec();
        if self.may_be_taken(first) {
            self.chose |= others.len() >= missing as usize;
            let savepoint = self.forest.transaction.savepoint();
            let mut tasks = tasks.to_vec();
            tasks.push(Task::Children(others.clone(), missing - 1, within.cloned()));
            tasks.push(Task::Group(first, within.cloned()));
            if let Some(part) = self.solve(tasks, attempt.clone()) {
                return Some(part);
            }
            self.forest.transaction.rollback_to(savepoint);
            if self.is_starting(first) || self.ends >= self.ends_max {
                return None;
            }
            // Where this one does not help, neither does one like it.
            others.retain(|other| !self.are_alike(first, *other));
        }
        self.solve_children(&others, missing, within, tasks, attempt)
    }

    fn may_be_taken(&self, node: usize) -> bool {
        !self.excluded[node] && self.forest.may_start(node)
    }

    /// Whether two leaves need the same: pods of the same classes in the same domains.
    fn are_alike(&self, one: usize, other: usize) -> bool {
        let tree = &self.forest.tree.tree;
        let (Some(left), Some(right)) = (tree.subset(one), tree.subset(other)) else { return false };
        let request = self.forest.request;
        let lots = |subset: usize| {
            let lots = request.lots.iter().filter(move |lot| lot.subset == subset);
            lots.map(|lot| (lot.class, lot.len(), lot.avoid.clone())).collect::<Vec<_>>()
        };
        let (first, second) = (&tree.nodes()[one], &tree.nodes()[other]);
        request.needs[left] == request.needs[right]
            && first.topology == second.topology
            && self.forest.tree.held.get(&one) == self.forest.tree.held.get(&other)
            && lots(left) == lots(right)
    }

    /// Places the minimum of a leaf with a topology constraint, in this domain.
    fn place_leaf(
        &mut self,
        subset: usize,
        domain: Option<Within>,
        topology: Option<&std::sync::Arc<TopologyRequest>>,
        tasks: &[Task],
        attempt: &Attempt,
    ) -> Option<Part> {
        self.has_order = true;
        let mut attempt = attempt.clone();
        attempt.part.within[subset].clone_from(&domain);
        let mut only = vec![false; attempt.part.met.len()];
        only[subset] = true;
        let mut request = self.forest.minimums_of(&only, &attempt.part);
        for lot in &mut request.lots {
            lot.within = None;
        }
        (request.within, request.topology) = (domain, topology.cloned());
        let forest = &mut *self.forest;
        let verdict = if request.needs_total() == 0 {
            Verdict::Placed
        } else if request.has_too_few_pods() {
            Verdict::Impossible
        } else {
            domains::place(forest.transaction, forest.cache, &request, forest.steps_max)
        };
        match verdict {
            Verdict::Placed => {
                attempt.part.met[subset] = true;
                self.solve(tasks.to_vec(), attempt)
            }
            Verdict::Impossible => {
                self.ends += 1;
                None
            }
            Verdict::NotFound { steps } => {
                self.ends += 1;
                self.steps = self.steps.saturating_add(steps.max(1));
                None
            }
        }
    }
}
