//! `muster-lab bench playground`: memory, response times and idle CPU of a large simulated cluster, server and nodes in
//! one process.
//!
//! While one namespace is listed repeatedly, pods are created and deleted, a client lists everything in pages, and
//! every kubelet renews its lease. Targets are for the whole process.

use std::io::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::process::{Process, cpu_seconds};
use super::server::Wire;

/// The size of the cluster.
#[derive(Args)]
pub(crate) struct Options {
    /// How many nodes are simulated.
    #[arg(long, default_value_t = 1000)]
    nodes: usize,
    /// How many pods run.
    #[arg(long, default_value_t = 20_000)]
    pods: usize,
    /// How long the cluster is measured, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

const PODS_OF_NAMESPACE: usize = 200;
const MEMORY_MIB_MAX: f64 = 1536.0;
const RESPONSE_MS_MAX: f64 = 200.0;
const IDLE_PERCENT_MAX: f64 = 2.0;
const NODES_USUAL: usize = 16;
const CLIENTS: usize = 8;
const PAGE: usize = 500;
const POLL_EVERY: Duration = Duration::from_millis(100);
/// A pod is replaced this often.
const REPLACE_EVERY: Duration = Duration::from_millis(20);
/// Time for the cluster to become idle.
const SETTLE_TIME: Duration = Duration::from_secs(5);
const START_MAX: Duration = Duration::from_secs(300);

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.nodes == 0 || options.pods < PODS_OF_NAMESPACE || options.seconds == 0 {
        bail!("a cluster needs nodes, {PODS_OF_NAMESPACE} pods or more, and some time");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure_large(options))?;
    runtime.block_on(measure_idle(options))
}

async fn measure_large(options: &Options) -> anyhow::Result<()> {
    let count = options.nodes.to_string();
    let (process, address) = Process::serve(&["bench", "serve", "--nodes", &count])?;
    let began = Instant::now();
    let nodes = ready_nodes(address, options.nodes).await?;
    fill(address, options, &nodes).await?;
    until_running(address).await?;
    let filled = began.elapsed().as_secs_f64();
    let before = cpu_seconds(process.id()).context("reading CPU time")?;
    let seen = measure_lists(address, options, &nodes).await?;
    let cpu = cpu_seconds(process.id()).context("reading CPU time")? - before;
    tokio::time::sleep(SETTLE_TIME).await;
    let quiet = cpu_percent(&process, Duration::from_secs(options.seconds)).await?;
    let memory = process.usage()?;
    let mut out = std::io::stdout().lock();
    let pods = options.pods / PODS_OF_NAMESPACE * PODS_OF_NAMESPACE;
    writeln!(out, "{} nodes, {pods} running pods after {filled:.0} s", options.nodes)?;
    target(&mut out, "memory, MiB at the peak", memory.rss_mib_peak, MEMORY_MIB_MAX)?;
    writeln!(out, "{:>34} {:>8.0}", "memory, MiB now", memory.rss_mib)?;
    writeln!(out, "{:>34} {:>8.1}", "get pods of a namespace, ms median", seen.percentile(50))?;
    writeln!(out, "{:>34} {:>8.1}", "99 of 100 below", seen.percentile(99))?;
    target(&mut out, "the slowest", seen.percentile(100), RESPONSE_MS_MAX)?;
    writeln!(out, "{:>34} {:>8.1}", "all pods in pages, ms median", seen.sweep_ms())?;
    writeln!(out, "{:>34} {:>8.1}", "CPU, % of a core, under this", cpu * 100.0 / options.seconds as f64)?;
    writeln!(out, "{:>34} {quiet:>8.1}", "and without requests")?;
    Ok(())
}

/// The CPU usage of an idle cluster of the usual size.
async fn measure_idle(options: &Options) -> anyhow::Result<()> {
    let count = NODES_USUAL.to_string();
    let (process, address) = Process::serve(&["bench", "serve", "--nodes", &count])?;
    ready_nodes(address, NODES_USUAL).await?;
    tokio::time::sleep(SETTLE_TIME).await;
    let percent = cpu_percent(&process, Duration::from_secs(options.seconds)).await?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{NODES_USUAL} nodes, idle")?;
    target(&mut out, "CPU, % of a core", percent, IDLE_PERCENT_MAX)?;
    Ok(())
}

fn target(out: &mut impl Write, what: &str, value: f64, max: f64) -> std::io::Result<()> {
    let met = if value < max { "met" } else { "MISSED" };
    writeln!(out, "{what:>34} {value:>8.1}   target below {max:.0}: {met}")
}

async fn cpu_percent(process: &Process, time: Duration) -> anyhow::Result<f64> {
    let before = cpu_seconds(process.id()).context("reading CPU time")?;
    tokio::time::sleep(time).await;
    let after = cpu_seconds(process.id()).context("reading CPU time")?;
    Ok((after - before) * 100.0 / time.as_secs_f64())
}

async fn get(wire: &mut Wire, path: &str) -> anyhow::Result<Value> {
    let answer = wire.send_request("GET", path, "").await?;
    serde_json::from_slice(&answer).with_context(|| format!("GET {path}"))
}

