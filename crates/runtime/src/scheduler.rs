//! The scheduler as a whole: watches, scheduling loop and actuator on one client.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::Api;
use kube::core::ApiResource;
use muster_api::wire::{Node, Pod, PodDisruptionBudget};
use muster_clock::Clock;
use muster_engine::Engine;
use muster_reflector::Guarded;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::actuator::{Actuator, RequestContext};
use crate::dialect::{Dialect, MusterPodGroup, MusterWorkload, SchedulerPlugins, Volcano};
use crate::discovery::native_dialects;
use crate::eviction_queue::EvictionQueue;
use crate::fence::Fence;
use crate::intake::owners::watched;
use crate::intake::raw::RawObject;
use crate::intake::selectors::SelectorKind;
use crate::intake::storage::Storage;
use crate::intake::{Intake, WatchEvent};
use crate::scheduling_loop::{Event, SchedulingLoop};
use crate::settings::{Settings, spreads_by_default};
use crate::status_writer::StatusWriter;
use crate::watch::{Inbox, watch};

/// How many events the inbox holds before senders have to wait.
const INBOX: usize = 8192;

/// A running scheduler. Dropping it is a crash: everything stops where it is.
#[derive(Debug)]
pub struct Scheduler {
    inbox: mpsc::Sender<Event>,
    tasks: JoinSet<()>,
    stop_timeout: std::time::Duration,
}

/// Why a scheduler did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine rejected its configuration.
    #[error(transparent)]
    Config(#[from] muster_engine::ValidationError),
}

impl Scheduler {
    /// Starts to watch, decide and write on the current tokio runtime. Returns at once; nothing is decided before API
    /// discovery is done and all watches have delivered their first list.
    pub fn start(client: &kube::Client, settings: &Settings, clock: Clock, fence: Fence) -> Result<Self, StartError> {
        let engine = Engine::new(settings.engine.clone())?;
        let (inbox, events) = mpsc::channel(INBOX);
        let task = MainTask { client: client.clone(), settings: settings.clone(), clock, fence, inbox: inbox.clone() };
        let mut tasks = JoinSet::new();
        tasks.spawn(task.run(engine, events));
        Ok(Self { inbox, tasks, stop_timeout: settings.stop_timeout })
    }

    /// Shuts down gracefully: makes no new decisions, waits for the requests in flight, then stops.
    pub async fn stop(self) {
        let (answer, stopped) = oneshot::channel();
        let _ = timeout(self.stop_timeout, async {
            if self.inbox.send(Event::Stop(answer)).await.is_ok() {
                let _ = stopped.await;
            }
        })
        .await;
    }

    /// Stops as in a crash: everything ends where it is.
    pub fn kill(self) {}

    /// Waits until one of its tasks ends by itself, which only a bug can cause.
    pub async fn failed(&mut self) {
        let _ = self.tasks.join_next().await;
    }
}

/// Everything that the scheduler's main task needs.
struct MainTask {
    client: kube::Client,
    settings: Settings,
    clock: Clock,
    fence: Fence,
    inbox: mpsc::Sender<Event>,
}

impl MainTask {
    /// Discovers the served group APIs, then runs the watches and the scheduling loop until it is stopped or one of
    /// them ends.
    async fn run(self, engine: Engine, mut events: mpsc::Receiver<Event>) {
        let dialects = tokio::select! {
            dialects = self.dialects() => dialects,
            // There are no other senders yet, and no request is in flight.
            event = events.recv() => {
                if let Some(Event::Stop(answer)) = event {
                    let _ = answer.send(());
                }
                return;
            }
        };
        let resources: Vec<_> = dialects.iter().map(|dialect| Arc::new(dialect.resource())).collect();
        let mut watches = self.watch(&dialects, &resources);
        let scheduling_loop = self.scheduling_loop(engine, dialects, resources);
        tokio::select! {
            () = scheduling_loop.run(events) => {}
            _ = watches.join_next() => {}
        }
    }

