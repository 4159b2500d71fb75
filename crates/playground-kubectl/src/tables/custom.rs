//! Rows of custom kinds, by the printer columns of their definition.

use std::sync::LazyLock;

use jiff::Timestamp;
use muster_playground_schema::json_path::JsonPath;
use muster_playground_server::PrinterColumn;
use serde_json::{Number, Value, json};

use super::{AGE, NAME, age, cell_text, definition_of};

/// The columns of a kind whose definition has none.
static AGE_ALONE: LazyLock<[PrinterColumn; 1]> = LazyLock::new(|| {
    const PATH: &str = ".metadata.creationTimestamp";
    [PrinterColumn {
        name: AGE.name.into(),
        data_type: "date".into(),
        format: "".into(),
        description: AGE.description.into(),
        priority: 0,
        json_path: PATH.into(),
        path: JsonPath::parse(PATH).expect("a path"),
    }]
});

/// The columns of a definition, or the default one.
pub(super) fn or_age(columns: &[PrinterColumn]) -> &[PrinterColumn] {
    if columns.is_empty() { &*AGE_ALONE } else { columns }
}

/// The definitions of the columns.
pub(super) fn head(columns: &[PrinterColumn]) -> Value {
    let described = |column: &PrinterColumn| {
        let unsaid = format!("Custom resource definition column (in JSONPath format): {}", column.json_path);
        let description = if column.description.is_empty() { &*unsaid } else { &*column.description };
        json!({
            "name": column.name, "type": column.data_type, "format": column.format,
            "description": description, "priority": column.priority,
        })
    };
    std::iter::once(definition_of(&NAME)).chain(columns.iter().map(described)).collect()
}

/// The cells of an object.
pub(super) fn cells(columns: &[PrinterColumn], object: &Value, now: Timestamp) -> Vec<Value> {
    let cell = |column: &PrinterColumn| {
        column.path.first(object).map_or(Value::Null, |value| shown(&column.data_type, value, now))
    };
    std::iter::once(cell_text::name(object)).chain(columns.iter().map(cell)).collect()
}

/// A value as its column's type demands; null if it has another type.
fn shown(data_type: &str, value: &Value, now: Timestamp) -> Value {
    match (data_type, value) {
        // What a Go template prints for nil.
        ("string", Value::Null) => json!("<no value>"),
        ("string", value) => json!(cell_text::to_text(value)),
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

/// A number without a decimal point if it is an integer.
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
        let columns = [
            ("integer", ".spec.size"),
            ("number", ".spec.part"),
            ("string", ".spec.map"),
            ("boolean", ".spec.on"),
            ("date", ".spec.since"),
            ("date", ".spec.map.a"),
            ("integer", ".spec.map.a"),
            ("string", ".spec.gone"),
            ("string", ".spec.size"),
            ("integer", ".spec.part"),
            ("number", ".spec.size"),
            ("string", ".spec.null"),
        ];
        let columns = columns.map(|(data_type, path)| PrinterColumn {
            data_type: data_type.into(),
            path: JsonPath::parse(path).unwrap(),
            ..AGE_ALONE[0].clone()
        });
        let object = json!({"metadata": {"name": "x"}, "spec": {
            "size": 4, "part": 1.5, "map": {"a": "b"}, "on": true, "since": "2026-01-01T00:00:00Z", "null": null,
        }});
        let cells = json!(cells(&columns, &object, "2026-01-01T00:01:00Z".parse().unwrap()));
        let expected =
            json!(["x", 4, 1.5, "{\"a\":\"b\"}", true, "60s", "<invalid>", null, null, "4", 1, 4, "<no value>",]);
        assert_eq!(cells, expected);
    }

    #[test]
    fn kind_without_columns_shows_its_age() {
        let columns = or_age(&[]);
        assert_eq!(head(columns).pointer("/1/name"), Some(&json!("Age")));
        let object = json!({"metadata": {"name": "x", "creationTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(cells(columns, &object, "2026-01-01T00:01:00Z".parse().unwrap()), ["x", "60s"]);
    }
}
