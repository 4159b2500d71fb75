//! Jobs and JobSets that are deleted and created again under their names: their groups have the same names, too.
//!
//! While the group of the former owner is there, which may have started, pods of the new one must not join it one by
//! one; once the group is that of the new owner, pods of the former one do not count. So a pod is a member only of a
//! group that was made for its own owner. Leaders of replicas are in `replicas`.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::keys::annotations::POD_GROUP;
use muster_api::owners::{job, job_set};
use muster_api::wire::Pod;
use muster_engine::model::pod::OwnerAttempt;

use super::pod_record::PodRecord;
use crate::dialect::MadeFor;

/// The owner that made a pod, and in which attempt, if the pod may be a member of a group that was made for that owner.
pub(super) fn attempt_of(pod: &Pod) -> Option<OwnerAttempt> {
    if let Some((owner, number)) = pod.metadata.labels.as_ref().and_then(job_set::restart_attempt) {
        return Some(OwnerAttempt { owner: owner.to_owned(), number });
    }
    let named = pod.metadata.annotations.as_ref()?.get(POD_GROUP)?;
    let controller = pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))?;
    let is_made = controller.kind == "Job"
        && controller.api_version.starts_with("batch/")
        && *named == job::group_name(&controller.name);
    is_made.then(|| OwnerAttempt { owner: controller.uid.clone(), number: 0 })
}

/// Why a pod of another Job or JobSet than that of its group has to wait.
pub(super) fn hold_reason(made_for: &MadeFor, record: &PodRecord) -> Option<InvalidField> {
    let own = &record.attempt.as_ref()?.owner;
    let (kind, name, path) = match made_for {
        MadeFor::Leader { .. } => return None,
        MadeFor::Job { name, .. } => ("Job", name, FieldPath::Root("metadata.ownerReferences")),
        MadeFor::JobSet { name, .. } => {
            ("JobSet", name, FieldPath::Root("metadata.labels").key(job_set::labels::JOB_SET_UID))
        }
    };
    let uid = made_for.uid();
    (own != uid).then(|| {
        let reason = format!(
            "the group was made for another {kind} {name}, with UID {uid}: no pod is placed before its own {kind}'s group has replaced that"
        );
        path.invalid(own, reason)
    })
}

#[cfg(test)]
mod tests {
    use muster_api::owners::GangedOwners;
    use muster_engine::Observation;
    use muster_engine::model::pod::PodSpec;
    use muster_reflector::Delta;
    use serde_json::{Value, json};

    use crate::dialect::{Dialect, MusterPodGroup};
    use crate::gates::FeatureGates;
    use crate::intake::{Intake, WatchEvent};
    use crate::settings::Profile;

    fn pod_group(uid: &str, job: &str) -> Value {
        let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": job, "controller": true});
        json!({
            "metadata": {"namespace": "ml", "name": "job-train", "uid": uid, "ownerReferences": [owner]},
            "spec": {"policy": {"gang": {"minCount": 2}}},
        })
    }

    /// The refusal of the only pod, as last observed.
    fn refusal(observations: Vec<Observation>) -> Option<String> {
        let pod = |one| if let Observation::PodSeen(spec) = one { Some(spec) } else { None };
        let last: PodSpec = observations.into_iter().filter_map(pod).next_back().expect("the pod is observed");
        last.refused.map(|refused| refused.reason.clone())
    }

    #[test]
    fn a_pod_waits_until_the_group_is_that_of_its_own_job() {
        let dialects: Vec<Box<dyn Dialect>> = vec![Box::new(MusterPodGroup)];
        let ganged = GangedOwners::all();
        let mut intake = Intake::new(vec![Profile::default()], Vec::new(), FeatureGates::default(), ganged, dialects);
        let mut apply = |group: Value| {
            let delta = Delta::Applied(serde_json::from_str(&group.to_string()).unwrap());
            intake.handle(WatchEvent::Group(0, delta), 0).observations
        };
        apply(pod_group("g1", "first"));
        let owner =
            json!({"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "second", "controller": true});
        let pod = json!({
            "metadata": {"namespace": "ml", "name": "train-0", "uid": "p", "ownerReferences": [owner],
                "annotations": {"muster.dev/pod-group": "job-train"}},
            "spec": {"schedulerName": "muster", "containers": []},
        });
        let delta = Delta::Applied(serde_json::from_str(&pod.to_string()).unwrap());
        let held = refusal(intake.handle(WatchEvent::Pod(delta), 0).observations).expect("the group is another Job's");
        assert!(held.contains("another Job train, with UID first"), "{held}");
        let delta = Delta::Applied(serde_json::from_str(&pod_group("g2", "second").to_string()).unwrap());
        assert_eq!(refusal(intake.handle(WatchEvent::Group(0, delta), 0).observations), None);
    }
}
