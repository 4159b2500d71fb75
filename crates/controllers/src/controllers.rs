//! The controllers as a whole: watches, decisions and writes, on one client.
//!
//! Invariants: nothing is decided before every watch has shown its first list; what has come in is seen before anything
//! is decided; nobody is looked after twice at once.

use std::sync::Arc;

use futures::stream::{FuturesUnordered, SelectAll};
use futures::{Stream, StreamExt};
use jiff::Timestamp;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use muster_api::makers::leader_worker_set::labels as replica_labels;
use muster_api::wire::{Job, JobSet, LeaderWorkerSet, Pod};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::hands::{Deadline, Hands};
use crate::mirror::watch;
use crate::queue::Queue;
use crate::settings::Settings;
use crate::world::{News, Subject, World};

/// How many subjects are looked after at once.
const AT_ONCE_MAX: usize = 16;
/// The label of pods of Jobs.
const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";

type Events = SelectAll<futures::stream::BoxStream<'static, News>>;

/// The controllers at work. Dropping them is a crash: everything stops where it is.
#[derive(Debug)]
pub struct Controllers {
    tasks: JoinSet<()>,
}

impl Controllers {
    /// Starts to watch and write on the current tokio runtime.
    ///
    /// `now` is the date for events; `deadline` says until when a request may last, and is asked before each write.
    pub fn start(
        client: &Client,
        settings: Settings,
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        deadline: Deadline,
    ) -> Self {
        let hands = Hands::new(client.clone(), settings.identity(), deadline, Arc::new(now));
        let world = World::new(settings);
        let events = watches(client, &world);
        let mut tasks = JoinSet::new();
        tasks.spawn(run(world, events, hands));
        Self { tasks }
    }

    /// Waits until they end by themselves, which only a fault of ours can bring about.
    pub async fn failed(&mut self) {
        let _ = self.tasks.join_next().await;
    }
}

/// The watches of all that matters under these settings.
fn watches(client: &Client, world: &World) -> Events {
    let mut events: Events = SelectAll::new();
    let settings = &world.settings;
    let dynamic = |resource: &ApiResource| Api::<DynamicObject>::all_with(client.clone(), resource);
    if settings.has_job_sets() {
        events.push(watch("jobsets", Api::<JobSet>::all(client.clone()), None).map(News::JobSet).boxed());
    }
    if settings.jobs().is_some() {
        events.push(watch("jobs", Api::<Job>::all(client.clone()), None).map(News::Job).boxed());
    }
    if settings.jobs().is_some() || settings.has_job_sets() {
        let pods = Api::<Pod>::all(client.clone());
        events.push(watch("pods of jobs", pods, Some(JOB_NAME_LABEL)).map(News::JobPod).boxed());
    }
    for (number, kind) in world.written_kinds().enumerate() {
        let turns = watch("what is written", dynamic(kind), None);
        events.push(turns.map(move |turn| News::Written(number, turn)).boxed());
    }
    if world.provider.is_none() {
        return events;
    }
    let sets = Api::<LeaderWorkerSet>::all(client.clone());
    events.push(watch("leaderworkersets", sets, None).map(News::LeaderWorkerSet).boxed());
    let label = Some(replica_labels::NAME);
    let pods = Api::<Pod>::all(client.clone());
    events.push(watch("pods of leaderworkersets", pods, label).map(News::ReplicaPod).boxed());
    let revisions = ApiResource {
        group: "apps".to_owned(),
        version: "v1".to_owned(),
        api_version: "apps/v1".to_owned(),
        kind: "ControllerRevision".to_owned(),
        plural: "controllerrevisions".to_owned(),
    };
    events.push(watch("controllerrevisions", dynamic(&revisions), label).map(News::Revision).boxed());
    events
}

async fn run(mut world: World, mut events: impl Stream<Item = News> + Unpin, hands: Hands) {
    let mut queue: Queue<Subject> = Queue::default();
    let mut at_work = FuturesUnordered::new();
    loop {
        while world.is_complete() && at_work.len() < AT_ONCE_MAX {
            let Some(subject) = queue.pop(Instant::now()) else { break };
            let plan = world.plan(&subject);
            let hands = hands.clone();
            at_work.push(async move {
                let outcome = hands.carry_out(plan.writes).await;
                (subject, outcome.map(|()| plan.again).map_err(drop))
            });
        }
        let due = queue.next_due().filter(|_| world.is_complete() && at_work.len() < AT_ONCE_MAX);
        let turn = async {
            match due {
                Some(time) => sleep_until(time).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            news = events.next() => match news {
                Some(news) => {
                    let now = Instant::now();
                    for subject in world.take(news) {
                        queue.at(subject, now);
                    }
                }
                None => return,
            },
            Some((subject, outcome)) = at_work.next() => queue.done(subject, outcome),
            () = turn => {}
        }
    }
}
