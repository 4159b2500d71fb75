//! The configuration file as users write it. Every field has a default; unknown fields are rejected.
//!
//! `effective` turns the users' names into those of the code.
//! Must not depend on what a value does.

use std::collections::{BTreeMap, BTreeSet};

use muster_api::owners::ProviderName;
use muster_engine::FilterName;
use serde::de::IntoDeserializer as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::metrics::SecuredMetrics;
use super::packing::Packing;
use super::profile::{AddedAffinity, Profile, SpreadDefaults};
use super::span::Span;
use crate::lease::LeaseSettings;
use crate::settings::Settings;

/// The `apiVersion` of the file.
pub(super) const API_VERSION: &str = "config.muster.dev/v1alpha1";
/// The `kind` of the file.
pub(super) const KIND: &str = "MusterConfiguration";

/// The file. Omitted fields have their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct File {
    /// `config.muster.dev/v1alpha1`.
    pub api_version: String,
    /// `MusterConfiguration`.
    pub kind: String,
    /// The values of `spec.schedulerName` that Muster schedules.
    pub scheduler_names: Vec<String>,
    /// Feature gates that differ from their defaults.
    pub feature_gates: BTreeMap<String, bool>,
    /// The backoff after a failed attempt.
    pub backoff: Backoff,
    /// Timeouts.
    pub timeouts: Timeouts,
    /// The maximum number of requests in flight.
    pub limits: Limits,
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
    /// More profiles, with their own scheduler names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub profiles: Vec<Profile>,
    /// The search for a placement of heterogeneous groups.
    pub search: Search,
    /// Reservations against starvation. Earlier versions called them `claims`.
    #[serde(alias = "claims")]
    pub reservations: Reservations,
    /// Preemption.
    pub preemption: Preemption,
    /// Nodes that an autoscaler adds.
    pub new_nodes: NewNodes,
    /// The topology of the cluster.
    pub topology: Topology,
    /// The owner kinds whose pods become gangs automatically.
    pub controllers: Controllers,
    /// The admission webhook, which sets the group references of new pods.
    pub webhook: Webhook,
    /// The backoff before a bind is retried.
    pub bind_retry: Backoff,
    /// Delays before an action or a report.
    pub waiting: Waiting,
    /// Leader election.
    pub leader_election: LeaderElection,
    /// The address of health and metrics.
    pub listen: String,
    /// Metrics over TLS.
    pub metrics: SecuredMetrics,
    /// The log level.
    pub log_level: LogLevel,
    /// The log format.
    pub log_format: LogFormat,
    /// The directory for decision records; nothing is recorded if it is omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub record_dir: Option<String>,
    /// The maximum size of one record, in MiB.
    pub record_size_max_mib: u64,
}

/// An exponential backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backoff {
    /// The first pause.
    pub initial: Span,
    /// The longest pause.
    pub max: Span,
}

/// Timeouts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Timeouts {
    /// The start of a group without its own timeout.
    pub schedule: Span,
    /// The binding of a single pod.
    pub bind: Span,
    /// The volumes of a pod or group that has nodes.
    pub bind_volumes: Span,
    /// A single request.
    pub request: Span,
    /// The requests in flight when the process is stopped.
    pub stop: Span,
}

/// The maximum number of requests in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Limits {
    /// Binds and deletions.
    pub binds_in_flight: usize,
    /// Other writes.
    pub writes_in_flight: usize,
}

/// How nodes are scored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scoring {
    /// Whether empty or full nodes are preferred.
    pub strategy: Strategy,
    /// The shape of `RequestedToCapacityRatio`; only for that strategy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<ShapePoint>,
    /// The resources that count for the fit score.
    pub resources: Vec<Resource>,
    /// The resources that should be used evenly.
    pub balanced_resources: Vec<String>,
    /// The weight of existing pods that require affinity to the scheduled pod: 0 to 100.
    pub hard_pod_affinity_weight: i64,
    /// Whether the preferred terms of existing pods are ignored for a pod without its own.
    pub ignore_preferred_terms_of_existing_pods: bool,
    /// The shape of the score for free storage.
    pub storage_shape: Vec<ShapePoint>,
    /// The weights of the scores.
    pub weights: Weights,
}

/// Whether empty or full nodes are preferred.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Strategy {
    /// Empty nodes first.
    LeastAllocated,
    /// Full nodes first.
    MostAllocated,
    /// By `shape`.
    RequestedToCapacityRatio,
}

