//! What is to be done for a stateful set now: which pods to make, to mend and to delete, and what its status says.
//!
//! Invariants: a pod is made only where there is none of its number. In order (`OrderedReady`), none is made or deleted
//! while one before it is not available. An update takes no more away than may be missing. No I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use muster_playground_client::mirror::Mirror;

use super::pods::{has_identity, split_name, start, wanted};
use super::{REVISION_LABEL, Templates, claims};
use crate::deployment::share;
use crate::pod_card::{
    PodCard, available_at, is_available, is_finished, is_going, is_running_and_ready, label, phase, ready_since,
};

/// The most that is done before another set has its turn.
const BURST: usize = 500;

/// What is known of a set.
pub(super) struct View<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) pods: &'a [Arc<PodCard>],
    pub(super) templates: &'a Templates,
    pub(super) claims: &'a Mirror<PersistentVolumeClaim>,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Deed {
    /// Make the pod of a number, from the current template or the new one.
    Make {
        number: i32,
        is_updated: bool,
    },
    /// Make the claims that a waiting pod lacks.
    MakeClaims {
        number: i32,
    },
    /// Give a pod its labels again.
    Mend(Arc<PodCard>),
    /// Give claims the owners that the policy asks for.
    Rehome(Box<PersistentVolumeClaim>),
    Delete(Arc<PodCard>),
}

/// What follows from a view.
pub(super) struct Plan {
    pub(super) deeds: Vec<Deed>,
    pub(super) status: StatefulSetStatus,
    /// When time alone changes something.
    pub(super) look_again: Option<Timestamp>,
}

struct Planner<'a> {
    view: &'a View<'a>,
    now: Timestamp,
    in_order: bool,
    /// The numbers that should have a pod: there may be billions, so only pods are counted one by one.
    numbers: RangeInclusive<i32>,
    /// Those of them that have one.
    members: BTreeMap<i32, Arc<PodCard>>,
    /// Pods that should not be there, the highest number first.
    condemned: Vec<(i32, Arc<PodCard>)>,
    deeds: Vec<Deed>,
}

/// Decides.
pub(super) fn decide(view: &View<'_>, now: Timestamp) -> Plan {
    let set = view.set;
    let numbers = numbers(set);
    let mut members = BTreeMap::new();
    let mut condemned = Vec::new();
    for pod in view.pods {
        let Some((_, number)) = split_name(&pod.name_any()) else { continue };
        if numbers.contains(&number) {
            members.insert(number, Arc::clone(pod));
        } else {
            condemned.push((number, Arc::clone(pod)));
        }
    }
    condemned.sort_by_key(|(number, _)| Reverse(*number));
    let in_order = set.spec.pod_management_policy.as_deref() != Some("Parallel");
    let mut planner = Planner { view, now, in_order, numbers, members, condemned, deeds: Vec::new() };
    let is_stopped = planner.fill() || planner.shrink();
    let strategy = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    let rolls = strategy.is_none_or(|strategy| strategy == "RollingUpdate");
    let updating = if rolls && !is_stopped { planner.update() } else { 0 };
    let look_again = planner.look_again();
    Plan { status: status(view, now, updating), deeds: planner.deeds, look_again }
}

