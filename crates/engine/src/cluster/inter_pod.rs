//! Inter-pod constraints of the cluster: classes that depend on matching selectors, and counts that follow every
//! change.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cluster;
use super::event::ClusterEvent;
use super::storage::StorageDemand;
use super::topology::{self, CountedPod, Presence};
use crate::model::class::ClassSpec;
use crate::model::ids::{ClassId, DomainCountsId, LabelSetId, NodeId, PodId};
use crate::model::labels::Labels;

impl Cluster {
    /// The set of pods with these labels; the caller adds a pod to it.
    pub(crate) fn acquire_labels(&mut self, namespace: &str, labels: &Arc<Labels>) -> LabelSetId {
        self.topology.acquire_labels(namespace, labels)
    }

    /// Drops a reference to a set of labels without a pod.
    pub(crate) fn release_labels(&mut self, id: LabelSetId) {
        self.topology.release_labels(id);
    }

    /// The class of a pod with these labels. `take_moved_pods` tells which pods its terms concern. The caller assigns
    /// the class to a pod or releases it.
    pub(crate) fn acquire_class(&mut self, spec: &Arc<ClassSpec>, labels: LabelSetId) -> ClassId {
        self.acquire_class_with(spec, labels, None)
    }

    /// The same for a pod with claims.
    pub(crate) fn acquire_class_with(
        &mut self,
        spec: &Arc<ClassSpec>,
        labels: LabelSetId,
        storage: Option<Arc<StorageDemand>>,
    ) -> ClassId {
        let inter_pod = spec.inter_pod.as_ref().filter(|inter_pod| !inter_pod.is_empty());
        let own = inter_pod.map(|inter_pod| {
            let (own, new_counts) = self.topology.acquire_terms(spec, inter_pod, &self.nodes);
            for counts in new_counts {
                self.fill_counts(counts);
            }
            own
        });
        let matches = self.topology.matches_of(labels);
        let key = (matches, spec.clone(), storage);
        if let Some(id) = self.classes.acquire(&key) {
            if let Some(own) = own {
                self.topology.release_terms(own);
            }
            return id;
        }
        let profile = self.profile(spec);
        let rules = self.topology.rules(spec, own.as_ref(), matches, profile);
        if let Some(demand) = key.2.as_deref() {
            self.storage.note_demand(demand);
        }
        let id = self.classes.add(key, (own, rules), profile.disabled_filters, &mut self.resources);
        self.topology.add_class(matches, id);
        id
    }

    /// The pods whose class must be updated by `reclassify`, because other selectors match them or because pods that
    /// selectors told apart do not differ any more.
    pub(crate) fn take_moved_pods(&mut self) -> BTreeSet<PodId> {
        self.topology.take_moved_pods()
    }

    /// Updates the class of a pod after its labels came to another match set. What it is counted in stays: that depends
    /// on its labels.
    pub(crate) fn reclassify(&mut self, id: PodId) {
        let pod = self.pod(id);
        let (old, labels) = (pod.class, pod.label_set);
        let (spec, storage) = (self.class(old).spec.clone(), self.class(old).storage.clone());
        let class = self.acquire_class_with(&spec, labels, storage);
        self.change_pod(id, |pod| pod.class = class);
        self.release_class(old);
    }

