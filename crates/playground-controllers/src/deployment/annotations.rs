//! The annotations of a Deployment on its ReplicaSets: the revision and the sizes that they were scaled for.
//!
//! The revision of the new set is one more than that of every old one; on a rollback the set keeps its earlier
//! revisions as history.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;

use super::numbers::{desired_replicas, max_replicas};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that sets do not inherit from their Deployment.
const NOT_INHERITED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];
const HISTORY_CHARS_MAX: usize = 2000;

/// The revision of a set; 0 if absent or invalid.
pub(super) fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn count(set: &ReplicaSet, key: &str) -> Option<i32> {
    set.annotations().get(key).and_then(|text| text.parse().ok()).filter(|count| *count >= 0)
}

/// The desired replicas of the Deployment when it last scaled the set.
pub(super) fn desired_replicas_annotation(set: &ReplicaSet) -> Option<i32> {
    count(set, DESIRED)
}

/// The maximum replicas of the Deployment when it last scaled the set.
pub(super) fn max_replicas_annotation(set: &ReplicaSet) -> Option<i32> {
    count(set, MAXIMUM)
}

/// Sets the size annotations. Returns whether they changed.
pub(super) fn set_replicas_annotations(set: &mut ReplicaSet, deployment: &Deployment) -> bool {
    let max = max_replicas(deployment);
    let mut changed = false;
    for (key, number) in [(DESIRED, desired_replicas(deployment)), (MAXIMUM, max)] {
        changed |= set_annotation(set.annotations_mut(), key, &number.to_string());
    }
    changed
}

/// Copies the Deployment's annotations to the new set and sets its revision. Returns whether anything changed.
pub(super) fn set_new_set_annotations(set: &mut ReplicaSet, deployment: &Deployment, newest_old: i64) -> bool {
    let mut changed = false;
    for (key, value) in deployment.annotations() {
        if !NOT_INHERITED.contains(&key.as_str()) {
            changed |= set_annotation(set.annotations_mut(), key, value);
        }
    }
    let next = newest_old + 1;
    let before = set.annotations().get(REVISION).cloned();
    let number = before.as_deref().map_or(Some(0), |text| text.parse::<i64>().ok());
    // A revision that is not a number was written by someone else and is left alone.
    if number.is_some_and(|number| number < next) {
        set_annotation(set.annotations_mut(), REVISION, &next.to_string());
        if let Some(before) = before {
            append_history(set.annotations_mut(), &before);
        }
        changed = true;
    }
    changed
}

/// Appends a revision to the history; the oldest entries are dropped when it is too long.
fn append_history(annotations: &mut BTreeMap<String, String>, revision: &str) {
    let history = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|one| !one.is_empty()).chain([revision]).collect();
    while revisions.join(",").len() > HISTORY_CHARS_MAX {
        revisions.remove(0);
    }
    annotations.insert(HISTORY.to_owned(), revisions.join(","));
}

/// Sets an annotation. Returns whether it changed.
pub(super) fn set_annotation(annotations: &mut BTreeMap<String, String>, key: &str, value: &str) -> bool {
    annotations.insert(key.to_owned(), value.to_owned()).as_deref() != Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rolled_back_set_keeps_its_revision_history() {
        let mut set = ReplicaSet::default();
        let deployment = Deployment::default();
        assert!(set_new_set_annotations(&mut set, &deployment, 0));
        assert!(!set_new_set_annotations(&mut set, &deployment, 0));
        assert_eq!((revision(&set), set.annotations().get(HISTORY)), (1, None));
        assert!(set_new_set_annotations(&mut set, &deployment, 1));
        assert!(set_new_set_annotations(&mut set, &deployment, 4));
        assert_eq!((revision(&set), set.annotations()[HISTORY].as_str()), (5, "1,2"));
        assert!(!set_new_set_annotations(&mut set, &deployment, 2), "a lower number changes nothing");
    }

    #[test]
    fn long_history_drops_its_oldest_entries() {
        let mut annotations = BTreeMap::new();
        for revision in 1000..2000 {
            append_history(&mut annotations, &revision.to_string());
        }
        let history = &annotations[HISTORY];
        assert!(history.len() <= HISTORY_CHARS_MAX && history.ends_with(",1998,1999"), "{history}");
        assert!(history.starts_with("1600,"), "{history}");
    }
}
