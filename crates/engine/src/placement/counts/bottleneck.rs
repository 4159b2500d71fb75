//! The bottleneck of a problem without a solution: what alone shows that there is none.

use super::Lists;
use super::model::Model;
use super::prices;
use super::problem::Problem;
use super::sums::Sums;

/// What is too little.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Bottleneck {
    /// Pods of these kinds fit fewer times than they are needed, even without the others.
    Kinds { kinds: Vec<usize>, fit: u32, need: u32 },
    /// The needed pods use more of a dimension than they can use on all bins together.
    Dimension { dimension: usize, asked: i64, usable: i64 },
    /// All pods of these kinds do not fit together.
    Mix { kinds: Vec<usize> },
}

/// The bottleneck, if one is found in so many steps.
pub(crate) fn bottleneck(problem: &Problem, given: u64) -> Option<Bottleneck> {
    let (mut model, mut steps) = (Model::new(problem), given);
    too_few_places(&model).or_else(|| too_little(problem, &model)).or_else(|| {
        // The proof is to be about the kinds that it names alone, whatever is left unused because of the others.
        model.ignore_slack();
        let lists = super::within(&mut steps, given / 2, |left| Lists::new(&model, left));
        let proof =
            prices::prove(&model, &lists, &prices::begins(&model, &super::climb::first_prices(&model)), &mut steps)?;
        let kinds = prices::needed_for(&model, &lists, proof, &mut steps);
        Some(Bottleneck::Mix { kinds })
    })
}

/// The requirement that lacks the most places.
fn too_few_places(model: &Model) -> Option<Bottleneck> {
    let places = |kind: usize| model.problem.bins.iter().map(|bin| i64::from(bin.most[kind])).sum::<i64>();
    let lacks = (0..model.need.len()).map(|group| {
        let kinds: Vec<usize> = (0..model.kinds).filter(|kind| model.group[*kind] == group).collect();
        let fit: i64 = kinds.iter().map(|kind| places(*kind).min(model.count[*kind])).sum();
        (model.need[group] - fit, kinds, fit, model.need[group])
    });
    let (_, kinds, fit, need) =
        lacks.filter(|(lack, ..)| *lack > 0).max_by_key(|(lack, kinds, ..)| (*lack, kinds.clone()))?;
    Some(Bottleneck::Kinds { kinds, fit: fit as u32, need: need as u32 })
}

/// The dimension of which the most is missing for its size.
fn too_little(problem: &Problem, model: &Model) -> Option<Bottleneck> {
    let order: Vec<usize> = (0..problem.kinds.len()).collect();
    let sums = Sums::new(problem, &order, &[]);
    let of_dimension = |dimension: usize| {
        let may_use = |bin: &usize| (0..problem.kinds.len()).any(|kind| problem.most(*bin, kind) > 0);
        let used: Vec<usize> = (0..problem.bins.len()).filter(may_use).collect();
        let divisor = model.divisors[dimension].max(1);
        let usable: i64 = used
            .iter()
            .map(|bin| sums.largest(dimension, problem.bins[*bin].free[dimension].max(0)) / divisor * divisor)
            .sum();
        let asked = model.least(|kind| problem.kinds[kind].amounts[dimension]);
        (dimension, asked, usable)
    };
    let lacking = (0..problem.dimensions()).map(of_dimension).filter(|(_, asked, usable)| asked > usable);
    let share = |asked: i64, usable: i64| i128::from(usable) * 1_000_000 / i128::from(asked.max(1));
    let (dimension, asked, usable) =
        lacking.min_by_key(|(dimension, asked, usable)| (share(*asked, *usable), *dimension))?;
    Some(Bottleneck::Dimension { dimension, asked, usable })
}

#[cfg(test)]
mod tests {
    use super::super::problem::{Bin, Kind};
    use super::*;

    fn problem(kinds: &[(&[i64], u32)], bins: &[&[i64]]) -> Problem {
        let most = vec![u32::MAX; kinds.len()];
        let needs = (0..kinds.len()).map(|at| kinds[at].1).collect();
        let kinds = kinds.iter().enumerate();
        let kinds = kinds.map(|(subset, (amounts, count))| Kind { amounts: amounts.to_vec(), count: *count, subset });
        let bins = bins.iter().map(|free| Bin { free: free.to_vec(), most: most.clone() });
        Problem { kinds: kinds.collect(), bins: bins.collect(), needs }
    }

    #[test]
    fn a_kind_with_too_few_places_is_the_bottleneck() {
        let too_few = problem(&[(&[8, 1], 4), (&[1, 1], 2)], &[&[9, 9], &[17, 9], &[7, 9]]);
        let expected = Bottleneck::Kinds { kinds: vec![0], fit: 3, need: 4 };
        assert_eq!(bottleneck(&too_few, 100_000), Some(expected));
    }

    #[test]
    fn a_dimension_that_cannot_be_used_up_is_the_bottleneck() {
        // Of 9, at most 8 can be used, and of 5, at most 4.
        let too_little = problem(&[(&[4], 3), (&[3], 1)], &[&[9], &[5]]);
        let expected = Bottleneck::Dimension { dimension: 0, asked: 15, usable: 12 };
        assert_eq!(bottleneck(&too_little, 100_000), Some(expected));
    }

    #[test]
    fn kinds_that_exclude_each_other_are_the_bottleneck() {
        // Of each dimension there is enough, but no bin holds three pods.
        let mix = problem(&[(&[6, 1], 2), (&[1, 6], 2), (&[4, 4], 1)], &[&[10, 10], &[10, 10]]);
        assert_eq!(bottleneck(&mix, 100_000), Some(Bottleneck::Mix { kinds: vec![0, 1, 2] }));
        let fits = problem(&[(&[6, 4], 2), (&[4, 6], 2)], &[&[10, 10], &[10, 10]]);
        assert_eq!(bottleneck(&fits, 100_000), None);
    }
}
