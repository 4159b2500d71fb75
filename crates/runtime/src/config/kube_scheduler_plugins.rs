//! The profiles of a KubeSchedulerConfiguration: enabled plugins, their weights and arguments.
//!
//! The default plugins are merged with the file as in kube-scheduler: disabled plugins are removed, and those enabled
//! again get the weight in the file. Our filters and scores are plugins of the same names.

use std::collections::{BTreeMap, BTreeSet};

use muster_engine::FilterName;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::file::{Resource, Scoring, ShapePoint, Strategy, Weights};
use super::kube_scheduler::{KUBE_API_VERSION, Statement, boolean, object};
use super::profile::{AddedAffinity, DefaultConstraint, NamedDefaults, Profile, SpreadDefaults};
use super::{ConfigError, Span};

/// The supported score plugins.
const SCORES: [&str; 8] = [
    "TaintToleration",
    "NodeAffinity",
    "NodeResourcesFit",
    "NodeResourcesBalancedAllocation",
    "InterPodAffinity",
    "PodTopologySpread",
    "ImageLocality",
    "VolumeBinding",
];

/// Plugins that cannot be disabled.
const ALWAYS_ON: [&str; 3] = ["SchedulingGates", "PrioritySort", "DefaultBinder"];

/// Default plugins of kube-scheduler that do not exist here, and what happens instead.
const ABSENT: [(&str, &str); 2] = [
    ("DynamicResources", "pods with resource claims wait, and say so"),
    ("GangScheduling", "groups are what this scheduler is for"),
];

/// What happens instead of a missing default plugin.
fn substitute(name: &str) -> Option<&'static str> {
    ABSENT.iter().find(|(substitute, _)| *substitute == name).map(|(_, instead)| *instead)
}

/// Extension points of v1 at which only changes without an effect are supported.
const OTHER_POINTS: [&str; 13] = [
    "preEnqueue",
    "queueSort",
    "preFilter",
    "postFilter",
    "preScore",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "placementGenerate",
    "placementScore",
    "podGroupPostFilter",
];

const PREEMPTION: &str = "DefaultPreemption";

/// The extension points of our plugins.
const POINTS: [&str; 3] = ["multiPoint", "filter", "score"];

/// A profile, and settings of it that are one for all profiles here.
pub(super) struct OfProfile {
    pub(super) profile: Profile,
    /// Whether preemption is enabled for its pods.
    pub(super) preempts: bool,
    /// How long the volumes of its pods may take, if it says so.
    pub(super) volume_bind_timeout: Option<Span>,
}

/// Reads a profile.
pub(super) fn profile(written: &Value, path: &str, statement: &mut Statement) -> Result<OfProfile, ConfigError> {
    let mut of_profile = OfProfile {
        profile: Profile { scheduler_names: vec![muster_api::keys::SCHEDULER_NAME.to_owned()], ..Profile::default() },
        preempts: true,
        volume_bind_timeout: None,
    };
    let mut chosen = EnabledPlugins::default();
    for (field, value) in object(written, path)? {
        let path = format!("{path}.{field}");
        match field.as_str() {
            "schedulerName" => {
                let name = value.as_str().ok_or_else(|| ConfigError::field(path.clone(), "must be a name"))?;
                of_profile.profile.scheduler_names = vec![name.to_owned()];
                let warning = ": a kube-scheduler that still runs would place the same pods";
                statement.support(path + if name == "default-scheduler" { warning } else { "" });
            }
            "percentageOfNodesToScore" => {
                statement.ignore(path, "all nodes are looked at for every decision");
            }
            "plugins" => chosen.read(value, &path, statement)?,
            "pluginConfig" => plugin_config(value, &path, &mut of_profile, statement)?,
            _ => statement.refuse(path, "there is no such field in v1"),
        }
    }
    chosen.apply(&mut of_profile.profile);
    of_profile.preempts = chosen.preempts;
    Ok(of_profile)
}

/// The enabled plugins.
struct EnabledPlugins {
    filters: BTreeSet<FilterName>,
    /// With their weights.
    scores: BTreeMap<&'static str, i64>,
    preempts: bool,
}

impl Default for EnabledPlugins {
    fn default() -> Self {
        let weights = Weights::default();
        let mut scores: BTreeMap<&'static str, i64> = BTreeMap::new();
        for name in SCORES {
            scores.insert(name, *weight(&mut weights.clone(), name));
        }
        Self { filters: FilterName::ALL.into(), scores, preempts: true }
    }
}

