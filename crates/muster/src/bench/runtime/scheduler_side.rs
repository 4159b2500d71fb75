//! The scheduler alone, on one thread, on a server at a plain address: what is measured.

use anyhow::Context;
use muster_runtime::{Clock, Fence, Scheduler, Settings};

/// Schedules until it is killed.
pub(crate) fn schedule_for_ever(server: &str) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut config = kube::Config::new(server.parse().context("--scheduler-of")?);
        config.default_retry = false;
        let client = kube::Client::try_from(config)?;
        let mut scheduler = Scheduler::start(&client, &Settings::default(), Clock::real(), Fence::open())?;
        scheduler.failed().await;
        anyhow::bail!("a part of the scheduler has ended by itself")
    })
}
