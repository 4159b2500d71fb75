//! A pod that belongs to a gang and does not say so: the webhook did not see it. Muster's scheduler does not place it, and
//! here it gets its reference, so that a webhook that is away or not installed strands nobody.

use muster_api::makers::job_set::labels as set_labels;
use muster_api::makers::leader_worker_set::Replica;
use muster_api::makers::{Joining, Reference, job, job_set, names_a_group};
use muster_api::wire::Pod;
use serde_json::{Value, json};

use super::{Plan, controller_of, target};
use crate::mirror::Key;
use crate::world::World;
use crate::write::Write;

/// What is to be written for a pod of a Job or a JobSet.
pub(crate) fn of_job(world: &World, (namespace, name): &Key) -> Plan {
    let Some(pod) = world.job_pods.get(namespace, name).filter(|pod| wants_reference(world, pod)) else {
        return Plan::default();
    };
    reference(world, pod).map_or_else(Plan::default, |joining| join(pod, &joining))
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
    world.settings.scheduler_names().contains(&pod.spec.scheduler_name)
        && pod.spec.node_name.is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && matches!(pod.status.phase.as_str(), "" | "Pending")
        && !names_a_group(&pod.into(), &pod.spec)
}

/// How a pod of a Job or JobSet is to name its group.
fn reference(world: &World, pod: &Pod) -> Option<Joining> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    if let Some(name) = label(set_labels::JOB_SET) {
        let set = world.job_sets.get(namespace, name)?;
        // A set of this name that is gone, or not seen yet, may have wanted something else.
        let uid = label(set_labels::JOB_SET_UID);
        if uid.is_some() && uid != set.metadata.uid.as_ref() {
            return None;
        }
        let gangs = job_set::gangs(set, world.settings.scheduler_names()).ok()??;
        let reference = gangs.reference(name, label(set_labels::REPLICATED_JOB)?, label(set_labels::JOB_INDEX)?);
        return reference.map(|reference| reference.joining(world.settings.native_job_sets()));
    }
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
    let job = world.jobs.get(namespace, &owner.name).filter(|job| job.metadata.uid.as_ref() == Some(&owner.uid))?;
    let gang = job::gang(job, world.settings.jobs().unwrap_or_default(), world.settings.scheduler_names()).ok()??;
    Some(Reference { workload: None, group: gang.group, replica_key: None }.joining(None))
}

/// Gives a pod its reference. Fields of its spec cannot be given any more: such a pod waits, and is told why.
fn join(pod: &Pod, joining: &Joining) -> Plan {
    let mut metadata = json!({});
    for (field, entries) in [("labels", &joining.labels), ("annotations", &joining.annotations)] {
        if !entries.is_empty() {
            metadata[field] = json!(entries);
        }
    }
    if metadata == json!({}) || !joining.comes_late() {
        return Plan::default();
    }
    let body: Value = json!({"metadata": metadata});
    Plan::of(vec![Write::Patch { target: target(pod), body }])
}