/// The weight of a score, by the name of its plugin.
fn weight<'w>(weights: &'w mut Weights, name: &str) -> &'w mut i64 {
    match name {
        "TaintToleration" => &mut weights.taints,
        "NodeAffinity" => &mut weights.node_affinity,
        "NodeResourcesFit" => &mut weights.fit,
        "NodeResourcesBalancedAllocation" => &mut weights.balanced,
        "InterPodAffinity" => &mut weights.pod_affinity,
        "PodTopologySpread" => &mut weights.topology_spread,
        "VolumeBinding" => &mut weights.volume_binding,
        _ => &mut weights.image_locality,
    }
}

fn filter(name: &str) -> Option<FilterName> {
    FilterName::ALL.into_iter().find(|filter| format!("{filter:?}") == name)
}

fn score(name: &str) -> Option<&'static str> {
    SCORES.into_iter().find(|score| *score == name)
}

impl EnabledPlugins {
    fn read(&mut self, plugins: &Value, path: &str, statement: &mut Statement) -> Result<(), ConfigError> {
        let plugins = object(plugins, path)?;
        // The setting of a single extension point overrides `multiPoint`.
        for point in POINTS {
            let Some(set) = plugins.get(point) else { continue };
            let path = format!("{path}.{point}");
            for (list, on) in [("disabled", false), ("enabled", true)] {
                for (index, plugin) in entries(set, &path, list)?.iter().enumerate() {
                    self.switch(point, on, plugin, &format!("{path}.{list}[{index}]"), statement)?;
                }
            }
        }
        for (point, set) in plugins.iter().filter(|(point, _)| !POINTS.contains(&point.as_str())) {
            if !OTHER_POINTS.contains(&point.as_str()) {
                statement.refuse(format!("{path}.{point}"), "there is no such point in v1");
                continue;
            }
            self.other_point(point, set, &format!("{path}.{point}"), statement)?;
        }
        Ok(())
    }

    fn switch(
        &mut self,
        point: &str,
        on: bool,
        plugin: &Value,
        path: &str,
        statement: &mut Statement,
    ) -> Result<(), ConfigError> {
        if let Some(field) = object(plugin, path)?.keys().find(|field| !["name", "weight"].contains(&field.as_str())) {
            return Err(ConfigError::field(format!("{path}.{field}"), "there is no such field in v1"));
        }
        let name = plugin["name"].as_str().unwrap_or_default();
        let weighs = match &plugin["weight"] {
            Value::Null => 1,
            weight => weight.as_i64().filter(|weight| *weight >= 0).ok_or_else(|| {
                let reason = format!("{weight}: must be a whole number, and not below zero");
                ConfigError::field(format!("{path}.weight"), reason)
            })?,
        };
        let (of_filters, of_scores) = (point != "score", point != "filter");
        if !on && name == "*" {
            if of_filters {
                self.filters.clear();
            }
            if of_scores {
                self.scores.clear();
            }
            self.preempts &= point != "multiPoint";
            statement.support(path);
            return Ok(());
        }
        let (filter, score) = (filter(name).filter(|_| of_filters), score(name).filter(|_| of_scores));
        match (filter, score) {
            (None, None) if name == PREEMPTION && point == "multiPoint" => self.preempts = on,
            (None, None) if on && ALWAYS_ON.contains(&name) => {}
            (None, None) if ALWAYS_ON.contains(&name) => {
                statement.refuse(path, format!("{name} cannot be switched off here"));
                return Ok(());
            }
            (None, None) if substitute(name).is_some() => {
                statement.ignore(path, format!("{name} is not there: {}", substitute(name).unwrap_or_default()));
                return Ok(());
            }
            (None, None) => {
                statement.refuse(path, format!("{name:?}: there is no such plugin at this point here"));
                return Ok(());
            }
            (filter, score) => {
                if let Some(filter) = filter {
                    _ = if on { self.filters.insert(filter) } else { self.filters.remove(&filter) };
                }
                if let Some(score) = score {
                    _ = if on { self.scores.insert(score, weighs.max(1)) } else { self.scores.remove(score) };
                }
            }
        }
        statement.support(path);
        Ok(())
    }

