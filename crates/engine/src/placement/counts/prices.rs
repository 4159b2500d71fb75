//! Proofs by prices: if the best that every bin can hold is worth less than all pods that are needed, for any prices,
//! they do not fit.
//!
//! This is the Lagrangian bound, as tight as a linear program over all patterns. The prices follow the subgradient, in
//! integers.

use super::Lists;
use super::climb;
use super::model::Model;
use super::respond::{self, Wish};

/// How often the prices are changed.
const ROUNDS: i64 = 40;
/// The limit of steps for the best response of one bin.
const RESPONSE_STEPS: u64 = 2000;

/// By kind: prices that prove that there is no solution, if they are found in so many steps from any of these.
pub(super) fn prove(model: &Model, lists: &Lists, begins: &[Vec<i64>], steps: &mut u64) -> Option<Vec<i64>> {
    begins.iter().find_map(|first| prove_from(model, lists, first, steps))
}

fn prove_from(model: &Model, lists: &Lists, first: &[i64], steps: &mut u64) -> Option<Vec<i64>> {
    let mut prices = first.to_vec();
    let same = numbers_of_equals(model);
    for round in 0..ROUNDS {
        let mut sums = vec![0; model.kinds];
        if held_worth(model, lists, &prices, (&same, &mut sums), steps)? < needed_worth(model, &prices) {
            return Some(prices);
        }
        let missing: Vec<i64> = (0..model.need.len())
            .map(|group| {
                let held = (0..model.kinds).filter(|kind| model.group[*kind] == group).map(|kind| sums[kind]);
                model.need[group] - held.sum::<i64>()
            })
            .collect();
        if missing.iter().all(|missing| *missing <= 0) {
            // Enough is held at these prices: no proof is near.
            return None;
        }
        for (kind, price) in prices.iter_mut().enumerate() {
            let group = model.group[kind];
            let (lacks, needs) = (missing[group], model.need[group].max(1));
            let change = (*price).max(model.size[kind]) * lacks.clamp(-needs, needs) / needs / (2 + round / 4);
            *price = (*price + change).clamp(0, respond::PRICE_MAX);
        }
        equalise(model, &mut prices);
    }
    None
}

/// By bin: how many are equal to it, if it is the first of them; zero for the others.
fn numbers_of_equals(model: &Model) -> Vec<i64> {
    let mut same = vec![0; model.bins()];
    for like in &model.like {
        same[*like] += 1;
    }
    same
}

/// What all bins can hold at most at these prices; adds the counts. `None` if the steps run out.
fn held_worth(
    model: &Model,
    lists: &Lists,
    prices: &[i64],
    (same, sums): (&[i64], &mut [i64]),
    steps: &mut u64,
) -> Option<i128> {
    let mut worth = 0;
    for bin in (0..model.bins()).filter(|bin| same[*bin] > 0) {
        if *steps == 0 {
            return None;
        }
        let best = best_response(model, lists, (bin, prices), same[bin], sums, steps);
        worth += i128::from(best) * i128::from(same[bin]);
    }
    Some(worth)
}

/// The kinds that a proof needs: without any one of them it is none.
pub(super) fn needed_for(model: &Model, lists: &Lists, mut prices: Vec<i64>, steps: &mut u64) -> Vec<usize> {
    let same = numbers_of_equals(model);
    for group in 0..model.need.len() {
        let mut without = prices.clone();
        (0..model.kinds).filter(|kind| model.group[*kind] == group).for_each(|kind| without[kind] = 0);
        let mut sums = vec![0; model.kinds];
        let worth = held_worth(model, lists, &without, (&same, &mut sums), steps);
        if worth.is_some_and(|worth| worth < needed_worth(model, &without)) {
            prices = without;
        }
    }
    (0..model.kinds).filter(|kind| prices[*kind] > 0).collect()
}

/// What a bin can hold at most at these prices; the counts of as many equal bins are added to the sums.
fn best_response(
    model: &Model,
    lists: &Lists,
    (bin, prices): (usize, &[i64]),
    same: i64,
    sums: &mut [i64],
    steps: &mut u64,
) -> i64 {
    let list = lists.of(bin);
    let add = |sums: &mut [i64], counts: &[u16]| {
        sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += i64::from(*count) * same);
    };
    if list.complete {
        *steps = steps.saturating_sub(list.len() as u64 / 2 + 1);
        let worth = |pattern: &[u16]| -> i64 {
            pattern.iter().zip(prices).map(|(count, price)| i64::from(*count) * price).sum()
        };
        let best = list.iter().max_by_key(|pattern| worth(pattern));
        return best.map_or(0, |best| {
            add(sums, best);
            worth(best)
        });
    }
    let unlimited = vec![i64::MAX / 2; model.need.len()];
    let wish = Wish { model, bin, prices, wanted: &model.count, needed: &unlimited };
    let response = respond::respond(&wish, RESPONSE_STEPS);
    *steps = steps.saturating_sub(response.steps);
    add(sums, &response.counts);
    response.worth_max
}

/// What all needed pods are worth at least.
fn needed_worth(model: &Model, prices: &[i64]) -> i128 {
    let price = |group: usize| prices[model.group.iter().position(|other| *other == group).unwrap_or(0)];
    model.need.iter().enumerate().map(|(group, need)| i128::from(*need) * i128::from(price(group))).sum()
}

/// Kinds of one requirement have one price: the lowest of them.
fn equalise(model: &Model, prices: &mut [i64]) {
    for kind in 0..model.kinds {
        let of_group = (0..model.kinds).filter(|other| model.group[*other] == model.group[kind]);
        let lowest = of_group.map(|other| prices[other]).min().unwrap_or(0);
        prices[kind] = lowest;
    }
}

/// Prices to begin with: by size, or only of one requirement.
pub(super) fn begins(model: &Model, climbed: &[i64]) -> Vec<Vec<i64>> {
    let mut climbed = climbed.to_vec();
    equalise(model, &mut climbed);
    vec![climb::first_prices(model), climbed]
}
