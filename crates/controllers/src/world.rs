//! All that the controllers have seen, and whom each change concerns.
//!
//! It must not know what is written for anybody.

use std::sync::Arc;

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::FieldPath;
use muster_api::makers::leader_worker_set::{self as lws, is_leader, labels as replica_labels};
use muster_api::makers::{job_set, names_a_group};
use muster_api::selector::Labels;
use muster_api::wire::object::Kind;
use muster_api::wire::{Job, JobSet, LeaderWorkerSet, Object, Pod, PodGroup};

use crate::mirror::{Change, Key, Mirror, Turn, key_of};
use crate::plans::{self, Plan, controller_of};
use crate::providers::{SchedulerProvider, gangs_pods_of};
use crate::settings::Settings;

/// Who is to be looked after.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A JobSet.
    JobSet(Key),
    /// A Job.
    Job(Key),
    /// The replica of a leader, by the leader.
    Replica(Key),
    /// A pod of a Job or a JobSet.
    JobPod(Key),
    /// A pod of a LeaderWorkerSet.
    ReplicaPod(Key),
}

/// What a watch tells. Most are of pods, and each lives for a moment only.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum News {
    JobSet(Turn<JobSet>),
    LeaderWorkerSet(Turn<LeaderWorkerSet>),
    Job(Turn<Job>),
    JobPod(Turn<Pod>),
    ReplicaPod(Turn<Pod>),
    Revision(Turn<DynamicObject>),
    /// An object of a kind that we write, by the number of the kind.
    Written(usize, Turn<DynamicObject>),
}

