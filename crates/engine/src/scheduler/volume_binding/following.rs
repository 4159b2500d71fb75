//! How far a claim is that pods wait for, by what the API shows.

use super::super::Engine;
use super::waiting::Write;
use crate::cluster::storage::Choice;
use crate::model::ids::{ClaimId, NodeId};
use crate::model::storage::{ClaimName, ClaimSpec, StorageObservation};

impl Engine {
    /// Applies a change of storage: updates the classes of the pods concerned and follows their binding.
    pub(in crate::scheduler) fn storage_seen(&mut self, observation: StorageObservation) {
        let (pods, changed) = self.cluster.apply_storage(observation);
        for pod in pods {
            if changed {
                self.refresh_demand(pod);
            }
            self.note_volume_change(pod);
        }
    }

    /// Whether a claim is bound to a volume that a node can access, or why it will not be.
    pub(super) fn is_claim_bound(&self, id: ClaimId, node: NodeId) -> Result<bool, String> {
        let storage = &self.cluster.storage;
        let Some(claim) = storage.claim(id).spec.as_deref() else { return Err("the claim is gone".to_owned()) };
        if !self.volumes.is_awaited(id, &claim.id) {
            return Err("the claim was deleted and created again".to_owned());
        }
        if claim.terminating {
            return Err("the claim is being deleted".to_owned());
        }
        if claim.lost {
            return Err("the volume of the claim is lost".to_owned());
        }
        if claim.is_bound() {
            // The volume may be seen later than the claim that names it.
            let seen = storage.volume_id(&claim.volume).filter(|volume| storage.volume(*volume).spec.is_some());
            return match seen {
                None => Ok(false),
                Some(volume) if storage.is_accessible(volume, self.cluster.node(node)) => Ok(true),
                Some(_) => Err(format!("its volume {} is not accessible from the node", claim.volume)),
            };
        }
        self.conflict(id).map_or(Ok(false), Err)
    }

    /// Why what was chosen for a claim that is not bound yet cannot be had any more.
    pub(super) fn conflict(&self, id: ClaimId) -> Option<String> {
        let storage = &self.cluster.storage;
        let claim = storage.claim(id).spec.as_deref()?;
        match storage.chosen(id) {
            None => Some("no volume is left for it on the node".to_owned()),
            Some(Choice::Provision { node, .. }) => self.selection_conflict(id, claim, node),
            Some(Choice::Volume(volume)) => {
                let volume = storage.volume(*volume);
                let Some(spec) = volume.spec.as_deref() else {
                    return Some(format!("the volume {} is gone", volume.name));
                };
                self.reservation_conflict(id, (claim, spec.claim.as_ref()), &spec.name, &spec.version, spec.terminating)
            }
        }
    }

    fn selection_conflict(&self, id: ClaimId, claim: &ClaimSpec, node: &str) -> Option<String> {
        match claim.selected_node.as_str() {
            selected if selected == node => None,
            "" if self.shows_write(id, &claim.version) => {
                Some(format!("{} refused to make a volume for the node", self.provisioner(id)))
            }
            "" => None,
            other => Some(format!("another node, {other}, is selected for its volume")),
        }
    }

    fn reservation_conflict(
        &self,
        id: ClaimId,
        (claim, of): (&ClaimSpec, Option<&ClaimName>),
        volume: &str,
        version: &str,
        terminating: bool,
    ) -> Option<String> {
        // Until it is reserved it may name the claim without its UID, as its administrator has written it.
        let names_it = |of: &ClaimName| {
            let same_name = (&of.namespace, &of.name) == (&claim.id.namespace, &claim.id.name);
            of.uid == claim.id.uid || (of.uid.is_empty() && same_name)
        };
        match of {
            _ if terminating => Some(format!("the volume {volume} is being deleted")),
            Some(of) if !names_it(of) => Some(format!("the volume {volume} is reserved for another claim")),
            Some(of) if of.uid == claim.id.uid => None,
            _ if self.shows_write(id, version) => Some(format!("the volume {volume} is not reserved for it any more")),
            _ => None,
        }
    }

    /// Whether this version of the object that was written for a claim is the written one, or a later one. What the
    /// write has changed may be changed again by then, so that it is never seen.
    fn shows_write(&self, claim: ClaimId, version: &str) -> bool {
        match self.volumes.write(claim) {
            Some(Write::Written { base: Some(base) }) => base != version,
            Some(Write::Written { base: None }) => true,
            _ => false,
        }
    }
}
