//! A volume of a pod, with the fields that affect scheduling.
//!
//! Claims are kept by name, since their volumes restrict the nodes. Of other sources that matter (exclusive disks,
//! driver limits) only the presence is kept. All further sources are skipped. Must not depend on claims or drivers.

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
    /// An inline CSI volume.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<Present>,
    /// An AWS disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_elastic_block_store: Option<Present>,
    /// An Azure disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_disk: Option<Present>,
    /// An OpenStack Cinder disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cinder: Option<Present>,
    /// A GCE disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gce_persistent_disk: Option<Present>,
    /// An iSCSI disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<Present>,
    /// A Ceph RBD disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rbd: Option<Present>,
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
