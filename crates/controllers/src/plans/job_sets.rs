//! The Workload of a JobSet: made when it asks for gangs, made anew when they change, and left alone if it is a user's.
//!
//! It stays while the set is suspended and after its end: a group without pods costs nothing, and it goes with the set.

use kube::core::{ApiResource, DynamicObject};
use muster_api::keys::annotations::WHOLE_RESOURCES;
use muster_api::makers::job_set::{self, Gangs, labels};
use muster_api::makers::requests::written;
use muster_api::selector::Labels;
use muster_api::wire::{JobSet, Workload};
use serde_json::{Value, json};

use super::{IN_THE_WAY, Plan, is_controlled_by, owner, target, tell_flaw};
use crate::mirror::Key;
use crate::world::World;
use crate::write::{Target, Word, Write};

/// What is to be written for a JobSet.
pub(crate) fn plan(world: &World, (namespace, name): &Key) -> Plan {
    let Some(set) = world.job_sets.get(namespace, name) else { return Plan::default() };
    if set.metadata.deletion_timestamp.is_some() {
        return Plan::default();
    }
    let about = target(&**set);
    let gangs = match job_set::gangs(set, &world.settings.scheduler_names) {
        Ok(gangs) => gangs,
        Err(flaw) => return Plan::of(vec![tell_flaw(about, flaw)]),
    };
    let Some(gangs) = gangs else { return Plan::of(without_gangs(world, set)) };
    let mut writes = Vec::new();
    if gangs.is_split {
        let note = "A gang of the whole set was asked for. Its Jobs start one after the other, so each replicated Job is a gang of its own.";
        writes.push(Write::Tell(Word {
            about: about.clone(),
            warning: false,
            reason: "GangSplit",
            note: note.to_owned(),
        }));
    }
    if let Some(by_user) = made_by_user(world, set) {
        let found = by_user.metadata.name.clone().unwrap_or_default();
        let note = format!(
            "Workload {found} names this set and was not made by Muster: it is left as it is, and none is made. Pods have to name its groups."
        );
        writes.push(Write::Tell(Word { about, warning: false, reason: "UserWorkloadRespected", note }));
        return Plan::of(writes);
    }
    let write = ensure(world, set, &gangs, &about);
    let again = matches!(write, Some(Write::Tell(_))).then_some(IN_THE_WAY);
    writes.extend(write);
    Plan { writes, again }
}

/// A Workload for the set that a user has made.
fn made_by_user<'a>(world: &'a World, set: &'a JobSet) -> Option<&'a DynamicObject> {
    let (namespace, name) = names(set);
    let reference = json!({"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": name});
    let names_it = |workload: &DynamicObject| {
        let written = &workload.data["spec"]["controllerRef"];
        ["apiGroup", "kind", "name"].iter().all(|field| written[*field] == reference[*field])
    };
    let found = world.workloads.within(namespace).find(|workload| names_it(workload) && !is_ours(workload, set));
    found.map(|workload| &**workload)
}

/// Whether we have made a Workload: for this set, or for one of the same name that is gone.
fn is_ours(workload: &DynamicObject, set: &JobSet) -> bool {
    let owner = super::controller_of(&workload.metadata);
    // A user may have made the set its owner, too; nobody but us writes the label.
    let labelled = workload.metadata.labels.as_ref().is_some_and(|all| all.contains_key(labels::JOB_SET_UID));
    labelled && owner.is_some_and(|owner| owner.kind == "JobSet" && Some(&owner.name) == set.metadata.name.as_ref())
}

