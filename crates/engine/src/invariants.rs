//! What must always be true of an engine, whatever it was told. Tests and simulations check it after every step.
//!
//! Numbers refer to the list in ARCHITECTURE.md. Those that concern the world outside (a gang at rest, room on a
//! node at the moment of a bind) are checked by whoever plays the world.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::cluster::group::Census;
use crate::cluster::load::Load;
use crate::cluster::neighbours::{Neighbour, Presence};
use crate::cluster::pod::{Counted, Part, PodState, Standing};
use crate::diagnosis::{Diagnosis, Waiting};
use crate::mind::Engine;
use crate::model::ids::{GroupId, NodeId, PodId};
use crate::queue::{Entity, Place};

/// Checks everything that can be seen from inside; says what is wrong first.
pub fn check(engine: &Engine) -> Result<(), String> {
    ledger(engine.cluster())?;
    neighbours(engine.cluster())?;
    census(engine.cluster())?;
    nominations(engine.cluster())?;
    starts(engine.cluster())?;
    nobody_is_lost(engine)?;
    everybody_is_counted(engine)?;
    claim(engine)?;
    nobody_is_remembered_for_nothing(engine)
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
        ensure(used, || format!("node {}: kept for nothing", node.name))?;
    }
    let leaving = cluster.pods().filter(|(_, pod)| pod.is_leaving() && pod.state.node().is_some()).map(|(id, _)| id);
    ensure(leaving.eq(cluster.leaving()), || "those who leave are not those who are listed".to_owned())?;
    ensure(loads.is_empty(), || format!("pods on nodes that do not exist: {loads:?}"))
}

/// Who is near whom is what a recount by labels gives, and every pod is of the class that its labels make it.
pub(crate) fn neighbours(cluster: &Cluster) -> Result<(), String> {
    for (_, pod) in cluster.pods() {
        let tags = cluster.neighbours.tags_of(&pod.id.namespace, &pod.labels);
        ensure(cluster.class(pod.class).tags == tags, || format!("{}: others have opinions about it unheard", pod.id))?;
    }
    let near = cluster.pods().flat_map(|(_, pod)| {
        let own = cluster.class(pod.class).own.as_ref();
        let places = [(pod.state.node(), Presence::There), (pod.nominated, Presence::Expected)];
        places.into_iter().filter_map(move |(node, presence)| {
            let (namespace, labels) = (pod.id.namespace.as_str(), &*pod.labels);
            Some(Neighbour { node: node?, presence, namespace, labels, own, leaves: pod.terminating })
        })
    });
    ensure(cluster.images_are_counted(), || "images are not on as many nodes as are counted".to_owned())?;
    ensure(cluster.audit_neighbours(near), || "who is near whom is not what a recount gives".to_owned())
}

/// What groups count is what their members are.
pub(crate) fn census(cluster: &Cluster) -> Result<(), String> {
    for (id, group) in cluster.groups() {
        let mut counted = vec![Census::default(); group.rules.len()];
        let (mut waiting, mut gated, mut refused, mut strays) = (0, 0, 0, 0);
        let members = cluster.pods().filter(|(_, pod)| pod.group == Some(id));
        let mut members_seen = 0;
        for (pod_id, pod) in members {
            members_seen += 1;
            ensure(group.members.contains(&(pod.created_ms, pod_id)), || {
                format!("{}: not a member of {}", pod.id, group.key)
            })?;
            match pod.counted {
                Counted::Stray => strays += 1,
                Counted::Not => return Err(format!("{}: counted nowhere in {}", pod.id, group.key)),
                Counted::In { subset, standing } => {
                    ensure(standing == pod.standing(), || format!("{}: counted as {standing:?}", pod.id))?;
                    let census = &mut counted[usize::from(subset)];
                    match standing {
                        Standing::Waiting => {
                            census.waiting += 1;
                            waiting += 1;
                        }
                        Standing::Gated => {
                            census.gated += 1;
                            gated += 1;
                        }
                        Standing::Refused => {
                            census.refused += 1;
                            refused += 1;
                        }
                        Standing::Assumed => census.assumed += 1,
                        Standing::Bound => census.bound += 1,
                        Standing::Succeeded => census.succeeded += 1,
                        Standing::Aside => {}
                    }
                }
            }
        }
        let same = counted == group.census
            && members_seen == group.members.len()
            && waiting == group.waiting.len()
            && gated == group.gated.len()
            && refused == group.refused.len()
            && strays == group.strays.len();
        ensure(same, || format!("group {}: census {:?}, recount {counted:?}", group.key, group.census))?;
        ensure(!group.is_forgotten(), || format!("group {}: kept for nothing", group.key))?;
    }
    Ok(())
}

