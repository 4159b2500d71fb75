//! The effective configuration from file and flags: validated, in the form that the code uses.
//!
//! Errors name the field of the file, even if the engine rejects the value. Flags take precedence over the file.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::PathBuf;

use muster_api::names::check_label_key;
use muster_api::owners::job::ImplicitGangs;
use muster_api::owners::{GangedOwners, GroupApi};
use muster_engine::{Config, PreemptionRules, ShapePoint, ValidationError, Weighted};

use super::ConfigError;
use super::file::{
    Certificates, Controllers, Eviction, File, GangedJobSets, GangedJobs, LogFormat, LogLevel, NewNodes, Scoring,
    Strategy,
};
use super::profile;
use super::span::Span;
use crate::gates::FeatureGates;
use crate::lease::LeaseSettings;
use crate::secure_metrics::SecureMetricsSettings;
use crate::settings::{Settings, TaintKey};

/// Everything that a process needs to run.
#[derive(Clone, Debug)]
pub struct Configuration {
    /// The settings of the scheduler.
    pub settings: Settings,
    /// The lease to compete for; `None` without leader election.
    pub lease: Option<LeaseSettings>,
    /// The address of health and metrics.
    pub listen: SocketAddr,
    /// The address of metrics over TLS; `None` if they are served with health.
    pub secure_metrics: Option<SecureMetricsSettings>,
    /// The address of the admission webhook; `None` if it is disabled.
    pub webhook: Option<(SocketAddr, Certificates)>,
    /// The log level.
    pub log_level: LogLevel,
    /// The log format.
    pub log_format: LogFormat,
    /// Where decisions are recorded.
    pub record: Option<RecordSettings>,
    /// The same as a file, with all defaults.
    pub file: File,
}

/// Where decisions are recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSettings {
    /// The directory; each start creates a new file in it.
    pub dir: PathBuf,
    /// The maximum size of one file.
    pub size_max_bytes: u64,
}

/// The values of flags; an omitted flag leaves the file's value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // named as in the file
pub struct Overrides {
    pub scheduler_names: Vec<String>,
    pub feature_gates: BTreeMap<String, bool>,
    pub leader_elect: Option<bool>,
    pub lease_name: Option<String>,
    pub lease_namespace: Option<String>,
    pub listen: Option<String>,
    pub log_level: Option<LogLevel>,
    pub log_format: Option<LogFormat>,
    pub record_dir: Option<String>,
}

impl Overrides {
    fn apply(self, file: &mut File) {
        let set = |to: &mut String, value: Option<String>| *to = value.unwrap_or(std::mem::take(to));
        if !self.scheduler_names.is_empty() {
            file.scheduler_names = self.scheduler_names;
        }
        file.feature_gates.extend(self.feature_gates);
        let election = &mut file.leader_election;
        election.enabled = self.leader_elect.unwrap_or(election.enabled);
        set(&mut election.lease_name, self.lease_name);
        set(&mut election.lease_namespace, self.lease_namespace);
        set(&mut file.listen, self.listen);
        file.log_level = self.log_level.unwrap_or(file.log_level);
        file.log_format = self.log_format.unwrap_or(file.log_format);
        file.record_dir = self.record_dir.or(file.record_dir.take());
    }
}

impl Configuration {
    /// Applies the flags to the file and validates everything.
    pub fn new(mut file: File, overrides: Overrides) -> Result<Self, ConfigError> {
        overrides.apply(&mut file);
        let gates = FeatureGates::with(&file.feature_gates)?;
        file.feature_gates = gates.states().into_iter().map(|(name, on)| (name.to_owned(), on)).collect();
        let settings = settings(&file, gates)?;
        let election = &file.leader_election;
        let lease = LeaseSettings {
            namespace: election.lease_namespace.clone(),
            name: election.lease_name.clone(),
            lease_duration: election.lease_duration.as_duration(),
            renew_deadline: election.renew_deadline.as_duration(),
            retry_period: election.retry_period.as_duration(),
            watch_silence_max: election.max_watch_silence.as_duration(),
        };
        lease.validate()?;
        for (field, value) in [("leaseName", &lease.name), ("leaseNamespace", &lease.namespace)] {
            require_name(&format!("leaderElection.{field}"), value)?;
        }
        let listen = address("listen", &file.listen)?;
        let secure_metrics = SecureMetricsSettings {
            listen: address("metrics.listen", &file.metrics.listen)?,
            folder: file.metrics.certificates.folder.as_ref().map(PathBuf::from),
        };
        let webhook = address("webhook.listen", &file.webhook.listen)?;
        let certificates = file.webhook.certificates.clone();
        for (field, value) in [
            ("namespace", &certificates.namespace),
            ("secret", &certificates.secret),
            ("service", &certificates.service),
            ("configuration", &certificates.configuration),
        ] {
            require_name(&format!("webhook.certificates.{field}"), value)?;
        }
        Ok(Self {
            settings,
            lease: election.enabled.then_some(lease),
            listen,
            secure_metrics: file.metrics.secure.then_some(secure_metrics),
            webhook: file.webhook.enabled.then_some((webhook, certificates)),
            log_level: file.log_level,
            log_format: file.log_format,
            record: record(&file)?,
            file,
        })
    }
}

