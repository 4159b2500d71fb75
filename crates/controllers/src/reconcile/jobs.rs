//! Reconciles the PodGroup of a Job: created when the Job is a gang, with a minimum that follows the Job.

use kube::core::{ApiResource, DynamicObject};
use muster_api::group_topology::Topology;
use muster_api::keys::annotations::{DISRUPTION_MODE, PREEMPTION_COST};
use muster_api::owners::job::{self, JobGang};
use muster_api::selector::Labels;
use muster_api::wire::{Job, Pod, PodGroup};
use serde_json::{Value, json};

use super::{CONFLICT_RETRY, Plan, is_controlled_by, owner_reference, target, warning_event};
use crate::state::State;
use crate::write::{ObjectEvent, Target, Write};
use crate::{disruption, group_annotations};
use muster_reflector::Key;

/// Decides what to write for a Job.
pub(crate) fn reconcile(state: &State, (namespace, name): &Key) -> Plan {
    let Some(job) = state.jobs.find(namespace, name) else { return Plan::default() };
    if job.metadata.deletion_timestamp.is_some() || job.is_finished() {
        return Plan::default();
    }
    let resource = ApiResource::erase::<PodGroup>(&());
    let current = state.managed(&resource).find(namespace, &job::group_name(name));
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    let gang = match job::gang(job, state.settings.jobs().unwrap_or_default(), state.settings.scheduler_names()) {
        Ok(gang) => gang,
        Err(error) => return Plan::of(vec![warning_event(target(&**job), error)]),
    };
    let ours = current.filter(|group| is_controlled_by(&group.metadata, uid));
    let write = match (gang, current) {
        // A template is immutable: one that references our group can never reference another.
        (None, _) if job::references_managed_group(job) => None,
        (None, _) => ours
            .filter(|group| group.metadata.deletion_timestamp.is_none())
            .map(|group| Write::Delete { target: Target::of(&resource, group) }),
        (Some(gang), None) => {
            Some(Write::Create { object: object(job, &gang, minimum(state, job, &gang), &resource), resource })
        }
        (Some(_), Some(group)) if group.metadata.deletion_timestamp.is_some() => None,
        (Some(gang), Some(group)) if ours.is_some() => correction(&gang, minimum(state, job, &gang), group)
            .map(|body| Write::Patch { target: Target::of(&resource, group), body }),
        // It belongs to a deleted Job of this name.
        (Some(_), Some(group)) if is_controlled_by_job(group, name) => {
            Some(Write::Delete { target: Target::of(&resource, group) })
        }
        (Some(gang), Some(_)) => {
            let note = format!(
                "PodGroup {} exists and does not belong to this Job: the pods are scheduled according to it until it is deleted.",
                gang.group
            );
            let event = ObjectEvent { regarding: target(&**job), warning: true, reason: "PodGroupConflict", note };
            return Plan { writes: vec![Write::Event(event)], requeue_after: Some(CONFLICT_RETRY) };
        }
    };
    Plan::of(write.into_iter().collect())
}

fn is_controlled_by_job(group: &DynamicObject, name: &str) -> bool {
    super::controller_of(&group.metadata).is_some_and(|owner| owner.kind == "Job" && owner.name == name)
}

/// The minimum that a Job can still reach. Succeeded pods count while they exist; those that were deleted never come
/// back, so the group must not wait for them.
fn minimum(state: &State, job: &Job, gang: &JobGang) -> i64 {
    let Some(completions) = job.spec.completions else { return gang.min_count };
    let deleted = job.status.succeeded.saturating_sub(succeeded_pods(state, job)).max(0);
    gang.min_count.min(completions - deleted).max(1)
}

/// How many pods of a Job have succeeded and still exist.
pub(crate) fn succeeded_pods(state: &State, job: &Job) -> i64 {
    let metadata = &job.metadata;
    let (namespace, uid) = (metadata.namespace.as_deref(), metadata.uid.as_deref().unwrap_or_default());
    let succeeded = |pod: &Pod| pod.status.phase == "Succeeded" && is_controlled_by(&pod.metadata, uid);
    let existing = state.job_pods.by_index(namespace.unwrap_or_default(), uid).filter(|pod| succeeded(pod)).count();
    i64::try_from(existing).unwrap_or(i64::MAX)
}

/// The patch that the group needs.
fn correction(gang: &JobGang, minimum: i64, group: &DynamicObject) -> Option<Value> {
    let mut patch = json!({});
    let spec = &group.data["spec"];
    if spec["policy"]["gang"]["minCount"].as_i64() != Some(minimum) {
        patch["spec"]["policy"]["gang"]["minCount"] = json!(minimum);
    }
    // Without annotations on the Job, what is written in the group stays.
    if !gang.topology.is_empty() && spec["topology"] != topology(gang) {
        patch["spec"]["topology"] = topology(gang);
    }
    let mode = disruption::annotation(spec, gang.disruption_mode);
    let annotations = group.metadata.annotations.as_ref();
    group_annotations::correct(&mut patch, annotations, DISRUPTION_MODE, mode.as_deref());
    group_annotations::correct(&mut patch, annotations, PREEMPTION_COST, cost(gang).as_deref());
    (patch != json!({})).then_some(patch)
}

/// The topology domains that the pods share.
fn topology(gang: &JobGang) -> Value {
    json!(gang.topology.iter().map(Topology::written).collect::<Vec<_>>())
}

/// The annotation with the cost of evicting the gang.
fn cost(gang: &JobGang) -> Option<String> {
    gang.preemption_cost.map(|cost| cost.to_string())
}

fn object(job: &Job, gang: &JobGang, minimum: i64, resource: &ApiResource) -> Value {
    let mode = gang.disruption_mode.as_str();
    let mut spec = json!({"policy": {"gang": {"minCount": minimum}}, "disruptionMode": mode});
    if !gang.topology.is_empty() {
        spec["topology"] = topology(gang);
    }
    if !gang.priority_class_name.is_empty() {
        spec["priorityClassName"] = json!(gang.priority_class_name);
    }
    let annotations: Labels = cost(gang).map(|cost| (PREEMPTION_COST.to_owned(), cost)).into_iter().collect();
    json!({
        "apiVersion": resource.api_version, "kind": resource.kind,
        "metadata": {
            "name": gang.group, "namespace": job.metadata.namespace, "annotations": annotations,
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    })
}
