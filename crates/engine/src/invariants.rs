//! Invariants of the engine for any input. Tests and simulations check them after every step.
//!
//! Numbers refer to the list in ARCHITECTURE.md. Invariants about the real cluster (a gang whose start has ended, capacity
//! of a node at the time of a bind) are checked by the tests that simulate it.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::cluster::group::MemberCounts;
use crate::cluster::load::Load;
use crate::cluster::pod::{Counted, MemberState, PodState, StartRole};
use crate::cluster::topology::{AuditedPod, Presence};
use crate::diagnosis::{Diagnosis, Waiting};
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::queue::{Entity, QueueState};
use crate::scheduler::Engine;

/// Checks all invariants of the engine's state; returns the first violation.
pub fn check(engine: &Engine) -> Result<(), String> {
    ledger(&engine.cluster)?;
    topology(&engine.cluster)?;
    member_counts(&engine.cluster)?;
    nominations(&engine.cluster)?;
    starts(&engine.cluster)?;
    no_pod_is_lost(engine)?;
    pending_counts(engine)?;
    reservation(engine)?;
    ensure(!engine.cluster.has_events(), || "an event of the cluster was not handled".to_owned())?;
    no_leftover_entries(engine)
}

fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// The load of each node is the sum over the pods on it (part of invariant 2).
pub(crate) fn ledger(cluster: &Cluster) -> Result<(), String> {
    let mut loads: BTreeMap<NodeId, (Load, Vec<PodId>)> = BTreeMap::new();
    for (id, pod) in cluster.pods() {
        if let Some(node) = pod.state.node() {
            let (load, pods) = loads.entry(node).or_default();
            load.add(cluster.class(pod.class));
            pods.push(id);
        }
    }
    for (id, node) in cluster.nodes() {
        let (load, pods) = loads.remove(&id).unwrap_or_default();
        let mut listed = node.pods.clone();
        listed.sort_unstable();
        ensure(listed == pods, || format!("node {}: lists {listed:?}, holds {pods:?}", node.name))?;
        ensure(node.load == load, || format!("node {}: ledger {:?}, recount {load:?}", node.name, node.load))?;
        let used = node.present || !node.pods.is_empty() || !node.nominated.is_empty();
        ensure(used, || format!("node {}: kept although unused", node.name))?;
    }
    let leaving = cluster.pods().filter(|(_, pod)| pod.is_leaving() && pod.state.node().is_some()).map(|(id, _)| id);
    ensure(leaving.eq(cluster.leaving()), || "the list of leaving pods differs from a recount".to_owned())?;
    ensure(loads.is_empty(), || format!("pods on nodes that do not exist: {loads:?}"))
}

/// Domain counts equal a recount by labels, and every pod has the class of its labels.
pub(crate) fn topology(cluster: &Cluster) -> Result<(), String> {
    for (_, pod) in cluster.pods() {
        let selectors = cluster.topology.selectors_of(&pod.id.namespace, &pod.labels);
        ensure(cluster.class(pod.class).selectors == selectors, || {
            format!("{}: its class has other selectors", pod.id)
        })?;
    }
    let near = cluster.pods().flat_map(|(_, pod)| {
        let own = cluster.class(pod.class).own.as_ref();
        let places = [(pod.state.node(), Presence::Placed), (pod.nominated, Presence::Nominated)];
        places.into_iter().filter_map(move |(node, presence)| {
            let (namespace, labels) = (pod.id.namespace.as_str(), &*pod.labels);
            Some(AuditedPod { node: node?, presence, namespace, labels, own, terminating: pod.terminating })
        })
    });
    ensure(cluster.images_are_counted(), || "the counts of images differ from a recount".to_owned())?;
    ensure(cluster.audit_topology(near), || "the domain counts differ from a recount".to_owned())
}

