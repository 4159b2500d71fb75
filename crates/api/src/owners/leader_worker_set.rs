//! The rules for LeaderWorkerSets: one gang for each replica and revision, and the names of the groups.
//!
//! Everything follows from the pods, without a lookup of the set. The group name contains the revision, so that a
//! replica recreated by a rolling update gets a new group, while the old one keeps its own until it is gone.
//!
//! Must not depend on what is done with a group.

use super::gang_mode::GangMode;
use super::short_name;
use crate::invalid::{FieldPath, InvalidField};
use crate::selector::Labels;

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

/// The size of the replica of a pod.
pub fn size(annotations: &Labels) -> Result<i64, InvalidField> {
    let path = FieldPath::Root("metadata.annotations");
    let written = annotations.get(SIZE).map_or("", String::as_str);
    let size = written.parse().ok().filter(|size: &i64| *size > 0);
    size.ok_or_else(|| path.key(SIZE).invalid(written, "must be a positive number"))
}

#[cfg(test)]
mod tests {
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
}
