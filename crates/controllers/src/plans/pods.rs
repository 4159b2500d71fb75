//! A pod that belongs to a gang and does not say so: the webhook did not see it. Muster's scheduler does not place it, and
//! here it gets its reference, so that a webhook that is away or not installed strands nobody.

use muster_api::makers::job_set::labels as set_labels;
use muster_api::makers::leader_worker_set::Replica;
use muster_api::makers::{Reference, job, job_set, names_a_group};
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use serde_json::{Value, json};

use super::{Plan, controller_of, metadata_of, target};
use crate::mirror::Key;
use crate::providers::Joining;
use crate::world::World;
use crate::write::Write;

/// What is to be written for a pod of a Job or a JobSet.
pub(crate) fn of_job(world: &World, (namespace, name): &Key) -> Plan {
    let Some(pod) = world.job_pods.get(namespace, name).filter(|pod| wants_reference(world, pod)) else {
        return Plan::default();
    };
    let annotations = reference(world, pod).map(|reference| {
        reference.annotations().map(|(key, value)| (key.to_owned(), value.to_owned())).collect::<Labels>()
    });
    annotations.map_or_else(Plan::default, |annotations| join(pod, &Joining { annotations, ..Joining::default() }))
}

/// What is to be written for a pod of a LeaderWorkerSet.
pub(crate) fn of_replica(world: &World, (namespace, name): &Key) -> Plan {
    let Some(pod) = world.replica_pods.get(namespace, name).filter(|pod| wants_reference(world, pod)) else {
        return Plan::default();
    };
    let Some(provider) = world.provider.as_ref().filter(|_| world.is_ganged(pod)) else { return Plan::default() };
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let replica = Replica::of(name, &labels).ok().flatten();
    let joining = replica.and_then(|replica| provider.inject_pod_group_metadata(&replica, pod).ok());
    joining.map_or_else(Plan::default, |joining| join(pod, &joining))
}

/// Whether a pod waits for our scheduler and names no group. Pods that have a node are left alone: as members of a group
/// that has never started they would look like half a start. Pods of other schedulers are placed already, or will be.
fn wants_reference(world: &World, pod: &Pod) -> bool {
    world.settings.scheduler_names.contains(&pod.spec.scheduler_name)
        && pod.spec.node_name.is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && matches!(pod.status.phase.as_str(), "" | "Pending")
        && !names_a_group(&metadata_of(pod), &pod.spec)
}

/// The group that a pod of a Job or JobSet is to name.
fn reference(world: &World, pod: &Pod) -> Option<Reference> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    if let Some(name) = label(set_labels::JOB_SET) {
        let set = world.job_sets.get(namespace, name).filter(|_| world.settings.ganged.job_sets)?;
        // A set of this name that is gone, or not seen yet, may have wanted something else.
        let uid = label(set_labels::JOB_SET_UID);
        if uid.is_some() && uid != set.metadata.uid.as_ref() {
            return None;
        }
        let gangs = job_set::gangs(set, &world.settings.scheduler_names).ok()??;
        return gangs.reference(name, label(set_labels::REPLICATED_JOB)?, label(set_labels::JOB_INDEX)?);
    }
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
    let job = world.jobs.get(namespace, &owner.name).filter(|job| job.metadata.uid.as_ref() == Some(&owner.uid))?;
    let gang = job::gang(job, world.settings.unasked_jobs(), &world.settings.scheduler_names).ok()??;
    Some(Reference { workload: None, group: gang.group, replica_key: None })
}

fn join(pod: &Pod, joining: &Joining) -> Plan {
    let mut metadata = json!({});
    for (field, entries) in [("labels", &joining.labels), ("annotations", &joining.annotations)] {
        if !entries.is_empty() {
            metadata[field] = json!(entries);
        }
    }
    if metadata == json!({}) {
        return Plan::default();
    }
    let body: Value = json!({"metadata": metadata});
    Plan::of(vec![Write::Patch { target: target(pod), body }])
}
