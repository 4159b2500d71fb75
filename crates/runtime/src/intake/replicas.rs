//! Replicas of LeaderWorkerSets, as far as only leader, workers and group together tell: whose group it is, who came with
//! its leader, and whether its minimum is that of the whole replica yet.
//!
//! The group of a replica belongs to its leader. A leader that is made again has its old name, so the old group, which
//! has started, and workers of the old leader may still be there: nobody may be placed by them.
//! It must not know how such groups are written.

use std::sync::Arc;

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::makers::leader_worker_set::{self as lws, SIZE, labels};
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodRefusal, RefusalKind};

use super::card::Card;
use super::pod::refusal;
use super::{Catch, Intake};
use crate::dialect::{Dialect as _, GroupObject, MusterPodGroup};

/// How far the clocks of the API servers may differ by which leader and workers say when they were made.
const CLOCKS_DIFFER_MS: u64 = 2_000;

const LEADERLESS: &str = "the group belongs to a leader that is gone: nobody is placed before that of the present leader has taken its place";

/// How many pods the replica has that a pod is a worker of.
pub(super) fn size_for_worker(pod: &Pod) -> Option<u32> {
    let none = Labels::new();
    let of_pod = pod.metadata.labels.as_ref().unwrap_or(&none);
    if !of_pod.contains_key(labels::NAME) || lws::is_leader(of_pod) {
        return None;
    }
    let size = lws::size(pod.metadata.annotations.as_ref().unwrap_or(&none)).ok()?;
    u32::try_from(size).ok()
}

impl Intake {
    /// From when on pods are of the group that an object is: workers are made after their leader.
    pub(super) fn members_since(&self, object: &GroupObject) -> Option<u64> {
        let leader = self.pods.get(object.leader.as_ref()?.uid.as_str())?;
        Some(leader.created_ms.saturating_sub(CLOCKS_DIFFER_MS))
    }

    /// A pod of a group was seen, or is gone: that concerns all of them if it leads them.
    pub(super) fn leader_changed(&mut self, group: &GroupKey, uid: &str, catch: &mut Catch) {
        let leader = self.groups.object_of(group).and_then(|object| object.leader.as_ref());
        if leader.is_some_and(|leader| leader.uid == uid) {
            self.replica_changed(group, catch);
        }
    }

    /// A group or its leader has changed: who is of it, and who has to wait, may be another matter now. The group is
    /// told first: whoever may join then is held to its minimum.
    pub(super) fn replica_changed(&mut self, group: &GroupKey, catch: &mut Catch) {
        if let Some(since) = self.groups.object_of(group).and_then(|object| self.members_since(object)) {
            catch.observations.extend(self.groups.set_members_since(group, since, &self.priorities));
        }
        let Some(instance) = self.groups.instance(group) else { return };
        let held = instance.members.iter().map(|uid| (uid.clone(), self.held_by_replica(uid))).collect::<Vec<_>>();
        let news = self.beside.hold_members(&group.namespace, held);
        self.renewed(news, catch);
    }

    /// Why a member has to wait that its group would take.
    pub(super) fn held_by_replica(&self, uid: &str) -> Option<Arc<PodRefusal>> {
        let error = self.hold(self.pods.get(uid)?)?;
        Some(refusal(RefusalKind::Reference, error))
    }

    fn hold(&self, card: &Card) -> Option<InvalidField> {
        let group = card.group.as_deref()?;
        let leader = self.groups.object_of(group)?.leader.as_ref()?;
        if self.pods.get(leader.uid.as_str()).is_none_or(|leader| leader.terminating) {
            return Some(FieldPath::Root("metadata.labels").key(labels::NAME).invalid(&leader.set, LEADERLESS));
        }
        let is_ours = self.beside.minimums_are_raised() && group.origin == MusterPodGroup.origin();
        let (size, minimum) = (card.replica_size.filter(|_| is_ours)?, self.groups.minimum_of(group)?);
        let reason = format!(
            "the minimum of the group is {minimum} while its leader starts: workers are placed once it is the size of the replica"
        );
        (minimum < size).then(|| FieldPath::Root("metadata.annotations").key(SIZE).invalid(&size.to_string(), reason))
    }
}

#[cfg(test)]
mod tests {
    use muster_api::makers::{GangedOwners, ProviderName};
    use muster_engine::Observation;
    use muster_engine::model::group::{GroupSpec, History};
    use muster_engine::model::pod::PodSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::Dialect;
    use crate::gates::FeatureGates;
    use crate::intake::{News, WatchTurn};
    use crate::settings::Profile;

    fn intake(provider: ProviderName) -> Intake {
        let ganged = GangedOwners { leader_worker_sets: Some(provider), ..GangedOwners::all() };
        let dialects: Vec<Box<dyn Dialect>> = vec![Box::new(MusterPodGroup)];
        Intake::new(vec![Profile::default()], Vec::new(), FeatureGates::default(), ganged, dialects)
    }

    fn pod(name: &str, uid: &str, second: u32, node: &str) -> Value {
        let index = if name == "lws-0" { "0" } else { "1" };
        json!({
            "metadata": {
                "namespace": "ml", "name": name, "uid": uid, "creationTimestamp": format!("2030-01-01T00:00:{second}Z"),
                "labels": {labels::NAME: "lws", labels::WORKER_INDEX: index},
                "annotations": {"muster.dev/pod-group": "lws-0-1", SIZE: "3"},
            },
            "spec": {"schedulerName": "muster", "nodeName": node, "containers": []},
        })
    }