    /// Extension points that are not configurable here: only changes without an effect are supported.
    fn other_point(
        &mut self,
        point: &str,
        set: &Value,
        path: &str,
        statement: &mut Statement,
    ) -> Result<(), ConfigError> {
        for list in ["disabled", "enabled"] {
            for (index, plugin) in entries(set, path, list)?.iter().enumerate() {
                let name = plugin["name"].as_str().unwrap_or_default();
                let (path, on) = (format!("{path}.{list}[{index}]"), list == "enabled");
                let is_default = ALWAYS_ON.contains(&name) || filter(name).is_some() || score(name).is_some();
                let known = is_default || substitute(name).is_some();
                if point == "postFilter" && (name == PREEMPTION || name == "*") {
                    self.preempts = on;
                    statement.support(path);
                } else if on && (known || name == PREEMPTION) {
                    statement.ignore(path, "a plugin is one thing here, with all its points");
                } else if point == "queueSort" && (name == "*" || name == "PrioritySort") {
                    statement.ignore(path, "the order is by priority and time, and no other can be enabled");
                } else if ["preFilter", "preScore"].contains(&point) && (known || name == "*") {
                    statement.ignore(path, "it goes with the filter or score itself");
                } else {
                    let why =
                        format!("{name:?} at {point}: only filter, score, postFilter and multiPoint can be changed");
                    statement.refuse(path, why);
                }
            }
        }
        Ok(())
    }

    fn apply(&self, profile: &mut Profile) {
        profile.without_filters = FilterName::ALL.into_iter().filter(|name| !self.filters.contains(name)).collect();
        for name in SCORES {
            *weight(&mut profile.scoring.weights, name) = self.scores.get(name).copied().unwrap_or(0);
        }
    }
}

fn entries<'v>(set: &'v Value, path: &str, list: &str) -> Result<&'v [Value], ConfigError> {
    for field in object(set, path)?.keys() {
        if !["enabled", "disabled"].contains(&field.as_str()) {
            return Err(ConfigError::field(format!("{path}.{field}"), "there is no such field in v1"));
        }
    }
    match &set[list] {
        Value::Null => Ok(&[]),
        Value::Array(entries) => Ok(entries),
        _ => Err(ConfigError::field(format!("{path}.{list}"), "must be a list")),
    }
}

fn plugin_config(
    value: &Value,
    path: &str,
    of_profile: &mut OfProfile,
    statement: &mut Statement,
) -> Result<(), ConfigError> {
    let list = value.as_array().ok_or_else(|| ConfigError::field(path, "must be a list"))?;
    let (none, mut seen) = (Map::new(), BTreeSet::new());
    for (index, one) in list.iter().enumerate() {
        let path = format!("{path}[{index}].args");
        let args = match &one["args"] {
            Value::Null => &none,
            args => object(args, &path)?,
        };
        let name = one["name"].as_str().unwrap_or_default();
        if !seen.insert(name) {
            return Err(ConfigError::field(path, format!("{name:?} has arguments already")));
        }
        for (field, expected) in [("apiVersion", KUBE_API_VERSION.to_owned()), ("kind", format!("{name}Args"))] {
            if let Some(found) = args.get(field).filter(|found| **found != expected) {
                return Err(ConfigError::field(format!("{path}.{field}"), format!("{found}: must be {expected:?}")));
            }
        }
        for (field, value) in args.iter().filter(|(field, _)| !["apiVersion", "kind"].contains(&field.as_str())) {
            let path = format!("{path}.{field}");
            argument(name, field, value, &path, args, of_profile, statement)?;
        }
    }
    Ok(())
}

