//! `muster-lab bench runtime`: the resource usage of `muster run`, measured from outside.
//!
//! This process is the server and creates the load. The scheduler runs in its own process on loopback HTTP, so that its
//! memory and CPU time are its own, and every request is counted where it arrives.

mod front;
mod ledger;
mod load;
mod objects;
mod report;

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use muster_playground::{Server, Settings};
use serde_json::json;

use super::null_binder::NULL_BINDER;
use super::process::Process;
use ledger::Ledger;
use load::Batch;
use report::{BatchCost, Report, Start};

/// The size of the benchmark.
#[derive(Args)]
pub(crate) struct Options {
    /// A small cluster and few pods: to check that it works, not for measurements.
    #[arg(long)]
    quick: bool,
    /// Print one JSON object instead of tables.
    #[arg(long)]
    json: bool,
}

/// The sizes of all phases.
struct Size {
    nodes: usize,
    bound_pods: usize,
    backlog: Batch,
    counted: Vec<Batch>,
    /// Batches that are also given to the null binder.
    compared: Vec<Batch>,
}

impl Size {
    fn of(options: &Options) -> Self {
        let part = if options.quick { 50 } else { 1 };
        Self {
            nodes: if options.quick { 200 } else { 5_000 },
            bound_pods: 150_000 / part,
            backlog: Batch::gangs("backlog", 100 / part, 100),
            counted: vec![Batch::gangs("gang-of-1000", 1, 1_000), Batch::gangs("gangs-of-3", 1_000 / part, 3)],
            compared: vec![Batch::plain("plain-pods", 10_000 / part), Batch::gangs("gangs-of-100", 100 / part, 100)],
        }
    }
}

/// The time limit of a phase.
const PHASE_MAX: Duration = Duration::from_secs(90);
/// The process is idle once nothing was written for so long.
const IDLE_AFTER: Duration = Duration::from_secs(3);
const POLL_EVERY: Duration = Duration::from_millis(2);

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let size = Size::of(options);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let report = runtime.block_on(measure(&size))?;
    let mut out = std::io::stdout().lock();
    if options.json {
        writeln!(out, "{}", serde_json::to_string(&report)?)?;
    } else {
        report::print(&mut out, &report)?;
    }
    Ok(())
}

/// A server with a front, and the process that works on it.
struct Bench {
    server: Server,
    ledger: Arc<Ledger>,
    url: String,
}

async fn measure(size: &Size) -> anyhow::Result<Report> {
    let server = Server::start(Settings::default());
    load::install_kinds(&server).await?;
    let began = Instant::now();
    load::fill(&server, size.nodes, size.bound_pods).await?;
    load::create_batch(&server, size.backlog, muster_api::keys::SCHEDULER_NAME).await?;
    let fill_seconds = began.elapsed().as_secs_f64();
    let ledger = Arc::new(Ledger::default());
    let address = front::serve(server.clone(), Arc::clone(&ledger), objects::managed_fields()).await?;
    let bench = Bench { server, ledger, url: format!("http://{address}") };

    let kubeconfig = Kubeconfig::write(&bench.url)?;
    let mut scheduler = bench.scheduler(&kubeconfig)?;
    let start = bench.start(&mut scheduler, size, fill_seconds).await?;
    let mut batches = Vec::new();
    for batch in size.counted.iter().chain(&size.compared) {
        batches.push(bench.phase(&mut scheduler, *batch, muster_api::keys::SCHEDULER_NAME).await?);
    }
    let usage = scheduler.usage()?;
    drop(scheduler);

    let mut null_binder = Process::start(&["bench", "null-binder", "--kubeconfig", kubeconfig.path()?])?;
    bench.ledger.open(null_binder.id());
    bench.until(&mut null_binder, "the null binder's watch", |bench| bench.ledger.read().watches("pods")).await?;
    let mut null_binder_batches = Vec::new();
    for batch in &size.compared {
        let batch = Batch { name: if batch.size > 0 { "null-gangs" } else { "null-pods" }, ..*batch };
        null_binder_batches.push(bench.phase(&mut null_binder, batch, NULL_BINDER).await?);
    }
    Ok(Report { start, batches, null_binder_batches, end_rss_mib: usage.rss_mib, end_rss_mib_peak: usage.rss_mib_peak })
}

