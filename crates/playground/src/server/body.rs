//! From the bytes of a request to a value of the kind that its path names.
//!
//! Invariant: whatever the bytes are, the answer is a value or a Failure; size and depth are bounded.
//! It must not know the store.

use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::failure::Failure;
use super::query::UnknownFields;
use crate::kinds::Kind;

/// The most bytes of a request's body.
pub(crate) const BODY_SIZE_MAX: usize = 3 * 1024 * 1024;
const MEDIA_TYPES: [&str; 2] = ["application/json", "application/yaml"];
/// The most unknown fields that a client is told about.
const WARNINGS_MAX: usize = 50;

/// The media type of a content type header, without its parameters.
pub(crate) fn media_type(header: Option<&str>) -> &str {
    header.and_then(|text| text.split(';').next()).unwrap_or_default().trim()
}

/// Refuses bodies that are not JSON. An empty type means JSON.
pub(crate) fn require_json(media_type: &str) -> Result<(), Failure> {
    match media_type {
        "" | "application/json" => Ok(()),
        _ => Err(Failure::unsupported_media_type(&MEDIA_TYPES[..1])),
    }
}

/// Parses JSON, and tells which fields were there twice.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), serde_json::Error> {
    let mut twice = Vec::new();
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let value = Noting { path: String::new(), twice: &mut twice }.deserialize(&mut reader)?;
    reader.end()?;
    Ok((value, twice))
}

/// A client's object, read as the kind of its path.
pub(crate) struct Read {
    pub(crate) value: Value,
    /// What the client is told about fields that were not understood.
    pub(crate) warnings: Vec<String>,
}

/// Reads an object that a client sent.
pub(crate) fn read(kind: &Kind, bytes: &[u8], unknown: UnknownFields) -> Result<Read, Failure> {
    let (mut value, twice) = parse(bytes).map_err(|error| unrecognised(kind, &error.to_string(), bytes))?;
    identify(kind, &mut value)?;
    read_value(kind, value, &twice, unknown)
}

/// Reads a value as the kind, once its apiVersion and kind are known to be right.
pub(crate) fn read_value(
    kind: &Kind,
    mut value: Value,
    twice: &[String],
    unknown: UnknownFields,
) -> Result<Read, Failure> {
    if value["metadata"].is_null() {
        value["metadata"] = Value::Object(Map::new());
    }
    let (value, dropped) = kind.read(value).map_err(|error| unreadable(kind, &error.to_string()))?;
    let mut problems: Vec<String> = twice.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    problems.extend(dropped.iter().map(|path| format!("unknown field \"{path}\"")));
    if unknown == UnknownFields::Refuse && !problems.is_empty() {
        return Err(unreadable(kind, &format!("strict decoding error: {}", problems.join(", "))));
    }
    let told =
        if unknown == UnknownFields::Warn { problems.into_iter().take(WARNINGS_MAX).collect() } else { Vec::new() };
    Ok(Read { value, warnings: told })
}

/// Checks that the object is of the kind that the path names; what it leaves out is filled in.
fn identify(kind: &Kind, value: &mut Value) -> Result<(), Failure> {
    let Some(fields) = value.as_object_mut() else {
        return Err(unreadable(kind, "couldn't get version/kind; json parse error: the body must be a JSON object"));
    };
    let text = |fields: &Map<String, Value>, field: &str| match fields.get(field) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(other) => Err(unreadable(kind, &format!("{field}: invalid type: {other}, expected a string"))),
    };
    let (written_kind, written_version) = (text(fields, "kind")?, text(fields, "apiVersion")?);
    let api_version = kind.api_version();
    if !written_version.is_empty() && written_version != api_version {
        return Err(Failure::bad_request(format!(
            "the API version in the data ({written_version}) does not match the expected API version ({api_version})"
        )));
    }
    if !written_kind.is_empty() && *written_kind != *kind.kind {
        return Err(Failure::bad_request(format!(
            "{written_kind} in version {:?} cannot be handled as a {}: the kind in the data does not match the expected kind",
            kind.version, kind.kind
        )));
    }
    fields.insert("apiVersion".to_owned(), api_version.into());
    fields.insert("kind".to_owned(), kind.kind.to_string().into());
    Ok(())
}

fn unreadable(kind: &Kind, why: &str) -> Failure {
    Failure::bad_request(format!(
        "{} in version {:?} cannot be handled as a {}: {why}",
        kind.kind, kind.version, kind.kind
    ))
}

fn unrecognised(kind: &Kind, why: &str, bytes: &[u8]) -> Failure {
    const SHOWN: usize = 32;
    let shown = bytes.iter().take(SHOWN).fold(String::new(), |mut shown, byte| {
        // Writing into a string cannot fail.
        let _ = write!(shown, "{byte:02x}");
        shown
    });
    let more = if bytes.len() > SHOWN { " ..." } else { "" };
    Failure::bad_request(format!(
        "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse error: {why} ({shown}{more})",
        kind.kind
    ))
}

/// Builds a value as serde_json does, and notes fields that come twice; the last one counts.
struct Noting<'a> {
    path: String,
    twice: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Noting<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Noting<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        serde_json::Number::from_f64(number).map(Value::Number).ok_or_else(|| E::custom("a number out of range"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        loop {
            let path = format!("{}[{}]", self.path, list.len());
            match entries.next_element_seed(Noting { path, twice: self.twice })? {
                Some(entry) => list.push(entry),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() { key.clone() } else { format!("{}.{key}", self.path) };
            if fields.contains_key(&key) && self.twice.len() < WARNINGS_MAX {
                self.twice.push(path.clone());
            }
            let value = entries.next_value_seed(Noting { path, twice: self.twice })?;
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}
