//! The data model of a scenario: the content of a file with every field known and validated.
//!
//! Invariant: a scenario that was read can be run; what a cluster cannot do is reported by the cluster. Must not depend
//! on carriers, clusters or how assertions are checked.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use muster_api::native::Gates;
use muster_api::owners::GangedOwners;
use muster_api::resources::WrittenResources;
use muster_playground::components::{PoolCapacity, PoolDriver};
use muster_runtime::Settings;
use muster_runtime::config::{Configuration, File, Overrides, Span};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};

use super::assertions::{Assertions, Expect, Hold};
use super::carrier::Carrier;
use super::manifest;
use super::pattern::{Glob, Pods};

/// A test case in steps.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it shows, in one sentence.
    pub name: String,
    /// The file it was read from.
    pub file: String,
    /// Why it runs in more than one environment; empty for a scenario about scheduling decisions alone.
    pub about: BTreeSet<About>,
    /// The configuration of the cluster and of Muster.
    pub config: Config,
    /// The initial nodes.
    pub nodes: Vec<Nodes>,
    /// The only carriers it is meant for; all if it is empty.
    pub carriers: Vec<Carrier>,
    /// Carriers in which it does not hold, each with the reason.
    pub except: BTreeMap<Carrier, String>,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

impl Scenario {
    /// The minimum time it takes: the sum of all `hold` steps.
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

    /// Whether it contains objects of this group and version, in any carrier.
    pub(super) fn writes(&self, api_version: &str) -> bool {
        self.steps.iter().any(|step| match &step.action {
            Action::Apply(apply) | Action::Refused(Refused { apply: Some(apply), .. }) => {
                apply.manifests.iter().any(|manifest| manifest["apiVersion"] == api_version)
            }
            Action::Create(create) => create.manifest.get("apiVersion").is_some_and(|version| version == api_version),
            _ => false,
        })
    }

    /// Whether it has Jobs, JobSets or LeaderWorkerSets.
    pub(super) fn has_owners(&self) -> bool {
        self.writes("batch/v1") || self.needs_managers()
    }

    /// Whether it has volumes, claims, storage classes or nodes with CSI drivers.
    pub(super) fn has_volumes(&self) -> bool {
        const WORDS: [&str; 5] = ["PersistentVolume", "StorageClass", "\"CSI", "\"ephemeral\"", "volumeClaimTemplate"];
        let mentions = |manifest: &Value| {
            let text = manifest.to_string();
            WORDS.iter().any(|word| text.contains(word))
        };
        let has_drivers =
            |nodes: &[Nodes]| nodes.iter().any(|one| !one.drivers.is_empty() || !one.capacities.is_empty());
        has_drivers(&self.nodes)
            || self.steps.iter().any(|step| match &step.action {
                Action::Apply(apply) | Action::Refused(Refused { apply: Some(apply), .. }) => {
                    apply.manifests.iter().any(mentions)
                }
                Action::Create(create) => mentions(&Value::Object(create.manifest.clone())),
                Action::Nodes(nodes) => has_drivers(nodes),
                _ => false,
            })
    }

    /// Whether the cluster needs the JobSet and LeaderWorkerSet controllers.
    pub fn needs_managers(&self) -> bool {
        OF_MANAGERS.iter().any(|version| self.writes(version))
    }

    /// The version of Kubernetes' own group API that it contains itself, in any carrier.
    pub fn native_version(&self) -> Option<&str> {
        let manifests = self.steps.iter().flat_map(|step| match &step.action {
            Action::Apply(apply) | Action::Refused(Refused { apply: Some(apply), .. }) => apply.manifests.as_slice(),
            _ => &[],
        });
        // Groups of groups are in one version only, beside any version of the others.
        let manifests = manifests.filter(|manifest| manifest["kind"] != "CompositePodGroup");
        let mut versions = manifests.filter_map(|manifest| manifest["apiVersion"].as_str());
        versions.find(|version| version.starts_with("scheduling.k8s.io/") && *version != "scheduling.k8s.io/v1")
    }
}

