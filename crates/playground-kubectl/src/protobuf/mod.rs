//! Protobuf bodies, which typed Go clients prefer: `k8s\0` and an envelope with the kind around a message.
//!
//! They are converted to the equivalent JSON and then handled like every body. Responses are always JSON, which every
//! client accepts. Must not depend on requests, nor on kinds beyond the table.

mod message;
mod table;
mod wire;

use muster_playground_server::ProtobufError;
use serde_json::{Map, Value, json};

use message::Decoder;
use table::TABLE;
use wire::{DecodeError, LENGTH_DELIMITED, Reader};

/// The prefix of every body.
const MAGIC: &[u8] = b"k8s\0";

/// The envelope around a message.
#[derive(Default)]
struct Envelope<'a> {
    api_version: String,
    kind: String,
    raw: &'a [u8],
}

/// Decodes a body. An envelope without a kind is of the `expected` kind: its apiVersion and its name.
pub(crate) fn read(bytes: &[u8], expected: (&str, &str)) -> Result<Value, ProtobufError> {
    let inner = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::NotProtobuf)?;
    let Envelope { api_version, kind, raw } = open(inner).map_err(|why| ProtobufError::Envelope(why.to_string()))?;
    let named = |written: String, expected: &str| if written.is_empty() { expected.to_owned() } else { written };
    let (api_version, kind) = (named(api_version, expected.0), named(kind, expected.1));
    let Some(id) = TABLE.kind(&api_version, &kind) else {
        return Err(ProtobufError::UnknownKind { api_version, kind });
    };
    let mut fields = Map::new();
    if let Err(why) = Decoder::default().message(id, raw, &mut fields) {
        return Err(ProtobufError::Message { api_version, kind, why: why.to_string() });
    }
    fields.insert("apiVersion".to_owned(), json!(api_version));
    fields.insert("kind".to_owned(), json!(kind));
    Ok(Value::Object(fields))
}

fn open(bytes: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    const NAME: &str = "Unknown";
    let mut envelope = Envelope::default();
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let tag = reader.tag(NAME)?;
        match (tag.number, tag.wire_type) {
            (1, LENGTH_DELIMITED) => name(reader.length_delimited()?, &mut envelope)?,
            (2, LENGTH_DELIMITED) => envelope.raw = reader.length_delimited()?,
            _ => reader.skip(tag, NAME)?,
        }
    }
    Ok(envelope)
}

fn name(bytes: &[u8], envelope: &mut Envelope<'_>) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let tag = reader.tag("TypeMeta")?;
        let text = |piece| String::from_utf8_lossy(piece).into_owned();
        match (tag.number, tag.wire_type) {
            (1, LENGTH_DELIMITED) => envelope.api_version = text(reader.length_delimited()?),
            (2, LENGTH_DELIMITED) => envelope.kind = text(reader.length_delimited()?),
            _ => reader.skip(tag, "TypeMeta")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