fn argument(
    plugin: &str,
    field: &str,
    value: &Value,
    path: &str,
    args: &Map<String, Value>,
    of_profile: &mut OfProfile,
    statement: &mut Statement,
) -> Result<(), ConfigError> {
    let OfProfile { profile, volume_bind_timeout, .. } = of_profile;
    let scoring = &mut profile.scoring;
    match (plugin, field) {
        ("NodeResourcesFit", "scoringStrategy") => strategy(value, path, scoring)?,
        ("NodeResourcesBalancedAllocation", "resources") => {
            let resources: Vec<Resource> = typed(value, path)?;
            if let Some(heavy) = resources.iter().find(|resource| !(0..=1).contains(&resource.weight)) {
                statement.refuse(path, format!("the weight of {:?} must be 1", heavy.name));
                return Ok(());
            }
            if !resources.is_empty() {
                scoring.balanced_resources = resources.into_iter().map(|resource| resource.name).collect();
            }
        }
        ("InterPodAffinity", "hardPodAffinityWeight") => scoring.hard_pod_affinity_weight = typed(value, path)?,
        ("InterPodAffinity", "ignorePreferredTermsOfExistingPods") => {
            scoring.ignore_preferred_terms_of_existing_pods = boolean(path, value)?;
        }
        ("NodeAffinity", "addedAffinity") => profile.added_affinity = Some(typed::<AddedAffinity>(value, path)?),
        ("PodTopologySpread", "defaultingType") => match value.as_str() {
            Some("System") => profile.spread_defaults = SpreadDefaults::Named(NamedDefaults::System),
            Some("List") => {
                let list = args.get("defaultConstraints").cloned().unwrap_or(Value::Array(Vec::new()));
                let list: Vec<DefaultConstraint> = typed(&list, path)?;
                profile.spread_defaults = SpreadDefaults::List(list);
            }
            _ => return Err(ConfigError::field(path, format!("{value}: must be \"System\" or \"List\""))),
        },
        ("PodTopologySpread", "defaultConstraints") => {
            let list: Vec<DefaultConstraint> = typed(value, path)?;
            if args.get("defaultingType").and_then(Value::as_str) != Some("List") && !list.is_empty() {
                statement.refuse(path, "defaultConstraints go with defaultingType: List");
                return Ok(());
            }
        }
        ("VolumeBinding", "bindTimeoutSeconds") => {
            let seconds = value.as_u64().filter(|seconds| *seconds > 0).ok_or_else(|| {
                ConfigError::field(path, format!("{value}: must be whole seconds, and more than zero"))
            })?;
            *volume_bind_timeout = Some(Span::from_millis(seconds.saturating_mul(1000)));
        }
        ("VolumeBinding", "shape") => scoring.storage_shape = typed::<Vec<ShapePoint>>(value, path)?,
        (missing, _) if substitute(missing).is_some() => {
            statement.ignore(path, format!("{missing} is not there"));
            return Ok(());
        }
        (PREEMPTION, "minCandidateNodesPercentage" | "minCandidateNodesAbsolute") => {
            statement.ignore(path, "all nodes are looked at");
            return Ok(());
        }
        _ => {
            statement.refuse(path, format!("this argument of {plugin:?} is not supported"));
            return Ok(());
        }
    }
    statement.support(path);
    Ok(())
}

fn strategy(value: &Value, path: &str, scoring: &mut Scoring) -> Result<(), ConfigError> {
    for (field, value) in object(value, path)? {
        let path = format!("{path}.{field}");
        match field.as_str() {
            "type" => scoring.strategy = typed::<Strategy>(value, &path)?,
            "resources" => {
                let mut resources: Vec<Resource> = typed(value, &path)?;
                // In kube-scheduler a weight of 0 means 1, and an empty list means the default resources.
                resources.iter_mut().filter(|resource| resource.weight == 0).for_each(|resource| resource.weight = 1);
                if !resources.is_empty() {
                    scoring.resources = resources;
                }
            }
            "requestedToCapacityRatio" => scoring.shape = typed::<Vec<ShapePoint>>(&value["shape"], &path)?,
            _ => return Err(ConfigError::field(path, "there is no such field in v1")),
        }
    }
    if scoring.strategy != Strategy::RequestedToCapacityRatio && !scoring.shape.is_empty() {
        let reason = format!("only RequestedToCapacityRatio has a shape, and type is {:?}", scoring.strategy);
        return Err(ConfigError::field(format!("{path}.requestedToCapacityRatio"), reason));
    }
    Ok(())
}

fn typed<T: DeserializeOwned>(value: &Value, path: &str) -> Result<T, ConfigError> {
    serde_path_to_error::deserialize(value.clone()).map_err(|error| {
        let inner = error.path().to_string();
        let path = if inner == "." { path.to_owned() } else { format!("{path}.{inner}") };
        ConfigError::field(path, error.inner().to_string())
    })
}

#[cfg(test)]
mod tests {
    use super::super::{ConfigError, Configuration, File, Overrides};
    use super::*;

    fn read(body: &str) -> Result<(File, Statement), ConfigError> {
        let text = format!("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{body}");
        let (file, statement) = File::read_any(&text)?;
        Ok((file, statement.expect("it is a kube-scheduler's")))
    }

