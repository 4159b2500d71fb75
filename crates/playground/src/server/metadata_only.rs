//! How much of an object a client wants to see: all of it, or its metadata.
//!
//! Tables have their place here.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Value, json};

use super::answer::{Answer, printed};
use super::failure::Failure;

const OFFERED: [&str; 1] = ["application/json"];
/// What the real server offers as well.
const YAML: &str = "application/yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

/// What answers look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum View {
    Full,
    Metadata,
}

impl View {
    /// The first way among those that the client accepts which this server has; `path` is what is asked for.
    pub(crate) fn of(accept: Option<&str>, path: &str) -> Result<Self, Failure> {
        let Some(accept) = accept.map(str::trim).filter(|accept| !accept.is_empty()) else { return Ok(View::Full) };
        let is_text = !path.starts_with("/api") || path.ends_with("/log");
        let mut is_known = false;
        for offer in accept.split(',') {
            let mut parts = offer.split(';').map(str::trim);
            let media_type = parts.next().unwrap_or_default();
            let shape = parts.find_map(|part| part.strip_prefix("as="));
            is_known |= ["application/json", "*/*", YAML, PROTOBUF].contains(&media_type);
            match (media_type, shape) {
                ("application/json" | "*/*", None) => return Ok(View::Full),
                ("text/plain" | "text/*", _) if is_text => return Ok(View::Full),
                ("application/json", Some("PartialObjectMetadata" | "PartialObjectMetadataList")) => {
                    return Ok(View::Metadata);
                }
                _ => {}
            }
        }
        Err(if is_known { Failure::not_acceptable(&OFFERED) } else { Failure::nothing_acceptable(&OFFERED) })
    }

    /// An answer as it is wanted.
    pub(crate) fn of_answer(self, answer: Answer) -> Answer {
        match (self, answer) {
            (View::Metadata, Answer::Json { code, text, warnings }) => {
                Answer::Json { code, text: reduced(&text), warnings }
            }
            (_, answer) => answer,
        }
    }

    /// Lines of a watch as they are wanted.
    pub(crate) fn of_lines(self, chunk: Bytes) -> Bytes {
        if self == View::Full {
            return chunk;
        }
        let mut out = BytesMut::new();
        for line in chunk.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let Ok(mut event) = serde_json::from_slice::<Value>(line) else { continue };
            if event["type"] != "ERROR" {
                event["object"] = partial(&event["object"]);
            }
            out.put_slice(&printed(&event));
            out.put_u8(b'\n');
        }
        out.freeze()
    }
}

fn reduced(text: &Bytes) -> Bytes {
    let Ok(value) = serde_json::from_slice::<Value>(text) else { return text.clone() };
    match (value["kind"].as_str(), value["items"].as_array()) {
        (Some("Status"), _) => text.clone(),
        (_, Some(items)) => {
            let items: Vec<Value> = items.iter().map(partial).collect();
            // The real server makes this list anew, and has nothing where nothing is in it.
            let items = if items.is_empty() { Value::Null } else { json!(items) };
            printed(&json!({
                "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"], "items": items,
            }))
        }
        _ => printed(&partial(&value)),
    }
}

fn partial(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
