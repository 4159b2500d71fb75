//! `muster run`: the scheduler in production.
//!
//! This thread holds the lease, answers probes and waits for signals, so that no decision, however long, delays a
//! renewal. The scheduler has a thread of its own (`thread`). `client` connects without retries of its own, since the
//! scheduler must know about every write that failed.

mod client;
mod logs;
mod options;
mod thread;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::process::ExitCode;

use anyhow::Context as _;
use jiff::Timestamp;
use muster_runtime::config::Configuration;
use muster_runtime::{Clock, End, Fence, Health, Instruments, Leadership, Metrics, Record, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(crate) use options::Options;

/// The exit code of a process that lost its lease: it should be started again.
const LOST: u8 = 1;
/// The exit code of a process that could not do its work.
const FAILED: u8 = 2;

/// Runs until a signal comes or the lease is lost.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let configuration = options.configuration()?;
    if options.print_config {
        print!("{}", configuration.file.to_yaml());
        return Ok(ExitCode::SUCCESS);
    }
    logs::start(configuration.log_level, configuration.log_format)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    // The last word goes where the others went.
    Ok(runtime.block_on(work(options, configuration)).unwrap_or_else(|error| {
        tracing::error!("{error:#}");
        ExitCode::from(if error.is::<Lost>() { LOST } else { FAILED })
    }))
}

async fn work(options: &Options, configuration: Configuration) -> anyhow::Result<ExitCode> {
    let mut signals = Signals::new()?;
    let (clock, identity) = (Clock::real(), identity());
    let kube_config = client::config(options.kubeconfig.as_deref()).await?;
    tracing::info!(identity, server = %kube_config.cluster_url, "muster {} starts", env!("CARGO_PKG_VERSION"));
    let (health, metrics) = (Health::default(), Metrics::default());
    let listener = TcpListener::bind(configuration.listen)
        .await
        .with_context(|| format!("listen: {}: cannot listen there", configuration.listen))?;
    tracing::info!(address = %listener.local_addr()?, "serves health and metrics");
    let probes = tokio::spawn(serve(listener, health.clone(), metrics.clone(), std::future::pending()));

    let leadership = match configuration.lease {
        None => None,
        Some(settings) => {
            health.set_standby(true);
            let candidate = Leadership::start(client::connect(&kube_config)?, settings, &identity, clock)?;
            tokio::select! {
                led = candidate.wait_until_leading() => led.map_err(lost)?,
                name = signals.next() => {
                    tracing::info!("{name}: ends while standing by");
                    candidate.release().await;
                    return Ok(ExitCode::SUCCESS);
                }
            }
            health.set_standby(false);
            Some(candidate)
        }
    };
    metrics.set_leader(true);

    let mut settings = configuration.settings;
    settings.identity.clone_from(&identity);
    let record = match &configuration.record {
        None => None,
        Some(place) => Some(Record::create(place, &settings.engine, &identity, Timestamp::now())?),
    };
    settings.instruments = Instruments { metrics: metrics.clone(), health, record };
    let fence = leadership.as_ref().map_or_else(Fence::open, Leadership::fence);
    let mut scheduler = thread::Thread::start(kube_config, settings, clock, fence)?;

    let why = tokio::select! {
        name = signals.next() => Why::Signal(name),
        end = lost_by(leadership.as_ref()) => Why::Lost(end),
        outcome = scheduler.ended() => Why::Failed(outcome),
        outcome = probes => Why::Failed(outcome.context("serving probes")?.context("serving probes")),
    };
    metrics.set_leader(false);
    if let Why::Signal(name) = &why {
        tracing::info!("{name}: ends");
    }
    let stopped = scheduler.stop().await;
    match why {
        Why::Lost(end) => Err(lost(end)),
        Why::Failed(outcome) => outcome.and(Err(anyhow::anyhow!("the scheduler has ended by itself"))),
        Why::Signal(_) => {
            // Only now: nothing of ours is on its way any more.
            if let Some(leadership) = leadership {
                leadership.release().await;
            }
            stopped.map(|()| ExitCode::SUCCESS)
        }
    }
}

/// Why the work ends.
enum Why {
    Signal(&'static str),
    Lost(End),
    Failed(anyhow::Result<()>),
}

/// The lease is gone: the process ends, and starts again as a candidate.
#[derive(Debug, thiserror::Error)]
#[error("this process no longer leads: {0}")]
struct Lost(End);

fn lost(end: End) -> anyhow::Error {
    Lost(end).into()
}

async fn lost_by(leadership: Option<&Leadership>) -> End {
    match leadership {
        Some(leadership) => leadership.lost().await,
        None => std::future::pending().await,
    }
}

/// The signals that end a process well.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("listening for signals");
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Who this process is: its pod or host, and something that no other process has.
fn identity() -> String {
    let named =
        ["POD_NAME", "HOSTNAME"].iter().find_map(|name| std::env::var(name).ok().filter(|name| !name.is_empty()));
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    format!("{}_{:016x}", named.as_deref().unwrap_or("muster"), hasher.finish())
}
