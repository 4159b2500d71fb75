//! Storage as observed: claims, volumes, storage classes, drivers, attachments and free capacity.
//!
//! Every object is the complete state, never a difference. Sizes are bytes. The `version` of an object is opaque: a write
//! names it as its precondition, so that nothing that was decided on an older state is written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::labels::{Labels, NodeTerm, Requirement};

/// The identity of a claim: the UID is unique, namespace and name are for users and the API.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimName {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The UID.
    pub uid: String,
}

impl fmt::Display for ClaimName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// A claim that a pod uses, in the namespace of the pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClaimUse {
    /// The field of the pod that names it, such as `spec.volumes[1].persistentVolumeClaim.claimName`.
    pub field: String,
    /// The name of the claim.
    pub claim: String,
    /// The volume is ephemeral: the claim must have been created for this pod.
    #[serde(default, skip_serializing_if = "is_false")]
    pub ephemeral: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires it")]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// How a volume may be mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AccessMode {
    /// By the pods of one node.
    ReadWriteOnce,
    /// Read-only, by the pods of many nodes.
    ReadOnlyMany,
    /// By the pods of many nodes.
    ReadWriteMany,
    /// By a single pod.
    ReadWriteOncePod,
}

/// What two volumes must have in common to be exchangeable, apart from their size.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeKind {
    /// The name of the storage class; empty if there is none.
    pub storage_class: String,
    /// The access modes.
    pub access_modes: BTreeSet<AccessMode>,
    /// Whether it is a block device instead of a file system.
    pub block: bool,
    /// The name of the VolumeAttributesClass; empty if there is none.
    pub attributes_class: String,
}

/// A PersistentVolumeClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaimSpec {
    /// The identity.
    pub id: Arc<ClaimName>,
    /// The version of the object.
    pub version: String,
    /// What it asks for.
    pub kind: VolumeKind,
    /// The requested size, if any.
    pub request_bytes: Option<i64>,
    /// Requirements on the labels of the volume; `None` is no requirement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub selector: Option<Vec<Requirement>>,
    /// The volume that it names; empty if there is none.
    pub volume: String,
    /// Claim and volume are bound to each other (`pv.kubernetes.io/bind-completed`).
    pub bind_completed: bool,
    /// Its volume is lost.
    pub lost: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The node for which its volume is to be provisioned (`volume.kubernetes.io/selected-node`); empty if there is none.
    pub selected_node: String,
    /// The UID of the pod that controls it; empty if there is none.
    pub owner_pod: String,
}

impl ClaimSpec {
    /// Whether it is bound to a volume.
    pub fn is_bound(&self) -> bool {
        self.bind_completed && !self.volume.is_empty()
    }
}

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeSpec {
    /// The name: the volume's identity.
    pub name: String,
    /// The version of the object.
    pub version: String,
    /// What it offers.
    pub kind: VolumeKind,
    /// Its size.
    pub capacity_bytes: i64,
    /// Its labels.
    pub labels: Labels,
    /// The nodes that can access it.
    pub topology: VolumeTopology,
    /// The claim that it is reserved for or bound to. The UID is empty if any claim of that name may have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimName>,
    /// Its phase is `Available`.
    pub available: bool,
    /// Whether it is being deleted.
    pub terminating: bool,
    /// The CSI driver that attaches it, and its handle there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attached_by: Option<(String, String)>,
}

/// The node constraints of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct VolumeTopology {
    /// Node affinity terms of the volume, of which the node must match one; `None` is no requirement.
    pub required_terms: Option<Vec<NodeTerm>>,
    /// Zone and region requirements. They apply only to nodes that have a zone or region label.
    pub zones: Vec<ZoneRequirement>,
}

/// The zones or regions from which a volume can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ZoneRequirement {
    /// The label keys: the current and the deprecated one.
    pub keys: Vec<String>,
    /// The allowed values of the node's label.
    pub values: BTreeSet<String>,
}

/// When the claims of a storage class are bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BindingMode {
    /// As soon as they exist.
    Immediate,
    /// When a pod that uses them is scheduled.
    WaitForFirstConsumer,
}

/// A StorageClass.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StorageClassSpec {
    /// The name.
    pub name: String,
    /// The provisioner; empty or `kubernetes.io/no-provisioner` if there is none.
    pub provisioner: String,
    /// When claims are bound.
    pub binding_mode: Option<BindingMode>,
    /// Terms of which a node must match one, for volumes to be provisioned there; `None` is no requirement.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_topologies: Option<Vec<NodeTerm>>,
}

/// The CSI drivers of a node (CSINode).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeDriversSpec {
    /// The node.
    pub node: String,
    /// The drivers, with the number of volumes that each can attach; `None` is no limit.
    pub drivers: BTreeMap<String, Option<u32>>,
}

/// A CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DriverSpec {
    /// The name.
    pub name: String,
    /// It publishes how much can be provisioned where.
    pub publishes_capacity: bool,
    /// Pods that use it must not go to nodes that do not have it.
    pub is_required_on_node: bool,
}

/// How much can be provisioned of a storage class on some nodes (CSIStorageCapacity).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacitySpec {
    /// Namespace and name.
    pub key: (String, String),
    /// The storage class.
    pub storage_class: String,
    /// Requirements on the labels of the nodes; `None` matches no node.
    pub nodes: Option<Vec<Requirement>>,
    /// The free capacity, if it is known.
    pub capacity_bytes: Option<i64>,
    /// The size of the largest volume that can be provisioned, if it is known.
    pub volume_bytes_max: Option<i64>,
}

/// A volume that is attached to a node (VolumeAttachment).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AttachmentSpec {
    /// The name of the object.
    pub name: String,
    /// The node.
    pub node: String,
    /// The volume.
    pub volume: String,
}

/// A change of an object of storage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum StorageObservation {
    /// A claim exists, new or changed.
    ClaimSeen(ClaimSpec),
    /// A claim is gone: its namespace and name.
    ClaimGone(String, String),
    /// A volume exists, new or changed.
    VolumeSeen(VolumeSpec),
    /// The volume of this name is gone.
    VolumeGone(String),
    /// A storage class exists, new or changed.
    ClassSeen(StorageClassSpec),
    /// The storage class of this name is gone.
    ClassGone(String),
    /// The drivers of a node are known, or have changed.
    NodeDriversSeen(NodeDriversSpec),
    /// The drivers of the node of this name are not known any more.
    NodeDriversGone(String),
    /// A driver exists, new or changed.
    DriverSeen(DriverSpec),
    /// The driver of this name is gone.
    DriverGone(String),
    /// Free capacity is published, or has changed.
    CapacitySeen(CapacitySpec),
    /// The published capacity of this namespace and name is gone.
    CapacityGone(String, String),
    /// A volume is attached to a node.
    AttachmentSeen(AttachmentSpec),
    /// The attachment of this name is gone.
    AttachmentGone(String),
}

/// The outcome of a write to a claim or volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StorageWriteOutcome {
    /// It is written.
    Written,
    /// It failed, and a retry may succeed.
    Transient {
        /// The error.
        message: String,
    },
    /// It failed, and a retry would fail too; another writer has changed the object, for example.
    Refused {
        /// The error.
        message: String,
    },
}

/// A disk that a pod names itself, and that pods of one node can share only if all of them just read it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NamedDisk {
    /// What identifies it, with its kind; two disks conflict if they have one of these in common.
    pub ids: BTreeSet<String>,
    /// Whether the pod only reads it, and its kind can be shared by readers.
    pub shared_by_readers: bool,
}
