//! Pods and their claims: who uses what, and what a placement takes until its claims are bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Cluster;
use super::event::ClusterEvent;
use super::pod::PodState;
use super::storage::{CLAIMS_PER_POD_MAX, Choice, Concerned, Consumer, StorageDemand, Unusable, VolumePlan};
use crate::model::ids::{ClaimId, ClassId, NodeId, PodId};
use crate::model::storage::{ClaimUse, DriverSpec, StorageObservation};

impl Cluster {
    /// Changes whenever what the claims of a class may be bound to is on other nodes than before.
    pub(crate) fn storage_revision(&self, class: ClassId) -> u64 {
        self.class(class).storage.as_deref().map_or(0, |demand| self.storage.revision(demand))
    }

    /// Sets the claims that a pod uses. Returns the other pods that begin or cease to share a claim by that: for all
    /// others it makes no difference how many there are.
    pub(crate) fn set_claims(&mut self, id: PodId, uses: &Arc<Vec<ClaimUse>>) -> BTreeSet<PodId> {
        let pod = self.pod(id);
        if pod.claims == *uses {
            return BTreeSet::new();
        }
        let (namespace, placed, old) = (pod.id.clone(), pod.state.node().is_some(), pod.claim_ids.clone());
        let mut others = BTreeSet::new();
        for claim in each_once(&old) {
            if placed {
                self.storage.count_placed(claim, false);
            }
            others.extend(self.storage.remove_user(claim, id));
        }
        let mut new = Vec::new();
        for used in uses.iter().take(CLAIMS_PER_POD_MAX) {
            let (claim, other) = self.storage.add_user(&namespace.namespace, &used.claim, id);
            others.extend(other);
            new.push(claim);
        }
        if placed {
            for claim in each_once(&new) {
                self.storage.count_placed(claim, true);
            }
        }
        others.remove(&id);
        let pod = self.pod_mut(id);
        pod.claims = uses.clone();
        pod.claim_ids = new;
        others
    }

    /// The pods that cease to share a claim when this one is removed.
    pub(crate) fn left_alone_without(&self, id: PodId) -> BTreeSet<PodId> {
        let claims = each_once(&self.pod(id).claim_ids).into_iter().map(|claim| &self.storage.claim(claim).users);
        claims.filter(|users| users.len() == 2).flatten().copied().filter(|pod| *pod != id).collect()
    }

    /// All pods that use any of these claims.
    pub(crate) fn users_of(&self, claims: &[ClaimId]) -> BTreeSet<PodId> {
        claims.iter().flat_map(|claim| self.storage.claim(*claim).users.iter().copied()).collect()
    }

    /// What the claims of a pod require now, and why the first unusable one cannot be used.
    pub(crate) fn demand_of(&self, id: PodId) -> (Option<Arc<StorageDemand>>, Option<Unusable>) {
        let pod = self.pod(id);
        if pod.claims.is_empty() {
            return (None, None);
        }
        let consumer = Consumer { namespace: &pod.id.namespace, name: &pod.id.name, uid: &pod.id.uid };
        let demand = self.storage.demand(&pod.claims, &pod.claim_ids);
        let unusable = self.storage.unusable(consumer, &pod.claims, &pod.claim_ids);
        ((!demand.is_empty()).then(|| Arc::new(demand)), unusable)
    }

    /// Applies a change of an object of storage. Returns the pods that use what has changed, and whether their demand
    /// may have changed.
    pub(crate) fn apply_storage(&mut self, observation: StorageObservation) -> (BTreeSet<PodId>, bool) {
        let mut nodes = Vec::new();
        let mut concerned = Concerned::default();
        match observation {
            StorageObservation::ClaimSeen(spec) => concerned = self.storage.set_claim(spec),
            StorageObservation::ClaimGone(namespace, name) => concerned = self.storage.remove_claim(&namespace, &name),
            StorageObservation::VolumeSeen(spec) => {
                let (name, class) = (spec.name.clone(), spec.kind.storage_class.clone());
                let (of_volume, is_offered) = self.storage.set_volume(spec);
                if !of_volume.only_version {
                    nodes = self.storage.nodes_with(&name);
                }
                self.events.extend(is_offered.then_some(ClusterEvent::StorageChanged(class)));
                concerned = of_volume;
            }
            StorageObservation::VolumeGone(name) => {
                nodes = self.storage.nodes_with(&name);
                concerned = self.storage.remove_volume(&name);
            }
            StorageObservation::ClassSeen(spec) => {
                self.events.push(ClusterEvent::StorageChanged(spec.name.clone()));
                concerned = self.storage.set_class(spec);
            }
            StorageObservation::ClassGone(name) => concerned = self.storage.remove_class(&name),
            StorageObservation::NodeDriversSeen(spec) => {
                let node = spec.node.clone();
                nodes.extend(self.storage.set_node_drivers(spec).then_some(node));
            }
            StorageObservation::NodeDriversGone(node) => {
                nodes.extend(self.storage.remove_node_drivers(&node).then_some(node));
            }
            StorageObservation::DriverSeen(spec) => {
                let name = spec.name.clone();
                self.set_driver(name, Some(spec));
            }
            StorageObservation::DriverGone(name) => self.set_driver(name, None),
            StorageObservation::CapacitySeen(spec) => {
                let class = self.storage.set_capacity(spec);
                self.events.extend(class.map(|class| ClusterEvent::StorageChanged(class.to_string())));
            }
            StorageObservation::CapacityGone(namespace, name) => self.storage.remove_capacity(&(namespace, name)),
            StorageObservation::AttachmentSeen(spec) => {
                // That helps nobody.
                for name in self.storage.set_attachment(spec) {
                    if let Some(node) = self.node_id(&name) {
                        self.touch(node, false);
                    }
                }
            }
            StorageObservation::AttachmentGone(name) => nodes = self.storage.remove_attachment(&name),
        }
        for node in nodes.iter().filter_map(|node| self.node_id(node)).collect::<BTreeSet<NodeId>>() {
            self.touch(node, false);
            self.events.push(ClusterEvent::NodeChanged(node));
        }
        let (users, changed) = (self.users_of(&concerned.claims), !concerned.only_version);
        if changed {
            self.version += 1;
            self.events.extend(concerned.claims.into_iter().map(ClusterEvent::ClaimChanged));
        }
        (users, changed)
    }

