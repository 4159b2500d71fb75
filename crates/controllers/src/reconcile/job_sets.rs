//! Reconciles the Workload and PodGroups of a JobSet: created when the set asks for gangs, recreated when the gangs
//! change, and left alone if a user made them.
//!
//! They stay while the set is suspended and after it finished: a group without pods costs nothing, and is garbage
//! collected with the set.

use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::annotations::{GANG_MODE, WORKLOAD};
use muster_api::native::NativeVersion;
use muster_api::owners::Reference;
use muster_api::owners::job_set::{self, GangGroup, Gangs, labels};
use muster_api::selector::Labels;
use muster_api::wire::{JobSet, Workload};
use serde_json::json;

use super::job_set_objects as objects;
use super::{CONFLICT_RETRY, Plan, is_controlled_by, remove_protection, target, warning_event};
use crate::settings::Settings;
use crate::state::State;
use crate::write::{ObjectEvent, Target, Write};
use muster_reflector::Key;

/// The kinds that are written for JobSets.
pub(crate) fn kinds(settings: &Settings) -> Vec<ApiResource> {
    let native = settings.native_job_sets();
    [workloads(native)].into_iter().chain(native.and_then(NativeVersion::pod_groups)).collect()
}

/// The kind of Workload that is written for JobSets.
pub(crate) fn workloads(native: Option<NativeVersion>) -> ApiResource {
    native.map_or_else(|| ApiResource::erase::<Workload>(&()), NativeVersion::workloads)
}

/// Decides what to write for a JobSet.
pub(crate) fn reconcile(state: &State, (namespace, name): &Key) -> Plan {
    let Some(set) = state.job_sets.find(namespace, name) else { return Plan::default() };
    if set.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let regarding = target(&**set);
    let gangs = match job_set::gangs(set, state.settings.scheduler_names()) {
        Ok(gangs) => gangs,
        Err(error) => return Plan::of(vec![warning_event(regarding, error)]),
    };
    let reconciler = JobSetReconciler::of(state, set, namespace, name);
    let unused = reconciler.unused_workload(gangs.as_ref());
    let unused = unused.map(|note| object_event(&regarding, true, "UserWorkloadUnused", note));
    let Some(gangs) = gangs else { return Plan::of(reconciler.delete_all().into_iter().chain(unused).collect()) };
    if let Err(error) = gangs.check_topology(reconciler.native.is_some()) {
        return Plan::of(vec![warning_event(regarding, error)]);
    }
    let mut writes = Vec::new();
    if gangs.is_split {
        let note = "The set asks for one gang of all its pods, but its Jobs start one after another: each replicated Job is a gang instead.";
        writes.push(object_event(&regarding, false, "GangSplit", note.to_owned()));
    }
    if let Some(user_workload) = reconciler.user_workload() {
        let found = user_workload.metadata.name.clone().unwrap_or_default();
        let rest = if reconciler.has_pod_groups() {
            "PodGroups are not created either: the pods of the set reference PodGroups by the names that Muster gives them, so these must be created too."
        } else {
            "The pods must reference its groups."
        };
        let note = format!(
            "Workload {found} references this set and was not created by Muster: it is left unchanged, and no other one is created. {rest}"
        );
        writes.push(object_event(&regarding, false, "UserWorkloadRespected", note));
        writes.extend(unused);
        return Plan::of(writes);
    }
    let comparison = reconciler.workload(&gangs);
    let workload_is_usable = matches!(comparison, Comparison::UpToDate | Comparison::Change(_));
    writes.extend(comparison.into_write(&regarding));
    if workload_is_usable {
        writes.extend(reconciler.groups(&gangs, &regarding));
    }
    let has_conflict = writes.iter().any(|write| matches!(write, Write::Event(event) if event.warning));
    Plan { writes, requeue_after: has_conflict.then_some(CONFLICT_RETRY) }
}

/// Decides what to write for one PodGroup of a JobSet that exists already, or was deleted. What concerns all of them is
/// decided with the set.
pub(crate) fn reconcile_group(state: &State, (namespace, name): &Key, group: &str) -> Plan {
    let set = state.job_sets.find(namespace, name).filter(|set| set.metadata.deletion_timestamp.is_none());
    let Some(set) = set else { return Plan::default() };
    let Ok(Some(gangs)) = job_set::gangs(set, state.settings.scheduler_names()) else { return Plan::default() };
    let reconciler = JobSetReconciler::of(state, set, namespace, name);
    let workload = state.managed(&workloads(reconciler.native)).find(namespace, &gangs.workload);
    let is_usable = workload.is_some_and(|workload| {
        workload.metadata.deletion_timestamp.is_none()
            && reconciler.is_owned(workload)
            && reconciler.is_managed(workload)
    });
    let native = reconciler.native.and_then(|version| Some((version, version.pod_groups()?)));
    let Some((version, kind)) = native.filter(|_| is_usable && reconciler.user_workload().is_none()) else {
        return Plan::default();
    };
    let write = match gangs.groups.iter().find(|one| one.has_pod_group(&gangs.workload, group)) {
        Some(gang) => {
            let comparison = reconciler.group(&gangs, gang, group, (version, &kind));
            let has_conflict = matches!(comparison, Comparison::Conflict { .. });
            let writes = comparison.into_write(&target(&**set)).into_iter().collect();
            return Plan { writes, requeue_after: has_conflict.then_some(CONFLICT_RETRY) };
        }
        None => state.managed(&kind).find(namespace, group).filter(|object| reconciler.is_leftover(object)),
    };
    Plan::of(write.map(|object| Write::Delete { target: Target::of(&kind, object) }).into_iter().collect())
}

