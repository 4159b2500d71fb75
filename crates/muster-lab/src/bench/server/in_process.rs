//! Requests from the same process, without sockets: what the server itself costs.
//!
//! Watchers read and count lines without parsing them: what clients make of an event is not the server's cost.
//! Every watcher's count is checked, so that a fast wrong answer is an error.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use axum::body::Body;
use futures::StreamExt;
use http_body_util::BodyExt;
use muster_playground::{Server, Settings};

use super::watchers::{Watcher, settle};
use super::{Options, load};

const CREATES_PER_SECOND: f64 = 2000.0;
const BINDS_PER_SECOND: f64 = 2000.0;

/// How many requests are under way at once.
const CLIENTS: usize = 16;

/// Runs the part.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(options))
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let server = Server::start(Settings { window: 4 * options.pods.max(1000), ..Settings::default() });
    let watchers = open_watchers(&server, options).await?;
    let pods = options.pods;
    let created = timed(&server, pods, load::create).await?;
    let bound = timed(&server, pods, load::bind).await?;
    let told = settle(&watchers).await?;
    report(options, created, bound, told)
}

fn report(options: &Options, created: Duration, bound: Duration, told: u64) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "in this process: {}", load::told(options, told))?;
    for (what, time, target) in [("creates/s", created, CREATES_PER_SECOND), ("binds/s", bound, BINDS_PER_SECOND)] {
        load::rate(&mut out, what, options.pods as f64 / time.as_secs_f64(), target)?;
    }
    Ok(())
}

async fn open_watchers(server: &Server, options: &Options) -> anyhow::Result<Vec<Watcher>> {
    let mut watchers = Vec::new();
    for load::Watched { path, wanted } in load::watched(options) {
        let response = ask(server, "GET", &path, String::new()).await?;
        let lines = Arc::new(AtomicU64::new(0));
        tokio::spawn(count(response.into_body(), Arc::clone(&lines)));
        watchers.push(Watcher { path, events: lines, wanted });
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
async fn timed(server: &Server, count: usize, request: fn(usize) -> (String, String)) -> anyhow::Result<Duration> {
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
