//! Owners whose pods are gangs: JobSets, Jobs, LeaderWorkerSets. A pod of such an owner that names no group is held
//! back until our controllers or the webhook have set its group reference: it is never placed alone.
//!
//! A LeaderWorkerSet's settings are on its pods; JobSets and Jobs are watched, and only their gang settings are kept.
//! Must not depend on how references are written.

use std::collections::BTreeSet;
use std::convert::Infallible;

use kube::core::ApiResource;
use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::owners::{GangedOwners, GroupApi, ProviderName, job, job_set, leader_worker_set};
use muster_api::selector::Labels;
use muster_api::wire::{Job, JobSet, Pod};
use muster_reflector::{Delta, Key, Table, key_of};

use super::raw::RawObject;

/// A watched kind of owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum OwnerKind {
    JobSet,
    Job,
}

impl OwnerKind {
    /// The plural in API paths.
    pub(crate) fn plural(self) -> &'static str {
        match self {
            Self::JobSet => "jobsets",
            Self::Job => "jobs",
        }
    }

    /// Its API resource.
    pub(crate) fn resource(self) -> ApiResource {
        match self {
            Self::JobSet => ApiResource::erase::<JobSet>(&()),
            Self::Job => ApiResource::erase::<Job>(&()),
        }
    }
}

/// The kinds that are watched.
pub(crate) fn watched(ganged: GangedOwners) -> impl Iterator<Item = OwnerKind> {
    let job_sets = ganged.job_sets.map(|_| OwnerKind::JobSet);
    job_sets.into_iter().chain(ganged.jobs.map(|_| OwnerKind::Job))
}

/// The owner that may make a pod part of a gang.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// A JobSet and one of its replicated Jobs. The UID is empty if the pod does not have it.
    JobSet { name: String, uid: String, replicated_job: String },
    /// A Job, by name and UID.
    Job { name: String, uid: String },
    /// A LeaderWorkerSet, and the error in the pod's gang mode, if there is one.
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

    /// Whether a change of this object affects the pod.
    pub(super) fn is(&self, kind: OwnerKind, object: &str) -> bool {
        match self {
            Self::JobSet { name, .. } => kind == OwnerKind::JobSet && name == object,
            Self::Job { name, .. } => kind == OwnerKind::Job && name == object,
            Self::LeaderWorkerSet { .. } => false,
        }
    }
}

/// The gang settings of a JobSet: the ganged replicated Jobs, or an error.
type GangSettings = Result<BTreeSet<String>, String>;

/// The gang settings of the known owners.
#[derive(Debug)]
pub(super) struct Owners {
    ganged: GangedOwners,
    /// Our scheduler names: the pods of a gang must have one of them.
    scheduler_names: Vec<String>,
    /// UID and gang settings.
    job_sets: Table<Key, (String, GangSettings)>,
    /// UID and whether it is a gang, or an error.
    jobs: Table<Key, (String, Result<bool, String>)>,
}

impl Owners {
    pub(super) fn new(ganged: GangedOwners, scheduler_names: Vec<String>) -> Self {
        let job_sets = ganged.job_sets.map_or_else(Table::unwatched, |_| Table::default());
        let jobs = ganged.jobs.map_or_else(Table::unwatched, |_| Table::default());
        Self { ganged, scheduler_names, job_sets, jobs }
    }

    pub(super) fn has_synced(&self) -> bool {
        self.job_sets.has_synced() && self.jobs.has_synced()
    }

    /// Applies an event. Returns the objects whose gang settings have changed. An object that cannot be parsed has an
    /// error as its setting.
    pub(super) fn on_delta(&mut self, kind: OwnerKind, delta: Delta<RawObject>) -> Vec<Key> {
        let (names, uid) =
            (&self.scheduler_names, |object: &RawObject| object.metadata.uid.clone().unwrap_or_default());
        match kind {
            OwnerKind::JobSet => {
                let read = |object: RawObject| Ok((uid(&object), gang_settings(object.text.get(), names)));
                self.job_sets.update::<_, Infallible>(delta, key_of, read).0
            }
            OwnerKind::Job => {
                let implicit = self.ganged.jobs.unwrap_or_default();
                let read = |object: RawObject| Ok((uid(&object), is_gang(object.text.get(), implicit, names)));
                self.jobs.update::<_, Infallible>(delta, key_of, read).0
            }
        }
    }

