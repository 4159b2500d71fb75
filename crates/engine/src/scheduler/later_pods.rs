//! Pods that an owner creates only after others run: workers that wait for their leader, parts of a set that start one
//! after another.
//!
//! A group must not start while there is no room for them, or it would hold its nodes and wait forever. Their templates
//! are known, so they are placed in the trial, each on the nodes that it may use. What runs at the same time is a
//! stage:
//! its pods must fit beside the group. The pods of stages without the group must fit by themselves; as they come only
//! when others have ended, what they may preempt then does not count. From the start on the room is kept (`kept_room`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::Engine;
use super::scheduling_cycle::view_for_group;
use crate::cluster::pod::Pod;
use crate::cluster::transaction::Transaction;
use crate::diagnosis::LaterGap;
use crate::model::group::{GroupKey, LaterPods};
use crate::model::ids::{ClassId, GroupId, LabelSetId, PodId};
use crate::model::resources::{NAMES_PER_POD_MAX, POD_NAMES_MAX};
use crate::placement::cache::Cache;
use crate::placement::{self, Lot, PlacementRequest, Verdict};
use crate::queue::{Entity, QueueState};

/// Looking at so many pods is one step.
const STEPS_PER_PODS: usize = 16;

/// The pods of one stage that are not on nodes, while an attempt looks for room for them.
#[derive(Debug, Default)]
pub(super) struct Stage {
    pub(super) parts: Vec<Part>,
    /// A part for whose resources there are no names: nothing is known of it.
    unnamed: Option<(GroupKey, u32)>,
}

/// Pods of one template.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) group: GroupKey,
    /// Whether that is another group than the one that is attempted.
    joins_other: bool,
    pub(super) class: ClassId,
    labels: LabelSetId,
    pub(super) pods: u32,
}

