//! Searches over counts that were not completed: they go on in the next attempt.
//!
//! A search is kept with its problem, which is all that it depends on. It goes on if the problem is the same, whatever
//! else has happened in the cluster. If only nodes have changed, a new search begins with what fitted best on the
//! others.

use super::counts::{Counts, Outcome, Problem, Search};
use crate::model::ids::NodeId;

/// The maximum number of searches that are kept.
const KEPT_MAX: usize = 8;
/// How many steps of a search count for one step of the limit of the caller.
const STEPS_PER_STEP: u64 = 24;
/// The limit of steps of all searches in one scheduling attempt.
const STEPS_OF_ATTEMPT: u64 = 2_000_000;
/// What every search may take, also if the limit is reached.
const STEPS_MIN: u64 = 20_000;

/// The searches that are kept, least recently used first.
#[derive(Clone, Debug)]
pub(crate) struct Searches {
    kept: Vec<Kept>,
    /// The steps that are left for this attempt.
    left: u64,
    keeps: bool,
    /// A search of this attempt is kept: it has not shown anything yet.
    goes_on: bool,
}

#[derive(Clone, Debug)]
struct Kept {
    problem: Problem,
    nodes: Vec<NodeId>,
    search: Search,
}

impl Searches {
    pub(crate) fn new() -> Self {
        Self { kept: Vec::new(), left: STEPS_OF_ATTEMPT, keeps: false, goes_on: false }
    }

    /// A new scheduling attempt begins.
    pub(crate) fn begin_attempt(&mut self) {
        (self.left, self.keeps, self.goes_on) = (STEPS_OF_ATTEMPT, false, false);
    }

    /// Whether searches are kept from now on: those for a placement are, those for a plan are not.
    pub(crate) fn keep(&mut self, keeps: bool) {
        self.keeps = keeps;
    }

    /// Whether a search that is kept has to go on.
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on
    }

    /// Searches for a solution, or goes on with it. Returns the number of steps, too.
    pub(super) fn run(&mut self, problem: &Problem, nodes: &[NodeId], steps_max: u64) -> (Outcome, u64) {
        let limit = steps_max.saturating_mul(STEPS_PER_STEP).min(self.left / 2).max(STEPS_MIN.min(steps_max));
        let mut search = self.take(problem, nodes);
        let mut left = limit;
        let outcome = search.run(&mut left);
        let steps = limit - left;
        self.left = self.left.saturating_sub(steps);
        if outcome == Outcome::Open && self.keeps {
            self.goes_on = true;
            if self.kept.len() >= KEPT_MAX {
                self.kept.remove(0);
            }
            self.kept.push(Kept { problem: problem.clone(), nodes: nodes.to_vec(), search });
        }
        (outcome, steps)
    }

    /// The search for this problem, or a new one.
    fn take(&mut self, problem: &Problem, nodes: &[NodeId]) -> Search {
        let same = self.kept.iter().position(|kept| kept.nodes == nodes && kept.problem == *problem);
        if let Some(place) = same {
            let kept = self.kept.remove(place);
            if !self.keeps {
                self.kept.insert(place, kept.clone());
            }
            return kept.search;
        }
        let like = self.kept.iter().rposition(|kept| kept.problem.kinds == problem.kinds);
        let Some(place) = like else { return Search::new(problem, None) };
        let counts = self.kept[place].counts_for(problem, nodes);
        if self.keeps {
            self.kept.remove(place);
        }
        Search::new(problem, Some(&counts))
    }
}

impl Kept {
    /// What the search has come to, on nodes that can still hold it.
    fn counts_for(&self, problem: &Problem, nodes: &[NodeId]) -> Counts {
        let closest = self.search.closest();
        let none = vec![0; problem.kinds.len()];
        let counts = nodes.iter().enumerate().map(|(bin, node)| {
            let before = self.nodes.iter().position(|before| before == node);
            let counts = before.map(|before| closest[before].clone());
            counts.filter(|counts| problem.bin_holds(bin, counts)).unwrap_or_else(|| none.clone())
        });
        counts.collect()
    }
}
