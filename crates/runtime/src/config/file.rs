//! The configuration file as it is written. Every field has a default; unknown fields are refused.
//!
//! Names are users' names; `effective` turns them into what the code uses. It must not know what a value does.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::makers::ProviderName;
use muster_engine::FilterName;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::profile::{AddedAffinity, Profile, SpreadDefaults};
use super::span::Span;
use crate::lease::LeaseSettings;
use crate::settings::Settings;

/// The `apiVersion` of the file.
pub(super) const API_VERSION: &str = "config.muster.dev/v1alpha1";
/// The `kind` of the file.
pub(super) const KIND: &str = "MusterConfiguration";

/// The file. What is left out has its default.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct File {
    /// `config.muster.dev/v1alpha1`.
    pub api_version: String,
    /// `MusterConfiguration`.
    pub kind: String,
    /// Pods with one of these in `spec.schedulerName` are ours.
    pub scheduler_names: Vec<String>,
    /// Gates that differ from their default.
    pub feature_gates: BTreeMap<String, bool>,
    /// Pauses after a failed attempt.
    pub backoff: Pauses,
    /// How long things may take.
    pub timeouts: Timeouts,
    /// How much may be under way at once.
    pub limits: Limits,
    /// How nodes are compared.
    pub scoring: Scoring,
    /// How pods are spread that do not say.
    pub spread_defaults: SpreadDefaults,
    /// What is asked of nodes beside what pods ask.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub added_affinity: Option<AddedAffinity>,
    /// Filters that are not asked.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without_filters: BTreeSet<FilterName>,
    /// Further profiles, with names of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// The search for a place for mixed groups.
    pub search: Search,
    /// What is done against starvation.
    pub claims: Claims,
    /// How room is taken from others.
    pub preemption: Preemption,
    /// What is known of nodes that an autoscaler adds.
    pub new_nodes: NewNodes,
    /// Whose pods become gangs by themselves.
    pub controllers: Controllers,
    /// The admission webhook, which gives pods of gangs their references when they are made.
    pub webhook: Webhook,
    /// Pauses before a bind is sent again.
    pub bind_retry: Pauses,
    /// How long to wait before something is done or said.
    pub waiting: Waiting,
    /// Which replica writes.
    pub leader_election: LeaderElection,
    /// Where health and metrics are served.
    pub listen: String,
    /// How much is logged.
    pub log_level: LogLevel,
    /// In which form.
    pub log_format: LogFormat,
    /// Where decisions are recorded; nowhere if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_dir: Option<String>,
    /// The most that one record may take, in MiB.
    pub record_size_max_mib: u64,
}

/// A pause that grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pauses {
    /// The first.
    pub initial: Span,
    /// The longest.
    pub max: Span,
}

/// How long things may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timeouts {
    /// The start of a group that does not say.
    pub schedule: Span,
    /// The binding of a single pod.
    pub bind: Span,
    /// One request.
    pub request: Span,
    /// What is under way when the process is told to stop.
    pub stop: Span,
}

/// How much may be under way at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Binds and deletes.
    pub binds_in_flight: usize,
    /// Other writes.
    pub writes_in_flight: usize,
}

/// How nodes are compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scoring {
    /// How a node's fullness is liked.
    pub strategy: Strategy,
    /// The line of `RequestedToCapacityRatio`, and only of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<ShapePoint>,
    /// The resources whose fullness counts.
    pub resources: Vec<Resource>,
    /// The resources that should be used evenly.
    pub balanced_resources: Vec<String>,
    /// What those are worth, as company, who insist on a pod like the one that is placed: 0 to 100.
    pub hard_pod_affinity_weight: i64,
    /// For a pod without preferred terms of its own, those of the pods that are there do not count.
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// What each score counts for.
    pub weights: Weights,
}

/// How a node's fullness is liked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Empty nodes first.
    LeastAllocated,
    /// Full nodes first.
    MostAllocated,
    /// By `shape`.
    RequestedToCapacityRatio,
}

/// A point of a scoring line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShapePoint {
    /// 0 to 100 percent.
    pub utilization: i64,
    /// 0 to 10.
    pub score: i64,
}

/// A resource and its weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// The resource's name.
    pub name: String,
    /// 1 to 100.
    #[serde(default = "one")]
    pub weight: i64,
}

/// What each score counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Weights {
    /// Tolerated `PreferNoSchedule` taints.
    pub taints: i64,
    /// Preferred node affinity.
    pub node_affinity: i64,
    /// Fullness.
    pub fit: i64,
    /// Even use.
    pub balanced: i64,
    /// Welcome company.
    pub pod_affinity: i64,
    /// Even spread.
    pub topology_spread: i64,
    /// Images that are there already.
    pub image_locality: i64,
}

