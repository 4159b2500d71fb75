//! What objects may look like, as kube-apiserver treats them: structural schemas of CustomResourceDefinitions, and what
//! they share with the built-in kinds: field errors, selectors, JSON paths, the types of fields, and Go's texts.
//!
//! A schema is parsed once, CEL rules and regular expressions with it; then it prunes, fills in
//! defaults and validates. All of it is pure: no clock, no input or output, and no order between
//! requests. It must not know how objects are stored or served, nor any kind beyond the names in the table of field types.
//!
//! Bounds: JSON is at most 128 levels deep (the caller's duty), and so is all recursion; regular
//! expressions run in linear time; the loops of CEL rules are bounded as `rule` says.

mod cel_functions;
mod cel_parse;
mod cel_scope;
mod cel_value;
mod correlate;
mod default;
mod default_check;
mod embedded;
mod field_error;
mod field_path;
mod format;
pub mod go_text;
pub mod json_path;
mod list_type;
mod node;
mod number_check;
mod owned;
mod parse;
mod pattern;
mod prune;
mod rule;
mod rule_check;
mod rule_parse;
pub mod selectors;
pub mod types;
mod value_check;
mod written;

use serde_json::Value;

pub use field_error::{FieldError, FieldErrorKind, NO_FIELD};
use node::Node;
use types::{TypeId, Types};

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

    /// Which fields objects have, and which of them are owned as one thing.
    pub fn types(&self) -> (Types, TypeId) {
        owned::types(&self.root)
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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A schema with something of everything.
    fn rich() -> Schema {
        let entry = json!({
            "type": "object",
            "required": ["a"],
            "properties": {
                "a": {"type": "string", "maxLength": 3, "default": "x"},
                "b": {"type": "integer", "default": 1, "x-kubernetes-validations": [{"rule": "self >= oldSelf"}]},
            },
        });
        Schema::parse(&json!({
            "type": "object",
            "x-kubernetes-validations": [{"rule": "!has(self.c) || self.c == self.c"}],
            "properties": {
                "a": {
                    "type": "array",
                    "items": entry,
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["a"],
                    "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x.b <= y.b + 1 || x.b / y.b > 0))"}],
                },
                "b": {"type": "object", "additionalProperties": {"type": "number", "nullable": true, "multipleOf": 0.5}},
                "c": {"x-kubernetes-int-or-string": true, "x-kubernetes-validations": [
                    {"rule": "type(self) == int ? self * 3 > 1 : int(self) - 7 < 0", "messageExpression": "string(self) + '!'"},
                ]},
                "d": {"type": "string", "format": "date-time", "x-kubernetes-validations": [
                    {"rule": "self + duration('99999h') > self", "optionalOldSelf": null},
                ]},
                "e": {"type": "string", "format": "duration", "x-kubernetes-validations": [{"rule": "self + self > self"}]},
                "f": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
                "g": {"x-kubernetes-preserve-unknown-fields": true, "anyOf": [{"minimum": 3}, {"maxItems": 1}, {"not": {"required": ["a"]}}]},
            },
        }))
        .unwrap()
    }

    fn json_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-3_i64..3).prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            "[a-c1-9.%]{0,4}".prop_map(Value::from),
            Just(json!("9999-12-31T23:59:59Z")),
            Just(json!("0001-01-01T00:00:00Z")),
            Just(json!("99999999999h")),
            Just(json!("2540400h")),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::vec(("[a-g]|kind|apiVersion|metadata|name", inner), 0..6)
                    .prop_map(|entries| entries.into_iter().collect::<serde_json::Map<_, _>>().into()),
            ]
        })
    }

    /// JSON that looks like a schema.
    fn schema_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({"type": "string"})),
            Just(json!({"type": "integer", "minimum": 1.5})),
            Just(json!({"x-kubernetes-int-or-string": true})),
            Just(json!({"required": ["a"]})),
            Just(json!(["a", "b"])),
            Just(json!("object")),
            Just(json!("array")),
            Just(json!(true)),
            Just(json!(-1)),
            Just(json!([{"rule": "self.a.b == oldSelf || self.all(x, x.a)"}])),
        ];
        let keyword = "type|properties|items|additionalProperties|default|enum|required|allOf|anyOf|not|pattern|format            |maxItems|nullable|a|x-kubernetes-(list-type|list-map-keys|validations|embedded-resource|preserve-unknown-fields)";
        leaf.prop_recursive(5, 40, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::vec((keyword, inner), 0..5).prop_map(|entries| {
                    let mut map: serde_json::Map<String, Value> = entries.into_iter().collect();
                    map.entry("type").or_insert(json!("object"));
                    map.into()
                }),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_object_makes_it_panic(new in json_value(), old in json_value()) {
            thread_local!(static RICH: Schema = rich());
            RICH.with(|schema| {
                let (mut new, mut old) = (new, old);
                for object in [&mut new, &mut old] {
                    schema.prune(object);
                    schema.default(object);
                }
                let mut again = new.clone();
                prop_assert_eq!(schema.prune(&mut again), Vec::<String>::new());
                schema.default(&mut again);
                prop_assert_eq!(&again, &new);
                schema.validate(&new, None);
                schema.validate(&new, Some(&old));
                schema.validate_status(&new, &old);
                Ok(())
            })?;
        }

        #[test]
        fn no_schema_makes_it_panic(schema in schema_value(), object in json_value()) {
            if let Ok(schema) = Schema::parse(&schema) {
                schema.validate(&object, Some(&object));
            }
        }
    }

    #[test]
    fn schemas_are_shared_between_threads() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Schema>();
    }

    #[test]
    fn a_rule_that_would_run_for_hours_is_not_run() {
        let rule = json!([{"rule": "self.all(x, self.all(y, self.all(z, x + y + z > 0)))"}]);
        let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rule});
        let schema = Schema::parse(&json!({"type": "object", "properties": {"l": list}})).unwrap();
        assert_eq!(schema.validate(&json!({"l": vec![1; 20]}), None), []);
        let start = Instant::now();
        let errors = schema.validate(&json!({"l": vec![1; 100_000]}), None);
        assert!(start.elapsed() < Duration::from_secs(5));
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(error.detail.starts_with("validation failed due to running out of cost budget"), "{error}");
    }

    #[test]
    fn loops_over_many_small_parts_share_a_budget() {
        // The loops are paid for, though they are not run.
        let rule = json!([{"rule": "true || self.all(x, self.all(y, x == y))"}]);
        let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rule});
        let lists = json!({"type": "array", "items": list});
        let schema = Schema::parse(&json!({"type": "object", "properties": {"l": lists}})).unwrap();
        let errors = schema.validate(&json!({"l": vec![vec![1; 400]; 400]}), None);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }

    #[test]
    fn many_broken_entries_of_an_unchanged_list_do_not_take_long() {
        let item = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]});
        let list = json!({"type": "array", "items": item});
        let schema = Schema::parse(&json!({"type": "object", "properties": {"l": list}})).unwrap();
        let object = json!({"l": vec![0; 20_000]});
        let start = Instant::now();
        assert_eq!(schema.validate(&object, Some(&object)), []);
        assert!(start.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn the_deepest_json_is_fine() {
        let mut deep = json!({});
        for _ in 0..128 {
            deep = json!({"a": [deep]});
        }
        let object = json!({"g": deep, "f": deep});
        assert!(!rich().validate(&object, Some(&object)).is_empty());
    }

    #[test]
    fn mistakes_of_schemas_name_their_place() {
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "typo": 1}}}});
        let error = Schema::parse(&schema).unwrap_err();
        assert_eq!(error.to_string(), "openAPIV3Schema.properties[a].items.typo: Forbidden: the keyword is not known");
    }
}