impl Planner<'_> {
    fn min_ready_seconds(&self) -> i32 {
        self.view.set.spec.min_ready_seconds.unwrap_or_default()
    }

    fn is_available(&self, pod: &PodCard) -> bool {
        is_available(pod, self.min_ready_seconds(), self.now)
    }

    fn is_missing(&self, pod: &PodCard) -> bool {
        !self.is_available(pod) || is_going(pod)
    }

    /// Whether it is another set's turn.
    fn is_full(&self) -> bool {
        self.deeds.len() >= BURST
    }

    /// Fills the numbers from the first to the last. Answers whether one must be waited for.
    fn fill(&mut self) -> bool {
        for number in self.numbers.clone() {
            if (self.fill_one(number) && self.in_order) || self.is_full() {
                return true;
            }
        }
        false
    }

    /// Answers whether the next one must wait, where order matters.
    fn fill_one(&mut self, number: i32) -> bool {
        let Some(pod) = self.members.get(&number).cloned() else {
            if !claims::is_stale(self.view.set, self.view.claims, number) {
                let is_updated = is_made_updated(self.view.set, number);
                self.deeds.push(Deed::Make { number, is_updated });
            }
            return true;
        };
        if is_finished(&pod) {
            if !is_going(&pod) {
                self.deeds.push(Deed::Delete(pod));
            }
            return true;
        }
        if phase(&pod) == "Pending" && !is_going(&pod) {
            let namespace = pod.namespace().unwrap_or_default();
            let is_there = |name: String| self.view.claims.get(&(namespace.clone(), name)).is_some();
            if !claims::names(self.view.set, number).all(|(_, name)| is_there(name)) {
                self.deeds.push(Deed::MakeClaims { number });
            }
        }
        let must_wait = is_going(&pod) || !is_running_and_ready(&pod) || !self.is_available(&pod);
        if must_wait && self.in_order {
            return true;
        }
        if !is_going(&pod) {
            if !has_identity(&pod.name_any(), pod.labels()) || !claims::are_used(self.view.set, &pod, number) {
                self.deeds.push(Deed::Mend(Arc::clone(&pod)));
            }
            let claims = claims::to_rehome(self.view.set, self.view.claims, &pod, number, true);
            self.deeds.extend(claims.into_iter().map(|claim| Deed::Rehome(Box::new(claim))));
        }
        false
    }

    /// Deletes what is too many, the highest number first. Answers whether one must be waited for.
    fn shrink(&mut self) -> bool {
        let first_missing = self.first_missing();
        for (number, pod) in self.condemned.clone() {
            let claims = claims::to_rehome(self.view.set, self.view.claims, &pod, number, false);
            self.deeds.extend(claims.into_iter().map(|claim| Deed::Rehome(Box::new(claim))));
        }
        for (_, pod) in self.condemned.clone() {
            if is_going(&pod) {
                if self.in_order {
                    return true;
                }
                continue;
            }
            let is_well = is_running_and_ready(&pod) && self.is_available(&pod);
            if self.in_order && !is_well && Some(pod.name_any()) != first_missing {
                return true;
            }
            self.deeds.push(Deed::Delete(pod));
            if self.in_order || self.is_full() {
                return true;
            }
        }
        false
    }

    /// The name of the first pod that is not available, from the lowest number.
    fn first_missing(&self) -> Option<String> {
        let wanted = self.numbers.clone().map(|number| {
            let is_missing = self.members.get(&number).is_none_or(|pod| self.is_missing(pod));
            (is_missing, format!("{}-{number}", self.view.set.name_any()))
        });
        let others = self.condemned.iter().rev().map(|(_, pod)| (self.is_missing(pod), pod.name_any()));
        wanted.chain(others).find(|(is_missing, _)| *is_missing).map(|(_, name)| name)
    }

    /// Deletes pods of the old template, so that they are made from the new one. Answers how many.
    fn update(&mut self) -> i32 {
        let newest = self.view.templates.update.name_any();
        let rolling = rolling(self.view.set);
        let one = IntOrString::Int(1);
        let may_miss = share(rolling.max_unavailable.as_ref().unwrap_or(&one), wanted(self.view.set), false).max(1);
        let may_miss = i64::from(may_miss);
        let is_old = |pod: &PodCard| label(pod, REVISION_LABEL) != newest;
        let working = self.members.values().filter(|pod| !self.is_missing(pod)).count();
        let missing = i64::from(wanted(self.view.set)) - working as i64;
        let broken_and_old = |pod: &PodCard| self.is_missing(pod) && is_old(pod) && !is_going(pod);
        let has_broken = !self.in_order && self.members.values().any(|pod| broken_and_old(pod));
        if missing >= may_miss && !has_broken {
            return 0;
        }
        let first = first_updated(self.view.set, rolling.partition.unwrap_or_default());
        let is_open = |(number, _): &(&i32, &Arc<PodCard>)| i64::from(**number) >= first;
        let candidates: Vec<Arc<PodCard>> =
            self.members.iter().rev().take_while(is_open).map(|(_, pod)| Arc::clone(pod)).collect();
        let mut chosen: Vec<Arc<PodCard>> = Vec::new();
        if !self.in_order {
            // What does not work anyway costs nothing.
            let broken = |pod: &&Arc<PodCard>| is_old(pod) && !self.is_available(pod) && !is_going(pod);
            chosen.extend(candidates.iter().filter(broken).cloned());
        }
        let spare = usize::try_from(may_miss - missing).unwrap_or_default();
        let in_order = self.in_order;
        let next = |pod: &&Arc<PodCard>| is_old(pod) && !is_going(pod) && (in_order || self.is_available(pod));
        chosen.extend(candidates.iter().filter(next).take(spare).cloned());
        chosen.truncate(BURST);
        let count = chosen.len() as i32;
        self.deeds.extend(chosen.into_iter().map(Deed::Delete));
        count
    }

    /// When the next pod that is ready counts as available.
    fn look_again(&self) -> Option<Timestamp> {
        let pods = self.view.pods.iter().filter(|pod| ready_since(pod).is_some());
        pods.filter_map(|pod| available_at(pod, self.min_ready_seconds())).filter(|time| *time > self.now).min()
    }
}

