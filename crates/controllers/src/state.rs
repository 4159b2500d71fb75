//! The caches of all watched kinds, and the work items that each change enqueues.
//!
//! Must not depend on what a reconcile writes.

use std::sync::Arc;
use std::time::Duration;

use kube::core::{ApiResource, DynamicObject};
use muster_api::invalid::FieldPath;
use muster_api::owners::leader_worker_set::{self as lws, is_leader, labels as replica_labels};
use muster_api::owners::{job_set, references_group};
use muster_api::selector::Labels;
use muster_api::wire::object::Kind;
use muster_api::wire::{Job, JobSet, LeaderWorkerSet, Object, Pod, PodGroup};

use crate::owner_condition;
use crate::providers::{SchedulerProvider, handles_scheduler};
use crate::reconcile::{self, Plan, controller_of};
use crate::settings::Settings;
use muster_reflector::{Cache, Change, Delta, Key, key_of};

/// How long changes of a condition are collected.
const CONDITION_DELAY: Duration = Duration::from_secs(1);

/// An object to reconcile.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum WorkItem {
    /// A JobSet.
    JobSet(Key),
    /// One PodGroup of a JobSet, by the set and its own name.
    JobSetGroup(Key, String),
    /// A Job.
    Job(Key),
    /// A replica of a LeaderWorkerSet, by its leader pod.
    Replica(Key),
    /// A pod of a Job or a JobSet.
    JobPod(Key),
    /// A pod of a LeaderWorkerSet.
    ReplicaPod(Key),
    /// The condition of an owner.
    Condition(OwnerKind, Key),
}

/// A kind of owner that shows the state of its gangs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnerKind {
    JobSet,
    Job,
    LeaderWorkerSet,
}

impl WorkItem {
    /// How long changes are collected before the item is reconciled. What gangs wait for changes together.
    pub(crate) fn delay(&self) -> Duration {
        if matches!(self, WorkItem::Condition(..)) { CONDITION_DELAY } else { Duration::ZERO }
    }
}

/// A watch event with the kind it is about. Most are about pods, and each is short-lived.
#[allow(clippy::large_enum_variant)]
#[derive(Debug)]
pub(crate) enum ClusterEvent {
    JobSet(Delta<JobSet>),
    LeaderWorkerSet(Delta<LeaderWorkerSet>),
    Job(Delta<Job>),
    JobPod(Delta<Pod>),
    ReplicaPod(Delta<Pod>),
    Revision(Delta<DynamicObject>),
    /// An object of a managed kind, by the index of the kind.
    Managed(usize, Delta<DynamicObject>),
}

/// All that the controllers know about the cluster.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) provider: Option<Box<dyn SchedulerProvider>>,
    pub(crate) job_sets: Cache<JobSet>,
    pub(crate) leader_worker_sets: Cache<LeaderWorkerSet>,
    pub(crate) jobs: Cache<Job>,
    pub(crate) job_pods: Cache<Pod>,
    pub(crate) replica_pods: Cache<Pod>,
    pub(crate) revisions: Cache<DynamicObject>,
    /// The kinds that the controllers write, with their caches.
    managed: Vec<(ApiResource, Cache<DynamicObject>)>,
    /// The empty cache for all other kinds.
    unmanaged: Cache<DynamicObject>,
}

impl State {
    pub(crate) fn new(settings: Settings) -> Self {
        let provider = settings.provider();
        let kinds = managed_kinds(&settings, provider.as_deref());
        let mut state = Self {
            provider,
            job_sets: Cache::default(),
            leader_worker_sets: Cache::default(),
            jobs: Cache::default(),
            job_pods: Cache::indexed_by(owner_index),
            replica_pods: Cache::indexed_by(|pod| label_values(pod.metadata.labels.as_ref(), replica_labels::NAME)),
            revisions: Cache::indexed_by(|revision| {
                label_values(revision.metadata.labels.as_ref(), replica_labels::NAME)
            }),
            managed: kinds.into_iter().map(|kind| (kind, Cache::indexed_by(set_index))).collect(),
            unmanaged: Cache::unwatched(),
            settings,
        };
        if !state.settings.has_job_sets() {
            state.job_sets = Cache::unwatched();
        }
        if state.settings.jobs().is_none() {
            state.jobs = Cache::unwatched();
        }
        if !state.settings.has_job_sets() && state.settings.jobs().is_none() {
            state.job_pods = Cache::unwatched();
        }
        if state.provider.is_none() {
            state.leader_worker_sets = Cache::unwatched();
            state.replica_pods = Cache::unwatched();
            state.revisions = Cache::unwatched();
        }
        state
    }

