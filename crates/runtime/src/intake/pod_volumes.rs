//! The volumes of a pod that determine where it may run: claims, and disks that it names itself.
//!
//! In-line volumes of CSI drivers are not among them: kube-scheduler does not count them either.

use std::collections::BTreeSet;

use muster_api::invalid::FieldPath;
use muster_api::wire::Pod;
use muster_api::wire::volume::Volume;
use muster_engine::model::storage::{ClaimUse, NamedDisk};

/// The claims that a pod uses, each once.
pub(super) fn claims(pod: &Pod) -> Vec<ClaimUse> {
    let mut uses: Vec<ClaimUse> = Vec::new();
    for (index, volume) in pod.spec.volumes.iter().enumerate() {
        let Some(one) = claim(pod, index, volume) else { continue };
        if !uses.iter().any(|known| known.claim == one.claim && known.ephemeral == one.ephemeral) {
            uses.push(one);
        }
    }
    uses
}

fn claim(pod: &Pod, index: usize, volume: &Volume) -> Option<ClaimUse> {
    let path = FieldPath::Root("spec.volumes");
    let path = path.index(index);
    if let Some(claim) = &volume.persistent_volume_claim {
        let field = path.child("persistentVolumeClaim").child("claimName").to_string();
        return Some(ClaimUse { field, claim: claim.claim_name.clone(), ephemeral: false });
    }
    volume.ephemeral.map(|_| {
        let pod = pod.metadata.name.as_deref().unwrap_or_default();
        let claim = format!("{pod}-{}", volume.name);
        ClaimUse { field: path.child("ephemeral").to_string(), claim, ephemeral: true }
    })
}

/// The disks that a pod names itself.
pub(super) fn disks(pod: &Pod) -> Vec<NamedDisk> {
    let disks: BTreeSet<NamedDisk> = pod.spec.volumes.iter().filter_map(disk).collect();
    disks.into_iter().collect()
}

fn disk(volume: &Volume) -> Option<NamedDisk> {
    let one = |id: String, shared_by_readers: bool| NamedDisk { ids: [id].into(), shared_by_readers };
    if let Some(disk) = &volume.gce_persistent_disk {
        return Some(one(format!("gce/{}", disk.pd_name), disk.read_only));
    }
    if let Some(disk) = &volume.aws_elastic_block_store {
        // Not even readers share it.
        return Some(one(format!("aws/{}", disk.volume_id), false));
    }
    if let Some(disk) = &volume.iscsi {
        return Some(one(format!("iscsi/{}", disk.iqn), disk.read_only));
    }
    let image = volume.rbd.as_ref()?;
    // Two names mean the same image if one of the monitors is the same.
    let ids = image.monitors.iter().map(|monitor| format!("rbd/{monitor}/{}/{}", image.pool, image.image));
    Some(NamedDisk { ids: ids.collect(), shared_by_readers: image.read_only })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(volumes: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"volumes": volumes}})).unwrap()
    }

    #[test]
    fn claims_are_named_with_their_fields() {
        let uses = claims(&pod(&json!([
            {"name": "tmp", "emptyDir": {}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
            {"name": "again", "persistentVolumeClaim": {"claimName": "data", "readOnly": true}},
            {"name": "inline", "csi": {"driver": "d"}},
        ])));
        let expected = [
            ("spec.volumes[1].persistentVolumeClaim.claimName", "data", false),
            ("spec.volumes[2].ephemeral", "a-scratch", true),
        ];
        let expected = expected.map(|(field, claim, ephemeral)| ClaimUse {
            field: field.to_owned(),
            claim: claim.to_owned(),
            ephemeral,
        });
        assert_eq!(uses, expected);
    }

    #[test]
    fn disks_have_what_identifies_them_and_may_be_shared_by_readers() {
        let of = |source: Value| {
            let mut volume = json!({"name": "v"});
            volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            disks(&pod(&json!([volume, volume])))
        };
        for (source, ids, shared_by_readers) in [
            (json!({"gcePersistentDisk": {"pdName": "d", "readOnly": true}}), vec!["gce/d"], true),
            (json!({"gcePersistentDisk": {"pdName": "d"}}), vec!["gce/d"], false),
            (json!({"awsElasticBlockStore": {"volumeID": "v", "readOnly": true}}), vec!["aws/v"], false),
            (json!({"iscsi": {"iqn": "i", "lun": 3, "targetPortal": "p", "readOnly": true}}), vec!["iscsi/i"], true),
            (
                json!({"rbd": {"monitors": ["m", "n"], "pool": "p", "image": "i", "readOnly": true}}),
                vec!["rbd/m/p/i", "rbd/n/p/i"],
                true,
            ),
        ] {
            let ids = ids.into_iter().map(str::to_owned).collect();
            assert_eq!(of(source), [NamedDisk { ids, shared_by_readers }]);
        }
        assert_eq!(of(json!({"azureDisk": {"diskName": "n", "diskURI": "u"}})), []);
    }
}
