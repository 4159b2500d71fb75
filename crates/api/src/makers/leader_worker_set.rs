//! Which pods of a LeaderWorkerSet are one gang, and how the group is called: one for each replica and revision.
//!
//! All of it stands on the pods: a set need not be looked up. The name has the revision in it, so that a replica that is
//! made anew by a rolling update has a new group, while the old one keeps its own to the end.
//!
//! It must not know what becomes of a group.

use super::gang_mode::GangMode;
use super::short_name;
use crate::invalid::{FieldPath, InvalidField};
use crate::selector::Labels;

/// Labels of pods of a set.
pub mod labels {
    /// The set.
    pub const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
    /// Which replica, from 0.
    pub const GROUP_INDEX: &str = "leaderworkerset.sigs.k8s.io/group-index";
    /// Which pod of the replica; the leader has 0.
    pub const WORKER_INDEX: &str = "leaderworkerset.sigs.k8s.io/worker-index";
    /// The revision of the set that the pod was made from.
    pub const REVISION: &str = "leaderworkerset.sigs.k8s.io/template-revision-hash";
}

/// The annotation of pods that says how many a replica has, at the pod's own revision.
pub const SIZE: &str = "leaderworkerset.sigs.k8s.io/size";
/// The annotation of a set and its pods: replicas have a domain of this topology each, and workers are made only when
/// their leader has a node.
pub const EXCLUSIVE_TOPOLOGY: &str = "leaderworkerset.sigs.k8s.io/exclusive-topology";

/// A replica of a set at a revision.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Replica {
    /// The set.
    pub set: String,
    /// Which replica.
    pub index: String,
    /// The revision.
    pub revision: String,
}

impl Replica {
    /// The replica that a pod belongs to; `None` if it is of no set. A leader that has no index yet has it in its name.
    pub fn of(pod_name: &str, of_pod: &Labels) -> Result<Option<Replica>, InvalidField> {
        let Some(set) = of_pod.get(labels::NAME) else { return Ok(None) };
        let path = FieldPath::Root("metadata.labels");
        let index = match of_pod.get(labels::GROUP_INDEX) {
            Some(index) => index.clone(),
            None if is_leader(of_pod) => ordinal(pod_name).map(str::to_owned).ok_or_else(|| {
                FieldPath::Root("metadata.name").invalid(pod_name, "does not end in the number of a replica")
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

/// The number at the end of the name of a stateful set's pod.
fn ordinal(name: &str) -> Option<&str> {
    let (_, number) = name.rsplit_once('-')?;
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

/// Whether the pods of a template are left out: pods are gangs if they do not say otherwise.
pub fn is_off(annotations: &Labels, metadata: &FieldPath<'_>) -> Result<bool, InvalidField> {
    let mode = GangMode::annotated(annotations, &[GangMode::Off, GangMode::ReplicatedGang], metadata)?;
    Ok(mode == Some(GangMode::Off))
}

/// How many pods the replica of a pod has.
pub fn size(annotations: &Labels) -> Result<i64, InvalidField> {
    let path = FieldPath::Root("metadata.annotations");
    let written = annotations.get(SIZE).map_or("", String::as_str);
    let size = written.parse().ok().filter(|size: &i64| *size > 0);
    size.ok_or_else(|| path.key(SIZE).invalid(written, "must be a number of pods"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(labels: &[(&str, &str)]) -> Labels {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn leader_and_worker_find_the_same_group() {
        let leader = pod(&[(labels::NAME, "test"), (labels::WORKER_INDEX, "0"), (labels::REVISION, "1")]);
        let worker = pod(&[(labels::NAME, "test"), (labels::GROUP_INDEX, "12"), (labels::REVISION, "1")]);
        let of = |name: &str, labels: &Labels| Replica::of(name, labels).unwrap().unwrap().group_name(63);
        assert_eq!(of("test-12", &leader), "test-12-1");
        assert_eq!(of("test-12-3", &worker), "test-12-1");
        assert_eq!(Replica::of("p", &Labels::new()), Ok(None));
    }

    #[test]
    fn what_is_missing_is_named() {
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
        let off = |word: &str| is_off(&pod(&[("muster.dev/gang-mode", word)]), &metadata);
        assert_eq!(
            (off("Off"), off("ReplicatedGang"), is_off(&Labels::new(), &metadata)),
            (Ok(true), Ok(false), Ok(false))
        );
        assert!(off("Gang").unwrap_err().to_string().contains("Off, ReplicatedGang"));
        assert_eq!(size(&pod(&[(SIZE, "4")])), Ok(4));
        assert!(size(&pod(&[(SIZE, "0")])).is_err() && size(&Labels::new()).is_err());
    }
}