fn address(field: &str, text: &str) -> Result<SocketAddr, ConfigError> {
    text.parse().map_err(|_| {
        let reason = format!("{text:?} is no address with a port, such as 0.0.0.0:8080 or [::]:8080");
        ConfigError::field(field, reason)
    })
}

fn settings(file: &File, gates: FeatureGates) -> Result<Settings, ConfigError> {
    for (field, number) in
        [("bindsInFlight", file.limits.binds_in_flight), ("writesInFlight", file.limits.writes_in_flight)]
    {
        if !(1..=10_000).contains(&number) {
            return Err(ConfigError::field(format!("limits.{field}"), format!("{number}: must be from 1 to 10000")));
        }
    }
    for (field, span) in [("request", file.timeouts.request), ("stop", file.timeouts.stop)] {
        if span.as_millis() == 0 {
            return Err(ConfigError::field(format!("timeouts.{field}"), "0s: must be greater than zero"));
        }
    }
    require_label_keys("newNodes.knownLabels", &file.new_nodes.known_labels)?;
    require_label_keys("topology.levels", &file.topology.levels)?;
    let (profiles, of_engine) = profile::of_file(file)?;
    let engine = engine(file, of_engine, gates);
    engine.validate().map_err(config_error)?;
    Ok(Settings {
        profiles,
        gates,
        engine,
        eviction: file.preemption.eviction,
        startup_taints: startup_taints(&file.new_nodes)?,
        ganged: require_webhook(ganged(file.controllers, gates), file)?,
        binds_in_flight_max: file.limits.binds_in_flight,
        writes_in_flight_max: file.limits.writes_in_flight,
        request_timeout: file.timeouts.request.as_duration(),
        stop_timeout: file.timeouts.stop.as_duration(),
        ..Settings::default()
    })
}

/// The owner kinds whose pods become gangs. Without groups no pod should wait for one.
fn ganged(controllers: Controllers, gates: FeatureGates) -> GangedOwners {
    if !gates.generic_workload {
        return GangedOwners::default();
    }
    GangedOwners {
        job_sets: match controllers.job_sets {
            GangedJobSets::None => None,
            GangedJobSets::Muster => Some(GroupApi::Muster),
            GangedJobSets::Native => Some(GroupApi::Native),
        },
        jobs: match controllers.jobs {
            GangedJobs::None => None,
            GangedJobs::Annotated => Some(ImplicitGangs::None).filter(|_| gates.pod_group),
            GangedJobs::Indexed => Some(ImplicitGangs::Indexed).filter(|_| gates.pod_group),
        },
        leader_worker_sets: gates.pod_group_per_replica.then_some(controllers.leader_worker_sets),
    }
}

/// References to native groups are immutable fields of pods: without the webhook no pod would ever get one.
fn require_webhook(ganged: GangedOwners, file: &File) -> Result<GangedOwners, ConfigError> {
    if !ganged.are_native() || file.webhook.enabled {
        return Ok(ganged);
    }
    let field = if ganged.job_sets == Some(GroupApi::Native) { "jobSets" } else { "leaderWorkerSets" };
    let reason = "Native: needs webhook.enabled: true, since only the webhook can give pods a reference to such groups";
    Err(ConfigError::field(format!("controllers.{field}"), reason.to_owned()))
}

