//! Runs the controllers: watches, reconcile decisions and writes, on one client.
//!
//! Invariants: nothing is reconciled before every cache has synced; pending watch events are applied before the next
//! reconcile; an item is never reconciled twice at the same time.

use std::fmt::Debug;
use std::sync::Arc;

use futures::stream::{FuturesUnordered, SelectAll};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, Resource};
use muster_api::owners::leader_worker_set::labels as replica_labels;
use muster_api::wire::{Job, JobSet, LeaderWorkerSet, Pod};
use muster_reflector::{Delta, Guarded, PAUSE_MAX, Selection, Unreadable, WatchAges};
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::actuator::{Actuator, Deadline};
use crate::settings::Settings;
use crate::state::{ClusterEvent, State, WorkItem};
use crate::work_queue::{Outcome, WorkQueue};
use crate::write::Write;

/// How many items are reconciled concurrently.
const MAX_CONCURRENT_RECONCILES: usize = 16;
/// The label that the Job controller sets on its pods.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";

type Events = SelectAll<futures::stream::BoxStream<'static, ClusterEvent>>;

/// The running controllers. Dropping them aborts all work immediately, like a crash.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts the watches and the writes on the current tokio runtime.
    ///
    /// `ages` shows how old the watches are, `now` is the clock for event timestamps; `deadline` is called before each
    /// write and returns when the request must end.
    pub fn start(
        client: &Client,
        settings: Settings,
        ages: &WatchAges,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        deadline: Deadline,
    ) -> Self {
        let actuator = Actuator::new(client.clone(), settings.identity(), deadline, Arc::new(now));
        let state = State::new(settings);
        let events = watches(client, &state, ages);
        let mut tasks = JoinSet::new();
        tasks.spawn(run(state, events, actuator));
        Self { tasks }
    }

    /// Waits until the controllers end on their own, which only a bug can cause.
    pub async fn failed(&mut self) {
        let _ = self.tasks.join_next().await;
    }
}

/// Watches a kind, or its objects with a label; failures are logged. An object that cannot be parsed counts as gone: a
/// tenant could keep the lists of all others from completing with one.
pub(crate) fn watch_kind<K>(
    what: &str,
    api: Api<Guarded<K>>,
    label: Option<&str>,
    ages: &WatchAges,
) -> impl Stream<Item = Delta<K>> + Send + Unpin + use<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let selection = label.map(Selection::labels).unwrap_or_default();
    let (what, age) = (what.to_owned(), ages.add(what));
    let kind = what.clone();
    let deltas = muster_reflector::watch(api, selection, PAUSE_MAX, age, move |error| {
        tracing::warn!(what, %error, "the watch failed and will be restarted");
    });
    deltas.filter_map(move |delta: Delta<Guarded<K>>| {
        let (delta, unreadable) = delta.readable();
        if let Some(Unreadable { metadata, error }) = unreadable {
            let (namespace, name) = (metadata.namespace.as_deref(), metadata.name.as_deref());
            tracing::warn!(kind, namespace, name, error, "an object cannot be read and counts as gone");
        }
        std::future::ready(delta)
    })
}

/// The watches that these settings need.
fn watches(client: &Client, state: &State, ages: &WatchAges) -> Events {
    let mut events: Events = SelectAll::new();
    let settings = &state.settings;
    let dynamic = |resource: &ApiResource| Api::<Guarded<DynamicObject>>::all_with(client.clone(), resource);
    if settings.has_job_sets() {
        events.push(
            watch_kind("jobsets", Api::<Guarded<JobSet>>::all(client.clone()), None, ages)
                .map(ClusterEvent::JobSet)
                .boxed(),
        );
    }
    if settings.jobs().is_some() {
        events.push(
            watch_kind("jobs", Api::<Guarded<Job>>::all(client.clone()), None, ages).map(ClusterEvent::Job).boxed(),
        );
    }
    if settings.jobs().is_some() || settings.has_job_sets() {
        let pods = Api::<Guarded<Pod>>::all(client.clone());
        events.push(watch_kind("pods of jobs", pods, Some(JOB_NAME_LABEL), ages).map(ClusterEvent::JobPod).boxed());
    }
    for (number, kind) in state.managed_kinds().enumerate() {
        let watch_events = watch_kind(&format!("{}.{}", kind.plural, kind.group), dynamic(kind), None, ages);
        events.push(watch_events.map(move |event| ClusterEvent::Managed(number, event)).boxed());
    }
    if state.provider.is_none() {
        return events;
    }
    let sets = Api::<Guarded<LeaderWorkerSet>>::all(client.clone());
    events.push(watch_kind("leaderworkersets", sets, None, ages).map(ClusterEvent::LeaderWorkerSet).boxed());
    let label = Some(replica_labels::NAME);
    let pods = Api::<Guarded<Pod>>::all(client.clone());
    events.push(watch_kind("pods of leaderworkersets", pods, label, ages).map(ClusterEvent::ReplicaPod).boxed());
    let revisions = ApiResource {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        api_version: "apps/v1".to_owned(),
        kind: "ControllerRevision".to_owned(),
        plural: "controllerrevisions".to_owned(),
    };
    events
        .push(watch_kind("controllerrevisions", dynamic(&revisions), label, ages).map(ClusterEvent::Revision).boxed());
    events
}

async fn run(mut state: State, mut events: impl Stream<Item = ClusterEvent> + Unpin, actuator: Actuator) {
    let mut queue: WorkQueue<WorkItem> = WorkQueue::default();
    let mut in_progress = FuturesUnordered::new();
    loop {
        while state.has_synced() && in_progress.len() < MAX_CONCURRENT_RECONCILES {
            let Some(item) = queue.pop(Instant::now()) else { break };
            let plan = state.reconcile(&item);
            let actuator = actuator.clone();
            in_progress.push(async move {
                // An event changes nothing that would be undone.
                let wrote = plan.writes.iter().any(|write| !matches!(write, Write::Event(_)));
                let done = Outcome::Done { wrote, requeue_after: plan.requeue_after };
                (item, actuator.execute(plan.writes).await.map_or(Outcome::Failed, |()| done))
            });
        }
        let due = queue.next_due().filter(|_| state.has_synced() && in_progress.len() < MAX_CONCURRENT_RECONCILES);
        let wait_for_due = async {
            match due {
                Some(time) => sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            event = events.next() => match event {
                Some(event) => {
                    let now = Instant::now();
                    for item in state.apply(event) {
                        let delay = item.delay();
                        queue.add_at(item, now + delay);
                    }
                }
                None => return,
            },
            Some((item, outcome)) = in_progress.next() => queue.done(item, outcome),
            () = wait_for_due => {}
        }
    }
}
