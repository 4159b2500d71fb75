//! Whether it is certain that a tree cannot be placed: by what its groups need alone, and what they need in any case.

use super::super::domains;
use super::super::request::{LeafState, Verdict};
use super::domains::Options;
use super::{Forest, Part};
use crate::model::tree::TreeMinimum;

/// So many leaves are examined alone.
const LEAVES_MAX: usize = 64;

/// What is certain.
pub(super) struct Proof {
    /// No placement exists.
    pub(super) is_impossible: bool,
    /// By node: it cannot be placed, whatever else is.
    pub(super) excluded: Vec<bool>,
}

/// Examines a tree that was not placed. The transaction is left unchanged.
pub(super) fn examine(forest: &mut Forest<'_, '_>, start: &Part) -> Proof {
    let tree = forest.tree.tree.clone();
    let mut examined = 0;
    let mut possible_leaves = Vec::new();
    for (subset, state) in forest.tree.leaves.clone().into_iter().enumerate() {
        possible_leaves.push(match state {
            LeafState::Met => true,
            LeafState::Incomplete => false,
            LeafState::Starting | LeafState::Open => {
                examined += 1;
                examined > LEAVES_MAX || fits_alone(forest, subset, start)
            }
        });
    }
    let possible = tree.met(|subset| possible_leaves[subset]);
    let excluded: Vec<bool> = possible.iter().map(|possible| !possible).collect();
    // What is starting is needed in any case.
    let lost_start = forest.tree.leaves.iter().zip(&possible_leaves);
    let lost_start = lost_start.into_iter().any(|(state, possible)| *state == LeafState::Starting && !possible);
    let is_impossible = !possible[0] || lost_start || !fit_together(forest, &possible, start);
    Proof { is_impossible, excluded }
}

/// Whether the minimum of a leaf may fit if nothing else of the tree is placed, wherever its ancestors would be.
fn fits_alone(forest: &mut Forest<'_, '_>, subset: usize, start: &Part) -> bool {
    let node = forest.tree.tree.leaves()[subset];
    let mut only = vec![false; start.met.len()];
    only[subset] = true;
    let mut request = forest.minimums_of(&only, start);
    request.topology = Options::of(forest, node, None, start).topology.filter(|_| request.within.is_none());
    let savepoint = forest.transaction.savepoint();
    let verdict = match &request.topology {
        Some(_) if !request.has_too_few_pods() => {
            domains::place(forest.transaction, forest.cache, &request, forest.steps_max)
        }
        _ => super::super::place(forest.transaction, forest.cache, &request, forest.steps_max),
    };
    forest.transaction.rollback_to(savepoint);
    verdict != Verdict::Impossible
}

/// Whether the leaves that no choice can avoid may fit together, regardless of domains.
fn fit_together(forest: &mut Forest<'_, '_>, possible: &[bool], start: &Part) -> bool {
    let tree = forest.tree.tree.clone();
    let mut needed = vec![false; tree.nodes().len()];
    needed[0] = true;
    for node in 0..tree.nodes().len() {
        if let (true, TreeMinimum::Groups(count)) = (needed[node], tree.nodes()[node].minimum)
            && tree.count(node, possible) <= count
        {
            for child in tree.children(node).iter().filter(|child| possible[**child]) {
                needed[*child] = true;
            }
        }
    }
    let leaves = tree.leaves().iter().zip(&forest.tree.leaves);
    let subsets: Vec<bool> = leaves
        .map(|(leaf, state)| *state == LeafState::Starting || (needed[*leaf] && *state == LeafState::Open))
        .collect();
    let request = forest.minimums_of(&subsets, start);
    if request.needs_total() == 0 {
        return true;
    }
    let savepoint = forest.transaction.savepoint();
    let verdict = super::super::place(forest.transaction, forest.cache, &request, forest.steps_max);
    forest.transaction.rollback_to(savepoint);
    verdict != Verdict::Impossible
}
