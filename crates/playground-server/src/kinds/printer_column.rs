//! The columns that a version of a CustomResourceDefinition asks for, read once.

use muster_playground_schema::json_path::JsonPath;
use serde_json::Value;

/// One of `additionalPrinterColumns`. What was not written is empty.
#[derive(Clone, Debug)]
pub struct PrinterColumn {
    /// Its heading.
    pub name: Box<str>,
    /// `string`, `integer`, `number`, `boolean` or `date`.
    pub data_type: Box<str>,
    /// What is more to say of the type.
    pub format: Box<str>,
    /// What it shows, for people.
    pub description: Box<str>,
    /// Columns above zero are shown to those who ask for wide output.
    pub priority: i64,
    /// Where the cell is found, as it was written.
    pub json_path: Box<str>,
    /// The same, read.
    pub path: JsonPath,
}

impl PrinterColumn {
    /// Reads the columns of a version of a definition.
    pub(super) fn all_of(version: &Value) -> Result<Vec<Self>, String> {
        version["additionalPrinterColumns"].as_array().into_iter().flatten().map(Self::of).collect()
    }

    fn of(column: &Value) -> Result<Self, String> {
        let text = |field: &str| column[field].as_str().unwrap_or_default();
        let json_path = text("jsonPath");
        Ok(Self {
            name: text("name").into(),
            data_type: text("type").into(),
            format: text("format").into(),
            description: text("description").into(),
            priority: column["priority"].as_i64().unwrap_or_default(),
            json_path: json_path.into(),
            path: JsonPath::parse(json_path).map_err(|why| format!("the path {json_path:?} {why}"))?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_unreadable_path_is_named() {
        let version = json!({"additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": "..a"}]});
        let why = PrinterColumn::all_of(&version).err().unwrap();
        assert!(why.contains("\"..a\""), "{why}");
    }
}
