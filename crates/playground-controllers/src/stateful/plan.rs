//! Plans the next actions of a StatefulSet: which pods to create, update and delete, and the new status.
//!
//! Invariants: a pod is created only where its ordinal has none. With `OrderedReady`, none is created or deleted while
//! a predecessor is not available. A rolling update respects `maxUnavailable`. No I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetStatus};
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::ResourceExt;
use muster_reflector::Cache;

use super::pods::{desired, has_identity, split_name, start};
use super::{REVISION_LABEL, SetRevisions, claims};
use crate::deployment::scaled_value;
use crate::pod_record::{
    PodRecord, available_at, is_available, is_finished, is_running_and_ready, is_terminating, label, phase, ready_since,
};

/// The maximum number of actions before another set is synced.
const BURST: usize = 500;

/// The observed state of a set.
pub(super) struct StatefulSetView<'a> {
    pub(super) set: &'a StatefulSet,
    pub(super) pods: &'a [Arc<PodRecord>],
    pub(super) set_revisions: &'a SetRevisions,
    pub(super) claims: &'a Cache<PersistentVolumeClaim>,
}

/// One action.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create the pod of an ordinal, from the current or the update revision.
    Create {
        ordinal: i32,
        is_updated: bool,
    },
    /// Create the claims that a pending pod lacks.
    CreateClaims {
        ordinal: i32,
    },
    /// Restore the identity labels of a pod.
    UpdateIdentity(Arc<PodRecord>),
    /// Set the owners that the retention policy demands.
    UpdateClaimOwners(Box<PersistentVolumeClaim>),
    Delete(Arc<PodRecord>),
}

/// The result of planning.
pub(super) struct Plan {
    pub(super) actions: Vec<Action>,
    pub(super) status: StatefulSetStatus,
    /// When the plan changes by time alone.
    pub(super) requeue_at: Option<Timestamp>,
}

struct Planner<'a> {
    view: &'a StatefulSetView<'a>,
    now: Timestamp,
    in_order: bool,
    /// The ordinals that should have a pod: there may be billions, so only existing pods are iterated where possible.
    ordinals: RangeInclusive<i32>,
    /// The pods of these ordinals.
    members: BTreeMap<i32, Arc<PodRecord>>,
    /// Pods beyond them, the highest ordinal first.
    condemned: Vec<(i32, Arc<PodRecord>)>,
    actions: Vec<Action>,
}

/// Computes the plan.
pub(super) fn decide(view: &StatefulSetView<'_>, now: Timestamp) -> Plan {
    let set = view.set;
    let ordinals = ordinals(set);
    let mut members = BTreeMap::new();
    let mut condemned = Vec::new();
    for pod in view.pods {
        let Some((_, ordinal)) = split_name(&pod.name_any()) else { continue };
        if ordinals.contains(&ordinal) {
            members.insert(ordinal, Arc::clone(pod));
        } else {
            condemned.push((ordinal, Arc::clone(pod)));
        }
    }
    condemned.sort_by_key(|(ordinal, _)| Reverse(*ordinal));
    let in_order = set.spec.pod_management_policy.as_deref() != Some("Parallel");
    let mut planner = Planner { view, now, in_order, ordinals, members, condemned, actions: Vec::new() };
    let is_stopped = planner.create_missing() || planner.scale_down();
    let strategy = set.spec.update_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref());
    let rolls = strategy.is_none_or(|strategy| strategy == "RollingUpdate");
    let updating = if rolls && !is_stopped { planner.update() } else { 0 };
    let requeue_at = planner.requeue_at();
    Plan { status: status(view, now, updating), actions: planner.actions, requeue_at }
}