/// The search for a place for mixed groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Search {
    /// Steps of a first search.
    pub steps_initial: u64,
    /// Steps of the longest search.
    pub steps_max: u64,
    /// The pause before a group that was not found a place, without proof, is looked at again.
    pub again: Pauses,
}

/// What is done against starvation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Claims {
    /// How long a gang is refused before it claims nodes.
    pub starving_after: Span,
    /// How long a claim lasts.
    pub max: Span,
}

/// How room is taken from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Preemption {
    /// Whether anybody is evicted for others at all.
    pub enabled: bool,
    /// How long somebody waits as unschedulable before others are evicted, so that an autoscaler can act first.
    pub delay: Span,
    /// How pods are evicted.
    pub eviction: Eviction,
    /// How long a pod whose eviction was refused is left alone.
    pub spare_after_refusal: Span,
    /// How many sets of victims may be looked through for the cheapest.
    pub steps_max: u64,
}

/// What is known of nodes that an autoscaler adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NewNodes {
    /// More taints that are taken off when a node is ready for its first pods: keys, or the start of a key before `*`.
    pub startup_taints: Vec<String>,
    /// How long after it was made such a node is waited for before others are evicted.
    pub ready_within: Span,
}

/// Whose pods become gangs by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Controllers {
    /// In whose words JobSets that ask for it are gangs.
    #[serde(deserialize_with = "word")]
    pub job_sets: GangedJobSets,
    /// Jobs.
    #[serde(deserialize_with = "word")]
    pub jobs: GangedJobs,
    /// In whose words each replica of a LeaderWorkerSet is a gang; the gate `PodGroupPerReplica` switches that off.
    #[serde(deserialize_with = "word")]
    pub leader_worker_sets: ProviderName,
}

/// One of several words. Whatever else is written is refused with all of them, also what is no text.
fn word<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    let written = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    T::deserialize(written.into_deserializer())
}

/// In which objects the gangs of JobSets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GangedJobSets {
    /// No JobSet is a gang.
    None,
    /// Muster's own Workload.
    Muster,
    /// Kubernetes' own Workload and PodGroups.
    Native,
}

/// Which Jobs are gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GangedJobs {
    /// None.
    None,
    /// Those that ask for it by annotation.
    Annotated,
    /// These, and all that are indexed with as many pods at once as completions.
    Indexed,
}

impl Default for Controllers {
    fn default() -> Self {
        Self { job_sets: GangedJobSets::Muster, jobs: GangedJobs::Annotated, leader_worker_sets: ProviderName::Muster }
    }
}

/// The admission webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Webhook {
    /// Whether it is served.
    pub enabled: bool,
    /// Where.
    pub listen: String,
    /// Where its certificate is from.
    pub certificates: Certificates,
}

/// Where the certificate of the webhook is from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Certificates {
    /// A folder with `tls.crt` and `tls.key`, such as cert-manager fills; Muster makes its own if it is left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The namespace of the Secret and the Service.
    pub namespace: String,
    /// The Secret in which replicas share the certificate that Muster makes.
    pub secret: String,
    /// The Service by which the API server calls.
    pub service: String,
    /// The MutatingWebhookConfiguration that is told whom to trust.
    pub configuration: String,
    /// More names or addresses that the certificate is good for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_names: Vec<String>,
}

impl Default for Webhook {
    fn default() -> Self {
        Self { enabled: false, listen: "0.0.0.0:9443".to_owned(), certificates: Certificates::default() }
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self {
            folder: None,
            namespace: LeaseSettings::default().namespace,
            secret: "muster-webhook".to_owned(),
            service: "muster-webhook".to_owned(),
            configuration: "muster".to_owned(),
            extra_names: Vec::new(),
        }
    }
}

/// How pods are evicted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Eviction {
    /// The pod is deleted, as kube-scheduler does: disruption budgets are kept where that is possible.
    #[default]
    Delete,
    /// The eviction API is asked: nobody is evicted against a disruption budget.
    #[serde(rename = "EvictionAPI")]
    EvictionApi,
}

/// How long to wait before something is done or said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Waiting {
    /// A basic group, for the rest of its `desiredCount`.
    pub desired_count: Span,
    /// Before waiting is worth a condition or an event.
    pub report_after: Span,
}

/// Which replica writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether there is an election: without one, run a single replica.
    pub enabled: bool,
    /// The Lease.
    pub lease_name: String,
    /// Its namespace.
    pub lease_namespace: String,
    /// How long others wait.
    pub lease_duration: Span,
    /// How long the leader may write after a renewal.
    pub renew_deadline: Span,
    /// How often it renews.
    pub retry_period: Span,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(missing_docs)] // the usual names
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

/// In which form logs are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// For people.
    Text,
}

fn one() -> i64 {
    1
}

const fn ms(ms: u64) -> Span {
    Span::from_millis(ms)
}

