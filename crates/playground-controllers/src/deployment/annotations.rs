//! What a deployment writes on its replica sets: the revision and how large all of them may be together.
//!
//! The revision of the new set is one more than that of every old one; a set that is rolled back to keeps its old
//! revisions as history.

use std::collections::BTreeMap;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use kube::ResourceExt;

use super::numbers::{most, wanted};

pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";
const HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAXIMUM: &str = "deployment.kubernetes.io/max-replicas";
/// What sets do not take over from their deployment.
const OWN: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAXIMUM,
    "deprecated.deployment.rollback.to",
];
const HISTORY_CHARS_MAX: usize = 2000;

/// The revision of a set; 0 if there is none, or none that can be read.
pub(super) fn revision(set: &ReplicaSet) -> i64 {
    set.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn count(set: &ReplicaSet, key: &str) -> Option<i32> {
    set.annotations().get(key).and_then(|text| text.parse().ok()).filter(|count| *count >= 0)
}

/// How many pods the deployment wanted when it last wrote the set.
pub(super) fn desired(set: &ReplicaSet) -> Option<i32> {
    count(set, DESIRED)
}

/// How many pods there could be at most when the deployment last wrote the set.
pub(super) fn maximum(set: &ReplicaSet) -> Option<i32> {
    count(set, MAXIMUM)
}

/// Notes how many pods are wanted. Answers whether that was news.
pub(super) fn note_sizes(set: &mut ReplicaSet, deployment: &Deployment) -> bool {
    let maximum = most(deployment);
    let mut is_news = false;
    for (key, number) in [(DESIRED, wanted(deployment)), (MAXIMUM, maximum)] {
        is_news |= put(set.annotations_mut(), key, &number.to_string());
    }
    is_news
}

/// Gives the new set what it takes over from its deployment, and its revision. Answers whether that was news.
pub(super) fn note_revision(set: &mut ReplicaSet, deployment: &Deployment, newest_old: i64) -> bool {
    let mut is_news = false;
    for (key, value) in deployment.annotations() {
        if !OWN.contains(&key.as_str()) {
            is_news |= put(set.annotations_mut(), key, value);
        }
    }
    let next = newest_old + 1;
    let before = set.annotations().get(REVISION).cloned();
    let number = before.as_deref().map_or(Some(0), |text| text.parse::<i64>().ok());
    // A revision that somebody else wrote in words is left alone.
    if number.is_some_and(|number| number < next) {
        put(set.annotations_mut(), REVISION, &next.to_string());
        if let Some(before) = before {
            remember(set.annotations_mut(), &before);
        }
        is_news = true;
    }
    is_news
}

/// Adds a revision to the history; the oldest go when it is too long.
fn remember(annotations: &mut BTreeMap<String, String>, revision: &str) {
    let history = annotations.get(HISTORY).cloned().unwrap_or_default();
    let mut revisions: Vec<&str> = history.split(',').filter(|one| !one.is_empty()).chain([revision]).collect();
    while revisions.join(",").len() > HISTORY_CHARS_MAX {
        revisions.remove(0);
    }
    annotations.insert(HISTORY.to_owned(), revisions.join(","));
}

/// Sets an annotation. Answers whether it was another before.
pub(super) fn put(annotations: &mut BTreeMap<String, String>, key: &str, value: &str) -> bool {
    annotations.insert(key.to_owned(), value.to_owned()).as_deref() != Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_that_is_rolled_back_to_keeps_its_old_revisions() {
        let mut set = ReplicaSet::default();
        let deployment = Deployment::default();
        assert!(note_revision(&mut set, &deployment, 0));
        assert!(!note_revision(&mut set, &deployment, 0));
        assert_eq!((revision(&set), set.annotations().get(HISTORY)), (1, None));
        assert!(note_revision(&mut set, &deployment, 1));
        assert!(note_revision(&mut set, &deployment, 4));
        assert_eq!((revision(&set), set.annotations()[HISTORY].as_str()), (5, "1,2"));
        assert!(!note_revision(&mut set, &deployment, 2), "a lower number is no news");
    }

    #[test]
    fn a_long_history_forgets_its_beginning() {
        let mut annotations = BTreeMap::new();
        for revision in 1000..2000 {
            remember(&mut annotations, &revision.to_string());
        }
        let history = &annotations[HISTORY];
        assert!(history.len() <= HISTORY_CHARS_MAX && history.ends_with(",1998,1999"), "{history}");
        assert!(history.starts_with("1600,"), "{history}");
    }
}
