//! Sums over all affinity terms of existing pods on broad selectors, by domain.
//!
//! Such a term applies to nearly every pod, so a pod starts from these sums and takes off the few terms that do not
//! match it. How many terms there are does not matter to it.

use std::collections::BTreeMap;

use super::{Presence, TermKind};
use crate::model::ids::TopologyKeyId;

/// The sums for one topology key. Domains without pods are not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BroadTermSums {
    /// Pods by domain, once for each required anti-affinity term that they have.
    anti_affinity: BTreeMap<u32, u32>,
    /// The same for pods that are nominated.
    nominated_anti_affinity: BTreeMap<u32, u32>,
    /// Pods by domain, once for each required affinity term that they have.
    required_affinity: BTreeMap<u32, u32>,
    /// The sum of both counts of anti-affinity.
    anti_affinity_total: u32,
    /// The weights of the preferred terms, and how many there are.
    preferred: BTreeMap<u32, (i64, u32)>,
}

impl BroadTermSums {
    fn is_empty(&self) -> bool {
        !self.has_anti_affinity() && !self.has_preferences(1)
    }

    /// Whether any pod has a required anti-affinity term.
    pub(super) fn has_anti_affinity(&self) -> bool {
        self.anti_affinity_total > 0
    }

    /// Whether any pod has a term that is scored; required affinity terms are scored by this weight.
    pub(super) fn has_preferences(&self, affinity_match_weight: i64) -> bool {
        !self.preferred.is_empty() || (affinity_match_weight != 0 && !self.required_affinity.is_empty())
    }

    pub(super) fn anti_affinity(&self, domain: u32, presence: Presence) -> u32 {
        let counts = match presence {
            Presence::Placed => &self.anti_affinity,
            Presence::Nominated => &self.nominated_anti_affinity,
        };
        counts.get(&domain).copied().unwrap_or(0)
    }

    /// The score of a domain.
    pub(super) fn preference(&self, domain: u32, affinity_match_weight: i64) -> i64 {
        let preferred = self.preferred.get(&domain).map_or(0, |(sum, _)| *sum);
        let required = self.required_affinity.get(&domain).copied().unwrap_or(0);
        preferred + i64::from(required) * affinity_match_weight
    }

    fn change(&mut self, kind: TermKind, domain: u32, presence: Presence, add: bool) {
        if kind == TermKind::RequiredAntiAffinity {
            self.anti_affinity_total = if add { self.anti_affinity_total + 1 } else { self.anti_affinity_total - 1 };
        }
        match (kind, presence) {
            (TermKind::RequiredAntiAffinity, Presence::Placed) => change(&mut self.anti_affinity, domain, add),
            (TermKind::RequiredAntiAffinity, Presence::Nominated) => {
                change(&mut self.nominated_anti_affinity, domain, add);
            }
            (TermKind::RequiredAffinity, Presence::Placed) => change(&mut self.required_affinity, domain, add),
            (TermKind::Preferred(weight), Presence::Placed) => {
                let (sum, terms) = self.preferred.entry(domain).or_default();
                if add {
                    (*sum, *terms) = (*sum + i64::from(weight), *terms + 1);
                } else {
                    (*sum, *terms) = (*sum - i64::from(weight), *terms - 1);
                }
                if *terms == 0 {
                    self.preferred.remove(&domain);
                }
            }
            // Nominated pods are not scored.
            (TermKind::RequiredAffinity | TermKind::Preferred(_), Presence::Nominated) => {}
        }
    }
}

/// The sums for all topology keys; keys without pods are not listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct BroadTerms(BTreeMap<TopologyKeyId, BroadTermSums>);

impl BroadTerms {
    pub(super) fn iter(&self) -> impl Iterator<Item = (TopologyKeyId, &BroadTermSums)> {
        self.0.iter().map(|(key, sums)| (*key, sums))
    }

    pub(super) fn get(&self, key: TopologyKeyId) -> Option<&BroadTermSums> {
        self.0.get(&key)
    }

    /// A pod with a term is in a domain now, or no longer.
    pub(super) fn change(&mut self, key: TopologyKeyId, kind: TermKind, domain: u32, presence: Presence, add: bool) {
        let sums = self.0.entry(key).or_default();
        sums.change(kind, domain, presence, add);
        if sums.is_empty() {
            self.0.remove(&key);
        }
    }
}

fn change(counts: &mut BTreeMap<u32, u32>, domain: u32, add: bool) {
    let count = counts.entry(domain).or_default();
    *count = if add { *count + 1 } else { count.checked_sub(1).expect("a removed pod was counted") };
    if *count == 0 {
        counts.remove(&domain);
    }
}
