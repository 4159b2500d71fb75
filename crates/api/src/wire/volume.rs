//! A volume of a pod, with the fields that affect scheduling.
//!
//! Claims are kept by name, since their volumes restrict the nodes, and of in-line disks what identifies them, since
//! not all pods of a node can use the same. All further sources are skipped. Must not depend on claims or drivers.

use serde::{Deserialize, Serialize};

use crate::null::{is_default, null_is_default};
use crate::wire::present::Present;

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Volume {
    /// The name, unique in the pod.
    #[serde(deserialize_with = "null_is_default")]
    pub name: String,
    /// An existing claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// An ephemeral volume, whose claim is called `<pod>-<volume>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Present>,
    /// An image volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageVolume>,
    /// An AWS disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_elastic_block_store: Option<AwsDisk>,
    /// A GCE disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gce_persistent_disk: Option<GceDisk>,
    /// An iSCSI disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<IscsiDisk>,
    /// A Ceph RBD image.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rbd: Option<RbdImage>,
}

/// An image volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageVolume {
    /// The image; nodes that have it are preferred.
    #[serde(deserialize_with = "null_is_default")]
    pub reference: String,
}

/// A volume with a PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// The name of the claim, in the pod's namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub claim_name: String,
    /// Whether it is mounted read-only.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}

/// An AWS disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AwsDisk {
    /// The ID of the volume.
    #[serde(rename = "volumeID", deserialize_with = "null_is_default")]
    pub volume_id: String,
}

/// A GCE disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GceDisk {
    /// The name of the disk.
    #[serde(deserialize_with = "null_is_default")]
    pub pd_name: String,
    /// Whether it is mounted read-only.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}

/// An iSCSI disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct IscsiDisk {
    /// The qualified name of the target.
    #[serde(deserialize_with = "null_is_default")]
    pub iqn: String,
    /// Whether it is mounted read-only.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}

/// A Ceph RBD image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RbdImage {
    /// The Ceph monitors.
    #[serde(deserialize_with = "null_is_default")]
    pub monitors: Vec<String>,
    /// The pool; the API server fills in `rbd`.
    #[serde(deserialize_with = "null_is_default")]
    pub pool: String,
    /// The image.
    #[serde(deserialize_with = "null_is_default")]
    pub image: String,
    /// Whether it is mounted read-only.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}
