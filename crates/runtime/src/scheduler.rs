//! The scheduler as a whole: watches, the mind, and the hands, on one client.

use std::sync::Arc;

use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use muster_api::wire::{Node, Pod};
use muster_engine::Engine;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::clock::Clock;
use crate::dialect::{Dialect, MusterPodGroup, MusterWorkload, NativePodGroup};
use crate::fence::Fence;
use crate::gates::FeatureGates;
use crate::hands::{Hands, Reach};
use crate::intake::raw::{Guarded, RawObject};
use crate::intake::{Intake, News};
use crate::mind::{Letter, Mind};
use crate::scribe::Scribe;
use crate::settings::Settings;
use crate::watch::watch;

/// How many letters may wait for the mind before those who write wait too.
const INBOX: usize = 8192;

/// A scheduler at work. Dropping it is a crash: everything stops where it is.
#[derive(Debug)]
pub struct Scheduler {
    inbox: mpsc::Sender<Letter>,
    tasks: JoinSet<()>,
    stop_timeout: std::time::Duration,
}

/// Why a scheduler did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine refused its configuration.
    #[error(transparent)]
    Config(#[from] muster_engine::Refusal),
}

impl Scheduler {
    /// Starts to watch, decide and write on the current tokio runtime. Gives back as soon as everything is under way;
    /// nothing is decided before all watches have delivered their first list.
    pub fn start(client: &kube::Client, settings: &Settings, clock: Clock, fence: Fence) -> Result<Self, StartError> {
        let metrics = &settings.instruments.metrics;
        let dialects = dialects(settings.gates);
        let resources: Vec<_> = dialects.iter().map(|dialect| Arc::new(dialect.resource())).collect();
        let dialect_names: Vec<_> = dialects.iter().map(|dialect| dialect.origin()).collect();
        let (inbox, letters) = mpsc::channel(INBOX);
        let reach =
            Reach { client: client.clone(), fence, timeout: settings.request_timeout, metrics: metrics.clone() };
        let scheduler_name = settings.scheduler_names.first().map_or("muster", String::as_str);
        let mind = Mind {
            engine: Engine::new(settings.engine.clone())?,
            intake: Intake::new(&settings.scheduler_names, settings.gates, dialects),
            scribe: Scribe::new(clock, scheduler_name, &settings.identity, resources.clone()),
            hands: Hands::new(reach, inbox.clone(), settings.binds_in_flight_max, settings.writes_in_flight_max),
            clock,
            check_invariants: settings.check_invariants,
            profile: scheduler_name.to_owned(),
            instruments: settings.instruments.clone(),
            counted: Instant::now(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(mind.think(letters));
        tasks.spawn(watch(
            "nodes",
            Api::<Guarded<Node>>::all(client.clone()),
            inbox.clone(),
            metrics.clone(),
            News::Node,
        ));
        tasks.spawn(watch("pods", Api::<Guarded<Pod>>::all(client.clone()), inbox.clone(), metrics.clone(), News::Pod));
        let classes = Api::<Guarded<PriorityClass>>::all(client.clone());
        tasks.spawn(watch("priorityclasses", classes, inbox.clone(), metrics.clone(), News::Class));
        for (number, resource) in resources.iter().enumerate() {
            let objects = Api::<RawObject>::all_with(client.clone(), resource);
            let news = move |turn| News::Group(number, turn);
            tasks.spawn(watch(dialect_names[number], objects, inbox.clone(), metrics.clone(), news));
        }
        Ok(Self { inbox, tasks, stop_timeout: settings.stop_timeout })
    }

    /// Ends well: no new decisions, what is on its way is waited for, then everything stops.
    pub async fn stop(self) {
        let (answer, stopped) = oneshot::channel();
        let _ = timeout(self.stop_timeout, async {
            if self.inbox.send(Letter::Stop(answer)).await.is_ok() {
                let _ = stopped.await;
            }
        })
        .await;
    }

    /// Ends as in a crash: everything stops where it is.
    pub fn kill(self) {}

    /// Waits until a part of it ends by itself, which only a fault of ours can bring about.
    pub async fn failed(&mut self) {
        let _ = self.tasks.join_next().await;
    }
}

/// The dialects that are read under these gates.
fn dialects(gates: FeatureGates) -> Vec<Box<dyn Dialect>> {
    let mut dialects: Vec<Box<dyn Dialect>> = Vec::new();
    if gates.generic_workload {
        dialects.push(Box::new(MusterWorkload));
        if gates.pod_group {
            dialects.push(Box::new(MusterPodGroup));
        }
        dialects.push(Box::new(NativePodGroup));
    }
    dialects
}
