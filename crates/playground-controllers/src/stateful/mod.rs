//! A controller of StatefulSets in small: one pod for each number, in order, with its claims.
//!
//! Invariant: there is one pod of a number at a time, and nothing is decided for a set before the watches have shown what
//! was done for it. `plan` decides, this file and `deeds` do it. Pods of a LeaderWorkerSet get at their making what its
//! webhook gives them on a real cluster (`leader_worker::pod_rule`), since the playground has no webhooks.
//! It must not know who places or runs pods.

mod claims;
mod deeds;
mod plan;
mod pods;
mod status;

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{Api, DeleteParams, ListParams};
use kube::runtime::watcher;
use kube::{Client, Resource, ResourceExt};
use muster_determinism::clock::Clock;
use muster_playground_client::mirror::{Key, Mirror, key_of, watch};
use muster_playground_client::refusal::{is_conflict, is_not_found};
use muster_playground_client::task::Task;

use super::owners::{self, Claim, controller_of, is_controlled_by, selector_of};
use super::pod_card::{PodCard, label};
use super::reconcile::{Controller, Queue, run};
use super::recorder::{Recorder, Tone};
use super::revisions::{self, Draft};
use super::set_pods::SetPods;
use super::unseen::Unseen;

pub(crate) use pods::split_name;

/// Which template a pod was made from.
const REVISION_LABEL: &str = "controller-revision-hash";

/// Keeps the sets until it is dropped.
#[derive(Debug)]
pub struct StatefulSets {
    pub(super) task: Task,
}

impl StatefulSets {
    /// Starts the client. Needs a tokio runtime.
    pub fn start(client: Client, clock: Clock) -> Self {
        let everything = watcher::Config::default;
        let events = stream::select_all([
            watch(Api::<StatefulSet>::all(client.clone()), everything()).map(Event::Set).boxed(),
            watch(Api::<PodCard>::all(client.clone()), everything()).map(Event::Pod).boxed(),
            watch(Api::<PersistentVolumeClaim>::all(client.clone()), everything()).map(Event::Claim).boxed(),
            watch(Api::<ControllerRevision>::all(client.clone()), everything()).map(Event::Revision).boxed(),
        ]);
        let recorder = Recorder::new(client.clone(), clock, "statefulset-controller");
        let keeper = Keeper {
            client,
            clock,
            recorder,
            sets: Mirror::default(),
            pods: SetPods::new("StatefulSet"),
            claims: Mirror::default(),
            revisions: Mirror::default(),
            unseen: UnseenKinds::default(),
        };
        Self { task: Task::start("stateful set controller", run(keeper, events)) }
    }
}

#[allow(clippy::large_enum_variant)] // there is one at a time
enum Event {
    Set(watcher::Event<StatefulSet>),
    Pod(watcher::Event<PodCard>),
    Claim(watcher::Event<PersistentVolumeClaim>),
    Revision(watcher::Event<ControllerRevision>),
}

/// What was written for sets, by kind.
#[derive(Default)]
struct UnseenKinds {
    pods: Unseen,
    claims: Unseen,
    revisions: Unseen,
}

struct Keeper {
    client: Client,
    clock: Clock,
    recorder: Recorder,
    sets: Mirror<StatefulSet>,
    pods: SetPods,
    claims: Mirror<PersistentVolumeClaim>,
    revisions: Mirror<ControllerRevision>,
    unseen: UnseenKinds,
}

impl Controller for Keeper {
    type Event = Event;