/// Member counts of groups equal a recount.
pub(crate) fn member_counts(cluster: &Cluster) -> Result<(), String> {
    for (id, group) in cluster.groups() {
        let mut counted = vec![MemberCounts::default(); group.rules.len()];
        let (mut waiting, mut gated, mut refused, mut excluded) = (0, 0, 0, 0);
        let members = cluster.pods().filter(|(_, pod)| pod.group == Some(id));
        let mut members_seen = 0;
        for (pod_id, pod) in members {
            members_seen += 1;
            ensure(group.members.contains(&(pod.created_ms, pod_id)), || {
                format!("{}: not a member of {}", pod.id, group.key)
            })?;
            match pod.counted {
                Counted::Excluded => excluded += 1,
                Counted::Not => return Err(format!("{}: counted nowhere in {}", pod.id, group.key)),
                Counted::In { subset, member_state } => {
                    ensure(member_state == pod.member_state(), || format!("{}: counted as {member_state:?}", pod.id))?;
                    let member_counts = &mut counted[usize::from(subset)];
                    match member_state {
                        MemberState::Waiting => {
                            member_counts.waiting += 1;
                            waiting += 1;
                        }
                        MemberState::Gated => {
                            member_counts.gated += 1;
                            gated += 1;
                        }
                        MemberState::Refused => {
                            member_counts.refused += 1;
                            refused += 1;
                        }
                        MemberState::Assumed => member_counts.assumed += 1,
                        MemberState::Bound => member_counts.bound += 1,
                        MemberState::Succeeded => member_counts.succeeded += 1,
                        MemberState::NotCounted => {}
                    }
                }
            }
        }
        let same = counted == group.member_counts
            && members_seen == group.members.len()
            && waiting == group.waiting.len()
            && gated == group.gated.len()
            && refused == group.refused.len()
            && excluded == group.strays.len();
        ensure(same, || format!("group {}: member counts {:?}, recount {counted:?}", group.key, group.member_counts))?;
        ensure(!group.is_unused(), || format!("group {}: kept although unused", group.key))?;
    }
    Ok(())
}

/// Only waiting pods are nominated, and nodes and pods agree about nominations (part of invariant 5).
pub(crate) fn nominations(cluster: &Cluster) -> Result<(), String> {
    let mut listed = 0;
    for (id, node) in cluster.nodes() {
        let mut load = node.load.clone();
        for pod in &node.nominated {
            listed += 1;
            load.add(cluster.class(cluster.pod(*pod).class));
            ensure(cluster.pod(*pod).nominated == Some(id), || {
                format!("node {}: lists a pod that is not nominated", node.name)
            })?;
        }
        let lowest = node.nominated.iter().map(|pod| cluster.effective_priority(*pod)).min();
        let kept = node.nominated_load.as_ref().map(|nominated| (&nominated.load, nominated.lowest_priority));
        ensure(kept == lowest.map(|lowest| (&load, lowest)), || {
            format!("node {}: nominated load {kept:?}", node.name)
        })?;
    }
    let mut nominated = 0;
    for (_, pod) in cluster.pods().filter(|(_, pod)| pod.nominated.is_some()) {
        nominated += 1;
        ensure(pod.state == PodState::Waiting, || format!("{}: nominated and {:?}", pod.id, pod.state))?;
    }
    for (id, group) in cluster.groups() {
        let held = group.members.iter().filter(|(_, member)| cluster.pod(*member).nominated.is_some()).count();
        ensure(held == group.nominations as usize, || format!("group {}: {id:?} counts nominations wrong", group.key))?;
    }
    ensure(listed == nominated, || format!("{listed} nominations listed, {nominated} held"))
}

/// A gang with fewer bound members than its minimum is being started, has started before, or could not be rolled back
/// (invariant 1 from inside).
fn starts(cluster: &Cluster) -> Result<(), String> {
    for (_, group) in cluster.groups().filter(|(_, group)| group.spec.is_some() && group.is_gang()) {
        let bound = group.total().bound;
        let quorum = group.quorum();
        let followed = !group.lifecycle.is_pending();
        let tentative = group.members.iter().map(|(_, member)| cluster.pod(*member)).any(|pod| {
            pod.start_role == StartRole::Tentative
                && pod.member_state() == MemberState::Bound
                && !group.admits_single_members()
        });
        let open = group.lifecycle.attempt().is_some() || group.lifecycle.is_partially_bound();
        ensure(!tentative || open, || format!("group {}: a partly bound start is not followed up", group.key))?;
        ensure(bound == 0 || group.secured_at_least(&quorum) || followed, || {
            format!("group {}: {bound} bound, {quorum:?} needed, and not followed up", group.key)
        })?;
    }
    Ok(())
}