fn startup_taints(new_nodes: &NewNodes) -> Result<Vec<TaintKey>, ConfigError> {
    require_distinct("newNodes.startupTaints", &new_nodes.startup_taints)?;
    for (index, key) in new_nodes.startup_taints.iter().enumerate() {
        // A key with some text in place of the star.
        let whole = key.strip_suffix('*').map_or_else(|| key.clone(), |start| format!("{start}x"));
        let checked = if key == "*" { Err("would mean every taint".to_owned()) } else { check_label_key(&whole) };
        if let Err(reason) = checked {
            return Err(ConfigError::field(format!("newNodes.startupTaints[{index}]"), format!("{key:?}: {reason}")));
        }
    }
    Ok(TaintKey::well_known().into_iter().chain(new_nodes.startup_taints.iter().cloned().map(TaintKey)).collect())
}

/// Refuses keys that no node can have as a label.
fn require_label_keys(field: &str, keys: &[String]) -> Result<(), ConfigError> {
    require_distinct(field, keys)?;
    for (index, key) in keys.iter().enumerate() {
        if let Err(reason) = check_label_key(key) {
            return Err(ConfigError::field(format!("{field}[{index}]"), format!("{key:?}: {reason}")));
        }
    }
    Ok(())
}

/// Every setting of the engine, from the file. A new one does not compile until the file has a field for it.
fn engine(file: &File, mut profiles: Vec<muster_engine::Profile>, gates: FeatureGates) -> Config {
    if !gates.storage_capacity_scoring {
        for profile in &mut profiles {
            profile.scoring.weight_volume_binding = 0;
        }
    }
    Config {
        profiles,
        backoff_ms_initial: file.backoff.initial.as_millis(),
        backoff_ms_max: file.backoff.max.as_millis(),
        search_steps_initial: file.search.steps_initial,
        search_steps_max: file.search.steps_max,
        search_again_ms_initial: file.search.again.initial.as_millis(),
        search_again_ms_max: file.search.again.max.as_millis(),
        starving_after_ms: file.reservations.starving_after.as_millis(),
        reservation_ms_max: file.reservations.max.as_millis(),
        reservation_nodes_percent_max: file.reservations.max_nodes_percent,
        min_resources_held_ms_max: file.reservations.min_resources_held_for.as_millis(),
        desired_wait_ms: file.waiting.desired_count.as_millis(),
        group_priority_capped: file.preemption.cap_group_priority,
        preemption: PreemptionRules {
            on: file.preemption.enabled,
            delayed: gates.delayed_preemption,
            delay_ms: file.preemption.delay.as_millis(),
            upcoming_node_wait_ms: file.new_nodes.ready_within.as_millis(),
            spare_ms: file.preemption.spare_after_refusal.as_millis(),
            respects_budgets: file.preemption.eviction == Eviction::EvictionApi,
            whole_groups: gates.workload_aware_preemption,
            // KEP-5710's algorithm alone is only for comparison.
            cheaper: true,
            steps_max: file.preemption.steps_max,
            beyond_minimum: file.preemption.beyond_minimum,
        },
        topology_levels: file.topology.levels.clone(),
        labels_known_before_scale_up: {
            let well_known = Config::default().labels_known_before_scale_up;
            well_known.into_iter().chain(file.new_nodes.known_labels.iter().cloned()).collect()
        },
        report_waiting_after_ms: file.waiting.report_after.as_millis(),
        schedule_timeout_ms: file.timeouts.schedule.as_millis(),
        bind_retry_ms_initial: file.bind_retry.initial.as_millis(),
        bind_retry_ms_max: file.bind_retry.max.as_millis(),
        bind_timeout_ms: file.timeouts.bind.as_millis(),
        volume_bind_timeout_ms: file.timeouts.bind_volumes.as_millis(),
    }
}

