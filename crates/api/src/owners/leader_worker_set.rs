//! The rules for LeaderWorkerSets: one gang for each replica and revision, and the names of the groups.
//!
//! Everything follows from the pods, without a lookup of the set. The group name contains the revision, so that a
//! replica recreated by a rolling update gets a new group, while the old one keeps its own until it is gone.
//!
//! Must not depend on what is done with a group.

use super::gang_mode::GangMode;
use super::short_name;
use crate::invalid::{FieldPath, InvalidField};
use crate::keys::annotations::GANG_MODE;
use crate::keys::gang_mode::OFF;
use crate::selector::Labels;
use crate::wire::LeaderWorkerSet;
use crate::wire::template::PodTemplate;

/// Labels of pods of a set.
pub mod labels {
    /// The set.
    pub const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
    /// The index of the replica, from 0.
    pub const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
    /// The index of the pod in its replica; the leader has 0.
    pub const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
    /// The revision of the set that the pod was created from.
    pub const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
}

/// The pod annotation with the size of its replica, at the pod's own revision.
pub const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// The annotation of a set and its pods for exclusive topology: each replica has its own domain, and workers are
/// created only after their leader is bound.
pub const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// A replica of a set at a revision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// The set.
    pub set: String,
    /// The index of the replica.
    pub index: String,
    /// The revision.
    pub revision: String,
}

impl Replica {
    /// The replica of a pod; `None` if it belongs to no set. A leader without the index label has the index in its
    /// name.
    pub fn of(pod_name: &str, of_pod: &Labels) -> Result<Option<Replica>, InvalidField> {
        let Some(set) = of_pod.get(labels::NAME) else { return Ok(None) };
        let path = FieldPath::Root("metadata.labels");
        let index = match of_pod.get(labels::GROUP_INDEX) {
            Some(index) => index.clone(),
            None if is_leader(of_pod) => ordinal(pod_name).map(str::to_owned).ok_or_else(|| {
                FieldPath::Root("metadata.name").invalid(pod_name, "must end in the index of a replica")
            })?,
            None => return Err(path.key(labels::GROUP_INDEX).invalid("", "must be set on a worker")),
        };
        let revision = of_pod.get(labels::REVISION).cloned();
        let revision = revision.ok_or_else(|| path.key(labels::REVISION).invalid("", "must be set"))?;
        Ok(Some(Replica { set: set.clone(), index, revision }))
    }

    /// The name of its group.
    pub fn group_name(&self, chars_max: usize) -> String {
        short_name(&format!("{}-{}-{}", self.set, self.index, self.revision), chars_max)
    }
}

/// Whether the pod leads its replica.
pub fn is_leader(of_pod: &Labels) -> bool {
    of_pod.get(labels::WORKER_INDEX).is_some_and(|index| index == "0")
}

