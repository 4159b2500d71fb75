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

/// By kind: prices that prove that there is no solution, if they are found in so many steps.
pub(super) fn proof(model: &Model, lists: &Lists, first: &[i64], steps: &mut u64) -> Option<Vec<i64>> {
    let mut prices = first.to_vec();
    let same: Vec<i64> = (0..model.bins())
        .map(|bin| model.like.iter().filter(|like| **like == bin).count() as i64)
        .collect();
    for round in 0..ROUNDS {
        let (mut worth, mut sums) = (0_i128, vec![0; model.kinds]);
        for bin in (0..model.bins()).filter(|bin| same[*bin] > 0) {
            if *steps == 0 {
                return None;
            }
            worth += i128::from(best_response(model, lists, bin, &prices, same[bin], &mut sums, steps)) * i128::from(same[bin]);
        }
        if worth < needed_worth(model, &prices) {
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
        for kind in 0..model.kinds {
            let group = model.group[kind];
            let (lacks, needs) = (missing[group], model.need[group].max(1));
            let change = prices[kind].max(model.size[kind]) * lacks.clamp(-needs, needs) / needs / (2 + round / 4);
            prices[kind] = (prices[kind] + change).clamp(0, respond::PRICE_MAX);
        }
        equalise(model, &mut prices);
    }
    None
}

/// What a bin can hold at most at these prices; the counts of as many equal bins are added to the sums.
fn best_response(
    model: &Model,
    lists: &Lists,
    bin: usize,
    prices: &[i64],
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
        let worth = |pattern: &[u16]| -> i64 { pattern.iter().zip(prices).map(|(count, price)| i64::from(*count) * price).sum() };
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
