//! Topology spread constraints with `DoNotSchedule`: rejects nodes whose domain would exceed the maximum skew.
//!
//! Nominated pods count in the domain that is checked. In other domains they do not, since they may never be bound.

use super::kinds::{Filter, InterPodFilter, Reason};
use super::view::{InterPodView, View};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::cluster::topology::rules::SpreadConstraint;

pub(super) const FILTER: Filter = Filter::InterPod(InterPodFilter { failure_reason, copies_max });

/// How many pods of the class fit, as long as no other pod is placed.
fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    if failure_reason(class, node, view).is_some() {
        return 0;
    }
    let (rules, Some(inter_pod)) = (&class.rules, &view.inter_pod) else { return i64::MAX };
    let limited = rules.spread.iter().filter(|constraint| constraint.matches_itself);
    limited.filter_map(|constraint| inter_pod.room_within_skew(constraint)).min().unwrap_or(i64::MAX)
}

fn failure_reason(class: &PodClass, node: &Node, view: &View<'_>) -> Option<Reason> {
    let terms = &class.spec.inter_pod.as_ref()?.spread.do_not_schedule;
    let rules = &class.rules;
    terms.iter().zip(&rules.spread).find_map(|(term, constraint)| {
        if !node.labels.contains_key(&term.topology_key) {
            return Some(Reason::SpreadLabel);
        }
        let own = i64::from(constraint.matches_itself);
        let room = view.inter_pod.as_ref().and_then(|inter_pod| inter_pod.room_within_skew(constraint));
        room.is_some_and(|room| room < own).then_some(Reason::Spread)
    })
}

impl InterPodView<'_> {
    /// How many more pods the node's domain may take without exceeding the maximum skew; `None` is unlimited.
    fn room_within_skew(&self, constraint: &SpreadConstraint) -> Option<i64> {
        let topology = &self.cluster.topology;
        let counts = topology.domain_counts(constraint.counts);
        let domain = topology.topology_key(counts.topology_key).domain(self.node)?;
        let max_skew = i64::from(constraint.max_skew);
        let too_few_domains = counts.eligible_domains() < constraint.min_domains as usize;
        if self.without_pods {
            // The other domains may fill up, too, unless the global minimum counts as zero anyway.
            return too_few_domains.then_some(max_skew);
        }
        let there =
            i64::from(topology.count(constraint.counts, domain) + self.nominated_count(constraint.counts, domain));
        if too_few_domains {
            return Some(max_skew - there);
        }
        Some(max_skew + i64::from(counts.min_elsewhere(domain)?) - there)
    }
}
