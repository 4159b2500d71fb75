//! Reservations that keep a large gang from starving behind small pods that take all capacity as it becomes free.
//!
//! A gang that has been unschedulable for too long, and would fit without the pods that end in time or that it may
//! preempt, reserves the nodes that need the least draining. Pods of the same or a lower priority are no longer placed
//! there; elsewhere they are. There is one reservation at a time, for the first starving gang in queue order, and it
//! holds
//! a share of the nodes at most. It ends when the gang is placed or no longer waits for capacity, and after a time
//! limit,
//! so that nodes that do not drain are not kept empty. A reservation that ends without a start is in vain, also if its
//! gang is deleted: the namespace has to pause before the next one for as long as it held nodes, each time doubled.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::scheduling_cycle::view_for_group;
use super::{Engine, Timer};
use crate::cluster::Cluster;
use crate::cluster::load::Load;
use crate::filter::{self, View};
use crate::model::Millis;
use crate::model::ids::{ClassId, GroupId, NodeId, PodId};
use crate::placement::{self, Lot, PlacementRequest, Verdict};
use crate::queue::backoff::doubled;
use crate::queue::{self, Entity, QueueState};

/// The longest pause between reservations: a day.
const PAUSE_MS_MAX: Millis = 86_400_000;

/// The reservations of a namespace that were in vain, since the last one that was not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct VainReservations {
    count: u32,
    /// When the pause ends.
    until: Millis,
}

/// The reservation of a starving gang.
#[derive(Clone, Debug)]
pub(crate) struct Reservation {
    pub(crate) group: GroupId,
    /// By name: a node may be removed and added again.
    pub(crate) nodes: BTreeSet<Arc<str>>,
    since: Millis,
    until: Millis,
}

impl Engine {
    /// A gang is unschedulable: reserves nodes if it has been for too long. Otherwise returns the time when it will
    /// have been.
    pub(super) fn check_starvation(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        verdict: Verdict,
        never: bool,
    ) -> Option<Millis> {
        let may_reserve = verdict == Verdict::Impossible && !never && request.needs_total() > 0;
        self.queue.set_may_reserve(Entity::Group(id), may_reserve);
        if !may_reserve {
            return None;
        }
        let entry = self.queue.entry(Entity::Group(id))?;
        // Counted from the first failed attempt, not from the wait for members.
        let unschedulable_since = entry.unschedulable_since.unwrap_or(self.now);
        let vain = self.vain_reservations.get(&self.cluster.group(id).key.namespace);
        let starving_at =
            unschedulable_since.saturating_add(self.config.starving_after_ms).max(vain.map_or(0, |vain| vain.until));
        if self.now < starving_at {
            return Some(starving_at);
        }
        let (rank, expired_reservations) = (entry.rank.clone(), entry.expired_reservations);
        if expired_reservations > 0
            && self.reservation.is_none()
            && self.starving().any(|other| other.expired_reservations < expired_reservations)
        {
            // A gang whose reservation expired yields to others.
            return Some(self.now.saturating_add(self.config.starving_after_ms.max(1)));
        }
        let ahead = self.reservation.as_ref().is_some_and(|reservation| {
            let other = self.queue.entry(Entity::Group(reservation.group));
            reservation.group == id || other.is_some_and(|other| other.rank <= rank)
        });
        let nodes_max = self.cluster.nodes_present() * self.config.reservation_nodes_percent_max as usize / 100;
        if !ahead && let Some(nodes) = self.nodes_to_drain(id, request).filter(|nodes| nodes.len() <= nodes_max.max(1))
        {
            self.release_reservation();
            self.reserve_nodes(id, request, nodes);
        }
        None
    }

