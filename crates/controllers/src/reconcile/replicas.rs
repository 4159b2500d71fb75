//! Reconciles the group of a LeaderWorkerSet's replica, keyed by the leader pod.
//!
//! The minimum is the size of the replica at its own revision. Where workers are created only after their leader is
//! ready (`LeaderReady`) or bound (exclusive topology), the minimum is 1 until then, so that the leader does not wait
//! for pods that cannot exist yet; the resources of the whole replica are written from the start.

use std::time::Duration;

use kube::core::DynamicObject;
use muster_api::group::DisruptionMode;
use muster_api::invalid::FieldPath;
use muster_api::keys::annotations::GANG_MODE;
use muster_api::later_pods::{LATER_PODS_MAX, reduced};
use muster_api::owners::leader_worker_set::{self as lws, Replica, is_leader, labels};
use muster_api::owners::requests::{add_multiple, requests_of};
use muster_api::owners::{GangConfigError, event_reasons, references_group};
use muster_api::preemption_cost::declared;
use muster_api::resources::BaseUnits;
use muster_api::selector::Labels;
use muster_api::wire::condition::Condition;
use muster_api::wire::leader_worker_set::LeaderWorkerTemplate;
use muster_api::wire::template::TemplateMetadata;
use muster_api::wire::{LeaderWorkerSet, Pod};

use super::{Plan, owner_reference, target, warning_event};
use crate::providers::{ReplicaGang, SchedulerProvider};
use crate::read::read;
use crate::state::State;
use crate::write::Write;
use muster_reflector::Key;

/// How soon to retry while the set or the revision of a pod is not in the cache yet.
const CACHE_RETRY: Duration = Duration::from_secs(1);

/// Decides what to write for the replica of a leader.
pub(crate) fn reconcile(state: &State, (namespace, name): &Key) -> Plan {
    let (Some(provider), Some(leader)) = (&state.provider, state.replica_pods.find(namespace, name)) else {
        return Plan::default();
    };
    let has_finished = matches!(leader.status.phase.as_str(), "Succeeded" | "Failed");
    if leader.metadata.deletion_timestamp.is_some() || has_finished {
        return Plan::default();
    }
    let none = Labels::new();
    let annotations = leader.metadata.annotations.as_ref().unwrap_or(&none);
    if let Err(error) = lws::is_off(annotations, &FieldPath::Root("metadata")) {
        return Plan::of(vec![warning_event(target(&**leader), invalid(error.to_string()))]);
    }
    if !state.is_ganged(leader) {
        return Plan::default();
    }
    let replica = match replica_of(leader) {
        Ok(Some(replica)) => replica,
        Ok(None) => return Plan::default(),
        Err(error) => return Plan::of(vec![warning_event(target(&**leader), error)]),
    };
    let Some(set) = state.leader_worker_sets.find(namespace, &replica.set) else {
        return Plan { requeue_after: Some(CACHE_RETRY), ..Plan::default() };
    };
    let Some(template) = template(state, set, &replica) else {
        return Plan { requeue_after: Some(CACHE_RETRY), ..Plan::default() };
    };
    if references_other_group(provider.as_ref(), &replica, leader) {
        return Plan::default();
    }
    match gang(leader, set, &template, replica) {
        Ok(gang) => {
            let misplaced = misplaced_mode(set);
            let kind = provider.resource();
            let current =
                kind.and_then(|kind| state.managed(&kind).find(namespace, &provider.group_name(&gang.replica)));
            let mut plan = provider.create_pod_group_if_not_exists(&gang, current.map(|group| &**group));
            plan.writes.extend(misplaced);
            plan
        }
        Err(error) => Plan::of(vec![warning_event(target(&**leader), error)]),
    }
}

/// Reports a gang mode on the set itself, where it has no effect: it is not copied to the pods.
fn misplaced_mode(set: &LeaderWorkerSet) -> Option<Write> {
    let written = set.metadata.annotations.as_ref()?.get(GANG_MODE)?;
    let annotations = FieldPath::Root("metadata.annotations");
    let reason = "has no effect on the set itself: set it in the metadata of leaderTemplate and workerTemplate";
    let error = annotations.key(GANG_MODE).invalid(written, reason);
    Some(warning_event(target(set), invalid(error.to_string())))
}

/// Whether a leader references a group other than that of its replica: then its author manages the group.
fn references_other_group(provider: &dyn SchedulerProvider, replica: &Replica, leader: &Pod) -> bool {
    let metadata = TemplateMetadata::from(leader);
    let membership = provider.inject_pod_group_metadata(replica, leader);
    let is_ours = membership.is_ok_and(|membership| membership.is_set_on(&metadata, &leader.spec));
    references_group(&metadata, &leader.spec) && !is_ours
}

fn replica_of(leader: &Pod) -> Result<Option<Replica>, GangConfigError> {
    let none = Labels::new();
    let of_pod = leader.metadata.labels.as_ref().unwrap_or(&none);
    if !is_leader(of_pod) {
        return Ok(None);
    }
    Replica::of(leader.metadata.name.as_deref().unwrap_or_default(), of_pod).map_err(|error| invalid(error.to_string()))
}

