//! A scenario as a value: what stands in a file, every field of it known and checked.
//!
//! Invariant: what was read can be tried; what no cluster could do is found out by the cluster.
//! It must not know carriers, clusters or how things are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::makers::GangedOwners;
use muster_api::resources::WrittenResources;
use muster_runtime::Settings;
use muster_runtime::config::{Configuration, File, Overrides, Span};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::carrier::Carrier;
use super::claims::{Claims, Expect, Hold};
use super::manifest;
use super::pattern::{Glob, Pods};

/// A story in steps.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it shows.
    pub name: String,
    /// The file it was read from.
    pub file: String,
    /// Why it is played more than once; empty for a story about decisions alone.
    pub about: BTreeSet<About>,
    /// How the cluster and Muster are set up.
    pub config: Config,
    /// The nodes there are at the start.
    pub nodes: Vec<Nodes>,
    /// The only carriers it is meant for; all if it is empty.
    pub carriers: Vec<Carrier>,
    /// Carriers in which it does not hold, each with the reason.
    pub except: BTreeMap<Carrier, String>,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// The time that it takes at least: what is held, is held for so long.
    pub fn held_time(&self) -> Duration {
        let holds = self.steps.iter().filter_map(|step| match &step.action {
            Action::Hold(hold) => Some(hold.time.as_duration()),
            _ => None,
        });
        holds.sum()
    }

    /// The first carrier that can express it.
    pub fn own_carrier(&self) -> Option<Carrier> {
        Carrier::ALL.into_iter().find(|carrier| carrier.can_express(self))
    }

    /// Whether it writes objects of this group and version itself, in whatever carrier.
    pub(super) fn writes(&self, api_version: &str) -> bool {
        self.steps.iter().any(|step| match &step.action {
            Action::Apply(apply) => apply.manifests.iter().any(|manifest| manifest["apiVersion"] == api_version),
            Action::Create(create) => create.manifest.get("apiVersion").is_some_and(|version| version == api_version),
            _ => false,
        })
    }

    /// Whether it has Jobs, JobSets or LeaderWorkerSets.
    pub(super) fn has_owners(&self) -> bool {
        self.writes("batch/v1") || self.needs_managers()
    }

    /// Whether a cluster has to have JobSet and LeaderWorkerSet to play it.
    pub fn needs_managers(&self) -> bool {
        OF_MANAGERS.iter().any(|version| self.writes(version))
    }

    /// The version of Kubernetes' own groups that it writes itself, in whatever carrier.
    pub fn native_version(&self) -> Option<&str> {
        let manifests = self.steps.iter().flat_map(|step| match &step.action {
            Action::Apply(apply) => apply.manifests.as_slice(),
            _ => &[],
        });
        let mut versions = manifests.filter_map(|manifest| manifest["apiVersion"].as_str());
        versions.find(|version| version.starts_with("scheduling.k8s.io/") && *version != "scheduling.k8s.io/v1")
    }
}

/// What a story is about, beside Muster's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// The API's edge: the outcome depends on what a real API server, its controllers or a kubelet do.
    Api,
    /// How groups are read and written: every carrier has to show it.
    Carriers,
}

/// Kinds that come with managers of their own.
pub(super) const OF_MANAGERS: [&str; 2] = ["jobset.x-k8s.io/v1alpha2", "leaderworkerset.x-k8s.io/v1"];

/// A step and how it was written.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line of the file on which it begins.
    pub line: u64,
    /// Its text.
    pub text: String,
    /// What is done.
    pub action: Action,
}

/// How the cluster and Muster are set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// The version of Kubernetes that the scenario is about.
    pub kubernetes_version: Option<KubernetesVersion>,
    /// Whether the cluster is one without Kubernetes' own API for groups.
    pub stock: bool,
    /// Whether Muster's webhook is asked, where the cluster is in the process. On a cluster the scenario cannot be called,
    /// and the controllers make up for it.
    pub webhook: bool,
    /// How Muster works.
    pub settings: Settings,
}

impl Default for Config {
    fn default() -> Self {
        // As without a configuration file.
        let settings = Settings { ganged: GangedOwners::all(), ..Settings::default() };
        Self { kubernetes_version: None, stock: false, webhook: true, settings }
    }
}

