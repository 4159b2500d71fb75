//! The scheduler on its own thread with its own runtime, so that decisions are made by one thread and wait for nothing
//! else. The controllers that create gangs for Jobs, JobSets and LeaderWorkerSets run on it too: only the leader may
//! write groups.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use muster_api::owners::GangedOwners;
use muster_controllers::Controllers;
use muster_runtime::{Clock, Fence, Scheduler, Settings, native_version};
use tokio::sync::oneshot;

/// A running scheduler.
pub struct Thread {
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<anyhow::Result<()>>,
    /// The result of `ended`, once there is one.
    outcome_taken: bool,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a scheduler with the client that `connect` creates, since a client belongs to the runtime that created
    /// it; whether it could start is reported by [`Thread::ended`].
    pub fn start(
        connect: impl FnOnce() -> anyhow::Result<kube::Client> + Send + 'static,
        settings: Settings,
        clock: Clock,
        fence: Fence,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (outcome, ended) = oneshot::channel();
        let run = move || {
            // The receiver is dropped if the process is about to exit.
            let _ = outcome.send(schedule(connect, &settings, clock, fence, stopped));
        };
        let handle = std::thread::Builder::new().name("scheduler".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), ended, outcome_taken: false, handle: Some(handle) })
    }

    /// Waits until the scheduler ends by itself, which happens only if it cannot continue.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        let outcome = (&mut self.ended).await;
        self.outcome_taken = true;
        outcome.context("the scheduler's thread has panicked")?
    }

    /// Stops it gracefully.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(stop) = self.stop.take() {
            // It may have ended already.
            let _ = stop.send(());
        }
        let outcome = if self.outcome_taken { Ok(()) } else { self.ended().await };
        if let Some(handle) = self.handle.take() {
            // A panic was reported by `ended`.
            let _ = handle.join();
        }
        outcome
    }
}

fn schedule(
    connect: impl FnOnce() -> anyhow::Result<kube::Client>,
    settings: &Settings,
    clock: Clock,
    fence: Fence,
    mut stopped: oneshot::Receiver<()>,
) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect()?;
        let mut controllers = tokio::select! {
            // The cluster may not respond for a long time.
            _ = &mut stopped => return Ok(()),
            controllers = controllers(&client, settings, clock, &fence) => controllers?,
        };
        let mut scheduler = Scheduler::start(&client, settings, clock, fence)?;
        let controllers = async {
            match &mut controllers {
                Some(controllers) => controllers.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            // A dropped sender means stop, too.
            _ = stopped => {
                scheduler.stop().await;
                Ok(())
            }
            () = scheduler.failed() => bail!("a component of the scheduler has ended unexpectedly"),
            () = controllers => bail!("the controllers have ended unexpectedly"),
        }
    })
}

/// The controllers, if they are needed.
async fn controllers(
    client: &kube::Client,
    settings: &Settings,
    clock: Clock,
    fence: &Fence,
) -> anyhow::Result<Option<Controllers>> {
    if settings.ganged == GangedOwners::default() {
        return Ok(None);
    }
    let fence = fence.clone();
    let deadline = Arc::new(move |wanted| fence.deadline(wanted));
    let own = controllers_settings(client, settings).await?;
    let ages = settings.instruments.metrics.watch_ages();
    Ok(Some(Controllers::start(client, own, ages, move || clock.now(), deadline)))
}

/// The settings of controllers and webhook that follow from the scheduler's settings and the cluster.
pub(crate) async fn controllers_settings(
    client: &kube::Client,
    settings: &Settings,
) -> anyhow::Result<muster_controllers::Settings> {
    let native = if settings.ganged.are_native() {
        native_version(client, settings.request_timeout, &settings.instruments).await
    } else {
        None
    };
    let names = settings.scheduler_names().map(str::to_owned).collect();
    Ok(muster_controllers::Settings::new(names, settings.identity.clone(), settings.ganged, native)?)
}
