//! The Workload of a JobSet: made when it asks for gangs, made anew when they change, and left alone if it is a user's.
//!
//! It stays while the set is suspended and after its end: a group without pods costs nothing, and it goes with the set.

use kube::core::{ApiResource, DynamicObject};
use muster_api::makers::Reference;
use muster_api::makers::job_set::{self, GangGroup, Gangs, labels};
use muster_api::native::NativeVersion;
use muster_api::wire::{JobSet, Workload};
use serde_json::json;

use super::job_set_objects as objects;
use super::{IN_THE_WAY, Plan, is_controlled_by, let_go, target, tell_flaw};
use crate::mirror::Key;
use crate::settings::Settings;
use crate::world::World;
use crate::write::{Target, Word, Write};

/// The kinds that are written for JobSets.
pub(crate) fn kinds(settings: &Settings) -> Vec<ApiResource> {
    let native = settings.native_job_sets();
    [workloads(native)].into_iter().chain(native.and_then(NativeVersion::pod_groups)).collect()
}

fn workloads(native: Option<NativeVersion>) -> ApiResource {
    native.map_or_else(|| ApiResource::erase::<Workload>(&()), NativeVersion::workloads)
}

/// What is to be written for a JobSet.
pub(crate) fn plan(world: &World, (namespace, name): &Key) -> Plan {
    let Some(set) = world.job_sets.get(namespace, name) else { return Plan::default() };
    if set.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let about = target(&**set);
    let gangs = match job_set::gangs(set, world.settings.scheduler_names()) {
        Ok(gangs) => gangs,
        Err(flaw) => return Plan::of(vec![tell_flaw(about, flaw)]),
    };
    let view = View { world, set, namespace, name, native: world.settings.native_job_sets() };
    let Some(gangs) = gangs else { return Plan::of(view.without_gangs()) };
    let mut writes = Vec::new();
    if gangs.is_split {
        let note = "A gang of the whole set was asked for. Its Jobs start one after the other, so each replicated Job is a gang of its own.";
        writes.push(told(&about, false, "GangSplit", note.to_owned()));
    }
    if let Some(by_user) = view.made_by_user() {
        let found = by_user.metadata.name.clone().unwrap_or_default();
        let rest = if view.has_pod_groups() {
            "Nor are PodGroups: pods of the set name those of Muster's names, which have to be made too."
        } else {
            "Pods have to name its groups."
        };
        let note = format!(
            "Workload {found} names this set and was not made by Muster: it is left as it is, and none is made. {rest}"
        );
        writes.push(told(&about, false, "UserWorkloadRespected", note));
        return Plan::of(writes);
    }
    let standing = view.workload(&gangs);
    let goes_on = matches!(standing, Standing::Right | Standing::Wanted(_));
    writes.extend(standing.into_write(&about));
    if goes_on {
        writes.extend(view.groups(&gangs, &about));
    }
    let in_the_way = writes.iter().any(|write| matches!(write, Write::Tell(word) if word.warning));
    Plan { writes, again: in_the_way.then_some(IN_THE_WAY) }
}

fn told(about: &Target, warning: bool, reason: &'static str, note: String) -> Write {
    Write::Tell(Word { about: about.clone(), warning, reason, note })
}

/// How an object stands to what is wanted.
enum Standing {
    /// It is as it should be.
    Right,
    /// It is to be made, or to be changed in place.
    Wanted(Write),
    /// Another has to take its place: it is deleted, or on its way out. Its end is seen, and the set is looked at again.
    Leaving(Option<Write>),
    /// Somebody else's has the name.
    Taken { reason: &'static str, note: String },
}

impl Standing {
    fn into_write(self, about: &Target) -> Option<Write> {
        match self {
            Standing::Right => None,
            Standing::Wanted(write) => Some(write),
            Standing::Leaving(write) => write,
            Standing::Taken { reason, note } => Some(told(about, true, reason, note)),
        }
    }
}

/// A set, and all that has been seen.
struct View<'a> {
    world: &'a World,
    set: &'a JobSet,
    namespace: &'a str,
    name: &'a str,
    native: Option<NativeVersion>,
}

