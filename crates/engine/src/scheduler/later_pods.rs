//! Pods that an owner creates only after others run: workers that wait for their leader, parts of a set that start one
//! after another.
//!
//! A group must not start while there is no room for them, or it would hold its nodes and wait forever. Their templates
//! are known, so they are placed in the trial, each on the nodes that it may use. What runs at the same time is a stage:
//! its pods must fit beside the group; the pods of other stages must fit without it. When the group starts, their room
//! is kept: a stand-in for each of them is nominated to its node, so that pods of the same or a lower priority leave the
//! room free. That is bounded: it was free when the group started, it cannot be raised later, it lapses after a while, and
//! a namespace that did not use it has to pause before room is kept for it again.

use std::sync::Arc;

use super::scheduling_cycle::view_for_group;
use super::{Engine, Timer};
use crate::cluster::transaction::Transaction;
use crate::diagnosis::LaterGap;
use crate::model::Millis;
use crate::model::group::{GroupKey, LaterPods};
use crate::model::ids::{ClassId, GroupId, LabelSetId, NodeId, PodId};
use crate::model::pod::{PodName, PodSpec};
use crate::model::resources::{NAMES_PER_POD_MAX, POD_NAMES_MAX};
use crate::placement::cache::Cache;
use crate::placement::{self, Lot, PlacementRequest, Verdict};
use crate::queue::Entity;

/// With more groups than this that wait for room for later pods, an event activates none of them; they are attempted
/// after a while.
const ACTIVATED_MAX: usize = 64;

/// The pods of one stage that are not on nodes, while an attempt looks for room for them.
#[derive(Debug)]
pub(super) struct Stage {
    parts: Vec<Part>,
}

/// Pods of one template.
#[derive(Debug)]
struct Part {
    group: GroupKey,
    class: ClassId,
    labels: LabelSetId,
    pods: u32,
}

/// The room that is kept for the later pods of a family of groups.
#[derive(Clone, Debug)]
pub(super) struct KeptRoom {
    since: Millis,
    until: Millis,
    parts: Vec<KeptPart>,
}

#[derive(Clone, Debug)]
struct KeptPart {
    group: GroupKey,
    /// How many pods it will have in all.
    count: u32,
    stand_ins: Vec<PodId>,
}

impl Stage {
    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// A request together with the pods of the stage.
    pub(super) fn added_to(&self, request: &PlacementRequest) -> PlacementRequest {
        let mut all = request.clone();
        for part in &self.parts {
            let (subset, expected) = (all.needs.len(), part.pods as usize);
            all.needs.push(part.pods);
            all.lots.push(Lot { class: part.class, subset, pods: Vec::new(), expected, avoid: Vec::new() });
        }
        all
    }

    /// The pods of the stage alone.
    fn request(&self, priority: i32) -> PlacementRequest {
        self.added_to(&PlacementRequest { lots: Vec::new(), needs: Vec::new(), priority })
    }

    /// Finds room for all of them beside what is placed already.
    pub(super) fn place(
        &self,
        transaction: &mut Transaction<'_>,
        cache: &mut Cache,
        priority: i32,
        steps_max: u64,
    ) -> bool {
        self.is_empty() || placement::place(transaction, cache, &self.request(priority), steps_max) == Verdict::Placed
    }

    /// The first part that does not fit beside what is placed already.
    pub(super) fn gap(
        &self,
        transaction: &mut Transaction<'_>,
        cache: &mut Cache,
        priority: i32,
        beside: bool,
    ) -> Option<LaterGap> {
        let savepoint = transaction.savepoint();
        placement::place_what_fits(transaction, cache, &self.request(priority));
        let mut places = transaction.occupied_since(savepoint);
        transaction.rollback_to(savepoint);
        let gaps = self.parts.iter().filter_map(|part| {
            let mut fit = 0;
            places.retain(|(class, _)| {
                let is_one = *class == part.class && fit < part.pods;
                fit += u32::from(is_one);
                !is_one
            });
            let Part { group, pods, .. } = part;
            (fit < *pods).then(|| LaterGap { group: group.to_string(), pods: *pods, fit, beside })
        });
        // All parts fit one after the other, and not all at once: the last one is what the search left out.
        let last = self.parts.last().map(|part| LaterGap {
            group: part.group.to_string(),
            pods: part.pods,
            fit: part.pods.saturating_sub(1),
            beside,
        });
        gaps.collect::<Vec<_>>().into_iter().next().or(last)
    }
}

impl Engine {
    /// The pods that must fit beside a group when it starts; `None` if it has started or has no later pods. They are to
    /// be released.
    pub(super) fn later_beside(&mut self, id: GroupId) -> Option<Stage> {
        let group = self.cluster.group(id);
        let spec = group.definition.current().filter(|_| group.must_fit_later_pods())?;
        let stage = spec.later.iter().find(|stage| stage.iter().any(|part| part.group == group.key));
        let stage = stage.cloned().unwrap_or_default();
        Some(self.acquire(id, &stage))
    }

