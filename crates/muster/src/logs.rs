//! Logging to standard error, as JSON or as text.

use muster_runtime::config::{LogFormat, LogLevel};
use tracing_subscriber::EnvFilter;

/// Starts logging. Libraries log from `warn` on.
pub fn start(level: LogLevel, format: LogFormat) -> anyhow::Result<()> {
    let level = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let others = if level == "error" { "error" } else { "warn" };
    let filter = EnvFilter::try_new(format!("{others},muster={level},muster_runtime={level}"))?;
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
        LogFormat::Text => logs.with_ansi(false).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("starting logs: {error}"))
}
