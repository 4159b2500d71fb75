//! Owners whose pods are gangs: JobSets, Jobs, LeaderWorkerSets. A pod of such an owner that names no group is held back
//! until our controllers, or the webhook, have given it one: it is never placed alone.
//!
//! What a LeaderWorkerSet wants stands on its pods; of the others the objects are watched, and only what they ask for is
//! kept. It must not know how references are written.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::makers::{Carrier, GangedOwners, ProviderName, job, job_set, leader_worker_set};
use muster_api::selector::Labels;
use muster_api::wire::{Job, JobSet, Pod};

use super::raw::{RawObject, names};

/// A kind of owner that is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owning {
    JobSet,
    Job,
}

impl Owning {
    /// The name in paths.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::JobSet => "jobsets",
            Self::Job => "jobs",
        }
    }

    /// Where the API server has it.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::JobSet => ApiResource::erase::<JobSet>(&()),
            Self::Job => ApiResource::erase::<Job>(&()),
        }
    }
}

/// The kinds that are watched.
pub(crate) fn watched(ganged: GangedOwners) -> impl Iterator<Item = Owning> {
    let job_sets = ganged.job_sets.map(|_| Owning::JobSet);
    job_sets.into_iter().chain(ganged.jobs.map(|_| Owning::Job))
}

/// Namespace and name.
pub(super) type Key = (String, String);

/// The owner that may want a pod in a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A JobSet, and which of its replicated Jobs. The UID is empty if the pod does not say it.
    JobSet { name: String, uid: String, replicated_job: String },
    /// A Job, by name and UID.
    Job { name: String, uid: String },
    /// A LeaderWorkerSet, and what is wrong with how its pod says whether it is a gang.
    LeaderWorkerSet { name: String, flaw: Option<String> },
}

impl Owner {
    /// The owner of a pod.
    pub(super) fn of(pod: &Pod) -> Option<Self> {
        let none = Labels::new();
        let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
        let label = |key: &str| labels.get(key).cloned();
        if let Some(name) = label(job_set::labels::JOB_SET) {
            let replicated_job = label(job_set::labels::REPLICATED_JOB).unwrap_or_default();
            let uid = label(job_set::labels::JOB_SET_UID).unwrap_or_default();
            return Some(Self::JobSet { name, uid, replicated_job });
        }
        if let Some(name) = label(leader_worker_set::labels::NAME) {
            let annotations = pod.metadata.annotations.as_ref().unwrap_or(&none);
            return match leader_worker_set::is_off(annotations, &FieldPath::Root("metadata")) {
                Ok(true) => None,
                Ok(false) => Some(Self::LeaderWorkerSet { name, flaw: None }),
                Err(error) => Some(Self::LeaderWorkerSet { name, flaw: Some(error.to_string()) }),
            };
        }
        let controller = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
        let is_job = controller.api_version == "batch/v1" && controller.kind == "Job";
        is_job.then(|| Self::Job { name: controller.name.clone(), uid: controller.uid.clone() })
    }

    /// Whether a change of this object concerns the pod.
    pub(super) fn is(&self, kind: Owning, object: &str) -> bool {
        match self {
            Self::JobSet { name, .. } => kind == Owning::JobSet && name == object,
            Self::Job { name, .. } => kind == Owning::Job && name == object,
            Self::LeaderWorkerSet { .. } => false,
        }
    }
}

/// What a JobSet wants: which replicated Jobs are ganged, or what is wrong.
type Wanted = Result<BTreeSet<String>, String>;

/// What the owners want that have been seen.
#[derive(Debug)]
pub(super) struct Owners {
    ganged: GangedOwners,
    /// Our names: what a gang's pods have to ask for.
    scheduler_names: Vec<String>,
    /// By UID, what it wants.
    job_sets: BTreeMap<Key, (String, Wanted)>,
    /// By UID, whether it is a gang, or what is wrong.
    jobs: BTreeMap<Key, (String, Result<bool, String>)>,
    job_sets_are_served: bool,
}

impl Owners {
    pub(super) fn new(ganged: GangedOwners, scheduler_names: Vec<String>) -> Self {
        Self { ganged, scheduler_names, job_sets: BTreeMap::new(), jobs: BTreeMap::new(), job_sets_are_served: false }
    }

    /// The objects of a kind.
    pub(super) fn known(&self, kind: Owning) -> Vec<Key> {
        match kind {
            Owning::JobSet => self.job_sets.keys().cloned().collect(),
            Owning::Job => self.jobs.keys().cloned().collect(),
        }
    }

    /// Whether the cluster serves a kind.
    pub(super) fn set_served(&mut self, kind: Owning, served: bool) {
        if kind == Owning::JobSet {
            self.job_sets_are_served = served;
        }
    }

    /// An object is gone.
    pub(super) fn gone(&mut self, kind: Owning, key: &Key) -> bool {
        match kind {
            Owning::JobSet => self.job_sets.remove(key).is_some(),
            Owning::Job => self.jobs.remove(key).is_some(),
        }
    }

