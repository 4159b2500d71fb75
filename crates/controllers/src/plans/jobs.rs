//! The PodGroup of a Job: made when the Job is a gang, its minimum kept as the Job has it.

use kube::core::ApiResource;
use muster_api::makers::job::{self, JobGang};
use muster_api::wire::{Job, Pod, PodGroup};
use serde_json::{Value, json};

use super::{IN_THE_WAY, Plan, is_controlled_by, owner, target, tell_flaw};
use crate::mirror::Key;
use crate::world::World;
use crate::write::{Target, Word, Write};

/// Members are disrupted one by one, or all together.
const POD: &str = "Pod";
const POD_GROUP: &str = "PodGroup";

/// What is to be written for a Job.
pub(crate) fn plan(world: &World, (namespace, name): &Key) -> Plan {
    let Some(job) = world.jobs.get(namespace, name) else { return Plan::default() };
    if job.metadata.deletion_timestamp.is_some() || job.is_finished() {
        return Plan::default();
    }
    let resource = ApiResource::erase::<PodGroup>(&());
    let current = world.written(&resource).get(namespace, &job::group_name(name));
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let gang = match job::gang(job, world.settings.jobs().unwrap_or_default(), world.settings.scheduler_names()) {
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
        (Some(gang), None) => {
            Some(Write::Create { object: object(job, &gang, minimum(world, job, &gang), &resource), resource })
        }
        (Some(_), Some(group)) if group.metadata.deletion_timestamp.is_some() => None,
        (Some(gang), Some(group)) if ours.is_some() => {
            return Plan::of(correction(job, &gang, minimum(world, job, &gang), group, &resource));
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

/// The minimum that a Job can still have. Pods that finished well count as long as they are there; those that were
/// cleaned away never come again, and nobody must wait for them.
fn minimum(world: &World, job: &Job, gang: &JobGang) -> i64 {
    let Some(completions) = job.spec.completions else { return gang.min_count };
    let metadata = &job.metadata;
    let (namespace, uid) = (metadata.namespace.as_deref(), metadata.uid.as_deref().unwrap_or_default());
    let finished = |pod: &Pod| pod.status.phase == "Succeeded" && is_controlled_by(&pod.metadata, uid);
    let there = world.job_pods.of(namespace.unwrap_or_default(), uid).filter(|pod| finished(pod)).count();
    let gone = job.status.succeeded.saturating_sub(i64::try_from(there).unwrap_or(i64::MAX)).max(0);
    gang.min_count.min(completions - gone).max(1)
}

/// What makes the group as it should be, and a word where it cannot be: how a group is disrupted never changes.
fn correction(
    job: &Job,
    gang: &JobGang,
    minimum: i64,
    group: &kube::core::DynamicObject,
    resource: &ApiResource,
) -> Vec<Write> {
    let mut writes = Vec::new();
    if group.data.pointer("/spec/policy/gang/minCount").and_then(Value::as_i64) != Some(minimum) {
        let body = json!({"spec": {"policy": {"gang": {"minCount": minimum}}}});
        writes.push(Write::Patch { target: Target::of(resource, group), body });
    }
    let (there, wanted) = (group.data.pointer("/spec/disruptionMode").and_then(Value::as_str), disruption_mode(gang));
    let there = there.unwrap_or(POD);
    if there != wanted {
        let note = format!(
            "disruptionMode: the Job asks for {wanted} and PodGroup {} has {there}, which cannot be changed; delete the PodGroup, and it is made anew as the Job asks.",
            gang.group
        );
        let word = Word { about: target(job), warning: true, reason: "DisruptionModeUnchanged", note };
        writes.push(Write::Tell(word));
    }
    writes
}

fn disruption_mode(gang: &JobGang) -> &'static str {
    if gang.goes_whole { POD_GROUP } else { POD }
}

fn object(job: &Job, gang: &JobGang, minimum: i64, resource: &ApiResource) -> Value {
    let mut spec = json!({"policy": {"gang": {"minCount": minimum}}});
    if gang.goes_whole {
        spec["disruptionMode"] = json!(POD_GROUP);
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