    /// The first part of another stage for which there would be no room even without this one. It matters only before
    /// anything of the family has started.
    pub(super) fn later_stage_gap(&mut self, id: GroupId, request: &PlacementRequest) -> Option<LaterGap> {
        let group = self.cluster.group(id);
        let spec = group.definition.current().filter(|_| group.must_fit_later_pods())?;
        let is_placed = |part: &LaterPods| self.placed_of(&part.group) > 0;
        if spec.later.len() < 2 || spec.later.iter().flatten().any(is_placed) {
            return None;
        }
        let others: Vec<Vec<LaterPods>> =
            spec.later.iter().filter(|stage| stage.iter().all(|part| part.group != group.key)).cloned().collect();
        others.iter().find_map(|stage| {
            let stage = self.acquire(id, stage);
            let (aside, steps_max) = (self.set_aside_for(id), self.steps_max(Entity::Group(id)));
            let mut transaction = view_for_group(&mut self.cluster, request, &aside);
            let fits = stage.place(&mut transaction, &mut self.cache, request.priority, steps_max);
            let gap = (!fits).then(|| stage.gap(&mut transaction, &mut self.cache, request.priority, false)).flatten();
            drop(transaction);
            self.release(stage);
            gap
        })
    }

    /// How many pods of a group have a node or have succeeded.
    fn placed_of(&self, key: &GroupKey) -> u32 {
        self.cluster.group_id(key).map_or(0, |id| self.cluster.group(id).total().placed())
    }

    /// The pods of a stage that are not on nodes. Those of the group itself that wait are part of its own request.
    fn acquire(&mut self, id: GroupId, stage: &[LaterPods]) -> Stage {
        let group = self.cluster.group(id);
        let (key, waiting) = (group.key.clone(), group.total().waiting);
        let mut parts = Vec::new();
        for part in stage {
            let own = if part.group == key { waiting } else { 0 };
            let pods = part.count.saturating_sub(self.placed_of(&part.group).saturating_add(own));
            if pods == 0 {
                continue;
            }
            let labels = self.cluster.acquire_labels(&key.namespace, &Arc::default());
            let class = self.cluster.acquire_class(&part.class, labels);
            parts.push(Part { group: part.group.clone(), class, labels, pods });
        }
        Stage { parts }
    }

    /// Releases what a stage has acquired.
    pub(super) fn release(&mut self, stage: Stage) {
        for part in stage.parts {
            self.cluster.release_class(part.class);
            self.cluster.release_labels(part.labels);
            self.forget_class(part.class);
        }
    }

    /// Whether there is room for the names of the resources of its later pods.
    pub(super) fn knows_later_resources(&self, later: &[Vec<LaterPods>]) -> bool {
        later.iter().flatten().all(|part| {
            let names = part.class.requests.keys().map(String::as_str);
            part.class.requests.len() <= NAMES_PER_POD_MAX && self.cluster.resources.has_room_for(names, POD_NAMES_MAX)
        })
    }

    /// The family of a group: the first of its groups, by which they are known.
    pub(super) fn family_of(&self, id: GroupId) -> Option<GroupKey> {
        let spec = self.cluster.group_if_any(id)?.definition.last()?;
        spec.later.first()?.first().map(|part| part.group.clone())
    }

    /// The stand-ins for the later pods of a group's family.
    pub(super) fn stand_ins_for(&self, id: GroupId) -> Vec<PodId> {
        let kept = self.family_of(id).and_then(|family| self.kept_room.get(&family));
        kept.into_iter().flat_map(|kept| &kept.parts).flat_map(|part| part.stand_ins.iter().copied()).collect()
    }

    /// Keeps the room that an attempt found for the later pods of a group, instead of what was kept before.
    pub(super) fn keep_room(&mut self, id: GroupId, stage: &Stage, places: &[(ClassId, NodeId)]) {
        let Some(family) = self.family_of(id) else { return };
        self.remove_stand_ins(&family);
        if places.is_empty() || self.has_to_pause(&family.namespace) {
            return;
        }
        let counts = self.cluster.group(id).definition.last().map(|spec| spec.later.concat()).unwrap_or_default();
        let priority = self.cluster.group_priority(id);
        let (mut places, mut number) = (places.to_vec(), 0_u32);
        let mut parts = Vec::new();
        for part in &stage.parts {
            let class = self.cluster.class(part.class).spec.clone();
            let mut stand_ins = Vec::new();
            while let Some(at) = places.iter().position(|(class, _)| *class == part.class)
                && stand_ins.len() < part.pods as usize
            {
                let (_, node) = places.swap_remove(at);
                number += 1;
                let name = format!("{} (later pod {number})", part.group.name);
                let uid = format!("later pod {number} of {family:?}");
                let name = PodName { namespace: family.namespace.clone(), name, uid };
                let created_ms = self.now;
                let spec =
                    PodSpec { id: Arc::new(name), class: class.clone(), priority, created_ms, ..PodSpec::default() };
                let stand_in = self.new_pod(&spec);
                self.cluster.set_nominated(stand_in, Some(node));
                stand_ins.push(stand_in);
            }
            let count = counts.iter().find(|one| one.group == part.group).map_or(0, |one| one.count);
            parts.push(KeptPart { group: part.group.clone(), count, stand_ins });
        }
        let until = self.now.saturating_add(self.config.min_resources_held_ms_max);
        self.kept_room.insert(family, KeptRoom { since: self.now, until, parts });
        self.set_timer(until, Timer::KeptRoomEnd(id));
    }

