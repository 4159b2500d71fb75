//! One entity, one consistent view, one decision.
//!
//! Bring it up to date, look for a place, and then either commit to it or say why not and park. A failed attempt
//! leaves nothing behind: its trial is undone, its nominations are cleared.

use std::collections::{BTreeMap, BTreeSet};

use super::{Engine, min_resources};
use crate::cluster::Cluster;
use crate::cluster::pod::{Awaited, Counted, Part};
use crate::cluster::trial::Trial;
use crate::command::Command;
use crate::diagnosis::{Diagnosis, Preemption, Proof, ResourceGap};
use crate::model::group::Policy;
use crate::model::ids::{ClassId, GroupId, NodeId, PodId};
use crate::placement::cache::Cache;
use crate::placement::{self, Lot, Verdict, Want};
use crate::queue::backoff::{doubled, pause_ms};
use crate::queue::{Entity, Line, Place};

impl Engine {
    /// Tries to place one pod.
    pub(super) fn try_pod(&mut self, id: PodId) {
        let (class, priority) = self.line_of(id);
        let avoid = self.avoided(id);
        let nominated = self.cluster.pod(id).nominated.filter(|node| !avoid.contains(node));
        let mut trial = Trial::new(&mut self.cluster);
        trial.release(id);
        let candidates = self.cache.candidates(trial.cluster(), class, priority);
        // A place that was kept free for the pod is taken without looking for a better one.
        let best = nominated.filter(|node| candidates.has_room(*node)).or_else(|| candidates.best_except(&avoid));
        if let Some(node) = best {
            trial.place(id, node);
            trial.commit();
            self.decided(&[(id, node)]);
            self.queue.wake_next_pod((class, priority), self.now);
            return;
        }
        drop(trial);
        match self.preempt_for_pod(id) {
            Ok(victims) => self.wait_for_victims(Entity::Pod(id), vec![(class, priority)], victims),
            Err(preemption) => self.pod_refused(id, (class, priority), &avoid, preemption),
        }
    }

    fn pod_refused(&mut self, id: PodId, (class, priority): Line, avoid: &[NodeId], preemption: Preemption) {
        self.clear_nomination(id);
        let diagnosis = self.why_not_pod(class, priority, avoid, preemption);
        let entity = Entity::Pod(id);
        self.queue.set_awaits(entity, None);
        let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
        self.queue.failed(entity, self.now, |failures| pause_ms(initial, max, failures, 1));
        // Nodes that refused the pod are open to it again at the next try.
        if let Some(bind) = &mut self.cluster.pod_mut(id).bind {
            bind.avoid.clear();
        }
        let reopened = (!avoid.is_empty()).then(|| self.queue.entry(entity).map_or(self.now, |entry| entry.not_before));
        let again_at = reopened.into_iter().chain(self.preempts_from(entity, preemption)).min();
        self.awaits_nodes(entity, preemption);
        self.queue.put(entity, Place::Parked { lines: vec![(class, priority)], again_at });
        self.say_pod(id, diagnosis);
    }

    /// Tries to place what waits of a group: at least what it needs, or nothing.
    pub(super) fn try_group(&mut self, id: GroupId) {
        let entity = Entity::Group(id);
        let want = self.want(id);
        if self.is_known_to_fail(id, &want) {
            self.preempt_or_refuse(id, &want, Verdict::Impossible, None);
            return;
        }
        if let Some(placed) = self.take_kept_places(id, &want) {
            self.group_placed(id, &placed);
            return;
        }
        let steps_max = self.steps_max(entity);
        let claimed = self.claimed_by(id);
        let mut trial = own_view(&mut self.cluster, &want, &claimed);
        let verdict = match roomy(&trial, &mut self.cache, id, &want) {
            Some(roomy) if placement::place(&mut trial, &mut self.cache, &roomy, steps_max) == Verdict::Placed => {
                Verdict::Placed
            }
            _ => placement::place(&mut trial, &mut self.cache, &want, steps_max),
        };
        if verdict == Verdict::Placed && trial.placed().next().is_some() {
            if let Some(gap) = min_resources::gap(trial.cluster(), id, &want) {
                drop(trial);
                self.preempt_or_refuse(id, &want, Verdict::Impossible, Some(gap));
                return;
            }
            let placed = trial.commit();
            self.group_placed(id, &placed);
            return;
        }
        drop(trial);
        let verdict = match verdict {
            // Nothing was needed and nothing fits: sure, unless nodes were left out by our own wish.
            Verdict::Placed if want.avoids() => Verdict::NotFound { steps: 0 },
            Verdict::Placed => Verdict::Impossible,
            other => other,
        };
        self.preempt_or_refuse(id, &want, verdict, None);
    }

