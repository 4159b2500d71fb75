//! The section `metrics` of the configuration file.

use serde::{Deserialize, Serialize};

/// Metrics over TLS, for authorised clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct SecuredMetrics {
    /// Whether metrics are served over TLS to authorised clients only; otherwise with health, and to everyone.
    pub secure: bool,
    /// The address for that.
    pub listen: String,
    /// The source of the certificate.
    #[serde(skip_serializing_if = "MetricsCertificates::is_default")]
    pub certificates: MetricsCertificates,
}

/// The source of the certificate of the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct MetricsCertificates {
    /// A directory with `tls.crt` and `tls.key`; if it is omitted, Muster creates a certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
}

impl MetricsCertificates {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Default for SecuredMetrics {
    fn default() -> Self {
        Self { secure: false, listen: "0.0.0.0:8443".to_owned(), certificates: MetricsCertificates::default() }
    }
}
