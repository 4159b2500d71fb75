//! What clients ask for that want more than JSON: kubectl, and other typed Go clients.
//!
//! The server knows when it is asked for and leaves the rest to the presentation that it was given. It must not know columns,
//! protobuf or OpenAPI.

use std::fmt::Debug;

use bytes::Bytes;
use jiff::Timestamp;
use muster_playground_schema::go_text::quoted;
use serde_json::{Value, json};

use super::answer::List;
use super::failure::Failure;
use crate::kinds::Kind;

/// The media type in which kubectl asks for the OpenAPI document of the version before (`/openapi/v2`).
pub const OPENAPI_V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// How objects are shown to, and read from, clients that want more than JSON.
pub trait Presentation: Debug + Send + Sync {
    /// A table of one object, which is in the version of `kind`. Only the first table of a watch has columns.
    fn table_of_object(&self, kind: &Kind, object: Value, form: TableForm, with_columns: bool, now: Timestamp)
    -> Value;

    /// The text of a table of a list.
    fn table_of_list(&self, list: &List, form: TableForm, now: Timestamp) -> Bytes;

    /// Reads a body in protobuf. One that does not name its kind is of the kind that is `expected`: its apiVersion and
    /// its name.
    fn read_protobuf(&self, bytes: &[u8], expected: (&str, &str)) -> Result<Value, ProtobufError>;

    /// The document about the served kinds that is asked for with the path behind `/openapi`, if there is one.
    fn openapi(&self, kinds: &[&Kind], path: &[&str]) -> Option<Document>;
}

/// How a table is wanted.
#[derive(Clone, Copy, Debug)]
pub struct TableForm {
    /// The version of `meta.k8s.io`.
    pub version: &'static str,
    /// How much of its object a row carries.
    pub include: Include,
}

/// How much of its object a row of a table carries.
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
    /// What the option `includeObject` says.
    pub(super) fn read(text: Option<&str>) -> Result<Self, Failure> {
        match text {
            None | Some("Metadata") => Ok(Include::Metadata),
            Some("None") => Ok(Include::Nothing),
            Some("Object") => Ok(Include::Object),
            Some(other) => Err(Failure::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {}: must be 'Metadata', 'Object', 'None', or empty",
                quoted(other)
            ))),
        }
    }
}

/// An object's metadata alone, in a version of `meta.k8s.io`.
pub fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata", "apiVersion": format!("meta.k8s.io/{version}"), "metadata": object["metadata"],
    })
}

/// A document about the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Document {
    /// Its form.
    pub media_type: &'static str,
    /// Its text, or bytes.
    pub text: Bytes,
}

/// Why a body in protobuf is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtobufError {
    /// Not this format at all.
    #[error("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")]
    NotProtobuf,
    /// The envelope cannot be opened.
    #[error("{0}")]
    Envelope(String),
    /// There is no message for this kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// The apiVersion that the envelope names.
        api_version: String,
        /// The kind that it names.
        kind: String,
    },
    /// What is inside cannot be read.
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
