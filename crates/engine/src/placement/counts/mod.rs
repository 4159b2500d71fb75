//! Search over counts: how many pods of each kind go to each node, instead of pod by pod.
//!
//! `model` reduces the numbers, `patterns` lists what a node can hold, `climb` looks for patterns that hold all pods
//! together, `exact` tries all of them, `prices` proves that there is no solution, and `bottleneck` says why. The search
//! is limited in steps and goes on where it stopped. Only integers; no knowledge of the cluster: `counted` makes problems
//! of requests.

mod bottleneck;
mod climb;
mod exact;
mod model;
mod patterns;
mod prices;
mod problem;
mod repair;
mod respond;
mod sums;

pub(crate) use bottleneck::{Bottleneck, bottleneck};
use climb::Climb;
use exact::{Exact, Shown};
use model::Model;
use patterns::Patterns;
pub(crate) use problem::{Bin, Counts, Kind, Problem};

/// The limit of steps for the patterns of all bins, and of one bin.
const LIST_STEPS: u64 = 600_000;
const LIST_STEPS_OF_BIN: u64 = 20_000;
/// The maximum number of counts in all lists: 2 MB.
const LISTED_MAX: usize = 1_000_000;
/// The steps of the first round; each further one has twice as many, up to a limit.
const ROUND_STEPS: u64 = 30_000;
const CLIMB_STEPS: u64 = 60_000;
const CLIMB_STEPS_OF_BIN: u64 = 2000;

/// What a search has shown so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Found(Counts),
    /// There is no solution.
    Impossible,
    Open,
}

/// A search for a solution of one problem.
#[derive(Clone, Debug)]
pub(crate) struct Search {
    model: Model,
    lists: Option<Lists>,
    climb: Climb,
    exact: Option<Exact>,
    rounds: u32,
}

/// Prices are tried in so many rounds: more show nothing else.
const ROUNDS_WITH_PRICES: u32 = 6;

/// Runs something with a part of the steps.
fn within<T>(steps: &mut u64, part: u64, run: impl FnOnce(&mut u64) -> T) -> T {
    let given = part.min(*steps);
    let mut left = given;
    let result = run(&mut left);
    *steps -= given - left;
    result
}

/// The patterns of all bins: equal bins share a list.
#[derive(Clone, Debug)]
struct Lists {
    /// By bin: the index of its list.
    index: Vec<usize>,
    patterns: Vec<Patterns>,
    /// The steps that could be used for them.
    given: u64,
}

impl Search {
    /// Begins with these counts, or with none.
    pub(crate) fn new(problem: &Problem, counts: Option<&Counts>) -> Self {
        let model = Model::new(problem);
        let choice = counts.map(|counts| model.choice_of(counts));
        let climb = Climb::new(&model, choice);
        Self { model, lists: None, climb, exact: None, rounds: 0 }
    }

    /// The counts that come closest so far.
    pub(crate) fn closest(&self) -> Counts {
        self.model.counts(self.climb.best())
    }

    /// Goes on for at most about this many steps, which it counts down.
    pub(crate) fn run(&mut self, steps: &mut u64) -> Outcome {
        let model = &self.model;
        let possible: Vec<i64> =
            (0..model.kinds).map(|kind| model.problem.bins.iter().map(|bin| i64::from(bin.most[kind])).sum()).collect();
        if model.slack.iter().any(|slack| *slack < 0) || model.missing(&possible).iter().any(|missing| *missing > 0) {
            return Outcome::Impossible;
        }
        if model.kinds == 0 || model.need.iter().all(|need| *need == 0) {
            return Outcome::Found(model.counts(&vec![0; model.bins() * model.kinds]));
        }
        let given = LIST_STEPS.min(*steps / 2);
        if self.lists.as_ref().is_none_or(|lists| lists.may_be_longer(given)) {
            let lists = within(steps, given, |left| Lists::new(model, left));
            self.exact = Exact::new(model, &lists);
            self.lists = Some(lists);
        }
        let Some(lists) = &self.lists else { return Outcome::Open };
        if lists.patterns.iter().any(|list| list.complete && list.len() == 0) {
            return Outcome::Impossible;
        }
        let round_max = CLIMB_STEPS + CLIMB_STEPS_OF_BIN * model.bins() as u64;
        while *steps > 0 {
            let round = (ROUND_STEPS << self.rounds.min(16)).min(round_max).min(*steps);
            if self.rounds > 1 {
                self.climb.restart(model);
            }
            self.rounds += 1;
            let climb = &mut self.climb;
            if within(steps, round, |left| climb.run(model, lists, left)) {
                return Outcome::Found(model.counts(climb.best()));
            }
            let begins = prices::begins(model, climb.prices());
            if self.rounds <= ROUNDS_WITH_PRICES
                && within(steps, round / 2, |left| prices::prove(model, lists, &begins, left).is_some())
            {
                return Outcome::Impossible;
            }
            match self.exact.as_mut().map(|exact| within(steps, round, |left| exact.run(model, lists, left))) {
                Some(Shown::Found(choice)) => return Outcome::Found(model.counts(&choice)),
                Some(Shown::None) => return Outcome::Impossible,
                Some(Shown::OutOfSteps) | None => {}
            }
        }
        Outcome::Open
    }
}

