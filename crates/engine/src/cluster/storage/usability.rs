//! Claims that a pod cannot use, in the words of kube-scheduler.
//!
//! kube-scheduler checks the claims of a pod several times, each time for another problem, and reports the first.

use std::sync::Arc;

use super::Storage;
use crate::model::ids::ClaimId;
use crate::model::pod::{PodRefusal, RefusalKind};
use crate::model::storage::{ClaimSpec, ClaimUse};

/// More claims in one pod are not looked at. No node has so many volumes.
pub(crate) const CLAIMS_PER_POD_MAX: usize = 512;

/// Why a claim of a pod cannot be used.
pub(crate) type Unusable = Arc<PodRefusal>;

/// The pod whose claims are looked at.
#[derive(Clone, Copy)]
pub(crate) struct Consumer<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) uid: &'a str,
}

/// A check of one claim, which may not exist.
type Check<'a> = &'a dyn Fn(&ClaimUse, Option<&ClaimSpec>) -> Option<String>;

impl Storage {
    /// The first problem with the claims of a pod, if there is one.
    pub(crate) fn unusable(&self, pod: Consumer<'_>, uses: &[ClaimUse], claims: &[ClaimId]) -> Option<Unusable> {
        if uses.len() > CLAIMS_PER_POD_MAX {
            let (field, value) = ("spec.volumes".to_owned(), format!("{} claims", uses.len()));
            let reason = format!("more than {CLAIMS_PER_POD_MAX} claims in one pod");
            return Some(Arc::new(PodRefusal { kind: RefusalKind::Volume, field, value, reason }));
        }
        let is_missing = |used: &ClaimUse, claim: Option<&ClaimSpec>| {
            let missing = claim.is_none() && !used.ephemeral;
            missing.then(|| format!("persistentvolumeclaim {:?} not found", used.claim))
        };
        let checks: [Check<'_>; 5] = [
            &is_missing,
            &|used, claim| state_problem(pod, used, claim),
            &|_, claim| self.class_problem(claim?),
            &|_, claim| self.is_unbound(claim?).then(|| "pod has unbound immediate PersistentVolumeClaims".to_owned()),
            &|used, claim| self.volume_problem(used, claim?),
        ];
        checks.iter().find_map(|check| {
            uses.iter().zip(claims).find_map(|(used, id)| {
                let reason = check(used, self.claim(*id).spec.as_deref())?;
                let (field, value) = (used.field.clone(), used.claim.clone());
                Some(Arc::new(PodRefusal { kind: RefusalKind::Volume, field, value, reason }))
            })
        })
    }

    /// Nothing says when a claim is to be bound.
    fn class_problem(&self, claim: &ClaimSpec) -> Option<String> {
        let name = &claim.kind.storage_class;
        let has_no_mode = self.class_spec(name).is_some_and(|class| class.binding_mode.is_none());
        (!claim.is_bound() && has_no_mode).then(|| format!("VolumeBindingMode not set for StorageClass {name:?}"))
    }

    /// Whether a claim should be bound before its pods are scheduled, and is not.
    fn is_unbound(&self, claim: &ClaimSpec) -> bool {
        !claim.is_bound() && !self.waits_for_pod(claim)
    }

    /// The volume of a claim is gone. Nodes are refused if it is that of an ephemeral claim.
    fn volume_problem(&self, used: &ClaimUse, claim: &ClaimSpec) -> Option<String> {
        let is_gone = !used.ephemeral && claim.is_bound() && self.volume_by_name(&claim.volume).is_none();
        is_gone.then(|| format!("persistentvolume {:?} not found", claim.volume))
    }
}

/// A problem with the state of a claim itself.
fn state_problem(pod: Consumer<'_>, used: &ClaimUse, claim: Option<&ClaimSpec>) -> Option<String> {
    let (name, namespace) = (&used.claim, pod.namespace);
    match claim {
        None if used.ephemeral => {
            Some(format!("waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"))
        }
        Some(claim) if claim.lost => {
            Some(format!("persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}", claim.volume))
        }
        Some(claim) if claim.terminating => Some(format!("persistentvolumeclaim {name:?} is being deleted")),
        Some(claim) if used.ephemeral && claim.owner_pod != pod.uid => {
            Some(format!("PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)", pod.name))
        }
        _ => None,
    }
}