impl Stage {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.unnamed.is_none()
    }

    /// What is lacking whatever the room.
    pub(super) fn unnamed_gap(&self) -> Option<LaterGap> {
        let (group, pods) = self.unnamed.as_ref()?;
        Some(LaterGap { group: group.to_string(), pods: *pods, fit: 0, beside: true })
    }

    /// A request together with the pods of the stage.
    pub(super) fn added_to(&self, request: &PlacementRequest) -> PlacementRequest {
        let mut all = request.clone();
        for part in &self.parts {
            let (subset, expected) = (all.needs.len(), part.pods as usize);
            all.needs.push(part.pods);
            all.lots.push(Lot {
                class: part.class,
                subset,
                pods: Vec::new(),
                expected,
                avoid: Vec::new(),
                within: None,
            });
        }
        all
    }

    /// The same, if that is one request: a group that has to be in one domain does not say where other groups are.
    pub(super) fn together_with(&self, request: &PlacementRequest) -> Option<PlacementRequest> {
        let elsewhere = request.is_bound_to_domains() && self.parts.iter().any(|part| part.joins_other);
        (!elsewhere).then(|| self.added_to(request))
    }

    /// The pods of the stage alone.
    pub(super) fn request(&self, priority: i32) -> PlacementRequest {
        let none = (Vec::new(), Vec::new());
        self.added_to(&PlacementRequest {
            lots: none.0,
            needs: none.1,
            priority,
            topology: None,
            within: None,
            needs_only: false,
            tree: None,
        })
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
    /// The pods that must fit beside a group when it starts and whose room is then kept; `None` if it has started or
    /// has
    /// no later pods. They are to be released.
    pub(super) fn later_beside(&mut self, id: GroupId) -> Option<Stage> {
        let group = self.cluster.group(id);
        let spec = group.definition.current().filter(|_| group.must_fit_later_pods())?;
        let stage = spec.later.iter().find(|stage| has(stage, &group.key));
        let stage = stage.cloned().unwrap_or_default();
        Some(self.acquire(id, &stage))
    }

    /// The first part of a further stage for which there would be no room. Stages without the group matter only before
    /// anything of the family has started.
    /// The stage is to be released.
    pub(super) fn further_stage_gap(&mut self, id: GroupId, request: &PlacementRequest) -> Option<(LaterGap, Stage)> {
        let group = self.cluster.group(id);
        let spec = group.definition.current().filter(|_| group.must_fit_later_pods())?;
        let (key, later) = (group.key.clone(), spec.later.clone());
        let kept = later.iter().position(|stage| has(stage, &key));
        let has_started = later.iter().flatten().any(|part| self.placed_of(&part.group) > 0);
        let further = later
            .iter()
            .enumerate()
            .filter(|(index, stage)| Some(*index) != kept && (has(stage, &key) || !has_started));
        let further: Vec<&Vec<LaterPods>> = further.map(|(_, stage)| stage).collect();
        // All of them together cost as much as one attempt.
        let steps_max = self.steps_max(Entity::Group(id)).div_ceil(further.len().max(1) as u64);
        for stage in &further {
            let beside = has(stage, &key);
            let stage = self.acquire(id, stage);
            if let Some(gap) = self.stage_gap(id, request, (&stage, beside), steps_max) {
                return Some((gap, stage));
            }
            self.release(stage);
        }
        None
    }

    /// The first part of a stage without room, beside the group or by itself: now, or without what the group may
    /// preempt.
    fn stage_gap(
        &mut self,
        id: GroupId,
        request: &PlacementRequest,
        (stage, beside): (&Stage, bool),
        steps_max: u64,
    ) -> Option<LaterGap> {
        if let Some(gap) = stage.unnamed_gap() {
            return Some(gap);
        }
        let aside = self.set_aside_for(id);
        // Where the others are does not depend on the domain of the group.
        let anywhere = || stage.added_to(&PlacementRequest { topology: None, ..request.clone() });
        let all = if beside {
            stage.together_with(request).unwrap_or_else(anywhere)
        } else {
            stage.request(request.priority)
        };
        let mut now = view_for_group(&mut self.cluster, request, &aside);
        if placement::place(&mut now, &mut self.cache, &all, steps_max) == Verdict::Placed {
            return None;
        }
        drop(now);
        let gone = self.preemptible_or_leaving(id, request.priority);
        let mut without = view_for_group(&mut self.cluster, request, &aside);
        for pod in gone {
            without.remove(pod);
        }
        let start = without.savepoint();
        if placement::place(&mut without, &mut self.cache, &all, steps_max) == Verdict::Placed {
            return None;
        }
        without.rollback_to(start);
        // What the group itself lacks is told by the attempt.
        if beside && placement::place(&mut without, &mut self.cache, request, steps_max) != Verdict::Placed {
            return None;
        }
        stage.gap(&mut without, &mut self.cache, request.priority, beside)
    }

    /// The pods on nodes that leave, or that a group of this priority may preempt.
    fn preemptible_or_leaving(&self, id: GroupId, priority: i32) -> Vec<PodId> {
        if self.may_preempt(self.group_never_preempts(id)).is_err() {
            return self.cluster.leaving().collect();
        }
        let goes = |(id, pod): &(PodId, &Pod)| {
            pod.is_leaving() || (!pod.is_static && self.cluster.victim_priority(*id) < priority)
        };
        let placed = self.cluster.pods().filter(|(_, pod)| pod.state.node().is_some());
        let gone: Vec<PodId> = placed.filter(goes).map(|(id, _)| id).collect();
        // Looking at a pod costs little of what evaluating a node does; removing it, about as much.
        self.cluster.steps.add(self.cluster.pods().count() / STEPS_PER_PODS + gone.len());
        gone
    }

    /// How many pods of a group have a node or have succeeded.
    pub(super) fn placed_of(&self, key: &GroupKey) -> u32 {
        self.cluster.group_id(key).map_or(0, |id| self.cluster.group(id).total().placed())
    }

    /// The pods of a stage that are not on nodes. Those of the group itself that wait are part of its own request.
    pub(super) fn acquire(&mut self, id: GroupId, stage: &[LaterPods]) -> Stage {
        let group = self.cluster.group(id);
        let (key, waiting) = (group.key.clone(), group.total().waiting);
        let (mut parts, mut unnamed) = (Vec::new(), None);
        for part in stage {
            let own = if part.group == key { waiting } else { 0 };
            let pods = part.count.saturating_sub(self.placed_of(&part.group).saturating_add(own));
            if pods == 0 {
                continue;
            }
            let names = part.class.requests.keys().map(String::as_str);
            if !self.cluster.resources.has_room_for(names, POD_NAMES_MAX) {
                unnamed = Some((part.group.clone(), pods));
                continue;
            }
            let labels = self.cluster.acquire_labels(&key.namespace, &Arc::default());
            let class = self.cluster.acquire_class(&part.class, labels);
            let joins_other = part.group != key;
            parts.push(Part { group: part.group.clone(), joins_other, class, labels, pods });
        }
        Stage { parts, unnamed }
    }

    /// Releases what a stage has acquired.
    pub(super) fn release(&mut self, stage: Stage) {
        for part in stage.parts {
            self.cluster.release_labels(part.labels);
            self.release_classes(vec![part.class]);
        }
    }

    /// Whether there is room for the names of the resources of its later pods.
    pub(super) fn knows_later_resources(&self, later: &[Vec<LaterPods>]) -> bool {
        let names: BTreeSet<&str> =
            later.iter().flatten().flat_map(|part| part.class.requests.keys().map(String::as_str)).collect();
        names.len() <= NAMES_PER_POD_MAX && self.cluster.resources.has_room_for(names.into_iter(), POD_NAMES_MAX)
    }

    /// The attempt of a group is over: keeps the classes of its later pods while it is parked with their shapes.
    pub(super) fn park_later(&mut self, id: GroupId, stage: Option<Stage>) {
        let entry = self.queue.entry(Entity::Group(id));
        let is_parked = entry.is_some_and(|entry| matches!(entry.state, QueueState::Parked { .. }));
        let Some(stage) = stage else { return self.unpark_later(id) };
        if !is_parked {
            self.release(stage);
            return self.unpark_later(id);
        }
        let mut classes = Vec::new();
        for part in stage.parts {
            self.cluster.release_labels(part.labels);
            classes.push(part.class);
        }
        let former = self.parked_later.insert(id, classes);
        self.release_classes(former.unwrap_or_default());
    }

    /// Members of a group were placed: groups of which it is a later part may need less now.
    pub(super) fn activate_family(&mut self, id: GroupId) {
        let key = &self.cluster.group(id).key;
        let waits = |other: &GroupId| {
            let spec = self.cluster.group_if_any(*other).and_then(|group| group.definition.last());
            *other != id && spec.is_some_and(|spec| spec.later.iter().any(|stage| has(stage, key)))
        };
        let waiting: Vec<GroupId> = self.parked_later.keys().copied().filter(waits).collect();
        for group in waiting {
            self.queue.activate_parked(Entity::Group(group), self.now);
        }
    }

    /// Releases the classes of later pods if the group is not parked any more.
    pub(super) fn review_parked_later(&mut self, id: GroupId) {
        let entry = self.queue.entry(Entity::Group(id));
        if entry.is_none_or(|entry| entry.state == QueueState::Held) {
            self.unpark_later(id);
        }
    }

    /// A group is not parked any more.
    pub(super) fn unpark_later(&mut self, id: GroupId) {
        let classes = self.parked_later.remove(&id).unwrap_or_default();
        self.release_classes(classes);
    }

    fn release_classes(&mut self, classes: Vec<ClassId>) {
        for class in classes {
            self.cluster.release_class(class);
            self.forget_class(class);
        }
    }
}

fn has(stage: &[LaterPods], group: &GroupKey) -> bool {
    stage.iter().any(|part| part.group == *group)
}
