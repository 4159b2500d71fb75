//! Times that a client left out and that the type of a kind asks for.
//!
//! The real server reads them as a time that is none, and its checks say that they are missing. Here a stand-in
//! takes their place while a value is read. It must not know kinds.

use serde_json::{Value, json};

const STAND_IN: &str = "0001-01-01T00:00:00Z";
const LIST: &str = "conditions";
const TIME: &str = "lastTransitionTime";

/// Puts a stand-in where a condition has no time.
pub(super) fn stand_in(value: &mut Value) {
    each_condition(value, &mut |condition| {
        if condition.is_object() {
            super::present(condition, TIME, json!(STAND_IN));
        }
    });
}

/// Takes the stand-ins away.
pub(super) fn clear(value: &mut Value) {
    each_condition(value, &mut |condition| {
        if condition[TIME] == STAND_IN
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
