//! A recount of everything that is kept up to date, for checks.

use super::broad_terms::BroadTerms;
use super::domain_counts::CountedPods;
use super::rules::OwnTerms;
use super::{Presence, Topology};
use crate::cluster::node::Node;
use crate::model::ids::{DomainCountsId, LabelSetId, NodeId, SelectorId, Slab};
use crate::model::labels::Labels;

impl Topology {
    /// Whether a label set is in the match set that its labels determine.
    pub(crate) fn is_matched(&self, id: LabelSetId, namespace: &str, labels: &Labels) -> bool {
        let set = self.label_sets.get(id);
        let listed = self.selectors.listing_by_scan(namespace, self.labels_of(namespace), labels);
        set.namespace == namespace && *set.labels == *labels && self.match_sets.get(set.matches).listed == listed
    }

    /// Recounts all pods by their labels and compares.
    pub(crate) fn audit<'p>(&self, pods: impl Iterator<Item = AuditedPod<'p>>, nodes: &Slab<Node>) -> bool {
        let mut fresh = self.clone();
        fresh.broad_terms = BroadTerms::default();
        for counts in self.domain_counts_by_key.values() {
            fresh.domain_counts.get_mut(counts.0).expect("listed domain counts exist").clear();
            if matches!(self.domain_counts(*counts).counted_pods, CountedPods::Spread { histogram: true, .. }) {
                fresh.build_histogram(*counts);
            }
        }
        for pod in pods {
            let listed = self.selectors.listing_by_scan(pod.namespace, self.labels_of(pod.namespace), pod.labels);
            let of_selector = |selector: SelectorId| self.selectors.get(selector).counts.iter().copied();
            let by_selector = listed.selectors().flat_map(of_selector);
            let by_selector = by_selector.filter(|counts| !(pod.terminating && self.excludes_terminating(*counts)));
            let by_term = pod.own.into_iter().flat_map(|own| &own.affinity_terms);
            let by_term = by_term.map(|id| self.affinity_terms.get(id.0).expect("a term in use exists").counts);
            let everyone = self.everyone.values().copied();
            let counts: Vec<DomainCountsId> = by_selector.chain(by_term).chain(everyone).collect();
            fresh.change_counts(&counts, pod.node, pod.presence, true);
        }
        let listed_in_use = self.label_sets.iter().all(|(_, set)| !set.pods.is_empty());
        fresh.domain_counts == self.domain_counts
            && fresh.broad_terms == self.broad_terms
            && self.moved_pods.is_empty()
            && self.everyone_with_domains == self.everyone_with_domains()
            && listed_in_use
            && self.eligible_sets.match_recount(nodes)
    }
}

/// A pod on a node or nominated to it.
#[derive(Debug)]
pub(crate) struct AuditedPod<'p> {
    pub(crate) node: NodeId,
    pub(crate) presence: Presence,
    pub(crate) namespace: &'p str,
    pub(crate) labels: &'p Labels,
    /// The terms of its class.
    pub(crate) own: Option<&'p OwnTerms>,
    pub(crate) terminating: bool,
}