pub(super) fn scoring(scoring: &Scoring) -> Result<muster_engine::Scoring, ConfigError> {
    if scoring.strategy != Strategy::RequestedToCapacityRatio && !scoring.shape.is_empty() {
        let reason = format!("only RequestedToCapacityRatio has a shape, and strategy is {:?}", scoring.strategy);
        return Err(ConfigError::field("scoring.shape", reason));
    }
    let names: Vec<String> = scoring.resources.iter().map(|resource| resource.name.clone()).collect();
    require_distinct("scoring.resources", &names)?;
    require_distinct("scoring.balancedResources", &scoring.balanced_resources)?;
    let strategy = match scoring.strategy {
        Strategy::LeastAllocated => muster_engine::Strategy::LeastAllocated,
        Strategy::MostAllocated => muster_engine::Strategy::MostAllocated,
        Strategy::RequestedToCapacityRatio => {
            let shape = scoring.shape.iter().map(|point| ShapePoint::from(*point)).collect();
            muster_engine::Strategy::RequestedToCapacityRatio { shape }
        }
    };
    let weighted = scoring.resources.iter().map(|one| Weighted { name: one.name.clone(), weight: one.weight });
    Ok(muster_engine::Scoring {
        strategy,
        fit_resources: weighted.collect(),
        balanced_resources: scoring.balanced_resources.clone(),
        weight_taints: scoring.weights.taints,
        weight_node_affinity: scoring.weights.node_affinity,
        weight_fit: scoring.weights.fit,
        weight_balanced: scoring.weights.balanced,
        weight_pod_affinity: scoring.weights.pod_affinity,
        weight_topology_spread: scoring.weights.topology_spread,
        weight_image_locality: scoring.weights.image_locality,
        weight_volume_binding: scoring.weights.volume_binding,
        storage_shape: scoring.storage_shape.iter().map(|point| ShapePoint::from(*point)).collect(),
        hard_pod_affinity_weight: scoring.hard_pod_affinity_weight,
        ignores_preferred_terms_of_others: scoring.ignore_preferred_terms_of_existing_pods,
    })
}

fn record(file: &File) -> Result<Option<RecordSettings>, ConfigError> {
    let size_max_bytes = file.record_size_max_mib.checked_mul(1 << 20).filter(|size| *size > 0).ok_or_else(|| {
        let reason = format!("{}: must be from 1 to {}", file.record_size_max_mib, u64::MAX >> 20);
        ConfigError::field("recordSizeMaxMib", reason)
    })?;
    match file.record_dir.as_deref() {
        Some("") => Err(ConfigError::field("recordDir", "\"\": leave it out if nothing should be recorded")),
        dir => Ok(dir.map(|dir| RecordSettings { dir: PathBuf::from(dir), size_max_bytes })),
    }
}

/// The engine's field names, and those of the file.
const FIELDS: [(&str, &str); 30] = [
    ("scoring.weight_taints", "scoring.weights.taints"),
    ("scoring.weight_node_affinity", "scoring.weights.nodeAffinity"),
    ("scoring.weight_fit", "scoring.weights.fit"),
    ("scoring.weight_pod_affinity", "scoring.weights.podAffinity"),
    ("scoring.weight_topology_spread", "scoring.weights.topologySpread"),
    ("scoring.weight_image_locality", "scoring.weights.imageLocality"),
    ("scoring.weight_volume_binding", "scoring.weights.volumeBinding"),
    ("scoring.storage_shape", "scoring.storageShape"),
    ("scoring.hard_pod_affinity_weight", "scoring.hardPodAffinityWeight"),
    ("scoring.weight_balanced", "scoring.weights.balanced"),
    ("scoring.strategy.shape", "scoring.shape"),
    ("backoff_ms_initial", "backoff.initial"),
    ("backoff_ms_max", "backoff.max"),
    ("search_steps_initial", "search.stepsInitial"),
    ("search_steps_max", "search.stepsMax"),
    ("search_again_ms_initial", "search.again.initial"),
    ("search_again_ms_max", "search.again.max"),
    ("starving_after_ms", "reservations.starvingAfter"),
    ("reservation_ms_max", "reservations.max"),
    ("reservation_nodes_percent_max", "reservations.maxNodesPercent"),
    ("min_resources_held_ms_max", "reservations.minResourcesHeldFor"),
    ("topology_levels", "topology.levels"),
    ("schedule_timeout_ms", "timeouts.schedule"),
    ("bind_retry_ms_initial", "bindRetry.initial"),
    ("bind_retry_ms_max", "bindRetry.max"),
    ("bind_timeout_ms", "timeouts.bind"),
    ("volume_bind_timeout_ms", "timeouts.bindVolumes"),
    ("scoring.fit_resources", "scoring.resources"),
    ("preemption.spare_ms", "preemption.spareAfterRefusal"),
    ("preemption.steps_max", "preemption.stepsMax"),
];

