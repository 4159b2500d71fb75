//! Validates the printer columns of CustomResourceDefinitions.
//!
//! In kube-apiserver, columns that all versions have in common are at the top level, and so are the paths of their
//! errors.

use muster_playground_schema::FieldError;
use muster_playground_schema::json_path::JsonPath;
use serde_json::Value;

const TYPES: [&str; 5] = ["boolean", "date", "integer", "number", "string"];
const FORMATS: [&str; 8] = ["byte", "date", "date-time", "double", "float", "int32", "int64", "password"];

/// The errors of the columns of all versions.
pub(super) fn errors(versions: &[Value]) -> Vec<FieldError> {
    let columns = |version: &Value| version["additionalPrinterColumns"].clone();
    let Some(first) = versions.first().map(columns) else { return Vec::new() };
    if versions.iter().all(|version| columns(version) == first) {
        return list_errors(&first, "spec.additionalPrinterColumns");
    }
    let of_version = |(index, version): (usize, &Value)| {
        list_errors(&version["additionalPrinterColumns"], &format!("spec.versions[{index}].additionalPrinterColumns"))
    };
    versions.iter().enumerate().flat_map(of_version).collect()
}

fn list_errors(columns: &Value, path: &str) -> Vec<FieldError> {
    let columns = columns.as_array().into_iter().flatten().enumerate();
    columns.flat_map(|(index, column)| column_errors(column, &format!("{path}[{index}]"))).collect()
}

fn column_errors(column: &Value, path: &str) -> Vec<FieldError> {
    let text = |field: &str| column[field].as_str().unwrap_or_default();
    let mut errors = Vec::new();
    if text("name").is_empty() {
        errors.push(FieldError::required(format!("{path}.name"), ""));
    }
    let must = |known: &[&str]| format!("must be one of {}", known.join(","));
    match text("type") {
        "" => errors.push(FieldError::required(format!("{path}.type"), must(&TYPES))),
        known if TYPES.contains(&known) => {}
        other => errors.push(FieldError::invalid(format!("{path}.type"), other, must(&TYPES))),
    }
    if !text("format").is_empty() && !FORMATS.contains(&text("format")) {
        errors.push(FieldError::invalid(format!("{path}.format"), text("format"), must(&FORMATS)));
    }
    let path = format!("{path}.JSONPath");
    match text("jsonPath") {
        "" => errors.push(FieldError::required(path, "")),
        written if !written.starts_with('.') => {
            errors.push(FieldError::invalid(path, written, "must be a simple json path starting with ."));
        }
        // kube-apiserver accepts the path and shows no cells.
        written => errors.extend(JsonPath::parse(written).err().map(|why| FieldError::invalid(path, written, why))),
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn messages(columns: &Value) -> Vec<String> {
        errors(&[json!({ "additionalPrinterColumns": columns })]).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn all_fields_of_columns_are_validated() {
        let bad = json!([{"type": "text", "format": "wide", "jsonPath": "spec"}, {"name": "A", "type": "date", "jsonPath": ".."}]);
        let found = messages(&bad);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(found[0].starts_with("spec.additionalPrinterColumns[0].name: Required value"), "{found:?}");
        assert!(found[4].contains("[1].JSONPath") && found[4].contains("not supported"), "{found:?}");
        let good = json!([{"name": "A", "type": "date", "format": "date-time", "jsonPath": ".spec.a"}]);
        assert!(messages(&good).is_empty());
    }

    #[test]
    fn errors_name_versions_that_differ() {
        let versions = [json!({}), json!({"additionalPrinterColumns": [{"name": "A", "type": "date"}]})];
        let found: Vec<String> = errors(&versions).iter().map(ToString::to_string).collect();
        assert_eq!(found, ["spec.versions[1].additionalPrinterColumns[0].JSONPath: Required value"]);
    }
}