/// The ordinal at the end of a StatefulSet pod's name.
fn ordinal(name: &str) -> Option<&str> {
    let (_, number) = name.rsplit_once('-')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

/// Whether the gang mode is `Off`. Without the annotation, replicas are gangs.
pub fn is_off(annotations: &Labels, metadata: &FieldPath<'_>) -> Result<bool, InvalidField> {
    let mode = GangMode::annotated(annotations, &[GangMode::Off, GangMode::ReplicatedGang], metadata)?;
    Ok(mode == Some(GangMode::Off))
}

/// Rejects a set of which only the leaders or only the workers belong to gangs: each would wait for the others for
/// ever. `is_handled` says whether a `schedulerName` makes gangs.
pub fn check_templates(set: &LeaderWorkerSet, is_handled: impl Fn(&str) -> bool) -> Result<(), InvalidField> {
    let template = &set.spec.leader_worker_template;
    let Some(leader) = &template.leader_template else { return Ok(()) };
    let worker = &template.worker_template;
    let path = FieldPath::Root("spec.leaderWorkerTemplate");
    let (of_leader, of_worker) = (path.child("leaderTemplate.metadata"), path.child("workerTemplate.metadata"));
    let modes = (is_off(&leader.metadata.annotations, &of_leader)?, is_off(&worker.metadata.annotations, &of_worker)?);
    let reason = "must be set in both leaderTemplate and workerTemplate or in neither: leader and workers are one gang";
    match modes {
        (true, true) => return Ok(()),
        (true, false) => return Err(of_leader.child("annotations").key(GANG_MODE).invalid(OFF, reason)),
        (false, true) => return Err(of_worker.child("annotations").key(GANG_MODE).invalid(OFF, reason)),
        (false, false) => {}
    }
    let name = |pod: &PodTemplate| match pod.spec.scheduler_name.as_str() {
        "" => "default-scheduler".to_owned(),
        name => name.to_owned(),
    };
    let (leader, worker) = (name(leader), name(worker));
    if leader == worker || is_handled(&leader) == is_handled(&worker) {
        return Ok(());
    }
    let field = path.child("workerTemplate.spec.schedulerName");
    Err(field
        .invalid(&worker, format_args!("must be that of leaderTemplate, {leader}: leader and workers are one gang")))
}

/// The size of the replica of a pod.
pub fn size(annotations: &Labels) -> Result<i64, InvalidField> {
    let path = FieldPath::Root("metadata.annotations");
    let written = annotations.get(SIZE).map_or("", String::as_str);
    let size = written.parse().ok().filter(|size: &i64| *size > 0);
    size.ok_or_else(|| path.key(SIZE).invalid(written, "must be a positive number"))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(labels: &[(&str, &str)]) -> Labels {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn leader_and_worker_have_the_same_group() {
        let leader = pod(&[(labels::NAME, "test"), (labels::WORKER_INDEX, "0"), (labels::REVISION, "1")]);
        let worker = pod(&[(labels::NAME, "test"), (labels::GROUP_INDEX, "12"), (labels::REVISION, "1")]);
        let of = |name: &str, labels: &Labels| Replica::of(name, labels).unwrap().unwrap().group_name(63);
        assert_eq!(of("test-12", &leader), "test-12-1");
        assert_eq!(of("test-12-3", &worker), "test-12-1");
        assert_eq!(Replica::of("p", &Labels::new()), Ok(None));
    }

    #[test]
    fn missing_labels_are_named() {
        let error = |name: &str, labels: &[(&str, &str)]| Replica::of(name, &pod(labels)).unwrap_err().to_string();
        let worker = error("a-0-1", &[(labels::NAME, "a"), (labels::REVISION, "1")]);
        assert!(worker.contains("group-index"), "{worker}");
        let leader = error("a-x", &[(labels::NAME, "a"), (labels::WORKER_INDEX, "0"), (labels::REVISION, "1")]);
        assert!(leader.contains("\"a-x\""), "{leader}");
        let revision = error("a-0", &[(labels::NAME, "a"), (labels::WORKER_INDEX, "0")]);
        assert!(revision.contains("template-revision-hash"), "{revision}");
    }

    #[test]
    fn modes_and_sizes() {
        let metadata = FieldPath::Root("metadata");
        let off = |mode: &str| is_off(&pod(&[("muster.dev/gang-mode", mode)]), &metadata);
        assert_eq!(
            (off("Off"), off("ReplicatedGang"), is_off(&Labels::new(), &metadata)),
            (Ok(true), Ok(false), Ok(false))
        );
        assert!(off("Gang").unwrap_err().to_string().contains("Off, ReplicatedGang"));
        assert_eq!(size(&pod(&[(SIZE, "4")])), Ok(4));
        assert!(size(&pod(&[(SIZE, "0")])).is_err() && size(&Labels::new()).is_err());
    }

    #[test]
    fn leader_and_workers_must_be_in_gangs_together() {
        let template = |mode: &str, scheduler: &str| {
            let annotations = if mode.is_empty() { json!({}) } else { json!({GANG_MODE: mode}) };
            json!({"metadata": {"annotations": annotations}, "spec": {"schedulerName": scheduler, "containers": []}})
        };
        let check = |leader: Value, worker: Value| {
            let spec = json!({"leaderWorkerTemplate": {"leaderTemplate": leader, "workerTemplate": worker}});
            let set = serde_json::from_value(json!({"metadata": {"name": "s"}, "spec": spec})).unwrap();
            check_templates(&set, |name| name == "muster").map_err(|error| error.to_string())
        };
        let ganged = || template("", "muster");
        assert_eq!(check(ganged(), ganged()), Ok(()));
        assert_eq!(check(template(OFF, "muster"), template(OFF, "other")), Ok(()), "no gang at all");
        assert_eq!(check(template("", "a"), template("", "b")), Ok(()), "not ours");
        assert_eq!(check(Value::Null, ganged()), Ok(()), "leaders have the workers' template");
        let error = check(template(OFF, "muster"), ganged()).unwrap_err();
        assert!(error.contains("leaderTemplate.metadata.annotations[muster.dev/gang-mode]"), "{error}");
        let error = check(ganged(), template(OFF, "muster")).unwrap_err();
        assert!(error.contains("workerTemplate.metadata.annotations[muster.dev/gang-mode]"), "{error}");
        let error = check(ganged(), template("", "")).unwrap_err();
        assert!(error.contains("schedulerName") && error.contains("default-scheduler"), "{error}");
    }
}