impl Planner<'_> {
    fn min_ready_seconds(&self) -> i32 {
        self.view.set.spec.min_ready_seconds.unwrap_or_default()
    }

    fn is_available(&self, pod: &PodRecord) -> bool {
        is_available(pod, self.min_ready_seconds(), self.now)
    }

    fn is_unhealthy(&self, pod: &PodRecord) -> bool {
        !self.is_available(pod) || is_terminating(pod)
    }

    /// Whether the burst limit is reached.
    fn is_full(&self) -> bool {
        self.actions.len() >= BURST
    }

    /// Creates missing pods from the lowest ordinal up. Returns whether the set has to wait.
    fn create_missing(&mut self) -> bool {
        for ordinal in self.ordinals.clone() {
            if (self.sync_ordinal(ordinal) && self.in_order) || self.is_full() {
                return true;
            }
        }
        false
    }

    /// Returns whether the next ordinal has to wait, where order matters.
    fn sync_ordinal(&mut self, ordinal: i32) -> bool {
        let Some(pod) = self.members.get(&ordinal).cloned() else {
            if !claims::is_stale(self.view.set, self.view.claims, ordinal) {
                let is_updated = is_created_updated(self.view.set, ordinal);
                self.actions.push(Action::Create { ordinal, is_updated });
            }
            return true;
        };
        if is_finished(&pod) {
            if !is_terminating(&pod) {
                self.actions.push(Action::Delete(pod));
            }
            return true;
        }
        if phase(&pod) == "Pending" && !is_terminating(&pod) {
            let namespace = pod.namespace().unwrap_or_default();
            let is_there = |name: String| self.view.claims.find(&namespace, &name).is_some();
            if !claims::names(self.view.set, ordinal).all(|(_, name)| is_there(name)) {
                self.actions.push(Action::CreateClaims { ordinal });
            }
        }
        let must_wait = is_terminating(&pod) || !is_running_and_ready(&pod) || !self.is_available(&pod);
        if must_wait && self.in_order {
            return true;
        }
        if !is_terminating(&pod) {
            if !has_identity(&pod.name_any(), pod.labels()) || !claims::are_mounted(self.view.set, &pod, ordinal) {
                self.actions.push(Action::UpdateIdentity(Arc::clone(&pod)));
            }
            let claims = claims::claims_to_update(self.view.set, self.view.claims, &pod, ordinal, true);
            self.actions.extend(claims.into_iter().map(|claim| Action::UpdateClaimOwners(Box::new(claim))));
        }
        false
    }

    /// Deletes surplus pods, the highest ordinal first. Returns whether the set has to wait.
    fn scale_down(&mut self) -> bool {
        let first_unhealthy = self.first_unhealthy();
        for (ordinal, pod) in self.condemned.clone() {
            let claims = claims::claims_to_update(self.view.set, self.view.claims, &pod, ordinal, false);
            self.actions.extend(claims.into_iter().map(|claim| Action::UpdateClaimOwners(Box::new(claim))));
        }
        for (_, pod) in self.condemned.clone() {
            if is_terminating(&pod) {
                if self.in_order {
                    return true;
                }
                continue;
            }
            let is_healthy = is_running_and_ready(&pod) && self.is_available(&pod);
            if self.in_order && !is_healthy && Some(pod.name_any()) != first_unhealthy {
                return true;
            }
            self.actions.push(Action::Delete(pod));
            if self.in_order || self.is_full() {
                return true;
            }
        }
        false
    }

    /// The name of the first unhealthy pod, from the lowest ordinal.
    fn first_unhealthy(&self) -> Option<String> {
        let desired = self.ordinals.clone().map(|ordinal| {
            let is_unhealthy = self.members.get(&ordinal).is_none_or(|pod| self.is_unhealthy(pod));
            (is_unhealthy, format!("{}-{ordinal}", self.view.set.name_any()))
        });
        let others = self.condemned.iter().rev().map(|(_, pod)| (self.is_unhealthy(pod), pod.name_any()));
        desired.chain(others).find(|(is_unhealthy, _)| *is_unhealthy).map(|(_, name)| name)
    }

    /// Deletes pods of the old revision, so that they are recreated from the new one. Returns how many.
    fn update(&mut self) -> i32 {
        let newest = self.view.set_revisions.update.name_any();
        let rolling = rolling(self.view.set);
        let one = IntOrString::Int(1);
        let max_unavailable =
            scaled_value(rolling.max_unavailable.as_ref().unwrap_or(&one), desired(self.view.set), false).max(1);
        let max_unavailable = i64::from(max_unavailable);
        let is_old = |pod: &PodRecord| label(pod, REVISION_LABEL) != newest;
        let healthy = self.members.values().filter(|pod| !self.is_unhealthy(pod)).count();
        let unavailable = i64::from(desired(self.view.set)) - healthy as i64;
        let is_unhealthy_and_old = |pod: &PodRecord| self.is_unhealthy(pod) && is_old(pod) && !is_terminating(pod);
        let has_unhealthy = !self.in_order && self.members.values().any(|pod| is_unhealthy_and_old(pod));
        if unavailable >= max_unavailable && !has_unhealthy {
            return 0;
        }
        let first = first_updated(self.view.set, rolling.partition.unwrap_or_default());
        let is_above_partition = |(ordinal, _): &(&i32, &Arc<PodRecord>)| i64::from(**ordinal) >= first;
        let candidates: Vec<Arc<PodRecord>> =
            self.members.iter().rev().take_while(is_above_partition).map(|(_, pod)| Arc::clone(pod)).collect();
        let mut chosen: Vec<Arc<PodRecord>> = Vec::new();
        if !self.in_order {
            // Replacing a pod that is unavailable anyway costs nothing.
            let unavailable_old =
                |pod: &&Arc<PodRecord>| is_old(pod) && !self.is_available(pod) && !is_terminating(pod);
            chosen.extend(candidates.iter().filter(unavailable_old).cloned());
        }
        let budget = usize::try_from(max_unavailable - unavailable).unwrap_or_default();
        let in_order = self.in_order;
        let next = |pod: &&Arc<PodRecord>| is_old(pod) && !is_terminating(pod) && (in_order || self.is_available(pod));
        chosen.extend(candidates.iter().filter(next).take(budget).cloned());
        chosen.truncate(BURST);
        let count = chosen.len() as i32;
        self.actions.extend(chosen.into_iter().map(Action::Delete));
        count
    }

    /// When the next ready pod becomes available.
    fn requeue_at(&self) -> Option<Timestamp> {
        let pods = self.view.pods.iter().filter(|pod| ready_since(pod).is_some());
        pods.filter_map(|pod| available_at(pod, self.min_ready_seconds())).filter(|time| *time > self.now).min()
    }
}

