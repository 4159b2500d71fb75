//! Inter-pod constraints of the cluster: classes that depend on matching selectors, and counts that follow every
//! change.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cluster;
use super::event::ClusterEvent;
use super::topology::{self, Presence};
use crate::model::class::ClassSpec;
use crate::model::ids::{ClassId, DomainCountsId, NodeId, PodId, SelectorId};
use crate::model::labels::Labels;

impl Cluster {
    /// The class of a pod, and the pods that must be reclassified because the class brings new selectors. The caller
    /// assigns the class to a pod or releases it.
    pub(crate) fn acquire_class(
        &mut self,
        spec: &Arc<ClassSpec>,
        namespace: &str,
        labels: &Labels,
    ) -> (ClassId, BTreeSet<PodId>) {
        let mut to_reclassify = BTreeSet::new();
        let inter_pod = spec.inter_pod.as_ref().filter(|inter_pod| !inter_pod.is_empty());
        let own = inter_pod.map(|inter_pod| {
            let (own, added) = self.topology.acquire_terms(spec, inter_pod, &self.nodes);
            for counts in added.counts {
                self.fill_counts(counts, &added.selectors);
            }
            for selector in added.selectors {
                to_reclassify.extend(self.topology.pods_matching(selector));
            }
            for selector in added.affected {
                self.update_rules_of_matching(selector);
            }
            own
        });
        let selectors = self.topology.selectors_of(namespace, labels);
        if let Some(id) = self.classes.acquire(spec, &selectors) {
            if let Some(own) = own {
                self.release_terms(own);
            }
            return (id, to_reclassify);
        }
        let disabled_filters = self.profile(spec).disabled_filters;
        let id = self.classes.add(spec, selectors.clone(), own, disabled_filters, &mut self.resources);
        self.topology.add_class(&selectors, id);
        self.update_rules(id);
        (id, to_reclassify)
    }

    /// Updates the class of a pod after the set of matching selectors changed.
    pub(crate) fn reclassify(&mut self, id: PodId) {
        let pod = self.pod(id);
        let (old, name, labels) = (pod.class, pod.id.clone(), pod.labels.clone());
        let spec = self.class(old).spec.clone();
        let (class, others) = self.acquire_class(&spec, &name.namespace, &labels);
        debug_assert!(others.is_empty(), "the terms of a class in use are known");
        self.replace_class(id, class);
    }

