//! The room that is kept for later pods: a stand-in for each of them, nominated to a node, so that pods of the same or a
//! lower priority leave the room free.
//!
//! That is bounded. The room was free when the group started, or was preempted for it. It lapses a while after the start,
//! and is neither raised nor renewed while pods of the family run. A namespace keeps a share of the nodes at most, and has
//! to pause if its pods did not come. A stand-in is a pod of the engine that no scheduler of ours owns: it is never
//! attempted, bound, evicted or reported.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::later_pods::{Part, Stage};
use super::{Engine, Timer};
use crate::cluster::audit::ensure;
use crate::cluster::transaction::Transaction;
use crate::model::Millis;
use crate::model::group::GroupKey;
use crate::model::ids::{ClassId, GroupId, NodeId, PodId};
use crate::model::pod::{PodName, PodSpec};
use crate::placement;
use crate::queue::{Entity, QueueState};

/// A namespace may keep room on so many nodes, however few there are in the cluster.
const NODES_MIN: usize = 16;

/// The room that is kept, by family.
#[derive(Clone, Debug, Default)]
pub(super) struct KeptRooms {
    by_family: BTreeMap<GroupKey, KeptRoom>,
    /// The family of each stand-in.
    families: BTreeMap<PodId, GroupKey>,
}

/// The room that is kept for the later pods of a family of groups.
#[derive(Clone, Debug)]
struct KeptRoom {
    /// The group whose attempt found the room.
    group: GroupKey,
    /// When it started; `None` while it waits for its victims.
    started_ms: Option<Millis>,
    /// Since when it is kept: from the start on, or from the plan on.
    since_ms: Millis,
    until: Millis,
    parts: Vec<KeptPart>,
}

#[derive(Clone, Debug)]
struct KeptPart {
    group: GroupKey,
    /// How many pods it was to have in all.
    count: u32,
    stand_ins: Vec<PodId>,
}

impl KeptRoom {
    fn groups(&self) -> impl Iterator<Item = &GroupKey> {
        self.parts.iter().map(|part| &part.group).chain([&self.group])
    }

    fn stand_ins(&self) -> impl Iterator<Item = PodId> {
        self.parts.iter().flat_map(|part| part.stand_ins.iter().copied())
    }

    fn stand_ins_for(&self, group: &GroupKey) -> usize {
        self.parts.iter().filter(|part| part.group == *group).map(|part| part.stand_ins.len()).sum()
    }
}

impl Engine {
    /// The family of a group: the first of its groups, by which they are known.
    pub(super) fn family_of(&self, id: GroupId) -> Option<GroupKey> {
        let spec = self.cluster.group_if_any(id)?.definition.last()?;
        spec.later.first()?.first().map(|part| part.group.clone())
    }

    /// The stand-ins for the later pods of a group's family.
    pub(super) fn stand_ins_for(&self, id: GroupId) -> Vec<PodId> {
        let kept = self.family_of(id).and_then(|family| self.kept_rooms.by_family.get(&family));
        kept.into_iter().flat_map(KeptRoom::stand_ins).collect()
    }

    /// The places of the stand-ins for a group that waits for its victims; `None` if they are fewer than the later pods
    /// that must fit beside it.
    pub(super) fn places_of_later(&self, id: GroupId, later: &Stage) -> Option<Vec<(PodId, NodeId)>> {
        let stand_ins = self.stand_ins_for(id);
        let places: Vec<_> =
            stand_ins.iter().filter_map(|pod| self.cluster.pod(*pod).nominated.map(|node| (*pod, node))).collect();
        let needed: usize = later.parts.iter().map(|part| part.pods as usize).sum();
        (places.len() >= needed).then_some(places)
    }

    /// Whose attempt a nomination is for. That of a stand-in is for all groups of its family.
    pub(super) fn entities_of_nominee(&self, pod: PodId) -> Vec<Entity> {
        let Some(family) = self.kept_rooms.families.get(&pod) else {
            return vec![self.cluster.pod(pod).group.map_or(Entity::Pod(pod), Entity::Group)];
        };
        let kept = self.kept_rooms.by_family.get(family);
        let groups = kept.into_iter().flat_map(KeptRoom::groups);
        groups.filter_map(|group| self.cluster.group_id(group)).map(Entity::Group).collect()
    }

