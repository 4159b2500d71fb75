//! The setting and the ports of metrics over TLS.

use serde_json::{Value, json};

const PORT: u16 = 8443;
/// The name of the port, of the container and of the Service.
pub(super) const PORT_NAME: &str = "https-metrics";

/// The section `metrics` of the configuration file.
pub(super) fn settings() -> Value {
    json!({"secure": true})
}

pub(super) fn container_port() -> Value {
    json!({"name": PORT_NAME, "containerPort": PORT})
}

pub(super) fn service_port() -> Value {
    json!({"name": PORT_NAME, "port": PORT, "targetPort": PORT_NAME})
}
