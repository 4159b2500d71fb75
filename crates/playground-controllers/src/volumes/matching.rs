//! Which static volume a claim gets: the smallest that satisfies it, or the one that is reserved for it.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use muster_api::invalid::FieldPath;
use muster_api::selector::{LabelSelector, WrittenLabelSelector};

use super::objects::{
    access_modes, capacity, claim_class, claim_of, differ_in_attributes, differ_in_mode, has_access_modes, is_bound_to,
    requested, volume_class, volume_phase,
};

/// The volume for a claim. While the claim waits for the scheduler, only one that is reserved for it.
///
/// Volumes with fewer access modes come first, as in kube-controller-manager; of equals the first by name.
pub(super) fn find<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl Iterator<Item = &'a PersistentVolume>,
    only_reserved: bool,
) -> Option<&'a PersistentVolume> {
    let mut candidates: Vec<_> = volumes.filter(|volume| has_access_modes(volume, claim)).collect();
    candidates.sort_by_key(|volume| access_modes(volume).len());
    let selector = selector_of(claim);
    let mut groups = candidates.chunk_by(|a, b| access_modes(a).len() == access_modes(b).len());
    groups.find_map(|group| best_of(claim, group, selector.as_ref(), only_reserved))
}

fn best_of<'a>(
    claim: &PersistentVolumeClaim,
    volumes: &[&'a PersistentVolume],
    selector: Option<&LabelSelector>,
    only_reserved: bool,
) -> Option<&'a PersistentVolume> {
    let fits = |volume: &&&PersistentVolume| {
        (claim_of(volume).is_none() || is_bound_to(volume, claim))
            && capacity(volume) >= requested(claim)
            && !differ_in_mode(volume, claim)
            && !differ_in_attributes(volume, claim)
            && volume.metadata.deletion_timestamp.is_none()
    };
    let fitting: Vec<&PersistentVolume> = volumes.iter().filter(fits).copied().collect();
    if let Some(reserved) = fitting.iter().find(|volume| is_bound_to(volume, claim)) {
        return Some(reserved);
    }
    let is_free = |volume: &&&PersistentVolume| {
        volume_phase(volume) == "Available"
            && selector.is_none_or(|selector| selector.matches(volume.labels()))
            && volume_class(volume) == claim_class(claim)
    };
    fitting.iter().filter(|_| !only_reserved).filter(is_free).min_by_key(|volume| capacity(volume)).copied()
}

/// The selector of a claim; an empty one matches everything, an invalid one nothing.
fn selector_of(claim: &PersistentVolumeClaim) -> Option<LabelSelector> {
    let written = claim.spec.as_ref()?.selector.as_ref()?;
    let written = serde_json::to_value(written).and_then(serde_json::from_value::<WrittenLabelSelector>);
    let path = FieldPath::Root("spec.selector");
    let read = written.ok().and_then(|written| WrittenLabelSelector::validate(Some(&written), &path).ok());
    Some(read.unwrap_or(LabelSelector::Nothing))
}

/// Why a volume that a claim names cannot be bound to it.
pub(super) fn mismatch(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> Option<String> {
    let why = if volume.metadata.deletion_timestamp.is_some() {
        return Some(format!("the volume is marked for deletion {:?}", volume.name_any()));
    } else if capacity(volume) < requested(claim) {
        "requested PV is too small"
    } else if volume_class(volume) != claim_class(claim) {
        "storageClassName does not match"
    } else if differ_in_attributes(volume, claim) {
        "volumeAttributesClassName does not match"
    } else if differ_in_mode(volume, claim) {
        "incompatible volumeMode"
    } else if !has_access_modes(volume, claim) {
        "incompatible accessMode"
    } else {
        return None;
    };
    Some(why.to_owned())
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value)] // `json!(…)` reads best right at the call
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn volume(name: &str, change: Value) -> PersistentVolume {
        let mut volume = json!({
            "metadata": {"name": name, "labels": {"tier": "fast"}},
            "spec": {"capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
            "status": {"phase": "Available"},
        });
        json_patch::merge(&mut volume, &change);
        serde_json::from_value(volume).unwrap()
    }

    fn claim(change: Value) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": {"name": "c", "namespace": "d", "uid": "u"},
            "spec": {"resources": {"requests": {"storage": "5Gi"}}, "accessModes": ["ReadWriteOnce"], "storageClassName": "c"},
        });
        json_patch::merge(&mut claim, &change);
        serde_json::from_value(claim).unwrap()
    }

    fn found(claim: &PersistentVolumeClaim, volumes: &[PersistentVolume], only_reserved: bool) -> Option<String> {
        find(claim, volumes.iter(), only_reserved).map(ResourceExt::name_any)
    }

    #[test]
    fn smallest_volume_with_the_fewest_modes_is_taken() {
        let size = |size: &str| json!({"spec": {"capacity": {"storage": size}}});
        let volumes = vec![
            volume("large", json!({})),
            volume("small", size("4Gi")),
            volume("best", size("6Gi")),
            volume("equal", size("6Gi")),
            volume(
                "shared",
                json!({"spec": {"capacity": {"storage": "5Gi"}, "accessModes": ["ReadWriteOnce", "ReadWriteMany"]}}),
            ),
        ];
        assert_eq!(found(&claim(json!({})), &volumes, false).as_deref(), Some("best"));
        assert_eq!(found(&claim(json!({})), &volumes, true), None, "the scheduler decides");
        let many = claim(json!({"spec": {"accessModes": ["ReadWriteMany"]}}));
        assert_eq!(found(&many, &volumes, false).as_deref(), Some("shared"));
    }

    #[test]
    fn volume_must_satisfy_the_whole_claim() {
        for (change, request) in [
            (json!({"spec": {"storageClassName": "other"}}), json!({})),
            (json!({"spec": {"volumeMode": "Block"}}), json!({})),
            (json!({"spec": {"volumeAttributesClassName": "gold"}}), json!({})),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}), json!({})),
            (json!({"status": {"phase": "Pending"}}), json!({})),
            (json!({"spec": {"claimRef": {"namespace": "d", "name": "other"}}}), json!({})),
            (json!({}), json!({"spec": {"selector": {"matchLabels": {"tier": "slow"}}}})),
            (json!({}), json!({"spec": {"accessModes": ["ReadOnlyMany"]}})),
        ] {
            let volumes = [volume("v", change.clone())];
            assert_eq!(found(&claim(request.clone()), &volumes, false), None, "{change} {request}");
        }
        let selecting = claim(json!({"spec": {"selector": {"matchLabels": {"tier": "fast"}}}}));
        assert!(found(&selecting, &[volume("v", json!({}))], false).is_some());
    }

    #[test]
    fn reserved_volume_wins_whatever_its_class_and_phase() {
        let reserved = |uid: &str| {
            let claim = json!({"namespace": "d", "name": "c", "uid": uid});
            volume("z", json!({"spec": {"claimRef": claim, "storageClassName": "x"}, "status": {"phase": "Pending"}}))
        };
        let volumes = |uid: &str| [volume("a", json!({})), reserved(uid)];
        assert_eq!(found(&claim(json!({})), &volumes("u"), true).as_deref(), Some("z"));
        assert_eq!(found(&claim(json!({})), &volumes(""), false).as_deref(), Some("z"));
        assert_eq!(found(&claim(json!({})), &volumes("old"), false).as_deref(), Some("a"), "of an earlier claim");
    }
}
