//! Something is there, and what it is does not matter.
//!
//! It reads anything and keeps nothing. It must not know what it stands for.

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

/// Something is there. Written as an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Present {}

impl<'de> Deserialize<'de> for Present {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Present, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Present {})
    }
}
