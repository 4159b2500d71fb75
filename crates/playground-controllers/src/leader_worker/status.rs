//! The status of a LeaderWorkerSet: how many groups are ready and updated.
//!
//! Invariant: it is written only if it has changed, and a transition time changes only with its status.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use muster_clock as clock;
use muster_playground_client::api_errors::is_not_found;
use muster_reflector::Key;

use super::LeaderWorkerSetController;
use super::keys::{GROUP_INDEX, NAME, REVISION, WORKER_INDEX};
use super::object::{GroupTemplate, LeaderWorkerSet, Status, desired, rolling};
use super::rollout::{GroupState, States};
use crate::pod_record::{PodRecord, is_running_and_ready, label};
use crate::recorder::EventType;

const AVAILABLE: (&str, &str, &str) = ("Available", "AllGroupsReady", "All replicas are ready");
const PROGRESSING: (&str, &str, &str) = ("Progressing", "GroupsProgressing", "Replicas are progressing");
const UPDATING: (&str, &str, &str) = ("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress");

/// Whether all workers are available and updated.
fn is_available(set: &StatefulSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    set.spec.replicas.unwrap_or(1) == status.available_replicas.unwrap_or_default()
        && status.current_revision == status.update_revision
}

fn has_revision(labels: &std::collections::BTreeMap<String, String>, revision: &str) -> bool {
    labels.get(REVISION).is_some_and(|own| own == revision)
}

/// The number of groups by state.
#[derive(Default)]
struct GroupCounts {
    ready: i32,
    updated: i32,
    /// Without surge groups.
    ready_desired: i32,
    /// Desired groups that the partition does not hold back.
    above_partition: i32,
    above_partition_updated: i32,
    above_partition_done: i32,
}

impl LeaderWorkerSetController {
    /// The state of one group; `None` if its workers do not exist.
    fn state(&self, key: &Key, leader: &PodRecord, size: i32, revision: &str) -> Option<GroupState> {
        let workers = self.sets.get(key, &leader.name_any());
        if size > 1 && workers.is_none() {
            return None;
        }
        let workers = workers.filter(|_| size > 1);
        Some(GroupState {
            is_ready: is_running_and_ready(leader) && workers.is_none_or(is_available),
            is_updated: has_revision(leader.labels(), revision)
                && workers.is_none_or(|workers| has_revision(workers.labels(), revision)),
        })
    }

    fn leaders<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = (i32, &'a PodRecord)> {
        let leaders = self.pods.of(key).filter(|pod| label(pod, WORKER_INDEX) == "0");
        leaders.filter_map(|pod| Some((label(pod, GROUP_INDEX).parse().ok()?, pod)))
    }

    /// The state of each group, by index.
    pub(super) fn states(
        &self,
        key: &Key,
        lws: &LeaderWorkerSet,
        leaders: Option<&StatefulSet>,
        revision: &str,
    ) -> States {
        let count = leaders.and_then(|leaders| leaders.spec.replicas).unwrap_or_default();
        let size = GroupTemplate::of(&lws.spec.leader_worker_template).size();
        let leaders = self.leaders(key).filter(|(index, _)| (0..count).contains(index));
        leaders.filter_map(|(index, leader)| Some((index, self.state(key, leader, size, revision)?))).collect()
    }

    fn count_groups(&self, key: &Key, lws: &LeaderWorkerSet, revision: &str) -> GroupCounts {
        let size = GroupTemplate::of(&lws.spec.leader_worker_template).size();
        let partition = rolling(lws).partition.unwrap_or_default();
        let mut counts = GroupCounts::default();
        for (index, leader) in self.leaders(key) {
            let Some(state) = self.state(key, leader, size, revision) else { continue };
            let is_desired = index < desired(lws);
            let is_above_partition = is_desired && index >= partition;
            counts.ready += i32::from(state.is_ready);
            counts.updated += i32::from(state.is_updated);
            counts.ready_desired += i32::from(is_desired && state.is_ready);
            counts.above_partition += i32::from(is_above_partition);
            counts.above_partition_updated += i32::from(is_above_partition && state.is_updated);
            counts.above_partition_done += i32::from(is_above_partition && state.is_updated && state.is_ready);
        }
        counts
    }

    /// Updates the status. Returns whether an update is done.
    pub(super) async fn update_status(
        &mut self,
        key: &Key,
        lws: &LeaderWorkerSet,
        revision: &str,
    ) -> Result<bool, kube::Error> {
        let counts = self.count_groups(key, lws, revision);
        let conditions_to_set: &[_] = if counts.above_partition_updated < counts.above_partition {
            &[UPDATING, PROGRESSING]
        } else if counts.ready_desired == desired(lws) && counts.above_partition_done == counts.above_partition {
            &[AVAILABLE]
        } else {
            &[PROGRESSING]
        };
        let leaders = self.sets.get(key, &key.1).and_then(|leaders| leaders.status.clone()).unwrap_or_default();
        let generation = lws.metadata.generation.unwrap_or_default();
        let mut status = Status {
            conditions: lws.status.conditions.clone(),
            ready_replicas: counts.ready,
            updated_replicas: counts.updated,
            replicas: leaders.replicas,
            hpa_pod_selector: format!("{NAME}={},{WORKER_INDEX}=0", key.1),
            observed_generation: generation,
        };
        let now = Time(clock::whole(self.clock.now()));
        set_conditions(&mut status.conditions, conditions_to_set, generation, &now);
        let is_changed = status.conditions != lws.status.conditions;
        if status != lws.status {
            let updated = LeaderWorkerSet { status, ..lws.clone() };
            let sets: Api<LeaderWorkerSet> = Api::namespaced(self.client.clone(), &key.0);
            match sets.replace_status(&key.1, &PostParams::default(), &updated).await {
                Err(error) if is_not_found(&error) => return Ok(false),
                answer => drop(answer?),
            }
        }
        if is_changed {
            let (_, reason, message) = conditions_to_set[0];
            let message = format!("{message}, with {} groups ready of total {} groups", counts.ready, desired(lws));
            self.record_event(lws, EventType::Normal, reason, message).await;
        }
        Ok(rolling(lws).partition.unwrap_or_default() == 0 && counts.above_partition_done == desired(lws))
    }
}

/// Sets these conditions to true and those that contradict them to false.
fn set_conditions(
    conditions: &mut Vec<Condition>,
    conditions_to_set: &[(&str, &str, &str)],
    generation: i64,
    now: &Time,
) {
    let is_available = conditions_to_set[0].0 == AVAILABLE.0;
    for one in conditions.iter_mut() {
        let excludes = (one.type_ == AVAILABLE.0) != is_available;
        if excludes && one.status == "True" {
            "False".clone_into(&mut one.status);
            one.last_transition_time = now.clone();
        }
        one.observed_generation = Some(generation);
    }
    for (kind, reason, message) in conditions_to_set {
        match conditions.iter_mut().find(|one| one.type_ == *kind) {
            Some(one) if one.status == "True" => {}
            Some(one) => {
                "True".clone_into(&mut one.status);
                one.last_transition_time = now.clone();
            }
            None => conditions.push(Condition {
                type_: (*kind).to_owned(),
                status: "True".to_owned(),
                reason: (*reason).to_owned(),
                message: (*message).to_owned(),
                last_transition_time: now.clone(),
                observed_generation: Some(generation),
            }),
        }
    }
}