/// Fields of Muster's configuration file that mean nothing in a scenario.
const WITHOUT_MEANING: [&str; 8] =
    ["apiVersion", "kind", "leaderElection", "listen", "logLevel", "logFormat", "recordDir", "recordSizeMaxMib"];

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Own {
            kubernetes_version: Option<KubernetesVersion>,
            stock: bool,
            webhook: Option<bool>,
        }
        let mut fields = Map::deserialize(deserializer)?;
        if let Some(field) = WITHOUT_MEANING.iter().find(|field| fields.contains_key(**field)) {
            return Err(de::Error::custom(format!("{field}: has no meaning in a scenario")));
        }
        let own = ["kubernetesVersion", "stock", "webhook"];
        let own: Map<String, Value> = own.iter().filter_map(|field| fields.remove_entry(*field)).collect();
        let own: Own = at_path(Value::Object(own))?;
        let file: File = at_path(Value::Object(fields))?;
        let configuration = Configuration::new(file, Overrides::default()).map_err(de::Error::custom)?;
        let Own { kubernetes_version, stock, webhook } = own;
        Ok(Self { kubernetes_version, stock, webhook: webhook.unwrap_or(true), settings: configuration.settings })
    }
}

/// Reads a value with errors that say where they are.
fn at_path<T: DeserializeOwned, E: de::Error>(value: Value) -> Result<T, E> {
    serde_path_to_error::deserialize(value).map_err(|error| E::custom(format!("{}: {}", error.path(), error.inner())))
}

/// A version that scenarios can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesVersion {
    /// 1.37.
    V1_37,
}

impl KubernetesVersion {
    /// All that can be asked for.
    pub const ALL: [(KubernetesVersion, &str); 1] = [(KubernetesVersion::V1_37, "1.37")];
}

impl<'de> Deserialize<'de> for KubernetesVersion {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let known = Self::ALL.iter().find(|(_, name)| *name == text);
        known.map(|(version, _)| *version).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name)| name).join(", ");
            de::Error::custom(format!("{text:?} is not supported; there is {names}"))
        })
    }
}

/// Like nodes, in short.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// The name, in which `{i}` is the number of the node.
    pub name: String,
    /// What a node has.
    pub capacity: WrittenResources,
    /// Labels; `{i}` in values is the number of the node.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
}

/// A taint of a node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Taint {
    /// The key.
    pub key: String,
    /// The value.
    #[serde(default)]
    pub value: String,
    /// What it does.
    pub effect: String,
}

fn one() -> u32 {
    1
}

/// What a step does.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Makes a group, or changes it.
    Group(Group),
    /// Makes like objects.
    Create(Create),
    /// Makes objects, or changes those that are there.
    Apply(Apply),
    /// Deletes objects.
    Delete(Vec<Delete>),
    /// Changes an object by a merge patch.
    Patch(Patch),
    /// Ends pods, as their kubelet would tell it.
    Finish(Finish),
    /// More nodes.
    Nodes(Vec<Nodes>),
    /// Ends Muster and starts it again.
    Restart(Restart),
    /// Orders faults between Muster and the API server.
    Fault(Fault),
    /// Waits until something is true.
    Expect(Expect),
    /// Watches that something stays true.
    Hold(Hold),
}

impl Action {
    /// What is said about the cluster, if that is what the step does.
    pub(super) fn claims(&self) -> Option<&Claims> {
        match self {
            Action::Expect(expect) => Some(&expect.claims),
            Action::Hold(hold) => Some(&hold.claims),
            _ => None,
        }
    }
}

/// A group in whatever form the carrier has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Group {
    /// The name.
    pub name: String,
    /// A gang with this minimum.
    #[serde(default)]
    pub gang: Option<u32>,
    /// A group without a minimum.
    #[serde(default)]
    pub basic: Option<Basic>,
    /// A gang with a minimum for each kind of member.
    #[serde(default)]
    pub subsets: Option<BTreeMap<String, u32>>,
    /// `Pod` or `PodGroup`.
    #[serde(default)]
    pub disruption_mode: Option<DisruptionMode>,
    /// The priority class.
    #[serde(default)]
    pub priority_class_name: Option<String>,
    /// How long a start may take, in seconds.
    #[serde(default)]
    pub schedule_timeout_seconds: Option<u32>,
}

/// What is evicted together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum DisruptionMode {
    /// Each member by itself.
    Pod,
    /// The whole group.
    PodGroup,
}

/// A group without a minimum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Basic {
    /// How many members are expected.
    #[serde(default)]
    pub desired_count: Option<u32>,
}

/// Like objects.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Create {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// The group that the pods join; none if it is empty.
    #[serde(default)]
    pub group: String,
    /// The replica of the group.
    #[serde(default)]
    pub replica_key: String,
    /// The subset of the group.
    #[serde(default)]
    pub subset: String,
    /// The object, in whose texts `{i}` is its number.
    pub manifest: Map<String, Value>,
}

/// Raw manifests. A file that is named is read when the scenario is.
#[derive(Clone, Debug, PartialEq)]
pub struct Apply {
    /// The objects.
    pub manifests: Vec<Value>,
}

