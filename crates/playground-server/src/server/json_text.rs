//! Decodes JSON as Go does: reports duplicate fields, replaces invalid UTF-8.
//!
//! Invariant: any input results in a value or an error, and depth is bounded.
//! Must not depend on what the input is for.

use std::collections::HashMap;
use std::fmt::{self, Write as _};

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::json_syntax::{self, SyntaxError};

/// The most duplicate fields that are reported.
const DUPLICATES_MAX: usize = 50;
/// The longest path whose position is recorded; without a bound one long name would cost as much for each field below
/// it.
const PATH_LENGTH_MAX: usize = 512;

/// Why bytes are not JSON.
#[derive(Debug, thiserror::Error)]
pub(crate) enum JsonError {
    /// As Go reports it.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// Something that Go accepts.
    #[error(transparent)]
    Unreadable(#[from] serde_json::Error),
}

/// Parses JSON, and returns the paths of duplicate fields. Invalid UTF-8 is replaced, as Go does.
pub(crate) fn parse(bytes: &[u8]) -> Result<(Value, Vec<String>), JsonError> {
    let text = String::from_utf8_lossy(bytes);
    let mut recorded = Recorded::default();
    let mut reader = serde_json::Deserializer::from_str(&text);
    let read = ValueBuilder { recorded: &mut recorded }.deserialize(&mut reader);
    match read.and_then(|value| reader.end().map(|()| value)) {
        Ok(value) => Ok((value, recorded.duplicates)),
        Err(error) => match (json_syntax::syntax_error(text.as_bytes()), json_syntax::without_lone_surrogates(&text)) {
            (Some(error), _) => Err(error.into()),
            (None, Some(mended)) => parse(mended.as_bytes()),
            (None, None) => Err(error.into()),
        },
    }
}

/// The positions of all fields in the input, by path, except for very long paths.
pub(crate) fn field_positions(bytes: &[u8]) -> HashMap<String, usize> {
    let text = String::from_utf8_lossy(bytes);
    let mut recorded = Recorded { all: Some(HashMap::new()), ..Recorded::default() };
    let mut reader = serde_json::Deserializer::from_str(&text);
    // Cannot fail: the input was parsed before.
    let _ = ValueBuilder { recorded: &mut recorded }.deserialize(&mut reader);
    recorded.all.unwrap_or_default()
}

/// What is recorded while the input is parsed.
#[derive(Default)]
struct Recorded {
    /// The path of the current value.
    path: String,
    duplicates: Vec<String>,
    /// The first position of each path, if requested.
    all: Option<HashMap<String, usize>>,
}

/// Builds a value as serde_json does, and records duplicate fields; the last one wins.
struct ValueBuilder<'a> {
    recorded: &'a mut Recorded,
}

impl<'de> DeserializeSeed<'de> for ValueBuilder<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueBuilder<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(flag.into())
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
        let length = self.recorded.path.len();
        loop {
            // Writing into a string cannot fail.
            let _ = write!(self.recorded.path, "[{}]", list.len());
            let entry = entries.next_element_seed(ValueBuilder { recorded: self.recorded })?;
            self.recorded.path.truncate(length);
            match entry {
                Some(entry) => list.push(entry),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut fields = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let Recorded { path, duplicates, all } = &mut *self.recorded;
            let length = path.len();
            if length > 0 {
                path.push('.');
            }
            path.push_str(&key);
            if fields.contains_key(&key) && duplicates.len() < DUPLICATES_MAX {
                duplicates.push(path.clone());
            }
            if let Some(all) = all
                && path.len() <= PATH_LENGTH_MAX
            {
                let place = all.len();
                all.entry(path.clone()).or_insert(place);
            }
            let value = entries.next_value_seed(ValueBuilder { recorded: self.recorded })?;
            self.recorded.path.truncate(length);
            fields.insert(key, value);
        }
        Ok(Value::Object(fields))
    }
}
