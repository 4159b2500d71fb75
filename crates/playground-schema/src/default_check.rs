//! Validates the defaults in a schema against the schema itself.
//!
//! Must not depend on how schemas are parsed.

use serde_json::Value;

use super::field_error::FieldError;
use super::node::Node;
use super::{prune, rule_check, value_check};

/// Validates the default at this path.
pub(super) fn check_default(default: &Value, node: &Node, path: &str) -> Result<(), FieldError> {
    let mut pruned = default.clone();
    if let Some(unknown) = prune::prune_part(&mut pruned, node).first() {
        return Err(FieldError::invalid(path, default.clone(), format!("the field {unknown} is not in the schema")));
    }
    let mut errors = value_check::check(node, default, None);
    if errors.is_empty() {
        errors = rule_check::check(node, default, None);
    }
    match errors.into_iter().next() {
        Some(mut error) => {
            error.field = match error.field.as_str() {
                super::field_error::NO_FIELD => path.to_owned(),
                below => format!("{path}.{below}"),
            };
            Err(error)
        }
        None => Ok(()),
    }
}