/// The ordinals that should have a pod, limited to what a pod name can express.
fn ordinals(set: &StatefulSet) -> RangeInclusive<i32> {
    let last = i64::from(start(set)) + i64::from(desired(set)) - 1;
    match i32::try_from(last.min(i64::from(i32::MAX))) {
        Ok(last) => start(set)..=last,
        Err(_) => RangeInclusive::new(0, -1),
    }
}

/// The first ordinal with the update revision, given the partition.
fn first_updated(set: &StatefulSet, partition: i32) -> i64 {
    i64::from(start(set)) + i64::from(partition.max(0))
}

fn rolling(set: &StatefulSet) -> RollingUpdateStatefulSetStrategy {
    let strategy = set.spec.update_strategy.as_ref();
    strategy.and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default()
}

/// Whether a new pod of this ordinal gets the update revision.
fn is_created_updated(set: &StatefulSet, ordinal: i32) -> bool {
    let strategy = set.spec.update_strategy.clone().unwrap_or_default();
    let rolling = strategy.type_.as_deref().is_none_or(|name| name == "RollingUpdate");
    let current = set.status.as_ref().and_then(|status| status.current_replicas).unwrap_or_default();
    match strategy.rolling_update {
        Some(rolling) => i64::from(ordinal) >= first_updated(set, rolling.partition.unwrap_or_default()),
        None => !rolling || i64::from(ordinal) >= first_updated(set, current),
    }
}

