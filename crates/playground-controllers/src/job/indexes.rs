//! Sets of completion indexes in the format of a Job's status: `1,3-5,7`.
//!
//! Invariant: intervals are sorted and neither touch nor overlap. Must not depend on Jobs or pods.

use std::fmt;

/// A set of indexes, as closed intervals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Parses the indexes below `end`; invalid parts are skipped, as in the real controller.
    pub(super) fn parse(text: &str, end: u32) -> Self {
        let interval = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
            (first < end && first <= last).then(|| (first, last.min(end - 1)))
        };
        Self::of(text.split(',').filter_map(interval))
    }

    /// The union of intervals.
    fn of(intervals: impl Iterator<Item = (u32, u32)>) -> Self {
        let mut intervals: Vec<(u32, u32)> = intervals.collect();
        intervals.sort_unstable();
        let mut sum = Self::default();
        for interval in intervals {
            sum.push(interval);
        }
        sum
    }

    /// Adds an interval that starts no earlier than the last one.
    fn push(&mut self, (first, last): (u32, u32)) {
        match self.0.last_mut() {
            Some(end) if first <= end.1.saturating_add(1) => end.1 = end.1.max(last),
            _ => self.0.push((first, last)),
        }
    }

    /// The union with single indexes.
    pub(super) fn with(&self, others: impl IntoIterator<Item = u32>) -> Self {
        let others = others.into_iter().map(|index| (index, index));
        Self::of(self.0.iter().copied().chain(others))
    }

    /// The union with another set.
    pub(super) fn union(&self, others: &Self) -> Self {
        Self::of(self.0.iter().chain(&others.0).copied())
    }

    /// The number of indexes.
    pub(super) fn count(&self) -> usize {
        self.0.iter().map(|(first, last)| (last - first) as usize + 1).sum()
    }

    /// Whether the set is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the set contains the index.
    pub(super) fn contains(&self, index: u32) -> bool {
        let after = self.0.partition_point(|(_, last)| *last < index);
        self.0.get(after).is_some_and(|(first, _)| *first <= index)
    }

    /// The size of the intersection with another set.
    pub(super) fn intersection_count(&self, others: &Self) -> usize {
        let overlap = |left: &(u32, u32), right: &(u32, u32)| {
            let (first, last) = (left.0.max(right.0), left.1.min(right.1));
            if first <= last { (last - first) as usize + 1 } else { 0 }
        };
        self.0.iter().map(|left| others.0.iter().map(|right| overlap(left, right)).sum::<usize>()).sum()
    }

    /// The first `count` indexes below `end` that are not in the set.
    pub(super) fn first_missing(&self, count: usize, end: u32) -> Vec<u32> {
        let mut missing = Vec::new();
        let mut candidate = 0;
        let after_all = (end, end);
        for (first, last) in self.0.iter().chain([&after_all]) {
            let gap = candidate..(*first).min(end);
            missing.extend(gap.take(count - missing.len()));
            candidate = last.saturating_add(1);
        }
        missing
    }
}

impl fmt::Display for Indexes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, (first, last)) in self.0.iter().enumerate() {
            let comma = if place > 0 { "," } else { "" };
            match last - first {
                0 => write!(formatter, "{comma}{first}")?,
                1 => write!(formatter, "{comma}{first},{last}")?,
                _ => write!(formatter, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indexes_round_trip() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "0,2,4,6-9"] {
            assert_eq!(Indexes::parse(text, 10).to_string(), text);
        }
        for (text, end, expected) in
            [("0-9", 5, "0-4"), ("7", 5, ""), ("0,1,2", 9, "0-2"), ("x,1-y,3", 9, "3"), ("3-1", 9, "")]
        {
            assert_eq!(Indexes::parse(text, end).to_string(), expected, "{text}");
        }
        assert_eq!(Indexes::parse("0", 0).to_string(), "");
    }

    #[test]
    fn operations_match_a_plain_set() {
        let mut random = muster_determinism::random::Random::new(5);
        for _ in 0..500 {
            let mut draw = || (0..12).filter(|_| random.per_mille(400)).collect::<std::collections::BTreeSet<u32>>();
            let (left, right) = (draw(), draw());
            let (a, b) = (Indexes::default().with(left.clone()), Indexes::default().with(right.clone()));
            let union: std::collections::BTreeSet<u32> = left.union(&right).copied().collect();
            assert_eq!(a.union(&b), Indexes::default().with(union.clone()));
            assert_eq!(a.with(right.clone()), a.union(&b));
            assert_eq!(a.intersection_count(&b), left.intersection(&right).count());
            assert_eq!((a.count(), a.is_empty()), (left.len(), left.is_empty()));
            assert!((0..14).all(|index| a.contains(index) == left.contains(&index)));
            let missing: Vec<u32> = (0..10).filter(|index| !union.contains(index)).take(3).collect();
            assert_eq!(a.union(&b).first_missing(3, 10), missing);
        }
    }
}
