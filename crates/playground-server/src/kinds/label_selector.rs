//! Validates and matches label selectors of objects (`matchLabels`, `matchExpressions`).
//! Must not depend on the kind that contains the selector.

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::{label_key_errors, label_value_errors};
use serde_json::Value;

use super::metadata::label_errors;

/// The errors of a selector. A missing selector is valid.
pub(super) fn validate(selector: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = label_errors(&selector["matchLabels"], &format!("{path}.matchLabels"));
    for (index, expression) in selector["matchExpressions"].as_array().into_iter().flatten().enumerate() {
        errors.extend(expression_errors(expression, &format!("{path}.matchExpressions[{index}]")));
    }
    errors
}

fn expression_errors(expression: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let values: Vec<&Value> = expression["values"].as_array().into_iter().flatten().collect();
    let field = format!("{path}.values");
    match expression["operator"].as_str().unwrap_or_default() {
        "In" | "NotIn" if values.is_empty() => {
            errors.push(FieldError::required(&*field, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&*field, detail));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        operator => {
            errors.push(FieldError::invalid(format!("{path}.operator"), operator, "not a valid selector operator"));
        }
    }
    let key = expression["key"].as_str().unwrap_or_default();
    let why = label_key_errors(key).into_iter();
    errors.extend(why.map(|why| FieldError::invalid(format!("{path}.key"), key, why)));
    for (index, value) in values.into_iter().enumerate() {
        let why = label_value_errors(value.as_str().unwrap_or_default()).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{field}[{index}]"), value.clone(), why)));
    }
    errors
}

/// Whether the labels match. A missing selector matches nothing.
pub(super) fn matches(selector: &Value, labels: &Value) -> bool {
    let pairs = selector["matchLabels"].as_object().into_iter().flatten();
    let expressions = selector["matchExpressions"].as_array().into_iter().flatten();
    selector.is_object()
        && pairs.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|expression| expression_matches(expression, labels))
}

fn expression_matches(expression: &Value, labels: &Value) -> bool {
    let label = labels.get(expression["key"].as_str().unwrap_or_default());
    let listed = || expression["values"].as_array().into_iter().flatten().any(|value| Some(value) == label);
    match expression["operator"].as_str().unwrap_or_default() {
        "In" => listed(),
        "NotIn" => !listed(),
        "Exists" => label.is_some(),
        "DoesNotExist" => label.is_none(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_must_match_all_requirements() {
        let labels = json!({"a": "b", "c": "d"});
        let expression = |key: &str, operator: &str, values: Value| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        for (selector, expected) in [
            (json!({}), true),
            (Value::Null, false),
            (json!({"matchLabels": {"a": "b"}}), true),
            (json!({"matchLabels": {"a": "x"}}), false),
            (expression("a", "In", json!(["b", "x"])), true),
            (expression("e", "In", json!(["b"])), false),
            (expression("e", "NotIn", json!(["b"])), true),
            (expression("c", "Exists", Value::Null), true),
            (expression("c", "DoesNotExist", Value::Null), false),
        ] {
            assert_eq!(matches(&selector, &labels), expected, "{selector}");
        }
    }

    #[test]
    fn selector_errors_have_a_path() {
        let selector = json!({"matchLabels": {"a": "b!"}, "matchExpressions": [
            {"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["x"]},
            {"key": "!", "operator": "Near"},
        ]});
        let fields: Vec<_> = validate(&selector, "s").into_iter().map(|error| error.field).collect();
        let expected = [
            "s.matchLabels",
            "s.matchExpressions[0].values",
            "s.matchExpressions[1].values",
            "s.matchExpressions[2].operator",
            "s.matchExpressions[2].key",
        ];
        assert_eq!(fields, expected);
    }
}
