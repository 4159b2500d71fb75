//! Reads a KubeSchedulerConfiguration v1 as a configuration file, with a statement about each of its fields.
//!
//! A field is supported; or it has no meaning here, because it is about how kube-scheduler works and not about its
//! decisions; or it would change decisions and is not supported. Then the file is rejected: nothing is ignored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::file::{API_VERSION, File, KIND};
use super::kube_scheduler_plugins::{self as plugins, OfProfile};
use super::profile::Profile;
use super::{ConfigError, Span};

/// The `apiVersion` of such a file.
pub(super) const KUBE_API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
/// The `kind` of such a file.
pub(super) const KUBE_KIND: &str = "KubeSchedulerConfiguration";

/// How each field was handled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// Supported fields.
    pub supported: Vec<String>,
    /// Fields that cannot change a decision here, and why.
    pub ignored: Vec<(String, String)>,
    /// Unsupported fields, and why.
    pub refused: Vec<(String, String)>,
}

impl Statement {
    pub(super) fn support(&mut self, path: impl Into<String>) {
        self.supported.push(path.into());
    }

    pub(super) fn ignore(&mut self, path: impl Into<String>, why: impl Into<String>) {
        self.ignored.push((path.into(), why.into()));
    }

    pub(super) fn refuse(&mut self, path: impl Into<String>, why: impl Into<String>) {
        self.refused.push((path.into(), why.into()));
    }
}

impl fmt::Display for Statement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for path in &self.supported {
            writeln!(f, "honoured         {path}")?;
        }
        for (path, why) in &self.ignored {
            writeln!(f, "no meaning here  {path}: {why}")?;
        }
        for (path, why) in &self.refused {
            writeln!(f, "NOT HONOURED     {path}: {why}")?;
        }
        Ok(())
    }
}

/// Fields about how kube-scheduler works, and why they have no meaning here.
const WITHOUT_EFFECT: [(&str, &str); 6] = [
    ("parallelism", "one thread decides"),
    ("percentageOfNodesToScore", "all nodes are looked at for every decision"),
    ("clientConnection", "limits.* and timeouts.request are the settings for requests; --kubeconfig names the cluster"),
    ("enableProfiling", "there is no profiling endpoint"),
    ("enableContentionProfiling", "there is no profiling endpoint"),
    ("delayCacheUntilActive", "a replica that waits for the lease watches, so that it can take over at once"),
];

/// Reads a file. The statement covers every field of it.
pub(super) fn read(value: &Value) -> Result<(File, Statement), ConfigError> {
    let (mut file, mut statement) = (File::default(), Statement::default());
    let fields = value.as_object().into_iter().flatten();
    for (field, value) in fields.filter(|(field, _)| !["apiVersion", "kind"].contains(&field.as_str())) {
        if let Some((_, why)) = WITHOUT_EFFECT.iter().find(|(name, _)| name == field) {
            statement.ignore(field, *why);
            continue;
        }
        match field.as_str() {
            "leaderElection" => leader_election(value, &mut file, &mut statement)?,
            "podInitialBackoffSeconds" => file.backoff.initial = seconds(field, value, &mut statement)?,
            "podMaxBackoffSeconds" => file.backoff.max = seconds(field, value, &mut statement)?,
            "profiles" => profiles(value, &mut file, &mut statement)?,
            "extenders" if value.as_array().is_some_and(Vec::is_empty) || value.is_null() => statement.support(field),
            "extenders" => statement.refuse(field, "a call over the network has no place inside a decision"),
            _ => statement.refuse(field, "there is no such field in v1"),
        }
    }
    if file.backoff.initial > file.backoff.max {
        let reason = format!("{}: is more than podMaxBackoffSeconds ({})", file.backoff.initial, file.backoff.max);
        return Err(ConfigError::field("podInitialBackoffSeconds", reason));
    }
    (file.api_version, file.kind) = (API_VERSION.to_owned(), KIND.to_owned());
    if statement.refused.is_empty() { Ok((file, statement)) } else { Err(ConfigError::NotHonoured(statement)) }
}

