//! Decodes a protobuf message into the equivalent JSON object.
//!
//! Invariant: depth and number of values are bounded for all inputs. Repeated fields are merged or replaced, as the
//! format demands. Must not depend on which messages exist.

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::table::{Empty, Field, MessageId, Plurality, TABLE, Type};
use super::wire::{DecodeError, LENGTH_DELIMITED, Reader, Tag, VARINT};

/// No served object nests deeper.
const DEPTH_MAX: usize = 64;
/// The maximum number of values of one object.
const VALUES_MAX: usize = 500_000;

/// Decodes messages and counts their values.
#[derive(Default)]
pub(super) struct Decoder {
    depth: usize,
    values: usize,
}

impl Decoder {
    /// Counts one value.
    fn count(&mut self) -> Result<(), DecodeError> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(DecodeError::TooMuch { what: "values", max: VALUES_MAX });
        }
        Ok(())
    }

    /// Decodes the fields of a message into an object.
    pub(super) fn message(
        &mut self,
        id: MessageId,
        bytes: &[u8],
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        let message = TABLE.message(id);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(DecodeError::TooMuch { what: "levels", max: DEPTH_MAX });
        }
        let mut reader = Reader::new(bytes);
        while !reader.is_at_end() {
            let tag = reader.tag(message.name)?;
            match message.field(tag.number) {
                Some(field) => self.field(field, tag, &mut reader, into)?,
                // A field of a newer version.
                None => reader.skip(tag, message.name)?,
            }
        }
        self.depth -= 1;
        Ok(())
    }

    fn field(
        &mut self,
        field: &Field,
        tag: Tag,
        reader: &mut Reader<'_>,
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        self.count()?;
        match (field.name, field.holds, field.plurality) {
            (None, Type::Message(id), _) => self.message(id, length_delimited(field, tag, reader)?, into),
            (None, ..) => Ok(()),
            (Some(name), holds, Plurality::One) => self.one(field, name, holds, tag, reader, into),
            (Some(name), Type::Int32 | Type::Int64, Plurality::List) if tag.wire_type == LENGTH_DELIMITED => {
                // Numbers may be packed.
                let mut packed = Reader::new(reader.length_delimited()?);
                while !packed.is_at_end() {
                    self.count()?;
                    let number = number(field.holds, packed.varint()?);
                    list(into, name).push(number);
                }
                Ok(())
            }
            (Some(name), holds, Plurality::List) => {
                let value = self.value(field, holds, tag, reader, None)?;
                list(into, name).push(value.unwrap_or_default());
                Ok(())
            }
            (Some(name), holds, Plurality::Map) => {
                let (key, value) = self.entry(field, holds, length_delimited(field, tag, reader)?)?;
                let entries = into.entry(name).or_insert_with(|| json!({}));
                entries.as_object_mut().map(|entries| entries.insert(key, value));
                Ok(())
            }
        }
    }

    fn one(
        &mut self,
        field: &Field,
        name: &str,
        holds: Type,
        tag: Tag,
        reader: &mut Reader<'_>,
        into: &mut Map<String, Value>,
    ) -> Result<(), DecodeError> {
        let value = self.value(field, holds, tag, reader, into.get_mut(name).map(Value::take))?;
        let is_left_out = |value: &Value| field.empty == Empty::LeftOut && is_empty(holds, value);
        match value {
            Some(value) if !is_left_out(&value) => drop(into.insert(name.to_owned(), value)),
            _ => drop(into.remove(name)),
        }
        Ok(())
    }

    /// Decodes a value; `None` for an absent time. A message is merged into what was `there`.
    fn value(
        &mut self,
        field: &Field,
        holds: Type,
        tag: Tag,
        reader: &mut Reader<'_>,
        there: Option<Value>,
    ) -> Result<Option<Value>, DecodeError> {
        if matches!(holds, Type::Bool | Type::Int32 | Type::Int64) {
            if tag.wire_type != VARINT {
                return Err(wrong_wire_type(field, tag));
            }
            return Ok(Some(number(holds, reader.varint()?)));
        }
        let bytes = length_delimited(field, tag, reader)?;
        Ok(Some(match holds {
            Type::Text => text(bytes),
            Type::Bytes => Value::String(base64::engine::general_purpose::STANDARD.encode(bytes)),
            Type::Message(id) => {
                let mut fields = match there {
                    Some(Value::Object(fields)) => fields,
                    _ => Map::new(),
                };
                self.message(id, bytes, &mut fields)?;
                Value::Object(fields)
            }
            Type::Texts => self.texts(bytes)?,
            Type::Quantity => quantity(bytes)?,
            Type::IntOrString => int_or_string(bytes)?,
            Type::Json => raw_json(field, bytes)?,
            Type::Time | Type::MicroTime => return date(field, bytes, holds == Type::MicroTime),
            Type::Bool | Type::Int32 | Type::Int64 => unreachable!("read above"),
        }))
    }

    /// A map entry: the key is field 1, the value field 2, and each may be absent.
    fn entry(&mut self, field: &Field, holds: Type, bytes: &[u8]) -> Result<(String, Value), DecodeError> {
        let (mut key, mut value) = (Value::default(), None);
        let mut reader = Reader::new(bytes);
        while !reader.is_at_end() {
            let tag = reader.tag("entry")?;
            match tag.number {
                1 => key = text(length_delimited(field, tag, &mut reader)?),
                2 => value = self.value(field, holds, tag, &mut reader, value.take())?,
                _ => reader.skip(tag, "entry")?,
            }
        }
        let value = match (value, holds) {
            (Some(value), _) => value,
            (None, Type::Text | Type::Bytes) => json!(""),
            (None, Type::Texts) => json!([]),
            (None, Type::Quantity) => json!("0"),
            (None, Type::Message(_)) => json!({}),
            (None, _) => Value::Null,
        };
        Ok((key.as_str().unwrap_or_default().to_owned(), value))
    }

    fn texts(&mut self, bytes: &[u8]) -> Result<Value, DecodeError> {
        let mut texts = Vec::new();
        each(bytes, "items", |tag, reader| {
            self.count()?;
            if tag.number == 1 && tag.wire_type == LENGTH_DELIMITED {
                texts.push(text(reader.length_delimited()?));
                return Ok(());
            }
            reader.skip(tag, "items")
        })?;
        Ok(Value::Array(texts))
    }
}