    /// Keeps the room that a plan found for the later pods of a group until its victims are gone.
    pub(super) fn keep_room_for_plan(&mut self, id: GroupId, stage: &Stage, places: &[(ClassId, NodeId)]) {
        self.keep_room(id, stage, places, None);
    }

    /// A group has started: keeps the room for the pods that come later.
    pub(super) fn keep_room_from_start(&mut self, id: GroupId, stage: &Stage, places: &[(ClassId, NodeId)]) {
        self.keep_room(id, stage, places, Some(self.now));
    }

    /// Whether the room for all later pods can be kept: nothing is evicted for room that others would take.
    pub(super) fn can_keep(&self, id: GroupId, stage: &Stage, places: &[(ClassId, NodeId)]) -> bool {
        let Some(family) = self.family_of(id) else { return false };
        let kept = self.nodes_to_keep(&family, stage, places);
        let needed: usize = stage.parts.iter().map(|part| part.pods as usize).sum();
        kept.iter().map(Vec::len).sum::<usize>() == needed
    }

    /// The nodes on which room may be kept for each part. What a family that has started keeps is not raised.
    fn nodes_to_keep(&self, family: &GroupKey, stage: &Stage, places: &[(ClassId, NodeId)]) -> Vec<Vec<NodeId>> {
        if self.has_to_pause(&family.namespace) {
            return stage.parts.iter().map(|_| Vec::new()).collect();
        }
        let former = self.kept_rooms.by_family.get(family).filter(|former| former.started_ms.is_some());
        let mut nodes: BTreeMap<ClassId, Vec<NodeId>> = BTreeMap::new();
        for (class, node) in places {
            nodes.entry(*class).or_default().push(*node);
        }
        let mut share = Share::of(self, family);
        let mut of_part = |part: &Part| {
            let pods_max = former.map_or(usize::MAX, |former| former.stand_ins_for(&part.group));
            let found =
                nodes.get_mut(&part.class).map(|nodes| nodes.split_off(nodes.len().saturating_sub(part.pods as usize)));
            found.unwrap_or_default().into_iter().take(pods_max).filter(|node| share.takes(*node)).collect()
        };
        stage.parts.iter().map(&mut of_part).collect()
    }

    /// Keeps room in place of what was kept for the family before, not for longer.
    fn keep_room(&mut self, id: GroupId, stage: &Stage, places: &[(ClassId, NodeId)], started_ms: Option<Millis>) {
        let Some(family) = self.family_of(id) else { return };
        let nodes = self.nodes_to_keep(&family, stage, places);
        let former = self.remove_room(&family);
        let had_started = former.as_ref().is_some_and(|former| former.started_ms.is_some());
        if stage.is_empty() && had_started && started_ms.is_some() {
            // Its pods came.
            self.vain_reservations.remove(&family.namespace);
        }
        let until = started_ms.unwrap_or(self.now).saturating_add(self.config.min_resources_held_ms_max);
        // Only the start renews the time of a plan.
        let renewed = started_ms.is_some() && !had_started;
        let carried = former.as_ref().filter(|_| !renewed);
        let (since_ms, until) = carried.map_or((self.now, until), |former| (former.since_ms, former.until));
        if until <= self.now || nodes.iter().all(Vec::is_empty) {
            return;
        }
        let counts = self.cluster.group(id).definition.last().map(|spec| spec.later.concat()).unwrap_or_default();
        let mut parts = Vec::new();
        for (part, nodes) in stage.parts.iter().zip(nodes) {
            let new = |node| self.new_stand_in(&family, &part.group, part.class, (id, node));
            let stand_ins = nodes.into_iter().map(new).collect();
            let count = counts.iter().find(|one| one.group == part.group).map_or(0, |one| one.count);
            parts.push(KeptPart { group: part.group.clone(), count, stand_ins });
        }
        let group = self.cluster.group(id).key.clone();
        let started_ms = former.and_then(|former| former.started_ms).or(started_ms);
        let kept = KeptRoom { group, started_ms, since_ms, until, parts };
        self.kept_rooms.families.extend(kept.stand_ins().map(|stand_in| (stand_in, family.clone())));
        self.kept_rooms.by_family.insert(family, kept);
        self.set_timer(until, Timer::KeptRoomEnd);
    }