/// What a scenario is about, besides Muster's decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum About {
    /// The API: the outcome depends on what a real API server, its controllers or a kubelet do.
    Api,
    /// How groups are read and written: every carrier has to show it.
    Carriers,
}

/// Kinds that need their own controller managers.
pub(super) const OF_MANAGERS: [&str; 2] = ["jobset.x-k8s.io/v1alpha2", "leaderworkerset.x-k8s.io/v1"];

/// A step and its source text.
#[derive(Clone, Debug)]
pub struct Step {
    /// The line of the file on which it begins.
    pub line: u64,
    /// Its text.
    pub text: String,
    /// What it does.
    pub action: Action,
}

/// The configuration of the cluster and of Muster.
#[derive(Clone, Debug)]
pub struct Config {
    /// The version of Kubernetes that the scenario is about.
    pub kubernetes_version: Option<KubernetesVersion>,
    /// Whether the cluster lacks Kubernetes' own group API.
    pub stock: bool,
    /// Feature gates of Kubernetes that are on beside those of its group API.
    pub kubernetes_feature_gates: KubernetesFeatureGates,
    /// Whether Muster's webhook is called. If it is not set, it is called for scenarios with owners of pods, if the
    /// cluster is in the process; on a real cluster only where the controllers cannot replace it.
    pub webhook: Option<bool>,
    /// Muster's configuration.
    pub settings: Settings,
}

impl Default for Config {
    fn default() -> Self {
        // The same as without a configuration file.
        let settings = Settings { ganged: GangedOwners::all(), ..Settings::default() };
        let kubernetes_feature_gates = KubernetesFeatureGates::default();
        Self { kubernetes_version: None, stock: false, kubernetes_feature_gates, webhook: None, settings }
    }
}

/// Fields of Muster's configuration file that have no effect in a scenario.
const WITHOUT_MEANING: [&str; 9] = [
    "apiVersion",
    "kind",
    "leaderElection",
    "listen",
    "metrics",
    "logLevel",
    "logFormat",
    "recordDir",
    "recordSizeMaxMib",
];

/// Fields of a scenario's configuration that are about the cluster, not about Muster.
const OF_THE_CLUSTER: [&str; 4] = ["kubernetesVersion", "stock", "kubernetesFeatureGates", "webhook"];

impl<'de> Deserialize<'de> for Config {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct ScenarioFields {
            kubernetes_version: Option<KubernetesVersion>,
            stock: bool,
            kubernetes_feature_gates: KubernetesFeatureGates,
            webhook: Option<bool>,
        }
        let mut fields = Map::deserialize(deserializer)?;
        if let Some(field) = WITHOUT_MEANING.iter().find(|field| fields.contains_key(**field)) {
            return Err(de::Error::custom(format!("{field}: has no meaning in a scenario")));
        }
        let own: Map<String, Value> = OF_THE_CLUSTER.iter().filter_map(|field| fields.remove_entry(*field)).collect();
        let own: ScenarioFields = at_path(Value::Object(own))?;
        let file: File = at_path(Value::Object(fields))?;
        let configuration = Configuration::new(file, Overrides::default()).map_err(de::Error::custom)?;
        let ScenarioFields { kubernetes_version, stock, kubernetes_feature_gates, webhook } = own;
        let settings = configuration.settings;
        Ok(Self { kubernetes_version, stock, kubernetes_feature_gates, webhook, settings })
    }
}

/// Reads a value; errors include the path of the field.
fn at_path<T: DeserializeOwned, E: de::Error>(value: Value) -> Result<T, E> {
    serde_path_to_error::deserialize(value).map_err(|error| E::custom(format!("{}: {}", error.path(), error.inner())))
}