    fn set_driver(&mut self, name: String, spec: Option<DriverSpec>) {
        if self.storage.set_driver(&name, spec) {
            self.events.push(ClusterEvent::DriverChanged(name));
        }
    }

    /// Whether a node has room for the claims of a pod, as far as they are to be bound.
    pub(crate) fn choose_volumes(&self, id: PodId, node: NodeId) -> Option<VolumePlan> {
        let pod = self.pod(id);
        let Some(demand) = self.class(pod.class).storage.as_deref() else { return Some(VolumePlan::default()) };
        if demand.unbound.is_empty() {
            return Some(VolumePlan::default());
        }
        let choices = self.storage.choose(demand, self.node(node)).ok()?;
        let claims = self.storage.unbound_claims(&pod.claim_ids);
        Some(VolumePlan(claims.into_iter().zip(choices).collect()))
    }

    /// Reserves the volumes that a placed pod gets on its node. Without a plan its claims are found unbound when it is
    /// to be bound.
    pub(super) fn reserve_volumes(&mut self, id: PodId, node: NodeId) {
        let Some(plan) = self.choose_volumes(id, node).filter(|plan| !plan.0.is_empty()) else { return };
        for (claim, choice) in &plan.0 {
            self.storage.reserve(*claim, choice);
        }
        self.pod_mut(id).volume_plan = Some(Box::new(plan));
    }

    /// Releases what was chosen for a pod that is not placed any more, or that is bound. Returns whether there was
    /// anything.
    pub(super) fn release_volumes(&mut self, id: PodId) -> bool {
        let Some(plan) = self.pod_mut(id).volume_plan.take() else { return false };
        for (claim, _) in &plan.0 {
            self.storage.release(*claim);
        }
        true
    }

    /// The same outside of a transaction: others may have been waiting for it.
    pub(super) fn release_volumes_for_others(&mut self, id: PodId) {
        let claims: Vec<ClaimId> =
            self.pod(id).volume_plan.iter().flat_map(|plan| plan.0.iter().map(|(claim, _)| *claim)).collect();
        let class_of = |claim: &ClaimId| Some(self.storage.claim(*claim).spec.as_ref()?.kind.storage_class.clone());
        let classes: BTreeSet<String> = claims.iter().filter_map(class_of).collect();
        if self.release_volumes(id) {
            self.events.extend(classes.into_iter().map(ClusterEvent::StorageChanged));
        }
    }

    /// Counts a pod that is on a node now, or no longer, for the claims that it uses.
    pub(super) fn count_claims(&mut self, id: PodId, placed: bool) {
        if self.pod(id).claim_ids.is_empty() {
            return;
        }
        for claim in each_once(&self.pod(id).claim_ids) {
            self.storage.count_placed(claim, placed);
        }
    }

    /// Whether a pod that uses a claim is on a node.
    pub(crate) fn is_used_on(&self, claim: ClaimId, node: NodeId) -> bool {
        let users = &self.storage.claim(claim).users;
        let is_there = |pod: &PodId| self.pod(*pod).state.node() == Some(node);
        match self.storage.shared_volume(claim) {
            // It may have very many users; the load of the node lists such volumes.
            Some(volume) => self.node(node).load.attached.as_deref().is_some_and(|load| load.has_shared(&volume)),
            None => users.iter().any(is_there),
        }
    }

    /// The nodes to which volumes are attached that no pod there uses any more.
    pub(crate) fn nodes_with_left_volumes(&self) -> BTreeSet<NodeId> {
        let left = |(node, claim): (&str, Option<ClaimId>)| {
            let id = self.node_id(node)?;
            (!claim.is_some_and(|claim| self.is_used_on(claim, id))).then_some(id)
        };
        self.storage.attached().filter_map(left).collect()
    }

    /// In a transaction: treats volumes that no pod uses any more as detached, or no longer.
    pub(super) fn assume_detached(&mut self, assume: bool, nodes: &BTreeSet<NodeId>) {
        self.storage.assume_detached(assume);
        for node in nodes {
            self.touch(*node, false);
        }
    }

    /// Whether pods of a class have volumes attached.
    pub(crate) fn attaches_volumes(&self, class: ClassId) -> bool {
        self.class(class).storage.as_deref().is_some_and(StorageDemand::attaches)
    }

    /// Whether reserved volumes and capacity are exactly those of the plans of placed pods.
    pub(crate) fn plans_are_reserved(&self) -> bool {
        let mut chosen: std::collections::BTreeMap<ClaimId, (Choice, u32)> = std::collections::BTreeMap::new();
        for (_, pod) in self.pods() {
            let Some(plan) = &pod.volume_plan else { continue };
            if !matches!(pod.state, PodState::Assumed(_)) {
                return false;
            }
            for (claim, choice) in &plan.0 {
                chosen.entry(*claim).or_insert_with(|| (choice.clone(), 0)).1 += 1;
            }
        }
        self.storage.audit(&chosen)
    }
}

/// The claims of a pod: it may name one for several volumes.
fn each_once(claims: &[ClaimId]) -> BTreeSet<ClaimId> {
    claims.iter().copied().collect()
}
