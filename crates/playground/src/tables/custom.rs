//! Rows of custom kinds, by the columns that their definition writes.

use jiff::Timestamp;
use serde_json::{Number, Value, json};

use super::{AGE, NAME, age, definition_of, words};
use crate::schema::json_path::JsonPath;

/// The columns of one version of a custom kind.
pub(crate) struct CustomSheet {
    head: Value,
    columns: Vec<Column>,
}

struct Column {
    path: JsonPath,
    data_type: Box<str>,
}

impl CustomSheet {
    /// Reads the columns of a version of a definition.
    pub(crate) fn of(version: &Value) -> Result<Self, String> {
        let written = words::list(&version["additionalPrinterColumns"]);
        let age = json!({"name": AGE.name, "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": AGE.about});
        let written = if written.is_empty() { std::slice::from_ref(&age) } else { written };
        let mut sheet = Self { head: json!([definition_of(&NAME)]), columns: Vec::new() };
        for column in written {
            let path = words::text(&column["jsonPath"]);
            let data_type = words::text(&column["type"]);
            let unsaid = format!("Custom resource definition column (in JSONPath format): {path}");
            if let Some(head) = sheet.head.as_array_mut() {
                head.push(json!({
                    "name": words::text(&column["name"]), "type": data_type, "format": words::text(&column["format"]),
                    "description": words::text_or(&column["description"], &unsaid),
                    "priority": words::number(&column["priority"]),
                }));
            }
            let path = JsonPath::parse(path).map_err(|why| format!("the path {path:?} {why}"))?;
            sheet.columns.push(Column { path, data_type: data_type.into() });
        }
        Ok(sheet)
    }

    pub(super) fn head(&self) -> Value {
        self.head.clone()
    }

    pub(super) fn cells(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let cell = |column: &Column| {
            column.path.first(object).map_or(Value::Null, |value| shown(&column.data_type, value, now))
        };
        std::iter::once(words::name(object)).chain(self.columns.iter().map(cell)).collect()
    }
}

/// A value as its column's type wants it; nothing if it is of another type.
fn shown(data_type: &str, value: &Value, now: Timestamp) -> Value {
    match (data_type, value) {
        // What a template of Go prints for nothing.
        ("string", Value::Null) => json!("<no value>"),
        ("string", value) => json!(words::written(value)),
        ("integer", Value::Number(number)) => whole(number).map_or(Value::Null, Value::from),
        ("number", Value::Number(number)) => exact(number),
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(date)) => json!(match date.as_str() {
            "" | "null" => age::since(&Value::Null, now),
            _ => age::read(value).map_or_else(|| "<invalid>".to_owned(), |then| age::between(then, now)),
        }),
        _ => Value::Null,
    }
}

fn whole(number: &Number) -> Option<i64> {
    number.as_i64().or_else(|| number.as_f64().map(|float| float as i64))
}

/// A number without a point where it needs none.
fn exact(number: &Number) -> Value {
    match number.as_f64() {
        Some(float) if float.fract() != 0.0 => json!(float),
        _ => whole(number).map_or(Value::Null, Value::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_by_type() {
        let column =
            |name: &str, data_type: &str, path: &str| json!({"name": name, "type": data_type, "jsonPath": path});
        let version = json!({"additionalPrinterColumns": [
            column("Size", "integer", ".spec.size"), column("Part", "number", ".spec.part"),
            column("Map", "string", ".spec.map"), column("On", "boolean", ".spec.on"),
            column("Since", "date", ".spec.since"), column("Bad", "date", ".spec.map.a"),
            column("Text", "integer", ".spec.map.a"), column("Gone", "string", ".spec.gone"),
            column("Number", "string", ".spec.size"), column("Whole", "integer", ".spec.part"),
            column("Float", "number", ".spec.size"), column("Null", "string", ".spec.null"),
        ]});
        let object = json!({"metadata": {"name": "x"}, "spec": {
            "size": 4, "part": 1.5, "map": {"a": "b"}, "on": true, "since": "2026-01-01T00:00:00Z", "null": null,
        }});
        let sheet = CustomSheet::of(&version).unwrap();
        let cells = json!(sheet.cells(&object, "2026-01-01T00:01:00Z".parse().unwrap()));
        let expected =
            json!(["x", 4, 1.5, "{\"a\":\"b\"}", true, "60s", "<invalid>", null, null, "4", 1, 4, "<no value>",]);
        assert_eq!(cells, expected);
    }

    #[test]
    fn a_kind_without_columns_shows_its_age() {
        let sheet = CustomSheet::of(&json!({})).unwrap();
        assert_eq!(sheet.head().pointer("/1/name"), Some(&json!("Age")));
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(sheet.cells(&object, "2026-01-01T00:01:00Z".parse().unwrap()), ["x", "60s"]);
    }

    #[test]
    fn an_unreadable_path_is_named() {
        let version = json!({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "..a"}]});
        let why = CustomSheet::of(&version).err().unwrap();
        assert!(why.contains("\"..a\""), "{why}");
    }
}