    fn preempt_or_refuse(&mut self, id: GroupId, want: &Want, verdict: Verdict, gap: Option<ResourceGap>) {
        match self.preempt_for_group(id, want) {
            Ok(victims) => self.wait_for_victims(Entity::Group(id), lines(want), victims),
            Err(preemption) => self.group_refused(id, want, verdict, (preemption, gap)),
        }
    }

    fn group_placed(&mut self, id: GroupId, placed: &[(PodId, NodeId)]) {
        let group = self.cluster.group_mut(id);
        group.decisions = group.decisions.wrapping_add(1);
        let quorum = group.quorum();
        let decided = group.attempt.as_ref().map(|attempt| &attempt.quorum);
        // A decision for a higher minimum than the start that is under way is a new start.
        let raised = decided.is_none_or(|decided| quorum.iter().zip(decided).any(|(now, then)| now > then));
        if group.is_gang() && !group.joins_singly() && raised {
            self.start_attempt(id, quorum);
        } else if let Some(attempt) = &mut group.attempt {
            // What is decided now counts: a minimum that was lowered, or a subset that got its name since.
            attempt.quorum = attempt.quorum.iter().zip(&quorum).map(|(then, now)| *then.min(now)).collect();
        }
        let group = self.cluster.group(id);
        let part = match group.attempt {
            Some(_) => Part::Tentative,
            None if group.is_gang() => Part::Joined,
            None => Part::None,
        };
        for (pod, _) in placed {
            self.cluster.pod_mut(*pod).part = part;
        }
        self.queue.set_awaits(Entity::Group(id), None);
        self.decided(placed);
        self.review_group(id);
    }

    fn group_refused(
        &mut self,
        id: GroupId,
        want: &Want,
        verdict: Verdict,
        (preemption, gap): (Preemption, Option<ResourceGap>),
    ) {
        let entity = Entity::Group(id);
        self.queue.set_awaits(entity, None);
        let mut refused = self.how_far(id, want, verdict, preemption);
        refused.shortfall.gap = gap;
        let pods: Vec<PodId> = want.lots.iter().flat_map(|lot| lot.pods.iter().copied()).collect();
        for pod in &pods {
            self.clear_nomination(*pod);
            if let Some(bind) = &mut self.cluster.pod_mut(*pod).bind {
                bind.avoid.clear();
            }
        }
        let (initial, max) = (self.config.backoff_ms_initial, self.config.backoff_ms_max);
        self.queue.failed(entity, self.now, |failures| pause_ms(initial, max, failures, pods.len()));
        let never = refused.shortfall.proof == Proof::NeverFits;
        if refused.shortfall.gap.is_some() {
            self.queue.set_may_claim(entity, false);
        }
        let again_at = match verdict {
            // It fits, so a claim would keep free what it has already. Room that is no help to one of its pods may be
            // enough for the others, and wakes nobody.
            _ if refused.shortfall.gap.is_some() => Some(self.search_again_at(entity)),
            Verdict::NotFound { .. } => Some(self.search_again_at(entity)),
            // A plan that was not found may be found with more steps.
            _ if preemption == Preemption::NotFound => Some(self.search_again_at(entity)),
            _ => self.starving_at(id, want, verdict, never),
        };
        let again_at = again_at.into_iter().chain(self.preempts_from(entity, preemption)).min();
        self.awaits_nodes(entity, preemption);
        self.queue.put(entity, Place::Parked { lines: lines(want), again_at });
        self.parked(id, &want.needs);
        self.say_group(id, Diagnosis::GroupUnschedulable(refused.shortfall), refused.members);
    }

    /// Remembers what a group was parked with: it is tried again when that changes.
    pub(super) fn parked(&mut self, id: GroupId, needs: &[u32]) {
        let group = self.cluster.group_mut(id);
        group.stirred_when_parked = group.stirred;
        group.needs_when_parked = needs.to_vec();
    }

    /// What waits of a group, by class and subset, and how many of each subset it needs.
    pub(super) fn want(&self, id: GroupId) -> Want {
        let group = self.cluster.group(id);
        let mut lots: BTreeMap<(ClassId, usize, Vec<NodeId>), Vec<PodId>> = BTreeMap::new();
        for (_, pod) in &group.waiting {
            let member = self.cluster.pod(*pod);
            let Counted::In { subset, .. } = member.counted else { continue };
            lots.entry((member.class, usize::from(subset), self.avoided(*pod))).or_default().push(*pod);
        }
        let lots = lots
            .into_iter()
            .map(|((class, subset, avoid), pods)| Lot { class, subset, pods, expected: 0, avoid })
            .collect();
        Want { lots, needs: group.needs(), priority: self.cluster.group_priority(id) }
    }

