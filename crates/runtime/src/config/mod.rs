//! The configuration: a file, overridden by flags, and the resulting settings.
//!
//! `file` is what users write, `effective` validates it and turns it into settings, `span` parses durations. Nothing is
//! ignored: unknown fields, gates and values are rejected by name.

mod effective;
mod file;
mod kube_scheduler;
mod kube_scheduler_plugins;
mod metrics;
mod packing;
mod profile;
mod span;

use serde_json::Value;

pub use effective::{Configuration, Overrides, RecordSettings};
pub use file::{Certificates, Eviction, File, LogFormat, LogLevel};
pub use kube_scheduler::Statement;
pub use metrics::{MetricsCertificates, SecuredMetrics};
pub use packing::Packing;
pub use span::{Span, SpanError};

/// An unusable configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not YAML.
    #[error("the configuration is not YAML: {0}")]
    Yaml(String),
    /// It has another version or kind.
    #[error("{field}: {value}: this version reads {expected}")]
    Kind {
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// The value in the file.
        value: String,
        /// The expected value.
        expected: &'static str,
    },
    /// An invalid or unknown field.
    #[error("{field}: {reason}")]
    Field {
        /// The path of the field.
        field: String,
        /// The reason.
        reason: String,
    },
    /// An invalid feature gate.
    #[error(transparent)]
    Gate(#[from] crate::gates::GateError),
    /// A KubeSchedulerConfiguration with fields that would change decisions and are not supported.
    #[error("not all of this KubeSchedulerConfiguration can be honoured, so nothing of it is:\n{0}")]
    NotHonoured(Statement),
    /// Invalid times of the lease.
    #[error(transparent)]
    Lease(#[from] crate::lease::LeaseError),
}

impl ConfigError {
    fn field(field: impl Into<String>, reason: impl Into<String>) -> Self {
        ConfigError::Field { field: field.into(), reason: reason.into() }
    }

    /// The same error for a nested field.
    fn under(self, prefix: &str) -> Self {
        match self {
            ConfigError::Field { field, reason } => ConfigError::Field { field: format!("{prefix}{field}"), reason },
            other => other,
        }
    }
}

impl File {
    /// Reads a MusterConfiguration or a KubeSchedulerConfiguration; the latter with a statement about each of its
    /// fields.
    pub fn read_any(text: &str) -> Result<(Self, Option<Statement>), ConfigError> {
        let value = map(text)?;
        let (version, kind) = (&value["apiVersion"], &value["kind"]);
        if *version == kube_scheduler::KUBE_API_VERSION && *kind != kube_scheduler::KUBE_KIND {
            return Err(ConfigError::Kind {
                field: "kind",
                value: kind.to_string(),
                expected: kube_scheduler::KUBE_KIND,
            });
        }
        if *kind == kube_scheduler::KUBE_KIND && *version != kube_scheduler::KUBE_API_VERSION {
            let expected = kube_scheduler::KUBE_API_VERSION;
            return Err(ConfigError::Kind { field: "apiVersion", value: version.to_string(), expected });
        }
        if *kind == kube_scheduler::KUBE_KIND {
            return kube_scheduler::read(&value).map(|(file, statement)| (file, Some(statement)));
        }
        Self::read(text).map(|file| (file, None))
    }

    /// Reads a MusterConfiguration.
    pub fn read(text: &str) -> Result<Self, ConfigError> {
        let value = map(text)?;
        for (field, expected) in [("apiVersion", file::API_VERSION), ("kind", file::KIND)] {
            let found = value.get(field).unwrap_or(&Value::Null);
            if *found != expected {
                return Err(ConfigError::Kind { field, value: found.to_string(), expected });
            }
        }
        serde_path_to_error::deserialize(value).map_err(|error| {
            let (field, reason) = (error.path().to_string(), error.inner().to_string());
            ConfigError::Field { field, reason }
        })
    }

    /// Prints the file as YAML that can be read back.
    pub fn to_yaml(&self) -> String {
        serde_saphyr::to_string(self).expect("plain data can always be written as YAML")
    }
}

fn map(text: &str) -> Result<Value, ConfigError> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| ConfigError::Yaml(error.to_string()))?;
    if value.is_object() { Ok(value) } else { Err(ConfigError::Yaml("it should be a map of fields".to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "apiVersion: config.muster.dev/v1alpha1\nkind: MusterConfiguration\n";

    fn read(body: &str) -> Result<File, ConfigError> {
        File::read(&format!("{HEAD}{body}"))
    }

    #[test]
    fn an_empty_file_has_the_defaults_and_printed_files_can_be_read() {
        assert_eq!(read("").unwrap(), File::default());
        let file =
            read("scoring: {strategy: MostAllocated, weights: {fit: 7}}\nrecordDir: /var/record\nlisten: \"[::]:1\"\n")
                .unwrap();
        assert_eq!(file.scoring.weights.fit, 7);
        assert_eq!(file.scoring.weights.taints, 3, "what is left out keeps its default");
        assert_eq!(File::read(&file.to_yaml()).unwrap(), file, "{}", file.to_yaml());
        assert_eq!(File::read(&File::default().to_yaml()).unwrap(), File::default());
    }

    #[test]
    fn an_invalid_field_is_rejected_by_name() {
        for (body, message) in [
            ("scheduler: x", "scheduler: unknown field `scheduler`"),
            ("scoring: {weights: {size: 1}}", "scoring.weights.size: unknown field `size`"),
            ("backoff: {initial: 5, max: 10s}", "backoff.initial: invalid type: integer `5`"),
            ("backoff: {initial: 5x, max: 10s}", "backoff.initial: \"5x\" is not a duration"),
            ("backoff: {initial: 5s}", "backoff: missing field `max`"),
            ("limits: {bindsInFlight: -1}", "limits.bindsInFlight: invalid value: integer `-1`"),
            ("featureGates: {GangScheduling: \"yes\"}", "featureGates.GangScheduling: invalid type"),
            ("scoring: {strategy: Best}", "scoring.strategy: unknown variant `Best`"),
            ("logLevel: loud", "logLevel: unknown variant `loud`"),
            ("schedulerNames: muster", "schedulerNames: invalid type: string"),
            ("listen: a\nlisten: b", "the configuration is not YAML: "),
        ] {
            let error = read(body).unwrap_err().to_string();
            assert!(error.starts_with(message), "{body}: {error}");
        }
        let error = File::read("apiVersion: v1\nkind: ConfigMap\n").unwrap_err().to_string();
        assert_eq!(error, "apiVersion: \"v1\": this version reads config.muster.dev/v1alpha1");
        let error = File::read("apiVersion: config.muster.dev/v1alpha1\n").unwrap_err().to_string();
        assert_eq!(error, "kind: null: this version reads MusterConfiguration");
        assert!(File::read("[]").unwrap_err().to_string().contains("map of fields"));
        assert!(File::read("a: [").unwrap_err().to_string().starts_with("the configuration is not YAML"));
    }
}