fn seconds(path: &str, value: &Value, statement: &mut Statement) -> Result<Span, ConfigError> {
    let seconds = value.as_u64().ok_or_else(|| ConfigError::field(path, format!("{value}: must be whole seconds")))?;
    statement.support(path);
    Ok(Span::from_millis(seconds.saturating_mul(1000)))
}

fn leader_election(value: &Value, file: &mut File, statement: &mut Statement) -> Result<(), ConfigError> {
    let election = &mut file.leader_election;
    for (field, value) in object(value, "leaderElection")? {
        let path = format!("leaderElection.{field}");
        let span = || {
            let wrong = |reason: &dyn fmt::Display| ConfigError::field(path.clone(), format!("{value}: {reason}"));
            let text = value.as_str().ok_or_else(|| wrong(&"must be a length of time, such as 15s"))?;
            text.parse::<Span>().map_err(|error| wrong(&error))
        };
        match field.as_str() {
            "leaderElect" => election.enabled = boolean(&path, value)?,
            "leaseDuration" => election.lease_duration = span()?,
            "renewDeadline" => election.renew_deadline = span()?,
            "retryPeriod" => election.retry_period = span()?,
            "resourceLock" if value == "leases" => {}
            "resourceLock" => {
                statement.refuse(path, "only leases are used");
                continue;
            }
            "resourceName" | "resourceNamespace" => {
                let why = "we compete for a lease of our own: leaderElection.leaseName, leaderElection.leaseNamespace";
                statement.ignore(path, why);
                continue;
            }
            _ => {
                statement.refuse(path, "there is no such field in v1");
                continue;
            }
        }
        statement.support(path);
    }
    Ok(())
}

fn profiles(value: &Value, file: &mut File, statement: &mut Statement) -> Result<(), ConfigError> {
    let list = value.as_array().ok_or_else(|| ConfigError::field("profiles", "must be a list"))?;
    let (mut preempts, mut bind_timeouts, mut names) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    for (index, written) in list.iter().enumerate() {
        let path = format!("profiles[{index}]");
        let OfProfile { profile, preempts: evicts, volume_bind_timeout } = plugins::profile(written, &path, statement)?;
        if let Some(name) = profile.scheduler_names.iter().find(|name| !names.insert((*name).clone())) {
            return Err(ConfigError::field(format!("{path}.schedulerName"), format!("{name:?}: is duplicated")));
        }
        preempts.insert(evicts, path.clone());
        bind_timeouts.insert(volume_bind_timeout.unwrap_or(file.timeouts.bind_volumes), path.clone());
        if index == 0 {
            let Profile { scheduler_names, packing: _, scoring, spread_defaults, added_affinity, without_filters } =
                profile;
            file.scheduler_names = scheduler_names;
            (file.scoring, file.spread_defaults) = (scoring, spread_defaults);
            (file.added_affinity, file.without_filters) = (added_affinity, without_filters);
        } else {
            file.profiles.push(profile);
        }
    }
    match (preempts.contains_key(&true), preempts.get(&false)) {
        (true, Some(path)) => {
            statement.refuse(format!("{path}.plugins"), "preemption is on or off for all profiles together");
        }
        (false, Some(_)) => file.preemption.enabled = false,
        _ => {}
    }
    let mut bind_timeouts = bind_timeouts.into_iter();
    match (bind_timeouts.next(), bind_timeouts.next()) {
        (Some(_), Some((_, path))) => {
            let why = "the bindTimeoutSeconds of VolumeBinding (600 by default) is one for all profiles together";
            statement.refuse(format!("{path}.pluginConfig"), why);
        }
        (Some((timeout, _)), None) => file.timeouts.bind_volumes = timeout,
        _ => {}
    }
    Ok(())
}

pub(super) fn object<'v>(value: &'v Value, path: &str) -> Result<&'v serde_json::Map<String, Value>, ConfigError> {
    value.as_object().ok_or_else(|| ConfigError::field(path, "must be a map of fields"))
}

pub(super) fn boolean(path: &str, value: &Value) -> Result<bool, ConfigError> {
    value.as_bool().ok_or_else(|| ConfigError::field(path, format!("{value}: must be true or false")))
}
