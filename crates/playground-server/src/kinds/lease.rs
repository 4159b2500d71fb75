//! Leases.

use k8s_openapi::api::coordination::v1::Lease;
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::typed_decode::{DecodeError, decode_as, require_micro_times};

pub(super) fn decode(lease: Value) -> Result<Value, DecodeError> {
    require_micro_times(&lease, &["/spec/acquireTime", "/spec/renewTime"])?;
    decode_as::<Lease>(lease)
}

/// The spec is encoded even if empty.
pub(super) fn set_defaults(lease: &mut Value) {
    if lease["spec"].is_null() {
        lease["spec"] = json!({});
    }
}

pub(super) fn validate(lease: &Value) -> Vec<FieldError> {
    let spec = &lease["spec"];
    let mut errors = Vec::new();
    for (field, least, why) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if let Some(number) = spec[field].as_i64().filter(|number| *number < least) {
            errors.push(FieldError::invalid(format!("spec.{field}"), number, why));
        }
    }
    let text = |field: &str| spec[field].as_str().unwrap_or_default();
    if !text("preferredHolder").is_empty() && text("strategy").is_empty() {
        errors.push(FieldError::forbidden("spec.preferredHolder", "may only be specified if `strategy` is defined"));
    }
    errors
}