    const FULL: &str = "
parallelism: 16
percentageOfNodesToScore: 50
podInitialBackoffSeconds: 2
podMaxBackoffSeconds: 20
clientConnection: {qps: 100, burst: 200}
leaderElection: {leaderElect: true, leaseDuration: 20s, renewDeadline: 12s, retryPeriod: 3s, resourceLock: leases, resourceName: kube-scheduler}
profiles:
- schedulerName: packing
  plugins:
    multiPoint:
      disabled: [{name: ImageLocality}]
      enabled: [{name: NodeResourcesFit, weight: 7}]
    score:
      disabled: [{name: NodeResourcesBalancedAllocation}]
      enabled: [{name: PodTopologySpread, weight: 9}]
    filter:
      disabled: [{name: NodePorts}]
  pluginConfig:
  - name: NodeResourcesFit
    args:
      apiVersion: kubescheduler.config.k8s.io/v1
      kind: NodeResourcesFitArgs
      scoringStrategy: {type: MostAllocated, resources: [{name: nvidia.com/gpu, weight: 5}]}
  - name: InterPodAffinity
    args: {hardPodAffinityWeight: 10, ignorePreferredTermsOfExistingPods: true}
  - name: NodeAffinity
    args:
      addedAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms: [{matchExpressions: [{key: pool, operator: In, values: [batch]}]}]
  - name: PodTopologySpread
    args: {defaultingType: List, defaultConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]}
