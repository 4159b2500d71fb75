//! How the pods of an owner form gangs: `Off`, `Gang` or `ReplicatedGang`.

use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::GANG_MODE;
use crate::keys::gang_mode::{GANG, OFF, REPLICATED_GANG};
use crate::selector::Labels;

/// How pods form gangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GangMode {
    /// They do not.
    #[default]
    Off,
    /// All of them are one.
    Gang,
    /// Those of each replica are one.
    ReplicatedGang,
}

impl GangMode {
    /// Reads one of the words that are allowed.
    pub fn read(text: &str, allowed: &[GangMode], path: &FieldPath<'_>) -> Result<GangMode, InvalidField> {
        let known = allowed.iter().find(|mode| mode.word() == text).copied();
        known.ok_or_else(|| {
            let words: Vec<&str> = allowed.iter().map(|mode| mode.word()).collect();
            path.invalid(text, format_args!("must be one of {}", words.join(", ")))
        })
    }

    /// The mode that an annotation asks for, if it is there.
    pub fn annotated(
        annotations: &Labels,
        allowed: &[GangMode],
        metadata: &FieldPath<'_>,
    ) -> Result<Option<GangMode>, InvalidField> {
        let path = metadata.child("annotations");
        annotations.get(GANG_MODE).map(|text| Self::read(text, allowed, &path.key(GANG_MODE))).transpose()
    }

    /// The word that people write.
    pub fn word(self) -> &'static str {
        match self {
            GangMode::Off => OFF,
            GangMode::Gang => GANG,
            GangMode::ReplicatedGang => REPLICATED_GANG,
        }
    }
}