    /// Releases a class.
    pub(crate) fn release_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.release(id) else { return };
        if let Some(demand) = class.storage.as_deref() {
            self.storage.forget_demand(demand);
        }
        for (resource, _) in class.requests.iter() {
            self.resources.release(resource);
        }
        self.topology.remove_class(class.matches, id);
        if let Some(own) = class.own {
            self.topology.release_terms(own);
        }
    }

    /// Counts existing pods in new domain counts.
    fn fill_counts(&mut self, counts: DomainCountsId) {
        if self.topology.has_no_domains(counts) {
            return;
        }
        let excludes_terminating = self.topology.excludes_terminating(counts);
        let pods = if self.topology.counts_everyone(counts) {
            self.pods.iter().map(|(slot, _)| PodId(slot)).collect()
        } else {
            self.topology.pods_listed(counts)
        };
        for pod in pods {
            let pod = self.pod(pod);
            if pod.terminating && excludes_terminating {
                continue;
            }
            for (node, presence) in [(pod.state.node(), Presence::Placed), (pod.nominated, Presence::Nominated)] {
                if let Some(node) = node {
                    self.topology.change_counts(&[counts], node, presence, true);
                }
            }
        }
    }

    /// Sets the labels of a namespace, `None` if it is gone. `take_moved_pods` tells which pods that concerns.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) {
        if *self.topology.labels_of(name) == *labels.as_ref().unwrap_or(&Labels::new()) {
            self.topology.set_namespace(name, labels);
            return;
        }
        self.recount_namespace(name, false);
        self.topology.set_namespace(name, labels);
        self.recount_namespace(name, true);
        let moved = self.topology.moved_pods();
        let nodes: BTreeSet<NodeId> = moved.filter_map(|pod| self.pod(pod).state.node()).collect();
        for node in &nodes {
            self.touch(*node, false);
        }
        if !nodes.is_empty() {
            self.events.push(ClusterEvent::NamespaceChanged { nodes });
        }
    }

    /// Adds all pods of a namespace to the domain counts, or removes them.
    fn recount_namespace(&mut self, name: &str, add: bool) {
        for pod in self.topology.pods_in(name) {
            self.count_pod(pod, add);
        }
    }

    /// Sets a pod's labels; the caller updates its class.
    pub(crate) fn set_labels(&mut self, id: PodId, labels: &Arc<Labels>) {
        self.count_pod(id, false);
        let pod = self.pod(id);
        let (old, namespace) = (pod.label_set, pod.id.clone());
        let new = self.topology.acquire_labels(&namespace.namespace, labels);
        self.topology.remove_pod(old, id);
        self.topology.add_pod(new, id);
        self.topology.release_labels(old);
        let pod = self.pods.get_mut(id.0).expect("a pod in use exists");
        pod.labels.clone_from(labels);
        pod.label_set = new;
        self.count_pod(id, true);
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
        let counted = CountedPod { node, presence, label_set: pod.label_set, terminating: pod.terminating };
        self.topology.count_pod(&counted, self.classes.get(pod.class), add);
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
        !self.topology.spread_counts_of(self.pod(id).label_set).is_empty()
    }

    /// A pod is terminating, or no longer: terminating pods do not count for topology spread.
    pub(super) fn update_spread_counts(&mut self, id: PodId) {
        let pod = self.pod(id);
        let counts = self.topology.spread_counts_of(pod.label_set);
        if counts.is_empty() {
            return;
        }
        let add = !pod.terminating;
        for (node, presence) in [(pod.state.node(), Presence::Placed), (pod.nominated, Presence::Nominated)] {
            if let Some(node) = node {
                self.topology.change_counts(&counts, node, presence, add);
                self.touch(node, false);
            }
        }
    }

    /// Counts a pod that matches the required affinity of a class on a node, or no longer.
    pub(crate) fn assume_affinity_match(&mut self, class: ClassId, node: NodeId, add: bool) {
        let counts = self.classes.get(class).rules.required_affinity.clone();
        self.topology.assume_match(&counts, node, add);
        self.touch(node, false);
    }

    /// Whether pods on other nodes can make a node infeasible for pods of a class now: by a required inter-pod term, its
    /// own or one of existing pods, or by the use of a claim that it may not share.
    pub(crate) fn has_required_inter_pod_terms(&self, class: ClassId) -> bool {
        let class = self.class(class);
        let excludes = class.storage.as_deref().is_some_and(|demand| !demand.exclusive.is_empty());
        excludes || self.topology.has_required_terms(class)
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
            let labels = Arc::new(Labels::from([("index".to_owned(), index.to_owned())]));
            let labels = cluster.topology.acquire_labels("", &labels);
            cluster.acquire_class(&spec, labels)
        });
        assert!(classes.iter().all(|class| *class == classes[0]), "no selector refers to their index");
    }
}
