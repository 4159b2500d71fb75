//! Scheduling profiles in the configuration file. `of_file` validates them.
//!
//! The first profile is in the file itself, with the same fields; omitted fields have their defaults.

use std::collections::BTreeSet;

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::node_selector::{WrittenNodeSelector, WrittenPreferredTerm};
use muster_api::wire::topology_spread::TopologySpreadConstraint;
use muster_engine::FilterName;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::ConfigError;
use super::effective::{config_error, require_distinct, scoring};
use super::file::{File, Scoring};
use super::packing::Packing;
use crate::intake::class::{node_term, preferred_term};
use crate::intake::spread;
use crate::settings;

/// A scheduling profile.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Profile {
    /// The values of `spec.schedulerName` that it applies to.
    pub scheduler_names: Vec<String>,
    /// A preset instead of `scoring`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub packing: Option<Packing>,
    /// How nodes are scored.
    pub scoring: Scoring,
    /// The default topology spread constraints.
    pub spread_defaults: SpreadDefaults,
    /// Node affinity in addition to the pods' own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_affinity: Option<AddedAffinity>,
    /// Disabled filters.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without_filters: BTreeSet<FilterName>,
}

/// The topology spread constraints of pods without their own; the selector is that of their service or controller.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum SpreadDefaults {
    /// Named defaults.
    Named(NamedDefaults),
    /// A list of constraints; an empty one disables the defaults.
    List(Vec<DefaultConstraint>),
}

/// Named default constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NamedDefaults {
    /// kube-scheduler's own: a preference to spread over hosts and zones.
    System,
}

impl Default for SpreadDefaults {
    fn default() -> Self {
        Self::Named(NamedDefaults::System)
    }
}

impl<'de> Deserialize<'de> for SpreadDefaults {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(name) if name == "System" => Ok(Self::default()),
            Value::Array(list) => list
                .into_iter()
                .map(DefaultConstraint::deserialize)
                .collect::<Result<_, _>>()
                .map(Self::List)
                .map_err(D::Error::custom),
            other => Err(D::Error::custom(format!(
                "{other}: must be \"System\", or a list of {{maxSkew, topologyKey, whenUnsatisfiable}}"
            ))),
        }
    }
}

/// A default constraint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DefaultConstraint {
    /// The maximum skew between domains.
    pub max_skew: i32,
    /// The node label whose values are the domains.
    pub topology_key: String,
    /// `DoNotSchedule` or `ScheduleAnyway`.
    pub when_unsatisfiable: String,
}

/// Node affinity in addition to the pods' own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AddedAffinity {
    /// What a node must match.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Option::is_none")]
    pub required: Option<WrittenNodeSelector>,
    /// What a node should match.
    #[serde(rename = "preferredDuringSchedulingIgnoredDuringExecution", skip_serializing_if = "Vec::is_empty")]
    pub preferred: Vec<WrittenPreferredTerm>,
}

/// The profiles of a file: for intake and for the engine.
pub(super) fn of_file(file: &File) -> Result<(Vec<settings::Profile>, Vec<muster_engine::Profile>), ConfigError> {
    let first = Profile {
        scheduler_names: file.scheduler_names.clone(),
        packing: file.packing,
        scoring: file.scoring.clone(),
        spread_defaults: file.spread_defaults.clone(),
        added_affinity: file.added_affinity.clone(),
        without_filters: file.without_filters.clone(),
    };
    let further = file.profiles.iter().enumerate().map(|(index, profile)| (format!("profiles[{index}]."), profile));
    let (mut ours, mut engines) = (Vec::new(), Vec::new());
    let mut names = Vec::new();
    for (prefix, profile) in std::iter::once((String::new(), &first)).chain(further) {
        if profile.scheduler_names.is_empty() {
            let reason = "[]: at least one name is needed, or no pod is scheduled";
            return Err(ConfigError::field(format!("{prefix}schedulerNames"), reason));
        }
        names.extend(profile.scheduler_names.iter().cloned());
        require_distinct(&format!("{prefix}schedulerNames"), &names)?;
        let (our, engine) = profile.check().map_err(|error| error.under(&prefix))?;
        ours.push(our);
        engines.push(engine);
    }
    Ok((ours, engines))
}

impl Profile {
    fn check(&self) -> Result<(settings::Profile, muster_engine::Profile), ConfigError> {
        let scoring = match self.packing {
            None => scoring(&self.scoring)?,
            Some(packing) if self.scoring == Scoring::default() => packing.scoring(),
            Some(Packing::Gpu) => {
                return Err(ConfigError::field(
                    "packing",
                    "gpu: it is a preset of scoring, which is set, too: use one",
                ));
            }
        };
        scoring.validate().map_err(config_error)?;
        let invalid =
            |error: InvalidField| ConfigError::field(error.field, format!("{}: {}", error.value, error.reason));
        let spread_defaults = match &self.spread_defaults {
            SpreadDefaults::Named(NamedDefaults::System) => spread::system_defaults(),
            SpreadDefaults::List(list) => {
                let list: Vec<TopologySpreadConstraint> = list.iter().map(DefaultConstraint::as_written).collect();
                spread::defaults(&list, &FieldPath::Root("spreadDefaults")).map_err(invalid)?
            }
        };
        let added = self.added_affinity.clone().unwrap_or_default();
        let path = FieldPath::Root("addedAffinity");
        let required = path.child("requiredDuringSchedulingIgnoredDuringExecution");
        let required =
            added.required.as_ref().map(|written| written.validate(&required)).transpose().map_err(invalid)?;
        let preferred = path.child("preferredDuringSchedulingIgnoredDuringExecution");
        let preferred = WrittenPreferredTerm::validate_all(&added.preferred, &preferred).map_err(invalid)?;
        let ours = settings::Profile {
            scheduler_names: self.scheduler_names.clone(),
            spread_defaults,
            enforced_terms: required.map(|required| required.terms().iter().map(node_term).collect()),
            preferred_terms: preferred.iter().map(preferred_term).collect(),
        };
        Ok((ours, muster_engine::Profile { scoring, without: self.without_filters.clone() }))
    }
}

impl DefaultConstraint {
    fn as_written(&self) -> TopologySpreadConstraint {
        TopologySpreadConstraint {
            max_skew: self.max_skew,
            topology_key: self.topology_key.clone(),
            when_unsatisfiable: self.when_unsatisfiable.clone(),
            ..TopologySpreadConstraint::default()
        }
    }
}
