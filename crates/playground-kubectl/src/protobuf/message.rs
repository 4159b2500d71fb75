//! From a message to the JSON object that says the same.
//!
//! Invariant: depth and number of values are bounded, whatever the bytes are. What comes twice is merged or replaced,
//! as the format wants it. It must not know which messages exist.

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::table::{Empty, Field, MessageId, Plurality, TABLE, Type};
use super::wire::{Broken, PIECE, Reader, Tag, VARINT};

/// No object that is served nests deeper.
const DEPTH_MAX: usize = 64;
/// The most values of one object.
const VALUES_MAX: usize = 500_000;

/// Reads messages, and counts what they hold.
#[derive(Default)]
pub(super) struct Decoder {
    depth: usize,
    values: usize,
}

impl Decoder {
    /// One value more.
    fn count(&mut self) -> Result<(), Broken> {
        self.values += 1;
        if self.values > VALUES_MAX {
            return Err(Broken::TooMuch { what: "values", max: VALUES_MAX });
        }
        Ok(())
    }

    /// Reads the fields of a message into an object.
    pub(super) fn message(&mut self, id: MessageId, bytes: &[u8], into: &mut Map<String, Value>) -> Result<(), Broken> {
        let message = TABLE.message(id);
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(Broken::TooMuch { what: "levels", max: DEPTH_MAX });
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
    ) -> Result<(), Broken> {
        self.count()?;
        match (field.name, field.holds, field.plurality) {
            (None, Type::Message(id), _) => self.message(id, piece(field, tag, reader)?, into),
            (None, ..) => Ok(()),
            (Some(name), holds, Plurality::One) => self.one(field, name, holds, tag, reader, into),
            (Some(name), Type::Int32 | Type::Int64, Plurality::List) if tag.form == PIECE => {
                // Numbers may come packed into one piece.
                let mut packed = Reader::new(reader.piece()?);
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
                let (key, value) = self.entry(field, holds, piece(field, tag, reader)?)?;
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
    ) -> Result<(), Broken> {
        let value = self.value(field, holds, tag, reader, into.get_mut(name).map(Value::take))?;
        let is_left_out = |value: &Value| field.empty == Empty::LeftOut && is_empty(holds, value);
        match value {
            Some(value) if !is_left_out(&value) => drop(into.insert(name.to_owned(), value)),
            _ => drop(into.remove(name)),
        }
        Ok(())
    }

    /// A value; none is a date that is not there. A message adds to what was `there`.
    fn value(
        &mut self,
        field: &Field,
        holds: Type,
        tag: Tag,
        reader: &mut Reader<'_>,
        there: Option<Value>,
    ) -> Result<Option<Value>, Broken> {
        if matches!(holds, Type::Bool | Type::Int32 | Type::Int64) {
            if tag.form != VARINT {
                return Err(wrong_form(field, tag));
            }
            return Ok(Some(number(holds, reader.varint()?)));
        }
        let bytes = piece(field, tag, reader)?;
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

    /// An entry of a map: the key is field 1, the value field 2, and each may be left out.
    fn entry(&mut self, field: &Field, holds: Type, bytes: &[u8]) -> Result<(String, Value), Broken> {
        let (mut key, mut value) = (Value::default(), None);
        let mut reader = Reader::new(bytes);
        while !reader.is_at_end() {
            let tag = reader.tag("entry")?;
            match tag.number {
                1 => key = text(piece(field, tag, &mut reader)?),
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

    fn texts(&mut self, bytes: &[u8]) -> Result<Value, Broken> {
        let mut texts = Vec::new();
        each(bytes, "items", |tag, reader| {
            self.count()?;
            if tag.number == 1 && tag.form == PIECE {
                texts.push(text(reader.piece()?));
                return Ok(());
            }
            reader.skip(tag, "items")
        })?;
        Ok(Value::Array(texts))
    }
}

/// Calls for each field of a small message.
fn each(
    bytes: &[u8],
    message: &str,
    mut take: impl FnMut(Tag, &mut Reader<'_>) -> Result<(), Broken>,
) -> Result<(), Broken> {
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let tag = reader.tag(message)?;
        take(tag, &mut reader)?;
    }
    Ok(())
}

fn wrong_form(field: &Field, tag: Tag) -> Broken {
    Broken::Form { form: tag.form, field: field.name.unwrap_or_default().to_owned() }
}

fn piece<'a>(field: &Field, tag: Tag, reader: &mut Reader<'a>) -> Result<&'a [u8], Broken> {
    if tag.form == PIECE { reader.piece() } else { Err(wrong_form(field, tag)) }
}

fn list<'a>(into: &'a mut Map<String, Value>, name: &str) -> &'a mut Vec<Value> {
    let entries = into.entry(name).or_insert_with(|| json!([]));
    if !entries.is_array() {
        *entries = json!([]);
    }
    entries.as_array_mut().expect("an array, made above")
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

/// Whether Go leaves a value out that may be left out. Structs, whatever they look like in JSON, are always written.
fn is_empty(holds: Type, value: &Value) -> bool {
    match holds {
        Type::Text | Type::Bytes => value == "",
        Type::Bool => value == false,
        Type::Int32 | Type::Int64 => value == 0,
        _ => false,
    }
}

fn quantity(bytes: &[u8]) -> Result<Value, Broken> {
    let mut written = json!("0");
    each(bytes, "Quantity", |tag, reader| {
        if tag.number == 1 && tag.form == PIECE {
            let bytes = reader.piece()?;
            if !bytes.is_empty() {
                written = text(bytes);
            }
            return Ok(());
        }
        reader.skip(tag, "Quantity")
    })?;
    Ok(written)
}

fn int_or_string(bytes: &[u8]) -> Result<Value, Broken> {
    let (mut is_text, mut int, mut string) = (false, json!(0), json!(""));
    each(bytes, "IntOrString", |tag, reader| {
        match (tag.number, tag.form) {
            (1, VARINT) => is_text = reader.varint()? != 0,
            (2, VARINT) => int = number(Type::Int32, reader.varint()?),
            (3, PIECE) => string = text(reader.piece()?),
            _ => reader.skip(tag, "IntOrString")?,
        }
        Ok(())
    })?;
    Ok(if is_text { string } else { int })
}

fn raw_json(field: &Field, bytes: &[u8]) -> Result<Value, Broken> {
    let mut raw: &[u8] = &[];
    let mut reader = Reader::new(bytes);
    while !reader.is_at_end() {
        let tag = reader.tag("Raw")?;
        if tag.number == 1 && tag.form == PIECE {
            raw = reader.piece()?;
        } else {
            reader.skip(tag, "Raw")?;
        }
    }
    if raw.is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_slice(raw).map_err(|error| invalid(field, error.to_string()))
}

fn invalid(field: &Field, why: String) -> Broken {
    Broken::Value { field: field.name.unwrap_or_default().to_owned(), why }
}

/// A date, to the second or the microsecond. The zero of dates is none.
fn date(field: &Field, bytes: &[u8], micro: bool) -> Result<Option<Value>, Broken> {
    let (mut seconds, mut nanos) = (0_i64, 0_i32);
    each(bytes, "Timestamp", |tag, reader| {
        match (tag.number, tag.form) {
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