impl Bench {
    /// `muster run` on this server.
    fn scheduler(&self, kubeconfig: &Kubeconfig) -> anyhow::Result<Process> {
        let flags = ["--leader-elect=false", "--listen=127.0.0.1:0", "--log-level=warn", "--log-format=text"];
        let process = Process::start_muster(&[&["--kubeconfig", kubeconfig.path()?], &flags[..]].concat())?;
        self.ledger.open(process.id());
        Ok(process)
    }

    /// From the start of the process to the last pod of the backlog.
    async fn start(&self, scheduler: &mut Process, size: &Size, fill_seconds: f64) -> anyhow::Result<Start> {
        let began = Instant::now();
        self.until(scheduler, "all watches", |bench| bench.ledger.read().synced.is_some()).await?;
        let at_sync = scheduler.usage()?;
        self.until(scheduler, "the first bind", |bench| bench.ledger.binds() > 0).await?;
        let pods = size.backlog.pods() as u64;
        self.until(scheduler, "the backlog", |bench| bench.ledger.binds() >= pods).await?;
        self.await_idle(scheduler).await?;
        let (counts, usage) = (self.ledger.read(), scheduler.usage()?);
        let since = |moment: Option<Instant>, from: Option<Instant>| {
            moment.zip(from).map_or(0.0, |(moment, from)| moment.saturating_duration_since(from).as_secs_f64())
        };
        Ok(Start {
            nodes: size.nodes,
            bound_pods: size.bound_pods,
            backlog_pods: pods,
            fill_seconds,
            sync_seconds: since(counts.synced, Some(began)),
            sync_cpu_seconds: at_sync.cpu_seconds,
            first_decision_cpu_seconds: counts.first_bind_cpu_seconds,
            first_bind_seconds: since(counts.first_bind, counts.synced),
            last_bind_seconds: since(counts.last_bind, counts.synced),
            rss_mib: usage.rss_mib,
            rss_mib_peak: usage.rss_mib_peak,
            cost: BatchCost::of("backlog", pods, &counts, since(counts.last_bind, counts.synced), usage.cpu_seconds),
        })
    }

    /// Creates a batch and waits until all of it is bound and all status is written.
    async fn phase(&self, process: &mut Process, batch: Batch, scheduler: &'static str) -> anyhow::Result<BatchCost> {
        let before = process.usage()?;
        self.ledger.open(process.id());
        let began = Instant::now();
        load::create_batch(&self.server, batch, scheduler).await?;
        let pods = batch.pods() as u64;
        self.until(process, batch.name, |bench| bench.ledger.binds() >= pods).await?;
        let cpu_seconds = process.usage()?.cpu_seconds - before.cpu_seconds;
        self.await_idle(process).await?;
        let counts = self.ledger.read();
        let seconds = counts.last_bind.map_or(0.0, |last| last.saturating_duration_since(began).as_secs_f64());
        Ok(BatchCost::of(batch.name, pods, &counts, seconds, cpu_seconds))
    }

    async fn until(&self, process: &mut Process, what: &str, done: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let ends = Instant::now() + PHASE_MAX;
        while !done(self) {
            process.check()?;
            if Instant::now() > ends {
                let counts = self.ledger.read();
                let requested = (counts.binds, counts.unwatched(), counts.requests, counts.refused);
                bail!(
                    "{what}: not done in {} s (binds, not watched, requests, refused): {requested:?}",
                    PHASE_MAX.as_secs()
                );
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
        Ok(())
    }

    /// Waits until nothing is written any more.
    async fn await_idle(&self, process: &mut Process) -> anyhow::Result<()> {
        self.until(process, "quiet", |bench| {
            bench.ledger.read().last_write.is_none_or(|last| last.elapsed() > IDLE_AFTER)
        })
        .await
    }
}

/// A kubeconfig that is removed when this is dropped.
struct Kubeconfig(PathBuf);

impl Kubeconfig {
    fn write(url: &str) -> anyhow::Result<Self> {
        let path = std::env::temp_dir().join(format!("muster-bench-{}.json", std::process::id()));
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {"server": url}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
            "users": [{"name": "bench", "user": {}}],
        });
        std::fs::write(&path, config.to_string()).with_context(|| format!("writing {}", path.display()))?;
        Ok(Self(path))
    }

    fn path(&self) -> anyhow::Result<&str> {
        self.0.to_str().context("a folder for temporary files with a UTF-8 name")
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        // A leftover temporary file does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}
