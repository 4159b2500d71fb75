//! A large gang must not starve for ever behind small pods that take every bit of room as it appears.
//!
//! A gang that has waited too long, and would fit if pods left, claims the nodes that need the least to empty. Nobody
//! of the same or a lower priority is placed there any more, so they drain and the gang gets its turn; everywhere
//! else the small ones go on. There is one claim at a time, for the first of the starving in the queue's order. It
//! ends when the gang is placed or no longer waits for room, and after a while in any case: nodes that do not drain
//! are not held back for nothing.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Engine, Timer};
use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::filter::{self, View};
use crate::model::Millis;
use crate::model::ids::{ClassId, GroupId, NodeId};
use crate::placement::{Verdict, Want};
use crate::queue::backoff::doubled;
use crate::queue::{self, Entity, Place};

/// A claim may be tried again after a day at the latest.
const PAUSE_MS_MAX: Millis = 86_400_000;

/// The claim of a starving gang.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) group: GroupId,
    /// By name: a node may go and come back.
    pub(crate) nodes: BTreeSet<Arc<str>>,
    until: Millis,
}

impl Engine {
    /// A gang was refused. If it has waited too long it claims nodes; says when it will have, if it has not yet.
    pub(super) fn starving_at(&mut self, id: GroupId, want: &Want, verdict: Verdict, never: bool) -> Option<Millis> {
        let may_claim = verdict == Verdict::Impossible && !never && want.needs_total() > 0;
        self.queue.set_may_claim(Entity::Group(id), may_claim);
        if !may_claim {
            return None;
        }
        let entry = self.queue.entry(Entity::Group(id))?;
        // Counted from the first refusal: the wait for members is nobody's fault.
        let refused_since = entry.refused_since.unwrap_or(self.now);
        let starving_at = refused_since.saturating_add(self.config.starving_after_ms).max(self.no_claim_before);
        if self.now < starving_at {
            return Some(starving_at);
        }
        let (rank, vain_claims) = (entry.rank.clone(), entry.vain_claims);
        if vain_claims > 0 && self.claim.is_none() && self.starving().any(|other| other.vain_claims < vain_claims) {
            // Whoever claimed in vain lets others have a go first.
            return Some(self.now.saturating_add(self.config.starving_after_ms.max(1)));
        }
        let ahead = self.claim.as_ref().is_some_and(|claim| {
            let other = self.queue.entry(Entity::Group(claim.group));
            claim.group == id || other.is_some_and(|other| other.rank <= rank)
        });
        if !ahead && let Some(nodes) = nodes_to_drain(&self.cluster, want) {
            self.end_claim();
            self.make_claim(id, want, nodes);
        }
        None
    }

    fn make_claim(&mut self, id: GroupId, want: &Want, nodes: BTreeSet<NodeId>) {
        let until = self.now.saturating_add(self.config.claim_ms_max);
        let names = nodes.iter().map(|node| self.cluster.node(*node).name.clone()).collect();
        for node in nodes {
            self.cluster.set_claim(node, Some(want.priority));
        }
        self.claim = Some(Claim { group: id, nodes: names, until });
        self.set_timer(until, Timer::Claim);
    }

    /// Gives the claimed nodes back to everybody.
    pub(super) fn end_claim(&mut self) {
        let Some(claim) = self.claim.take() else { return };
        let nodes: Vec<NodeId> = claim.nodes.iter().filter_map(|name| self.cluster.node_id(name)).collect();
        for node in &nodes {
            self.cluster.set_claim(*node, None);
        }
        for node in nodes {
            self.room_appeared(node);
        }
        self.wake_starving();
    }

    /// Has all that starve tried again: one of them may claim next.
    fn wake_starving(&mut self) {
        let groups = self.queue.entries().filter(|(entity, entry)| self.starves(*entity, entry));
        for entity in groups.map(|(entity, _)| entity).collect::<Vec<_>>() {
            self.queue.wake_parked(entity, self.now);
        }
    }

    fn starving(&self) -> impl Iterator<Item = &queue::Entry> {
        self.queue.entries().filter(|(entity, entry)| self.starves(*entity, entry)).map(|(_, entry)| entry)
    }

    fn starves(&self, entity: Entity, entry: &queue::Entry) -> bool {
        let due = |since: Millis| since.saturating_add(self.config.starving_after_ms) <= self.now;
        let waits = matches!(entity, Entity::Group(_)) && entry.may_claim && entry.place != Place::Held;
        waits && entry.refused_since.is_some_and(due)
    }

