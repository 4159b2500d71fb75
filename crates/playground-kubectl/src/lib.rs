//! What kubectl and other typed Go clients need of the playground's server: tables, protobuf bodies and OpenAPI.
//!
//! It is passed to the server (`Server::with_presentation`), so that tests that only use JSON do not compile it.
//! Must not depend on requests, the store, or the validation of objects.

mod openapi;
mod protobuf;
mod table;
mod tables;

use bytes::Bytes;
use jiff::Timestamp;
use muster_playground_server::{Document, Kind, List, Presentation, ProtobufError, TableForm};
use serde_json::Value;

/// The presentation for kubectl.
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

/// A value as JSON text.
fn to_bytes(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("a JSON value can be printed").into()
}