    /// The kinds that the controllers write.
    pub(crate) fn managed_kinds(&self) -> impl Iterator<Item = &ApiResource> {
        self.managed.iter().map(|(kind, _)| kind)
    }

    /// The cache of a kind that the controllers write.
    pub(crate) fn managed(&self, kind: &ApiResource) -> &Cache<DynamicObject> {
        self.managed.iter().find(|(one, _)| one == kind).map_or(&self.unmanaged, |(_, cache)| cache)
    }

    /// Whether every cache has synced.
    pub(crate) fn has_synced(&self) -> bool {
        self.job_sets.has_synced()
            && self.leader_worker_sets.has_synced()
            && self.jobs.has_synced()
            && self.job_pods.has_synced()
            && self.replica_pods.has_synced()
            && self.revisions.has_synced()
            && self.managed.iter().all(|(_, cache)| cache.has_synced())
    }

    /// Whether a pod of a LeaderWorkerSet belongs to the gang of its replica.
    pub(crate) fn is_ganged(&self, pod: &Pod) -> bool {
        let none = Labels::new();
        let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
        // An invalid annotation means no gang: the scheduler holds these pods back and reports the reason.
        let is_off = lws::is_off(annotations, &FieldPath::Root("metadata")).unwrap_or(true);
        let Some(provider) = &self.provider else { return false };
        !is_off && handles_scheduler(provider.as_ref(), &pod.spec.scheduler_name, self.settings.scheduler_names())
    }

    /// Decides what to write for an item.
    pub(crate) fn reconcile(&self, item: &WorkItem) -> Plan {
        match item {
            WorkItem::JobSet(key) => reconcile::job_sets::reconcile(self, key),
            WorkItem::JobSetGroup(key, group) => reconcile::job_sets::reconcile_group(self, key, group),
            WorkItem::Job(key) => reconcile::jobs::reconcile(self, key),
            WorkItem::Replica(key) => reconcile::replicas::reconcile(self, key),
            WorkItem::JobPod(key) => reconcile::pods::reconcile_job_pod(self, key),
            WorkItem::ReplicaPod(key) => reconcile::pods::reconcile_replica_pod(self, key),
            WorkItem::Condition(kind, key) => owner_condition::reconcile(self, *kind, key),
        }
    }

    /// Applies an event and returns the items to reconcile.
    pub(crate) fn apply(&mut self, event: ClusterEvent) -> Vec<WorkItem> {
        match event {
            ClusterEvent::JobSet(event) => {
                let changes = self.job_sets.apply(event);
                changes.iter().flat_map(|change| self.job_set_items(change)).collect()
            }
            ClusterEvent::Job(event) => {
                let changes = self.jobs.apply(event);
                changes.iter().flat_map(|change| self.job_items(change)).collect()
            }
            ClusterEvent::LeaderWorkerSet(event) => {
                let changes = self.leader_worker_sets.apply(event);
                // The status of a set changes often and is irrelevant here.
                let changed = changes.iter().filter(|change| may_define_other_gangs(change));
                let keys: Vec<Key> = changed.filter_map(Change::latest).map(|set| key_of(&**set)).collect();
                let leaders = keys.iter().flat_map(|(namespace, set)| self.leader_items(namespace, set));
                let sets = changes.iter().filter_map(|change| change.new.as_ref());
                let conditions = sets.map(|set| WorkItem::Condition(OwnerKind::LeaderWorkerSet, key_of(&**set)));
                leaders.chain(conditions).collect()
            }
            ClusterEvent::Revision(event) => {
                let changes = self.revisions.apply(event);
                let mut items = Vec::new();
                for revision in changes.iter().filter_map(Change::latest) {
                    let set = label(revision.metadata.labels.as_ref(), replica_labels::NAME);
                    items.extend(self.leader_items(revision.metadata.namespace.as_deref().unwrap_or_default(), &set));
                }
                items
            }
            ClusterEvent::JobPod(event) => {
                let changes = self.job_pods.apply(event);
                let without_reference =
                    changes.iter().filter_map(|change| change.new.as_ref()).filter(|pod| lacks_reference(pod));
                // The minimum of a Job's group may still count a deleted pod.
                let deleted = changes.iter().filter(|change| change.new.is_none()).filter_map(Change::latest);
                let jobs_of_deleted = deleted.filter_map(|pod| {
                    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
                    Some(WorkItem::Job((pod.metadata.namespace.clone()?, owner.name.clone())))
                });
                without_reference.map(|pod| WorkItem::JobPod(key_of(&**pod))).chain(jobs_of_deleted).collect()
            }
            ClusterEvent::ReplicaPod(event) => {
                let changes = self.replica_pods.apply(event);
                changes.iter().filter_map(|change| change.new.as_ref()).flat_map(|pod| replica_pod_items(pod)).collect()
            }
            ClusterEvent::Managed(kind, event) => {
                let (kind, cache) = &mut self.managed[kind];
                let is_group = kind.kind == "PodGroup";
                let changes = cache.apply(event);
                let items = changes.iter().filter_map(|change| Some((change, change.latest()?)));
                let items = items.flat_map(|(change, object)| {
                    let item = affected_item(object, is_group).filter(|_| may_need_correction(change));
                    item.into_iter().chain(affected_condition(object))
                });
                items.collect()
            }
        }
    }