    /// The claim had its time and the nodes did not drain: others get theirs, longer each time, before the next.
    pub(super) fn claim_expired(&mut self, due: Millis) {
        if self.claim.as_ref().is_some_and(|claim| claim.until == due) {
            self.claims_expired = self.claims_expired.saturating_add(1);
            if let Some(claim) = &self.claim {
                self.queue.claimed_in_vain(Entity::Group(claim.group));
            }
            let pause = doubled(self.config.claim_ms_max, self.claims_expired).min(PAUSE_MS_MAX);
            self.no_claim_before = self.now.saturating_add(pause);
            self.end_claim();
        }
    }

    /// Ends the claim of a group that no longer waits for room.
    pub(super) fn review_claim(&mut self, id: GroupId) {
        if self.claim.as_ref().is_none_or(|claim| claim.group != id) {
            return;
        }
        let entry = self.queue.entry(Entity::Group(id));
        if entry.is_none_or(|entry| entry.place == Place::Held) {
            self.claims_expired = 0;
            self.end_claim();
        }
    }

    /// The nodes that this group has claimed.
    pub(super) fn claimed_by(&self, id: GroupId) -> Vec<NodeId> {
        let claim = self.claim.as_ref().filter(|claim| claim.group == id);
        claim.map_or_else(Vec::new, |claim| claim.nodes.iter().filter_map(|name| self.cluster.node_id(name)).collect())
    }
}

/// The nodes that need the least to empty and would then hold what is needed; `None` if there are not enough.
fn nodes_to_drain(cluster: &Cluster, want: &Want) -> Option<BTreeSet<NodeId>> {
    let mut missing: Vec<usize> = want.needs.iter().map(|need| *need as usize).collect();
    // What would be on each chosen node: what stays, and what of the gang is meant for it.
    let mut chosen: BTreeMap<NodeId, Load> = BTreeMap::new();
    for lot in &want.lots {
        let mut pods = lot.pods.len().min(missing[lot.subset]);
        missing[lot.subset] -= pods;
        for (node, load) in &mut chosen {
            pods -= fill(cluster, lot.class, *node, load, pods);
        }
        for (_, node) in most_room_first(cluster, lot.class, want.priority) {
            if pods == 0 {
                break;
            }
            if let Entry::Vacant(place) = chosen.entry(node) {
                let mut load = staying(cluster, node);
                let filled = fill(cluster, lot.class, node, &mut load, pods);
                pods -= filled;
                if filled > 0 {
                    place.insert(load);
                }
            }
        }
        if pods > 0 {
            return None;
        }
    }
    missing.iter().all(|missing| *missing == 0).then(|| chosen.into_keys().collect())
}

/// Puts up to so many pods of a class on top of a load, as far as the node would hold them; says how many.
fn fill(cluster: &Cluster, class: ClassId, id: NodeId, load: &mut Load, pods: usize) -> usize {
    let (pod_class, node) = (cluster.class(class), cluster.node(id));
    if !filter::node_would_do(pod_class, node) {
        return 0;
    }
    let view = View::deserted(cluster, id, Cow::Borrowed(&*load));
    let copies = usize::try_from(filter::copies_max(pod_class, node, &view)).unwrap_or(0).min(pods);
    for _ in 0..copies {
        load.add(pod_class);
    }
    copies
}

/// What would be left on a node if our pods left. Pods of others are taken to stay: daemons do.
fn staying(cluster: &Cluster, id: NodeId) -> Load {
    let mut load = Load::default();
    for pod in cluster.node(id).pods.iter().map(|pod| cluster.pod(*pod)).filter(|pod| !pod.ours) {
        load.add(cluster.class(pod.class));
    }
    load
}

/// The nodes that would do, those with the most room now first.
fn most_room_first(cluster: &Cluster, class: ClassId, priority: i32) -> Vec<(Reverse<i64>, NodeId)> {
    let pod_class = cluster.class(class);
    let nodes = cluster.nodes().filter(|(_, node)| filter::node_would_do(pod_class, node));
    let room = |id, node| filter::copies_max(pod_class, node, &filter::view(cluster, id, priority));
    let mut nodes: Vec<_> = nodes.map(|(id, node)| (Reverse(room(id, node)), id)).collect();
    nodes.sort_unstable();
    nodes
}