/// All that has been seen.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) provider: Option<Box<dyn SchedulerProvider>>,
    pub(crate) job_sets: Mirror<JobSet>,
    pub(crate) leader_worker_sets: Mirror<LeaderWorkerSet>,
    pub(crate) jobs: Mirror<Job>,
    pub(crate) job_pods: Mirror<Pod>,
    pub(crate) replica_pods: Mirror<Pod>,
    pub(crate) revisions: Mirror<DynamicObject>,
    /// The kinds that we write, and what there is of them.
    written: Vec<(ApiResource, Mirror<DynamicObject>)>,
    /// What is looked up in a kind that we do not write.
    nothing: Mirror<DynamicObject>,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let provider = settings.provider();
        let kinds = written_kinds(&settings, provider.as_deref());
        let mut world = Self {
            provider,
            job_sets: Mirror::default(),
            leader_worker_sets: Mirror::default(),
            jobs: Mirror::default(),
            job_pods: Mirror::indexed_by(owners_of),
            replica_pods: Mirror::indexed_by(|pod| label_of(pod.metadata.labels.as_ref(), replica_labels::NAME)),
            revisions: Mirror::indexed_by(|revision| label_of(revision.metadata.labels.as_ref(), replica_labels::NAME)),
            written: kinds.into_iter().map(|kind| (kind, Mirror::indexed_by(sets_of))).collect(),
            nothing: Mirror::unwatched(),
            settings,
        };
        if !world.settings.has_job_sets() {
            world.job_sets = Mirror::unwatched();
        }
        if world.settings.jobs().is_none() {
            world.jobs = Mirror::unwatched();
        }
        if !world.settings.has_job_sets() && world.settings.jobs().is_none() {
            world.job_pods = Mirror::unwatched();
        }
        if world.provider.is_none() {
            world.leader_worker_sets = Mirror::unwatched();
            world.replica_pods = Mirror::unwatched();
            world.revisions = Mirror::unwatched();
        }
        world
    }

    /// The kinds that we write.
    pub(crate) fn written_kinds(&self) -> impl Iterator<Item = &ApiResource> {
        self.written.iter().map(|(kind, _)| kind)
    }

    /// What there is of a kind that we write.
    pub(crate) fn written(&self, kind: &ApiResource) -> &Mirror<DynamicObject> {
        self.written.iter().find(|(one, _)| one == kind).map_or(&self.nothing, |(_, mirror)| mirror)
    }

    /// Whether every watch has shown its first list.
    pub(crate) fn is_complete(&self) -> bool {
        self.job_sets.is_complete()
            && self.leader_worker_sets.is_complete()
            && self.jobs.is_complete()
            && self.job_pods.is_complete()
            && self.replica_pods.is_complete()
            && self.revisions.is_complete()
            && self.written.iter().all(|(_, mirror)| mirror.is_complete())
    }

    /// Whether a pod of a LeaderWorkerSet is to be in the gang of its replica.
    pub(crate) fn is_ganged(&self, pod: &Pod) -> bool {
        let none = Labels::new();
        let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
        // What cannot be read is no gang: its pods are held back, and told why.
        let is_off = lws::is_off(annotations, &FieldPath::Root("metadata")).unwrap_or(true);
        let Some(provider) = &self.provider else { return false };
        !is_off && gangs_pods_of(provider.as_ref(), &pod.spec.scheduler_name, self.settings.scheduler_names())
    }

    /// What is to be written for somebody.
    pub(crate) fn plan(&self, subject: &Subject) -> Plan {
        match subject {
            Subject::JobSet(key) => plans::job_sets::plan(self, key),
            Subject::Job(key) => plans::jobs::plan(self, key),
            Subject::Replica(key) => plans::replicas::plan(self, key),
            Subject::JobPod(key) => plans::pods::of_job(self, key),
            Subject::ReplicaPod(key) => plans::pods::of_replica(self, key),
        }
    }

    /// Takes in what a watch tells, and answers whom it concerns.
    pub(crate) fn take(&mut self, news: News) -> Vec<Subject> {
        match news {
            News::JobSet(turn) => {
                let changes = self.job_sets.take(turn);
                changes.iter().flat_map(|change| self.of_job_set(change)).collect()
            }
            News::Job(turn) => {
                let changes = self.jobs.take(turn);
                changes.iter().flat_map(|change| self.of_job(change)).collect()
            }
            News::LeaderWorkerSet(turn) => {
                let changes = self.leader_worker_sets.take(turn);
                // What becomes of a set is written into it all the time, and changes nothing here.
                let news = changes.iter().filter(|change| may_want_others(change));
                let keys: Vec<Key> = news.filter_map(Change::any).map(|set| key_of(&**set)).collect();
                keys.iter().flat_map(|(namespace, set)| self.leaders_of(namespace, set)).collect()
            }
            News::Revision(turn) => {
                let changes = self.revisions.take(turn);
                let mut subjects = Vec::new();
                for revision in changes.iter().filter_map(Change::any) {
                    let set = label(revision.metadata.labels.as_ref(), replica_labels::NAME);
                    subjects.extend(self.leaders_of(revision.metadata.namespace.as_deref().unwrap_or_default(), &set));
                }
                subjects
            }
            News::JobPod(turn) => {
                let changes = self.job_pods.take(turn);
                let unnamed = changes.iter().filter_map(|change| change.new.as_ref()).filter(|pod| names_none(pod));
                // What is gone of a Job may be what its group still counts on.
                let gone = changes.iter().filter(|change| change.new.is_none()).filter_map(Change::any);
                let of_gone = gone.filter_map(|pod| {
                    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
                    Some(Subject::Job((pod.metadata.namespace.clone()?, owner.name.clone())))
                });
                unnamed.map(|pod| Subject::JobPod(key_of(&**pod))).chain(of_gone).collect()
            }
            News::ReplicaPod(turn) => {
                let changes = self.replica_pods.take(turn);
                changes.iter().filter_map(|change| change.new.as_ref()).flat_map(|pod| of_replica_pod(pod)).collect()
            }
            News::Written(kind, turn) => {
                let changes = self.written[kind].1.take(turn);
                changes.iter().filter_map(Change::any).filter_map(|object| concerned(object)).collect()
            }
        }
    }

    /// A set, and when it may want something else the pods that were seen before it.
    fn of_job_set(&self, change: &Change<JobSet>) -> Vec<Subject> {
        let Some(set) = change.any() else { return Vec::new() };
        let key = key_of(&**set);
        let mut subjects = Vec::new();
        if may_want_others(change) {
            let theirs = self.job_pods.of(&key.0, &key.1).filter(|pod| {
                label(pod.metadata.labels.as_ref(), job_set::labels::JOB_SET) == key.1 && names_none(pod)
            });
            subjects.extend(theirs.map(|pod| Subject::JobPod(key_of(&**pod))));
        }
        subjects.push(Subject::JobSet(key));
        subjects
    }

    fn of_job(&self, change: &Change<Job>) -> Vec<Subject> {
        let Some(job) = change.any() else { return Vec::new() };
        let key = key_of(&**job);
        let mut subjects = Vec::new();
        if may_want_others(change) {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            let theirs = self
                .job_pods
                .of(&key.0, uid)
                .filter(|pod| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid) && names_none(pod));
            subjects.extend(theirs.map(|pod| Subject::JobPod(key_of(&**pod))));
        }
        subjects.push(Subject::Job(key));
        subjects
    }

    fn leaders_of(&self, namespace: &str, set: &str) -> Vec<Subject> {
        let theirs = self.replica_pods.of(namespace, set).filter(|pod| {
            let labels = pod.metadata.labels.as_ref();
            labels.is_some_and(is_leader) && label(labels, replica_labels::NAME) == set
        });
        theirs.map(|pod| Subject::Replica(key_of(&**pod))).collect()
    }
}