impl Default for File {
    fn default() -> Self {
        let settings = Settings::default();
        let engine = &settings.engine;
        Self {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            scheduler_names: settings.scheduler_names().map(ToOwned::to_owned).collect(),
            feature_gates: BTreeMap::new(),
            backoff: Pauses { initial: ms(engine.backoff_ms_initial), max: ms(engine.backoff_ms_max) },
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            scoring: Scoring::default(),
            spread_defaults: SpreadDefaults::default(),
            added_affinity: None,
            without_filters: BTreeSet::new(),
            profiles: Vec::new(),
            search: Search::default(),
            claims: Claims::default(),
            preemption: Preemption::default(),
            new_nodes: NewNodes::default(),
            controllers: Controllers::default(),
            webhook: Webhook::default(),
            bind_retry: Pauses { initial: ms(engine.bind_retry_ms_initial), max: ms(engine.bind_retry_ms_max) },
            waiting: Waiting::default(),
            leader_election: LeaderElection::default(),
            listen: "0.0.0.0:8080".to_owned(),
            log_level: LogLevel::Info,
            log_format: LogFormat::Json,
            record_dir: None,
            record_size_max_mib: 4096,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        let settings = Settings::default();
        Self {
            schedule: ms(settings.engine.schedule_timeout_ms),
            bind: ms(settings.engine.bind_timeout_ms),
            request: settings.request_timeout.into(),
            stop: settings.stop_timeout.into(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        let settings = Settings::default();
        Self { binds_in_flight: settings.binds_in_flight_max, writes_in_flight: settings.writes_in_flight_max }
    }
}

impl Default for Scoring {
    fn default() -> Self {
        let scoring = muster_engine::Scoring::default();
        let (strategy, shape) = match scoring.strategy {
            muster_engine::Strategy::LeastAllocated => (Strategy::LeastAllocated, Vec::new()),
            muster_engine::Strategy::MostAllocated => (Strategy::MostAllocated, Vec::new()),
            muster_engine::Strategy::RequestedToCapacityRatio { shape } => {
                let point = |point: muster_engine::ShapePoint| ShapePoint {
                    utilization: point.utilization,
                    score: point.score,
                };
                (Strategy::RequestedToCapacityRatio, shape.into_iter().map(point).collect())
            }
        };
        let resource = |one: muster_engine::Weighted| Resource { name: one.name, weight: one.weight };
        Self {
            strategy,
            shape,
            resources: scoring.fit_resources.into_iter().map(resource).collect(),
            balanced_resources: scoring.balanced_resources,
            hard_pod_affinity_weight: scoring.hard_pod_affinity_weight,
            ignore_preferred_terms_of_existing_pods: scoring.ignores_likes_of_others,
            weights: Weights::default(),
        }
    }
}

impl Default for Weights {
    fn default() -> Self {
        let scoring = muster_engine::Scoring::default();
        Self {
            taints: scoring.weight_taints,
            node_affinity: scoring.weight_node_affinity,
            fit: scoring.weight_fit,
            balanced: scoring.weight_balanced,
            pod_affinity: scoring.weight_pod_affinity,
            topology_spread: scoring.weight_topology_spread,
            image_locality: scoring.weight_image_locality,
        }
    }
}

impl Default for Search {
    fn default() -> Self {
        let engine = muster_engine::Config::default();
        Self {
            steps_initial: engine.search_steps_initial,
            steps_max: engine.search_steps_max,
            again: Pauses { initial: ms(engine.search_again_ms_initial), max: ms(engine.search_again_ms_max) },
        }
    }
}

impl Default for Claims {
    fn default() -> Self {
        let engine = muster_engine::Config::default();
        Self { starving_after: ms(engine.starving_after_ms), max: ms(engine.claim_ms_max) }
    }
}

impl Default for Preemption {
    fn default() -> Self {
        let rules = muster_engine::PreemptionRules::default();
        Self {
            enabled: rules.on,
            delay: ms(rules.delay_ms),
            eviction: Eviction::default(),
            spare_after_refusal: ms(rules.spare_ms),
            steps_max: rules.steps_max,
        }
    }
}

impl Default for NewNodes {
    fn default() -> Self {
        let rules = muster_engine::PreemptionRules::default();
        Self { startup_taints: Vec::new(), ready_within: ms(rules.arrival_ms) }
    }
}

impl Default for Waiting {
    fn default() -> Self {
        let engine = muster_engine::Config::default();
        Self { desired_count: ms(engine.desired_wait_ms), report_after: ms(engine.report_waiting_after_ms) }
    }
}

impl Default for LeaderElection {
    fn default() -> Self {
        let lease = LeaseSettings::default();
        Self {
            enabled: true,
            lease_name: lease.name,
            lease_namespace: lease.namespace,
            lease_duration: lease.lease_duration.into(),
            renew_deadline: lease.renew_deadline.into(),
            retry_period: lease.retry_period.into(),
        }
    }
}
