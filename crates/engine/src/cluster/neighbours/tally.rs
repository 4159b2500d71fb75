//! How many pods of some sort are in each domain of a label.

use std::collections::BTreeMap;

use crate::model::ids::{AxisId, ScopeId, StanceId, TagId};

/// Which pods are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sort {
    /// Those that a selector is about.
    Tagged(TagId),
    /// Those that hold a stance.
    Holding(StanceId),
    /// Those that a selector is about, that are not on their way out, on nodes of a scope; with levels if it matters how
    /// even they are, and not only how many are near.
    Spread { tag: TagId, scope: ScopeId, levels: bool },
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
    /// How even the counts are, if somebody is to be spread.
    levels: Option<Box<Levels>>,
}

/// The domains that count, by how many are there.
#[derive(Clone, Debug, Default, PartialEq)]
struct Levels {
    /// By domain, how many of its nodes are in the scope; nothing is not listed.
    nodes: BTreeMap<u32, u32>,
    /// By count, how many domains have it.
    domains: BTreeMap<u32, u32>,
}

impl Tally {
    pub(super) fn new(sort: Sort, axis: AxisId) -> Self {
        let levels = matches!(sort, Sort::Spread { levels: true, .. }).then(Box::default);
        Self { sort, axis, users: 0, counts: BTreeMap::new(), expected: BTreeMap::new(), levels }
    }

    pub(super) fn scope(&self) -> Option<ScopeId> {
        if let Sort::Spread { scope, .. } = self.sort { Some(scope) } else { None }
    }

    /// How many domains have nodes that count.
    pub(crate) fn domains_in_scope(&self) -> usize {
        self.levels.as_ref().map_or(0, |levels| levels.nodes.len())
    }

    /// The least count of any domain but this one; `None` if there is no other.
    pub(crate) fn least_elsewhere(&self, domain: u32) -> Option<u32> {
        let levels = self.levels.as_ref()?;
        let own = levels.nodes.contains_key(&domain).then(|| self.count(domain));
        let mut elsewhere = levels.domains.iter().filter(|(count, domains)| own != Some(**count) || **domains > 1);
        elsewhere.next().map(|(count, _)| *count)
    }

    /// A node of a domain counts from now on, or no longer. Nobody is counted on it meanwhile.
    pub(super) fn settle(&mut self, domain: u32, add: bool) {
        let count = self.count(domain);
        let Some(levels) = &mut self.levels else { return };
        change(&mut levels.nodes, domain, add);
        let nodes = levels.nodes.get(&domain).copied().unwrap_or(0);
        if nodes == u32::from(add) {
            change(&mut levels.domains, count, add);
        }
    }

    /// How many are in a domain.
    pub(crate) fn count(&self, domain: u32) -> u32 {
        self.counts.get(&domain).copied().unwrap_or(0)
    }

    /// For how many nodes of a domain are kept free.
    pub(crate) fn expected(&self, domain: u32) -> u32 {
        self.expected.get(&domain).copied().unwrap_or(0)
    }

    /// Whether nobody is in any domain.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.expected.clear();
        self.levels = self.levels.take().map(|_| Box::default());
    }

    pub(super) fn change(&mut self, domain: u32, add: bool) {
        let old = self.count(domain);
        change(&mut self.counts, domain, add);
        let new = self.count(domain);
        if let Some(levels) = &mut self.levels {
            change(&mut levels.domains, old, false);
            change(&mut levels.domains, new, true);
        }
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
