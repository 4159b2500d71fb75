//! Validation as in kube-apiserver: structural schemas of CustomResourceDefinitions, and what they share with built-in
//! kinds: field errors, selectors, JSON paths, field types for ownership, and Go's formatting.
//!
//! A schema is parsed once, including CEL rules and regular expressions; it then prunes, applies defaults and
//! validates. Everything is pure: no clock, no I/O, and no dependence on the order of requests. Must not depend on how
//! objects are stored or served, nor on any kind beyond the names in the table of field types.
//!
//! Bounds: JSON is at most 128 levels deep (ensured by the caller), and so is all recursion; regular expressions run in
//! linear time; the loops of CEL rules are bounded as described in `rule`.

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
mod field_types;
mod format;
pub mod go_text;
pub mod json_path;
mod list_type;
mod node;
mod number_check;
mod parse;
mod pattern;
mod prune;
mod raw_schema;
mod rule;
mod rule_check;
mod rule_parse;
pub mod selectors;
pub mod types;
mod value_check;

use serde_json::Value;

pub use field_error::{FieldError, FieldErrorKind, NO_FIELD};
use node::Node;
use types::{TypeId, Types};

/// The path prefix of errors in a schema itself.
const ROOT: &str = "openAPIV3Schema";

/// A parsed structural schema.
#[derive(Debug)]
pub struct Schema {
    root: Node,
    has_rules: bool,
}

impl Schema {
    /// Parses the `openAPIV3Schema` of a version. The error is the first mistake; its path begins with
    /// `openAPIV3Schema`.
    pub fn parse(schema: &Value) -> Result<Schema, FieldError> {
        let root = parse::parse(schema, ROOT)?;
        let has_rules = root.has_rules();
        Ok(Schema { root, has_rules })
    }

    /// Drops all fields that are not in the schema and returns their paths, sorted.
    ///
    /// `apiVersion`, `kind` and `metadata` of the object itself are kept.
    pub fn prune(&self, object: &mut Value) -> Vec<String> {
        prune::prune_object(object, &self.root)
    }

    /// Drops nulls that are neither allowed nor have a default, then applies defaults.
    pub fn default(&self, object: &mut Value) {
        default::fill(object, &self.root);
    }

    /// The errors of a pruned and defaulted object. `old` is the stored object that it replaces; errors in unchanged
    /// parts are ignored (ratcheting).
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = value_check::check(&self.root, new, old);
        errors.extend(embedded::check(new, &self.root));
        self.check_lists_and_rules(new, old, &mut errors);
        errors
    }

    /// The errors of an object whose status is updated.
    ///
    /// Messages have paths relative to the status, as in kube-apiserver.
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

    /// The field types of objects, for field ownership.
    pub fn types(&self) -> (Types, TypeId) {
        field_types::types(&self.root)
    }

    fn check_lists_and_rules(&self, new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if old.is_none_or(|old| list_type::check(old, &self.root).is_empty()) {
            errors.extend(list_type::check(new, &self.root));
        }
        if !self.has_rules {
            return;
        }
        // Rules can rely on types and limits.
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
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// A schema that uses every feature.
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

    /// JSON that resembles a schema.
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
        fn validation_never_panics(new in json_value(), old in json_value()) {
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
        fn parsing_never_panics(schema in schema_value(), object in json_value()) {
            if let Ok(schema) = Schema::parse(&schema) {
                schema.validate(&object, Some(&object));
            }
        }
    }

    #[test]
    fn schema_is_send_and_sync() {
        fn is_shared<T: Send + Sync>() {}
        is_shared::<Schema>();
    }

    #[test]
    fn rule_over_budget_is_not_evaluated() {
        let rule = json!([{"rule": "self.all(x, self.all(y, self.all(z, x + y + z > 0)))"}]);
        let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rule});
        let schema = Schema::parse(&json!({"type": "object", "properties": {"l": list}})).unwrap();
        assert_eq!(schema.validate(&json!({"l": vec![1; 20]}), None), []);
        // Evaluated, it would not end.
        let errors = schema.validate(&json!({"l": vec![1; 100_000]}), None);
        let [error] = errors.as_slice() else { panic!("{errors:?}") };
        assert!(error.detail.starts_with("validation failed due to running out of cost budget"), "{error}");
    }

    #[test]
    fn loops_over_many_small_lists_share_one_budget() {
        // The loops count against the budget although they are not evaluated.
        let rule = json!([{"rule": "true || self.all(x, self.all(y, x == y))"}]);
        let list = json!({"type": "array", "items": {"type": "integer"}, "x-kubernetes-validations": rule});
        let lists = json!({"type": "array", "items": list});
        let schema = Schema::parse(&json!({"type": "object", "properties": {"l": lists}})).unwrap();
        let errors = schema.validate(&json!({"l": vec![vec![1; 400]; 400]}), None);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }

    #[test]
    fn many_invalid_unchanged_elements_are_validated() {
        let item = json!({"type": "integer", "x-kubernetes-validations": [{"rule": "self > 0"}]});
        let list = json!({"type": "array", "items": item});
        let schema = Schema::parse(&json!({"type": "object", "properties": {"l": list}})).unwrap();
        // Compared with each other, they would take hours.
        let object = json!({"l": vec![0; 500_000]});
        assert_eq!(schema.validate(&object, Some(&object)), []);
    }

    #[test]
    fn long_names_of_parents_are_not_repeated() {
        let plain = json!({"type": "object"});
        let keeps = "x-kubernetes-preserve-unknown-fields";
        let embedded = json!({"type": "object", "x-kubernetes-embedded-resource": true, keeps: true});
        for each in [plain, embedded] {
            let is_embedded = each.get("x-kubernetes-embedded-resource").is_some();
            let map = json!({"type": "object", "additionalProperties": each});
            let schema = Schema::parse(&json!({"type": "object", "properties": {"m": map}})).unwrap();
            let fields: serde_json::Map<_, _> = (0..10_000).map(|number| (format!("f{number}"), json!(1))).collect();
            let below = if is_embedded { json!({"metadata": fields}) } else { Value::Object(fields) };
            let mut object = json!({"m": {}});
            object["m"]["y".repeat(1_000_000)] = below;
            let dropped = schema.prune(&mut object);
            assert!((1..100).contains(&dropped.len()), "{} paths of a million bytes", dropped.len());
        }
    }

    #[test]
    fn deepest_allowed_json_is_processed() {
        let mut deep = json!({});
        for _ in 0..128 {
            deep = json!({"a": [deep]});
        }
        let object = json!({"g": deep, "f": deep});
        assert!(!rich().validate(&object, Some(&object)).is_empty());
    }

    #[test]
    fn schema_errors_have_a_path() {
        let schema =
            json!({"type": "object", "properties": {"a": {"type": "array", "items": {"type": "string", "typo": 1}}}});
        let error = Schema::parse(&schema).unwrap_err();
        assert_eq!(error.to_string(), "openAPIV3Schema.properties[a].items.typo: Forbidden: the keyword is not known");
    }
}