    /// Pods of a family were placed: the room on their nodes is used.
    pub(super) fn use_kept_room(&mut self, id: GroupId, placed: &[(PodId, NodeId)]) {
        let Some(family) = self.family_of(id).filter(|family| self.kept_room.contains_key(family)) else { return };
        let key = self.cluster.group(id).key.clone();
        for (_, node) in placed {
            let Some(kept) = self.kept_room.get_mut(&family) else { return };
            let Some(part) = kept.parts.iter_mut().find(|part| part.group == key) else { return };
            let is_there = |pod: &PodId| self.cluster.pod(*pod).nominated == Some(*node);
            if let Some(at) = part.stand_ins.iter().position(is_there) {
                let stand_in = part.stand_ins.swap_remove(at);
                self.remove_stand_in(stand_in);
            }
        }
    }

    /// Releases room that a family does not need any more: its pods are there, or nothing of it is left.
    pub(super) fn review_kept_room(&mut self, family: &GroupKey) {
        let Some(kept) = self.kept_room.get(family) else { return };
        let groups = kept.parts.iter().map(|part| &part.group).chain([family]);
        let ids = groups.filter_map(|key| self.cluster.group_id(key));
        let has_any = ids.map(|id| self.cluster.group(id)).any(|group| {
            let total = group.total();
            total.assumed + total.bound > 0 || group.nominations > 0
        });
        if !has_any {
            self.release_room_in_vain(family);
            return;
        }
        let missing: Vec<usize> =
            kept.parts.iter().map(|part| part.count.saturating_sub(self.placed_of(&part.group)) as usize).collect();
        let mut superfluous = Vec::new();
        let Some(kept) = self.kept_room.get_mut(family) else { return };
        for (part, missing) in kept.parts.iter_mut().zip(missing) {
            superfluous.extend(part.stand_ins.drain(missing.min(part.stand_ins.len())..));
        }
        if kept.parts.iter().all(|part| part.stand_ins.is_empty()) {
            self.kept_room.remove(family);
            self.vain_reservations.remove(&family.namespace);
        }
        for stand_in in superfluous {
            self.remove_stand_in(stand_in);
        }
    }

    /// The room has been kept for long enough.
    pub(super) fn kept_room_ended(&mut self, id: GroupId, due: Millis) {
        let Some(family) = self.family_of(id) else { return };
        if self.kept_room.get(&family).is_some_and(|kept| kept.until == due) {
            self.release_room_in_vain(&family);
        }
    }

    fn release_room_in_vain(&mut self, family: &GroupKey) {
        let since = self.kept_room.get(family).map_or(self.now, |kept| kept.since);
        self.count_vain(family.namespace.clone(), self.now.saturating_sub(since));
        self.remove_stand_ins(family);
    }

    fn remove_stand_ins(&mut self, family: &GroupKey) {
        let Some(kept) = self.kept_room.remove(family) else { return };
        for stand_in in kept.parts.into_iter().flat_map(|part| part.stand_ins) {
            self.remove_stand_in(stand_in);
        }
    }

    fn remove_stand_in(&mut self, stand_in: PodId) {
        let class = self.cluster.remove_pod(stand_in).class;
        self.forget_class(class);
    }

    /// After a restart: keeps room for the later pods of groups that an earlier process started.
    pub(super) fn keep_room_for_found_groups(&mut self) {
        let is_found = |id: &GroupId| {
            let group = self.cluster.group(*id);
            let has_later = group.definition.current().is_some_and(|spec| !spec.later.is_empty());
            has_later && group.total().bound > 0 && group.admits_single_members()
        };
        let groups: Vec<GroupId> = self.cluster.groups().map(|(id, _)| id).filter(is_found).collect();
        for id in groups {
            if self.family_of(id).is_none_or(|family| self.kept_room.contains_key(&family)) {
                continue;
            }
            let key = self.cluster.group(id).key.clone();
            let Some(spec) = self.cluster.group(id).definition.current() else { continue };
            let stage = spec.later.iter().find(|stage| stage.iter().any(|part| part.group == key)).cloned();
            let stage = self.acquire(id, &stage.unwrap_or_default());
            let priority = self.cluster.group_priority(id);
            let mut transaction = Transaction::new(&mut self.cluster);
            let start = transaction.savepoint();
            placement::place_what_fits(&mut transaction, &mut self.cache, &stage.request(priority));
            let places = transaction.occupied_since(start);
            drop(transaction);
            self.keep_room(id, &stage, &places);
            self.release(stage);
        }
    }

    /// There may be more room: activates the groups that wait for room for their later pods.
    pub(super) fn activate_waiting_for_later_room(&mut self) {
        if self.awaiting_later_room.len() > ACTIVATED_MAX {
            return;
        }
        for entity in std::mem::take(&mut self.awaiting_later_room) {
            self.queue.activate_parked(entity, self.now);
        }
    }
}
