//! A VolumeAttachment as the engine observes it: a volume that is attached to a node.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use muster_engine::model::storage::{AttachmentSpec, StorageObservation};
use serde::Deserialize;

/// The attachment as written.
#[derive(Deserialize)]
pub(super) struct Written {
    spec: Option<Spec>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    node_name: Option<String>,
    source: Option<Source>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Source {
    persistent_volume_name: Option<String>,
}

/// The observation of an attachment. One of an in-line volume names no volume.
pub(super) fn seen(metadata: &ObjectMeta, written: Written) -> StorageObservation {
    let spec = written.spec.unwrap_or_default();
    StorageObservation::AttachmentSeen(AttachmentSpec {
        name: metadata.name.clone().unwrap_or_default(),
        node: spec.node_name.unwrap_or_default(),
        volume: spec.source.and_then(|source| source.persistent_volume_name).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Storage;
    use super::super::tests::read;
    use super::*;

    #[test]
    fn an_attachment_names_its_node_and_volume() {
        for (source, volume) in [(json!({"persistentVolumeName": "pv"}), "pv"), (json!({"inlineVolumeSpec": {}}), "")] {
            let spec = json!({"attacher": "d", "nodeName": "n1", "source": source});
            let seen = read(Storage::Attachment, &json!({"metadata": {"name": "a"}, "spec": spec}));
            let expected = AttachmentSpec { name: "a".to_owned(), node: "n1".to_owned(), volume: volume.to_owned() };
            assert_eq!(seen, Ok(StorageObservation::AttachmentSeen(expected)));
        }
    }
}
