//! Table responses: columns, rows, and the part of each object that the client requests.
//!
//! A list of many objects is serialized row by row, so that only one object at a time is in memory as a value.

use bytes::{BufMut, Bytes, BytesMut};
use jiff::Timestamp;
use muster_playground_server::{Include, Kind, List, TableForm, partial};
use serde_json::{Value, json};

use crate::tables::{Columns, default_of};
use crate::to_bytes;

/// The part of an object that its row includes.
fn included(object: Value, form: TableForm) -> Value {
    match form.include {
        Include::Nothing => Value::Null,
        Include::Metadata => partial(&object, form.version),
        Include::Object => object,
    }
}

fn head(version: &str, metadata: &Value, columns: &Value) -> Value {
    json!({
        "kind": "Table", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": metadata,
        "columnDefinitions": columns,
    })
}

/// A table of one object, in the API version of `kind`.
pub(super) fn of_object(kind: &Kind, object: Value, mut form: TableForm, with_columns: bool, now: Timestamp) -> Value {
    let columns = Columns::of(kind);
    let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
    let mut table = head(form.version, &metadata, &if with_columns { columns.head() } else { Value::Null });
    let mut row = columns.row(&kind.stored_shape(&object), now);
    // The bookmark that ends the initial events is always included.
    let is_mark = !object["metadata"]["annotations"]["k8s.io/initial-events-end"].is_null();
    if is_mark && form.include == Include::Nothing {
        form.include = Include::Metadata;
    }
    row["object"] = included(object, form);
    table["rows"] = json!([row]);
    table
}

/// A table of a list.
pub(super) fn of_list(list: &List, form: TableForm, now: Timestamp) -> Bytes {
    let (kind, columns) = (list.kind(), Columns::of(list.kind()));
    let mut metadata = list.metadata().clone();
    if let Some(fields) = metadata.as_object_mut() {
        fields.retain(|_, value| value != "");
    }
    let mut table = head(form.version, &metadata, &columns.head());
    if list.is_empty() {
        table["rows"] = columns.no_rows();
        return to_bytes(&table);
    }
    let marked = default_of(kind.group(), kind.plural(), list.stored());
    let mut text = BytesMut::from(&*to_bytes(&table));
    text.truncate(text.len() - 1);
    text.put_slice(b",\"rows\":[");
    for (index, object) in list.stored().enumerate() {
        if index > 0 {
            text.put_u8(b',');
        }
        let shown = kind.show(object);
        let mut row = columns.row(&kind.stored_shape(&shown), now);
        if marked == Some(index) {
            let name = shown["metadata"]["name"].as_str().unwrap_or_default();
            row["cells"][0] = json!(format!("{name} (default)"));
        }
        row["object"] = included(shown, form);
        text.put_slice(&to_bytes(&row));
    }
    text.put_slice(b"]}");
    text.freeze()
}
