//! How many pods of some sort are in each domain of a label.

use std::collections::BTreeMap;

use crate::model::ids::{AxisId, StanceId, TagId};

/// Which pods are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// Those that a selector is about.
    Tagged(TagId),
    /// Those that hold a stance.
    Holding(StanceId),
}

/// A count by domain; only domains with pods are listed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tally {
    pub(super) sort: Sort,
    pub(crate) axis: AxisId,
    pub(super) users: u32,
    counts: BTreeMap<u32, u32>,
    /// Those for whom a node is kept free, and who are not there yet.
    expected: BTreeMap<u32, u32>,
}

impl Tally {
    pub(super) fn new(sort: Sort, axis: AxisId) -> Self {
        Self { sort, axis, users: 0, counts: BTreeMap::new(), expected: BTreeMap::new() }
    }

    /// How many are in a domain.
    pub(crate) fn count(&self, domain: u32) -> u32 {
        self.counts.get(&domain).copied().unwrap_or(0)
    }

    /// For how many nodes of a domain are kept free.
    pub(crate) fn expected(&self, domain: u32) -> u32 {
        self.expected.get(&domain).copied().unwrap_or(0)
    }

    /// For how many nodes are kept free in each domain where they are for anybody.
    pub(crate) fn all_expected(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.expected.iter().map(|(domain, count)| (*domain, *count))
    }

    /// How many are in each domain where there is anybody.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.counts.iter().map(|(domain, count)| (*domain, *count))
    }

    /// Whether nobody is in any domain.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.expected.clear();
    }

    pub(super) fn change(&mut self, domain: u32, add: bool) {
        change(&mut self.counts, domain, add);
    }

    pub(super) fn change_expected(&mut self, domain: u32, add: bool) {
        change(&mut self.expected, domain, add);
    }
}

fn change(counts: &mut BTreeMap<u32, u32>, domain: u32, add: bool) {
    if add {
        *counts.entry(domain).or_default() += 1;
        return;
    }
    let count = counts.get_mut(&domain).expect("who leaves a domain was counted there");
    *count -= 1;
    if *count == 0 {
        counts.remove(&domain);
    }
}
