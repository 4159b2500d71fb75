//! What kubectl and other typed Go clients ask of the playground's server: tables, protobuf bodies and OpenAPI.
//!
//! It sits above the server and is handed to it (`Server::with_presentation`), so that tests that only speak JSON do
//! not compile it.
//! It must not know requests, the store, or how a kind's objects are checked.

mod openapi;
mod protobuf;
mod table;
mod tables;

use bytes::Bytes;
use jiff::Timestamp;
use muster_playground_server::{Document, Kind, List, Presentation, ProtobufError, TableForm};
use serde_json::Value;

/// Shows what kubectl wants to see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kubectl;

impl Presentation for Kubectl {
    fn table_of_object(
        &self,
        kind: &Kind,
        object: Value,
        form: TableForm,
        with_columns: bool,
        now: Timestamp,
    ) -> Value {
        table::of_object(kind, object, form, with_columns, now)
    }

    fn table_of_list(&self, list: &List, form: TableForm, now: Timestamp) -> Bytes {
        table::of_list(list, form, now)
    }

    fn read_protobuf(&self, bytes: &[u8], expected: (&str, &str)) -> Result<Value, ProtobufError> {
        protobuf::read(bytes, expected)
    }

    fn openapi(&self, kinds: &[&Kind], path: &[&str]) -> Option<Document> {
        openapi::document(kinds, path)
    }
}

/// A value as text.
fn printed(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("a JSON value can be printed").into()
}
