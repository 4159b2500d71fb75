//! Replicas of LeaderWorkerSets: which leader a group belongs to, which pods came with that leader, and whether the
//! group's minimum already covers the whole replica.
//!
//! The group of a replica belongs to its leader. A recreated leader has the old name, so the old group, which has
//! started, and workers of the old leader may still exist: they must not let any pod be placed.
//! Must not depend on how such groups are written.

use std::sync::Arc;

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::owners::leader_worker_set::{self as lws, SIZE, labels};
use muster_api::selector::Labels;
use muster_api::wire::Pod;
use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodRefusal, RefusalKind};

use super::pod::refusal;
use super::pod_record::PodRecord;
use super::{Intake, IntakeOutput, recreated_owners};
use crate::dialect::{Dialect as _, GroupObject, MadeFor, MusterPodGroup};

/// The tolerated clock skew between API servers in the creation times of leaders and workers.
const CLOCK_SKEW_MS: u64 = 2_000;

const LEADERLESS: &str =
    "the group belongs to a leader that is gone: no pod is placed before the current leader's group has replaced it";

/// The size of the replica, if the pod is a worker.
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
    /// From when on pods belong to the group of this object: workers are created after their leader.
    pub(super) fn members_since(&self, object: &GroupObject) -> Option<u64> {
        let MadeFor::Leader { uid, .. } = object.made_for.as_ref()? else { return None };
        let leader = self.pods.entries.get(uid.as_str())?;
        Some(leader.created_ms.saturating_sub(CLOCK_SKEW_MS))
    }

    /// A pod of a group was seen or is gone: updates all members if it is their leader.
    pub(super) fn on_leader_changed(&mut self, group: &GroupKey, uid: &str, output: &mut IntakeOutput) {
        let owner = self.groups.object_of(group).and_then(|object| object.made_for.as_ref());
        if owner.is_some_and(|owner| owner.uid() == uid) {
            self.on_owner_changed(group, output);
        }
    }

    /// A group, its owner or its leader has changed: updates which pods are members and which have to wait. The group is observed
    /// first, so that pods that may join then are held to its minimum.
    pub(super) fn on_owner_changed(&mut self, group: &GroupKey, output: &mut IntakeOutput) {
        if let Some(since) = self.groups.object_of(group).and_then(|object| self.members_since(object)) {
            output.observations.extend(self.groups.set_members_since(group, since, &self.priorities));
        }
        let Some(instance) = self.groups.instance(group) else { return };
        let members: Vec<_> = instance.members.iter().cloned().collect();
        for uid in &members {
            let held = self.held_by_group(uid);
            if let Some(record) = self.pods.entries.get_mut(uid) {
                record.held_by_group = held;
            }
        }
        self.observe_again(members, output);
    }

    /// Why a member of a group has to wait.
    pub(super) fn held_by_group(&self, uid: &str) -> Option<Arc<PodRefusal>> {
        let error = self.hold_reason(self.pods.entries.get(uid)?)?;
        Some(refusal(RefusalKind::Reference, error))
    }

    fn hold_reason(&self, record: &PodRecord) -> Option<InvalidField> {
        let group = record.group.as_deref()?;
        let made_for = self.groups.object_of(group)?.made_for.as_ref()?;
        let MadeFor::Leader { uid, set } = made_for else { return recreated_owners::hold_reason(made_for, record) };
        if self.pods.entries.get(uid.as_str()).is_none_or(|leader| leader.terminating) {
            return Some(FieldPath::Root("metadata.labels").key(labels::NAME).invalid(set, LEADERLESS));
        }
        let is_ours = self.indexes.owners.minimums_are_raised() && group.origin == MusterPodGroup.origin();
        let (size, minimum) = (record.replica_size.filter(|_| is_ours)?, self.groups.minimum_of(group)?);
        let reason = format!(
            "the minimum of the group is {minimum} while its leader starts: workers are placed once it is the size of the replica"
        );
        (minimum < size).then(|| FieldPath::Root("metadata.annotations").key(SIZE).invalid(&size.to_string(), reason))
    }
}

#[cfg(test)]
mod tests {
    use muster_api::owners::{GangedOwners, ProviderName};
    use muster_engine::Observation;
    use muster_engine::model::group::{GroupSpec, RecordedStart};
    use muster_engine::model::pod::PodSpec;
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::Dialect;
    use crate::gates::FeatureGates;
    use crate::intake::WatchEvent;
    use crate::settings::Profile;
    use muster_reflector::Delta;

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

    fn apply_pod(intake: &mut Intake, pod: &Value) -> Vec<Observation> {
        intake.handle(WatchEvent::Pod(Delta::Applied(serde_json::from_str(&pod.to_string()).unwrap())), 0).observations
    }

    fn delete_pod(intake: &mut Intake, pod: &Value) -> Vec<Observation> {
        intake.handle(WatchEvent::Pod(Delta::Deleted(serde_json::from_str(&pod.to_string()).unwrap())), 0).observations
    }