    /// The nodes that need the least draining to hold what is needed; `None` if they would not come free.
    fn nodes_to_drain(&mut self, id: GroupId, request: &PlacementRequest) -> Option<BTreeSet<NodeId>> {
        let (now, until) = (self.now, self.now.saturating_add(self.config.reservation_ms_max));
        let may_preempt = self.config.preemption.on && !self.group_never_preempts(id);
        let comes_free = |cluster: &Cluster, id: PodId| {
            let pod = cluster.pod(id);
            let is_victim = may_preempt && !pod.is_static && cluster.victim_priority(id) < request.priority;
            pod.is_leaving() || is_victim || pod.lifetime.ends_until(pod.started_ms, now, until)
        };
        let has_terms = |lot: &Lot| self.cluster.has_required_inter_pod_terms(lot.class);
        if request.tree.is_none() && !request.is_bound_to_domains() && !request.lots.iter().any(has_terms) {
            return nodes_with_least_draining(&self.cluster, request, |id| !comes_free(&self.cluster, id));
        }
        let placed = self.cluster.pods().filter(|(_, pod)| pod.state.node().is_some()).map(|(id, _)| id);
        let freed: Vec<PodId> = placed.filter(|id| comes_free(&self.cluster, *id)).collect();
        let (aside, steps_max) = (self.set_aside_for(id), self.steps_max(Entity::Group(id)));
        let needed = request.trimmed_to_needs();
        let mut transaction = view_for_group(&mut self.cluster, request, &aside);
        for pod in freed {
            transaction.remove(pod);
        }
        let verdict = placement::place(&mut transaction, &mut self.cache, &needed, steps_max);
        (verdict == Verdict::Placed).then(|| transaction.placed().map(|(_, node)| node).collect())
    }

    fn reserve_nodes(&mut self, id: GroupId, request: &PlacementRequest, nodes: BTreeSet<NodeId>) {
        let until = self.now.saturating_add(self.config.reservation_ms_max);
        let names = nodes.iter().map(|node| self.cluster.node(*node).name.clone()).collect();
        for node in nodes {
            self.cluster.set_reservation(node, Some(request.priority));
        }
        self.reservation = Some(Reservation { group: id, nodes: names, since: self.now, until });
        self.set_timer(until, Timer::ReservationEnd);
    }

    /// Ends the reservation and makes its nodes available again.
    pub(super) fn release_reservation(&mut self) {
        let Some(reservation) = self.reservation.take() else { return };
        let nodes: Vec<NodeId> = reservation.nodes.iter().filter_map(|name| self.cluster.node_id(name)).collect();
        self.cluster.end_reservation(nodes);
        self.handle_events();
    }

    fn starving(&self) -> impl Iterator<Item = &queue::Entry> {
        self.queue.entries().filter(|(entity, entry)| self.starves(*entity, entry)).map(|(_, entry)| entry)
    }

    pub(super) fn starves(&self, entity: Entity, entry: &queue::Entry) -> bool {
        let due = |since: Millis| since.saturating_add(self.config.starving_after_ms) <= self.now;
        let waits = matches!(entity, Entity::Group(_)) && entry.may_reserve && entry.state != QueueState::Held;
        waits && entry.unschedulable_since.is_some_and(due)
    }

    /// The nodes did not drain in time.
    pub(super) fn reservation_expired(&mut self, due: Millis) {
        if self.reservation.as_ref().is_some_and(|reservation| reservation.until == due) {
            if let Some(reservation) = &self.reservation {
                self.queue.count_expired_reservation(Entity::Group(reservation.group));
            }
            self.count_vain_reservation();
            self.release_reservation();
        }
    }

    /// The reservation ends without a start: its namespace has to pause.
    fn count_vain_reservation(&mut self) {
        let Some(reservation) = &self.reservation else { return };
        let namespace = self.cluster.group(reservation.group).key.namespace.clone();
        self.count_vain(namespace, self.now.saturating_sub(reservation.since));
    }

    /// Whether nothing is kept for a namespace, because it did not use what was.
    pub(super) fn has_to_pause(&self, namespace: &str) -> bool {
        self.vain_reservations.get(namespace).is_some_and(|vain| self.now < vain.until)
    }

    /// A namespace did not use what was kept for it.
    pub(super) fn count_vain(&mut self, namespace: String, held_ms: Millis) {
        let now = self.now;
        // What was in vain long ago does not count any more.
        self.vain_reservations.retain(|_, vain| now < vain.until.saturating_add(PAUSE_MS_MAX));
        let vain = self.vain_reservations.entry(namespace).or_default();
        vain.count = vain.count.saturating_add(1);
        vain.until = now.saturating_add(doubled(held_ms, vain.count).min(PAUSE_MS_MAX));
    }

