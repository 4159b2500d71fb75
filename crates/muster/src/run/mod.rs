//! `muster run`: the scheduler in production.
//!
//! This thread holds the lease and waits for signals, so that no decision and no client, however demanding, delays a
//! renewal. The scheduler, the listener of probes and metrics, and that of the webhook have their own threads.

mod options;
pub(crate) mod webhook;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, anyhow};
use muster_controllers::webhook::{Webhook, WebhookError};
use muster_runtime::config::Configuration;
use muster_runtime::{
    Clock, End, Fence, Health, Instruments, Leadership, LeaseSettings, ListenerThread, Metrics, Record, SecureMetrics,
    Settings, serve,
};
use tokio::time::timeout;

pub use options::Options;

use crate::client;
use crate::scheduler_thread::Thread;
use crate::signals::Signals;

/// How much longer than its writes the scheduler may take to stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// The exit code of a process that lost its lease and should be restarted.
const LOST: u8 = 1;
/// The exit code of a failed process.
const FAILED: u8 = 2;

/// Runs until a signal arrives or the lease is lost.
pub fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let (configuration, statement) = options.configuration()?;
    if options.print_config {
        if let Some(statement) = statement {
            eprint!("{statement}");
        }
        print!("{}", configuration.file.to_yaml());
        return Ok(ExitCode::SUCCESS);
    }
    crate::logs::start(configuration.log_level, configuration.log_format)?;
    for line in
        statement.iter().flat_map(|statement| statement.to_string().lines().map(str::to_owned).collect::<Vec<_>>())
    {
        tracing::info!("KubeSchedulerConfiguration: {line}");
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The last error goes to the log like all messages before it.
    Ok(runtime.block_on(work(options, configuration)).unwrap_or_else(|error| {
        tracing::error!("{error:#}");
        ExitCode::from(if error.is::<Lost>() || error.is::<SilentWatch>() { LOST } else { FAILED })
    }))
}

async fn work(options: &Options, configuration: Configuration) -> anyhow::Result<ExitCode> {
    let kube_config = client::config(options.kubeconfig.as_deref()).await?;
    let mut process = Process {
        signals: Signals::new()?,
        clock: Clock::real(),
        identity: identity(),
        kube_config,
        health: Health::default(),
        metrics: Metrics::default(),
    };
    let (version, server) = (env!("CARGO_PKG_VERSION"), &process.kube_config.cluster_url);
    tracing::info!(identity = process.identity, %server, "muster {version} starts");
    let _listeners = process.serve(&configuration).await?;

    // Every replica serves the webhook, whether or not it leads.
    let mut webhook = match &configuration.webhook {
        Some(place) => {
            let client = client::connect(&process.kube_config)?;
            let ages = process.metrics.watch_ages();
            Some(webhook::start(client, place, &configuration.settings, ages, process.clock).await?)
        }
        None => None,
    };
    let leadership = match configuration.lease.clone() {
        None => None,
        Some(lease) => {
            let Some(leadership) = process.lead(lease, webhook.as_mut()).await? else {
                webhook::stop(webhook).await;
                return Ok(ExitCode::SUCCESS);
            };
            Some(leadership)
        }
    };
    process.schedule(configuration, leadership, webhook).await
}

/// The shared state of this process.
struct Process {
    signals: Signals,
    clock: Clock,
    identity: String,
    kube_config: kube::Config,
    health: Health,
    metrics: Metrics,
}

impl Process {
    /// Serves health and metrics until the result is dropped.
    async fn serve(&self, configuration: &Configuration) -> anyhow::Result<(ListenerThread, Option<SecureMetrics>)> {
        let Configuration { listen, secure_metrics, .. } = configuration;
        let failed = |field: &str, address| format!("{field}: {address}: cannot listen on this address");
        let open = secure_metrics.is_none().then(|| self.metrics.clone());
        let what = if open.is_some() { "serves health and metrics" } else { "serves health" };
        let health = serve(*listen, self.health.clone(), open).await.with_context(|| failed("listen", *listen))?;
        tracing::info!(address = %health.address(), "{what}");
        let Some(settings) = secure_metrics.clone() else { return Ok((health, None)) };
        let (address, client, clock) = (settings.listen, client::connect(&self.kube_config)?, self.clock);
        let secure = SecureMetrics::start(settings, client, self.metrics.clone(), move || clock.now())
            .await
            .with_context(|| failed("metrics.listen", address))?;
        tracing::info!(address = %secure.address(), "serves metrics to authorised clients");
        Ok((health, Some(secure)))
    }

    /// Waits until this process leads; `None` if a signal arrived first.
    async fn lead(
        &mut self,
        lease: LeaseSettings,
        webhook: Option<&mut Webhook>,
    ) -> anyhow::Result<Option<Leadership>> {
        self.health.set_standby(true);
        let candidate = Leadership::start(client::connect(&self.kube_config)?, lease, &self.identity, self.clock)?;
        tokio::select! {
            led = candidate.wait_until_leading() => led.map_err(Lost)?,
            error = webhook::ended(webhook) => return Err(error.into()),
            name = self.signals.next() => {
                tracing::info!("{name}: shutting down while not leading");
                candidate.release().await;
                return Ok(None);
            }
        }
        self.health.set_standby(false);
        Ok(Some(candidate))
    }