- schedulerName: plain
";

    #[test]
    fn the_file_is_translated() {
        let (file, statement) = read(FULL).unwrap();
        assert_eq!(file.scheduler_names, ["packing"]);
        assert_eq!(file.profiles[0].scheduler_names, ["plain"]);
        assert_eq!(file.profiles[0].scoring, Scoring::default(), "the second profile has the defaults");
        let weights = file.scoring.weights;
        assert_eq!((weights.fit, weights.image_locality, weights.balanced, weights.topology_spread), (7, 0, 0, 9));
        assert_eq!((weights.taints, weights.node_affinity, weights.pod_affinity), (3, 2, 2));
        assert_eq!(file.without_filters, [FilterName::NodePorts].into());
        assert_eq!(file.scoring.strategy, Strategy::MostAllocated);
        assert_eq!((file.backoff.initial.to_string(), file.backoff.max.to_string()), ("2s".into(), "20s".into()));
        assert!(statement.ignored.iter().any(|(path, _)| path == "leaderElection.resourceName"));
        assert!(statement.supported.contains(&"profiles[0].plugins.filter.disabled[0]".to_owned()), "{statement}");
        let made = Configuration::new(file, Overrides::default()).unwrap();
        let first = &made.settings.profiles[0];
        assert_eq!(first.enforced_terms.as_ref().map(Vec::len), Some(1));
        assert_eq!(first.spread_defaults.schedule_anyway.len(), 1);
        assert_eq!(made.settings.engine.profiles.len(), 2);
        assert!(made.settings.engine.profiles[0].scoring.ignores_preferred_terms_of_others);
    }

    #[test]
    fn unsupported_fields_that_would_change_decisions_are_rejected_by_name() {
        for (body, expected) in [
            ("extenders: [{urlPrefix: 'http://x'}]", "extenders: a call over the network"),
            (
                "profiles: [{plugins: {filter: {enabled: [{name: Mine}]}}}]",
                "profiles[0].plugins.filter.enabled[0]: \"Mine\"",
            ),
            ("profiles: [{plugins: {permit: {enabled: [{name: Mine}]}}}]", "profiles[0].plugins.permit.enabled[0]"),
            ("profiles: [{plugins: {multiPoint: {disabled: [{name: SchedulingGates}]}}}]", "SchedulingGates cannot"),
            (
                "profiles: [{pluginConfig: [{name: NodeResourcesFit, args: {ignoredResources: [a]}}]}]",
                "profiles[0].pluginConfig[0].args.ignoredResources",
            ),
            ("futureField: 1", "futureField: there is no such field"),
            (
                "profiles: [{plugins: {scores: {enabled: [{name: ImageLocality}]}}}]",
                "profiles[0].plugins.scores: there is no",
            ),
            ("profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, weight: -3}]}}}]", "weight: -3: must be"),
            (
                "profiles: [{plugins: {score: {enabled: [{name: NodeAffinity, wieght: 3}]}}}]",
                "wieght: there is no such field",
            ),
            ("profiles: [{schedulerName: a}, {schedulerName: a}]", "profiles[1].schedulerName: \"a\": is duplicated"),
            ("podInitialBackoffSeconds: 20", "podInitialBackoffSeconds: 20s: is more than podMaxBackoffSeconds"),
            (
                "profiles: [{pluginConfig: [{name: NodeAffinity, args: {}}, {name: NodeAffinity, args: {}}]}]",
                "\"NodeAffinity\" has arguments already",
            ),
            (
                "profiles: [{pluginConfig: [{name: NodeAffinity, args: {kind: InterPodAffinityArgs}}]}]",
                "profiles[0].pluginConfig[0].args.kind: \"InterPodAffinityArgs\": must be \"NodeAffinityArgs\"",
            ),
        ] {
            let error = read(body).unwrap_err().to_string();
            assert!(error.contains(expected), "{error} does not contain {expected}");
        }
    }

    #[test]
    fn the_defaults_of_kube_scheduler_can_be_written_explicitly() {
        let (file, statement) = read(
            "
profiles:
- plugins:
    multiPoint: {enabled: [{name: NodeVolumeLimits}, {name: DynamicResources}, {name: PrioritySort}]}
    queueSort: {disabled: [{name: '*'}], enabled: [{name: PrioritySort}]}
    preScore: {disabled: [{name: '*'}]}
    score: {disabled: [{name: '*'}]}
  pluginConfig:
  - {name: VolumeBinding, args: {bindTimeoutSeconds: 600, shape: [{utilization: 0, score: 10}, {utilization: 100, score: 0}]}}
  - {name: DynamicResources, args: {filterTimeout: 10s}}
",
        )
        .unwrap();
        assert_eq!(file.scoring.weights.fit, 0, "nothing is scored");
        assert!(statement.ignored.iter().any(|(_, why)| why.contains("DynamicResources is not there")), "{statement}");
        assert_eq!(file.timeouts.bind_volumes.to_string(), "10m");
    }

    #[test]
    fn preemption_is_disabled_for_all_profiles_or_none() {
        let off = "plugins: {postFilter: {disabled: [{name: DefaultPreemption}]}}";
        assert!(!read(&format!("profiles: [{{{off}}}]")).unwrap().0.preemption.enabled);
        let error = read(&format!("profiles: [{{schedulerName: a, {off}}}, {{schedulerName: b}}]")).unwrap_err();
        assert!(error.to_string().contains("for all profiles together"), "{error}");
    }

    #[test]
    fn volumes_have_one_time_limit_and_their_filters_can_be_disabled() {
        let args =
            |seconds: &str| format!("pluginConfig: [{{name: VolumeBinding, args: {{bindTimeoutSeconds: {seconds}}}}}]");
        let off = "plugins: {filter: {disabled: [{name: VolumeRestrictions}, {name: NodeVolumeLimits}]}}";
        let (file, statement) = read(&format!("profiles: [{{{}, {off}}}]", args("30"))).unwrap();
        assert_eq!(file.timeouts.bind_volumes.to_string(), "30s");
        assert_eq!(file.without_filters, [FilterName::VolumeRestrictions, FilterName::NodeVolumeLimits].into());
        assert!(statement.ignored.is_empty(), "{statement}");
        let error = |body: &str| read(body).unwrap_err().to_string();
        let two = error(&format!("profiles: [{{schedulerName: a, {}}}, {{schedulerName: b}}]", args("30")));
        assert!(two.contains("profiles[1].pluginConfig: the bindTimeoutSeconds of VolumeBinding"), "{two}");
        let same = format!("profiles: [{{schedulerName: a, {}}}, {{schedulerName: b}}]", args("600"));
        assert_eq!(read(&same).unwrap().0.timeouts.bind_volumes.to_string(), "10m");
        for wrong in ["0", "-1", "1.5", "x"] {
            let error = error(&format!("profiles: [{{{}}}]", args(wrong)));
            assert!(error.contains("bindTimeoutSeconds: ") && error.contains("must be whole seconds"), "{error}");
        }
        let shape = |points: &str| {
            format!("profiles: [{{pluginConfig: [{{name: VolumeBinding, args: {{shape: {points}}}}}]}}]")
        };
        let (file, _) = read(&shape("[{utilization: 0, score: 3}]")).unwrap();
        assert_eq!(file.scoring.storage_shape, [ShapePoint { utilization: 0, score: 3 }]);
        assert!(error(&shape("3")).contains("profiles[0].pluginConfig[0].args.shape"));
    }

    #[test]
    fn a_profile_without_a_name_is_ours_and_empty_files_have_the_defaults() {
        let (file, statement) = read("").unwrap();
        assert_eq!((file, statement), (File::default(), Statement::default()));
        assert_eq!(read("profiles: [{}]").unwrap().0.scheduler_names, ["muster"]);
    }
}
