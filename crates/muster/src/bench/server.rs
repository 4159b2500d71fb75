//! `muster bench server`: how many creates and binds the in-process API server takes while a hundred watchers listen.
//!
//! Watchers read and count lines without parsing them: what clients make of an event is not the server's cost.
//! Every watcher's count is checked, so that a fast wrong answer is an error.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use axum::body::Body;
use clap::Args;
use futures::StreamExt;
use http_body_util::BodyExt;
use muster_playground::{Server, Settings};
use serde_json::json;

/// How much to do.
#[derive(Args)]
pub(crate) struct Options {
    /// How many pods to create and to bind.
    #[arg(long, default_value_t = 20_000)]
    pods: usize,
    /// How many watchers see every pod.
    #[arg(long, default_value_t = 5)]
    full: usize,
    /// How many watchers see only pods of one label, or of one node.
    #[arg(long, default_value_t = 95)]
    selective: usize,
}

const CREATES_PER_SECOND: f64 = 2000.0;
const BINDS_PER_SECOND: f64 = 2000.0;
/// How many requests are under way at once.
const CLIENTS: usize = 16;
const SETTLE_MAX: Duration = Duration::from_secs(60);
const GROUPS: usize = 50;

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.pods == 0 {
        bail!("--pods 0: there is nothing to measure");
    }
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(options))
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let server = Server::start(Settings { window: 4 * options.pods.max(1000), ..Settings::default() });
    let watchers = open_watchers(&server, options).await?;
    let pods = options.pods;
    let created = timed(&server, pods, |index| {
        let group = index % GROUPS;
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": format!("pod-{index}"), "labels": {"group": format!("g{group}"), "app": "bench"}},
            "spec": {"schedulerName": "muster", "containers": [{
                "name": "main", "image": "registry.example/train:1", "command": ["sleep", "60"],
                "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"nvidia.com/gpu": "1"}},
            }]},
        });
        ("/api/v1/namespaces/default/pods".to_owned(), pod.to_string())
    })
    .await?;
    let bound = timed(&server, pods, |index| {
        let node = format!("node-{}", index % GROUPS);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": format!("pod-{index}")},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        (format!("/api/v1/namespaces/default/pods/pod-{index}/binding"), binding.to_string())
    })
    .await?;
    let told = settle(&watchers).await?;
    report(options, created, bound, told)
}

fn report(options: &Options, created: Duration, bound: Duration, told: u64) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let rate = |time: Duration| options.pods as f64 / time.as_secs_f64();
    let watchers = options.full + options.selective;
    writeln!(
        out,
        "{} pods, {watchers} watchers ({} see all), {told} events told, none missed or repeated",
        options.pods, options.full
    )?;
    for (what, time, target) in [("creates/s", created, CREATES_PER_SECOND), ("binds/s", bound, BINDS_PER_SECOND)] {
        let met = if rate(time) >= target { "met" } else { "MISSED" };
        writeln!(out, "{what:>10} {:>8.0}   target {target:.0}: {met}", rate(time))?;
    }
    Ok(())
}

/// A watcher's count, and what it must come to.
struct Watcher {
    path: String,
    lines: Arc<AtomicU64>,
    wanted: u64,
}

async fn open_watchers(server: &Server, options: &Options) -> anyhow::Result<Vec<Watcher>> {
    let base = "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=0&timeoutSeconds=3600";
    let of_group = |group: usize| (options.pods + GROUPS - 1 - group) / GROUPS;
    let mut watchers = Vec::new();
    for index in 0..options.full + options.selective {
        let group = index % GROUPS;
        // A full watcher sees a pod come and change; one by label too; one by node sees it come when it is bound.
        let (path, wanted) = if index < options.full {
            (base.to_owned(), 2 * options.pods)
        } else if index % 2 == 0 {
            (format!("{base}&labelSelector=group%3Dg{group}"), 2 * of_group(group))
        } else {
            (format!("{base}&fieldSelector=spec.nodeName%3Dnode-{group}"), of_group(group))
        };
        let response = ask(server, "GET", &path, String::new()).await?;
        let lines = Arc::new(AtomicU64::new(0));
        tokio::spawn(count(response.into_body(), Arc::clone(&lines)));
        watchers.push(Watcher { path, lines, wanted: wanted as u64 });
    }
    Ok(watchers)
}

async fn count(body: Body, lines: Arc<AtomicU64>) {
    let mut stream = body.into_data_stream();
    while let Some(Ok(chunk)) = stream.next().await {
        let found = chunk.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"type\":\"")).count();
        let bookmarks =
            chunk.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{\"type\":\"BOOKMARK")).count();
        lines.fetch_add((found - bookmarks) as u64, Ordering::Relaxed);
    }
}

async fn ask(server: &Server, method: &str, path: &str, body: String) -> anyhow::Result<http::Response<Body>> {
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let response = server.answer(request.body(Body::from(body))?).await;
    let code = response.status();
    if !code.is_success() {
        let text = response.into_body().collect().await.context("reading a refusal")?.to_bytes();
        bail!("{method} {path}: {code}: {}", String::from_utf8_lossy(&text));
    }
    Ok(response)
}

/// How long so many posts take, some at once.
async fn timed(server: &Server, count: usize, request: impl Fn(usize) -> (String, String)) -> anyhow::Result<Duration> {
    let requests: Vec<(String, String)> = (0..count).map(request).collect();
    let began = Instant::now();
    let mut under_way = futures::stream::iter(requests)
        .map(|(path, body)| {
            let server = server.clone();
            async move { tokio::spawn(async move { ask(&server, "POST", &path, body).await.map(drop) }).await }
        })
        .buffer_unordered(CLIENTS);
    while let Some(done) = under_way.next().await {
        done.context("a request")??;
    }
    Ok(began.elapsed())
}

/// Waits until every watcher has seen what it must, and not more.
async fn settle(watchers: &[Watcher]) -> anyhow::Result<u64> {
    let ends = Instant::now() + SETTLE_MAX;
    let seen = |watcher: &Watcher| watcher.lines.load(Ordering::Relaxed);
    while watchers.iter().any(|watcher| seen(watcher) < watcher.wanted) && Instant::now() < ends {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for watcher in watchers {
        if seen(watcher) != watcher.wanted {
            bail!("{}: {} events told, {} happened", watcher.path, seen(watcher), watcher.wanted);
        }
    }
    Ok(watchers.iter().map(seen).sum())
}