    fn apply_group(intake: &mut Intake, group: &Value) -> Vec<Observation> {
        intake
            .handle(WatchEvent::Group(0, Delta::Applied(serde_json::from_str(&group.to_string()).unwrap())), 0)
            .observations
    }

    /// The last observation of a pod.
    fn last_pod(observations: &[Observation], uid: &str) -> Option<PodSpec> {
        let pod = |one: &Observation| if let Observation::PodSeen(spec) = one { Some(spec.clone()) } else { None };
        observations.iter().filter_map(pod).rfind(|spec| spec.id.uid == uid)
    }

    fn last_group(observations: &[Observation]) -> Option<GroupSpec> {
        let group = |one: &Observation| if let Observation::GroupSeen(spec) = one { Some(spec.clone()) } else { None };
        observations.iter().filter_map(group).next_back()
    }

    fn refusal_reason(observations: &[Observation], uid: &str) -> Option<String> {
        Some(last_pod(observations, uid).expect("the pod is observed").refused?.reason.clone())
    }

    #[test]
    fn a_group_of_a_new_leader_is_a_new_group() {
        let mut intake = intake(ProviderName::Muster);
        let started = json!([{"type": "Started", "status": "True", "reason": "WithMinimum3", "message": ""}]);
        let (old, worker) = (pod("lws-0", "a", 10, "n0"), pod("lws-0-1", "w", 11, "n1"));
        apply_pod(&mut intake, &old);
        apply_pod(&mut intake, &worker);
        let first = last_group(&apply_group(&mut intake, &group("g1", "a", 3, &started))).unwrap();
        assert!(matches!(first.recorded, RecordedStart::Confirmed { .. }));
        assert_eq!(first.members_since_ms, Some(1_893_456_008_000));
        delete_pod(&mut intake, &old);
        // The new leader arrives before its group, and so may its workers.
        let held =
            refusal_reason(&apply_pod(&mut intake, &pod("lws-0", "b", 30, "")), "b").expect("the group is not its own");
        assert!(held.contains("a leader that is gone"), "{held}");
        assert!(refusal_reason(&apply_pod(&mut intake, &pod("lws-0-2", "x", 31, "")), "x").is_some());
        let seen = apply_group(&mut intake, &group("g2", "b", 3, &json!([])));
        let second = last_group(&seen).unwrap();
        assert_eq!((second.recorded, second.members_since_ms), (RecordedStart::None, Some(1_893_456_028_000)));
        assert!(refusal_reason(&seen, "b").is_none() && refusal_reason(&seen, "x").is_none());
        assert!(intake.groups.instance(&second.key).unwrap().conditions.is_empty(), "it has not started");
    }

    #[test]
    fn no_pod_joins_without_the_leader() {
        let mut intake = intake(ProviderName::Muster);
        apply_group(&mut intake, &group("g1", "a", 3, &json!([])));
        assert!(refusal_reason(&apply_pod(&mut intake, &pod("lws-0-1", "w", 11, "")), "w").is_some());
        let seen = apply_pod(&mut intake, &pod("lws-0", "a", 10, ""));
        assert_eq!((refusal_reason(&seen, "a"), refusal_reason(&seen, "w")), (None, None));
        let mut going = pod("lws-0", "a", 10, "");
        going["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:20Z");
        assert!(refusal_reason(&apply_pod(&mut intake, &going), "w").is_some());
        // A group without a leader accepts every pod that names it.
        let mut plain = group("g2", "a", 3, &json!([]));
        plain["metadata"]["ownerReferences"] = json!([]);
        assert_eq!(refusal_reason(&apply_group(&mut intake, &plain), "w"), None);
    }

    #[test]
    fn workers_wait_until_the_minimum_covers_the_replica() {
        let mut intake = intake(ProviderName::Muster);
        apply_group(&mut intake, &group("g1", "a", 1, &json!([])));
        assert_eq!(
            refusal_reason(&apply_pod(&mut intake, &pod("lws-0", "a", 10, "")), "a"),
            None,
            "the leader goes first"
        );
        let held = refusal_reason(&apply_pod(&mut intake, &pod("lws-0-1", "w", 11, "")), "w")
            .expect("the minimum is that of the leader");
        assert!(held.contains("the minimum of the group is 1"), "{held}");
        let seen = apply_group(&mut intake, &group("g1", "a", 3, &json!([])));
        let position = |of: fn(&Observation) -> bool| seen.iter().position(of);
        assert_eq!(refusal_reason(&seen, "w"), None);
        let group_at = position(|one| matches!(one, Observation::GroupSeen(_)));
        assert!(group_at < position(|one| matches!(one, Observation::PodSeen(_))), "the minimum is observed first");
    }

    #[test]
    fn no_pod_waits_for_controllers_that_write_other_groups() {
        let mut intake = intake(ProviderName::Volcano);
        apply_group(&mut intake, &group("g1", "a", 1, &json!([])));
        apply_pod(&mut intake, &pod("lws-0", "a", 10, ""));
        assert_eq!(refusal_reason(&apply_pod(&mut intake, &pod("lws-0-1", "w", 11, "")), "w"), None);
    }
}
