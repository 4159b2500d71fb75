//! Leases: who holds something, and for how long.

use k8s_openapi::api::coordination::v1::Lease;
use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::retype::{Unreadable, require_micro_times, retype};

pub(super) fn read(lease: Value) -> Result<Value, Unreadable> {
    require_micro_times(&lease, &["/spec/acquireTime", "/spec/renewTime"])?;
    retype::<Lease>(lease)
}

/// The spec is printed even when it is empty.
pub(super) fn complete(lease: &mut Value) {
    if lease["spec"].is_null() {
        lease["spec"] = json!({});
    }
}

pub(super) fn check(lease: &Value) -> Vec<FieldError> {
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
