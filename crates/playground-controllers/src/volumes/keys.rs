//! The annotations and finalizers by which the scheduler, the controllers and provisioners agree about volumes.

/// On a claim: the binding was seen by the controller once. The value does not matter.
pub(crate) const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a volume or claim: a controller or the scheduler has bound it, not a user.
pub(crate) const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a claim: the node for which the scheduler wants a volume to be made.
pub(crate) const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a volume: the provisioner that made it.
pub(crate) const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a claim: the provisioner that is to make its volume.
pub(crate) const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// The old form of [`STORAGE_PROVISIONER`], which is still written.
pub(crate) const OLD_STORAGE_PROVISIONER: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a volume or claim: the class, in its old form.
pub(crate) const OLD_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
/// On a storage class: it is the default one, in the new and the old form.
pub(crate) const DEFAULT_CLASS: [&str; 2] =
    ["storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"];

/// Keeps a claim while pods on nodes use it.
pub(crate) const CLAIM_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// Keeps a volume while it is bound.
pub(crate) const VOLUME_PROTECTION: &str = "kubernetes.io/pv-protection";
/// Keeps a volume until its provisioner has deleted it.
pub(crate) const PROVISIONER_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
