//! Counts of pods in each domain of a topology key.

use std::collections::BTreeMap;

use crate::model::ids::{AffinityTermId, EligibleNodesId, SelectorId, TopologyKeyId};

/// Which pods are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CountedPods {
    /// All pods.
    Everyone,
    /// Pods that match a narrow selector, or that do not match a broad one.
    Listed(SelectorId),
    /// Pods that have an affinity term.
    WithTerm(AffinityTermId),
    /// Pods that match a selector and are not terminating, on eligible nodes; with a histogram if the global minimum is
    /// needed.
    Spread { selector: SelectorId, eligible_nodes: EligibleNodesId, histogram: bool },
}

/// Counts of pods by domain; only domains with pods are listed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DomainCounts {
    pub(super) counted_pods: CountedPods,
    pub(crate) topology_key: TopologyKeyId,
    pub(super) users: u32,
    counts: BTreeMap<u32, u32>,
    /// The sum of `counts`.
    total: u32,
    /// Counts of nominated pods by domain.
    nominated: BTreeMap<u32, u32>,
    /// Counts of pods by domain that a transaction only assumes.
    assumed: BTreeMap<u32, u32>,
    /// The histogram of the counts, for required topology spread.
    histogram: Option<Box<Histogram>>,
}

/// The eligible domains by their counts.
#[derive(Clone, Debug, Default, PartialEq)]
struct Histogram {
    /// By domain, the number of its eligible nodes; zero is not listed.
    nodes: BTreeMap<u32, u32>,
    /// By count, the number of domains with it.
    domains: BTreeMap<u32, u32>,
}

impl DomainCounts {
    pub(super) fn new(counted_pods: CountedPods, topology_key: TopologyKeyId) -> Self {
        let histogram = matches!(counted_pods, CountedPods::Spread { histogram: true, .. }).then(Box::default);
        let (counts, nominated, assumed) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { counted_pods, topology_key, users: 0, counts, total: 0, nominated, assumed, histogram }
    }

    pub(super) fn eligible_nodes(&self) -> Option<EligibleNodesId> {
        if let CountedPods::Spread { eligible_nodes, .. } = self.counted_pods { Some(eligible_nodes) } else { None }
    }

    /// The number of domains with eligible nodes.
    pub(crate) fn eligible_domains(&self) -> usize {
        self.histogram.as_ref().map_or(0, |histogram| histogram.nodes.len())
    }

    /// The minimum count of all other eligible domains; `None` if there is no other.
    pub(crate) fn min_elsewhere(&self, domain: u32) -> Option<u32> {
        let histogram = self.histogram.as_ref()?;
        let own = histogram.nodes.contains_key(&domain).then(|| self.count(domain));
        let mut elsewhere = histogram.domains.iter().filter(|(count, domains)| own != Some(**count) || **domains > 1);
        elsewhere.next().map(|(count, _)| *count)
    }

    /// A node of a domain became eligible, or no longer is. No pods on it are counted meanwhile.
    pub(super) fn set_node_eligible(&mut self, domain: u32, add: bool) {
        let count = self.count(domain);
        let Some(histogram) = &mut self.histogram else { return };
        change(&mut histogram.nodes, domain, add);
        let nodes = histogram.nodes.get(&domain).copied().unwrap_or(0);
        if nodes == u32::from(add) {
            change(&mut histogram.domains, count, add);
        }
    }

    /// The number of pods in a domain.
    pub(super) fn count(&self, domain: u32) -> u32 {
        self.counts.get(&domain).copied().unwrap_or(0)
    }

    /// The number of pods that are nominated to nodes of a domain.
    pub(super) fn nominated(&self, domain: u32) -> u32 {
        self.nominated.get(&domain).copied().unwrap_or(0)
    }

    /// The number of pods in a domain that are only assumed.
    pub(super) fn assumed(&self, domain: u32) -> u32 {
        self.assumed.get(&domain).copied().unwrap_or(0)
    }

    pub(super) fn has_assumed(&self) -> bool {
        !self.assumed.is_empty()
    }

    pub(super) fn change_assumed(&mut self, domain: u32, add: bool) {
        change(&mut self.assumed, domain, add);
    }

    /// The number of pods in all domains.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// The domains with pods, and how many.
    pub(super) fn by_domain(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.counts.iter().map(|(domain, count)| (*domain, *count))
    }

    /// Whether no pod is in a domain or nominated to one.
    pub(super) fn is_empty(&self) -> bool {
        self.total == 0 && self.nominated.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.counts.clear();
        self.total = 0;
        self.nominated.clear();
        self.histogram = self.histogram.take().map(|_| Box::default());
    }

    pub(super) fn change(&mut self, domain: u32, add: bool) {
        let old = self.count(domain);
        change(&mut self.counts, domain, add);
        self.total = if add { self.total + 1 } else { self.total - 1 };
        let new = self.count(domain);
        if let Some(histogram) = &mut self.histogram {
            change(&mut histogram.domains, old, false);
            change(&mut histogram.domains, new, true);
        }
    }

    pub(super) fn change_nominated(&mut self, domain: u32, add: bool) {
        change(&mut self.nominated, domain, add);
    }
}

fn change(counts: &mut BTreeMap<u32, u32>, domain: u32, add: bool) {
    if add {
        *counts.entry(domain).or_default() += 1;
        return;
    }
    let count = counts.get_mut(&domain).expect("a removed pod was counted");
    *count -= 1;
    if *count == 0 {
        counts.remove(&domain);
    }
}