    pub(super) fn steps_max(&self, entity: Entity) -> u64 {
        let searches = self.queue.entry(entity).map_or(0, |entry| entry.searches);
        doubled(self.config.search_steps_initial, searches + 1).min(self.config.search_steps_max)
    }

    fn search_again_at(&mut self, entity: Entity) -> u64 {
        let searches = self.queue.searched(entity);
        let pause = doubled(self.config.search_again_ms_initial, searches).min(self.config.search_again_ms_max);
        self.now.saturating_add(pause)
    }

    /// Forgets what is kept of a class whose last pod is gone: its slot may be given to another class.
    pub(super) fn forget_class(&mut self, class: ClassId) {
        if !self.cluster.classes.contains(class) {
            self.cache.forget(class);
            self.noes.forget(class);
        }
    }

    /// The nodes that refused this pod in the present attempt.
    pub(super) fn avoided(&self, id: PodId) -> Vec<NodeId> {
        let bind = self.cluster.pod(id).bind.as_deref();
        bind.map_or_else(Vec::new, |bind| bind.avoid.iter().filter_map(|name| self.cluster.node_id(name)).collect())
    }

    /// Clears the nominations of a group that may not be tried: no plan stands behind them.
    pub(super) fn clear_nominations(&mut self, id: GroupId) {
        self.queue.set_awaits(Entity::Group(id), None);
        if self.cluster.group(id).nominations == 0 {
            return;
        }
        let members: Vec<PodId> = self.cluster.group(id).members.iter().map(|(_, pod)| *pod).collect();
        for pod in members {
            if self.cluster.pod(pod).ours {
                self.clear_nomination(pod);
            }
        }
    }

    /// Has the API show no nomination, if it shows one.
    pub(super) fn show_no_nomination(&mut self, id: PodId) {
        let pod = self.cluster.pod_mut(id);
        if std::mem::take(&mut pod.shows_nomination) {
            pod.awaited_nomination = Awaited::Cleared;
            self.outbox.push(Command::ClearNomination { pod: pod.id.clone() });
        }
    }

    pub(super) fn clear_nomination(&mut self, id: PodId) {
        if self.cluster.pod(id).nominated.is_some() {
            self.queue.set_awaits(Entity::Pod(id), None);
            self.renominate(id, None);
            self.show_no_nomination(id);
        }
    }
}

/// The lines that a group stands in: one for each class of its pods.
fn lines(want: &Want) -> Vec<Line> {
    let classes: BTreeSet<ClassId> = want.lots.iter().map(|lot| lot.class).collect();
    classes.into_iter().map(|class| (class, want.priority)).collect()
}

/// The cluster as a group sees it when it is tried: its own nominations and its own claim are not in its way.
pub(super) fn own_view<'a>(cluster: &'a mut Cluster, want: &Want, claimed: &[NodeId]) -> Trial<'a> {
    let mut trial = Trial::new(cluster);
    for pod in want.lots.iter().flat_map(|lot| &lot.pods) {
        trial.release(*pod);
    }
    for node in claimed {
        trial.open(*node);
    }
    trial
}

/// For a basic group that expects more members than there are: the same want with room for all of them. It is a
/// hint: if there is no such placement, any will do.
fn roomy(trial: &Trial<'_>, cache: &mut Cache, id: GroupId, want: &Want) -> Option<Want> {
    let group = trial.cluster().group(id);
    let Some(Policy::Basic { desired_count: Some(desired) }) = group.spec.as_ref().map(|spec| &spec.policy) else {
        return None;
    };
    let mut roomy = want.clone();
    let expected = desired.saturating_sub(group.total().present()) as usize;
    if expected == 0 {
        return None;
    }
    // Those to come are taken to be like the most of those that are there.
    let largest = roomy.lots.iter_mut().max_by_key(|lot| lot.pods.len())?;
    largest.expected = expected;
    let units = largest.len() as i64;
    if placement::room_for(trial, cache, largest.class, want.priority, units) < units {
        return None;
    }
    let all: usize = roomy.lots.iter().map(Lot::len).sum();
    roomy.needs = vec![u32::try_from(all).ok()?];
    Some(roomy)
}
