//! The extension point for clients that need more than JSON: kubectl and other typed Go clients.
//!
//! The server detects such requests and leaves the rest to a presentation. Must not depend on columns, protobuf or
//! OpenAPI.

use std::fmt::Debug;

use bytes::Bytes;
use jiff::Timestamp;
use muster_playground_schema::go_text::quoted;
use serde_json::{Value, json};

use super::response::List;
use super::status_error::StatusError;
use crate::kinds::Kind;

/// The media type in which kubectl requests the OpenAPI v2 document (`/openapi/v2`).
pub const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Encodes and decodes objects for clients that need more than JSON.
pub trait Presentation: Debug + Send + Sync {
    /// A table of one object, which is in the version of `kind`. Only the first table of a watch has columns.
    fn table_of_object(&self, kind: &Kind, object: Value, form: TableForm, with_columns: bool, now: Timestamp)
    -> Value;

    /// The JSON of a table of a list.
    fn table_of_list(&self, list: &List, form: TableForm, now: Timestamp) -> Bytes;

    /// Decodes a protobuf body. `expected` (apiVersion and kind) applies if the body does not name its kind.
    fn read_protobuf(&self, bytes: &[u8], expected: (&str, &str)) -> Result<Value, ProtobufError>;

    /// The OpenAPI document at the path after `/openapi`, if there is one.
    fn openapi(&self, kinds: &[&Kind], path: &[&str]) -> Option<Document>;
}

/// The requested form of a table.
#[derive(Clone, Copy, Debug)]
pub struct TableForm {
    /// The version of `meta.k8s.io`.
    pub version: &'static str,
    /// How much of its object a row includes.
    pub include: Include,
}

/// How much of its object a row of a table includes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    Nothing,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Parses the option `includeObject`.
    pub(super) fn read(text: Option<&str>) -> Result<Self, StatusError> {
        match text {
            None | Some("Metadata") => Ok(Include::Metadata),
            Some("None") => Ok(Include::Nothing),
            Some("Object") => Ok(Include::Object),
            Some(other) => Err(StatusError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                quoted(other)
            ))),
        }
    }
}

/// An object's metadata only, in a version of `meta.k8s.io`.
pub fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": object["metadata"],
    })
}

/// A document about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its media type.
    pub media_type: &'static str,
    /// Its content.
    pub text: Bytes,
}

/// Why a protobuf body is rejected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// The body is not protobuf.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotProtobuf,
    /// The envelope cannot be decoded.
    #[error("{0}")]
    Envelope(String),
    /// There is no message type for this kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The apiVersion that the envelope names.
        api_version: String,
        /// The kind that it names.
        kind: String,
    },
    /// The message cannot be decoded.
    #[error("{why}")]
    Message {
        /// The apiVersion of the message.
        api_version: String,
        /// Its kind.
        kind: String,
        /// What is wrong with it.
        why: String,
    },
}
