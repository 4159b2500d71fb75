//! The scheduler in a thread of its own, with a runtime of its own: decisions are made by one thread and wait for
//! nobody. The controllers that make gangs of Jobs, JobSets and LeaderWorkerSets live beside it: who may schedule may
//! also write groups.

use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context as _, bail};
use muster_api::makers::GangedOwners;
use muster_controllers::Controllers;
use muster_runtime::{Clock, Fence, Scheduler, Settings, native_version};
use tokio::sync::oneshot;

/// A running scheduler.
pub struct Thread {
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<anyhow::Result<()>>,
    /// What `ended` gave, once it gave something.
    outcome_taken: bool,
    handle: Option<JoinHandle<()>>,
}

impl Thread {
    /// Starts a scheduler on the client that `connect` makes, since a client belongs to the runtime that made it; whether
    /// it could start is told by [`Thread::ended`].
    pub fn start(
        connect: impl FnOnce() -> anyhow::Result<kube::Client> + Send + 'static,
        settings: Settings,
        clock: Clock,
        fence: Fence,
    ) -> anyhow::Result<Self> {
        let (stop, stopped) = oneshot::channel();
        let (tell, ended) = oneshot::channel();
        let run = move || {
            // Nobody listens any more if the process is about to end.
            let _ = tell.send(schedule(connect, &settings, clock, fence, stopped));
        };
        let handle = std::thread::Builder::new().name("scheduler".to_owned()).spawn(run)?;
        Ok(Self { stop: Some(stop), ended, outcome_taken: false, handle: Some(handle) })
    }

    /// Waits until the scheduler ends by itself, which it only does if it cannot go on.
    pub async fn ended(&mut self) -> anyhow::Result<()> {
        let outcome = (&mut self.ended).await;
        self.outcome_taken = true;
        outcome.context("the scheduler's thread has panicked")?
    }

    /// Ends it well.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if let Some(stop) = self.stop.take() {
            // It may have ended already.
            let _ = stop.send(());
        }
        let outcome = if self.outcome_taken { Ok(()) } else { self.ended().await };
        if let Some(handle) = self.handle.take() {
            // A panic was told by `ended`.
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
            // The cluster may not answer for long.
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
            // A sender that is gone asks for an end too.
            _ = stopped => {
                scheduler.stop().await;
                Ok(())
            }
            () = scheduler.failed() => bail!("a part of the scheduler has ended by itself"),
            () = controllers => bail!("the controllers have ended by themselves"),
        }
    })
}

/// The controllers, if there is anything for them to do.
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
    Ok(Some(Controllers::start(client, own, move || clock.now(), deadline)))
}

/// What the controllers and the webhook have to know of the scheduler's settings and of the cluster.
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
