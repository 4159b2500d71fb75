//! Required inter-pod affinity and anti-affinity, including the anti-affinity of existing pods.
//!
//! Nominated pods count as placed for anti-affinity but not for affinity, because they may never be bound.
//! kube-scheduler only counts pods nominated to the node itself; then a preempted pod that is recreated can return to
//! the domain of its preemptor, is evicted again, and so on.

use super::kinds::{Filter, InterPodFilter, Reason};
use super::view::{InterPodView, View};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::cluster::topology::ExistingTerms;
use crate::cluster::topology::rules::InterPodRules;
use crate::model::ids::{DomainCountsId, PodId, TopologyKeyId};

pub(super) const FILTER: Filter = Filter::InterPod(InterPodFilter { failure_reason, copies_max });

/// How many pods of the class fit together, as long as no other pod is placed.
fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    if failure_reason(class, node, view).is_some() {
        return 0;
    }
    let (rules, Some(inter_pod)) = (&class.rules, &view.inter_pod) else { return i64::MAX };
    // A node outside of all domains of the key is not limited.
    if rules.matches_own_anti_affinity.iter().any(|counts| inter_pod.count(*counts).is_some()) { 1 } else { i64::MAX }
}

fn failure_reason(class: &PodClass, node: &Node, view: &View<'_>) -> Option<Reason> {
    let inter_pod = class.spec.inter_pod.as_ref();
    let lacks_label = |key: &String| !node.labels.contains_key(key);
    if inter_pod.is_some_and(|inter_pod| inter_pod.required_affinity.iter().any(|term| lacks_label(&term.topology_key)))
    {
        return Some(Reason::PodAffinity);
    }
    let (rules, inter_pod) = (&class.rules, view.inter_pod.as_ref()?);
    if !inter_pod.satisfies_affinity(rules) {
        return Some(Reason::PodAffinity);
    }
    if rules.anti_affinity.iter().any(|counts| inter_pod.has_matching_pod(*counts)) {
        return Some(Reason::PodAntiAffinity);
    }
    let is_avoided = match inter_pod.existing {
        Some(terms) => inter_pod.is_avoided(class, terms, |_| true),
        None => inter_pod.is_avoided(class, &inter_pod.cluster.topology.existing_terms(class), |_| true),
    };
    is_avoided.then_some(Reason::ExistingPodAntiAffinity)
}

impl InterPodView<'_> {
    /// The number of matching pods in the node's domain; `None` if the node is in no domain.
    fn count(&self, counts: DomainCountsId) -> Option<u32> {
        let count = self.cluster.topology.count_near(counts, self.node);
        if self.without_pods { count.map(|_| 0) } else { count }
    }

    /// Whether the domain has matching pods for every required affinity term, or the pod is the first of a set that
    /// requires affinity to itself.
    fn satisfies_affinity(&self, rules: &InterPodRules) -> bool {
        let is_near = |counts: &DomainCountsId| self.count(*counts).is_some_and(|count| count > 0);
        // In a cluster without pods, the matching pods may still be created.
        self.without_pods
            || rules.required_affinity.iter().all(is_near)
            || (rules.matches_own_affinity && self.no_match_anywhere(rules))
    }

    fn no_match_anywhere(&self, rules: &InterPodRules) -> bool {
        rules.required_affinity.iter().all(|counts| self.cluster.topology.counts_none(*counts))
    }

    /// Whether the node's domain has a matching pod, or one of the same or a higher priority is nominated to it.
    pub(crate) fn has_matching_pod(&self, id: DomainCountsId) -> bool {
        let topology = &self.cluster.topology;
        let counts = topology.domain_counts(id);
        let Some(domain) = topology.topology_key(counts.topology_key).domain(self.node).filter(|_| !self.without_pods)
        else {
            return false;
        };
        topology.count(id, domain) > 0 || self.nominated_count(id, domain) > 0
    }

    /// Whether a pod in the node's domain has required anti-affinity to pods of a class, or one of the same or a higher
    /// priority that is nominated to it; by topology keys that are `included`.
    pub(crate) fn is_avoided(
        &self,
        class: &PodClass,
        terms: &ExistingTerms,
        included: impl Fn(TopologyKeyId) -> bool,
    ) -> bool {
        let mut keys = terms.anti_affinity_keys().filter(|key| included(*key));
        !self.without_pods
            && keys.any(|key| {
                terms.is_avoided(&self.cluster.topology, key, self.node)
                    || self.is_avoided_by_nominated(class, terms, key)
            })
    }

    fn is_avoided_by_nominated(&self, class: &PodClass, terms: &ExistingTerms, key: TopologyKeyId) -> bool {
        let topology = &self.cluster.topology;
        let topology_key = topology.topology_key(key);
        let domain = topology_key.domain(self.node);
        let Some(domain) = domain.filter(|domain| topology.may_be_avoided_by_nominated(terms, key, *domain)) else {
            return false;
        };
        let avoids = |pod: &PodId| {
            let other = self.cluster.class(self.cluster.pod(*pod).class);
            topology.has_anti_affinity_to(other, key, class.matches)
                && self.cluster.effective_priority(*pod) >= self.priority
        };
        topology_key.nodes(domain).iter().flat_map(|node| &self.cluster.node(*node).nominated).any(avoids)
    }

    /// The number of matching pods of the same or a higher priority that are nominated to nodes of the domain.
    pub(crate) fn nominated_count(&self, id: DomainCountsId, domain: u32) -> u32 {
        let topology = &self.cluster.topology;
        let counts = topology.domain_counts(id);
        if topology.nominated(id, domain) == 0 {
            return 0;
        }
        let nodes = topology.topology_key(counts.topology_key).nodes(domain).iter();
        let nominated =
            nodes.filter(|node| topology.counts_on(id, **node)).flat_map(|node| &self.cluster.node(*node).nominated);
        nominated.filter(|pod| self.counts_as_nominated(**pod, id)).count() as u32
    }

    fn counts_as_nominated(&self, pod: PodId, counts: DomainCountsId) -> bool {
        let class = self.cluster.class(self.cluster.pod(pod).class);
        self.cluster.topology.is_counted_in(class, counts) && self.cluster.effective_priority(pod) >= self.priority
    }
}