impl Lists {
    fn new(model: &Model, steps: &mut u64) -> Self {
        let mut lists: Vec<Patterns> = Vec::new();
        let mut index = Vec::with_capacity(model.bins());
        let (given, mut listed) = (*steps, 0);
        let different = model.like.iter().enumerate().filter(|(bin, like)| bin == *like).count() as u64;
        let of_bin = (given / 2 / different.max(1)).max(LIST_STEPS_OF_BIN);
        for (bin, like) in model.like.iter().enumerate() {
            if *like < bin {
                index.push(index[*like]);
                continue;
            }
            let limit = if listed > LISTED_MAX { 0 } else { of_bin.min(*steps) };
            let mut own = limit;
            let list = patterns::list(model, bin, &mut own);
            *steps -= limit - own;
            listed += list.len() * model.kinds;
            index.push(lists.len());
            // An incomplete list is of no use: it would be biased.
            lists.push(if list.complete { list } else { Patterns::default() });
        }
        Self { index, patterns: lists, given }
    }

    /// Whether lists that are not complete may be with so many steps.
    fn may_be_longer(&self, steps: u64) -> bool {
        steps / 4 > self.given && self.patterns.iter().any(|list| !list.complete)
    }

    fn of(&self, bin: usize) -> &Patterns {
        &self.patterns[self.index[bin]]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::placement::draws::Draws;

    /// Bins that these counts fill completely, in three dimensions.
    pub(crate) fn full(kinds: usize, bins: usize, of_bin: usize) -> Problem {
        let mut draws = Draws::new();
        let mut amounts = |_| (0..3).map(|_| 1 + draws.below(30) as i64).collect();
        let mut all: Vec<Kind> = (0..kinds).map(|at| Kind { amounts: amounts(at), count: 0, subset: 0 }).collect();
        let bins = (0..bins).map(|_| {
            let mut free = vec![0; 3];
            for _ in 0..of_bin {
                let kind = &mut all[draws.below(kinds)];
                kind.count += 1;
                free.iter_mut().zip(&kind.amounts).for_each(|(free, amount)| *free += amount);
            }
            Bin { free, most: vec![u32::MAX; kinds] }
        });
        let bins = bins.collect();
        let needs = vec![all.iter().map(|kind| kind.count).sum()];
        Problem { kinds: all, bins, needs }
    }

    fn solve(problem: &Problem, slice: u64, slices: usize) -> Outcome {
        let mut search = Search::new(problem, None);
        let mut outcomes = (0..slices).map(|_| search.run(&mut slice.clone()));
        outcomes.find(|outcome| *outcome != Outcome::Open).unwrap_or(Outcome::Open)
    }

    #[test]
    fn full_bins_are_filled_again_also_in_slices() {
        for (kinds, bins, of_bin) in [(3, 5, 4), (8, 12, 5), (12, 30, 3)] {
            let problem = full(kinds, bins, of_bin);
            for slice in [1_000_000, 40_000] {
                let Outcome::Found(counts) = solve(&problem, slice, 30) else { panic!("{kinds} kinds: not found") };
                assert!(problem.is_solved_by(&counts), "{counts:?}");
            }
        }
    }

    #[test]
    fn one_unit_less_is_proven_to_be_too_little() {
        for (kinds, bins, of_bin) in [(3, 5, 4), (8, 12, 5), (12, 30, 3)] {
            let mut problem = full(kinds, bins, of_bin);
            problem.bins[bins / 2].free[1] -= 1;
            assert_eq!(solve(&problem, 1_000_000, 1), Outcome::Impossible);
        }
    }

    #[test]
    fn minimums_of_subsets_are_met_by_any_of_their_pods() {
        let kind = |amount, count, subset| Kind { amounts: vec![amount], count, subset };
        let problem = |free: i64, needs: Vec<u32>| Problem {
            kinds: vec![kind(5, 3, 0), kind(2, 1, 0), kind(3, 4, 1)],
            bins: vec![Bin { free: vec![free], most: vec![9; 3] }; 2],
            needs,
        };
        for (free, needs, fits) in [(7, vec![2, 2], true), (6, vec![2, 2], false), (8, vec![3, 2], false)] {
            match solve(&problem(free, needs.clone()), 100_000, 1) {
                Outcome::Found(counts) => assert!(fits && problem(free, needs).is_solved_by(&counts), "{counts:?}"),
                outcome => assert!(!fits && outcome == Outcome::Impossible, "{free}, {needs:?}: {outcome:?}"),
            }
        }
    }
}
