//! JSON texts, read as Go reads them: what is there twice is told, bytes that are no letters are replaced.
//!
//! Invariant: whatever the bytes are, the answer is a value or why there is none, and depth is bounded.
//! It must not know what the text is for.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::json_syntax;

/// The most fields that are told about.
const NOTED_MAX: usize = 50;
/// The longest path whose place is noted; without a bound one long name costs as much for each field below it.
const ORDERED_LENGTH_MAX: usize = 512;

/// Parses JSON, and tells which fields were there twice. Bytes that are no text are replaced, as Go does.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), String> {
    let text = String::from_utf8_lossy(bytes);
    let mut notes = Notes::default();
    let mut reader = serde_json::Deserializer::from_str(&text);
    let read = Noting { notes: &mut notes }.deserialize(&mut reader);
    match read.and_then(|value| reader.end().map(|()| value)) {
        Ok(value) => Ok((value, notes.twice)),
        Err(error) => match (json_syntax::refusal(text.as_bytes()), json_syntax::without_lone_surrogates(&text)) {
            (Some(why), _) => Err(why),
            (None, Some(mended)) => parse(mended.as_bytes()),
            (None, None) => Err(error.to_string()),
        },
    }
}

/// The places of all fields in the text, by their paths, except for very long ones.
pub(crate) fn order(bytes: &[u8]) -> HashMap<String, usize> {
    let text = String::from_utf8_lossy(bytes);
    let mut notes = Notes { all: Some(HashMap::new()), ..Notes::default() };
    let mut reader = serde_json::Deserializer::from_str(&text);
    // Called on what was read before.
    let _ = Noting { notes: &mut notes }.deserialize(&mut reader);
    notes.all.unwrap_or_default()
}

/// What is noted while a text is read.
#[derive(Default)]
struct Notes {
    /// Where the reader stands.
    path: String,
    twice: Vec<String>,
    /// The first place of each path, if somebody asks for them.
    all: Option<HashMap<String, usize>>,
}

/// Builds a value as serde_json does, and notes fields that come twice; the last one counts.
struct Noting<'a> {
    notes: &'a mut Notes,
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
        let length = self.notes.path.len();
        loop {
            // Writing into a string cannot fail.
            let _ = write!(self.notes.path, "[{}]", list.len());
            let entry = entries.next_element_seed(Noting { notes: self.notes })?;
            self.notes.path.truncate(length);
            match entry {
                Some(entry) => list.push(entry),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Notes { path, twice, all } = &mut *self.notes;
            let length = path.len();
            if length > 0 {
                path.push('.');
            }
            path.push_str(&key);
            if fields.contains_key(&key) && twice.len() < NOTED_MAX {
                twice.push(path.clone());
            }
            if let Some(all) = all
                && path.len() <= ORDERED_LENGTH_MAX
            {
                let place = all.len();
                all.entry(path.clone()).or_insert(place);
            }
            let value = entries.next_value_seed(Noting { notes: self.notes })?;
            self.notes.path.truncate(length);
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}
