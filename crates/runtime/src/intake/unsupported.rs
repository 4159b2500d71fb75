//! Pod features that are not supported yet: such a pod is rejected, the feature is never silently ignored.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::wire::Pod;

/// The first unsupported feature of the pod.
pub(crate) fn unsupported(pod: &Pod) -> Option<InvalidField> {
    let claim = pod.spec.resource_claims.first()?;
    Some(FieldPath::Root("spec.resourceClaims[0].name").invalid(&claim.name, ""))
}
