//! What a request is answered with, before it becomes HTTP.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use crate::kinds::Kind;
use crate::store::Object;

/// A good answer.
pub(crate) enum Answer {
    /// One JSON document.
    Json { code: u16, text: Bytes, warnings: Vec<String> },
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
        if let Answer::Json { warnings, .. } = &mut self {
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

    /// A list of objects, its items as they are stored.
    pub(crate) fn list(kind: &Kind, metadata: &Value, items: &[Arc<Object>]) -> Self {
        let head =
            json!({"kind": format!("{}List", kind.kind), "apiVersion": kind.api_version(), "metadata": metadata});
        let mut text = BytesMut::from(&*printed(&head));
        text.truncate(text.len() - 1);
        text.put_slice(b",\"items\":[");
        for (index, object) in items.iter().enumerate() {
            if index > 0 {
                text.put_u8(b',');
            }
            text.put_slice(&shown(kind, object));
        }
        text.put_slice(b"]}");
        Answer::Json { code: 200, text: text.freeze(), warnings: Vec::new() }
    }
}

/// The text of an object in the version of `kind`.
pub(crate) fn shown(kind: &Kind, object: &Object) -> Bytes {
    if kind.shows_as_stored() { object.text.clone() } else { printed(&kind.show(object.value())) }
}

pub(crate) fn printed(value: &Value) -> Bytes {
    serde_json::to_vec(value).expect("a JSON value can be printed").into()
}
