//! The PersistentVolumeClaims of a StatefulSet's pods: one per template and ordinal, and their owners.
//!
//! A claim outlives its pod. The retention policy may delete it with the set or on scale-down: then it is owned by the
//! set or by the condemned pod, and garbage collection deletes it.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use muster_reflector::Cache;

use super::pods::split_name;
use crate::owners::controlled_by;
use crate::pod_record::PodRecord;

/// The name of each volume and of its claim for this ordinal.
pub(super) fn names(set: &StatefulSet, ordinal: i32) -> impl Iterator<Item = (&str, String)> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    templates.map(move |template| {
        let name = template.metadata.name.as_deref().unwrap_or_default();
        (name, format!("{name}-{}-{ordinal}", set.name_any()))
    })
}

/// Whether a claim belongs to a set, by its name.
pub(super) fn is_of(set: &StatefulSet, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.name_any();
    split_name(&name).is_some_and(|(_, ordinal)| names(set, ordinal).any(|(_, own)| own == name))
}

/// The claims for this ordinal.
pub(super) fn desired(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    let claims = templates.zip(names(set, ordinal)).map(|(template, (_, name))| {
        let mut labels = template.metadata.labels.clone().unwrap_or_default();
        labels.extend(set.spec.selector.match_labels.clone().unwrap_or_default());
        PersistentVolumeClaim {
            metadata: ObjectMeta {
                name: Some(name),
                namespace: set.namespace(),
                labels: Some(labels),
                annotations: template.metadata.annotations.clone(),
                ..ObjectMeta::default()
            },
            spec: template.spec.clone(),
            status: None,
        }
    });
    claims.collect()
}

/// Whether the pod uses the right claims.
pub(super) fn are_mounted(set: &StatefulSet, pod: &PodRecord, ordinal: i32) -> bool {
    let volumes = pod.spec.volumes.as_deref().unwrap_or_default();
    names(set, ordinal).all(|(name, claim)| {
        let claim_name = volumes
            .iter()
            .find(|volume| volume.name == name)
            .and_then(|volume| volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str()));
        claim_name == Some(claim.as_str())
    })
}

/// Whether claims are deleted with the set, and whether they are deleted on scale-down.
fn policy(set: &StatefulSet) -> (bool, bool) {
    let policy = set.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
    let deletes = |when: Option<String>| when.as_deref() == Some("Delete");
    (deletes(policy.when_deleted), deletes(policy.when_scaled))
}

fn is_reference_to<O: Resource<DynamicType = ()>>(reference: &OwnerReference, owner: &O) -> bool {
    reference.kind == O::kind(&()) && reference.api_version == O::api_version(&()) && reference.name == owner.name_any()
}

/// Whether a claim is owned by an earlier pod of this name, and so about to be deleted.
pub(super) fn is_stale(set: &StatefulSet, claims: &Cache<PersistentVolumeClaim>, ordinal: i32) -> bool {
    let (_, with_pod) = policy(set);
    let namespace = set.namespace().unwrap_or_default();
    with_pod
        && names(set, ordinal).any(|(_, name)| {
            let claim = claims.find(&namespace, &name);
            let pod = format!("{}-{ordinal}", set.name_any());
            claim.is_some_and(|claim| {
                claim.owner_references().iter().any(|owner| owner.kind == "Pod" && owner.name == pod)
            })
        })
}

/// The claims of a pod whose owners do not match the retention policy, with the owners they should have.
pub(super) fn claims_to_update(
    set: &StatefulSet,
    claims: &Cache<PersistentVolumeClaim>,
    pod: &PodRecord,
    ordinal: i32,
    is_desired: bool,
) -> Vec<PersistentVolumeClaim> {
    let namespace = set.namespace().unwrap_or_default();
    let present = names(set, ordinal).filter_map(|(_, name)| claims.find(&namespace, &name));
    present.filter_map(|claim| with_desired_owners(set, claim, pod, is_desired)).collect()
}

fn with_desired_owners(
    set: &StatefulSet,
    claim: &PersistentVolumeClaim,
    pod: &PodRecord,
    is_desired: bool,
) -> Option<PersistentVolumeClaim> {
    let old = claim.owner_references();
    let is_ours = |owner: &OwnerReference| is_reference_to(owner, set) || is_reference_to(owner, pod);
    let uids = [set.uid().unwrap_or_default(), pod.uid().unwrap_or_default()];
    if old.iter().any(|owner| is_ours(owner) && !uids.contains(&owner.uid)) {
        // It belongs to an earlier set or pod and is deleted with it.
        return None;
    }
    let (with_set, with_pod) = policy(set);
    let mut owners: Vec<OwnerReference> = old.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    let is_taken = owners.iter().any(|owner| owner.controller == Some(true));
    if !(is_taken && (with_set || with_pod)) {
        match (is_desired || !with_pod, with_set) {
            (true, true) => owners.push(controlled_by(set)),
            (true, false) => {}
            (false, _) => owners.push(controlled_by(pod)),
        }
    }
    let same = |a: &[OwnerReference], b: &[OwnerReference]| {
        a.len() == b.len() && a.iter().all(|one| b.iter().any(|other| one.uid == other.uid))
    };
    if same(old, &owners) {
        return None;
    }
    let mut claim = claim.clone();
    claim.metadata.owner_references = Some(owners).filter(|owners| !owners.is_empty());
    Some(claim)
}
