//! The gang mode of an owner: `Off`, `Gang` or `ReplicatedGang`.

use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::GANG_MODE;
use crate::keys::gang_mode::{GANG, OFF, REPLICATED_GANG};
use crate::selector::Labels;

/// How pods form gangs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GangMode {
    /// No gangs.
    #[default]
    Off,
    /// One gang of all pods.
    Gang,
    /// One gang for each replica.
    ReplicatedGang,
}

impl GangMode {
    /// Parses one of the allowed modes.
    pub fn read(text: &str, allowed: &[GangMode], path: &FieldPath<'_>) -> Result<GangMode, InvalidField> {
        let known = allowed.iter().find(|mode| mode.as_str() == text).copied();
        known.ok_or_else(|| {
            let names: Vec<&str> = allowed.iter().map(|mode| mode.as_str()).collect();
            path.invalid(text, format_args!("must be one of {}", names.join(", ")))
        })
    }

    /// The mode in the annotation, if it is set.
    pub fn annotated(
        annotations: &Labels,
        allowed: &[GangMode],
        metadata: &FieldPath<'_>,
    ) -> Result<Option<GangMode>, InvalidField> {
        let path = metadata.child("annotations");
        annotations.get(GANG_MODE).map(|text| Self::read(text, allowed, &path.key(GANG_MODE))).transpose()
    }

    /// The mode as written in annotations and fields.
    pub fn as_str(self) -> &'static str {
        match self {
            GangMode::Off => OFF,
            GangMode::Gang => GANG,
            GangMode::ReplicatedGang => REPLICATED_GANG,
        }
    }
}
