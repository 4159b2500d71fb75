//! The group of a LeaderWorkerSet's replica, looked after for its leader.
//!
//! The minimum is the size of the replica, as its own revision has it. Where workers are made only after their leader
//! is ready (`LeaderReady`) or has a node (exclusive topology) it is 1 before, so that nothing waits for what cannot
//! come; what the whole replica asks for stands there from the beginning.

use std::time::Duration;

use kube::core::DynamicObject;
use muster_api::invalid::FieldPath;
use muster_api::keys::annotations::GANG_MODE;
use muster_api::makers::leader_worker_set::{self as lws, Replica, is_leader, labels};
use muster_api::makers::requests::{add_times, requests_of};
use muster_api::makers::{Flaw, flaws, names_a_group};
use muster_api::resources::BaseUnits;
use muster_api::selector::Labels;
use muster_api::wire::condition::Condition;
use muster_api::wire::leader_worker_set::LeaderWorkerTemplate;
use muster_api::wire::template::TemplateMetadata;
use muster_api::wire::{LeaderWorkerSet, Pod};

use super::{Plan, owner, target, tell_flaw};
use crate::mirror::Key;
use crate::providers::{ReplicaGang, SchedulerProvider};
use crate::read::read;
use crate::world::World;
use crate::write::Write;

/// A revision or a set that a pod names has not been seen yet.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// What is to be written for the replica of a leader.
pub(crate) fn plan(world: &World, (namespace, name): &Key) -> Plan {
    let (Some(provider), Some(leader)) = (&world.provider, world.replica_pods.get(namespace, name)) else {
        return Plan::default();
    };
    let ended = matches!(leader.status.phase.as_str(), "Succeeded" | "Failed");
    if leader.metadata.deletion_timestamp.is_some() || ended {
        return Plan::default();
    }
    let none = Labels::new();
    let annotations = leader.metadata.annotations.as_ref().unwrap_or(&none);
    if let Err(error) = lws::is_off(annotations, &FieldPath::Root("metadata")) {
        return Plan::of(vec![tell_flaw(target(&**leader), invalid(error.to_string()))]);
    }
    if !world.is_ganged(leader) {
        return Plan::default();
    }
    let replica = match replica_of(leader) {
        Ok(Some(replica)) => replica,
        Ok(None) => return Plan::default(),
        Err(flaw) => return Plan::of(vec![tell_flaw(target(&**leader), flaw)]),
    };
    let Some(set) = world.leader_worker_sets.get(namespace, &replica.set) else {
        return Plan { again: Some(LOOK_AGAIN), ..Plan::default() };
    };
    let Some(template) = template(world, set, &replica) else {
        return Plan { again: Some(LOOK_AGAIN), ..Plan::default() };
    };
    if names_another_group(provider.as_ref(), &replica, leader) {
        return Plan::default();
    }
    match gang(leader, set, &template, replica) {
        Ok(gang) => {
            let misplaced = misplaced_mode(set);
            let kind = provider.resource();
            let current =
                kind.and_then(|kind| world.written(&kind).get(namespace, &provider.group_name(&gang.replica)));
            let mut plan = provider.create_pod_group_if_not_exists(&gang, current.map(|group| &**group));
            plan.writes.extend(misplaced);
            plan
        }
        Err(flaw) => Plan::of(vec![tell_flaw(target(&**leader), flaw)]),
    }
}

/// Tells of a gang mode on the set itself, which its pods do not show: nobody would heed it.
fn misplaced_mode(set: &LeaderWorkerSet) -> Option<Write> {
    let written = set.metadata.annotations.as_ref()?.get(GANG_MODE)?;
    let annotations = FieldPath::Root("metadata.annotations");
    let reason = "has no effect on the set itself: write it into the metadata of leaderTemplate and workerTemplate";
    let error = annotations.key(GANG_MODE).invalid(written, reason);
    Some(tell_flaw(target(set), invalid(error.to_string())))
}

/// Whether a leader names a group that is not the one of its replica: then somebody else sees to it.
fn names_another_group(provider: &dyn SchedulerProvider, replica: &Replica, leader: &Pod) -> bool {
    let metadata = TemplateMetadata::from(leader);
    let joining = provider.inject_pod_group_metadata(replica, leader);
    let is_ours = joining.is_ok_and(|joining| joining.is_in(&metadata, &leader.spec));
    names_a_group(&metadata, &leader.spec) && !is_ours
}