    /// The condition of the set and, if its gangs may have changed, the set and its pods that were seen before it. Its
    /// status changes with each of its Jobs.
    fn job_set_items(&self, change: &Change<JobSet>) -> Vec<WorkItem> {
        let Some(set) = change.latest() else { return Vec::new() };
        let key = key_of(&**set);
        let mut items = vec![WorkItem::Condition(OwnerKind::JobSet, key.clone())];
        if may_define_other_gangs(change) {
            let pods = self.job_pods.by_index(&key.0, &key.1).filter(|pod| {
                label(pod.metadata.labels.as_ref(), job_set::labels::JOB_SET) == key.1 && lacks_reference(pod)
            });
            items.extend(pods.map(|pod| WorkItem::JobPod(key_of(&**pod))));
            items.push(WorkItem::JobSet(key));
        }
        items
    }

    fn job_items(&self, change: &Change<Job>) -> Vec<WorkItem> {
        let Some(job) = change.latest() else { return Vec::new() };
        let key = key_of(&**job);
        let mut items = Vec::new();
        if may_define_other_gangs(change) {
            let uid = job.metadata.uid.as_deref().unwrap_or_default();
            let pods = self.job_pods.by_index(&key.0, uid).filter(|pod| {
                controller_of(&pod.metadata).is_some_and(|owner| owner.uid == uid) && lacks_reference(pod)
            });
            items.extend(pods.map(|pod| WorkItem::JobPod(key_of(&**pod))));
        }
        if !job.metadata.labels.as_ref().is_some_and(|all| all.contains_key(job_set::labels::JOB_SET)) {
            items.push(WorkItem::Condition(OwnerKind::Job, key.clone()));
        }
        items.push(WorkItem::Job(key));
        items
    }

    fn leader_items(&self, namespace: &str, set: &str) -> Vec<WorkItem> {
        let pods = self.replica_pods.by_index(namespace, set).filter(|pod| {
            let labels = pod.metadata.labels.as_ref();
            labels.is_some_and(is_leader) && label(labels, replica_labels::NAME) == set
        });
        pods.map(|pod| WorkItem::Replica(key_of(&**pod))).collect()
    }
}

/// Whether an owner is new, was replaced by one of the same name, or may define other gangs.
fn may_define_other_gangs<K: Kind>(change: &Change<Object<K>>) -> bool {
    let gang_inputs = |object: &Arc<Object<K>>| {
        let metadata = &object.metadata;
        (metadata.uid.clone(), metadata.generation, metadata.annotations.clone())
    };
    change.old.as_ref().map(gang_inputs) != change.new.as_ref().map(gang_inputs)
}

/// Whether more than the status of a managed object has changed.
fn may_need_correction(change: &Change<DynamicObject>) -> bool {
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let (before, now) = (&old.metadata, &new.metadata);
    (&before.uid, &before.labels, &before.annotations) != (&now.uid, &now.labels, &now.annotations)
        || before.deletion_timestamp != now.deletion_timestamp
        || before.finalizers != now.finalizers
        || before.owner_references != now.owner_references
        || old.data["spec"] != new.data["spec"]
}

fn label(labels: Option<&Labels>, key: &str) -> String {
    labels.and_then(|labels| labels.get(key)).cloned().unwrap_or_default()
}

fn label_values(labels: Option<&Labels>, key: &str) -> Vec<String> {
    labels.and_then(|labels| labels.get(key)).cloned().into_iter().collect()
}

