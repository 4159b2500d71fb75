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

    /// Searches for a solution, or goes on with it, with a part of the steps that are left. Returns the number of steps,
    /// too.
    pub(super) fn run(&mut self, problem: &Problem, nodes: &[NodeId], (steps_max, part): (u64, u64)) -> (Outcome, u64) {
        let limit = steps_max.saturating_mul(STEPS_PER_STEP).min(self.left / part).max(STEPS_MIN.min(steps_max));
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

#[cfg(test)]
mod tests {
    use super::super::counts::{Bin, Kind};
    use super::*;

    /// Ten kinds on ten nodes, with a unit less than is needed somewhere: neither found nor proven in a few steps.
    fn problem(less: i64) -> Problem {
        let amounts = |at: i64| vec![17 * at % 29 + 3, 23 * at % 31 + 2];
        let kinds: Vec<Kind> =
            (1..=10).map(|at| Kind { amounts: amounts(at), count: 3 + at as u32 % 4, subset: 0 }).collect();
        let sum =
            |dimension: usize| kinds.iter().map(|kind| kind.amounts[dimension] * i64::from(kind.count)).sum::<i64>();
        let bin = |at: i64| Bin {
            free: vec![sum(0) / 10 + 3 - at % 3, sum(1) / 10 + 2 - if at == 0 { less } else { 0 }],
            most: vec![u32::MAX; 10],
        };
        let needs = vec![kinds.iter().map(|kind| kind.count).sum()];
        Problem { bins: (0..10).map(bin).collect(), kinds, needs }
    }

    fn nodes() -> Vec<NodeId> {
        (0..10).map(NodeId).collect()
    }

    #[test]
    fn only_what_is_not_completed_is_kept_and_goes_on_for_the_same_problem() {
        let mut searches = Searches::new();
        searches.begin_attempt();
        assert_eq!(searches.run(&problem(0), &nodes(), (10, 2)).0, Outcome::Open);
        assert!(searches.kept.is_empty() && !searches.goes_on(), "it was for a plan");
        searches.keep(true);
        searches.run(&problem(0), &nodes(), (10, 2));
        searches.run(&problem(1), &nodes(), (10, 2));
        assert!(searches.goes_on());
        assert_eq!(searches.kept.len(), 1, "only a node has changed: the later search has followed the other one");
        assert_eq!(searches.kept[0].problem, problem(1));
        searches.begin_attempt();
        assert!(!searches.goes_on());
    }

    #[test]
    fn an_attempt_has_a_limit_and_every_search_a_minimum() {
        let mut searches = Searches::new();
        searches.begin_attempt();
        let mut all = 0;
        for number in 0..20 {
            let (outcome, steps) = searches.run(&problem(number % 3), &nodes(), (u64::MAX, 2));
            all += if outcome == Outcome::Open { steps } else { 0 };
        }
        assert!(all <= STEPS_OF_ATTEMPT + 20 * STEPS_MIN, "{all} steps");
    }
}