    fn group(uid: &str, leader: &str, minimum: u32, conditions: &Value) -> Value {
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "lws-0", "uid": leader, "controller": true});
        json!({
            "metadata": {"namespace": "ml", "name": "lws-0-1", "uid": uid, "resourceVersion": "7",
                "labels": {labels::NAME: "lws"}, "ownerReferences": [owner]},
            "spec": {"policy": {"gang": {"minCount": minimum}}}, "status": {"conditions": conditions},
        })
    }

    fn see(intake: &mut Intake, pod: &Value) -> Vec<Observation> {
        intake.take(News::Pod(WatchTurn::Seen(serde_json::from_str(&pod.to_string()).unwrap())), 0).observations
    }

    fn lose(intake: &mut Intake, pod: &Value) -> Vec<Observation> {
        intake.take(News::Pod(WatchTurn::Gone(serde_json::from_str(&pod.to_string()).unwrap())), 0).observations
    }

    fn see_group(intake: &mut Intake, group: &Value) -> Vec<Observation> {
        intake.take(News::Group(0, WatchTurn::Seen(serde_json::from_str(&group.to_string()).unwrap())), 0).observations
    }

    /// What is said last of a pod.
    fn told(observations: &[Observation], uid: &str) -> Option<PodSpec> {
        let pod = |one: &Observation| if let Observation::PodSeen(spec) = one { Some(spec.clone()) } else { None };
        observations.iter().filter_map(pod).rfind(|spec| spec.id.uid == uid)
    }

    fn last_group(observations: &[Observation]) -> Option<GroupSpec> {
        let group = |one: &Observation| if let Observation::GroupSeen(spec) = one { Some(spec.clone()) } else { None };
        observations.iter().filter_map(group).next_back()
    }

    fn why(observations: &[Observation], uid: &str) -> Option<String> {
        Some(told(observations, uid).expect("the pod is told of").refused?.reason.clone())
    }

    #[test]
    fn a_group_of_another_leader_is_another_group() {
        let mut intake = intake(ProviderName::Muster);
        let started = json!([{"type": "Started", "status": "True", "reason": "WithMinimum3", "message": ""}]);
        let (old, worker) = (pod("lws-0", "a", 10, "n0"), pod("lws-0-1", "w", 11, "n1"));
        see(&mut intake, &old);
        see(&mut intake, &worker);
        let first = last_group(&see_group(&mut intake, &group("g1", "a", 3, &started))).unwrap();
        assert_eq!((first.history, first.members_since_ms), (History::Started, Some(1_893_456_008_000)));
        lose(&mut intake, &old);
        // The new leader comes before its group, and its workers may, too.
        let held = why(&see(&mut intake, &pod("lws-0", "b", 30, "")), "b").expect("the group is not its own");
        assert!(held.contains("a leader that is gone"), "{held}");
        assert!(why(&see(&mut intake, &pod("lws-0-2", "x", 31, "")), "x").is_some());
        let news = see_group(&mut intake, &group("g2", "b", 3, &json!([])));
        let second = last_group(&news).unwrap();
        assert_eq!((second.history, second.members_since_ms), (History::New, Some(1_893_456_028_000)));
        assert!(why(&news, "b").is_none() && why(&news, "x").is_none());
        assert!(intake.groups.instance(&second.key).unwrap().conditions.is_empty(), "nothing is said to have started");
    }

    #[test]
    fn nobody_joins_while_the_leader_is_not_there() {
        let mut intake = intake(ProviderName::Muster);
        see_group(&mut intake, &group("g1", "a", 3, &json!([])));
        assert!(why(&see(&mut intake, &pod("lws-0-1", "w", 11, "")), "w").is_some());
        let news = see(&mut intake, &pod("lws-0", "a", 10, ""));
        assert_eq!((why(&news, "a"), why(&news, "w")), (None, None));
        let mut going = pod("lws-0", "a", 10, "");
        going["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:20Z");
        assert!(why(&see(&mut intake, &going), "w").is_some());
        // A group that no leader owns takes whoever names it.
        let mut plain = group("g2", "a", 3, &json!([]));
        plain["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(why(&see_group(&mut intake, &plain), "w"), None);
    }

    #[test]
    fn workers_wait_until_the_minimum_is_that_of_the_replica() {
        let mut intake = intake(ProviderName::Muster);
        see_group(&mut intake, &group("g1", "a", 1, &json!([])));
        assert_eq!(why(&see(&mut intake, &pod("lws-0", "a", 10, "")), "a"), None, "the leader goes first");
        let held =
            why(&see(&mut intake, &pod("lws-0-1", "w", 11, "")), "w").expect("the minimum is that of the leader");
        assert!(held.contains("the minimum of the group is 1"), "{held}");
        let news = see_group(&mut intake, &group("g1", "a", 3, &json!([])));
        let position = |of: fn(&Observation) -> bool| news.iter().position(of);
        assert_eq!(why(&news, "w"), None);
        let group_at = position(|one| matches!(one, Observation::GroupSeen(_)));
        assert!(group_at < position(|one| matches!(one, Observation::PodSeen(_))), "the minimum is known first");
    }

    #[test]
    fn nobody_waits_for_controllers_that_write_other_groups() {
        let mut intake = intake(ProviderName::Volcano);
        see_group(&mut intake, &group("g1", "a", 1, &json!([])));
        see(&mut intake, &pod("lws-0", "a", 10, ""));
        assert_eq!(why(&see(&mut intake, &pod("lws-0-1", "w", 11, "")), "w"), None);
    }
}
