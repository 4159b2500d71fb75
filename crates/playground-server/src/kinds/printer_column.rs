//! The printer columns of a version of a CustomResourceDefinition.

use muster_playground_schema::FieldError;
use muster_playground_schema::json_path::JsonPath;
use serde_json::Value;

/// One of `additionalPrinterColumns`. Missing fields are empty.
#[derive(Clone, Debug)]
pub struct PrinterColumn {
    /// Its heading.
    pub name: Box<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub data_type: Box<str>,
    /// The format of the type.
    pub format: Box<str>,
    /// Its description.
    pub description: Box<str>,
    /// Columns with a priority above zero are shown in wide output only.
    pub priority: i64,
    /// The JSON path of the cell, as written.
    pub json_path: Box<str>,
    /// The parsed path.
    pub path: JsonPath,
}

impl PrinterColumn {
    /// Parses the columns of a version of a definition.
    pub(super) fn all_of(version: &Value) -> Result<Vec<Self>, FieldError> {
        version["additionalPrinterColumns"].as_array().into_iter().flatten().map(Self::of).collect()
    }

    fn of(column: &Value) -> Result<Self, FieldError> {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let json_path = text("jsonPath");
        Ok(Self {
            name: text("name").into(),
            data_type: text("type").into(),
            format: text("format").into(),
            description: text("description").into(),
            priority: column["priority"].as_i64().unwrap_or_default(),
            json_path: json_path.into(),
            path: JsonPath::parse(json_path).map_err(|why| FieldError::invalid("jsonPath", json_path, why))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_json_path_is_named_in_the_error() {
        let version = json!({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "..a"}]});
        let error = PrinterColumn::all_of(&version).err().unwrap();
        assert_eq!((&*error.field, &error.value), ("jsonPath", &Some(json!("..a"))), "{error}");
    }
}
