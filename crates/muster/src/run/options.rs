//! The flags of `muster run`, which take precedence over the configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use muster_runtime::config::{Configuration, File, LogFormat, LogLevel, Overrides, Statement};

/// The configuration file and flags that override it.
#[derive(clap::Args)]
pub struct Options {
    /// The configuration file (YAML, kind MusterConfiguration, or KubeSchedulerConfiguration v1 of kube-scheduler, for
    /// which a report lists the fields that are honoured). Without it everything has its default.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The kubeconfig; without it $KUBECONFIG, ~/.kube/config or the pod's service account.
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Schedule pods with this schedulerName. May be repeated; replaces the names in the file.
    #[arg(long, value_name = "NAME")]
    scheduler_name: Vec<String>,
    /// Set feature gates, overriding those in the file: A=true,B=false.
    #[arg(long, value_name = "GATE=BOOL", value_delimiter = ',', value_parser = gate)]
    feature_gates: Vec<(String, bool)>,
    /// Whether to acquire a lease before anything is written.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    leader_elect: Option<bool>,
    /// The name of the Lease.
    #[arg(long, value_name = "NAME")]
    lease_name: Option<String>,
    /// The namespace of the Lease.
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,
    /// The address on which /livez, /readyz, /healthz and /metrics are served.
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<String>,
    /// The log level.
    #[arg(long, value_name = "LEVEL", value_enum)]
    log_level: Option<Level>,
    /// The log format.
    #[arg(long, value_name = "FORMAT", value_enum)]
    log_format: Option<Format>,
    /// Record all decisions in a new file in this folder, for `muster replay`.
    #[arg(long, value_name = "FOLDER")]
    record_dir: Option<String>,
    /// Print the effective configuration of the flags and the file, and exit. The report on fields of a
    /// KubeSchedulerConfiguration is written to standard error.
    #[arg(long)]
    pub(crate) print_config: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Level {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Json,
    Text,
}

impl Options {
    /// The effective configuration of the file and the flags, and the report on the fields of a
    /// KubeSchedulerConfiguration.
    pub(crate) fn configuration(&self) -> anyhow::Result<(Configuration, Option<Statement>)> {
        let (file, statement) = match &self.config {
            None => (File::default(), None),
            Some(path) => {
                let name = path.display();
                let text = std::fs::read_to_string(path).with_context(|| format!("--config {name}"))?;
                File::read_any(&text).with_context(|| format!("--config {name}"))?
            }
        };
        Ok((Configuration::new(file, self.overrides()?)?, statement))
    }

    fn overrides(&self) -> anyhow::Result<Overrides> {
        let mut feature_gates = BTreeMap::new();
        for (name, value) in &self.feature_gates {
            if feature_gates.insert(name.clone(), *value).is_some() {
                anyhow::bail!("--feature-gates {name}: is given twice");
            }
        }
        Ok(Overrides {
            scheduler_names: self.scheduler_name.clone(),
            feature_gates,
            leader_elect: self.leader_elect,
            lease_name: self.lease_name.clone(),
            lease_namespace: self.lease_namespace.clone(),
            listen: self.listen.clone(),
            log_level: self.log_level.map(Level::setting),
            log_format: self.log_format.map(Format::setting),
            record_dir: self.record_dir.clone(),
        })
    }
}

impl Level {
    fn setting(self) -> LogLevel {
        match self {
            Level::Error => LogLevel::Error,
            Level::Warn => LogLevel::Warn,
            Level::Info => LogLevel::Info,
            Level::Debug => LogLevel::Debug,
            Level::Trace => LogLevel::Trace,
        }
    }
}

impl Format {
    fn setting(self) -> LogFormat {
        match self {
            Format::Json => LogFormat::Json,
            Format::Text => LogFormat::Text,
        }
    }
}

fn gate(text: &str) -> Result<(String, bool), String> {
    match text.split_once('=') {
        Some((name, "true")) => Ok((name.to_owned(), true)),
        Some((name, "false")) => Ok((name.to_owned(), false)),
        Some((name, value)) => Err(format!("{name} is true or false, not {value:?}")),
        None => Err("a feature gate is written as NAME=true or NAME=false".to_owned()),
    }
}
