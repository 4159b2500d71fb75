//! Requests from the same process, without sockets: the cost of the server itself.
//!
//! Watches count lines without parsing them: decoding is a cost of clients. Every count is checked, so that a fast
//! wrong response is an error.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use axum::body::Body;
use futures::StreamExt;
use http_body_util::BodyExt;
use muster_playground::{Server, Settings};

use super::watchers::{Watcher, await_counts};
use super::{Options, load};

const CREATES_PER_SECOND: f64 = 2000.0;
const BINDS_PER_SECOND: f64 = 2000.0;

/// How many requests are in flight at once.
const CLIENTS: usize = 16;

/// Runs this part.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(measure(options))
}

async fn measure(options: &Options) -> anyhow::Result<()> {
    let server = Server::start(Settings { window: 4 * options.pods.max(1000), ..Settings::default() });
    let watchers = open_watchers(&server, options).await?;
    let pods = options.pods;
    let created = timed(&server, pods, load::create).await?;
    let bound = timed(&server, pods, load::bind).await?;
    let events = await_counts(&watchers).await?;
    report(options, created, bound, events)
}

fn report(options: &Options, created: Duration, bound: Duration, events: u64) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "in this process: {}", load::summary(options, events))?;
    for (what, time, target) in [("creates/s", created, CREATES_PER_SECOND), ("binds/s", bound, BINDS_PER_SECOND)] {
        load::rate(&mut out, what, options.pods as f64 / time.as_secs_f64(), target)?;
    }
    Ok(())
}

async fn open_watchers(server: &Server, options: &Options) -> anyhow::Result<Vec<Watcher>> {
    let mut watchers = Vec::new();
    for load::Watched { path, expected } in load::watched(options) {
        let response = send_request(server, "GET", &path, String::new()).await?;
        let lines = Arc::new(AtomicU64::new(0));
        tokio::spawn(count(response.into_body(), Arc::clone(&lines)));
        watchers.push(Watcher { path, events: lines, expected });
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

async fn send_request(server: &Server, method: &str, path: &str, body: String) -> anyhow::Result<http::Response<Body>> {
    let request = http::Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let response = server.answer(request.body(Body::from(body))?).await;
    let code = response.status();
    if !code.is_success() {
        let text = response.into_body().collect().await.context("reading an error")?.to_bytes();
        bail!("{method} {path}: {code}: {}", String::from_utf8_lossy(&text));
    }
    Ok(response)
}

/// How long so many POST requests take, some at once.
async fn timed(server: &Server, count: usize, request: fn(usize) -> (String, String)) -> anyhow::Result<Duration> {
    let requests: Vec<(String, String)> = (0..count).map(request).collect();
    let began = Instant::now();
    let mut under_way = futures::stream::iter(requests)
        .map(|(path, body)| {
            let server = server.clone();
            async move { tokio::spawn(async move { send_request(&server, "POST", &path, body).await.map(drop) }).await }
        })
        .buffer_unordered(CLIENTS);
    while let Some(done) = under_way.next().await {
        done.context("a request")??;
    }
    Ok(began.elapsed())
}