fn invalid(message: String) -> GangConfigError {
    GangConfigError { reason: event_reasons::INVALID_GANG_MODE, message }
}

/// The templates of leader and workers at the replica's own revision. During a rolling update, older replicas keep the
/// templates they were created from.
fn template(state: &State, set: &LeaderWorkerSet, replica: &Replica) -> Option<LeaderWorkerTemplate> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let matches_revision = |revision: &DynamicObject| {
        let labels = revision.metadata.labels.as_ref();
        let has = |key: &str, value: &str| labels.and_then(|labels| labels.get(key)).is_some_and(|one| one == value);
        has(labels::NAME, &replica.set) && has(labels::REVISION, &replica.revision)
    };
    // Revisions of the set's StatefulSets carry the same labels.
    let template = |revision: &DynamicObject| revision.data.pointer("/data/spec/leaderWorkerTemplate").map(read);
    let revisions = state.revisions.by_index(namespace, &replica.set);
    let mut templates = revisions.filter(|one| matches_revision(one)).filter_map(|one| template(one));
    templates.next()?
}

fn gang(
    leader: &Pod,
    set: &LeaderWorkerSet,
    template: &LeaderWorkerTemplate,
    replica: Replica,
) -> Result<ReplicaGang, GangConfigError> {
    let none = Labels::new();
    let annotations = leader.metadata.annotations.as_ref().unwrap_or(&none);
    let size = lws::size(annotations).map_err(|error| invalid(error.to_string()))?;
    let waits_for_leader = set.spec.startup_policy.as_deref() == Some("LeaderReady");
    let is_exclusive = annotations.contains_key(lws::EXCLUSIVE_TOPOLOGY);
    let workers_can_exist =
        (!waits_for_leader || is_ready(leader)) && (!is_exclusive || !leader.spec.node_name.is_empty());
    // If leader and workers use different nodes, a sum says nothing about capacity for the workers.
    let pods = if workers_can_exist || have_same_node_constraints(template) { size } else { 1 };
    let worker = reduced(&template.worker_template.spec).map_err(|error| {
        let path = FieldPath::Root("spec.leaderWorkerTemplate.workerTemplate.spec");
        invalid(path.invalid("", error).to_string())
    })?;
    let is_checked = (2..=LATER_PODS_MAX).contains(&size);
    let worker = ((waits_for_leader || is_exclusive) && is_checked).then_some(worker);
    Ok(ReplicaGang {
        namespace: leader.metadata.namespace.clone().unwrap_or_default(),
        replica,
        leader: owner_reference(leader),
        min_member: if workers_can_exist { size } else { 1 },
        min_resources: min_resources(leader, template, pods)?,
        pods,
        size,
        later_worker: worker,
        priority_class_name: leader.spec.priority_class_name.clone(),
        disruption_mode: disruption_mode(set)?,
        preemption_cost: declared(set.metadata.annotations.as_ref()).map_err(|error| invalid(error.to_string()))?,
        set_annotations: set.metadata.annotations.clone().unwrap_or_default(),
    })
}

/// The mode on the set. A replica that lost members does no work, so it is evicted whole unless the set says otherwise.
fn disruption_mode(set: &LeaderWorkerSet) -> Result<DisruptionMode, GangConfigError> {
    let none = Labels::new();
    let annotations = set.metadata.annotations.as_ref().unwrap_or(&none);
    let mode = DisruptionMode::annotated(annotations, &FieldPath::Root("metadata"));
    Ok(mode.map_err(|error| invalid(error.to_string()))?.unwrap_or(DisruptionMode::PodGroup))
}

/// Whether leader and workers have the same node constraints.
fn have_same_node_constraints(template: &LeaderWorkerTemplate) -> bool {
    let worker = &template.worker_template.spec;
    template.leader_template.as_ref().is_none_or(|leader| {
        let leader = &leader.spec;
        leader.node_selector == worker.node_selector
            && leader.tolerations == worker.tolerations
            && leader.affinity == worker.affinity
    })
}

/// The requests of the whole replica: the leader as it is, and the workers as their template has them.
fn min_resources(leader: &Pod, template: &LeaderWorkerTemplate, size: i64) -> Result<BaseUnits, GangConfigError> {
    let mut sum = requests_of(&leader.spec).map_err(|error| invalid(error.to_string()))?;
    let path = FieldPath::Root("spec.leaderWorkerTemplate.workerTemplate.spec");
    let worker =
        requests_of(&template.worker_template.spec).map_err(|error| invalid(path.invalid("", error).to_string()))?;
    add_multiple(&mut sum, &worker, size - 1);
    sum.retain(|_, amount| *amount > 0);
    Ok(sum)
}

fn is_ready(pod: &Pod) -> bool {
    Condition::find(&pod.status.conditions, "Ready").is_some_and(Condition::is_true)
}