/// The numbers that should have a pod. There are none beyond what the name of a member can say.
fn numbers(set: &StatefulSet) -> RangeInclusive<i32> {
    let last = i64::from(start(set)) + i64::from(wanted(set)) - 1;
    match i32::try_from(last.min(i64::from(i32::MAX))) {
        Ok(last) => start(set)..=last,
        Err(_) => RangeInclusive::new(0, -1),
    }
}

/// The first number whose pod has the new template, if so many keep the old one.
fn first_updated(set: &StatefulSet, kept: i32) -> i64 {
    i64::from(start(set)) + i64::from(kept.max(0))
}

fn rolling(set: &StatefulSet) -> RollingUpdateStatefulSetStrategy {
    let strategy = set.spec.update_strategy.as_ref();
    strategy.and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default()
}

/// Whether a new pod of this number is made from the new template.
fn is_made_updated(set: &StatefulSet, number: i32) -> bool {
    let strategy = set.spec.update_strategy.clone().unwrap_or_default();
    let rolling = strategy.type_.as_deref().is_none_or(|name| name == "RollingUpdate");
    let current = set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default();
    match strategy.rolling_update {
        Some(rolling) => i64::from(number) >= first_updated(set, rolling.partition.unwrap_or_default()),
        None => !rolling || i64::from(number) >= first_updated(set, current),
    }
}

/// What the status says. `updating` pods of the current template are about to go.
fn status(view: &View<'_>, now: Timestamp, updating: i32) -> StatefulSetStatus {
    let (set, templates) = (view.set, view.templates);
    let min_ready_seconds = set.spec.min_ready_seconds.unwrap_or_default();
    let count = |is: &dyn Fn(&PodCard) -> bool| view.pods.iter().filter(|pod| is(pod)).count() as i32;
    let of = |revision: &str| count(&|pod| !is_going(pod) && label(pod, REVISION_LABEL) == revision);
    let some = |count: i32| (count > 0).then_some(count);
    let (mut current, update) = (templates.current.name_any(), templates.update.name_any());
    let (replicas, ready) = (view.pods.len() as i32, count(&is_running_and_ready));
    let updated = of(&update);
    let mut current_count = of(&current) - updating;
    if [updated, ready, replicas] == [wanted(set); 3] {
        current_count = updated;
        current.clone_from(&update);
    }
    let is_there = |pod: &PodCard| is_running_and_ready(pod) && is_available(pod, min_ready_seconds, now);
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas,
        ready_replicas: some(ready),
        available_replicas: Some(count(&is_there)),
        current_replicas: some(current_count),
        updated_replicas: some(updated),
        current_revision: Some(current),
        update_revision: Some(update),
        collision_count: Some(templates.collisions),
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use serde_json::{Value, json};

    fn plan(spec: &Value, pods: &[i32]) -> Vec<Deed> {
        let mut whole = json!({"serviceName": "", "selector": {}, "template": {}, "podManagementPolicy": "Parallel"});
        json_patch::merge(&mut whole, spec);
        let set = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "d"}, "spec": whole}));
        let pod = |number: &i32| {
            let metadata = json!({"name": format!("web-{number}"), "namespace": "d"});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": {"phase": "Running"}})).unwrap())
        };
        let revision = ControllerRevision::default();
        let templates = Templates { current: revision.clone(), update: revision, collisions: 0 };
        let pods: Vec<Arc<PodCard>> = pods.iter().map(pod).collect();
        let view = View { set: &set.unwrap(), pods: &pods, templates: &templates, claims: &Mirror::default() };
        decide(&view, Timestamp::UNIX_EPOCH).deeds
    }

    fn made(deeds: &[Deed]) -> Vec<i32> {
        let number = |deed: &Deed| if let Deed::Make { number, .. } = deed { Some(*number) } else { None };
        deeds.iter().filter_map(number).collect()
    }

    #[test]
    fn billions_are_made_little_by_little() {
        let expected: Vec<i32> = (0..500).collect();
        assert_eq!(made(&plan(&json!({"replicas": 2_000_000_000}), &[])), expected);
        let in_order = json!({"replicas": i32::MAX, "podManagementPolicy": "OrderedReady"});
        assert_eq!(made(&plan(&in_order, &[])), [0]);
        let rolling = json!({"rollingUpdate": {"partition": i32::MAX, "maxUnavailable": "100%"}});
        let all = json!({"replicas": i32::MAX, "ordinals": {"start": i32::MAX}, "updateStrategy": rolling});
        assert_eq!(made(&plan(&all, &[])), [i32::MAX], "no number is greater");
    }

    #[test]
    fn what_is_too_many_goes_little_by_little() {
        let pods: Vec<i32> = (0..700).collect();
        let deeds = plan(&json!({"replicas": 0, "ordinals": {"start": i32::MAX}}), &pods);
        assert_eq!(deeds.len(), 500);
        assert!(deeds.iter().all(|deed| matches!(deed, Deed::Delete(_))));
    }
}