    fn observe(&mut self, event: Event, queue: &mut Queue) {
        match event {
            Event::Set(event) => {
                let changes = self.sets.take(event).into_iter();
                changes.filter_map(|change| change.new.or(change.old)).for_each(|set| queue.soon(key_of(&*set)));
            }
            Event::Pod(event) => {
                self.unseen.pods.see(&event, queue);
                for change in self.pods.take(event) {
                    for pod in [change.old, change.new].into_iter().flatten() {
                        concern(&pod, queue);
                    }
                }
            }
            Event::Claim(event) => {
                self.unseen.claims.see(&event, queue);
                for change in self.claims.take(event) {
                    let Some(claim) = change.new.or(change.old) else { continue };
                    let namespace = claim.namespace().unwrap_or_default();
                    let users = self.sets.within(&namespace).filter(|set| claims::is_of(set, &claim));
                    users.for_each(|set| queue.soon(key_of(&**set)));
                }
            }
            Event::Revision(event) => {
                self.unseen.revisions.see(&event, queue);
                for change in self.revisions.take(event) {
                    let Some(revision) = change.new.or(change.old) else { continue };
                    let owner = controller_of(&*revision).filter(|owner| owner.kind == "StatefulSet");
                    if let Some(owner) = owner {
                        queue.soon((revision.namespace().unwrap_or_default(), owner.name.clone()));
                    }
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        self.sets.is_complete() && self.pods.is_complete() && self.claims.is_complete() && self.revisions.is_complete()
    }

    async fn reconcile(&mut self, key: &Key) -> Result<Option<Duration>, kube::Error> {
        let Some(set) = self.sets.get(key).cloned() else {
            self.unseen.pods.forget(key);
            self.unseen.claims.forget(key);
            self.unseen.revisions.forget(key);
            return Ok(None);
        };
        if set.metadata.deletion_timestamp.is_some() {
            // What it has goes by garbage collection; a revision that is made now would be collected and made again for ever.
            return Ok(None);
        }
        if self.unseen.pods.is_in_doubt(key) {
            self.look(key, &set).await?;
        }
        let is_settled = self.unseen.pods.is_settled(key, self.pods.view())
            && self.unseen.claims.is_settled(key, &self.claims)
            && self.unseen.revisions.is_settled(key, &self.revisions);
        if !is_settled {
            return Ok(None);
        }
        match Box::pin(self.tend(key, &set)).await {
            Err(error) => {
                if owners::is_doubtful(&error) {
                    self.unseen.pods.doubt(key);
                }
                Err(error)
            }
            done => done,
        }
    }
}

/// The templates of a set.
struct Templates {
    /// What pods have that were not updated yet.
    current: ControllerRevision,
    /// What the set says now.
    update: ControllerRevision,
    collisions: i32,
}

impl Keeper {
    /// Asks the server what has become of writes whose answers were lost.
    async fn look(&mut self, key: &Key, set: &StatefulSet) -> Result<(), kube::Error> {
        let pods: Api<PodCard> = Api::namespaced(self.client.clone(), &key.0);
        let mut live = pods.list(&ListParams::default()).await?.items;
        live.retain(|pod| is_controlled_by(pod, set));
        self.unseen.pods.compare(key, &live, self.pods.of(set).map(|pod| &**pod));
        Ok(())
    }

    /// Looks after a set whose view is up to date.
    async fn tend(&mut self, key: &Key, set: &StatefulSet) -> Result<Option<Duration>, kube::Error> {
        let pods = self.claimed(key, set).await?;
        let owned = self.revisions.within(&key.0).filter(|one| is_controlled_by(&***one, set));
        let revisions = revisions::sorted(owned.map(|one| (**one).clone()).collect());
        let templates = self.templates(key, set, &revisions).await?;
        let now = self.clock.now();
        let plan = plan::decide(&plan::View { set, pods: &pods, templates: &templates, claims: &self.claims }, now);
        let failure = self.act(key, set, &templates, plan.deeds).await.err();
        let told = self.tell(key, set, plan.status).await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        told?;
        self.truncate(key, set, &pods, &revisions, &templates).await?;
        Ok(plan.look_again.map(|time| Duration::try_from(time.duration_since(now)).unwrap_or_default()))
    }

    /// The pods of a set, after it took in and let go of what it should.
    async fn claimed(&mut self, key: &Key, set: &StatefulSet) -> Result<Vec<Arc<PodCard>>, kube::Error> {
        let selector = selector_of(&set.spec.selector);
        let judged = self.pods.of(set).chain(self.pods.of_nobody(&key.0)).map(|pod| {
            let is_member = split_name(&pod.name_any()).is_some_and(|(name, _)| name == key.1);
            let claim = match owners::claim(set, &selector, &**pod) {
                // Only a pod that has the name of a member can be one.
                Claim::Adopt if !is_member => Claim::Leave,
                Claim::Keep if !is_member && set.metadata.deletion_timestamp.is_none() => Claim::Release,
                claim => claim,
            };
            (claim, Arc::clone(pod))
        });
        let judged: Vec<(Claim, Arc<PodCard>)> = judged.filter(|(claim, _)| *claim != Claim::Leave).collect();
        if judged.iter().any(|(claim, _)| *claim == Claim::Adopt) {
            let sets: Api<StatefulSet> = Api::namespaced(self.client.clone(), &key.0);
            let now = sets.get_opt(&key.1).await?;
            if now.is_none_or(|now| now.uid() != set.uid() || now.metadata.deletion_timestamp.is_some()) {
                return Ok(Vec::new());
            }
        }
        let mut claimed = Vec::new();
        for (claim, pod) in judged {
            if claim == Claim::Keep {
                claimed.push(pod);
                continue;
            }
            match owners::settle(&self.client, set, &*pod, claim).await {
                Ok(pod) => {
                    self.unseen.pods.wrote(key, &pod);
                    if claim == Claim::Adopt {
                        claimed.push(Arc::new(pod));
                    }
                }
                Err(error) if is_not_found(&error) || is_conflict(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(claimed)
    }

    fn revisions_api(&self, key: &Key) -> Api<ControllerRevision> {
        Api::namespaced(self.client.clone(), &key.0)
    }

    async fn templates(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        revisions: &[ControllerRevision],
    ) -> Result<Templates, kube::Error> {
        let draft = Draft {
            labels: set.spec.template.metadata.clone().and_then(|metadata| metadata.labels).unwrap_or_default(),
            annotations: set.annotations().clone(),
            data: pods::data(set),
        };
        let status = set.status.clone().unwrap_or_default();
        let collisions = status.collision_count.unwrap_or_default();
        let outcome = revisions::ensure(&self.revisions_api(key), set, revisions, draft, collisions).await?;
        if outcome.is_new {
            self.unseen.revisions.wrote(key, &outcome.newest);
        }
        let current = revisions.iter().find(|one| Some(one.name_any()) == status.current_revision);
        let current = current.unwrap_or(&outcome.newest).clone();
        Ok(Templates { current, update: outcome.newest, collisions: outcome.collisions })
    }

    /// Deletes the oldest of the revisions that nobody uses and that are too many to remember.
    async fn truncate(
        &mut self,
        key: &Key,
        set: &StatefulSet,
        pods: &[Arc<PodCard>],
        revisions: &[ControllerRevision],
        templates: &Templates,
    ) -> Result<(), kube::Error> {
        let used: Vec<String> = pods.iter().map(|pod| label(pod, REVISION_LABEL).to_owned()).collect();
        let is_used = |one: &&ControllerRevision| {
            let name = one.name_any();
            name == templates.current.name_any() || name == templates.update.name_any() || used.contains(&name)
        };
        let unused: Vec<&ControllerRevision> = revisions.iter().filter(|one| !is_used(one)).collect();
        let limit = set.spec.revision_history_limit.unwrap_or(10).max(0) as usize;
        for one in unused.iter().take(unused.len().saturating_sub(limit)) {
            match self.revisions_api(key).delete(&one.name_any(), &DeleteParams::default()).await {
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => self.unseen.revisions.deleted(key, *one),
            }
        }
        Ok(())
    }

    async fn say(&mut self, set: &StatefulSet, tone: Tone, reason: &str, message: String) {
        self.recorder.say(set.object_ref(&()), tone, reason, message).await;
    }
}

/// Wakes the sets that a pod belongs to or could belong to.
fn concern(pod: &PodCard, queue: &mut Queue) {
    let namespace = pod.namespace().unwrap_or_default();
    match controller_of(pod) {
        Some(owner) if owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/") => {
            queue.soon((namespace, owner.name.clone()));
        }
        Some(_) => {}
        None => {
            // A pod is a set's by its name too, so there is one that could take it.
            if let Some((name, _)) = split_name(&pod.name_any()) {
                queue.soon((namespace, name.to_owned()));
            }
        }
    }
}
