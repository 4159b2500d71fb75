//! Missing timestamps of conditions, which the types require.
//!
//! kube-apiserver decodes them as the zero time, and its validation reports them as missing. Here a placeholder stands
//! for them while a value is decoded. Must not depend on kinds.

use serde_json::{Value, json};

const PLACEHOLDER: &str = "0001-01-01T00:00:00Z";
const LIST: &str = "conditions";
const TIME: &str = "lastTransitionTime";

/// Sets a placeholder where a condition has no time.
pub(super) fn insert_placeholders(value: &mut Value) {
    each_condition(value, &mut |condition| {
        if condition.is_object() {
            super::default_field(condition, TIME, json!(PLACEHOLDER));
        }
    });
}

/// Removes the placeholders.
pub(super) fn remove_placeholders(value: &mut Value) {
    each_condition(value, &mut |condition| {
        if condition[TIME] == PLACEHOLDER
            && let Some(fields) = condition.as_object_mut()
        {
            fields.remove(TIME);
        }
    });
}

/// Conditions are part of the status.
fn each_condition(value: &mut Value, act: &mut dyn FnMut(&mut Value)) {
    let conditions = value.get_mut("status").and_then(|status| status.get_mut(LIST)).and_then(Value::as_array_mut);
    conditions.into_iter().flatten().for_each(act);
}
