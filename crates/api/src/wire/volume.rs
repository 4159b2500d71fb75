//! A volume of a pod, as far as it decides where the pod can run.
//!
//! Claims are named, since their volumes bind pods to places. Of other sources that have a say
//! (disks that one node holds, limits of drivers) only the presence is kept: a pod with one is told
//! apart from a pod without. All further sources are skipped.
//! It must not know claims or drivers.

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
    /// A claim that is there already.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim: Option<ClaimVolume>,
    /// A claim of the pod's own, called `<pod>-<volume>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ephemeral: Option<Present>,
    /// An image that is mounted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<ImageVolume>,
    /// An inline volume of a driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub csi: Option<Present>,
    /// A disk of AWS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aws_elastic_block_store: Option<Present>,
    /// A disk of Azure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub azure_disk: Option<Present>,
    /// A disk of OpenStack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cinder: Option<Present>,
    /// A disk of Google.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gce_persistent_disk: Option<Present>,
    /// A disk over iSCSI.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iscsi: Option<Present>,
    /// A disk of Ceph.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rbd: Option<Present>,
}

/// An image that is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ImageVolume {
    /// The image; nodes that have it are preferred.
    #[serde(deserialize_with = "null_is_default")]
    pub reference: String,
}

/// A claim that a volume uses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimVolume {
    /// The name of the claim, in the pod's namespace.
    #[serde(deserialize_with = "null_is_default")]
    pub claim_name: String,
    /// Whether the pod only reads.
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "is_default")]
    pub read_only: bool,
}
