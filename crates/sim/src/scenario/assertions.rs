//! Assertions of a scenario about the cluster: what becomes true, and what stays true.
//!
//! Invariant: an accepted assertion can fail on some cluster. Must not depend on how it is evaluated.

use std::collections::BTreeMap;

use muster_runtime::config::Span;
use serde::{Deserialize, Deserializer, de};
use serde_json::Value;

use super::carrier::Carrier;
use super::model::{ObjectName, core_version, default_namespace};
use super::pattern::{Glob, Pods};

/// Assertions that become true.
#[derive(Clone, Debug, PartialEq)]
pub struct Expect {
    /// The time limit.
    pub within: Span,
    /// What becomes true.
    pub assertions: Assertions,
}

/// Assertions that stay true.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// How long.
    pub time: Span,
    /// What stays true.
    pub assertions: Assertions,
}

impl<'de> Deserialize<'de> for Expect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut assertions = Assertions::deserialize(deserializer)?;
        let within = assertions.within.take().unwrap_or(WITHIN);
        if assertions.lasting.is_some() {
            return Err(de::Error::custom("`for` belongs to hold; an expectation has `within`"));
        }
        assertions.checked().map(|assertions| Self { within, assertions }).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for Hold {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut assertions = Assertions::deserialize(deserializer)?;
        let Some(time) = assertions.lasting.take() else {
            return Err(de::Error::custom("`for` must say how long it stays true, such as 30s"));
        };
        if assertions.within.is_some() {
            return Err(de::Error::custom("`within` belongs to expect; what is held is true from the start"));
        }
        assertions.checked().map(|assertions| Self { time, assertions }).map_err(de::Error::custom)
    }
}

/// The default time limit of an expectation.
const WITHIN: Span = Span::from_millis(10_000);

/// Assertions about the cluster; all must hold at the same time.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Assertions {
    /// Set in `expect`; taken out when that is read.
    within: Option<Span>,
    /// Set in `hold`; taken out when that is read.
    #[serde(rename = "for")]
    lasting: Option<Span>,
    /// Every match is bound.
    pub bound: Vec<Pods>,
    /// Every match exists and is not bound.
    pub unbound: Vec<Pods>,
    /// Exactly so many of the matches are bound.
    pub bound_count: BTreeMap<Pods, u32>,
    /// No match exists, or all are being deleted.
    pub gone: Vec<Pods>,
    /// All matches that ever existed still do, and are not being deleted.
    pub present: Vec<Pods>,
    /// Bound to one of these nodes.
    pub on: BTreeMap<Pods, Vec<String>>,
    /// All are bound to nodes with one value of this label.
    pub one_domain: BTreeMap<Pods, String>,
    /// Nominated to this node; not nominated if it is empty.
    pub nominated: BTreeMap<Pods, String>,
    /// Exactly these pods would make an autoscaler add nodes; none if the list is empty.
    pub demand: Option<Vec<Pods>>,
    /// Groups by name, or by name and replica key, `name/key`.
    pub groups: BTreeMap<String, GroupAssertion>,
    /// Objects and their content.
    pub objects: Vec<ObjectAssertion>,
    /// Conditions of objects.
    pub conditions: Vec<ConditionAssertion>,
    /// Events about objects.
    pub events: Vec<EventAssertion>,
}

/// In the group and version of an object: the version of Kubernetes' own groups that the carrier has.
const CARRIED_VERSION: &str = "$version";

impl Assertions {
    /// The assertions for this carrier.
    pub(super) fn in_carrier(&self, carrier: Carrier) -> Self {
        let mut assertions = self.clone();
        assertions.objects.retain(|assertion| assertion.carriers.is_empty() || assertion.carriers.contains(&carrier));
        for assertion in &mut assertions.objects {
            assertion.api_version = assertion.api_version.replace(CARRIED_VERSION, carrier.name());
        }
        assertions
    }

    /// Whether only the status of groups is asserted.
    pub(super) fn is_only_about_groups(&self) -> bool {
        *self == Self { groups: self.groups.clone(), ..Self::default() }
    }

    /// Rejects assertions that hold on every cluster.
    fn checked(self) -> Result<Self, String> {
        if self == Self::default() {
            return Err("asserts nothing about the cluster: write at least one of bound, unbound, boundCount, gone, \
                        present, on, oneDomain, nominated, demand, groups, objects, conditions, events"
                .to_owned());
        }
        for assertion in self.objects.iter().filter(|assertion| assertion.api_version.contains(CARRIED_VERSION)) {
            if assertion.carriers.is_empty() || assertion.carriers.iter().any(|carrier| carrier.native().is_none()) {
                let kind = &assertion.kind;
                return Err(format!("objects: {kind}: {CARRIED_VERSION} needs carriers of Kubernetes' own groups"));
            }
        }
        for (name, assertion) in &self.groups {
            if *assertion == GroupAssertion::default() {
                return Err(format!("groups.{name}: write at least one of scheduled, reason, degraded and contains"));
            }
        }
        Ok(self)
    }
}

/// Assertions about a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct GroupAssertion {
    /// Whether it is scheduled.
    pub scheduled: Option<bool>,
    /// The reason.
    pub reason: Option<String>,
    /// Whether it is degraded.
    pub degraded: Option<bool>,
    /// A part of the message: of the degraded condition if `degraded` is asserted, else of the scheduled condition.
    pub contains: Option<String>,
}

/// Assertions about objects of a kind.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectAssertion {
    /// Group and version of the object.
    #[serde(default = "core_version")]
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its name; with wildcards, every match.
    pub name: Glob,
    /// The only carriers in which it is asserted; all if it is absent.
    #[serde(default)]
    pub carriers: Vec<Carrier>,
    /// The number of matches; at least one if it is absent.
    #[serde(default)]
    pub count: Option<usize>,
    /// The expected content of each. Fields that are not given are ignored; lists are compared entry by entry.
    #[serde(default)]
    pub has: Value,
}

impl ObjectAssertion {
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

/// Assertions about a condition.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConditionAssertion {
    /// Group and version of the object.
    #[serde(default = "core_version")]
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Its name; with wildcards, every match.
    pub name: Glob,
    /// The type of the condition.
    #[serde(rename = "type")]
    pub condition: String,
    /// `True`, `False` or `Unknown`.
    #[serde(default)]
    pub status: Option<ConditionStatus>,
    /// The reason.
    #[serde(default)]
    pub reason: Option<String>,
    /// A part of the message.
    #[serde(default)]
    pub contains: Option<String>,
}

impl ConditionAssertion {
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

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not hold.
    False,
    /// It is unknown.
    Unknown,
}

/// Assertions about an event.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EventAssertion {
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