/// A nomination is for a pod that waits, and both sides know of it (part of invariant 5).
pub(crate) fn nominations(cluster: &Cluster) -> Result<(), String> {
    let mut listed = 0;
    for (id, node) in cluster.nodes() {
        let mut load = node.load.clone();
        for pod in &node.nominated {
            listed += 1;
            load.add(cluster.class(cluster.pod(*pod).class));
            ensure(cluster.pod(*pod).nominated == Some(id), || format!("node {}: kept free for nobody", node.name))?;
        }
        let lowest = node.nominated.iter().map(|pod| cluster.effective_priority(*pod)).min();
        let kept = node.reserved.as_ref().map(|reserved| (&reserved.load, reserved.lowest_priority));
        ensure(kept == lowest.map(|lowest| (&load, lowest)), || format!("node {}: keeps {kept:?} free", node.name))?;
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

/// A gang with some but fewer than its minimum bound is being started, or has been started, or could not be taken
/// back (invariant 1 from inside).
fn starts(cluster: &Cluster) -> Result<(), String> {
    for (_, group) in cluster.groups().filter(|(_, group)| group.spec.is_some() && group.is_gang()) {
        let bound = group.total().bound;
        let quorum = group.quorum();
        let followed = group.attempt.is_some() || !group.reached.is_empty() || group.kept_partial;
        let tentative = group
            .members
            .iter()
            .map(|(_, member)| cluster.pod(*member))
            .any(|pod| pod.part == Part::Tentative && pod.standing() == Standing::Bound && !group.joins_singly());
        ensure(!tentative || group.attempt.is_some() || group.kept_partial, || {
            format!("group {}: a start is bound in part, and nobody follows it up", group.key)
        })?;
        ensure(bound == 0 || group.secured_at_least(&quorum) || followed, || {
            format!("group {}: {bound} bound, {quorum:?} needed, and nobody follows it up", group.key)
        })?;
    }
    Ok(())
}

/// Every pod of ours is bound, on its way, queued, parked or held with a reason, or done (invariant 6).
fn nobody_is_lost(engine: &Engine) -> Result<(), String> {
    for (id, pod) in engine.cluster.pods() {
        refused_aloud(engine, id)?;
        let waited_for = pod.group.is_some_and(|id| engine.cluster.group(id).waits_for_everyone());
        match pod.standing() {
            Standing::Aside | Standing::Bound | Standing::Succeeded => continue,
            Standing::Assumed => {
                let followed = pod.bind.as_deref().is_some_and(|bind| bind.in_flight || bind.retry_at.is_some());
                ensure(followed, || format!("{}: assumed and nobody asks what became of it", pod.id))?;
                continue;
            }
            // Gates of its own, which the API shows, or a refusal that was told; a group that has started does not wait for it.
            Standing::Gated | Standing::Refused if !waited_for => continue,
            Standing::Gated | Standing::Refused | Standing::Waiting => {}
        }
        if pod.counted == Counted::Stray {
            ensure(engine.voice.latest(Entity::Pod(id)).is_some(), || format!("{}: left out in silence", pod.id))?;
            continue;
        }
        let entity = pod.group.map_or(Entity::Pod(id), Entity::Group);
        let Some(entry) = engine.queue.entry(entity) else { return Err(format!("{}: not in the queue", pod.id)) };
        match (&entry.place, entity) {
            (Place::Active | Place::Backoff(_), _) => {}
            (Place::Parked { lines, .. }, _) => {
                ensure(!lines.is_empty(), || format!("{}: parked without hope", pod.id))?;
                ensure(engine.voice.latest(entity).is_some(), || format!("{}: parked in silence", pod.id))?;
            }
            (Place::Held, Entity::Pod(_)) => return Err(format!("{}: held, but single pods have no gate", pod.id)),
            (Place::Held, Entity::Group(group)) => held_for_a_reason(engine, group)?,
        }
    }
    Ok(())
}

/// Every pod that waits is counted as pending, and once.
fn everybody_is_counted(engine: &Engine) -> Result<(), String> {
    let waits = |standing| matches!(standing, Standing::Waiting | Standing::Gated | Standing::Refused);
    let waiting = engine.cluster.pods().filter(|(_, pod)| waits(pod.standing())).count();
    let pending = engine.pending();
    ensure(waiting == pending.pods(), || format!("{waiting} pods wait, counted as {pending:?}"))
}

/// A pod is told that it is refused as long as it is, and no longer; a refused one on its own is not queued.
fn refused_aloud(engine: &Engine, id: PodId) -> Result<(), String> {
    let (pod, entity) = (engine.cluster.pod(id), Entity::Pod(id));
    let refused = pod.standing() == Standing::Refused;
    let told = matches!(engine.voice.latest(entity), Some(Diagnosis::Waiting(Waiting::PodRefused { .. })));
    ensure(refused == told, || format!("{}: refused {refused}, told so {told}", pod.id))?;
    ensure(!refused || engine.queue.entry(entity).is_none(), || format!("{}: refused and in the queue", pod.id))
}

fn held_for_a_reason(engine: &Engine, id: GroupId) -> Result<(), String> {
    let group = engine.cluster.group(id);
    if engine.gate(id).is_some() {
        let told = engine.voice.latest(Entity::Group(id)).is_some();
        return ensure(told, || format!("group {}: held in silence", group.key));
    }
    // A wait for desired members that ended just now is looked at when its timer fires.
    let timer_due = group.desired_until.is_some() && engine.next_wakeup().is_some_and(|due| due <= engine.now());
    let starting = group.attempt.is_some() && group.total().assumed > 0;
    ensure(starting || timer_due, || format!("group {}: held for nothing", group.key))
}

/// The nodes that are claimed are those of the one claim, and its group waits for room.
fn claim(engine: &Engine) -> Result<(), String> {
    for (_, node) in engine.cluster.nodes().filter(|(_, node)| node.claimed_at.is_some()) {
        let known = engine.claim.as_ref().is_some_and(|claim| claim.nodes.contains(&node.name));
        ensure(known, || format!("node {}: claimed by nobody", node.name))?;
    }
    let Some(claim) = &engine.claim else { return Ok(()) };
    let entry = engine.queue.entry(Entity::Group(claim.group));
    ensure(entry.is_some_and(|entry| entry.place != Place::Held), || {
        format!("{:?} does not wait for room", claim.group)
    })
}

fn nobody_is_remembered_for_nothing(engine: &Engine) -> Result<(), String> {
    let known = |entity: Entity| match entity {
        Entity::Pod(pod) => engine.cluster.pod_if_any(pod).is_some(),
        Entity::Group(group) => engine.cluster.group_if_any(group).is_some(),
    };
    for entity in engine.queue.entries().map(|(entity, _)| entity).chain(engine.voice.entities()) {
        ensure(known(entity), || format!("{entity:?} is remembered and gone"))?;
    }
    Ok(())
}