/// The names of the nodes, once all of them are ready.
async fn ready_nodes(address: SocketAddr, count: usize) -> anyhow::Result<Vec<String>> {
    let mut wire = Wire::connect(address).await?;
    let ends = Instant::now() + START_MAX;
    loop {
        let list = get(&mut wire, "/api/v1/nodes").await?;
        let items = list["items"].as_array().into_iter().flatten();
        let untainted = items.filter(|node| node["spec"]["taints"].is_null());
        let names = untainted.filter_map(|node| node["metadata"]["name"].as_str().map(str::to_owned));
        let names: Vec<String> = names.collect();
        if names.len() == count {
            return Ok(names);
        }
        if Instant::now() > ends {
            bail!("{} of {count} nodes are ready", names.len());
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

fn pod_path(index: usize) -> String {
    format!("/api/v1/namespaces/ns-{}/pods", index / PODS_OF_NAMESPACE)
}

/// A pod that runs until it is deleted, on one of the nodes.
fn pod(index: usize, nodes: &[String]) -> String {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("pod-{index}"), "labels": {"app": "bench", "index": index.to_string()}},
        "spec": {"nodeName": nodes[index % nodes.len()], "containers": [{
            "name": "main", "image": "registry.example/serve:1", "command": ["serve", "--port", "8080"],
            "env": [{"name": "INDEX", "value": index.to_string()}],
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        }]},
    })
    .to_string()
}

async fn fill(address: SocketAddr, options: &Options, nodes: &[String]) -> anyhow::Result<()> {
    let namespaces = options.pods / PODS_OF_NAMESPACE;
    let mut wire = Wire::connect(address).await?;
    for number in 0..namespaces {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("ns-{number}")}});
        wire.send_request("POST", "/api/v1/namespaces", &namespace.to_string()).await?;
    }
    let next = Arc::new(AtomicUsize::new(0));
    let nodes: Arc<[String]> = nodes.into();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let (next, nodes) = (Arc::clone(&next), Arc::clone(&nodes));
        let mut wire = Wire::connect(address).await?;
        clients.spawn(async move {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= namespaces * PODS_OF_NAMESPACE {
                    return anyhow::Ok(());
                }
                wire.send_request("POST", &pod_path(index), &pod(index, &nodes)).await?;
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.context("a client")??;
    }
    Ok(())
}

async fn until_running(address: SocketAddr) -> anyhow::Result<()> {
    let mut wire = Wire::connect(address).await?;
    let ends = Instant::now() + START_MAX;
    loop {
        let waiting = get(&mut wire, "/api/v1/pods?fieldSelector=status.phase%21%3DRunning&limit=1").await?;
        if waiting["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        if Instant::now() > ends {
            bail!("not all pods run after {} s: {}", START_MAX.as_secs(), waiting["items"][0]);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}

/// Response times in milliseconds.
struct ResponseTimes {
    answers: Vec<f64>,
    sweeps: Vec<f64>,
}

impl ResponseTimes {
    fn percentile(&self, percent: usize) -> f64 {
        at(&self.answers, percent)
    }

    fn sweep_ms(&self) -> f64 {
        at(&self.sweeps, 50)
    }
}

fn at(times: &[f64], percent: usize) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Lists one namespace repeatedly while other clients work.
async fn measure_lists(address: SocketAddr, options: &Options, nodes: &[String]) -> anyhow::Result<ResponseTimes> {
    let done = Arc::new(AtomicBool::new(false));
    let churn = tokio::spawn(replace_pods(address, Arc::clone(&done), nodes.to_vec()));
    let sweep = tokio::spawn(sweep(address, Arc::clone(&done)));
    let mut wire = Wire::connect(address).await?;
    let mut answers = Vec::new();
    let ends = Instant::now() + Duration::from_secs(options.seconds);
    while Instant::now() < ends {
        let began = Instant::now();
        // The namespace in which nothing changes, so its list is known.
        let list = get(&mut wire, "/api/v1/namespaces/ns-0/pods").await?;
        answers.push(began.elapsed().as_secs_f64() * 1000.0);
        if list["items"].as_array().map(Vec::len) != Some(PODS_OF_NAMESPACE) {
            bail!("a list of {PODS_OF_NAMESPACE} pods has other contents: {}", list["metadata"]);
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
    done.store(true, Ordering::Relaxed);
    churn.await.context("replacing pods")??;
    let sweeps = sweep.await.context("listing everything")??;
    Ok(ResponseTimes { answers, sweeps })
}

/// Deletes and creates pods in the last namespace.
async fn replace_pods(address: SocketAddr, done: Arc<AtomicBool>, nodes: Vec<String>) -> anyhow::Result<()> {
    let mut wire = Wire::connect(address).await?;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "churn"}});
    wire.send_request("POST", "/api/v1/namespaces", &namespace.to_string()).await?;
    let path = "/api/v1/namespaces/churn/pods";
    let mut index = 0;
    while !done.load(Ordering::Relaxed) {
        wire.send_request("POST", path, &pod(index, &nodes)).await?;
        if index >= PODS_OF_NAMESPACE {
            let old = index - PODS_OF_NAMESPACE;
            wire.send_request("DELETE", &format!("{path}/pod-{old}"), "{\"gracePeriodSeconds\":0}").await?;
        }
        index += 1;
        tokio::time::sleep(REPLACE_EVERY).await;
    }
    Ok(())
}

/// Lists all pods in pages, repeatedly; returns how long each pass took.
async fn sweep(address: SocketAddr, done: Arc<AtomicBool>) -> anyhow::Result<Vec<f64>> {
    let mut wire = Wire::connect(address).await?;
    let mut times = Vec::new();
    while !done.load(Ordering::Relaxed) {
        let began = Instant::now();
        let mut next = String::new();
        loop {
            let list = get(&mut wire, &format!("/api/v1/pods?limit={PAGE}{next}")).await?;
            let Some(token) = list["metadata"]["continue"].as_str().filter(|token| !token.is_empty()) else { break };
            next = format!("&continue={token}");
        }
        times.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    Ok(times)
}