fn object_event(regarding: &Target, warning: bool, reason: &'static str, note: String) -> Write {
    Write::Event(ObjectEvent { regarding: regarding.clone(), warning, reason, note })
}

/// A Workload for a set that a user created.
pub(crate) fn user_workload<'a>(
    state: &'a State,
    set: &'a JobSet,
    (namespace, name): &'a Key,
) -> Option<&'a DynamicObject> {
    JobSetReconciler::of(state, set, namespace, name).user_workload()
}

/// How an object compares to the desired one.
enum Comparison {
    /// It is as desired.
    UpToDate,
    /// It is to be created or patched.
    Change(Write),
    /// It must be recreated: it is to be deleted, or is being deleted. The deletion enqueues the set again.
    Replace(Option<Write>),
    /// A foreign object has the name.
    Conflict { reason: &'static str, note: String },
}

impl Comparison {
    fn into_write(self, regarding: &Target) -> Option<Write> {
        match self {
            Comparison::UpToDate => None,
            Comparison::Change(write) => Some(write),
            Comparison::Replace(write) => write,
            Comparison::Conflict { reason, note } => Some(object_event(regarding, true, reason, note)),
        }
    }
}

/// A set with the caches.
struct JobSetReconciler<'a> {
    state: &'a State,
    set: &'a JobSet,
    namespace: &'a str,
    name: &'a str,
    native: Option<NativeVersion>,
}

impl<'a> JobSetReconciler<'a> {
    fn of(state: &'a State, set: &'a JobSet, namespace: &'a str, name: &'a str) -> Self {
        Self { state, set, namespace, name, native: state.settings.native_job_sets() }
    }

    /// What is wrong with a Workload of a user to whose groups no pod of the set will refer. Kubernetes' own may be for
    /// another controller, or a template that pods do not name.
    fn unused_workload(&self, gangs: Option<&Gangs>) -> Option<String> {
        let workload = self.user_workload().filter(|_| self.native.is_none())?;
        let name = workload.metadata.name.as_deref().unwrap_or_default();
        let groups: Vec<&str> = workload.data["spec"]["podGroups"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|group| group["name"].as_str())
            .collect();
        let templates =
            self.set.spec.replicated_jobs.iter().map(|job| &job.template.spec.template.metadata.annotations);
        let names = |annotations: &Labels| annotations.get(WORKLOAD).map(String::as_str) == Some(name);
        if templates.into_iter().any(names) {
            return None;
        }
        let path = format!("spec.replicatedJobs[].template.spec.template.metadata.annotations[{WORKLOAD}]");
        let Some(gangs) = gangs else {
            return Some(format!(
                "Workload {name} references this set, but no pod names it, so the pods are not gangs: name it in {path}, or request a gang with {GANG_MODE}."
            ));
        };
        if gangs.workload != name {
            let wanted = gangs.groups.iter().map(|group| group.name.as_str()).collect::<Vec<_>>().join(", ");
            return Some(format!(
                "Workload {name} references this set, but the pods name Workload {}: call it so, with groups {wanted}, or name it in {path}.",
                gangs.workload
            ));
        }
        let missing = gangs.groups.iter().find(|group| !groups.contains(&group.name.as_str()))?;
        Some(format!(
            "Workload {name} has no group {}, which pods of this set name: create it with that group in spec.podGroups, or let Muster create it.",
            missing.name
        ))
    }

