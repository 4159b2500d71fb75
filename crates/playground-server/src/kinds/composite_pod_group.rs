//! The strategy of native CompositePodGroups of 1.37 (v1alpha3), with the rules of `muster_api::native`. They are
//! served where
//! the feature gate `CompositePodGroup` is on.

use k8s_openapi::api::scheduling::v1alpha3;
use muster_api::native::{
    CompositePodGroup, set_composite_pod_group_defaults, validate_composite_pod_group,
    validate_composite_pod_group_update,
};
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::native_errors::translate;
use super::pod_group::{empty_choices, typed};
use super::typed_decode::{DecodeError, decode_as};
use super::{Gated, default_field};

/// Decodes a CompositePodGroup.
pub(super) fn decode(group: Value) -> Result<Value, DecodeError> {
    let mut decoded = decode_as::<v1alpha3::CompositePodGroup>(group)?;
    empty_choices(&mut decoded["spec"], "spec")?;
    Ok(decoded)
}

pub(super) fn set_defaults(group: &mut Value) {
    default_field(group, "spec", json!({}));
    default_field(&mut group["spec"], "schedulingPolicy", json!({}));
}

pub(super) const GATED: Gated = Gated {
    set_defaults: set_composite_pod_group_defaults,
    drop_disabled: |_, _, _| {},
    validate: |group, _| translate(validate_composite_pod_group(&typed::<CompositePodGroup>(group)), group),
    validate_update: |group, old, _| {
        let (new, old) = (typed::<CompositePodGroup>(group), typed::<CompositePodGroup>(old));
        translate(validate_composite_pod_group_update(&new, &old), group)
    },
};

/// Conditions are merged by their types; there is nothing else to check.
pub(super) fn validate_status_update(_: &Value, _: &Value) -> Vec<FieldError> {
    Vec::new()
}