impl View<'_> {
    /// A Workload for the set that a user has made.
    fn made_by_user(&self) -> Option<&DynamicObject> {
        let reference = json!({"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": self.name});
        let names_it = |workload: &DynamicObject| {
            let written = &workload.data["spec"]["controllerRef"];
            ["apiGroup", "kind", "name"].iter().all(|field| written[*field] == reference[*field])
        };
        let mut all = self.world.written(&workloads(self.native)).of(self.namespace, self.name);
        all.find(|workload| names_it(workload) && !self.is_ours(workload)).map(|workload| &**workload)
    }

    /// Whether we have made an object: for this set, or for one of the same name that is gone.
    fn is_ours(&self, object: &DynamicObject) -> bool {
        let owner = super::controller_of(&object.metadata);
        // A user may have made the set its owner, too; nobody but us writes the label.
        let labelled = object.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::JOB_SET_UID));
        labelled && owner.is_some_and(|owner| owner.kind == "JobSet" && owner.name == self.name)
    }

    /// Whether groups are objects of their own, which pods name.
    fn has_pod_groups(&self) -> bool {
        self.native.and_then(NativeVersion::pod_groups).is_some()
    }

    fn is_of_this_set(&self, object: &DynamicObject) -> bool {
        is_controlled_by(&object.metadata, self.set.metadata.uid.as_deref().unwrap_or_default())
    }

    /// A set that asks for no gangs has no objects of ours.
    fn without_gangs(&self) -> Vec<Write> {
        let ours = |object: &DynamicObject| {
            let stays = object.metadata.deletion_timestamp.is_none();
            stays && self.is_of_this_set(object) && self.is_ours(object)
        };
        let mut writes = Vec::new();
        for kind in kinds(&self.world.settings) {
            let all = self.world.written(&kind).of(self.namespace, self.name).filter(|object| ours(object));
            writes.extend(all.map(|object| Write::Delete { target: Target::of(&kind, object) }));
        }
        writes
    }

    /// How an object of ours stands. `correction` is what has to be changed in one that is this set's: nothing, a patch,
    /// or all of it.
    fn standing(
        &self,
        kind: &ApiResource,
        name: &str,
        wanted: impl FnOnce() -> serde_json::Value,
        correction: impl FnOnce(&DynamicObject) -> objects::Correction,
    ) -> Standing {
        let Some(current) = self.world.written(kind).get(self.namespace, name) else {
            return Standing::Wanted(Write::Create { resource: kind.clone(), object: wanted() });
        };
        let target = Target::of(kind, current);
        if self.is_ours(current) {
            return if current.metadata.deletion_timestamp.is_some() {
                Standing::Leaving(let_go(&target, current))
            } else if self.is_of_this_set(current) {
                match correction(current) {
                    objects::Correction::Nothing => Standing::Right,
                    objects::Correction::Patch(body) => Standing::Wanted(Write::Patch { target, body }),
                    objects::Correction::Anew => Standing::Leaving(Some(Write::Delete { target })),
                }
            } else {
                // Of a set of this name that is gone.
                Standing::Leaving(Some(Write::Delete { target }))
            };
        }
        let (reason, what) = match (kind.kind.as_str(), self.has_pod_groups()) {
            ("Workload", true) => ("WorkloadConflict", "no PodGroups are made, and the pods wait until it is gone"),
            ("Workload", false) => ("WorkloadConflict", "the pods are placed as its groups say until it is gone"),
            _ => ("PodGroupConflict", "the pods are placed as it says until it is gone"),
        };
        let note = format!("{} {name} is there and is not this set's: {what}.", kind.kind);
        Standing::Taken { reason, note }
    }

    fn workload(&self, gangs: &Gangs) -> Standing {
        let wanted = objects::workload(self.set, gangs, self.native, &workloads(self.native));
        self.standing(
            &workloads(self.native),
            &gangs.workload,
            || wanted.clone(),
            |current| objects::correction_of_workload(current, &wanted, self.native),
        )
    }

    /// The PodGroups that stand for the groups of the Workload, where these are objects of their own.
    fn groups(&self, gangs: &Gangs, about: &Target) -> Vec<Write> {
        let Some((version, kind)) = self.native.and_then(|version| Some((version, version.pod_groups()?))) else {
            return Vec::new();
        };
        let wanted: Vec<(Reference, &GangGroup)> = gangs
            .groups
            .iter()
            .flat_map(|group| group.references(&gangs.workload).map(move |reference| (reference, group)))
            .collect();
        let mut writes = Vec::new();
        for (reference, group) in &wanted {
            let name = reference.pod_group_name();
            let object = || objects::pod_group(self.set, gangs, group, &name, (version, &kind));
            let standing = self.standing(&kind, &name, object, |current| {
                objects::correction_of_pod_group(current, gangs, group, version)
            });
            writes.extend(standing.into_write(about));
        }
        let names: std::collections::BTreeSet<String> = wanted.iter().map(|(one, _)| one.pod_group_name()).collect();
        let is_left = |object: &DynamicObject| {
            let stays = object.metadata.deletion_timestamp.is_none();
            let unwanted = object.metadata.name.as_ref().is_some_and(|name| !names.contains(name));
            stays && unwanted && self.is_of_this_set(object) && self.is_ours(object)
        };
        let left = self.world.written(&kind).of(self.namespace, self.name).filter(|object| is_left(object));
        writes.extend(left.map(|object| Write::Delete { target: Target::of(&kind, object) }));
        writes
    }
}
