//! Invariants of the engine for any input. Tests and simulations check them after every step.
//!
//! Numbers refer to the list in ARCHITECTURE.md. Invariants about the real cluster (a gang whose start has ended, capacity
//! of a node at the time of a bind) are checked by the tests that simulate it.

use crate::cluster::audit::{self, ensure};
use crate::cluster::pod::{Counted, MemberState};
use crate::diagnosis::{Diagnosis, Waiting};
use crate::model::ids::{GroupId, PodId};
use crate::queue::{Entity, QueueState};
use crate::scheduler::Engine;

/// Checks all invariants of the engine's state; returns the first violation.
pub fn check(engine: &Engine) -> Result<(), String> {
    audit::ledger(&engine.cluster)?;
    audit::topology(&engine.cluster)?;
    audit::member_counts(&engine.cluster)?;
    audit::taken(&engine.cluster)?;
    audit::nominations(&engine.cluster)?;
    audit::starts(&engine.cluster)?;
    no_pod_is_lost(engine)?;
    pending_counts(engine)?;
    reservation(engine)?;
    engine.audit_kept_rooms()?;
    ensure(engine.volume_bindings_are_listed(), || "the pods that wait for volumes are not listed".to_owned())?;
    ensure(!engine.cluster.has_events(), || "an event of the cluster was not handled".to_owned())?;
    no_leftover_entries(engine)
}

/// Every pod of this scheduler is bound, assumed, queued, parked or held with a reason, or finished (invariant 6).
fn no_pod_is_lost(engine: &Engine) -> Result<(), String> {
    for (id, pod) in engine.cluster.pods() {
        refusal_is_reported(engine, id)?;
        let waited_for = pod.group.is_some_and(|id| engine.cluster.group(id).waits_for_held_back_members());
        match pod.member_state() {
            MemberState::NotCounted | MemberState::Bound | MemberState::Succeeded => continue,
            MemberState::Assumed => {
                let bind = pod.bind.as_deref().is_some_and(|bind| bind.in_flight || bind.retry_at.is_some());
                let followed = bind || pod.volume_binding.is_some();
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