/// Every pod of this scheduler is bound, assumed, queued, parked or held with a reason, or finished (invariant 6).
fn no_pod_is_lost(engine: &Engine) -> Result<(), String> {
    for (id, pod) in engine.cluster.pods() {
        refusal_is_reported(engine, id)?;
        let waited_for = pod.group.is_some_and(|id| engine.cluster.group(id).waits_for_all_members());
        match pod.member_state() {
            MemberState::NotCounted | MemberState::Bound | MemberState::Succeeded => continue,
            MemberState::Assumed => {
                let followed = pod.bind.as_deref().is_some_and(|bind| bind.in_flight || bind.retry_at.is_some());
                ensure(followed, || format!("{}: assumed without a bind in flight or a retry", pod.id))?;
                continue;
            }
            // Its gates are shown by the API, or its refusal is reported; a group that has started does not wait for
            // it.
            MemberState::Gated | MemberState::Refused if !waited_for => continue,
            MemberState::Gated | MemberState::Refused | MemberState::Waiting => {}
        }
        if pod.counted == Counted::Excluded {
            ensure(engine.reports.latest(Entity::Pod(id)).is_some(), || {
                format!("{}: excluded without a report", pod.id)
            })?;
            continue;
        }
        let entity = pod.group.map_or(Entity::Pod(id), Entity::Group);
        let Some(entry) = engine.queue.entry(entity) else { return Err(format!("{}: not in the queue", pod.id)) };
        match (&entry.state, entity) {
            (QueueState::Active | QueueState::Backoff(_), _) => {}
            (QueueState::Parked { shapes, .. }, _) => {
                ensure(!shapes.is_empty(), || format!("{}: parked without a shape", pod.id))?;
                ensure(engine.reports.latest(entity).is_some(), || format!("{}: parked without a report", pod.id))?;
            }
            (QueueState::Held, Entity::Pod(_)) => {
                return Err(format!("{}: held, but single pods have no gate", pod.id));
            }
            (QueueState::Held, Entity::Group(group)) => held_with_reason(engine, group)?,
        }
    }
    Ok(())
}

/// Every waiting pod is counted as pending once.
fn pending_counts(engine: &Engine) -> Result<(), String> {
    let waits = |member_state| matches!(member_state, MemberState::Waiting | MemberState::Gated | MemberState::Refused);
    let waiting = engine.cluster.pods().filter(|(_, pod)| waits(pod.member_state())).count();
    let pending = engine.pending();
    ensure(waiting == pending.pods(), || format!("{waiting} pods wait, counted as {pending:?}"))
}

/// The refusal of a pod is reported exactly as long as it is refused; a refused single pod is not queued.
fn refusal_is_reported(engine: &Engine, id: PodId) -> Result<(), String> {
    let (pod, entity) = (engine.cluster.pod(id), Entity::Pod(id));
    let refused = pod.member_state() == MemberState::Refused;
    let reported = matches!(engine.reports.latest(entity), Some(Diagnosis::Waiting(Waiting::PodRefused { .. })));
    ensure(refused == reported, || format!("{}: refused {refused}, reported {reported}", pod.id))?;
    ensure(!refused || engine.queue.entry(entity).is_none(), || format!("{}: refused and in the queue", pod.id))
}

fn held_with_reason(engine: &Engine, id: GroupId) -> Result<(), String> {
    let group = engine.cluster.group(id);
    if engine.pre_enqueue(id).is_some() {
        let reported = engine.reports.latest(Entity::Group(id)).is_some();
        return ensure(reported, || format!("group {}: held without a report", group.key));
    }
    // A wait for desired members that ended just now is reviewed when its timer fires.
    let timer_due = group.desired_until.is_some() && engine.next_wakeup().is_some_and(|due| due <= engine.now());
    let starting = group.lifecycle.attempt().is_some() && group.total().assumed > 0;
    ensure(starting || timer_due, || format!("group {}: held without a reason", group.key))
}

/// The reserved nodes are those of the one reservation, and its group waits for capacity.
fn reservation(engine: &Engine) -> Result<(), String> {
    for (_, node) in engine.cluster.nodes().filter(|(_, node)| node.reservation_priority.is_some()) {
        let known = engine.reservation.as_ref().is_some_and(|reservation| reservation.nodes.contains(&node.name));
        ensure(known, || format!("node {}: reserved without a reservation", node.name))?;
    }
    let Some(reservation) = &engine.reservation else { return Ok(()) };
    let entry = engine.queue.entry(Entity::Group(reservation.group));
    ensure(entry.is_some_and(|entry| entry.state != QueueState::Held), || {
        format!("{:?} does not wait for capacity", reservation.group)
    })
}

fn no_leftover_entries(engine: &Engine) -> Result<(), String> {
    let known = |entity: Entity| match entity {
        Entity::Pod(pod) => engine.cluster.pod_if_any(pod).is_some(),
        Entity::Group(group) => engine.cluster.group_if_any(group).is_some(),
    };
    for entity in engine.queue.entries().map(|(entity, _)| entity).chain(engine.reports.entities()) {
        ensure(known(entity), || format!("{entity:?} is gone but still listed"))?;
    }
    Ok(())
}