    /// An object is there; answers whether it wants something else than before.
    pub(super) fn seen(&mut self, kind: Owning, object: &RawObject) -> bool {
        let (key, text) = (names(object), object.text.get());
        match kind {
            Owning::JobSet => {
                let wanted = wanted(text, &self.scheduler_names);
                let state = (object.metadata.uid.clone().unwrap_or_default(), wanted);
                self.job_sets.insert(key, state.clone()).is_none_or(|old| old != state)
            }
            Owning::Job => {
                let uid = object.metadata.uid.clone().unwrap_or_default();
                let state = (uid, self.job_wants(text));
                self.jobs.insert(key, state.clone()).is_none_or(|old| old != state)
            }
        }
    }

    fn job_wants(&self, text: &str) -> Result<bool, String> {
        let job: Job = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let gang = job::gang(&job, self.ganged.jobs.unwrap_or_default(), &self.scheduler_names);
        gang.map(|gang| gang.is_some()).map_err(|flaw| flaw.message)
    }

    /// Whether pods of such an owner get references from our controllers.
    pub(super) fn are_ours(&self, owner: &Owner) -> bool {
        match owner {
            Owner::JobSet { .. } => self.ganged.job_sets.is_some(),
            Owner::Job { .. } => self.ganged.jobs.is_some(),
            Owner::LeaderWorkerSet { .. } => self.ganged.leader_worker_sets.is_some(),
        }
    }

    /// Whether the groups of replicas are our own kind, so that our controllers raise their minimums.
    pub(super) fn minimums_are_raised(&self) -> bool {
        self.ganged.leader_worker_sets == Some(ProviderName::Muster)
    }

    /// Why a pod of ours that names no group has to wait for one.
    pub(super) fn hold(&self, namespace: &str, owner: &Owner) -> Option<InvalidField> {
        match owner {
            Owner::JobSet { name, uid, replicated_job } => {
                let carrier = self.ganged.job_sets.filter(|_| self.job_sets_are_served)?;
                let labels = FieldPath::Root("metadata.labels");
                let told = |reason: &str| Some(labels.key(job_set::labels::JOB_SET).invalid(name, reason));
                let known = self.job_sets.get(&(namespace.to_owned(), name.clone()));
                // Another set of this name may want something else.
                let known = known.filter(|(known, _)| uid.is_empty() || known == uid).map(|(_, wanted)| wanted);
                match known {
                    None => told("there is no such JobSet, so it is not known whether the pod belongs to a gang"),
                    Some(Ok(ganged)) if !ganged.contains(replicated_job) => None,
                    Some(Ok(_)) if carrier == Carrier::Native => told(MISSED_OF_SET),
                    Some(Ok(_)) => told(UNNAMED),
                    Some(Err(flaw)) => told(&format!("the JobSet asks for gangs that cannot be: {flaw}")),
                }
            }
            Owner::Job { name, uid } => {
                self.ganged.jobs?;
                let path = FieldPath::Root("metadata.ownerReferences");
                let told = |reason: &str| Some(path.invalid(&format!("Job {name}"), reason));
                match self.jobs.get(&(namespace.to_owned(), name.clone())).filter(|(known, _)| known == uid) {
                    None => told("the Job has not been seen yet, so it is not known whether the pod belongs to a gang"),
                    Some((_, Ok(false))) => None,
                    Some((_, Ok(true))) => told(UNNAMED),
                    Some((_, Err(flaw))) => told(&format!("the Job asks for a gang that cannot be: {flaw}")),
                }
            }
            Owner::LeaderWorkerSet { name, flaw } => {
                // The words of YuniKorn are not ours to read: its pods are.
                let provider = self.ganged.leader_worker_sets.filter(|provider| *provider != ProviderName::YuniKorn)?;
                let path = FieldPath::Root("metadata.labels");
                let unnamed = if provider == ProviderName::Native { MISSED_OF_REPLICA } else { UNNAMED };
                let reason = flaw.as_deref().unwrap_or(unnamed);
                Some(path.key(leader_worker_set::labels::NAME).invalid(name, reason))
            }
        }
    }
}

const UNNAMED: &str = "the pod belongs to a gang and names no group: neither the webhook nor the controllers have given it one yet, and it is not placed alone";

const MISSED_OF_SET: &str = "the pod belongs to a gang and names no group: the webhook was not asked, and the reference cannot be added later; it is not placed alone. Once the webhook answers, make the JobSet again";
const MISSED_OF_REPLICA: &str = "the pod belongs to a gang and names no group: the webhook was not asked when it was made, and the reference cannot be added later; it is not placed alone. Once the webhook answers, delete the pod: it is made again with its reference";

