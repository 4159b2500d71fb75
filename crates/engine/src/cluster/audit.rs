//! Invariants of the cluster alone: everything derived equals a recount, and every start is followed up.
//!
//! Numbers refer to the list in ARCHITECTURE.md.

use std::collections::BTreeMap;

use super::Cluster;
use super::group::MemberCounts;
use super::load::Load;
use super::pod::{Counted, MemberState, PodState, StartRole};
use super::topology::{AuditedPod, Presence};
use crate::model::ids::{NodeId, PodId};

/// Returns a violation unless it holds.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
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
    ensure(cluster.plans_are_reserved(), || "reserved volumes are not those of assumed pods".to_owned())?;
    ensure(loads.is_empty(), || format!("pods on nodes that do not exist: {loads:?}"))
}

/// Domain counts equal a recount by labels, and every pod has the class of its labels.
pub(crate) fn topology(cluster: &Cluster) -> Result<(), String> {
    for (_, pod) in cluster.pods() {
        let (topology, matches) = (&cluster.topology, cluster.topology.matches_of(pod.label_set));
        ensure(topology.is_matched(pod.label_set, &pod.id.namespace, &pod.labels), || {
            format!("{}: its match set is not that of its labels", pod.id)
        })?;
        ensure(cluster.class(pod.class).matches == matches, || {
            format!("{}: its class is of another match set", pod.id)
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
        let (mut priorities, mut live_priorities) = (BTreeMap::new(), BTreeMap::new());
        for (pod_id, pod) in members {
            members_seen += 1;
            *priorities.entry(pod.priority).or_default() += 1;
            if pod.state.node().is_some() || (pod.is_pending() && !group.is_former(pod_id)) {
                *live_priorities.entry(pod.priority).or_default() += 1;
            }
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
            && excluded == group.excluded.len()
            && priorities == group.priorities
            && live_priorities == group.live_priorities;
        ensure(same, || format!("group {}: member counts {:?}, recount {counted:?}", group.key, group.member_counts))?;
        ensure(!group.is_unused(), || format!("group {}: kept although unused", group.key))?;
    }
    Ok(())
}

/// What the members of groups with `minResources` take equals a recount.
pub(crate) fn taken(cluster: &Cluster) -> Result<(), String> {
    super::taken::audit(cluster)
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
pub(crate) fn starts(cluster: &Cluster) -> Result<(), String> {
    for (_, group) in cluster.groups().filter(|(_, group)| group.definition.current().is_some() && group.is_gang()) {
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
        ensure(bound == 0 || group.scheduled_at_least(&quorum) || followed, || {
            format!("group {}: {bound} bound, {quorum:?} needed, and not followed up", group.key)
        })?;
    }
    Ok(())
}