    /// Whether pods of such an owner get references from our controllers.
    pub(super) fn is_managed(&self, owner: &Owner) -> bool {
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
    pub(super) fn hold_reason(&self, namespace: &str, owner: &Owner) -> Option<InvalidField> {
        match owner {
            Owner::JobSet { name, uid, replicated_job } => {
                let carrier = self.ganged.job_sets.filter(|_| self.job_sets.is_served() == Some(true))?;
                let labels = FieldPath::Root("metadata.labels");
                let invalid = |reason: &str| Some(labels.key(job_set::labels::JOB_SET).invalid(name, reason));
                let known = self.job_sets.entries.get(&(namespace.to_owned(), name.clone()));
                // A recreated JobSet of this name may have other settings.
                let known =
                    known.filter(|(known, _)| uid.is_empty() || known == uid).map(|(_, gang_settings)| gang_settings);
                match known {
                    None => invalid("there is no such JobSet, so it is not known whether the pod belongs to a gang"),
                    Some(Ok(ganged)) if !ganged.contains(replicated_job) => None,
                    Some(Ok(_)) if carrier == GroupApi::Native => invalid(MISSED_OF_SET),
                    Some(Ok(_)) => invalid(UNNAMED),
                    Some(Err(flaw)) => invalid(&format!("the JobSet asks for invalid gangs: {flaw}")),
                }
            }
            Owner::Job { name, uid } => {
                self.ganged.jobs?;
                let path = FieldPath::Root("metadata.ownerReferences");
                let invalid = |reason: &str| Some(path.invalid(&format!("Job {name}"), reason));
                match self.jobs.entries.get(&(namespace.to_owned(), name.clone())).filter(|(known, _)| known == uid) {
                    None => {
                        invalid("the Job has not been seen yet, so it is not known whether the pod belongs to a gang")
                    }
                    Some((_, Ok(false))) => None,
                    Some((_, Ok(true))) => invalid(UNNAMED),
                    Some((_, Err(flaw))) => invalid(&format!("the Job asks for an invalid gang: {flaw}")),
                }
            }
            Owner::LeaderWorkerSet { name, flaw } => {
                // YuniKorn's annotations are not read here; its pods are scheduled as they are.
                let provider = self.ganged.leader_worker_sets.filter(|provider| *provider != ProviderName::YuniKorn)?;
                let path = FieldPath::Root("metadata.labels");
                let unnamed = if provider == ProviderName::Native { MISSED_OF_REPLICA } else { UNNAMED };
                let reason = flaw.as_deref().unwrap_or(unnamed);
                Some(path.key(leader_worker_set::labels::NAME).invalid(name, reason))
            }
        }
    }
}

const UNNAMED: &str = "the pod belongs to a gang and names no group: neither the webhook nor the controllers have set one yet, and it is not placed alone";

const MISSED_OF_SET: &str = "the pod belongs to a gang and names no group: the webhook was not called, and the reference cannot be added later; it is not placed alone. Once the webhook answers, recreate the JobSet";
const MISSED_OF_REPLICA: &str = "the pod belongs to a gang and names no group: the webhook was not called when it was created, and the reference cannot be added later; it is not placed alone. Once the webhook answers, delete the pod: it is recreated with its reference";

fn is_gang(text: &str, implicit: job::ImplicitGangs, scheduler_names: &[String]) -> Result<bool, String> {
    let job: Job = serde_json::from_str(text).map_err(|error| error.to_string())?;
    job::gang(&job, implicit, scheduler_names).map(|gang| gang.is_some()).map_err(|flaw| flaw.message)
}

fn gang_settings(text: &str, scheduler_names: &[String]) -> GangSettings {
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
    use crate::intake::{Intake, WatchEvent};
    use crate::settings::Profile;

    fn intake() -> Intake {
        let ganged = GangedOwners::all();
        let dialects: Vec<Box<dyn Dialect>> = vec![Box::new(MusterWorkload), Box::new(MusterPodGroup)];
        let mut intake = Intake::new(vec![Profile::default()], Vec::new(), FeatureGates::default(), ganged, dialects);
        intake.handle(WatchEvent::Owner(OwnerKind::JobSet, Delta::ListDone), 0);
        intake
    }

    fn owner_event(kind: OwnerKind, object: &Value) -> WatchEvent {
        WatchEvent::Owner(kind, Delta::Applied(serde_json::from_str(&object.to_string()).unwrap()))
    }

    fn job_set(mode: &str) -> Value {
        let template = json!({"spec": {"template": {"spec": {"schedulerName": "muster", "containers": []}}}});
        json!({"metadata": {"namespace": "ml", "name": "js", "annotations": {"muster.dev/gang-mode": mode}},
            "spec": {"replicatedJobs": [{"name": "workers", "template": template}]}})
    }

    /// The pod as last observed by the engine.
    fn apply_pod(intake: &mut Intake, metadata: &Value) -> PodSpec {
        let mut whole = json!({"namespace": "ml", "name": "p", "uid": "1"});
        whole.as_object_mut().unwrap().extend(metadata.as_object().unwrap().clone());
        let pod = json!({"metadata": whole, "spec": {"schedulerName": "muster", "containers": []}});
        let delta = Delta::Applied(serde_json::from_str(&pod.to_string()).unwrap());
        last_pod(intake.handle(WatchEvent::Pod(delta), 0).observations).expect("a pod is observed")
    }

    fn last_pod(observations: Vec<Observation>) -> Option<PodSpec> {
        let pod = |one| if let Observation::PodSeen(spec) = one { Some(spec) } else { None };
        observations.into_iter().filter_map(pod).next_back()
    }

    #[test]
    fn a_pod_of_a_ganged_job_set_waits_for_its_reference_and_then_joins() {
        let mut intake = intake();
        let labels = json!({
            "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        });
        let unnamed = json!({"labels": labels});
        let held = apply_pod(&mut intake, &unnamed).refused.expect("the set is not known");
        assert!(held.reason.contains("no such JobSet"), "{held:?}");
        let observed =
            last_pod(intake.handle(owner_event(OwnerKind::JobSet, &job_set("Gang")), 0).observations).unwrap();
        assert!(observed.refused.unwrap().reason.contains("names no group"));
        let annotations = json!({"muster.dev/workload": "w-js", "muster.dev/pod-group": "pg-js"});
        let named = apply_pod(&mut intake, &json!({"labels": labels, "annotations": annotations}));
        assert!(named.refused.is_none() && named.membership.is_some(), "{named:?}");
        // From now on the reference is fixed.
        let again = apply_pod(&mut intake, &unnamed);
        assert!(again.membership.is_some() && again.refused.is_none());
    }

    #[test]
    fn a_pod_of_a_job_set_without_gangs_is_not_held() {
        let mut intake = intake();
        let labels = json!({
            "jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        });
        apply_pod(&mut intake, &json!({"labels": labels}));
        let free = last_pod(intake.handle(owner_event(OwnerKind::JobSet, &job_set("Off")), 0).observations).unwrap();
        assert_eq!(free.refused, None);
        let wrong = last_pod(intake.handle(owner_event(OwnerKind::JobSet, &job_set("All")), 0).observations).unwrap();
        assert!(wrong.refused.unwrap().reason.contains("Off, Gang"));
        intake.handle(WatchEvent::Owner(OwnerKind::JobSet, Delta::NotServed), 0);
        assert_eq!(apply_pod(&mut intake, &json!({"labels": labels})).refused, None, "there are no JobSets here");
    }

    #[test]
    fn pods_of_jobs_and_leader_worker_sets_wait_for_their_reference() {
        let mut intake = intake();
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
        let of_job = json!({"ownerReferences": [owner]});
        assert!(apply_pod(&mut intake, &of_job).refused.unwrap().reason.contains("not been seen"));
        let mut job = json!({"metadata": {"namespace": "ml", "name": "j", "uid": "u"}, 
            "spec": {"parallelism": 2, "template": {"spec": {"schedulerName": "muster", "containers": []}}}});
        let free = last_pod(intake.handle(owner_event(OwnerKind::Job, &job), 0).observations).unwrap();
        assert_eq!(free.refused, None);
        job["metadata"]["annotations"] = json!({"muster.dev/gang-mode": "Gang"});
        let held = last_pod(intake.handle(owner_event(OwnerKind::Job, &job), 0).observations).unwrap();
        assert!(held.refused.unwrap().reason.contains("names no group"));

        let labels = json!({"leaderworkerset.sigs.k8s.io/name": "lws"});
        assert!(apply_pod(&mut intake, &json!({"labels": labels})).refused.is_some());
        let off = json!({"labels": labels, "annotations": {"muster.dev/gang-mode": "Off"}});
        assert_eq!(apply_pod(&mut intake, &off).refused, None);
    }
}
