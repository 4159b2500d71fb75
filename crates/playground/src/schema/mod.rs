//! Structural schemas of CustomResourceDefinitions, as kube-apiserver treats them.
//!
//! A schema is parsed once, CEL rules and regular expressions with it; then it prunes, fills in
//! defaults and validates. All of it is pure: no clock, no input or output, and no order between
//! requests. It must not know how objects are stored or served.
//!
//! Bounds: JSON is at most 128 levels deep (the caller's duty), and so is all recursion; regular
//! expressions run in linear time; the loops of CEL rules are bounded as `rule` says.

mod cel_parse;
mod cel_scope;
mod cel_type;
mod cel_value;
mod correlate;
mod default;
mod default_check;
mod embedded;
mod field_error;
mod field_path;
mod format;
pub(crate) mod go_text;
mod list_type;
mod node;
mod number_check;
mod parse;
mod pattern;
mod prune;
mod rule;
mod rule_check;
mod rule_parse;
mod value_check;
mod written;

use serde_json::Value;

pub use field_error::{FieldError, FieldErrorKind, NO_FIELD};
use node::Node;

/// The path at which errors about a schema itself begin.
const ROOT: &str = "openAPIV3Schema";

/// A parsed structural schema.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    has_rules: bool,
}

impl Schema {
    /// Parses the `openAPIV3Schema` of a version. The error is the first mistake; its field begins
    /// with `openAPIV3Schema`.
    pub fn parse(schema: &Value) -> Result<Schema, FieldError> {
        let root = parse::parse(schema, ROOT)?;
        let has_rules = root.has_rules();
        Ok(Schema { root, has_rules })
    }

    /// Drops all fields that the schema does not know and returns their paths, sorted.
    ///
    /// `apiVersion`, `kind` and `metadata` of the object itself are kept as they are.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune_object(object, &self.root)
    }

    /// Drops nulls that are neither allowed nor have a default, then fills in defaults.
    pub fn default(&self, object: &mut Value) {
        default::fill(object, &self.root);
    }

    /// All that is wrong with an object that was pruned and defaulted. `old` is what it replaces,
    /// as it is stored; what is wrong with unchanged parts of it is forgiven.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = value_check::check(&self.root, new, old);
        errors.extend(embedded::check(new, &self.root));
        self.check_lists_and_rules(new, old, &mut errors);
        errors
    }

    /// All that is wrong with an object of which only the status is written.
    ///
    /// Messages name paths from the status on, as those of the API server do.
    pub fn validate_status(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = match (new.get("status"), self.root.properties.get("status")) {
            (Some(status), Some(node)) => value_check::check(node, status, old.get("status")),
            _ => Vec::new(),
        };
        for error in &mut errors {
            error.field = match error.field.as_str() {
                NO_FIELD => "status".to_owned(),
                below => format!("status.{below}"),
            };
        }
        self.check_lists_and_rules(new, Some(old), &mut errors);
        errors
    }

    fn check_lists_and_rules(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if old.is_none_or(|old| list_type::check(old, &self.root).is_empty()) {
            errors.extend(list_type::check(new, &self.root));
        }
        if !self.has_rules {
            return;
        }
        // Rules can count on types and limits.
        let blocks = |error: &FieldError| {
            use FieldErrorKind::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
            matches!(error.kind, NotSupported | Required | TooLong | TooMany | TypeInvalid)
        };
        if errors.iter().any(blocks) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
            errors.push(FieldError::invalid(NO_FIELD, Value::Null, detail));
        } else {
            errors.extend(rule_check::check(&self.root, new, old));
        }
    }
}