    /// The dialects that are read with these feature gates.
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

    /// Starts one watch per kind.
    fn watch(&self, dialects: &[Box<dyn Dialect>], resources: &[Arc<ApiResource>]) -> JoinSet<()> {
        let (client, metrics) = (&self.client, &self.settings.instruments.metrics);
        let inbox = Inbox::new(self.inbox.clone());
        let mut watches = JoinSet::new();
        let nodes = Api::<Guarded<Node>>::all(client.clone());
        watches.spawn(watch("nodes", nodes, inbox.clone(), metrics.clone(), WatchEvent::Node));
        let pods = Api::<Guarded<Pod>>::all(client.clone());
        watches.spawn(watch("pods", pods, inbox.clone(), metrics.clone(), WatchEvent::Pod));
        let classes = Api::<Guarded<PriorityClass>>::all(client.clone());
        watches.spawn(watch("priorityclasses", classes, inbox.clone(), metrics.clone(), WatchEvent::Class));
        let namespaces = Api::<Guarded<Namespace>>::all(client.clone());
        watches.spawn(watch("namespaces", namespaces, inbox.clone(), metrics.clone(), WatchEvent::Namespace));
        let budgets = Api::<Guarded<PodDisruptionBudget>>::all(client.clone());
        watches.spawn(watch("poddisruptionbudgets", budgets, inbox.clone(), metrics.clone(), WatchEvent::Budget));
        let spreads = spreads_by_default(&self.settings.profiles);
        for kind in SelectorKind::ALL.into_iter().filter(|_| spreads) {
            let objects = Api::<RawObject>::all_with(client.clone(), &kind.resource());
            let to_event = move |delta| WatchEvent::Selector(kind, delta);
            watches.spawn(watch(kind.plural(), objects, inbox.clone(), metrics.clone(), to_event));
        }
        for kind in Storage::ALL {
            let objects = Api::<RawObject>::all_with(client.clone(), &kind.resource());
            let to_event = move |delta| WatchEvent::Storage(kind, delta);
            watches.spawn(watch(kind.plural(), objects, inbox.clone(), metrics.clone(), to_event));
        }
        for kind in watched(self.settings.ganged) {
            let objects = Api::<RawObject>::all_with(client.clone(), &kind.resource());
            let to_event = move |delta| WatchEvent::Owner(kind, delta);
            watches.spawn(watch(kind.plural(), objects, inbox.clone(), metrics.clone(), to_event));
        }
        for (number, (dialect, resource)) in dialects.iter().zip(resources).enumerate() {
            let objects = Api::<RawObject>::all_with(client.clone(), resource);
            let to_event = move |delta| WatchEvent::Group(number, delta);
            watches.spawn(watch(dialect.origin(), objects, inbox.clone(), metrics.clone(), to_event));
        }
        watches
    }

    fn scheduling_loop(
        self,
        engine: Engine,
        dialects: Vec<Box<dyn Dialect>>,
        resources: Vec<Arc<ApiResource>>,
    ) -> SchedulingLoop {
        let Self { client, settings, clock, fence, inbox } = self;
        let metrics = settings.instruments.metrics.clone();
        let context =
            RequestContext { client, fence, timeout: settings.request_timeout, eviction: settings.eviction, metrics };
        let scheduler_name = settings.name();
        SchedulingLoop {
            engine,
            intake: Intake::new(
                settings.profiles.clone(),
                settings.startup_taints.clone(),
                settings.gates,
                settings.ganged,
                dialects,
            ),
            status_writer: StatusWriter::new(clock, scheduler_name, &settings.identity, resources),
            actuator: Actuator::new(context, inbox, settings.binds_in_flight_max, settings.writes_in_flight_max),
            eviction_queue: EvictionQueue::default(),
            clock,
            check_invariants: settings.check_invariants,
            profiles: settings.profile_names(),
            instruments: settings.instruments.clone(),
            counted_at: Instant::now(),
        }
    }
}