pub(super) fn config_error(refusal: ValidationError) -> ConfigError {
    let ValidationError { field, value, reason, .. } = refusal;
    let known = FIELDS.iter().find(|(ours, _)| field.strip_prefix(ours).is_some_and(|rest| !rest.starts_with('_')));
    let named = known.map_or(field.clone(), |(ours, theirs)| field.replacen(ours, theirs, 1));
    let shown = match value.parse() {
        Ok(ms) if field.contains("_ms") => Span::from_millis(ms).to_string(),
        _ => value,
    };
    ConfigError::field(named, format!("{shown}: {reason}"))
}

pub(super) fn require_distinct(field: &str, names: &[String]) -> Result<(), ConfigError> {
    let mut known = BTreeSet::new();
    for name in names {
        if name.is_empty() {
            return Err(ConfigError::field(field, "\"\": a name must not be empty"));
        }
        if !known.insert(name) {
            return Err(ConfigError::field(field, format!("{name:?}: is duplicated")));
        }
    }
    Ok(())
}

/// Validates names of objects and namespaces, which the API would reject later.
fn require_name(field: &str, name: &str) -> Result<(), ConfigError> {
    let plain = |character: char| character.is_ascii_lowercase() || character.is_ascii_digit();
    let good = (1..=253).contains(&name.len())
        && name.chars().all(|character| plain(character) || character == '-' || character == '.')
        && name.starts_with(plain)
        && name.ends_with(plain);
    if good {
        Ok(())
    } else {
        Err(ConfigError::field(field, format!("{name:?}: must be a name of lower case letters, digits, - and .")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(body: &str, overrides: Overrides) -> Result<Configuration, ConfigError> {
        let text = format!("apiVersion: config.muster.dev/v1alpha1\nkind: MusterConfiguration\n{body}");
        Configuration::new(File::read(&text)?, overrides)
    }

    #[test]
    fn the_defaults_are_the_defaults_of_the_code() {
        let made = from("", Overrides::default()).unwrap();
        let (settings, default) = (made.settings, Settings::default());
        assert_eq!(settings.engine, default.engine);
        assert_eq!((settings.profiles, settings.gates), (default.profiles, default.gates));
        assert_eq!(settings.binds_in_flight_max, default.binds_in_flight_max);
        assert_eq!(settings.writes_in_flight_max, default.writes_in_flight_max);
        assert_eq!((settings.request_timeout, settings.stop_timeout), (default.request_timeout, default.stop_timeout));
        assert_eq!(made.lease, Some(LeaseSettings::default()));
        assert_eq!((made.record, made.listen.to_string().as_str()), (None, "0.0.0.0:8080"));
    }

    #[test]
    fn native_gangs_need_the_webhook() {
        let ganged = |body: &str| from(body, Overrides::default()).map(|made| made.settings.ganged);
        for (body, field) in [("jobSets: Native", "jobSets"), ("leaderWorkerSets: Native", "leaderWorkerSets")] {
            let error = ganged(&format!("controllers: {{{body}}}")).unwrap_err().to_string();
            assert!(error.contains(&format!("controllers.{field}")) && error.contains("webhook.enabled"), "{error}");
            assert!(ganged(&format!("controllers: {{{body}}}\nwebhook: {{enabled: true}}")).unwrap().are_native());
        }
        assert_eq!(ganged("controllers: {jobSets: None}").unwrap().job_sets, None);
        let error = ganged("controllers: {jobSets: true}").unwrap_err().to_string();
        assert!(
            error.contains("controllers.jobSets: unknown variant `true`, expected one of `None`, `Muster`"),
            "{error}"
        );
        // A disabled feature needs no webhook.
        assert!(ganged("controllers: {leaderWorkerSets: Native}\nfeatureGates: {PodGroupPerReplica: false}").is_ok());
    }

    #[test]
    fn every_setting_of_the_engine_can_be_set() {
        let body = "
backoff: {initial: 2s, max: 3s}
timeouts: {schedule: 4s, bind: 5s, bindVolumes: 33s, request: 6s, stop: 7s}
limits: {bindsInFlight: 8, writesInFlight: 9}
withoutFilters: [NodePorts]
scoring:
  strategy: RequestedToCapacityRatio
  shape: [{utilization: 0, score: 0}, {utilization: 100, score: 10}]
  resources: [{name: nvidia.com/gpu, weight: 10}]
  balancedResources: [nvidia.com/gpu]
  hardPodAffinityWeight: 28
  ignorePreferredTermsOfExistingPods: true
  storageShape: [{utilization: 50, score: 5}]
  weights: {taints: 11, nodeAffinity: 12, fit: 13, balanced: 14, podAffinity: 29, topologySpread: 30, imageLocality: 31, volumeBinding: 34}
search: {stepsInitial: 15, stepsMax: 16, again: {initial: 17s, max: 18s}}
reservations: {starvingAfter: 19s, max: 20s, maxNodesPercent: 21, minResourcesHeldFor: 22s}
bindRetry: {initial: 21ms, max: 22ms}
waiting: {desiredCount: 23s, reportAfter: 24s}
newNodes: {startupTaints: [a/b, c/*], readyWithin: 32s, knownLabels: [e/f]}
topology: {levels: [g/h, rack]}
preemption: {enabled: false, delay: 25s, eviction: EvictionAPI, spareAfterRefusal: 26s, stepsMax: 27, beyondMinimum: false, capGroupPriority: true}
featureGates: {DelayedPreemption: false, WorkloadAwarePreemption: false}
";
        let made = from(body, Overrides::default()).unwrap().settings;
        let expected = Config {
            profiles: vec![muster_engine::Profile {
                scoring: muster_engine::Scoring {
                    strategy: muster_engine::Strategy::RequestedToCapacityRatio {
                        shape: vec![
                            ShapePoint { utilization: 0, score: 0 },
                            ShapePoint { utilization: 100, score: 10 },
                        ],
                    },
                    fit_resources: vec![Weighted { name: "nvidia.com/gpu".to_owned(), weight: 10 }],
                    balanced_resources: vec!["nvidia.com/gpu".to_owned()],
                    weight_taints: 11,
                    weight_node_affinity: 12,
                    weight_fit: 13,
                    weight_balanced: 14,
                    weight_pod_affinity: 29,
                    weight_topology_spread: 30,
                    weight_image_locality: 31,
                    weight_volume_binding: 34,
                    storage_shape: vec![ShapePoint { utilization: 50, score: 5 }],
                    hard_pod_affinity_weight: 28,
                    ignores_preferred_terms_of_others: true,
                },
                without: [muster_engine::FilterName::NodePorts].into(),
            }],
            backoff_ms_initial: 2_000,
            backoff_ms_max: 3_000,
            search_steps_initial: 15,
            search_steps_max: 16,
            search_again_ms_initial: 17_000,
            search_again_ms_max: 18_000,
            starving_after_ms: 19_000,
            reservation_ms_max: 20_000,
            reservation_nodes_percent_max: 21,
            min_resources_held_ms_max: 22_000,
            desired_wait_ms: 23_000,
            group_priority_capped: true,
            preemption: PreemptionRules {
                on: false,
                delayed: false,
                delay_ms: 25_000,
                upcoming_node_wait_ms: 32_000,
                spare_ms: 26_000,
                respects_budgets: true,
                whole_groups: false,
                cheaper: true,
                steps_max: 27,
                beyond_minimum: false,
            },
            topology_levels: vec!["g/h".to_owned(), "rack".to_owned()],
            labels_known_before_scale_up: {
                let mut labels = Config::default().labels_known_before_scale_up;
                assert!(labels.insert("e/f".to_owned()) && labels.contains("topology.kubernetes.io/zone"));
                labels
            },
            report_waiting_after_ms: 24_000,
            schedule_timeout_ms: 4_000,
            bind_retry_ms_initial: 21,
            bind_retry_ms_max: 22,
            bind_timeout_ms: 5_000,
            volume_bind_timeout_ms: 33_000,
        };
        assert_eq!(made.engine, expected);
        assert_eq!((made.request_timeout.as_secs(), made.stop_timeout.as_secs()), (6, 7));
        assert_eq!((made.binds_in_flight_max, made.writes_in_flight_max), (8, 9));
        let startup = |key: &str| made.startup_taints.iter().any(|startup| startup.matches(key));
        assert_eq!(["a/b", "c/d", "a/bc", "node.kubernetes.io/not-ready"].map(startup), [true, true, false, true]);
        let wrong = from("newNodes: {startupTaints: [a/b, 'c d']}\n", Overrides::default()).unwrap_err().to_string();
        assert!(wrong.contains("newNodes.startupTaints[1]: \"c d\""), "{wrong}");
        let wrong = from("newNodes: {knownLabels: [a/b, 'c d']}\n", Overrides::default()).unwrap_err().to_string();
        assert!(wrong.contains("newNodes.knownLabels[1]: \"c d\""), "{wrong}");
        let wrong =
            from("topology: {levels: [a, b, c, d, e, f, g, h, i]}\n", Overrides::default()).unwrap_err().to_string();
        assert!(wrong.contains("topology.levels: 9: at most 8 levels"), "{wrong}");
    }

    #[test]
    fn flags_win_over_the_file_and_the_outcome_reads_back() {
        let overrides = Overrides {
            scheduler_names: vec!["a".to_owned(), "b".to_owned()],
            feature_gates: [("PodGroup".to_owned(), true)].into(),
            leader_elect: Some(false),
            lease_name: Some("other".to_owned()),
            listen: Some("127.0.0.1:1".to_owned()),
            log_format: Some(LogFormat::Text),
            record_dir: Some("/r".to_owned()),
            ..Overrides::default()
        };
        let body = "schedulerNames: [x]\nfeatureGates: {PodGroup: false, GangScheduling: false}\nlogLevel: debug\n";
        let made = from(body, overrides).unwrap();
        assert_eq!(made.settings.scheduler_names().collect::<Vec<_>>(), ["a", "b"]);
        assert!(made.settings.gates.pod_group && !made.settings.gates.gang_scheduling);
        assert_eq!((made.lease.clone(), made.log_level, made.log_format), (None, LogLevel::Debug, LogFormat::Text));
        assert_eq!(made.record.as_ref().unwrap().size_max_bytes, 4 << 30);
        let again = Configuration::new(File::read(&made.file.to_yaml()).unwrap(), Overrides::default()).unwrap();
        assert_eq!(again.file, made.file);
        assert_eq!((again.settings.gates, again.lease), (made.settings.gates, made.lease));
    }

    #[test]
    fn invalid_values_are_rejected_with_the_field_of_the_file() {
        for (body, message) in [
            ("schedulerNames: []", "schedulerNames: []: at least one name"),
            ("schedulerNames: [a, a]", "schedulerNames: \"a\": is duplicated"),
            ("schedulerNames: ['']", "schedulerNames: \"\": a name must not be empty"),
            ("featureGates: {Gangs: true}", "featureGates.Gangs: unknown feature gate"),
            ("backoff: {initial: 0s, max: 1s}", "backoff.initial: 0s: must be greater than zero"),
            ("backoff: {initial: 2s, max: 1500ms}", "backoff.max: 1s500ms: must not be less"),
            ("bindRetry: {initial: 2s, max: 1s}", "bindRetry.max: 1s: must not be less"),
            ("search: {stepsInitial: 2, stepsMax: 1}", "search.stepsMax: 1: must not be less"),
            ("reservations: {max: 0s}", "reservations.max: 0s: "),
            ("claims: {max: 0s}", "reservations.max: 0s: "),
            ("reservations: {maxNodesPercent: 101}", "reservations.maxNodesPercent: 101: "),
            ("timeouts: {bind: 0s}", "timeouts.bind: 0s: "),
            ("timeouts: {bindVolumes: 0s}", "timeouts.bindVolumes: 0s: "),
            ("timeouts: {request: 0s}", "timeouts.request: 0s: "),
            ("limits: {bindsInFlight: 0}", "limits.bindsInFlight: 0: must be from 1"),
            ("scoring: {weights: {balanced: -1}}", "scoring.weights.balanced: -1: a weight is"),
            ("scoring: {resources: [{name: cpu, weight: 0}]}", "scoring.resources[cpu].weight: 0: "),
            ("scoring: {resources: [{name: cpu}, {name: cpu}]}", "scoring.resources: \"cpu\": is duplicated"),
            ("scoring: {shape: [{utilization: 1, score: 1}]}", "scoring.shape: only RequestedToCapacityRatio"),
            ("scoring: {strategy: RequestedToCapacityRatio}", "scoring.shape: []: a shape needs"),
            ("leaderElection: {leaseDuration: 5s}", "leaderElection.renewDeadline: 10s: must be less"),
            ("leaderElection: {leaseName: A_b}", "leaderElection.leaseName: \"A_b\": must be a name"),
            ("listen: localhost", "listen: \"localhost\" is no address"),
            ("recordDir: ''", "recordDir: \"\": leave it out"),
            ("recordSizeMaxMib: 0", "recordSizeMaxMib: 0: must be from 1"),
        ] {
            let error = from(body, Overrides::default()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{body}: {error}");
        }
    }
}
