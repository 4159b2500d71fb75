//! What a scenario says about the cluster, as values: what becomes true, and what stays true.
//!
//! Invariant: a claim that was read can be false of some cluster.
//! It must not know how it is judged.

use std::collections::BTreeMap;

use muster_runtime::config::Span;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::carrier::Carrier;
use super::model::{ObjectName, core_version, default_namespace};
use super::pattern::{Glob, Pods};

/// Something that becomes true.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// How long it may take.
    pub within: Span,
    /// What becomes true.
    pub claims: Claims,
}

/// Something that stays true.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// How long.
    pub time: Span,
    /// What stays true.
    pub claims: Claims,
}

impl<'de> Deserialize<'de> for Expect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut claims = Claims::deserialize(deserializer)?;
        let within = claims.within.take().unwrap_or(WITHIN);
        if claims.lasting.is_some() {
            return Err(de::Error::custom("`for` belongs to hold; an expectation has `within`"));
        }
        claims.checked().map(|claims| Self { within, claims }).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Hold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut claims = Claims::deserialize(deserializer)?;
        let Some(time) = claims.lasting.take() else {
            return Err(de::Error::custom("`for` must say how long it stays true, such as 30s"));
        };
        if claims.within.is_some() {
            return Err(de::Error::custom("`within` belongs to expect; what is held is true from the start"));
        }
        claims.checked().map(|claims| Self { time, claims }).map_err(de::Error::custom)
    }
}

/// How long an expectation may take that does not say it.
const WITHIN: Span = Span::from_millis(10_000);

/// What is said about the cluster: all of it must be true at once.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Claims {
    /// As written in an `expect`; taken out when that is read.
    within: Option<Span>,
    /// As written in a `hold`; taken out when that is read.
    #[serde(rename = "for")]
    lasting: Option<Span>,
    /// Every match is bound.
    pub bound: Vec<Pods>,
    /// Every match is there and not bound.
    pub unbound: Vec<Pods>,
    /// Exactly so many of the matches are bound.
    pub bound_count: BTreeMap<Pods, u32>,
    /// None is there any more, or all are being deleted.
    pub gone: Vec<Pods>,
    /// All that were ever there still are, and are not being deleted.
    pub present: Vec<Pods>,
    /// Bound to one of these nodes.
    pub on: BTreeMap<Pods, Vec<String>>,
    /// All bound to nodes with one value of this label.
    pub one_domain: BTreeMap<Pods, String>,
    /// Nominated to this node; to none if it is empty.
    pub nominated: BTreeMap<Pods, String>,
    /// Exactly these pods would make an autoscaler buy nodes; none if the list is empty.
    pub demand: Option<Vec<Pods>>,
    /// Groups by name, or by name and replica key, `name/key`.
    pub groups: BTreeMap<String, GroupClaim>,
    /// Objects and what stands in them.
    pub objects: Vec<ObjectClaim>,
    /// Conditions of objects.
    pub conditions: Vec<ConditionClaim>,
    /// Events about objects.
    pub events: Vec<EventClaim>,
}

/// In the group and version of an object: the version of Kubernetes' own groups that the carrier has.
const CARRIED_VERSION: &str = "$version";

impl Claims {
    /// What is said of a cluster in this carrier.
    pub(super) fn in_carrier(&self, carrier: Carrier) -> Self {
        let mut claims = self.clone();
        claims.objects.retain(|claim| claim.carriers.is_empty() || claim.carriers.contains(&carrier));
        for claim in &mut claims.objects {
            claim.api_version = claim.api_version.replace(CARRIED_VERSION, carrier.name());
        }
        claims
    }

    /// Whether nothing is said but how groups fare.
    pub(super) fn is_only_about_groups(&self) -> bool {
        *self == Self { groups: self.groups.clone(), ..Self::default() }
    }

    /// Refuses what would be true of every cluster.
    fn checked(self) -> Result<Self, String> {
        if self == Self::default() {
            return Err("says nothing about the cluster: write at least one of bound, unbound, boundCount, gone, \
                        present, on, oneDomain, nominated, demand, groups, objects, conditions, events"
                .to_owned());
        }
        for claim in self.objects.iter().filter(|claim| claim.api_version.contains(CARRIED_VERSION)) {
            if claim.carriers.is_empty() || claim.carriers.iter().any(|carrier| carrier.native().is_none()) {
                let kind = &claim.kind;
                return Err(format!("objects: {kind}: {CARRIED_VERSION} needs carriers of Kubernetes' own groups"));
            }
        }
        for (name, claim) in &self.groups {
            if *claim == GroupClaim::default() {
                return Err(format!("groups.{name}: write at least one of scheduled, reason, degraded and contains"));
            }
        }
        Ok(self)
    }
}

/// What is said about a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupClaim {
    /// Whether it has its place.
    pub scheduled: Option<bool>,
    /// Why.
    pub reason: Option<String>,
    /// Whether it has lost members that it needs.
    pub degraded: Option<bool>,
    /// A part of the message: of what is said about losses if that is claimed, else of what is said about its place.
    pub contains: Option<String>,
}

/// What is said about objects of a kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectClaim {
    /// Group and version of the object.
    #[serde(default = "core_version")]
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its name; with wildcards, every match is meant.
    pub name: Glob,
    /// The only carriers in which it is said; all if it is left out.
    #[serde(default)]
    pub carriers: Vec<Carrier>,
    /// How many there are; at least one if it is left out.
    #[serde(default)]
    pub count: Option<usize>,
    /// What stands in each of them. Fields that are not named do not matter; lists are compared entry by entry.
    #[serde(default)]
    pub has: Value,
}

impl ObjectClaim {
    /// The objects it is about.
    pub fn object(&self) -> ObjectName {
        ObjectName {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// What is said about a condition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConditionClaim {
    /// Group and version of the object.
    #[serde(default = "core_version")]
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its name; with wildcards, every match is meant.
    pub name: Glob,
    /// The type of the condition.
    #[serde(rename = "type")]
    pub condition: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: Option<ConditionStatus>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// A part of the message.
    #[serde(default)]
    pub contains: Option<String>,
}

impl ConditionClaim {
    /// The objects it is about.
    pub fn object(&self) -> ObjectName {
        ObjectName {
            api_version: self.api_version.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
        }
    }
}

/// What a condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ConditionStatus {
    /// Yes.
    True,
    /// No.
    False,
    /// Nobody knows.
    Unknown,
}

/// What is said about an event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventClaim {
    /// The kind of the object it is about.
    pub kind: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its name.
    pub name: Glob,
    /// The reason of the event.
    pub reason: String,
    /// A part of the message.
    #[serde(default)]
    pub contains: Option<String>,
}