/// Calls a function for each field of a small message.
fn each(
    bytes: &[u8],
    message: &str,
    mut take: impl FnMut(Tag, &mut Reader<'_>) -> Result<(), DecodeError>,
) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let tag = reader.tag(message)?;
        take(tag, &mut reader)?;
    }
    Ok(())
}

fn wrong_wire_type(field: &Field, tag: Tag) -> DecodeError {
    DecodeError::WireType { wire_type: tag.wire_type, field: field.name.unwrap_or_default().to_owned() }
}

fn length_delimited<'a>(field: &Field, tag: Tag, reader: &mut Reader<'a>) -> Result<&'a [u8], DecodeError> {
    if tag.wire_type == LENGTH_DELIMITED { reader.length_delimited() } else { Err(wrong_wire_type(field, tag)) }
}

fn list<'a>(into: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let entries = into.entry(name).or_insert_with(|| json!([]));
    if !entries.is_array() {
        *entries = json!([]);
    }
    entries.as_array_mut().expect("an array, created above")
}

fn text(bytes: &[u8]) -> Value {
    Value::String(String::from_utf8_lossy(bytes).into_owned())
}

fn number(holds: Type, bits: u64) -> Value {
    match holds {
        Type::Bool => json!(bits != 0),
        Type::Int32 => json!(bits as i32),
        _ => json!(bits as i64),
    }
}

/// Whether Go omits the value of an `omitempty` field. Structs are always written.
fn is_empty(holds: Type, value: &Value) -> bool {
    match holds {
        Type::Text | Type::Bytes => value == "",
        Type::Bool => value == false,
        Type::Int32 | Type::Int64 => value == 0,
        _ => false,
    }
}

fn quantity(bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut written = json!("0");
    each(bytes, "Quantity", |tag, reader| {
        if tag.number == 1 && tag.wire_type == LENGTH_DELIMITED {
            let bytes = reader.length_delimited()?;
            if !bytes.is_empty() {
                written = text(bytes);
            }
            return Ok(());
        }
        reader.skip(tag, "Quantity")
    })?;
    Ok(written)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let (mut is_text, mut int, mut string) = (false, json!(0), json!(""));
    each(bytes, "IntOrString", |tag, reader| {
        match (tag.number, tag.wire_type) {
            (1, VARINT) => is_text = reader.varint()? != 0,
            (2, VARINT) => int = number(Type::Int32, reader.varint()?),
            (3, LENGTH_DELIMITED) => string = text(reader.length_delimited()?),
            _ => reader.skip(tag, "IntOrString")?,
        }
        Ok(())
    })?;
    Ok(if is_text { string } else { int })
}

fn raw_json(field: &Field, bytes: &[u8]) -> Result<Value, DecodeError> {
    let mut raw: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let tag = reader.tag("Raw")?;
        if tag.number == 1 && tag.wire_type == LENGTH_DELIMITED {
            raw = reader.length_delimited()?;
        } else {
            reader.skip(tag, "Raw")?;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| invalid(field, error.to_string()))
}

fn invalid(field: &Field, why: String) -> DecodeError {
    DecodeError::Value { field: field.name.unwrap_or_default().to_owned(), why }
}

/// A time, to the second or the microsecond. The zero time is absent.
fn date(field: &Field, bytes: &[u8], micro: bool) -> Result<Option<Value>, DecodeError> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    each(bytes, "Timestamp", |tag, reader| {
        match (tag.number, tag.wire_type) {
            (1, VARINT) => seconds = reader.varint()? as i64,
            (2, VARINT) => nanos = reader.varint()? as i32,
            _ => reader.skip(tag, "Timestamp")?,
        }
        Ok(())
    })?;
    if (seconds, nanos) == (0, 0) {
        return Ok(None);
    }
    let whole = Timestamp::from_second(seconds).map_err(|error| invalid(field, error.to_string()))?;
    if !micro {
        return Ok(Some(json!(whole.to_string())));
    }
    let micros = nanos.div_euclid(1000);
    if !(0..1_000_000).contains(&micros) {
        return Err(invalid(field, format!("{nanos} nanoseconds are no part of a second")));
    }
    let text = whole.to_string();
    Ok(Some(json!(format!("{}.{micros:06}Z", text.trim_end_matches('Z')))))
}