/// The new status. `updating` pods of the current revision are about to be deleted.
fn status(view: &StatefulSetView<'_>, now: Timestamp, updating: i32) -> StatefulSetStatus {
    let (set, set_revisions) = (view.set, view.set_revisions);
    let min_ready_seconds = set.spec.min_ready_seconds.unwrap_or_default();
    let count = |is: &dyn Fn(&PodRecord) -> bool| view.pods.iter().filter(|pod| is(pod)).count() as i32;
    let of = |revision: &str| count(&|pod| !is_terminating(pod) && label(pod, REVISION_LABEL) == revision);
    let some = |count: i32| (count > 0).then_some(count);
    let (mut current, update) = (set_revisions.current.name_any(), set_revisions.update.name_any());
    let (replicas, ready) = (view.pods.len() as i32, count(&is_running_and_ready));
    let updated = of(&update);
    let mut current_count = of(&current) - updating;
    if [updated, ready, replicas] == [desired(set); 3] {
        current_count = updated;
        current.clone_from(&update);
    }
    let is_there = |pod: &PodRecord| is_running_and_ready(pod) && is_available(pod, min_ready_seconds, now);
    StatefulSetStatus {
        observed_generation: set.metadata.generation,
        replicas,
        ready_replicas: some(ready),
        available_replicas: Some(count(&is_there)),
        current_replicas: some(current_count),
        updated_replicas: some(updated),
        current_revision: Some(current),
        update_revision: Some(update),
        collision_count: Some(set_revisions.collisions),
        conditions: set.status.as_ref().and_then(|status| status.conditions.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::ControllerRevision;
    use serde_json::{Value, json};

    fn plan(spec: &Value, pods: &[i32]) -> Vec<Action> {
        let mut whole = json!({"serviceName": "", "selector": {}, "template": {}, "podManagementPolicy": "Parallel"});
        json_patch::merge(&mut whole, spec);
        let set = serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "d"}, "spec": whole}));
        let pod = |ordinal: &i32| {
            let metadata = json!({"name": format!("web-{ordinal}"), "namespace": "d"});
            Arc::new(serde_json::from_value(json!({"metadata": metadata, "status": {"phase": "Running"}})).unwrap())
        };
        let revision = ControllerRevision::default();
        let set_revisions = SetRevisions { current: revision.clone(), update: revision, collisions: 0 };
        let pods: Vec<Arc<PodRecord>> = pods.iter().map(pod).collect();
        let view = StatefulSetView {
            set: &set.unwrap(),
            pods: &pods,
            set_revisions: &set_revisions,
            claims: &Cache::default(),
        };
        decide(&view, Timestamp::UNIX_EPOCH).actions
    }

    fn created(actions: &[Action]) -> Vec<i32> {
        let ordinal = |action: &Action| if let Action::Create { ordinal, .. } = action { Some(*ordinal) } else { None };
        actions.iter().filter_map(ordinal).collect()
    }

    #[test]
    fn creations_are_limited_per_sync() {
        let expected: Vec<i32> = (0..500).collect();
        assert_eq!(created(&plan(&json!({"replicas": 2_000_000_000}), &[])), expected);
        let in_order = json!({"replicas": i32::MAX, "podManagementPolicy": "OrderedReady"});
        assert_eq!(created(&plan(&in_order, &[])), [0]);
        let rolling = json!({"rollingUpdate": {"partition": i32::MAX, "maxUnavailable": "100%"}});
        let all = json!({"replicas": i32::MAX, "ordinals": {"start": i32::MAX}, "updateStrategy": rolling});
        assert_eq!(created(&plan(&all, &[])), [i32::MAX], "no ordinal is greater");
    }

    #[test]
    fn deletions_are_limited_per_sync() {
        let pods: Vec<i32> = (0..700).collect();
        let actions = plan(&json!({"replicas": 0, "ordinals": {"start": i32::MAX}}), &pods);
        assert_eq!(actions.len(), 500);
        assert!(actions.iter().all(|action| matches!(action, Action::Delete(_))));
    }
}
