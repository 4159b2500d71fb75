//! The annotation with which the owner of a pod or group declares the cost of evicting it.

use std::collections::BTreeMap;

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::PREEMPTION_COST;

/// The declared cost; 0 without the annotation.
pub(crate) fn declared(annotations: Option<&BTreeMap<String, String>>) -> Result<i32, InvalidField> {
    let Some(written) = annotations.and_then(|annotations| annotations.get(PREEMPTION_COST)) else { return Ok(0) };
    written.parse().map_err(|_| {
        let (annotations, range) = (FieldPath::Root("metadata.annotations"), "must be a whole number of 32 bits");
        annotations.key(PREEMPTION_COST).invalid(written, range)
    })
}
