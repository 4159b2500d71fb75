//! The writes for claims: which are sent next, and what becomes of them.
//!
//! Every write names the version of the object that was decided on, so it changes nothing that another writer has
//! changed since. What was chosen for a claim is checked again right before: another component may have used the
//! volume, or selected another node, while the write waited for its turn.

use std::sync::Arc;

use super::super::{Engine, Timer};
use super::waiting::Write;
use crate::cluster::storage::Choice;
use crate::command::Command;
use crate::model::Millis;
use crate::model::ids::{ClaimId, GroupId, PodId};
use crate::model::storage::{ClaimName, StorageWriteOutcome};
use crate::queue::backoff::doubled;

/// What a claim needs next: claims of an earlier stage are handled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// It is provisioned, and several pods share it.
    Shared,
    /// It is bound to an existing volume.
    Reserve,
    /// It is provisioned.
    Provision,
}

impl Engine {
    /// Sends the writes of the first stage of a group that is not done.
    pub(super) fn send_next_stage_of(&mut self, group: GroupId) {
        let Some(waiting) = self.volumes.of(Some(group)).filter(|waiting| !waiting.unwritten.is_empty()) else {
            return;
        };
        let claims: Vec<ClaimId> = waiting.claims.keys().copied().collect();
        self.send_next_stage(&claims);
        self.volumes.prune_unwritten(group);
    }

    /// Sends the writes of the first stage that is not done, of the stages of these claims, which are not bound yet. A
    /// stage in which nothing has to be written is done at once.
    pub(super) fn send_next_stage(&mut self, claims: &[ClaimId]) {
        while let Some(stage) = self.first_open_stage(claims) {
            for claim in claims.iter().copied().filter(|claim| self.stage_of(*claim) == Some(stage)).collect::<Vec<_>>()
            {
                if self.volumes.write(claim) == Some(&Write::Unsent) {
                    self.send_claim(claim);
                }
            }
            if self.first_open_stage(claims) == Some(stage) {
                return;
            }
        }
    }

    /// The first stage of these claims that is not done.
    fn first_open_stage(&self, claims: &[ClaimId]) -> Option<Stage> {
        // Reserved volumes need not be bound before others are provisioned.
        let is_done = |stage: Stage, claim: ClaimId| {
            stage != Stage::Shared && matches!(self.volumes.write(claim), Some(Write::Written { .. }))
        };
        let stages = claims.iter().filter_map(|claim| Some((self.stage_of(*claim)?, *claim)));
        stages.filter(|(stage, claim)| !is_done(*stage, *claim)).map(|(stage, _)| stage).min()
    }

    /// The stage of a claim; `None` if nothing was chosen for it.
    pub(super) fn stage_of(&self, claim: ClaimId) -> Option<Stage> {
        let is_shared = self.cluster.storage.claim(claim).users.len() > 1;
        Some(match self.cluster.storage.chosen(claim)? {
            Choice::Provision { .. } if is_shared => Stage::Shared,
            Choice::Provision { .. } => Stage::Provision,
            Choice::Volume(_) => Stage::Reserve,
        })
    }

    /// Writes what was chosen for a claim, unless the API shows it already.
    fn send_claim(&mut self, id: ClaimId) {
        let storage = &self.cluster.storage;
        let (Some(choice), Some(claim)) = (storage.chosen(id), storage.claim(id).spec.as_deref()) else { return };
        if self.conflict(id).is_some() {
            // The review of its pods says so.
            return;
        }
        let (base, command) = match choice {
            Choice::Provision { node, .. } if claim.selected_node == **node => (None, None),
            Choice::Provision { node, .. } => {
                let (claim, version, node) = (claim.id.clone(), claim.version.clone(), node.clone());
                (Some(version.clone()), Some(Command::SelectNode { claim, version, node }))
            }
            Choice::Volume(volume) => {
                let volume = storage.volume(*volume);
                let Some(spec) = volume.spec.as_deref() else { return };
                if spec.claim.as_ref().is_some_and(|of| of.uid == claim.id.uid) {
                    (None, None)
                } else {
                    let (name, version) = (volume.name.clone(), spec.version.clone());
                    let (claim, claim_version) = (claim.id.clone(), claim.version.clone());
                    let command =
                        Command::ReserveVolume { claim, claim_version, volume: name, version: version.clone() };
                    (Some(version), Some(command))
                }
            }
        };
        self.outbox.extend(command);
        self.volumes.set_write(id, base.map_or(Write::Written { base: None }, |base| Write::Sent { base }));
    }

    /// The outcome of a write.
    pub(in crate::scheduler) fn storage_write_done(&mut self, name: &Arc<ClaimName>, outcome: &StorageWriteOutcome) {
        let Some(id) = self.cluster.storage.claim_id(&name.namespace, &name.name) else { return };
        let is_awaited = self.volumes.is_awaited(id, name);
        let Some(Write::Sent { base }) = self.volumes.write(id).filter(|_| is_awaited).cloned() else { return };
        match outcome {
            StorageWriteOutcome::Written => {
                self.volumes.set_write(id, Write::Written { base: Some(base) });
                self.note_volume_change_of(id);
            }
            StorageWriteOutcome::Transient { message } => {
                let (now, initial, max) = (self.now, self.config.bind_retry_ms_initial, self.config.bind_retry_ms_max);
                let tries = self.volumes.set_write(id, Write::Unsent);
                let due = now.saturating_add(doubled(initial, tries).min(max));
                self.volumes.set_write(id, Write::Retry { due, message: message.clone() });
                self.set_timer(due, Timer::RetryClaim(id));
            }
            StorageWriteOutcome::Refused { message } => self.fail_claim(id, message),
        }
    }

    /// Sends a failed write again.
    pub(in crate::scheduler) fn retry_claim(&mut self, id: ClaimId, at: Millis) {
        if self.volumes.write(id).is_some_and(|write| matches!(write, Write::Retry { due, .. } if *due == at)) {
            self.volumes.unsend(id);
            self.note_volume_change_of(id);
        }
    }

    /// Something has changed about a claim that pods wait for.
    fn note_volume_change_of(&mut self, id: ClaimId) {
        let users: Vec<PodId> = self.cluster.storage.claim(id).users.iter().copied().collect();
        for pod in users {
            self.note_volume_change(pod);
        }
    }
}