    fn new_stand_in(
        &mut self,
        family: &GroupKey,
        group: &GroupKey,
        class: ClassId,
        (id, node): (GroupId, NodeId),
    ) -> PodId {
        let class = self.cluster.class(class).spec.clone();
        self.stand_ins_made += 1;
        let number = self.stand_ins_made;
        let name = format!("{} (later pod)", group.name);
        let name = PodName { namespace: family.namespace.clone(), name, uid: format!("later pod {number}") };
        let (priority, created_ms) = (self.cluster.group_priority(id), self.now);
        let stand_in = self.new_pod(&PodSpec { id: Arc::new(name), class, priority, created_ms, ..PodSpec::default() });
        self.cluster.set_nominated(stand_in, Some(node));
        stand_in
    }

    /// Pods of a family were placed: the room on their nodes is used.
    pub(super) fn use_kept_room(&mut self, id: GroupId, placed: &[(PodId, NodeId)]) {
        let Some(family) = self.family_of(id) else { return };
        let key = self.cluster.group(id).key.clone();
        let Some(kept) = self.kept_rooms.by_family.get_mut(&family) else { return };
        let mut used = Vec::new();
        for part in kept.parts.iter_mut().filter(|part| part.group == key) {
            for (_, node) in placed {
                let is_there = |pod: &PodId| self.cluster.pod(*pod).nominated == Some(*node);
                if let Some(at) = part.stand_ins.iter().position(is_there) {
                    used.push(part.stand_ins.swap_remove(at));
                }
            }
        }
        if kept.stand_ins().next().is_none() {
            self.kept_rooms.by_family.remove(&family);
            self.vain_reservations.remove(&family.namespace);
        }
        self.remove_stand_ins(used);
    }

    /// Releases room that a family does not need any more: its pods are there, or nothing of it is left.
    pub(super) fn review_kept_room(&mut self, family: &GroupKey) {
        let Some(kept) = self.kept_rooms.by_family.get(family) else { return };
        let groups: BTreeSet<GroupId> = kept.groups().filter_map(|key| self.cluster.group_id(key)).collect();
        let groups: Vec<GroupId> =
            groups.into_iter().filter(|id| self.family_of(*id).as_ref() == Some(family)).collect();
        let is_alive = |id: &GroupId| {
            let group = self.cluster.group(*id);
            group.total().assumed + group.total().bound > 0 || group.nominations > 0
        };
        if !groups.iter().any(is_alive) {
            self.release_room(family);
            return;
        }
        let later = groups.iter().filter_map(|id| self.cluster.group(*id).definition.last());
        // The counts may have been lowered since.
        let counts = later.flat_map(|spec| spec.later.iter().flatten()).map(|part| (part.group.clone(), part.count));
        let counts: BTreeMap<GroupKey, u32> = counts.collect();
        let missing =
            |group: &GroupKey| counts.get(group).copied().unwrap_or(0).saturating_sub(self.placed_of(group)) as usize;
        let missing: Vec<usize> = kept.parts.iter().map(|part| missing(&part.group)).collect();
        let is_lowered = kept.parts.iter().any(|part| counts.get(&part.group).copied().unwrap_or(0) < part.count);
        let mut superfluous = Vec::new();
        let Some(kept) = self.kept_rooms.by_family.get_mut(family) else { return };
        for (part, missing) in kept.parts.iter_mut().zip(missing) {
            superfluous.extend(part.stand_ins.drain(missing.min(part.stand_ins.len())..));
        }
        let (started_ms, is_empty) = (kept.started_ms, kept.stand_ins().next().is_none());
        self.remove_stand_ins(superfluous);
        if is_empty && is_lowered {
            self.release_room(family);
        } else if is_empty && started_ms.is_some() {
            self.kept_rooms.by_family.remove(family);
        }
    }

    /// Room has been kept for long enough.
    pub(super) fn kept_rooms_expired(&mut self) {
        let due = self.kept_rooms.by_family.iter().filter(|(_, kept)| kept.until <= self.now);
        for family in due.map(|(family, _)| family.clone()).collect::<Vec<_>>() {
            // Also the room of a plan: victims that do not leave must not hold it again and again.
            if let Some(kept) = self.remove_room(&family).filter(|kept| kept.stand_ins().next().is_some()) {
                self.count_vain(family.namespace, self.now.saturating_sub(kept.since_ms));
            }
        }
    }

    /// Releases room that was not used. After the start, that was in vain.
    fn release_room(&mut self, family: &GroupKey) {
        let Some(KeptRoom { started_ms: Some(started_ms), .. }) = self.remove_room(family) else { return };
        self.count_vain(family.namespace.clone(), self.now.saturating_sub(started_ms));
    }