fn names(set: &JobSet) -> (&str, &str) {
    let metadata = &set.metadata;
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

/// A set that asks for no gangs has no Workload of ours.
fn without_gangs(world: &World, set: &JobSet) -> Vec<Write> {
    let (namespace, name) = names(set);
    let uid = set.metadata.uid.as_deref().unwrap_or_default();
    let ours = world.workloads.get(namespace, &job_set::workload_name(name));
    let ours = ours.filter(|workload| is_controlled_by(&workload.metadata, uid) && is_ours(workload, set));
    ours.filter(|workload| workload.metadata.deletion_timestamp.is_none())
        .map(|workload| Write::Delete { target: Target::of(&resource(), workload) })
        .into_iter()
        .collect()
}

fn resource() -> ApiResource {
    ApiResource::erase::<Workload>(&())
}

fn ensure(world: &World, set: &JobSet, gangs: &Gangs, about: &Target) -> Option<Write> {
    let (namespace, name) = names(set);
    let wanted = spec(gangs, name);
    let Some(current) = world.workloads.get(namespace, &gangs.workload) else {
        return Some(Write::Create { resource: resource(), object: object(set, gangs, &wanted) });
    };
    if current.metadata.deletion_timestamp.is_some() {
        // Its end is seen, and the set is looked at again.
        return None;
    }
    let target = Target::of(&resource(), current);
    if is_controlled_by(&current.metadata, set.metadata.uid.as_deref().unwrap_or_default()) {
        // Groups of a Workload never change: another takes its place.
        let whole = current.metadata.annotations.as_ref().and_then(|all| all.get(WHOLE_RESOURCES)).cloned();
        let is_right = is_as_wanted(&current.data["spec"], &wanted) && whole == whole_resources(gangs);
        return (!is_right).then_some(Write::Delete { target });
    }
    if is_ours(current, set) {
        // Of a set of this name that is gone.
        return Some(Write::Delete { target });
    }
    let note = format!(
        "Workload {} is there and is neither this set's nor names it: the pods are placed as its groups say until it is gone.",
        gangs.workload
    );
    Some(Write::Tell(Word { about: about.clone(), warning: true, reason: "WorkloadConflict", note }))
}

fn spec(gangs: &Gangs, set: &str) -> Value {
    let groups: Vec<Value> = gangs
        .groups
        .iter()
        .map(|group| {
            let mut written = json!({"name": group.name, "policy": {"gang": {"minCount": group.minimum()}}});
            if !group.priority_class_name.is_empty() {
                written["priorityClassName"] = json!(group.priority_class_name);
            }
            written
        })
        .collect();
    json!({
        "controllerRef": {"apiGroup": "jobset.x-k8s.io", "kind": "JobSet", "name": set},
        "podGroups": groups,
    })
}

/// Whether a Workload has the groups that are wanted. What the server or others fill in does not count.
fn is_as_wanted(current: &Value, wanted: &Value) -> bool {
    let list = |spec: &Value| spec["podGroups"].as_array().cloned().unwrap_or_default();
    let (current, wanted) = (list(current), list(wanted));
    let same = |one: &Value, other: &Value| {
        one["name"] == other["name"]
            && one["policy"]["gang"]["minCount"] == other["policy"]["gang"]["minCount"]
            && one["priorityClassName"] == other["priorityClassName"]
    };
    current.len() == wanted.len() && wanted.iter().all(|group| current.iter().any(|there| same(there, group)))
}

/// What the first gang has to wait for if the others start after it.
fn whole_resources(gangs: &Gangs) -> Option<String> {
    (!gangs.whole_resources.is_empty()).then(|| json!(written(&gangs.whole_resources)).to_string())
}

fn object(set: &JobSet, gangs: &Gangs, spec: &Value) -> Value {
    let (namespace, name) = names(set);
    let annotations: Labels =
        whole_resources(gangs).map(|text| (WHOLE_RESOURCES.to_owned(), text)).into_iter().collect();
    json!({
        "apiVersion": resource().api_version, "kind": resource().kind,
        "metadata": {
            "name": gangs.workload, "namespace": namespace,
            "labels": {labels::JOB_SET: name, labels::JOB_SET_UID: set.metadata.uid},
            "annotations": annotations,
            "ownerReferences": [owner(set)],
        },
        "spec": spec,
    })
}
