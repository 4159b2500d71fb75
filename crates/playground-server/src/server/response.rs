//! The result of a successful request, before it is encoded as HTTP.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use muster_playground_store::Object;
use serde_json::{Value, json};

use super::presentation::Document;
use crate::kinds::Kind;

/// A list of objects.
pub struct List {
    pub(crate) kind: Arc<Kind>,
    pub(crate) metadata: Value,
    pub(crate) items: Vec<Arc<Object>>,
    pub(crate) warnings: Vec<String>,
}

/// A successful response.
pub(crate) enum ApiResponse {
    /// One JSON document.
    Json { code: u16, text: Bytes, warnings: Vec<String> },
    /// Objects of a kind, not yet in the requested form.
    List(List),
    /// A document about the server, with its own media type.
    Document(Document),
    /// Plain text.
    Text { code: u16, text: String },
    /// No content.
    NoContent,
}

impl ApiResponse {
    pub(crate) fn value(code: u16, value: &Value) -> Self {
        ApiResponse::Json { code, text: encode(value), warnings: Vec::new() }
    }

    /// An object in the requested version.
    pub(crate) fn object(code: u16, kind: &Kind, object: &Object) -> Self {
        ApiResponse::Json { code, text: encode_object(kind, object), warnings: Vec::new() }
    }

    pub(crate) fn with_warnings(mut self, more: Vec<String>) -> Self {
        if let ApiResponse::Json { warnings, .. } | ApiResponse::List(List { warnings, .. }) = &mut self {
            warnings.extend(more);
        }
        self
    }

    /// The response for an unknown path.
    pub(crate) fn page_not_found() -> Self {
        ApiResponse::Text { code: 404, text: "404 page not found\n".to_owned() }
    }

    /// A `Success` Status, for verbs without another result.
    pub(crate) fn success(code: u16, details: Option<Value>) -> Self {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        match details {
            Some(details) => status["details"] = details,
            // Subresources respond with a bare Status that has a code.
            None => status["code"] = json!(code),
        }
        ApiResponse::value(code, &status)
    }

    /// Objects of a kind.
    pub(crate) fn list(kind: &Arc<Kind>, metadata: Value, items: Vec<Arc<Object>>) -> Self {
        ApiResponse::List(List { kind: Arc::clone(kind), metadata, items, warnings: Vec::new() })
    }
}

/// The size of a chunk of a list: a client that does not read holds no more of it than this.
const CHUNK_SIZE: usize = 256 * 1024;

impl List {
    /// The kind and version of the request.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The metadata of the list itself.
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The objects as they are stored, decoded one by one.
    pub fn stored(&self) -> impl Iterator<Item = Value> {
        self.items.iter().map(|object| object.value())
    }

    /// Whether its JSON fits into one chunk.
    pub(crate) fn is_one_chunk(&self) -> bool {
        self.items.iter().map(|object| object.text.len()).sum::<usize>() < CHUNK_SIZE
    }

    /// The JSON in chunks, with the items as they are stored.
    pub(crate) fn chunks(self) -> impl Iterator<Item = Bytes> {
        let mut next = 0;
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let mut text = if next == 0 { self.head() } else { BytesMut::new() };
            while text.len() < CHUNK_SIZE
                && let Some(object) = self.items.get(next)
            {
                if next > 0 {
                    text.put_u8(b',');
                }
                text.put_slice(&encode_object(&self.kind, object));
                next += 1;
            }
            if next == self.items.len() {
                text.put_slice(b"]}");
                is_over = true;
            }
            Some(text.freeze())
        })
    }

    fn head(&self) -> BytesMut {
        let kind = &self.kind;
        let head =
            json!({"kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(), "metadata": self.metadata});
        let mut text = BytesMut::from(&*encode(&head));
        text.truncate(text.len() - 1);
        text.put_slice(b",\"items\":[");
        text
    }
}

/// The JSON of an object in the version of `kind`.
pub(crate) fn encode_object(kind: &Kind, object: &Object) -> Bytes {
    if kind.is_stored_form() { object.text.clone() } else { encode(&kind.show(object.value())) }
}

pub(crate) fn encode(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("a JSON value can be encoded").into()
}