    /// Ends the reservation of a group that no longer waits for capacity.
    pub(super) fn review_reservation(&mut self, id: GroupId) {
        if self.reservation.as_ref().is_none_or(|reservation| reservation.group != id) {
            return;
        }
        let entry = self.queue.entry(Entity::Group(id));
        if entry.is_none_or(|entry| entry.state == QueueState::Held) {
            let group = self.cluster.group(id);
            if group.members.iter().any(|(_, member)| self.cluster.pod(*member).state.node().is_some()) {
                self.vain_reservations.remove(&group.key.namespace);
            } else {
                self.count_vain_reservation();
            }
            self.release_reservation();
        }
    }

    /// The nodes that are reserved for another group.
    pub(super) fn reserved_for_others(&self, id: GroupId) -> Vec<NodeId> {
        let other = self.reservation.as_ref().map(|reservation| reservation.group).filter(|group| *group != id);
        other.map_or_else(Vec::new, |group| self.reserved_for(group))
    }

    /// The nodes that are reserved for this group.
    pub(super) fn reserved_for(&self, id: GroupId) -> Vec<NodeId> {
        let reservation = self.reservation.as_ref().filter(|reservation| reservation.group == id);
        reservation.map_or_else(Vec::new, |reservation| {
            reservation.nodes.iter().filter_map(|name| self.cluster.node_id(name)).collect()
        })
    }
}

/// The nodes that need the least draining to hold what is needed beside the pods that stay; `None` if there are not
/// enough. For pods without required inter-pod terms.
fn nodes_with_least_draining(
    cluster: &Cluster,
    request: &PlacementRequest,
    stays: impl Fn(PodId) -> bool,
) -> Option<BTreeSet<NodeId>> {
    let mut missing: Vec<usize> = request.needs.iter().map(|need| *need as usize).collect();
    // The load of each chosen node: what stays there, and the members meant for it.
    let mut chosen: BTreeMap<NodeId, Load> = BTreeMap::new();
    for lot in &request.lots {
        let mut pods = lot.len().min(missing[lot.subset]);
        missing[lot.subset] -= pods;
        for (node, load) in &mut chosen {
            pods -= fill(cluster, lot.class, *node, load, pods);
        }
        for (_, node) in nodes_by_free_capacity(cluster, lot.class, request.priority) {
            if pods == 0 {
                break;
            }
            if let Entry::Vacant(place) = chosen.entry(node) {
                let mut load = load_that_stays(cluster, node, &stays);
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

/// Adds up to `pods` pods of a class to a load, as many as the node can hold; returns how many.
fn fill(cluster: &Cluster, class: ClassId, id: NodeId, load: &mut Load, pods: usize) -> usize {
    let (pod_class, node) = (cluster.class(class), cluster.node(id));
    if !filter::passes_static_filters(pod_class, node) {
        return 0;
    }
    let view = View::of_empty_cluster(cluster, id, Cow::Borrowed(&*load));
    let copies = usize::try_from(filter::copies_max(pod_class, node, &view)).unwrap_or(0).min(pods);
    for _ in 0..copies {
        load.add(pod_class);
    }
    copies
}

fn load_that_stays(cluster: &Cluster, id: NodeId, stays: impl Fn(PodId) -> bool) -> Load {
    let mut load = Load::default();
    for pod in cluster.node(id).pods.iter().filter(|pod| stays(**pod)) {
        load.add(cluster.class(cluster.pod(*pod).class));
    }
    load
}

/// The nodes that pass the static filters, those with the most free capacity first.
fn nodes_by_free_capacity(cluster: &Cluster, class: ClassId, priority: i32) -> Vec<(Reverse<i64>, NodeId)> {
    let pod_class = cluster.class(class);
    let nodes = cluster.nodes().filter(|(_, node)| filter::passes_static_filters(pod_class, node));
    let room = |id, node| filter::copies_max(pod_class, node, &filter::view(cluster, id, priority));
    let mut nodes: Vec<_> = nodes.map(|(id, node)| (Reverse(room(id, node)), id)).collect();
    nodes.sort_unstable();
    nodes
}
