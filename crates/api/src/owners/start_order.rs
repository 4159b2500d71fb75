//! Which parts of a set run at the same time, by the order in which they start.
//!
//! A part that waits for another one to be ready runs beside it; one that waits for its end never does. Parts that wait
//! for the same start at the same time. Whether others overlap depends on how long they run, so that is not asked for.

use std::collections::BTreeSet;

/// What a part waits for: other parts by index, and whether they must have ended.
pub(super) type Waits = Vec<(usize, bool)>;

/// The largest sets of parts that run at the same time, each in order; for a few parts.
pub(super) fn stages(parts: &[Waits]) -> Vec<Vec<usize>> {
    let together = together(parts);
    let ended: Vec<BTreeSet<usize>> = (0..parts.len()).map(|part| ended_before(parts, part)).collect();
    let coexist = |one: usize, other: usize| {
        together[one] == together[other] && !ended[one].contains(&other) && !ended[other].contains(&one)
    };
    let sets = (1..1_u32 << parts.len()).map(|set| (0..parts.len()).filter(|part| set >> part & 1 == 1).collect());
    let is_stage =
        |set: &Vec<usize>| set.iter().all(|one| set.iter().all(|other| one == other || coexist(*one, *other)));
    let all: Vec<Vec<usize>> = sets.filter(is_stage).collect();
    let is_part_of = |set: &Vec<usize>, other: &Vec<usize>| set != other && set.iter().all(|one| other.contains(one));
    let mut largest: Vec<Vec<usize>> =
        all.iter().filter(|set| !all.iter().any(|other| is_part_of(set, other))).cloned().collect();
    largest.sort();
    largest
}

/// For each part the lowest of those that it runs beside, directly or through others.
fn together(parts: &[Waits]) -> Vec<usize> {
    let mut lowest: Vec<usize> = (0..parts.len()).collect();
    let sorted = |waits: &Waits| waits.iter().copied().collect::<BTreeSet<_>>();
    let mut join = |one: usize, other: usize| {
        let (from, to) = (lowest[one].max(lowest[other]), lowest[one].min(lowest[other]));
        for part in &mut lowest {
            if *part == from {
                *part = to;
            }
        }
    };
    for (part, waits) in parts.iter().enumerate() {
        waits.iter().filter(|(_, ended)| !ended).for_each(|(other, _)| join(part, *other));
        for (other, same) in parts[..part].iter().enumerate() {
            if sorted(same) == sorted(waits) {
                join(part, other);
            }
        }
    }
    lowest
}

/// The parts that have ended when this one starts.
fn ended_before(parts: &[Waits], part: usize) -> BTreeSet<usize> {
    let (mut ended, mut seen, mut open) = (BTreeSet::new(), BTreeSet::from([part]), vec![part]);
    while let Some(next) = open.pop() {
        for (other, has_ended) in &parts[next] {
            if *has_ended {
                ended.insert(*other);
            }
            if seen.insert(*other) {
                open.push(*other);
            }
        }
    }
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: bool = false;
    const COMPLETE: bool = true;

    #[test]
    fn parts_that_wait_for_readiness_run_together_and_those_that_wait_for_the_end_do_not() {
        let of = |parts: &[Waits]| stages(parts);
        assert_eq!(of(&[vec![], vec![(0, READY)]]), [[0, 1]]);
        assert_eq!(of(&[vec![], vec![(0, COMPLETE)]]), [[0], [1]]);
        assert_eq!(of(&[vec![], vec![(0, READY)], vec![(1, READY)]]), [[0, 1, 2]], "a chain");
        assert_eq!(of(&[vec![], vec![(0, READY)], vec![(1, COMPLETE)]]), [vec![0, 1], vec![2]]);
        assert_eq!(of(&[vec![], vec![], vec![(0, COMPLETE)]]), [vec![0, 1], vec![2]], "two start at once");
        assert_eq!(of(&[vec![], vec![(0, COMPLETE)], vec![(0, COMPLETE)]]), [vec![0], vec![1, 2]]);
    }

    #[test]
    fn what_has_ended_is_not_asked_for_again() {
        // The third waits for the first to be ready too, but the second started only after the end of the first.
        assert_eq!(stages(&[vec![], vec![(0, COMPLETE)], vec![(0, READY), (1, READY)]]), [vec![0], vec![1, 2]]);
        // Evaluation after training, beside a server that both need.
        let parts = [vec![], vec![(0, READY)], vec![(0, READY), (1, COMPLETE)]];
        assert_eq!(stages(&parts), [[0, 1], [0, 2]]);
    }
}
