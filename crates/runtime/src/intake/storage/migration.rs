//! In-tree volume plugins whose volumes are attached by CSI drivers: the names of the drivers and the volumes' IDs.
//!
//! As for kube-scheduler, the migration is always on for these plugins. Only volumes that are counted per node are
//! translated: node affinity and zone labels stay as they are written.

use serde::Deserialize;

/// The plugins, and the drivers that replaced them.
const DRIVERS: [(&str, &str); 5] = [
    (AWS, "ebs.csi.aws.com"),
    (GCE, "pd.csi.storage.gke.io"),
    (AZURE, "disk.csi.azure.com"),
    (CINDER, "cinder.csi.openstack.org"),
    (PORTWORX, "pxd.portworx.com"),
];
const AWS: &str = "kubernetes.io/aws-ebs";
const GCE: &str = "kubernetes.io/gce-pd";
const AZURE: &str = "kubernetes.io/azure-disk";
const CINDER: &str = "kubernetes.io/cinder";
const PORTWORX: &str = "kubernetes.io/portworx-volume";

/// The driver that stands for a provisioner: itself, unless it is such a plugin.
pub(super) fn driver(provisioner: &str) -> &str {
    DRIVERS.iter().find(|(plugin, _)| *plugin == provisioner).map_or(provisioner, |(_, driver)| driver)
}

/// The in-tree sources of a volume.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct InTreeSources {
    aws_elastic_block_store: Option<ById>,
    azure_disk: Option<AzureDisk>,
    cinder: Option<ById>,
    gce_persistent_disk: Option<GceDisk>,
    portworx_volume: Option<ById>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ById {
    #[serde(rename = "volumeID")]
    id: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AzureDisk {
    #[serde(rename = "diskURI")]
    uri: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GceDisk {
    pd_name: Option<String>,
}

impl InTreeSources {
    /// The driver that attaches the volume, and the volume's ID.
    pub(super) fn attached_by(&self) -> Option<(String, String)> {
        let by_id = |source: &Option<ById>| source.as_ref()?.id.clone();
        // `aws://zone/vol-1` is the same volume as `vol-1`.
        let aws = by_id(&self.aws_elastic_block_store);
        let aws = aws.map(|id| id.rsplit('/').next().unwrap_or_default().to_owned());
        let sources = [
            (AWS, aws),
            (GCE, self.gce_persistent_disk.as_ref().and_then(|disk| disk.pd_name.clone())),
            (AZURE, self.azure_disk.as_ref().and_then(|disk| disk.uri.clone())),
            (CINDER, by_id(&self.cinder)),
            (PORTWORX, by_id(&self.portworx_volume)),
        ];
        sources.into_iter().find_map(|(plugin, id)| Some((driver(plugin).to_owned(), id?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn each_plugin_has_its_driver_and_id() {
        let of = |spec: Value| serde_json::from_value::<InTreeSources>(spec).unwrap().attached_by();
        for (spec, driver, id) in [
            (json!({"awsElasticBlockStore": {"volumeID": "vol-1"}}), "ebs.csi.aws.com", "vol-1"),
            (json!({"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}}), "ebs.csi.aws.com", "vol-1"),
            (json!({"gcePersistentDisk": {"pdName": "d"}}), "pd.csi.storage.gke.io", "d"),
            (json!({"azureDisk": {"diskName": "n", "diskURI": "/s/d"}}), "disk.csi.azure.com", "/s/d"),
            (json!({"cinder": {"volumeID": "c"}}), "cinder.csi.openstack.org", "c"),
            (json!({"portworxVolume": {"volumeID": "p"}}), "pxd.portworx.com", "p"),
        ] {
            assert_eq!(of(spec), Some((driver.to_owned(), id.to_owned())));
        }
        assert_eq!(of(json!({"cinder": null, "azureFile": {"secretName": "s"}})), None);
        assert_eq!(driver("kubernetes.io/gce-pd"), "pd.csi.storage.gke.io");
        assert_eq!(driver("kubernetes.io/no-provisioner"), "kubernetes.io/no-provisioner");
    }
}