/// Whether an owner is new, another one of the same name, or may have changed its mind.
fn may_want_others<K: Kind>(change: &Change<Object<K>>) -> bool {
    let mind = |object: &Arc<Object<K>>| {
        let metadata = &object.metadata;
        (metadata.uid.clone(), metadata.generation, metadata.annotations.clone())
    };
    change.old.as_ref().map(mind) != change.new.as_ref().map(mind)
}

fn label(labels: Option<&Labels>, key: &str) -> String {
    labels.and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
}

fn label_of(labels: Option<&Labels>, key: &str) -> Vec<String> {
    labels.and_then(|labels| labels.get(key)).cloned().into_iter().collect()
}

/// The name of a pod's JobSet, and the UID of its Job.
fn owners_of(pod: &Pod) -> Vec<String> {
    let mut owners = label_of(pod.metadata.labels.as_ref(), job_set::labels::JOB_SET);
    owners.extend(controller_of(&pod.metadata).map(|owner| owner.uid.clone()));
    owners
}

fn names_none(pod: &Pod) -> bool {
    !names_a_group(&pod.into(), &pod.spec)
}

fn of_replica_pod(pod: &Pod) -> Vec<Subject> {
    let leads = pod.metadata.labels.as_ref().is_some_and(is_leader);
    let unnamed = names_none(pod);
    let key = key_of(pod);
    let replica = leads.then(|| Subject::Replica(key.clone()));
    replica.into_iter().chain(unnamed.then_some(Subject::ReplicaPod(key))).collect()
}

/// The kinds that are written for these owners, each once.
fn written_kinds(settings: &Settings, provider: Option<&dyn SchedulerProvider>) -> Vec<ApiResource> {
    let mut kinds = Vec::new();
    if settings.has_job_sets() {
        kinds.extend(plans::job_sets::kinds(settings));
    }
    if settings.jobs().is_some() {
        kinds.push(ApiResource::erase::<PodGroup>(&()));
    }
    if let Some(kind) = provider.and_then(SchedulerProvider::resource).filter(|kind| !kinds.contains(kind)) {
        kinds.push(kind);
    }
    kinds
}

/// Whom an object concerns that we write: its owner, or whose place it is in the way of.
fn concerned(object: &DynamicObject) -> Option<Subject> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let owner =
        controller_of(&object.metadata).map(|owner| (owner.kind.as_str(), (namespace.clone(), owner.name.clone())));
    match owner {
        Some(("JobSet", key)) => return Some(Subject::JobSet(key)),
        Some(("Job", key)) => return Some(Subject::Job(key)),
        Some(("Pod", key)) => return Some(Subject::Replica(key)),
        _ => {}
    }
    if let Some(set) = named_set(object) {
        return Some(Subject::JobSet((namespace, set)));
    }
    let name = object.metadata.name.as_deref()?;
    // The groups of a set have its Workload's name in theirs.
    let set = name.strip_prefix("w-").map(|rest| rest.split('.').next().unwrap_or(rest));
    let set = set.map(|set| Subject::JobSet((namespace.clone(), set.to_owned())));
    set.or_else(|| name.strip_prefix("job-").map(|job| Subject::Job((namespace, job.to_owned()))))
}

/// The JobSet that a Workload says it is for.
fn named_set(workload: &DynamicObject) -> Option<String> {
    let reference = &workload.data["spec"]["controllerRef"];
    reference["name"].as_str().filter(|_| reference["kind"] == "JobSet").map(str::to_owned)
}

/// The JobSets that an object is for: as it says, and as its label says.
fn sets_of(object: &DynamicObject) -> Vec<String> {
    let mut sets = label_of(object.metadata.labels.as_ref(), job_set::labels::JOB_SET);
    sets.extend(named_set(object).filter(|set| !sets.contains(set)));
    sets
}