/// The name of a pod's JobSet, and the UID of its Job.
fn owner_index(pod: &Pod) -> Vec<String> {
    let mut owners = label_values(pod.metadata.labels.as_ref(), job_set::labels::JOB_SET);
    owners.extend(controller_of(&pod.metadata).map(|owner| owner.uid.clone()));
    owners
}

fn lacks_reference(pod: &Pod) -> bool {
    !references_group(&pod.into(), &pod.spec)
}

fn replica_pod_items(pod: &Pod) -> Vec<WorkItem> {
    let is_leader = pod.metadata.labels.as_ref().is_some_and(is_leader);
    let without_reference = lacks_reference(pod);
    let key = key_of(pod);
    let replica = is_leader.then(|| WorkItem::Replica(key.clone()));
    replica.into_iter().chain(without_reference.then_some(WorkItem::ReplicaPod(key))).collect()
}

/// The kinds that are written for these owners, without duplicates.
fn managed_kinds(settings: &Settings, provider: Option<&dyn SchedulerProvider>) -> Vec<ApiResource> {
    let mut kinds = Vec::new();
    if settings.has_job_sets() {
        kinds.extend(reconcile::job_sets::kinds(settings));
    }
    if settings.jobs().is_some() {
        kinds.push(ApiResource::erase::<PodGroup>(&()));
    }
    if let Some(kind) = provider.and_then(SchedulerProvider::resource).filter(|kind| !kinds.contains(kind)) {
        kinds.push(kind);
    }
    kinds
}

/// The item that a managed object affects: its owner, or the owner whose group name it occupies. A JobSet may have many
/// PodGroups, so one of them affects only itself.
fn affected_item(object: &DynamicObject, is_group: bool) -> Option<WorkItem> {
    let namespace = object.metadata.namespace.clone().unwrap_or_default();
    let name = object.metadata.name.as_deref()?;
    let of_set = |set: &str| {
        let key = (namespace.clone(), set.to_owned());
        if is_group { WorkItem::JobSetGroup(key, name.to_owned()) } else { WorkItem::JobSet(key) }
    };
    let owner = controller_of(&object.metadata).map(|owner| (owner.kind.as_str(), owner.name.as_str()));
    match owner {
        Some(("JobSet", set)) => return Some(of_set(set)),
        Some(("Job", job)) => return Some(WorkItem::Job((namespace, job.to_owned()))),
        Some(("Pod", leader)) => return Some(WorkItem::Replica((namespace, leader.to_owned()))),
        _ => {}
    }
    if let Some(set) = referenced_job_set(object) {
        return Some(of_set(&set));
    }
    // PodGroups of a set have the name of its Workload as a prefix.
    let set = name.strip_prefix("w-").map(|rest| rest.split('.').next().unwrap_or(rest));
    set.map(of_set).or_else(|| name.strip_prefix("job-").map(|job| WorkItem::Job((namespace.clone(), job.to_owned()))))
}

/// The owner whose condition a managed object affects.
fn affected_condition(object: &DynamicObject) -> Option<WorkItem> {
    let labels = object.metadata.labels.as_ref();
    if let Some(set) = labels.and_then(|labels| labels.get(replica_labels::NAME)) {
        let key = (object.metadata.namespace.clone().unwrap_or_default(), set.clone());
        return Some(WorkItem::Condition(OwnerKind::LeaderWorkerSet, key));
    }
    match affected_item(object, false)? {
        WorkItem::JobSet(key) => Some(WorkItem::Condition(OwnerKind::JobSet, key)),
        WorkItem::Job(key) => Some(WorkItem::Condition(OwnerKind::Job, key)),
        _ => None,
    }
}

/// The JobSet that a Workload names in `spec.controllerRef`.
fn referenced_job_set(workload: &DynamicObject) -> Option<String> {
    let reference = &workload.data["spec"]["controllerRef"];
    reference["name"].as_str().filter(|_| reference["kind"] == "JobSet").map(str::to_owned)
}

/// The sets that an object belongs to, by its labels and by its `controllerRef`.
fn set_index(object: &DynamicObject) -> Vec<String> {
    let mut sets = label_values(object.metadata.labels.as_ref(), job_set::labels::JOB_SET);
    sets.extend(label_values(object.metadata.labels.as_ref(), replica_labels::NAME));
    sets.extend(referenced_job_set(object).filter(|set| !sets.contains(set)));
    sets
}

#[cfg(test)]
mod tests;
