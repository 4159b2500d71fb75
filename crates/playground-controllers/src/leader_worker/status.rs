//! What a LeaderWorkerSet's status says: how many groups are ready and up to date.
//!
//! Invariant: it is written only if it says something new, and the time of a condition moves only with its status.

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::ResourceExt;
use kube::api::{Api, PostParams};
use muster_determinism::clock;
use muster_playground_client::mirror::Key;
use muster_playground_client::refusal::is_not_found;

use super::Keeper;
use super::keys::{GROUP_INDEX, NAME, REVISION, WORKER_INDEX};
use super::object::{GroupTemplate, LeaderWorkerSet, Status, rolling, wanted};
use super::rollout::{GroupState, States};
use crate::pod_card::{PodCard, is_running_and_ready, label};
use crate::recorder::Tone;

const AVAILABLE: (&str, &str, &str) = ("Available", "AllGroupsReady", "All replicas are ready");
const PROGRESSING: (&str, &str, &str) = ("Progressing", "GroupsProgressing", "Replicas are progressing");
const UPDATING: (&str, &str, &str) = ("UpdateInProgress", "GroupsUpdating", "Rolling Upgrade is in progress");

/// Whether all workers are there.
fn is_whole(set: &StatefulSet) -> bool {
    let status = set.status.clone().unwrap_or_default();
    set.spec.replicas.unwrap_or(1) == status.available_replicas.unwrap_or_default()
        && status.current_revision == status.update_revision
}

fn has_revision(labels: &std::collections::BTreeMap<String, String>, revision: &str) -> bool {
    labels.get(REVISION).is_some_and(|own| own == revision)
}

/// How the groups do, in numbers.
#[derive(Default)]
struct Tally {
    ready: i32,
    updated: i32,
    /// Of the groups that are wanted, not of those on top.
    ready_wanted: i32,
    /// Of the groups that are wanted and not held back by the partition.
    open: i32,
    open_updated: i32,
    open_done: i32,
}

impl Keeper {
    /// How one group does; `None` if its workers are not there.
    fn state(&self, key: &Key, leader: &PodCard, size: i32, revision: &str) -> Option<GroupState> {
        let workers = self.sets.get(key, &leader.name_any());
        if size > 1 && workers.is_none() {
            return None;
        }
        let workers = workers.filter(|_| size > 1);
        Some(GroupState {
            is_ready: is_running_and_ready(leader) && workers.is_none_or(is_whole),
            is_updated: has_revision(leader.labels(), revision)
                && workers.is_none_or(|workers| has_revision(workers.labels(), revision)),
        })
    }

    fn leaders<'a>(&'a self, key: &'a Key) -> impl Iterator<Item = (i32, &'a PodCard)> {
        let leaders = self.pods.of(key).filter(|pod| label(pod, WORKER_INDEX) == "0");
        leaders.filter_map(|pod| Some((label(pod, GROUP_INDEX).parse().ok()?, pod)))
    }

    /// How each group does, by its number.
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

    fn tally(&self, key: &Key, lws: &LeaderWorkerSet, revision: &str) -> Tally {
        let size = GroupTemplate::of(&lws.spec.leader_worker_template).size();
        let partition = rolling(lws).partition.unwrap_or_default();
        let mut tally = Tally::default();
        for (index, leader) in self.leaders(key) {
            let Some(state) = self.state(key, leader, size, revision) else { continue };
            let is_wanted = index < wanted(lws);
            let is_open = is_wanted && index >= partition;
            tally.ready += i32::from(state.is_ready);
            tally.updated += i32::from(state.is_updated);
            tally.ready_wanted += i32::from(is_wanted && state.is_ready);
            tally.open += i32::from(is_open);
            tally.open_updated += i32::from(is_open && state.is_updated);
            tally.open_done += i32::from(is_open && state.is_updated && state.is_ready);
        }
        tally
    }

    /// Writes the status. Answers whether an update is done.
    pub(super) async fn tell(&mut self, key: &Key, lws: &LeaderWorkerSet, revision: &str) -> Result<bool, kube::Error> {
        let tally = self.tally(key, lws, revision);
        let said: &[_] = if tally.open_updated < tally.open {
            &[UPDATING, PROGRESSING]
        } else if tally.ready_wanted == wanted(lws) && tally.open_done == tally.open {
            &[AVAILABLE]
        } else {
            &[PROGRESSING]
        };
        let leaders = self.sets.get(key, &key.1).and_then(|leaders| leaders.status.clone()).unwrap_or_default();
        let generation = lws.metadata.generation.unwrap_or_default();
        let mut status = Status {
            conditions: lws.status.conditions.clone(),
            ready_replicas: tally.ready,
            updated_replicas: tally.updated,
            replicas: leaders.replicas,
            hpa_pod_selector: format!("{NAME}={},{WORKER_INDEX}=0", key.1),
            observed_generation: generation,
        };
        let now = Time(clock::whole(self.clock.now()));
        put(&mut status.conditions, said, generation, &now);
        let is_news = status.conditions != lws.status.conditions;
        if status != lws.status {
            let told = LeaderWorkerSet { status, ..lws.clone() };
            let sets: Api<LeaderWorkerSet> = Api::namespaced(self.client.clone(), &key.0);
            match sets.replace_status(&key.1, &PostParams::default(), &told).await {
                Err(error) if is_not_found(&error) => return Ok(false),
                answer => drop(answer?),
            }
        }
        if is_news {
            let (_, reason, message) = said[0];
            let message = format!("{message}, with {} groups ready of total {} groups", tally.ready, wanted(lws));
            self.say(lws, Tone::Normal, reason, message).await;
        }
        Ok(rolling(lws).partition.unwrap_or_default() == 0 && tally.open_done == wanted(lws))
    }
}

/// Says that these hold, and of those that cannot hold with them that they do not.
fn put(conditions: &mut Vec<Condition>, said: &[(&str, &str, &str)], generation: i64, now: &Time) {
    let is_available = said[0].0 == AVAILABLE.0;
    for one in conditions.iter_mut() {
        let excludes = (one.type_ == AVAILABLE.0) != is_available;
        if excludes && one.status == "True" {
            "False".clone_into(&mut one.status);
            one.last_transition_time = now.clone();
        }
        one.observed_generation = Some(generation);
    }
    for (kind, reason, message) in said {
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