/// A point of a scoring shape.
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

/// The weights of the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Weights {
    /// `PreferNoSchedule` taints that the pod does not tolerate.
    pub taints: i64,
    /// Preferred node affinity.
    pub node_affinity: i64,
    /// The fit strategy.
    pub fit: i64,
    /// Balanced resource usage.
    pub balanced: i64,
    /// Preferred inter-pod affinity.
    pub pod_affinity: i64,
    /// Topology spread.
    pub topology_spread: i64,
    /// Images that are already on the node.
    pub image_locality: i64,
    /// Storage that is left free.
    pub volume_binding: i64,
}

/// The search for a placement of heterogeneous groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Search {
    /// The steps of the first search.
    pub steps_initial: u64,
    /// The steps of the longest search.
    pub steps_max: u64,
    /// The backoff of a group for which the search ended without a placement and without a proof.
    pub again: Backoff,
}

/// Reservations against starvation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Reservations {
    /// How long a gang is unschedulable before it reserves nodes.
    pub starving_after: Span,
    /// How long a reservation lasts.
    pub max: Span,
    /// The largest share of the nodes that may be reserved, in percent.
    pub max_nodes_percent: u32,
    /// How long after its start a group keeps capacity for the rest of its `minResources` from others.
    pub min_resources_held_for: Span,
}

/// Preemption.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Preemption {
    /// Whether preemption is enabled.
    pub enabled: bool,
    /// How long a pod or group is unschedulable before it preempts, so that an autoscaler can act first.
    pub delay: Span,
    /// How pods are evicted.
    pub eviction: Eviction,
    /// How long a pod is not chosen as a victim again after its eviction was rejected.
    pub spare_after_refusal: Span,
    /// How many sets of victims are compared at most to find the cheapest.
    pub steps_max: u64,
    /// Whether pods are evicted also for members of a gang beyond its minimum.
    pub beyond_minimum: bool,
    /// Whether a group's own priority counts only up to the lowest of its live members, also in the queue.
    pub cap_group_priority: bool,
}

/// Nodes that an autoscaler adds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NewNodes {
    /// More taints that are removed when a node is ready for its first pods: keys, or prefixes before `*`.
    pub startup_taints: Vec<String>,
    /// How long after its creation such a node is waited for before preemption.
    pub ready_within: Span,
    /// More labels whose values an autoscaler knows before it adds a node.
    pub known_labels: Vec<String>,
}

/// The topology of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Topology {
    /// Node labels that divide it into nested domains, widest first.
    pub levels: Vec<String>,
}

/// The owner kinds whose pods become gangs automatically.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Controllers {
    /// The group API in which annotated JobSets become gangs.
    #[serde(deserialize_with = "one_of")]
    pub job_sets: GangedJobSets,
    /// Which Jobs become gangs.
    #[serde(deserialize_with = "one_of")]
    pub jobs: GangedJobs,
    /// The group API in which each replica of a LeaderWorkerSet is a gang; the gate `PodGroupPerReplica` disables it.
    #[serde(deserialize_with = "one_of")]
    pub leader_worker_sets: ProviderName,
}

/// Parses one of several names. An error lists all of them, even if the value is no string.
fn one_of<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<T, D::Error> {
    let written = match Value::deserialize(deserializer)? {
        Value::String(text) => text,
        other => other.to_string(),
    };
    T::deserialize(written.into_deserializer())
}

/// The group API for the gangs of JobSets.
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
    /// Jobs with the annotation.
    Annotated,
    /// These, and all indexed Jobs with as many parallel pods as completions.
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
    /// The address that it listens on.
    pub listen: String,
    /// The source of its certificate.
    pub certificates: Certificates,
}

/// The source of the webhook's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Certificates {
    /// A directory with `tls.crt` and `tls.key`, as filled by cert-manager; if it is omitted, Muster creates a
    /// certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// The namespace of the Secret and the Service.
    pub namespace: String,
    /// The Secret in which replicas share the certificate that Muster creates.
    pub secret: String,
    /// The Service through which the API server calls the webhook.
    pub service: String,
    /// The MutatingWebhookConfiguration that gets the CA bundle.
    pub configuration: String,
    /// More names or addresses in the certificate.
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
    /// The pod is deleted, as by kube-scheduler: disruption budgets are respected where possible.
    #[default]
    Delete,
    /// The eviction API is used: no pod is evicted against a disruption budget.
    #[serde(rename = "EvictionAPI")]
    EvictionApi,
}

