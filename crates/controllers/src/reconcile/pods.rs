//! Adds the group reference to pods of gangs that lack it because the webhook did not see them. The scheduler does not
//! place such a pod; with this controller a webhook that is down or not installed strands no pods.

use muster_api::owners::job_set::labels as set_labels;
use muster_api::owners::leader_worker_set::Replica;
use muster_api::owners::{Membership, Reference, job, job_set, references_group};
use muster_api::wire::Pod;
use serde_json::{Value, json};

use super::{Plan, controller_of, target};
use crate::state::State;
use crate::write::Write;
use muster_reflector::Key;

/// Decides what to write for a pod of a Job or a JobSet.
pub(crate) fn reconcile_job_pod(state: &State, (namespace, name): &Key) -> Plan {
    let Some(pod) = state.job_pods.find(namespace, name).filter(|pod| needs_reference(state, pod)) else {
        return Plan::default();
    };
    membership_of(state, pod).map_or_else(Plan::default, |membership| add_membership(pod, &membership))
}

/// Decides what to write for a pod of a LeaderWorkerSet.
pub(crate) fn reconcile_replica_pod(state: &State, (namespace, name): &Key) -> Plan {
    let Some(pod) = state.replica_pods.find(namespace, name).filter(|pod| needs_reference(state, pod)) else {
        return Plan::default();
    };
    let Some(provider) = state.provider.as_ref().filter(|_| state.is_ganged(pod)) else { return Plan::default() };
    let labels = pod.metadata.labels.clone().unwrap_or_default();
    let replica = Replica::of(name, &labels).ok().flatten();
    let membership = replica.and_then(|replica| provider.inject_pod_group_metadata(&replica, pod).ok());
    membership.map_or_else(Plan::default, |membership| add_membership(pod, &membership))
}

/// Whether a pod is pending for our scheduler and references no group. Bound pods are left alone: as members of a group
/// that has never started they would look like a partial start. Pods of other schedulers are not ours to change.
fn needs_reference(state: &State, pod: &Pod) -> bool {
    state.settings.scheduler_names().contains(&pod.spec.scheduler_name)
        && pod.spec.node_name.is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && matches!(pod.status.phase.as_str(), "" | "Pending")
        && !references_group(&pod.into(), &pod.spec)
}

/// The group membership of a pod of a Job or JobSet.
fn membership_of(state: &State, pod: &Pod) -> Option<Membership> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let label = |key: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(key));
    if let Some(name) = label(set_labels::JOB_SET) {
        let set = state.job_sets.find(namespace, name)?;
        // The pod may belong to another set of this name, deleted or not in the cache yet, with other gangs.
        let uid = label(set_labels::JOB_SET_UID);
        if uid.is_some() && uid != set.metadata.uid.as_ref() {
            return None;
        }
        let gangs = job_set::gangs(set, state.settings.scheduler_names()).ok()??;
        let reference = gangs.reference(name, label(set_labels::REPLICATED_JOB)?, label(set_labels::JOB_INDEX)?);
        return reference.map(|reference| reference.membership(state.settings.native_job_sets()));
    }
    let owner = controller_of(&pod.metadata).filter(|owner| owner.kind == "Job")?;
    let job = state.jobs.find(namespace, &owner.name).filter(|job| job.metadata.uid.as_ref() == Some(&owner.uid))?;
    let gang = job::gang(job, state.settings.jobs().unwrap_or_default(), state.settings.scheduler_names()).ok()??;
    Some(Reference { workload: None, group: gang.group, replica_key: None }.membership(None))
}

/// Adds the group reference to a pod. Spec fields of an existing pod are immutable: such a pod stays pending, and the
/// scheduler reports why.
fn add_membership(pod: &Pod, membership: &Membership) -> Plan {
    let mut metadata = json!({});
    for (field, entries) in [("labels", &membership.labels), ("annotations", &membership.annotations)] {
        if !entries.is_empty() {
            metadata[field] = json!(entries);
        }
    }
    if metadata == json!({}) || !membership.can_be_patched() {
        return Plan::default();
    }
    let body: Value = json!({"metadata": metadata});
    Plan::of(vec![Write::Patch { target: target(pod), body }])
}
