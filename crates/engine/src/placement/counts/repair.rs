//! Chooses the patterns of a few bins again, all at once, so that nothing is missing any more.

use super::Lists;
use super::climb::add;
use super::model::Model;
use crate::placement::draws::Draws;

/// The limit of steps for one attempt.
const REPAIR_STEPS: u64 = 3000;

/// Tries it for a few bins with complete lists. Returns whether nothing is missing then.
pub(super) fn repair(
    model: &Model,
    lists: &Lists,
    (choice, sums): (&mut [u16], &mut [i64]),
    draws: &mut Draws,
    steps: &mut u64,
) -> bool {
    let kinds = model.kinds;
    let mut bins: Vec<usize> =
        (0..model.bins()).filter(|bin| lists.of(*bin).complete && lists.of(*bin).len() > 1).collect();
    let few = bins.len().min(6 + draws.below(7));
    if few < 2 || !model.all_needed {
        return false;
    }
    for at in 0..few {
        let other = at + draws.below(bins.len() - at);
        bins.swap(at, other);
    }
    bins.truncate(few);
    bins.sort_by_key(|bin| lists.of(*bin).len());
    let mut wanted: Vec<i64> = model.count.iter().zip(sums.iter()).map(|(count, sum)| count - sum).collect();
    for bin in &bins {
        add(&mut wanted, &choice[bin * kinds..(bin + 1) * kinds], 1);
    }
    for wanted in &mut wanted {
        *wanted = (*wanted).max(0);
    }
    let limit = REPAIR_STEPS.min(*steps);
    let mut cover = Cover { model, lists, bins: &bins, most: Vec::new(), picked: vec![0; few], steps: limit };
    cover.most = cover.most_from_each();
    let found = cover.choose(0, &wanted, draws);
    *steps -= limit - cover.steps;
    if found {
        for (bin, picked) in bins.iter().zip(cover.picked) {
            let own = &mut choice[bin * kinds..(bin + 1) * kinds];
            add(sums, own, -1);
            own.copy_from_slice(lists.of(*bin).get(picked));
            add(sums, own, 1);
        }
    }
    found
}

/// Covers what is wanted with one pattern for each of a few bins.
struct Cover<'a> {
    model: &'a Model,
    lists: &'a Lists,
    bins: &'a [usize],
    /// By position: the most that the bins from there on could hold of each kind, and of all sizes.
    most: Vec<(Vec<i64>, i64)>,
    picked: Vec<usize>,
    steps: u64,
}

impl Cover<'_> {
    fn most_from_each(&self) -> Vec<(Vec<i64>, i64)> {
        let mut most = vec![(vec![0; self.model.kinds], 0)];
        for bin in self.bins.iter().rev() {
            let list = self.lists.of(*bin);
            let (mut by_kind, all) = most.last().cloned().unwrap_or_default();
            for (kind, most) in by_kind.iter_mut().enumerate() {
                *most += list.iter().map(|pattern| i64::from(pattern[kind])).max().unwrap_or(0);
            }
            let size = |pattern: &[u16]| -> i64 {
                pattern.iter().zip(&self.model.size).map(|(count, size)| i64::from(*count) * size).sum()
            };
            let all = all + list.iter().map(size).max().unwrap_or(0);
            most.push((by_kind, all));
        }
        most.reverse();
        most
    }

    fn choose(&mut self, at: usize, wanted: &[i64], draws: &mut Draws) -> bool {
        let (by_kind, all) = &self.most[at];
        let size: i64 = wanted.iter().zip(&self.model.size).map(|(wanted, size)| wanted * size).sum();
        if size > *all || wanted.iter().zip(by_kind).any(|(wanted, most)| wanted > most) {
            return false;
        }
        let Some(bin) = self.bins.get(at) else { return true };
        let list = self.lists.of(*bin);
        let begin = draws.below(list.len());
        for place in (begin..list.len()).chain(0..begin) {
            if self.steps == 0 {
                return false;
            }
            self.steps -= 1;
            let left = wanted.iter().zip(list.get(place)).map(|(wanted, count)| (wanted - i64::from(*count)).max(0));
            let left: Vec<i64> = left.collect();
            self.picked[at] = place;
            if self.choose(at + 1, &left, draws) {
                return true;
            }
        }
        false
    }
}
