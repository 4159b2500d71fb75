//! Requests from many clients over loopback HTTP to a server in its own process.
//!
//! Clients and server share the machine; their CPU times are measured separately.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::watchers::{Watcher, await_counts};
use super::{Options, Wire, load};
use crate::bench::process::{Process, cpu_seconds};

const CREATES_PER_SECOND: f64 = 1000.0;
const BINDS_PER_SECOND: f64 = 2000.0;

/// Runs this part, in memory and with a state folder.
pub(super) fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(measure(options, None))?;
    let folder = Folder(std::env::temp_dir().join(format!("muster-bench-{}", std::process::id())));
    runtime.block_on(measure(options, Some(&folder)))
}

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover temporary folder does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn measure(options: &Options, state: Option<&Folder>) -> anyhow::Result<()> {
    let folder = state.map(|folder| folder.0.display().to_string());
    let mut arguments = vec!["bench", "serve"];
    if let Some(folder) = &folder {
        arguments.extend(["--state", folder]);
    }
    let (server, address) = Process::serve(&arguments)?;
    let watchers = open_watchers(address, options).await?;
    let mut out = std::io::stdout().lock();
    let place = if state.is_some() { "with a state folder" } else { "in memory" };
    let mut lines = Vec::new();
    for (what, request, target) in
        [("creates/s", load::create as fn(usize) -> _, CREATES_PER_SECOND), ("binds/s", load::bind, BINDS_PER_SECOND)]
    {
        let cpu = || Some((cpu_seconds(server.id())?, cpu_seconds(std::process::id())?));
        let before = cpu().context("reading CPU times")?;
        let time = timed(address, options, request).await?;
        let after = cpu().context("reading CPU times")?;
        let rate = options.pods as f64 / time.as_secs_f64();
        load::rate(&mut lines, what, rate, target)?;
        let each = |seconds: f64| seconds * 1e6 / options.pods as f64;
        let (server, client) = (each(after.0 - before.0), each(after.1 - before.1));
        writeln!(lines, "           CPU time of each: server {server:.0} us, clients and watchers {client:.0} us")?;
    }
    let events = await_counts(&watchers).await?;
    let memory = server.usage()?.rss_mib_peak;
    writeln!(out, "over HTTP, {place}, {} clients: {}", options.clients, load::summary(options, events))?;
    out.write_all(&lines)?;
    writeln!(out, "           memory of the server at its peak: {memory:.0} MiB")?;
    Ok(())
}

async fn open_watchers(address: SocketAddr, options: &Options) -> anyhow::Result<Vec<Watcher>> {
    let mut watchers = Vec::new();
    for load::Watched { path, expected } in load::watched(options) {
        let (events, opened) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()));
        let wire = Wire::connect(address).await?;
        tokio::spawn({
            let (path, events, opened) = (path.clone(), Arc::clone(&events), Arc::clone(&opened));
            // A watch that ends too early has a wrong count, which is detected at the end.
            async move { wire.count_events(&path, || opened.notify_one(), &events).await }
        });
        opened.notified().await;
        watchers.push(Watcher { path, events, expected });
    }
    Ok(watchers)
}

/// How long all requests take, one in flight per client.
async fn timed(
    address: SocketAddr,
    options: &Options,
    request: fn(usize) -> (String, String),
) -> anyhow::Result<Duration> {
    let requests: Arc<Vec<(String, String)>> = Arc::new((0..options.pods).map(request).collect());
    let next = Arc::new(AtomicUsize::new(0));
    let mut wires = Vec::new();
    for _ in 0..options.clients {
        wires.push(Wire::connect(address).await?);
    }
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for mut wire in wires {
        let (requests, next) = (Arc::clone(&requests), Arc::clone(&next));
        clients.spawn(async move {
            while let Some((path, body)) = requests.get(next.fetch_add(1, Ordering::Relaxed)) {
                wire.send_request("POST", path, body).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = clients.join_next().await {
        done.context("a client")??;
    }
    Ok(began.elapsed())
}
