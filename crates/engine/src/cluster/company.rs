//! The cluster's side of who is near whom: classes that others' selectors tell apart, and counts that follow every change.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cluster;
use super::neighbours::{self, Presence};
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
            let (own, brought) = self.neighbours.acquire_terms(spec, company, &self.nodes);
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
        let skipped = self.profile(spec).skipped;
        let id = self.classes.add(spec, tags.clone(), own, skipped, &mut self.resources);
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
        let stays = self.neighbours.counts_who_stays(tally);
        for pod in self.neighbours.about(tag) {
            let pod = self.pod(pod);
            // Who is about to get the tag is counted when its class says so.
            if (pod.terminating && stays) || !self.class(pod.class).tags.contains(&tag) {
                continue;
            }
            let places = [(pod.state.node(), Presence::There), (pod.nominated, Presence::Expected)];
            for (node, presence) in places {
                if let Some(node) = node {
                    self.neighbours.count(std::iter::once(tally), node, presence, true);
                }
            }
        }
    }

    pub(super) fn renew_rules(&mut self, tag: TagId) {
        for class in self.neighbours.bearers(tag).to_vec() {
            self.renew_rules_of(class);
        }
    }

    pub(super) fn renew_rules_of(&mut self, id: ClassId) {
        let profile = self.profile(&self.classes.get(id).spec);
        let class = self.classes.get_mut(id);
        if class.tags.is_empty() && class.own.is_none() {
            return;
        }
        let rules = self.neighbours.rules(&class.spec, class.own.as_ref(), &class.tags, profile);
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
        let node = self.nodes.get(id.0).expect("a node in use exists");
        let there = node.pods.iter().map(|pod| (*pod, Presence::There));
        let kept = node.nominated.iter().map(|pod| (*pod, Presence::Expected));
        for (pod, presence) in there.chain(kept).collect::<Vec<_>>() {
            self.change_company(pod, id, presence, add);
        }
    }

    /// Counts a pod near a node, or no longer.
    pub(super) fn change_company(&mut self, pod: PodId, node: NodeId, presence: Presence, add: bool) {
        let pod = self.pods.get(pod.0).expect("a pod near a node exists");
        if let Some(rules) = &self.classes.get(pod.class).rules {
            self.neighbours.count(rules.counted_in(pod.terminating), node, presence, add);
        }
    }

    /// Counts a pod near where it is and where it is expected, or no longer.
    pub(super) fn count_pod(&mut self, id: PodId, add: bool) {
        let pod = self.pod(id);
        for (node, presence) in [(pod.state.node(), Presence::There), (pod.nominated, Presence::Expected)] {
            if let Some(node) = node {
                self.change_company(id, node, presence, add);
            }
        }
    }

    /// Whether somebody is to be spread who is like this pod.
    pub(crate) fn is_spread(&self, id: PodId) -> bool {
        self.class(self.pod(id).class).rules.as_ref().is_some_and(|rules| !rules.counts_in_spread.is_empty())
    }

    /// A pod is on its way out, or is no longer: then it does not count among those who are to be spread.
    pub(super) fn change_who_stays(&mut self, id: PodId) {
        if !self.is_spread(id) {
            return;
        }
        let pod = self.pod(id);
        let (rules, add) = (self.class(pod.class).rules.clone(), !pod.terminating);
        for (node, presence) in [(pod.state.node(), Presence::There), (pod.nominated, Presence::Expected)] {
            if let (Some(node), Some(rules)) = (node, &rules) {
                self.neighbours.count(rules.counts_in_spread.iter().copied(), node, presence, add);
                self.touch(node, false);
            }
        }
    }

    /// Counts one whom a class insists on near a node, or no longer.
    pub(crate) fn lure(&mut self, class: ClassId, node: NodeId, add: bool) {
        if let Some(rules) = self.classes.get(class).rules.clone() {
            self.neighbours.count(rules.seeks.iter().copied(), node, Presence::There, add);
        }
        self.touch(node, false);
    }

    /// Whether who is near whom is what a recount gives.
    pub(crate) fn audit_neighbours<'p>(&self, near: impl Iterator<Item = neighbours::Neighbour<'p>>) -> bool {
        self.neighbours.audit(near, &self.nodes)
    }
}