fn replica_of(leader: &Pod) -> Result<Option<Replica>, Flaw> {
    let none = Labels::new();
    let of_pod = leader.metadata.labels.as_ref().unwrap_or(&none);
    if !is_leader(of_pod) {
        return Ok(None);
    }
    Replica::of(leader.metadata.name.as_deref().unwrap_or_default(), of_pod).map_err(|error| invalid(error.to_string()))
}

fn invalid(message: String) -> Flaw {
    Flaw { reason: flaws::INVALID_GANG_MODE, message }
}

/// Leader and workers as the replica's own revision has them. While a set is being updated its older replicas keep what
/// they were made from.
fn template(world: &World, set: &LeaderWorkerSet, replica: &Replica) -> Option<LeaderWorkerTemplate> {
    let namespace = set.metadata.namespace.as_deref().unwrap_or_default();
    let is_it = |revision: &DynamicObject| {
        let labels = revision.metadata.labels.as_ref();
        let has = |key: &str, value: &str| labels.and_then(|labels| labels.get(key)).is_some_and(|one| one == value);
        has(labels::NAME, &replica.set) && has(labels::REVISION, &replica.revision)
    };
    // Revisions of the set's stateful sets carry the same labels.
    let template = |revision: &DynamicObject| revision.data.pointer("/data/spec/leaderWorkerTemplate").map(read);
    let revisions = world.revisions.of(namespace, &replica.set);
    let mut templates = revisions.filter(|one| is_it(one)).filter_map(|one| template(one));
    templates.next()?
}

fn gang(
    leader: &Pod,
    set: &LeaderWorkerSet,
    template: &LeaderWorkerTemplate,
    replica: Replica,
) -> Result<ReplicaGang, Flaw> {
    let none = Labels::new();
    let annotations = leader.metadata.annotations.as_ref().unwrap_or(&none);
    let size = lws::size(annotations).map_err(|error| invalid(error.to_string()))?;
    let by_leader = set.spec.startup_policy.as_deref() == Some("LeaderReady");
    let is_exclusive = annotations.contains_key(lws::EXCLUSIVE_TOPOLOGY);
    let workers_may_come = (!by_leader || is_ready(leader)) && (!is_exclusive || !leader.spec.node_name.is_empty());
    // A leader that has other nodes than its workers cannot tell whether these have room.
    let pods = if workers_may_come || have_like_places(template) { size } else { 1 };
    Ok(ReplicaGang {
        namespace: leader.metadata.namespace.clone().unwrap_or_default(),
        replica,
        leader: owner(leader),
        min_member: if workers_may_come { size } else { 1 },
        min_resources: min_resources(leader, template, pods)?,
        pods,
        priority_class_name: leader.spec.priority_class_name.clone(),
        set_annotations: set.metadata.annotations.clone().unwrap_or_default(),
    })
}

/// Whether leader and workers may use the same nodes, as far as they say.
fn have_like_places(template: &LeaderWorkerTemplate) -> bool {
    let worker = &template.worker_template.spec;
    template.leader_template.as_ref().is_none_or(|leader| {
        let leader = &leader.spec;
        leader.node_selector == worker.node_selector
            && leader.tolerations == worker.tolerations
            && leader.affinity == worker.affinity
    })
}

/// What the whole replica asks for: the leader as it is, and its workers as they will be.
fn min_resources(leader: &Pod, template: &LeaderWorkerTemplate, size: i64) -> Result<BaseUnits, Flaw> {
    let mut sum = requests_of(&leader.spec).map_err(|error| invalid(error.to_string()))?;
    let path = FieldPath::Root("spec.leaderWorkerTemplate.workerTemplate.spec");
    let worker =
        requests_of(&template.worker_template.spec).map_err(|error| invalid(path.invalid("", error).to_string()))?;
    add_times(&mut sum, &worker, size - 1);
    sum.retain(|_, amount| *amount > 0);
    Ok(sum)
}

fn is_ready(pod: &Pod) -> bool {
    Condition::find(&pod.status.conditions, "Ready").is_some_and(Condition::is_true)
}