/// Delays before an action or a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Waiting {
    /// How long a basic group waits for the rest of its `desiredCount`.
    pub desired_count: Span,
    /// How long a pod or group waits before it gets a condition or an event.
    pub report_after: Span,
}

/// Leader election.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct LeaderElection {
    /// Whether it is enabled: without it, run a single replica.
    pub enabled: bool,
    /// The name of the Lease.
    pub lease_name: String,
    /// Its namespace.
    pub lease_namespace: String,
    /// How long others wait before they take over.
    pub lease_duration: Span,
    /// How long the leader may write after a renewal.
    pub renew_deadline: Span,
    /// The interval of renewals.
    pub retry_period: Span,
    /// How long the API server may leave a watch without any answer before the leader gives the lease back.
    pub max_watch_silence: Span,
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

/// The log format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// One JSON object per line.
    Json,
    /// Human-readable text.
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
            backoff: Backoff { initial: ms(engine.backoff_ms_initial), max: ms(engine.backoff_ms_max) },
            timeouts: Timeouts::default(),
            limits: Limits::default(),
            packing: None,
            scoring: Scoring::default(),
            spread_defaults: SpreadDefaults::default(),
            added_affinity: None,
            without_filters: BTreeSet::new(),
            profiles: Vec::new(),
            search: Search::default(),
            reservations: Reservations::default(),
            preemption: Preemption::default(),
            new_nodes: NewNodes::default(),
            topology: Topology::default(),
            controllers: Controllers::default(),
            webhook: Webhook::default(),
            bind_retry: Backoff { initial: ms(engine.bind_retry_ms_initial), max: ms(engine.bind_retry_ms_max) },
            waiting: Waiting::default(),
            leader_election: LeaderElection::default(),
            listen: "0.0.0.0:8080".to_owned(),
            metrics: SecuredMetrics::default(),
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
            bind_volumes: ms(settings.engine.volume_bind_timeout_ms),
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
                (Strategy::RequestedToCapacityRatio, shape.into_iter().map(ShapePoint::from).collect())
            }
        };
        let storage_shape = scoring.storage_shape.iter().map(|point| ShapePoint::from(*point)).collect();
        let resource = |one: muster_engine::Weighted| Resource { name: one.name, weight: one.weight };
        Self {
            strategy,
            shape,
            resources: scoring.fit_resources.into_iter().map(resource).collect(),
            balanced_resources: scoring.balanced_resources,
            hard_pod_affinity_weight: scoring.hard_pod_affinity_weight,
            ignore_preferred_terms_of_existing_pods: scoring.ignores_preferred_terms_of_others,
            storage_shape,
            weights: Weights::default(),
        }
    }
}

impl From<muster_engine::ShapePoint> for ShapePoint {
    fn from(point: muster_engine::ShapePoint) -> Self {
        Self { utilization: point.utilization, score: point.score }
    }
}

impl From<ShapePoint> for muster_engine::ShapePoint {
    fn from(point: ShapePoint) -> Self {
        Self { utilization: point.utilization, score: point.score }
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
            volume_binding: scoring.weight_volume_binding,
        }
    }
}

impl Default for Search {
    fn default() -> Self {
        let engine = muster_engine::Config::default();
        Self {
            steps_initial: engine.search_steps_initial,
            steps_max: engine.search_steps_max,
            again: Backoff { initial: ms(engine.search_again_ms_initial), max: ms(engine.search_again_ms_max) },
        }
    }
}

impl Default for Reservations {
    fn default() -> Self {
        let engine = muster_engine::Config::default();
        Self {
            starving_after: ms(engine.starving_after_ms),
            max: ms(engine.reservation_ms_max),
            max_nodes_percent: engine.reservation_nodes_percent_max,
            min_resources_held_for: ms(engine.min_resources_held_ms_max),
        }
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
            beyond_minimum: rules.beyond_minimum,
            cap_group_priority: false,
        }
    }
}

impl Default for NewNodes {
    fn default() -> Self {
        let rules = muster_engine::PreemptionRules::default();
        Self { startup_taints: Vec::new(), ready_within: ms(rules.upcoming_node_wait_ms), known_labels: Vec::new() }
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
            max_watch_silence: lease.watch_silence_max.into(),
        }
    }
}