impl<'de> Deserialize<'de> for Apply {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        manifest::documents(&text).map(|manifests| Self { manifests }).map_err(de::Error::custom)
    }
}

/// What is deleted: an object, or the object of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delete {
    /// Objects of one kind; the name may have wildcards.
    Objects(ObjectName),
    /// The object that holds a group, whatever the carrier.
    Group(String),
}

impl Delete {
    /// The group whose object is deleted, if it is one.
    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Group(name) => Some(name),
            Self::Objects(_) => None,
        }
    }
}

impl<'de> Deserialize<'de> for Delete {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        struct Written {
            group: Option<String>,
            api_version: Option<String>,
            kind: Option<String>,
            namespace: Option<String>,
            name: Option<Glob>,
        }
        let written = Written::deserialize(deserializer)?;
        match written {
            Written { group: Some(group), api_version: None, kind: None, namespace: None, name: None } => {
                Ok(Self::Group(group))
            }
            Written { group: None, api_version, kind: Some(kind), namespace, name: Some(name) } => {
                Ok(Self::Objects(ObjectName {
                    api_version: api_version.unwrap_or_else(core_version),
                    kind,
                    namespace: namespace.unwrap_or_else(default_namespace),
                    name,
                }))
            }
            _ => Err(de::Error::custom("write kind and name of an object, or the name of a group alone")),
        }
    }
}

/// An object, or several by a pattern.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObjectName {
    /// Group and version.
    #[serde(default = "core_version")]
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; without meaning for kinds outside namespaces.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// The name.
    pub name: Glob,
}

pub(super) fn core_version() -> String {
    "v1".to_owned()
}

pub(super) fn default_namespace() -> String {
    "default".to_owned()
}

/// A merge patch.
#[allow(clippy::struct_field_names)] // as in the file
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    /// Group and version.
    #[serde(default = "core_version")]
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// The name.
    pub name: String,
    /// `status`, or nothing for the object itself.
    #[serde(default)]
    pub subresource: Option<Subresource>,
    /// The change.
    pub patch: Map<String, Value>,
}

/// A part of an object that is changed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subresource {
    /// The status.
    Status,
}

/// How pods end.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finish {
    /// Which pods.
    pub pods: Vec<Pods>,
    /// With what result.
    pub phase: Ending,
    /// Why, such as `OutOfcpu`.
    #[serde(default)]
    pub reason: Option<String>,
}

/// How a pod ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Ending {
    /// Well.
    Succeeded,
    /// Badly.
    Failed,
}

/// How Muster is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restart {
    /// As after a crash.
    Crash,
    /// As after a shutdown.
    Gracefully,
}

impl<'de> Deserialize<'de> for Restart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if value == "scheduler" {
            return Ok(Self::Crash);
        }
        if value == serde_json::json!({"scheduler": "gracefully"}) {
            return Ok(Self::Gracefully);
        }
        Err(de::Error::custom(format!("{value}: write scheduler, or {{scheduler: gracefully}}")))
    }
}

/// Faults for requests of Muster.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// The method of the requests.
    pub method: Method,
    /// What their path contains.
    pub path: String,
    /// What happens to them.
    #[serde(default)]
    pub answer: Option<Answer>,
    /// How late they reach the server.
    #[serde(default)]
    pub delay: Option<Span>,
    /// How many requests meet it.
    #[serde(default = "one")]
    pub times: u32,
}

/// A method of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads.
    Get,
    /// Makes.
    Post,
    /// Replaces.
    Put,
    /// Changes.
    Patch,
    /// Deletes.
    Delete,
}

/// What happens to a request.
#[allow(clippy::enum_variant_names)] // as in the file
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 409, and nothing is done.
    Conflict,
    /// 429, and nothing is done.
    Throttled,
    /// 500, and nothing is done.
    Internal,
    /// 503, and nothing is done.
    Unavailable,
    /// 504, and nothing is done.
    TimedOut,
    /// The connection breaks before the server sees the request.
    Lost,
    /// The server does it, and the connection breaks.
    AnswerLost,
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_u64(), value.as_str()) {
            (Some(409), _) => Ok(Self::Conflict),
            (Some(429), _) => Ok(Self::Throttled),
            (Some(500), _) => Ok(Self::Internal),
            (Some(503), _) => Ok(Self::Unavailable),
            (Some(504), _) => Ok(Self::TimedOut),
            (_, Some("lost")) => Ok(Self::Lost),
            (_, Some("answerLost")) => Ok(Self::AnswerLost),
            _ => {
                let text = format!("{value}: must be one of 409, 429, 500, 503, 504, lost, answerLost");
                Err(de::Error::custom(text))
            }
        }
    }
}