    /// A Workload for the set that a user created.
    fn user_workload(&self) -> Option<&'a DynamicObject> {
        let reference = json!({"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": self.name});
        let references_set = |workload: &DynamicObject| {
            let written = &workload.data["spec"]["controllerRef"];
            ["apiGroup", "kind", "name"].iter().all(|field| written[*field] == reference[*field])
        };
        let mut all = self.state.managed(&workloads(self.native)).by_index(self.namespace, self.name);
        all.find(|workload| references_set(workload) && !self.is_managed(workload)).map(|workload| &**workload)
    }

    /// Whether the controllers created an object: for this set, or for a deleted one of the same name.
    fn is_managed(&self, object: &DynamicObject) -> bool {
        let owner = super::controller_of(&object.metadata);
        // A user may have made the set its owner too; only the controllers write the label.
        let labelled = object.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::JOB_SET_UID));
        labelled && owner.is_some_and(|owner| owner.kind == "JobSet" && owner.name == self.name)
    }

    /// Whether groups are separate objects, which pods reference.
    fn has_pod_groups(&self) -> bool {
        self.native.and_then(NativeVersion::pod_groups).is_some()
    }

    fn is_owned(&self, object: &DynamicObject) -> bool {
        is_controlled_by(&object.metadata, self.set.metadata.uid.as_deref().unwrap_or_default())
    }

    /// Whether an object that is not wanted any more is to be deleted.
    fn is_leftover(&self, object: &DynamicObject) -> bool {
        object.metadata.deletion_timestamp.is_none() && self.is_owned(object) && self.is_managed(object)
    }

    /// Deletes all managed objects of a set that asks for no gangs.
    fn delete_all(&self) -> Vec<Write> {
        let mut writes = Vec::new();
        for kind in kinds(&self.state.settings) {
            let all =
                self.state.managed(&kind).by_index(self.namespace, self.name).filter(|object| self.is_leftover(object));
            writes.extend(all.map(|object| Write::Delete { target: Target::of(&kind, object) }));
        }
        writes
    }

    /// Compares a managed object with the desired one. `correction` returns the change that an object of this set
    /// needs.
    fn compare(
        &self,
        kind: &ApiResource,
        name: &str,
        desired: impl FnOnce() -> serde_json::Value,
        correction: impl FnOnce(&DynamicObject) -> objects::Correction,
    ) -> Comparison {
        let Some(current) = self.state.managed(kind).find(self.namespace, name) else {
            return Comparison::Change(Write::Create { resource: kind.clone(), object: desired() });
        };
        let target = Target::of(kind, current);
        if self.is_managed(current) {
            return if current.metadata.deletion_timestamp.is_some() {
                Comparison::Replace(remove_protection(&target, current))
            } else if self.is_owned(current) {
                match correction(current) {
                    objects::Correction::None => Comparison::UpToDate,
                    objects::Correction::Patch(body) => Comparison::Change(Write::Patch { target, body }),
                    objects::Correction::Recreate => Comparison::Replace(Some(Write::Delete { target })),
                }
            } else {
                // It belongs to a deleted set of this name.
                Comparison::Replace(Some(Write::Delete { target }))
            };
        }
        let (reason, effect) = match (kind.kind.as_str(), self.has_pod_groups()) {
            ("Workload", true) => {
                ("WorkloadConflict", "no PodGroups are created, and the pods wait until it is deleted")
            }
            ("Workload", false) => {
                ("WorkloadConflict", "the pods are scheduled according to its groups until it is deleted")
            }
            _ => ("PodGroupConflict", "the pods are scheduled according to it until it is deleted"),
        };
        let note = format!("{} {name} exists and does not belong to this JobSet: {effect}.", kind.kind);
        Comparison::Conflict { reason, note }
    }

    fn workload(&self, gangs: &Gangs) -> Comparison {
        let desired = objects::workload(self.set, gangs, self.native, &workloads(self.native));
        self.compare(
            &workloads(self.native),
            &gangs.workload,
            || desired.clone(),
            |current| objects::workload_correction(current, &desired, gangs, self.native),
        )
    }

    /// The PodGroups for the groups of the Workload, where groups are separate objects.
    fn groups(&self, gangs: &Gangs, regarding: &Target) -> Vec<Write> {
        let Some((version, kind)) = self.native.and_then(|version| Some((version, version.pod_groups()?))) else {
            return Vec::new();
        };
        let desired: Vec<(Reference, &GangGroup)> = gangs
            .groups
            .iter()
            .flat_map(|group| group.references(&gangs.workload).map(move |reference| (reference, group)))
            .collect();
        let mut writes = Vec::new();
        for (reference, group) in &desired {
            let comparison = self.group(gangs, group, &reference.pod_group_name(), (version, &kind));
            writes.extend(comparison.into_write(regarding));
        }
        let names: std::collections::BTreeSet<String> = desired.iter().map(|(one, _)| one.pod_group_name()).collect();
        let is_unwanted = |object: &DynamicObject| {
            object.metadata.name.as_ref().is_some_and(|name| !names.contains(name)) && self.is_leftover(object)
        };
        let leftover =
            self.state.managed(&kind).by_index(self.namespace, self.name).filter(|object| is_unwanted(object));
        writes.extend(leftover.map(|object| Write::Delete { target: Target::of(&kind, object) }));
        writes
    }

    /// The PodGroup of this name, which is that of a group or of one of its replicas.
    fn group(
        &self,
        gangs: &Gangs,
        group: &GangGroup,
        name: &str,
        (version, kind): (NativeVersion, &ApiResource),
    ) -> Comparison {
        let object = || objects::pod_group(self.set, gangs, group, name, (version, kind));
        self.compare(kind, name, object, |current| objects::pod_group_correction(current, gangs, group, version))
    }
}