/// Feature gates of Kubernetes that scenarios can select, by their names there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default, deny_unknown_fields)]
pub struct KubernetesFeatureGates {
    /// `schedulingConstraints` of PodGroups.
    pub topology_aware_workload_scheduling: bool,
    /// CompositePodGroups, and `parentCompositePodGroupName` of PodGroups.
    pub composite_pod_group: bool,
}

impl KubernetesFeatureGates {
    /// The names of those that are on.
    pub(super) fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [
            ("TopologyAwareWorkloadScheduling", self.topology_aware_workload_scheduling),
            ("CompositePodGroup", self.composite_pod_group),
        ];
        all.into_iter().filter_map(|(name, is_on)| is_on.then_some(name))
    }

    /// The gates of the playground's server.
    pub(super) fn of_server(self) -> Gates {
        let Self { topology_aware_workload_scheduling, composite_pod_group } = self;
        Gates { topology_aware_workload_scheduling, composite_pod_group, ..Gates::default() }
    }
}

/// A Kubernetes version that scenarios can select.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubernetesVersion {
    /// 1.37.
    V1_37,
}

impl KubernetesVersion {
    /// All versions that can be selected.
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

/// Identical nodes, in short form.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nodes {
    /// How many.
    #[serde(default = "one")]
    pub count: u32,
    /// The name, in which `{i}` is the number of the node.
    pub name: String,
    /// The capacity of a node.
    pub capacity: WrittenResources,
    /// Labels; `{i}` in values is the number of the node.
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    /// Taints.
    #[serde(default)]
    pub taints: Vec<Taint>,
    /// CSI drivers.
    #[serde(default)]
    pub drivers: Vec<PoolDriver>,
    /// Pools of storage.
    #[serde(default)]
    pub capacities: Vec<PoolCapacity>,
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
    /// The effect.
    pub effect: String,
}

fn one() -> u32 {
    1
}

/// What a step does.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Action {
    /// Creates or changes a group.
    Group(Group),
    /// Creates identical objects.
    Create(Create),
    /// Creates or changes objects.
    Apply(Apply),
    /// Deletes objects.
    Delete(Vec<Delete>),
    /// Changes an object by a merge patch.
    Patch(Patch),
    /// Sends a request that the API server must refuse.
    Refused(Refused),
    /// Finishes pods, as their kubelet would report it.
    Finish(Finish),
    /// Adds nodes.
    Nodes(Vec<Nodes>),
    /// Restarts Muster.
    Restart(Restart),
    /// Injects faults between Muster and the API server.
    Fault(Fault),
    /// Waits until assertions become true.
    Expect(Expect),
    /// Checks that assertions stay true.
    Hold(Hold),
}

impl Action {
    /// The assertions of the step, if it has any.
    pub(super) fn assertions(&self) -> Option<&Assertions> {
        match self {
            Action::Expect(expect) => Some(&expect.assertions),
            Action::Hold(hold) => Some(&hold.assertions),
            _ => None,
        }
    }
}

/// A group, independent of the carrier.
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
    /// All members have to be in one domain of this node label.
    #[serde(default)]
    pub topology_key: Option<String>,
}

/// What is preempted together.
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

/// Identical objects.
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
    /// The object, in which `{i}` in strings is its number.
    pub manifest: Map<String, Value>,
}

/// Raw manifests. A file it names is read together with the scenario.
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

/// A request that the API server must refuse: manifests or a patch.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refused {
    /// A part of the server's message.
    pub contains: String,
    /// Objects that are created or changed; the first must be refused.
    #[serde(default)]
    pub apply: Option<Apply>,
    /// A change of an object.
    #[serde(default)]
    pub patch: Option<Patch>,
}

/// What is deleted: an object, or the object of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delete {
    /// Objects of one kind; the name may have wildcards.
    Objects(ObjectName),
    /// The object that defines a group, in any carrier.
    Group(String),
}

