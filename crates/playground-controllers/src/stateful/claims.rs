//! The claims of a stateful set's pods: one for each template and number, and who owns them.
//!
//! A claim outlives its pod. By the set's policy it goes with the set or when its pod is no longer wanted: then it is
//! owned by the set, or by that last pod, and garbage collection does the rest.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Resource, ResourceExt};
use muster_playground_client::mirror::Mirror;

use super::pods::split_name;
use crate::owners::controlled_by;
use crate::pod_card::PodCard;

/// The name of each volume, and of the claim behind it for this number.
pub(super) fn names(set: &StatefulSet, number: i32) -> impl Iterator<Item = (&str, String)> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    templates.map(move |template| {
        let name = template.metadata.name.as_deref().unwrap_or_default();
        (name, format!("{name}-{}-{number}", set.name_any()))
    })
}

/// Whether a claim is one of a set, by its name.
pub(super) fn is_of(set: &StatefulSet, claim: &PersistentVolumeClaim) -> bool {
    let name = claim.name_any();
    split_name(&name).is_some_and(|(_, number)| names(set, number).any(|(_, own)| own == name))
}

/// The claims for this number.
pub(super) fn wanted(set: &StatefulSet, number: i32) -> Vec<PersistentVolumeClaim> {
    let templates = set.spec.volume_claim_templates.iter().flatten();
    let claims = templates.zip(names(set, number)).map(|(template, (_, name))| {
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

/// Whether the pod uses the claims it should.
pub(super) fn are_used(set: &StatefulSet, pod: &PodCard, number: i32) -> bool {
    let volumes = pod.spec.volumes.as_deref().unwrap_or_default();
    names(set, number).all(|(name, claim)| {
        let claimed = volumes
            .iter()
            .find(|volume| volume.name == name)
            .and_then(|volume| volume.persistent_volume_claim.as_ref().map(|source| source.claim_name.as_str()));
        claimed == Some(claim.as_str())
    })
}

/// Whether claims go with the set, and whether they go with a pod that is no longer wanted.
fn policy(set: &StatefulSet) -> (bool, bool) {
    let policy = set.spec.persistent_volume_claim_retention_policy.clone().unwrap_or_default();
    let deletes = |when: Option<String>| when.as_deref() == Some("Delete");
    (deletes(policy.when_deleted), deletes(policy.when_scaled))
}

fn is_reference_to<O: Resource<DynamicType = ()>>(reference: &OwnerReference, owner: &O) -> bool {
    reference.kind == O::kind(&()) && reference.api_version == O::api_version(&()) && reference.name == owner.name_any()
}

/// Whether the claim belongs to an earlier pod of this name, and so is about to go.
pub(super) fn is_stale(set: &StatefulSet, claims: &Mirror<PersistentVolumeClaim>, number: i32) -> bool {
    let (_, with_pod) = policy(set);
    let namespace = set.namespace().unwrap_or_default();
    with_pod
        && names(set, number).any(|(_, name)| {
            let claim = claims.get(&(namespace.clone(), name));
            let pod = format!("{}-{number}", set.name_any());
            claim.is_some_and(|claim| {
                claim.owner_references().iter().any(|owner| owner.kind == "Pod" && owner.name == pod)
            })
        })
}

/// The claims of a pod whose owners are not those that the policy asks for, with the owners they should have.
pub(super) fn to_rehome(
    set: &StatefulSet,
    claims: &Mirror<PersistentVolumeClaim>,
    pod: &PodCard,
    number: i32,
    is_wanted: bool,
) -> Vec<PersistentVolumeClaim> {
    let namespace = set.namespace().unwrap_or_default();
    let present = names(set, number).filter_map(|(_, name)| claims.get(&(namespace.clone(), name)));
    present.filter_map(|claim| rehomed(set, claim, pod, is_wanted)).collect()
}

fn rehomed(
    set: &StatefulSet,
    claim: &PersistentVolumeClaim,
    pod: &PodCard,
    is_wanted: bool,
) -> Option<PersistentVolumeClaim> {
    let old = claim.owner_references();
    let is_ours = |owner: &OwnerReference| is_reference_to(owner, set) || is_reference_to(owner, pod);
    let uids = [set.uid().unwrap_or_default(), pod.uid().unwrap_or_default()];
    if old.iter().any(|owner| is_ours(owner) && !uids.contains(&owner.uid)) {
        // It is that of an earlier set or pod, and goes with it.
        return None;
    }
    let (with_set, with_pod) = policy(set);
    let mut owners: Vec<OwnerReference> = old.iter().filter(|owner| !is_ours(owner)).cloned().collect();
    let is_taken = owners.iter().any(|owner| owner.controller == Some(true));
    if !(is_taken && (with_set || with_pod)) {
        match (is_wanted || !with_pod, with_set) {
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
