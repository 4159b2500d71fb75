//! The scheduler as a whole: watches, the mind, and the hands, on one client.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::core::ApiResource;
use muster_api::wire::{Node, Pod, PodDisruptionBudget};
use muster_engine::Engine;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::clock::Clock;
use crate::dialect::{Dialect, MusterPodGroup, MusterWorkload, SchedulerPlugins, Volcano};
use crate::discovery::native_dialects;
use crate::fence::Fence;
use crate::hands::{Hands, Reach};
use crate::intake::owners::watched;
use crate::intake::raw::{Guarded, RawObject};
use crate::intake::selectors::Selecting;
use crate::intake::storage::Storage;
use crate::intake::{Intake, News};
use crate::mind::{Letter, Mind};
use crate::orders::Orders;
use crate::scribe::Scribe;
use crate::settings::{Settings, spreads_by_default};
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
    /// nothing is decided before it is known what the cluster serves and all watches have delivered their first list.
    pub fn start(client: &kube::Client, settings: &Settings, clock: Clock, fence: Fence) -> Result<Self, StartError> {
        let engine = Engine::new(settings.engine.clone())?;
        let (inbox, letters) = mpsc::channel(INBOX);
        let job = Job { client: client.clone(), settings: settings.clone(), clock, fence, inbox: inbox.clone() };
        let mut tasks = JoinSet::new();
        tasks.spawn(job.run(engine, letters));
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

/// What a scheduler needs for its work.
struct Job {
    client: kube::Client,
    settings: Settings,
    clock: Clock,
    fence: Fence,
    inbox: mpsc::Sender<Letter>,
}

impl Job {
    /// Finds out what the cluster serves, then thinks and watches until it is told to stop or a part of it ends.
    async fn run(self, engine: Engine, mut letters: mpsc::Receiver<Letter>) {
        let dialects = tokio::select! {
            dialects = self.dialects() => dialects,
            // Nobody else writes yet, and nothing is on its way.
            letter = letters.recv() => {
                if let Some(Letter::Stop(answer)) = letter {
                    let _ = answer.send(());
                }
                return;
            }
        };
        let resources: Vec<_> = dialects.iter().map(|dialect| Arc::new(dialect.resource())).collect();
        let mut watches = self.watch(&dialects, &resources);
        let mind = self.mind(engine, dialects, resources);
        tokio::select! {
            () = mind.think(letters) => {}
            _ = watches.join_next() => {}
        }
    }

    /// The dialects that are read under these gates.
    async fn dialects(&self) -> Vec<Box<dyn Dialect>> {
        let Settings { gates, request_timeout, instruments, .. } = &self.settings;
        let mut dialects: Vec<Box<dyn Dialect>> = Vec::new();
        if gates.generic_workload {
            dialects.push(Box::new(MusterWorkload));
            if gates.pod_group {
                dialects.push(Box::new(MusterPodGroup));
            }
            dialects.push(Box::new(SchedulerPlugins));
            dialects.push(Box::new(Volcano));
            dialects.extend(native_dialects(&self.client, *request_timeout, instruments).await);
        }
        dialects
    }

    /// Starts a watch of every kind.
    fn watch(&self, dialects: &[Box<dyn Dialect>], resources: &[Arc<ApiResource>]) -> JoinSet<()> {
        let (client, inbox, metrics) = (&self.client, &self.inbox, &self.settings.instruments.metrics);
        let mut watches = JoinSet::new();
        let nodes = Api::<Guarded<Node>>::all(client.clone());
        watches.spawn(watch("nodes", nodes, inbox.clone(), metrics.clone(), News::Node));
        let pods = Api::<Guarded<Pod>>::all(client.clone());
        watches.spawn(watch("pods", pods, inbox.clone(), metrics.clone(), News::Pod));
        let classes = Api::<Guarded<PriorityClass>>::all(client.clone());
        watches.spawn(watch("priorityclasses", classes, inbox.clone(), metrics.clone(), News::Class));
        let namespaces = Api::<Guarded<Namespace>>::all(client.clone());
        watches.spawn(watch("namespaces", namespaces, inbox.clone(), metrics.clone(), News::Namespace));
        let budgets = Api::<Guarded<PodDisruptionBudget>>::all(client.clone());
        watches.spawn(watch("poddisruptionbudgets", budgets, inbox.clone(), metrics.clone(), News::Budget));
        let spreads = spreads_by_default(&self.settings.profiles);
        for kind in Selecting::ALL.into_iter().filter(|_| spreads) {
            let objects = Api::<RawObject>::all_with(client.clone(), &kind.resource());
            let news = move |turn| News::Selector(kind, turn);
            watches.spawn(watch(kind.plural(), objects, inbox.clone(), metrics.clone(), news));
        }
        for kind in Storage::ALL {
            let objects = Api::<RawObject>::all_with(client.clone(), &kind.resource());
            let news = move |turn| News::Storage(kind, turn);
            watches.spawn(watch(kind.plural(), objects, inbox.clone(), metrics.clone(), news));
        }
        for kind in watched(self.settings.ganged) {
            let objects = Api::<RawObject>::all_with(client.clone(), &kind.resource());
            let news = move |turn| News::Owner(kind, turn);
            watches.spawn(watch(kind.plural(), objects, inbox.clone(), metrics.clone(), news));
        }
        for (number, (dialect, resource)) in dialects.iter().zip(resources).enumerate() {
            let objects = Api::<RawObject>::all_with(client.clone(), resource);
            let news = move |turn| News::Group(number, turn);
            watches.spawn(watch(dialect.origin(), objects, inbox.clone(), metrics.clone(), news));
        }
        watches
    }

    fn mind(self, engine: Engine, dialects: Vec<Box<dyn Dialect>>, resources: Vec<Arc<ApiResource>>) -> Mind {
        let Self { client, settings, clock, fence, inbox } = self;
        let metrics = settings.instruments.metrics.clone();
        let reach = Reach { client, fence, timeout: settings.request_timeout, eviction: settings.eviction, metrics };
        let scheduler_name = settings.name();
        Mind {
            engine,
            intake: Intake::new(
                settings.profiles.clone(),
                settings.startup_taints.clone(),
                settings.gates,
                settings.ganged,
                dialects,
            ),
            scribe: Scribe::new(clock, scheduler_name, &settings.identity, resources),
            hands: Hands::new(reach, inbox, settings.binds_in_flight_max, settings.writes_in_flight_max),
            orders: Orders::default(),
            clock,
            check_invariants: settings.check_invariants,
            profiles: settings.profile_names(),
            instruments: settings.instruments.clone(),
            counted: Instant::now(),
        }
    }
}