    /// Room is kept only for families that are there, and every stand-in belongs to one of them.
    pub(crate) fn audit_kept_rooms(&self) -> Result<(), String> {
        let KeptRooms { by_family, families } = &self.kept_rooms;
        for (family, kept) in by_family {
            let mut groups = kept.groups().filter_map(|key| self.cluster.group_id(key));
            ensure(groups.any(|id| self.family_of(id).as_ref() == Some(family)), || {
                format!("room is kept for {family}, of which nothing is left")
            })?;
            ensure(self.timers.contains(&(kept.until, Timer::KeptRoomEnd)), || {
                format!("the room of {family} does not lapse")
            })?;
        }
        for id in self.parked_later.keys() {
            let entry = self.queue.entry(Entity::Group(*id));
            ensure(entry.is_some_and(|entry| entry.state != QueueState::Held), || {
                format!("classes are kept for group {id:?}, which does not wait for room")
            })?;
        }
        let listed = by_family.iter().flat_map(|(family, kept)| kept.stand_ins().map(move |pod| (pod, family.clone())));
        ensure(listed.collect::<BTreeMap<PodId, GroupKey>>() == *families, || "stand-ins are listed twice".to_owned())?;
        let mut stand_ins = families.keys();
        ensure(stand_ins.all(|pod| self.cluster.pod_if_any(*pod).is_some()), || "a stand-in is gone".to_owned())
    }

    fn remove_room(&mut self, family: &GroupKey) -> Option<KeptRoom> {
        let kept = self.kept_rooms.by_family.remove(family)?;
        self.remove_stand_ins(kept.stand_ins().collect());
        Some(kept)
    }

    fn remove_stand_ins(&mut self, stand_ins: Vec<PodId>) {
        for stand_in in stand_ins {
            self.kept_rooms.families.remove(&stand_in);
            let class = self.cluster.remove_pod(stand_in).class;
            self.forget_class(class);
        }
    }

    /// After a restart: keeps room for the later pods of groups that an earlier process started, for the rest of the time.
    pub(super) fn keep_room_for_found_groups(&mut self) {
        let is_found = |id: &GroupId| {
            let group = self.cluster.group(*id);
            let has_later = group.definition.current().is_some_and(|spec| !spec.later.is_empty());
            has_later && group.total().bound > 0 && group.admits_single_members()
        };
        let groups: Vec<GroupId> = self.cluster.groups().map(|(id, _)| id).filter(is_found).collect();
        for id in groups {
            if self.family_of(id).is_none_or(|family| self.kept_rooms.by_family.contains_key(&family)) {
                continue;
            }
            let group = self.cluster.group(id);
            let Some(spec) = group.definition.current() else { continue };
            let stage = spec.later.iter().find(|stage| stage.iter().any(|part| part.group == group.key)).cloned();
            let started_ms = self.started_ms(id);
            let stage = self.acquire(id, &stage.unwrap_or_default());
            let priority = self.cluster.group_priority(id);
            let mut transaction = Transaction::new(&mut self.cluster);
            let start = transaction.savepoint();
            placement::place_what_fits(&mut transaction, &mut self.cache, &stage.request(priority));
            let places = transaction.occupied_since(start);
            drop(transaction);
            self.keep_room(id, &stage, &places, started_ms);
            self.release(stage);
        }
    }
}

/// The nodes on which a namespace keeps room, and how many there may be.
struct Share {
    nodes: BTreeSet<NodeId>,
    nodes_max: usize,
}

impl Share {
    /// What the other families of a namespace use.
    fn of(engine: &Engine, family: &GroupKey) -> Self {
        let is_other = |other: &GroupKey| other != family && other.namespace == family.namespace;
        let rooms = engine.kept_rooms.by_family.iter().filter(|(other, _)| is_other(other));
        let nodes = rooms.flat_map(|(_, kept)| kept.stand_ins()).filter_map(|pod| engine.cluster.pod(pod).nominated);
        let percent = engine.config.reservation_nodes_percent_max as usize;
        let nodes_max = (engine.cluster.nodes_present() * percent / 100).max(NODES_MIN);
        Self { nodes: nodes.collect(), nodes_max }
    }

    fn takes(&mut self, node: NodeId) -> bool {
        self.nodes.contains(&node) || (self.nodes.len() < self.nodes_max && self.nodes.insert(node))
    }
}
