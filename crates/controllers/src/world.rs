//! All that the controllers have seen, and whom each change concerns.
//!
//! It must not know what is written for anybody.

use std::sync::Arc;

use kube::core::DynamicObject;
use muster_api::invalid::FieldPath;
use muster_api::makers::leader_worker_set::{self as lws, is_leader, labels as replica_labels};
use muster_api::makers::{job_set, names_a_group};
use muster_api::selector::Labels;
use muster_api::wire::object::Kind;
use muster_api::wire::{Job, JobSet, LeaderWorkerSet, Object, Pod, PodGroup};

use crate::mirror::{Change, Key, Mirror, Turn, key_of};
use crate::plans::{self, Plan, controller_of, metadata_of};
use crate::providers::{SchedulerProvider, provider};
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
    Workload(Turn<DynamicObject>),
    Group(Turn<DynamicObject>),
    ProviderGroup(Turn<DynamicObject>),
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
    pub(crate) workloads: Mirror<DynamicObject>,
    pub(crate) groups: Mirror<DynamicObject>,
    /// Groups of a provider whose kind is not ours.
    others: Mirror<DynamicObject>,
}

impl World {
    pub(crate) fn new(settings: Settings) -> Self {
        let ganged = settings.ganged;
        let provider = settings.ganged.leader_worker_sets.map(provider);
        let mut world = Self {
            provider,
            job_sets: Mirror::default(),
            leader_worker_sets: Mirror::default(),
            jobs: Mirror::default(),
            job_pods: Mirror::default(),
            replica_pods: Mirror::default(),
            revisions: Mirror::default(),
            workloads: Mirror::default(),
            groups: Mirror::default(),
            others: Mirror::default(),
            settings,
        };
        if !ganged.job_sets {
            world.job_sets = Mirror::unwatched();
            world.workloads = Mirror::unwatched();
        }
        if ganged.jobs.is_none() {
            world.jobs = Mirror::unwatched();
        }
        if !ganged.job_sets && ganged.jobs.is_none() {
            world.job_pods = Mirror::unwatched();
        }
        if world.provider.is_none() {
            world.leader_worker_sets = Mirror::unwatched();
            world.replica_pods = Mirror::unwatched();
            world.revisions = Mirror::unwatched();
        }
        if world.provider_has_own_kind().is_none() {
            world.others = Mirror::unwatched();
        }
        world
    }

    /// The kind of the provider's groups, if it is not ours.
    pub(crate) fn provider_has_own_kind(&self) -> Option<kube::core::ApiResource> {
        let resource = self.provider.as_ref()?.resource()?;
        (resource != kube::core::ApiResource::erase::<PodGroup>(&())).then_some(resource)
    }

    /// The groups of the provider.
    pub(crate) fn provider_groups(&self) -> &Mirror<DynamicObject> {
        if self.provider_has_own_kind().is_some() { &self.others } else { &self.groups }
    }

    /// Whether every watch has shown its first list.
    pub(crate) fn is_complete(&self) -> bool {
        self.job_sets.is_complete()
            && self.leader_worker_sets.is_complete()
            && self.jobs.is_complete()
            && self.job_pods.is_complete()
            && self.replica_pods.is_complete()
            && self.revisions.is_complete()
            && self.workloads.is_complete()
            && self.groups.is_complete()
            && self.others.is_complete()
    }

    /// Whether a pod of a LeaderWorkerSet is to be in the gang of its replica.
    pub(crate) fn is_ganged(&self, pod: &Pod) -> bool {
        let none = Labels::new();
        let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
        // What cannot be read is no gang: its pods are held back, and told why.
        let is_off = lws::is_off(annotations, &FieldPath::Root("metadata")).unwrap_or(true);
        let Some(provider) = &self.provider else { return false };
        let name = &pod.spec.scheduler_name;
        // Muster reads the groups of others, but no words without an object.
        let ours = provider.resource().is_some() && self.settings.scheduler_names.contains(name);
        !is_off && (ours || provider.scheduler_name() == Some(name.as_str()))
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
                unnamed.map(|pod| Subject::JobPod(key_of(&**pod))).collect()
            }
            News::ReplicaPod(turn) => {
                let changes = self.replica_pods.take(turn);
                changes.iter().filter_map(|change| change.new.as_ref()).flat_map(|pod| of_replica_pod(pod)).collect()
            }
            News::Workload(turn) => {
                self.workloads.take(turn).iter().filter_map(Change::any).filter_map(|w| of_workload(w)).collect()
            }
            News::Group(turn) => {
                self.groups.take(turn).iter().filter_map(Change::any).filter_map(|g| of_group(g)).collect()
            }
            News::ProviderGroup(turn) => {
                self.others.take(turn).iter().filter_map(Change::any).filter_map(|g| of_group(g)).collect()
            }
        }
    }

    /// A set, and when it may want something else the pods that were seen before it.
    fn of_job_set(&self, change: &Change<JobSet>) -> Vec<Subject> {
        let Some(set) = change.any() else { return Vec::new() };
        let key = key_of(&**set);
        let mut subjects = Vec::new();
        if may_want_others(change) {
            let theirs = self.job_pods.within(&key.0).filter(|pod| {
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
                .within(&key.0)
                .filter(|pod| controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid) && names_none(pod));
            subjects.extend(theirs.map(|pod| Subject::JobPod(key_of(&**pod))));
        }
        subjects.push(Subject::Job(key));
        subjects
    }

    fn leaders_of(&self, namespace: &str, set: &str) -> Vec<Subject> {
        let theirs = self.replica_pods.within(namespace).filter(|pod| {
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

fn names_none(pod: &Pod) -> bool {
    !names_a_group(&metadata_of(pod), &pod.spec)
}

fn of_replica_pod(pod: &Pod) -> Vec<Subject> {
    let leads = pod.metadata.labels.as_ref().is_some_and(is_leader);
    let unnamed = names_none(pod);
    let key = key_of(pod);
    let replica = leads.then(|| Subject::Replica(key.clone()));
    replica.into_iter().chain(unnamed.then_some(Subject::ReplicaPod(key))).collect()
}

fn of_workload(workload: &DynamicObject) -> Option<Subject> {
    let namespace = workload.metadata.namespace.clone().unwrap_or_default();
    let owner =
        controller_of(&workload.metadata).filter(|owner| owner.kind == "JobSet").map(|owner| owner.name.clone());
    let reference = &workload.data["spec"]["controllerRef"];
    let named = || (reference["kind"] == "JobSet").then(|| reference["name"].as_str().map(str::to_owned)).flatten();
    // A Workload that is in the way concerns the set that it would belong to.
    let in_the_way = || workload.metadata.name.as_deref()?.strip_prefix("w-").map(str::to_owned);
    owner.or_else(named).or_else(in_the_way).map(|set| Subject::JobSet((namespace, set)))
}

fn of_group(group: &DynamicObject) -> Option<Subject> {
    let namespace = group.metadata.namespace.clone().unwrap_or_default();
    let in_the_way = || group.metadata.name.as_deref()?.strip_prefix("job-").map(str::to_owned);
    match controller_of(&group.metadata) {
        Some(owner) if owner.kind == "Pod" => Some(Subject::Replica((namespace, owner.name.clone()))),
        Some(owner) if owner.kind == "Job" => Some(Subject::Job((namespace, owner.name.clone()))),
        Some(_) => None,
        None => in_the_way().map(|job| Subject::Job((namespace, job))),
    }
}
