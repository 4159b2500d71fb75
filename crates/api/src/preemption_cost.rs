//! The annotation with which the author of a pod, group or owner declares the cost of evicting it.

use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::PREEMPTION_COST;
use crate::selector::Labels;

/// The declared cost, if there is one.
pub fn declared(annotations: Option<&Labels>) -> Result<Option<i32>, InvalidField> {
    let Some(written) = annotations.and_then(|annotations| annotations.get(PREEMPTION_COST)) else { return Ok(None) };
    written.parse().map(Some).map_err(|_| {
        let (annotations, range) = (FieldPath::Root("metadata.annotations"), "must be a whole number of 32 bits");
        annotations.key(PREEMPTION_COST).invalid(written, range)
    })
}