    /// Releases a class.
    pub(crate) fn release_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.release(id) else { return };
        self.topology.remove_class(&class.selectors, id);
        if let Some(own) = class.own {
            self.release_terms(own);
        }
    }

    pub(super) fn release_terms(&mut self, own: topology::rules::OwnTerms) {
        for selector in self.topology.release_terms(own) {
            self.update_rules_of_matching(selector);
        }
    }

    /// Counts existing pods in new domain counts. Pods that match a new selector are counted when they are
    /// reclassified.
    pub(super) fn fill_counts(&mut self, counts: DomainCountsId, new: &[SelectorId]) {
        let Some(selector) = self.topology.selector_counted(counts).filter(|selector| !new.contains(selector)) else {
            return;
        };
        let stays = self.topology.excludes_terminating(counts);
        for pod in self.topology.pods_matching(selector) {
            let pod = self.pod(pod);
            // A pod that is about to be reclassified is counted then.
            if (pod.terminating && stays) || !self.class(pod.class).selectors.contains(&selector) {
                continue;
            }
            let places = [(pod.state.node(), Presence::Placed), (pod.nominated, Presence::Nominated)];
            for (node, presence) in places {
                if let Some(node) = node {
                    self.topology.count(std::iter::once(counts), node, presence, true);
                }
            }
        }
    }

    pub(super) fn update_rules_of_matching(&mut self, selector: SelectorId) {
        for class in self.topology.classes_matching(selector).to_vec() {
            self.update_rules(class);
        }
    }

    pub(super) fn update_rules(&mut self, id: ClassId) {
        let profile = self.profile(&self.classes.get(id).spec);
        let class = self.classes.get_mut(id);
        if class.selectors.is_empty() && class.own.is_none() {
            return;
        }
        let rules = self.topology.rules(&class.spec, class.own.as_ref(), &class.selectors, profile);
        if class.rules.as_deref() != Some(&rules) {
            class.rules = Some(Arc::new(rules));
        }
    }

    /// Sets the labels of a namespace, `None` if it is gone. Returns the pods that must be reclassified.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> BTreeSet<PodId> {
        let mut to_reclassify = BTreeSet::new();
        if self.topology.set_namespace(name, labels) {
            for (labels, pods) in self.topology.label_sets.of_namespace(name) {
                let selectors = self.topology.selectors_of(name, labels);
                to_reclassify
                    .extend(pods.iter().filter(|pod| self.class(self.pod(**pod).class).selectors != selectors));
            }
        }
        let nodes: BTreeSet<NodeId> = to_reclassify.iter().filter_map(|pod| self.pod(*pod).state.node()).collect();
        if !nodes.is_empty() {
            self.events.push(ClusterEvent::NamespaceChanged { nodes });
        }
        to_reclassify
    }

    /// Sets a pod's labels; the caller updates its class.
    pub(crate) fn set_labels(&mut self, id: PodId, labels: &Arc<Labels>) {
        let pod = self.pods.get_mut(id.0).expect("a pod in use exists");
        self.topology.label_sets.remove(&pod.id.namespace, &pod.labels, id);
        pod.labels.clone_from(labels);
        self.topology.label_sets.add(&pod.id.namespace, labels, id);
    }

    /// Adds all pods of a node to the domain counts, or removes them.
    pub(super) fn count_pods_on_node(&mut self, id: NodeId, add: bool) {
        let node = self.nodes.get(id.0).expect("a node in use exists");
        let there = node.pods.iter().map(|pod| (*pod, Presence::Placed));
        let kept = node.nominated.iter().map(|pod| (*pod, Presence::Nominated));
        for (pod, presence) in there.chain(kept).collect::<Vec<_>>() {
            self.count_inter_pod(pod, id, presence, add);
        }
    }

    /// Adds a pod on a node to the domain counts, or removes it.
    pub(super) fn count_inter_pod(&mut self, pod: PodId, node: NodeId, presence: Presence, add: bool) {
        let pod = self.pods.get(pod.0).expect("a pod near a node exists");
        if let Some(rules) = &self.classes.get(pod.class).rules {
            self.topology.count(rules.counted_in(pod.terminating), node, presence, add);
        }
    }

    /// Adds a pod to the domain counts of its node and its nominated node, or removes it.
    pub(super) fn count_pod(&mut self, id: PodId, add: bool) {
        let pod = self.pod(id);
        for (node, presence) in [(pod.state.node(), Presence::Placed), (pod.nominated, Presence::Nominated)] {
            if let Some(node) = node {
                self.count_inter_pod(id, node, presence, add);
            }
        }
    }

    /// Whether a topology spread constraint counts this pod.
    pub(crate) fn counts_for_spread(&self, id: PodId) -> bool {
        self.class(self.pod(id).class).rules.as_ref().is_some_and(|rules| !rules.counts_in_spread.is_empty())
    }

    /// A pod is terminating, or no longer: terminating pods do not count for topology spread.
    pub(super) fn update_spread_counts(&mut self, id: PodId) {
        if !self.counts_for_spread(id) {
            return;
        }
        let pod = self.pod(id);
        let (rules, add) = (self.class(pod.class).rules.clone(), !pod.terminating);
        for (node, presence) in [(pod.state.node(), Presence::Placed), (pod.nominated, Presence::Nominated)] {
            if let (Some(node), Some(rules)) = (node, &rules) {
                self.topology.count(rules.counts_in_spread.iter().copied(), node, presence, add);
                self.touch(node, false);
            }
        }
    }

    /// Counts a pod that matches the required affinity of a class on a node, or no longer.
    pub(crate) fn assume_affinity_match(&mut self, class: ClassId, node: NodeId, add: bool) {
        if let Some(rules) = self.classes.get(class).rules.clone() {
            self.topology.count(rules.required_affinity.iter().copied(), node, Presence::Placed, add);
        }
        self.touch(node, false);
    }

    /// Whether the domain counts equal a recount.
    pub(crate) fn audit_topology<'p>(&self, near: impl Iterator<Item = topology::AuditedPod<'p>>) -> bool {
        self.topology.audit(near, &self.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_without_terms_ignores_labels() {
        let (mut cluster, spec) = (Cluster::default(), Arc::default());
        let classes = ["0", "1", "2"].map(|index| {
            let labels = Labels::from([("index".to_owned(), index.to_owned())]);
            cluster.acquire_class(&spec, "", &labels).0
        });
        assert!(classes.iter().all(|class| *class == classes[0]), "no selector refers to their index");
    }
}
