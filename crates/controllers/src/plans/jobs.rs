//! The PodGroup of a Job: made when the Job is a gang, its minimum kept as the Job has it.

use kube::core::ApiResource;
use muster_api::makers::job::{self, JobGang};
use muster_api::wire::{Job, PodGroup};
use serde_json::{Value, json};

use super::{IN_THE_WAY, Plan, is_controlled_by, owner, target, tell_flaw};
use crate::mirror::Key;
use crate::world::World;
use crate::write::{Target, Word, Write};

/// What is to be written for a Job.
pub(crate) fn plan(world: &World, (namespace, name): &Key) -> Plan {
    let Some(job) = world.jobs.get(namespace, name) else { return Plan::default() };
    if job.metadata.deletion_timestamp.is_some() || job.is_finished() {
        return Plan::default();
    }
    let resource = ApiResource::erase::<PodGroup>(&());
    let current = world.groups.get(namespace, &job::group_name(name));
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let gang = match job::gang(job, world.settings.unasked_jobs(), &world.settings.scheduler_names) {
        Ok(gang) => gang,
        Err(flaw) => return Plan::of(vec![tell_flaw(target(&**job), flaw)]),
    };
    let ours = current.filter(|group| is_controlled_by(&group.metadata, uid));
    let write = match (gang, current) {
        // A template that names our group can never name another.
        (None, _) if job::names_our_group(job) => None,
        (None, _) => ours
            .filter(|group| group.metadata.deletion_timestamp.is_none())
            .map(|group| Write::Delete { target: Target::of(&resource, group) }),
        (Some(gang), None) => Some(Write::Create { object: object(job, &gang, &resource), resource }),
        (Some(_), Some(group)) if group.metadata.deletion_timestamp.is_some() => None,
        (Some(gang), Some(group)) if ours.is_some() => {
            let there = group.data.pointer("/spec/policy/gang/minCount").and_then(Value::as_i64);
            (there != Some(gang.min_count)).then(|| Write::Patch {
                target: Target::of(&resource, group),
                body: json!({"spec": {"policy": {"gang": {"minCount": gang.min_count}}}}),
            })
        }
        // Of a Job of this name that is gone.
        (Some(_), Some(group)) if is_of_a_job(group, name) => {
            Some(Write::Delete { target: Target::of(&resource, group) })
        }
        (Some(gang), Some(_)) => {
            let note = format!(
                "PodGroup {} is there and is not this Job's: its pods are placed as that group says until it is gone.",
                gang.group
            );
            let word = Word { about: target(&**job), warning: true, reason: "PodGroupConflict", note };
            return Plan { writes: vec![Write::Tell(word)], again: Some(IN_THE_WAY) };
        }
    };
    Plan::of(write.into_iter().collect())
}

fn is_of_a_job(group: &kube::core::DynamicObject, name: &str) -> bool {
    super::controller_of(&group.metadata).is_some_and(|owner| owner.kind == "Job" && owner.name == name)
}

fn object(job: &Job, gang: &JobGang, resource: &ApiResource) -> Value {
    let mut spec = json!({"policy": {"gang": {"minCount": gang.min_count}}});
    if gang.goes_whole {
        spec["disruptionMode"] = json!("PodGroup");
    }
    if !gang.priority_class_name.is_empty() {
        spec["priorityClassName"] = json!(gang.priority_class_name);
    }
    json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {"name": gang.group, "namespace": job.metadata.namespace, "ownerReferences": [owner(job)]},
        "spec": spec,
    })
}
