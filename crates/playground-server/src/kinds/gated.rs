//! What of a built-in kind depends on the feature gates of the server: defaults, fields that are dropped, and rules.
//!
//! Must not know which gates there are.

use muster_api::native::Gates;
use muster_playground_schema::FieldError;
use serde_json::Value;

/// Called after the functions of the kind's strategy that have the same names.
pub(crate) struct Gated {
    /// Applies defaults.
    pub(super) set_defaults: fn(&mut Value, Gates),
    /// Drops fields whose gate is off, unless the stored object has them.
    pub(super) drop_disabled: fn(&mut Value, Option<&Value>, Gates),
    /// The errors of an object, new or not.
    pub(super) validate: fn(&Value, Gates) -> Vec<FieldError>,
    /// The errors of an update.
    pub(super) validate_update: fn(&Value, &Value, Gates) -> Vec<FieldError>,
}