fn wanted(text: &str, scheduler_names: &[String]) -> Wanted {
    let set: JobSet = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let gangs = job_set::gangs(&set, scheduler_names).map_err(|flaw| flaw.message)?;
    Ok(gangs.map(|gangs| gangs.scopes.into_keys().collect()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use muster_engine::Observation;
    use muster_engine::model::pod::PodSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::{Dialect, MusterPodGroup, MusterWorkload};
    use crate::gates::FeatureGates;
    use crate::intake::{Intake, News, WatchTurn};
    use crate::settings::Profile;

    fn intake() -> Intake {
        let ganged = GangedOwners::all();
        let dialects: Vec<Box<dyn Dialect>> = vec![Box::new(MusterWorkload), Box::new(MusterPodGroup)];
        let mut intake = Intake::new(vec![Profile::default()], Vec::new(), FeatureGates::default(), ganged, dialects);
        intake.take(News::Owner(Owning::JobSet, WatchTurn::Complete), 0);
        intake
    }

    fn own(kind: Owning, object: &Value) -> News {
        News::Owner(kind, WatchTurn::Seen(serde_json::from_str(&object.to_string()).unwrap()))
    }

    fn job_set(mode: &str) -> Value {
        let template = json!({"spec": {"template": {"spec": {"schedulerName": "muster", "containers": []}}}});
        json!({"metadata": {"namespace": "ml", "name": "js", "annotations": {"muster.dev/gang-mode": mode}},
            "spec": {"replicatedJobs": [{"name": "workers", "template": template}]}})
    }

    /// The pod as the engine is told of it last.
    fn see(intake: &mut Intake, metadata: &Value) -> PodSpec {
        let mut whole = json!({"namespace": "ml", "name": "p", "uid": "1"});
        whole.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let pod = json!({"metadata": whole, "spec": {"schedulerName": "muster", "containers": []}});
        let turn = WatchTurn::Seen(serde_json::from_str(&pod.to_string()).unwrap());
        last_pod(intake.take(News::Pod(turn), 0).observations).expect("a pod is told of")
    }

    fn last_pod(observations: Vec<Observation>) -> Option<PodSpec> {
        let pod = |one| if let Observation::PodSeen(spec) = one { Some(spec) } else { None };
        observations.into_iter().filter_map(pod).next_back()
    }

    #[test]
    fn a_pod_of_a_ganged_set_waits_for_its_reference_and_then_joins() {
        let mut intake = intake();
        let labels = json!({
            "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        });
        let unnamed = json!({"labels": labels});
        let held = see(&mut intake, &unnamed).refused.expect("the set is not known");
        assert!(held.reason.contains("no such JobSet"), "{held:?}");
        let told = last_pod(intake.take(own(Owning::JobSet, &job_set("Gang")), 0).observations).unwrap();
        assert!(told.refused.unwrap().reason.contains("names no group"));
        let annotations = json!({"muster.dev/workload": "w-js", "muster.dev/pod-group": "pg-js"});
        let named = see(&mut intake, &json!({"labels": labels, "annotations": annotations}));
        assert!(named.refused.is_none() && named.membership.is_some(), "{named:?}");
        // From now on the reference is fixed.
        let again = see(&mut intake, &unnamed);
        assert!(again.membership.is_some() && again.refused.is_none());
    }

    #[test]
    fn a_pod_of_a_set_without_gangs_goes_its_way() {
        let mut intake = intake();
        let labels = json!({
            "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        });
        see(&mut intake, &json!({"labels": labels}));
        let free = last_pod(intake.take(own(Owning::JobSet, &job_set("Off")), 0).observations).unwrap();
        assert_eq!(free.refused, None);
        let wrong = last_pod(intake.take(own(Owning::JobSet, &job_set("All")), 0).observations).unwrap();
        assert!(wrong.refused.unwrap().reason.contains("Off, Gang"));
        intake.take(News::Owner(Owning::JobSet, WatchTurn::Absent), 0);
        assert_eq!(see(&mut intake, &json!({"labels": labels})).refused, None, "there are no JobSets here");
    }

    #[test]
    fn pods_of_jobs_and_leader_worker_sets_wait_too() {
        let mut intake = intake();
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
        let of_job = json!({"ownerReferences": [owner]});
        assert!(see(&mut intake, &of_job).refused.unwrap().reason.contains("not been seen"));
        let mut job = json!({"metadata": {"namespace": "ml", "name": "j", "uid": "u"}, 
            "spec": {"parallelism": 2, "template": {"spec": {"schedulerName": "muster", "containers": []}}}});
        let free = last_pod(intake.take(own(Owning::Job, &job), 0).observations).unwrap();
        assert_eq!(free.refused, None);
        job["metadata"]["annotations"] = json!({"muster.dev/gang-mode": "Gang"});
        let held = last_pod(intake.take(own(Owning::Job, &job), 0).observations).unwrap();
        assert!(held.refused.unwrap().reason.contains("names no group"));

        let labels = json!({"leaderworkerset.sigs.k8s.io/name": "lws"});
        assert!(see(&mut intake, &json!({"labels": labels})).refused.is_some());
        let off = json!({"labels": labels, "annotations": {"muster.dev/gang-mode": "Off"}});
        assert_eq!(see(&mut intake, &off).refused, None);
    }
}
