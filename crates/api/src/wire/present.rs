//! A marker for a field whose presence matters, but not its value.
//!
//! It deserializes from anything and keeps nothing. Must not depend on the field it is used for.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

/// A present field. Serialized as an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Present {}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Present, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Present {})
    }
}