    /// Schedules until a signal arrives, the lease is lost, or it fails.
    async fn schedule(
        mut self,
        configuration: Configuration,
        leadership: Option<Leadership>,
        mut webhook: Option<Webhook>,
    ) -> anyhow::Result<ExitCode> {
        self.metrics.set_leader(true);
        let watch_silence_max = configuration.lease.as_ref().map(|lease| lease.watch_silence_max);
        let settings = self.settings(configuration)?;
        let stop_within = settings.stop_timeout + STOP_GRACE;
        let fence = leadership.as_ref().map_or_else(Fence::open, Leadership::fence);
        let kube_config = self.kube_config;
        let connect = move || client::connect(&kube_config);
        let mut scheduler = Thread::start(connect, settings, self.clock, fence)?;
        let why = tokio::select! {
            name = self.signals.next() => Why::Signal(name),
            end = lost_by(leadership.as_ref()) => Why::Lost(end),
            error = silent_watch(&self.metrics, watch_silence_max) => Why::SilentWatch(error),
            outcome = scheduler.ended() => Why::Failed(outcome),
            error = webhook::ended(webhook.as_mut()) => Why::WebhookFailed(error),
        };
        self.metrics.set_leader(false);
        match &why {
            Why::Signal(name) => tracing::info!("{name}: shutting down"),
            Why::SilentWatch(error) => tracing::error!("{error}: shutting down"),
            _ => {}
        }
        let stopped = timeout(stop_within, scheduler.stop()).await;
        match why {
            Why::Lost(end) => Err(Lost(end).into()),
            Why::WebhookFailed(error) => Err(error.into()),
            Why::Failed(outcome) => outcome.and(Err(anyhow!("the scheduler has ended unexpectedly"))),
            Why::Signal(_) | Why::SilentWatch(_) => {
                // The lease is released only if no request is in flight any more; else it expires.
                let stopped = stopped.context("the scheduler did not stop in time").flatten();
                if let (Some(leadership), Ok(())) = (leadership, &stopped) {
                    leadership.release().await;
                }
                // It served until now: API servers may call a replica for a moment after it was told to stop.
                webhook::stop(webhook).await;
                match why {
                    Why::SilentWatch(error) => Err(error.into()),
                    _ => stopped.map(|()| ExitCode::SUCCESS),
                }
            }
        }
    }

    /// The scheduler's settings, with the identity, the metrics and the record of this process.
    fn settings(&self, configuration: Configuration) -> anyhow::Result<Settings> {
        let Configuration { mut settings, record, .. } = configuration;
        let record = match record {
            None => None,
            Some(place) => {
                let record = Record::create(&place, &settings.engine, &self.identity, self.clock.now())?;
                tracing::info!(file = %record.path().display(), "decisions are recorded");
                Some(record)
            }
        };
        settings.identity.clone_from(&self.identity);
        settings.instruments = Instruments { metrics: self.metrics.clone(), health: self.health.clone(), record };
        Ok(settings)
    }
}

/// Why scheduling ends.
enum Why {
    Signal(&'static str),
    Lost(End),
    /// The lease is given back: another replica may be better connected.
    SilentWatch(SilentWatch),
    Failed(anyhow::Result<()>),
    /// The webhook has failed: a restarted process serves it again.
    WebhookFailed(WebhookError),
}

/// The lease is lost: the process exits, and is restarted as a candidate.
#[derive(Debug, thiserror::Error)]
#[error("this process no longer leads: {0}")]
struct Lost(End);

/// The lease is given back: the process exits, and is restarted as a candidate.
#[derive(Debug, thiserror::Error)]
#[error("{kind}: the API server has not answered for {} s (leaderElection.maxWatchSilence)", silence.as_secs())]
struct SilentWatch {
    kind: String,
    silence: Duration,
}

/// Waits until a watch has been silent for too long; forever without a limit.
async fn silent_watch(metrics: &Metrics, watch_silence_max: Option<Duration>) -> SilentWatch {
    match watch_silence_max {
        Some(silence_max) => {
            let (kind, silence) = metrics.watch_ages().wait_until_silent_for(silence_max).await;
            SilentWatch { kind, silence }
        }
        None => std::future::pending().await,
    }
}

async fn lost_by(leadership: Option<&Leadership>) -> End {
    match leadership {
        Some(leadership) => leadership.lost().await,
        None => std::future::pending().await,
    }
}

/// The identity of this process: its pod or host, and a unique suffix.
fn identity() -> String {
    let named =
        ["POD_NAME", "HOSTNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{}_{:016x}", named.as_deref().unwrap_or("muster"), hasher.finish())
}
