//! What a request is answered with, before it becomes HTTP.

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

/// A good answer.
pub(crate) enum Answer {
    /// One JSON document.
    Json { code: u16, text: Bytes, warnings: Vec<String> },
    /// Objects of a kind, not yet in the form that the client wants.
    List(List),
    /// A document about the server, in a form with a name of its own.
    Document(Document),
    /// A few words.
    Text { code: u16, text: String },
    /// Good, and nothing to say.
    Nothing,
}

impl Answer {
    pub(crate) fn value(code: u16, value: &Value) -> Self {
        Answer::Json { code, text: printed(value), warnings: Vec::new() }
    }

    /// An object in the version that was asked for.
    pub(crate) fn object(code: u16, kind: &Kind, object: &Object) -> Self {
        Answer::Json { code, text: shown(kind, object), warnings: Vec::new() }
    }

    pub(crate) fn with_warnings(mut self, more: Vec<String>) -> Self {
        if let Answer::Json { warnings, .. } | Answer::List(List { warnings, .. }) = &mut self {
            warnings.extend(more);
        }
        self
    }

    /// What is said about a path that means nothing.
    pub(crate) fn page_not_found() -> Self {
        Answer::Text { code: 404, text: "404 page not found\n".to_owned() }
    }

    /// `Success`, for verbs that answer with nothing else.
    pub(crate) fn success(code: u16, details: Option<Value>) -> Self {
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
        match details {
            Some(details) => status["details"] = details,
            // Subresources answer with a bare Status that carries its code.
            None => status["code"] = json!(code),
        }
        Answer::value(code, &status)
    }

    /// Objects of a kind.
    pub(crate) fn list(kind: &Arc<Kind>, metadata: Value, items: Vec<Arc<Object>>) -> Self {
        Answer::List(List { kind: Arc::clone(kind), metadata, items, warnings: Vec::new() })
    }
}

/// How much of a list is put together at a time: a client that does not read holds no more of it than this.
const PIECE_SIZE: usize = 256 * 1024;

impl List {
    /// The kind and version that was asked for.
    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    /// The metadata of the list itself.
    pub fn metadata(&self) -> &Value {
        &self.metadata
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The objects as they are stored, read one by one.
    pub fn stored(&self) -> impl Iterator<Item = Value> {
        self.items.iter().map(|object| object.value())
    }

    /// Whether its text is one piece.
    pub(crate) fn is_small(&self) -> bool {
        self.items.iter().map(|object| object.text.len()).sum::<usize>() < PIECE_SIZE
    }

    /// The text, its items as they are stored, piece by piece.
    pub(crate) fn pieces(self) -> impl Iterator<Item = Bytes> {
        let mut next = 0;
        let mut is_over = false;
        std::iter::from_fn(move || {
            if is_over {
                return None;
            }
            let mut text = if next == 0 { self.head() } else { BytesMut::new() };
            while text.len() < PIECE_SIZE
                && let Some(object) = self.items.get(next)
            {
                if next > 0 {
                    text.put_u8(b',');
                }
                text.put_slice(&shown(&self.kind, object));
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
        let mut text = BytesMut::from(&*printed(&head));
        text.truncate(text.len() - 1);
        text.put_slice(b",\"items\":[");
        text
    }
}

/// The text of an object in the version of `kind`.
pub(crate) fn shown(kind: &Kind, object: &Object) -> Bytes {
    if kind.shows_as_stored() { object.text.clone() } else { printed(&kind.show(object.value())) }
}

pub(crate) fn printed(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("a JSON value can be printed").into()
}