impl Delete {
    /// The group whose object is deleted, if any.
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
    /// The namespace; ignored for cluster-scoped kinds.
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
    /// The patch.
    pub patch: Map<String, Value>,
}

/// A subresource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Subresource {
    /// The status.
    Status,
}

/// How pods finish.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Finish {
    /// Which pods.
    pub pods: Vec<Pods>,
    /// The final phase.
    pub phase: Ending,
    /// The status reason, such as `OutOfcpu`.
    #[serde(default)]
    pub reason: Option<String>,
}

/// The final phase of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Ending {
    /// It succeeded.
    Succeeded,
    /// It failed.
    Failed,
}

/// A restart of Muster.
#[derive(Clone, Debug)]
pub struct Restart {
    /// How it ends.
    pub end: End,
    /// Its configuration from then on, if it changes.
    pub settings: Option<Box<Settings>>,
}

/// How Muster ends before it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum End {
    /// As after a crash.
    Crash,
    /// As after a graceful shutdown.
    Gracefully,
}

impl<'de> Deserialize<'de> for Restart {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            scheduler: End,
            config: Option<Map<String, Value>>,
        }
        let value = Value::deserialize(deserializer)?;
        if value == "scheduler" {
            return Ok(Self { end: End::Crash, settings: None });
        }
        if !value.is_object() {
            let write = "write scheduler, or {scheduler: gracefully} or {scheduler: crash}, with config if it changes";
            return Err(de::Error::custom(format!("{value}: {write}")));
        }
        let Fields { scheduler: end, config } = at_path(value)?;
        let settings = config.map(|config| {
            // The cluster stays as it is.
            match OF_THE_CLUSTER.iter().find(|field| config.contains_key(**field)) {
                Some(field) => Err(de::Error::custom(format!("config.{field}: cannot change in a scenario"))),
                None => at_path::<Config, _>(Value::Object(config)).map(|config| Box::new(config.settings)),
            }
        });
        Ok(Self { end, settings: settings.transpose()? })
    }
}

/// Faults for Muster's requests.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// The method of the requests.
    pub method: Method,
    /// A substring of their path.
    pub path: String,
    /// The injected response.
    #[serde(default)]
    pub answer: Option<Answer>,
    /// By how much they are delayed.
    #[serde(default)]
    pub delay: Option<Span>,
    /// How many requests are affected.
    #[serde(default = "one")]
    pub times: u32,
}

/// An HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Reads.
    Get,
    /// Creates.
    Post,
    /// Replaces.
    Put,
    /// Changes.
    Patch,
    /// Deletes.
    Delete,
}

/// An injected response.
#[allow(clippy::enum_variant_names)] // as in the file
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// 409; the request has no effect.
    Conflict,
    /// 422; the request has no effect.
    Invalid,
    /// 429; the request has no effect.
    Throttled,
    /// 500; the request has no effect.
    Internal,
    /// 503; the request has no effect.
    Unavailable,
    /// 504; the request has no effect.
    TimedOut,
    /// The connection breaks before the server sees the request.
    Lost,
    /// The request takes effect, then the connection breaks.
    AnswerLost,
}

impl<'de> Deserialize<'de> for Answer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match (value.as_u64(), value.as_str()) {
            (Some(409), _) => Ok(Self::Conflict),
            (Some(422), _) => Ok(Self::Invalid),
            (Some(429), _) => Ok(Self::Throttled),
            (Some(500), _) => Ok(Self::Internal),
            (Some(503), _) => Ok(Self::Unavailable),
            (Some(504), _) => Ok(Self::TimedOut),
            (_, Some("lost")) => Ok(Self::Lost),
            (_, Some("answerLost")) => Ok(Self::AnswerLost),
            _ => {
                let text = format!("{value}: must be one of 409, 422, 429, 500, 503, 504, lost, answerLost");
                Err(de::Error::custom(text))
            }
        }
    }
}
