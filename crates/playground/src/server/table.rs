//! Tables as answers carry them: columns, rows, and as much of each object as the client wants beside its row.
//!
//! A list of many objects is turned into text row by row, so that one object at a time is in memory as a value.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::{List, printed};
use super::failure::Failure;
use super::view::partial;
use crate::kinds::Kind;
use crate::tables;

/// How much of its object a row carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

impl Include {
    /// What the option `includeObject` says.
    pub(super) fn read(text: Option<&str>) -> Result<Self, Failure> {
        match text {
            None | Some("Metadata") => Ok(Include::Metadata),
            Some("None") => Ok(Include::Nothing),
            Some("Object") => Ok(Include::Object),
            Some(other) => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                crate::schema::go_text::quoted(other)
            ))),
        }
    }

    fn of(self, object: Value, version: &str) -> Value {
        match self {
            Include::Nothing => Value::Null,
            Include::Metadata => partial(&object, version),
            Include::Object => object,
        }
    }
}

fn head(version: &str, metadata: &Value, columns: &Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
        "columnDefinitions": columns,
    })
}

/// A table of one object, in the version of `kind`.
pub(super) fn table_of_object(
    kind: &Kind,
    object: Value,
    version: &str,
    include: Include,
    with_columns: bool,
    now: Timestamp,
) -> Value {
    let columns = kind.columns();
    let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
    let mut table = head(version, &metadata, &if with_columns { columns.head() } else { Value::Null });
    let mut row = columns.row(&kind.stored_shape(&object), now);
    // The mark that ends the initial events is seen in any case.
    let is_mark = !object["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null();
    let include = if is_mark && include == Include::Nothing { Include::Metadata } else { include };
    row["object"] = include.of(object, version);
    table["rows"] = json!([row]);
    table
}

/// A table of a list.
pub(super) fn table_of_list(list: &List, version: &str, include: Include, now: Timestamp) -> Bytes {
    let (kind, columns) = (&*list.kind, list.kind.columns());
    let mut metadata = list.metadata.clone();
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|_, value| value != "");
    }
    let mut table = head(version, &metadata, &columns.head());
    if list.items.is_empty() {
        table["rows"] = columns.no_rows();
        return printed(&table);
    }
    let marked = tables::default_of(&kind.group, &kind.plural, list.items.iter().map(|object| object.value()));
    let mut text = BytesMut::from(&*printed(&table));
    text.truncate(text.len() - 1);
    text.put_slice(b",\"rows\":[");
    for (index, object) in list.items.iter().enumerate() {
        if index > 0 {
            text.put_u8(b',');
        }
        let shown = kind.show(object.value());
        let mut row = columns.row(&kind.stored_shape(&shown), now);
        if marked == Some(index) {
            row["cells"][0] = json!(format!("{} (default)", object.key.name));
        }
        row["object"] = include.of(shown, version);
        text.put_slice(&printed(&row));
    }
    text.put_slice(b"]}");
    text.freeze()
}
