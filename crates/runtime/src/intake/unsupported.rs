//! Pod features that are not supported yet: such a pod is rejected, the feature is never silently ignored.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::wire::Pod;
use muster_api::wire::volume::Volume;

/// The first unsupported feature of the pod.
pub(crate) fn unsupported(pod: &Pod) -> Option<InvalidField> {
    let spec = &pod.spec;
    let not_yet = |field: &str, value: &str| Some(FieldPath::Root(field).invalid(value, ""));
    for (index, volume) in spec.volumes.iter().enumerate() {
        if let Some(source) = volume_source(volume) {
            let path = FieldPath::Root("spec.volumes");
            return not_yet(&path.index(index).child(source).to_string(), &volume.name);
        }
    }
    let claim = spec.resource_claims.first()?;
    not_yet("spec.resourceClaims[0].name", &claim.name)
}

/// The source of a volume that restricts where the pod may run.
fn volume_source(volume: &Volume) -> Option<&'static str> {
    let sources = [
        ("ephemeral", volume.ephemeral.is_some()),
        ("csi", volume.csi.is_some()),
        ("awsElasticBlockStore", volume.aws_elastic_block_store.is_some()),
        ("azureDisk", volume.azure_disk.is_some()),
        ("cinder", volume.cinder.is_some()),
        ("gcePersistentDisk", volume.gce_persistent_disk.is_some()),
        ("iscsi", volume.iscsi.is_some()),
        ("rbd", volume.rbd.is_some()),
    ];
    sources.into_iter().find(|(_, there)| *there).map(|(name, _)| name)
}
