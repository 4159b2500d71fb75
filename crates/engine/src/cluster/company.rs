//! The cluster's side of who is near whom: classes that others' selectors tell apart, and counts that follow every change.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Cluster, neighbours};
use crate::model::class::ClassSpec;
use crate::model::ids::{ClassId, NodeId, PodId, TagId, TallyId};
use crate::model::labels::Labels;

impl Cluster {
    /// The class of a pod, and the pods that have to be classified again, since nobody had an opinion about them before.
    /// The caller gives the class to a pod or releases it.
    pub(crate) fn acquire_class(
        &mut self,
        spec: &Arc<ClassSpec>,
        namespace: &str,
        labels: &Labels,
    ) -> (ClassId, BTreeSet<PodId>) {
        let mut to_look_at = BTreeSet::new();
        let company = spec.company.as_ref().filter(|company| !company.is_empty());
        let own = company.map(|company| {
            let (own, brought) = self.neighbours.acquire_terms(company, &self.nodes);
            for tally in brought.tallies {
                self.fill(tally, &brought.tags);
            }
            for tag in brought.tags {
                to_look_at.extend(self.neighbours.about(tag));
            }
            for tag in brought.stirred {
                self.renew_rules(tag);
            }
            own
        });
        let tags = self.neighbours.tags_of(namespace, labels);
        if let Some(id) = self.classes.acquire(spec, &tags) {
            if let Some(own) = own {
                self.release_terms(own);
            }
            return (id, to_look_at);
        }
        let id = self.classes.add(spec, tags.clone(), own, &mut self.resources);
        self.neighbours.bear(&tags, id);
        self.renew_rules_of(id);
        (id, to_look_at)
    }

    /// Gives a pod the class that is its own by now.
    pub(crate) fn classify_again(&mut self, id: PodId) {
        let pod = self.pod(id);
        let (old, name, labels) = (pod.class, pod.id.clone(), pod.labels.clone());
        let spec = self.class(old).spec.clone();
        let (class, others) = self.acquire_class(&spec, &name.namespace, &labels);
        debug_assert!(others.is_empty(), "the terms of a class in use are known");
        self.set_class(id, class);
    }

    /// One user of a class less.
    pub(crate) fn release_class(&mut self, id: ClassId) {
        let Some(class) = self.classes.release(id) else { return };
        self.neighbours.bear_no_more(&class.tags, id);
        if let Some(own) = class.own {
            self.release_terms(own);
        }
    }

    pub(super) fn release_terms(&mut self, own: neighbours::Own) {
        for tag in self.neighbours.release_terms(own) {
            self.renew_rules(tag);
        }
    }

    /// Counts those who are there in a new tally. Those whose tag is new are counted when they are given it.
    pub(super) fn fill(&mut self, tally: TallyId, new: &[TagId]) {
        let Some(tag) = self.neighbours.tag_counted(tally).filter(|tag| !new.contains(tag)) else { return };
        for pod in self.neighbours.about(tag) {
            let pod = self.pod(pod);
            let (there, kept) = (pod.state.node(), pod.nominated);
            if let Some(node) = there {
                self.neighbours.count(&[tally], node, true);
            }
            if let Some(node) = kept {
                self.neighbours.expect(&[tally], node, true);
            }
        }
    }

    pub(super) fn renew_rules(&mut self, tag: TagId) {
        for class in self.neighbours.bearers(tag).to_vec() {
            self.renew_rules_of(class);
        }
    }

    pub(super) fn renew_rules_of(&mut self, id: ClassId) {
        let class = self.classes.get_mut(id);
        if class.tags.is_empty() && class.own.is_none() {
            return;
        }
        let rules = self.neighbours.rules(class.own.as_ref(), &class.tags, self.weight_sought);
        if class.rules.as_deref() != Some(&rules) {
            class.rules = Some(Arc::new(rules));
        }
    }

    /// Takes the labels of a namespace, none if it is gone. Says which pods have to be classified again: those about whom
    /// somebody has an opinion now who had none, or the other way round.
    pub(crate) fn set_namespace(&mut self, name: &str, labels: Option<Labels>) -> BTreeSet<PodId> {
        let mut to_look_at = BTreeSet::new();
        if self.neighbours.set_namespace(name, labels) {
            for (labels, pods) in self.neighbours.kin.of_namespace(name) {
                let tags = self.neighbours.tags_of(name, labels);
                to_look_at.extend(pods.iter().filter(|pod| self.class(self.pod(**pod).class).tags != tags));
            }
        }
        to_look_at
    }

    /// Takes a pod's labels; its class is for the caller to look at.
    pub(crate) fn set_labels(&mut self, id: PodId, labels: &Arc<Labels>) {
        let pod = self.pods.get_mut(id.0).expect("a pod in use exists");
        self.neighbours.kin.remove(&pod.id.namespace, &pod.labels, id);
        pod.labels.clone_from(labels);
        self.neighbours.kin.add(&pod.id.namespace, labels, id);
    }

    /// Counts everybody on a node with their neighbours, or nobody.
    pub(super) fn count_all(&mut self, id: NodeId, add: bool) {
        for pod in &self.nodes.get(id.0).expect("a node in use exists").pods {
            let pod = self.pods.get(pod.0).expect("a pod on a node exists");
            if let Some(rules) = &self.classes.get(pod.class).rules {
                self.neighbours.count(&rules.counts_in, id, add);
            }
        }
        for pod in &self.nodes.get(id.0).expect("a node in use exists").nominated {
            let pod = self.pods.get(pod.0).expect("a nominated pod exists");
            if let Some(rules) = &self.classes.get(pod.class).rules {
                self.neighbours.expect(&rules.counts_in, id, add);
            }
        }
    }

    /// Counts one pod of a class near a node, or one less.
    pub(super) fn change_company(&mut self, id: NodeId, class: ClassId, add: bool) {
        if let Some(rules) = &self.classes.get(class).rules {
            self.neighbours.count(&rules.counts_in, id, add);
        }
    }

    /// Counts one pod of a class for which a node is kept free, or one less.
    pub(super) fn change_expected(&mut self, id: NodeId, class: ClassId, add: bool) {
        if let Some(rules) = &self.classes.get(class).rules {
            self.neighbours.expect(&rules.counts_in, id, add);
        }
    }

    /// Counts one whom a class insists on near a node, or no longer.
    pub(crate) fn lure(&mut self, class: ClassId, node: NodeId, add: bool) {
        if let Some(rules) = self.classes.get(class).rules.clone() {
            self.neighbours.count(&rules.seeks, node, add);
        }
        self.touch(node, false);
    }
}
