//! Search over counts: how many pods of each kind go to each node, instead of pod by pod.
//!
//! `model` reduces the numbers, `patterns` lists what a node can hold, `climb` looks for patterns that hold all pods
//! together, `exact` tries all of them, and `prices` proves that there is no solution. The search is limited in steps and
//! goes on where it stopped. Only integers; no knowledge of the cluster: `counted` makes problems of requests.

mod climb;
mod exact;
mod model;
mod patterns;
mod prices;
mod problem;
mod repair;
mod respond;
mod sums;

use climb::Climb;
use exact::Exact;
use model::Model;
use patterns::Patterns;
pub(crate) use problem::{Bin, Counts, Kind, Problem};

/// The limit of steps for the patterns of all bins, and of one bin.
const LIST_STEPS: u64 = 400_000;
const LIST_STEPS_OF_BIN: u64 = 5000;
/// The maximum number of counts in all lists: 2 MB.
const LISTED_MAX: usize = 1_000_000;
/// The steps of the first round; later rounds have more.
const ROUND_STEPS: u64 = 30_000;

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
    rounds: u32,
    /// Every choice was tried, or prices cannot show more.
    all_proofs_tried: bool,
}

/// The patterns of all bins: equal bins share a list.
#[derive(Clone, Debug)]
struct Lists {
    /// By bin: the index of its list.
    index: Vec<usize>,
    lists: Vec<Patterns>,
    /// By list: the most pods of each kind, and of all sizes together, in one pattern.
    most: Vec<(Vec<i64>, i64)>,
}

impl Search {
    /// Begins with these counts, or with none.
    pub(crate) fn new(problem: &Problem, counts: Option<&Counts>) -> Self {
        let model = Model::new(problem);
        let choice = counts.map(|counts| model.choice_of(counts));
        let climb = Climb::new(&model, choice);
        Self { model, lists: None, climb, rounds: 0, all_proofs_tried: false }
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
        let lists = self.lists.get_or_insert_with(|| Lists::new(model, steps));
        if lists.lists.iter().any(|list| list.complete && list.len() == 0) {
            return Outcome::Impossible;
        }
        let all_complete = lists.lists.iter().all(|list| list.complete);
        while *steps > 0 {
            let round = (ROUND_STEPS << self.rounds.min(16)).min(*steps);
            self.rounds += 1;
            let mut left = round;
            let found = self.climb.run(model, lists, &mut left);
            *steps -= round - left;
            if found {
                return Outcome::Found(model.counts(self.climb.best()));
            }
            if self.all_proofs_tried {
                continue;
            }
            let mut left = (round / 2).min(*steps);
            let before = left;
            let by_prices =
                prices::begins(model, self.climb.prices()).iter().any(|first| prices::proof(model, lists, first, &mut left).is_some());
            *steps -= before - left;
            if by_prices {
                return Outcome::Impossible;
            }
            if all_complete {
                let mut left = (round / 2).min(*steps);
                let before = left;
                let exact = exact::search(model, lists, &mut left);
                *steps -= before - left;
                match exact {
                    Exact::Found(choice) => return Outcome::Found(model.counts(&choice)),
                    Exact::None => return Outcome::Impossible,
                    Exact::OutOfSteps => {}
                }
            }
            self.all_proofs_tried = self.rounds > 6;
        }
        Outcome::Open
    }
}

impl Lists {
    fn new(model: &Model, steps: &mut u64) -> Self {
        let mut lists: Vec<Patterns> = Vec::new();
        let mut index = Vec::with_capacity(model.bins());
        let (mut left, mut listed) = (LIST_STEPS.min(*steps / 2), 0);
        *steps -= left;
        let different = model.like.iter().enumerate().filter(|(bin, like)| bin == *like).count() as u64;
        let of_bin = (left / 2 / different.max(1)).max(LIST_STEPS_OF_BIN);
        for (bin, like) in model.like.iter().enumerate() {
            if *like < bin {
                index.push(index[*like]);
                continue;
            }
            let limit = if listed > LISTED_MAX { 0 } else { of_bin.min(left) };
            let mut own = limit;
            let list = patterns::list(model, bin, &mut own);
            left -= limit - own;
            listed += list.len() * model.kinds;
            index.push(lists.len());
            // An incomplete list is of no use: it would be biased.
            lists.push(if list.complete { list } else { Patterns::default() });
        }
        *steps += left;
        let most = lists.iter().map(|list| most_of(model, list)).collect();
        Self { index, lists, most }
    }

    fn of(&self, bin: usize) -> &Patterns {
        &self.lists[self.index[bin]]
    }

    fn most_of(&self, bin: usize) -> &(Vec<i64>, i64) {
        &self.most[self.index[bin]]
    }
}

fn most_of(model: &Model, list: &Patterns) -> (Vec<i64>, i64) {
    let most = |kind: usize| list.iter().map(|pattern| i64::from(pattern[kind])).max().unwrap_or(0);
    let size = |pattern: &[u16]| -> i64 { pattern.iter().zip(&model.size).map(|(count, size)| i64::from(*count) * size).sum() };
    ((0..model.kinds).map(most).collect(), list.iter().map(size).max().unwrap_or(0))
}
