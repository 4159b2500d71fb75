//! What a Job that goes on needs done: pods to make, or pods that are too many.
//!
//! Invariant: never both at once, and never more pods than the parallelism allows, those that end not counted unless
//! the Job waits for them. It must not know how it is done.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::backoff::{self, Backoff};
use super::census::Census;
use super::pod::{self, JobPod};

/// The most pods that are made or deleted before the status is told.
const BURST: usize = 500;

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) enum Deeds<'a> {
    Nothing,
    /// A failure was too short a time ago.
    Wait(Duration),
    /// A pod for each, with its index if the Job counts by them.
    Make(Vec<Option<u32>>),
    Delete(Vec<&'a JobPod>),
}

/// What a Job needs that does not end.
pub(super) fn needed<'a>(census: &Census<'a>, backoff: &Backoff, now: Timestamp) -> Deeds<'a> {
    if census.terms.is_suspended {
        let all = census.active.len();
        return if all == 0 { Deeds::Nothing } else { Deeds::Delete(too_many(census, all)) };
    }
    let active = census.active.len();
    let wanted = wanted(census);
    let mut surplus = too_many(census, active.saturating_sub(wanted));
    if !surplus.is_empty() {
        surplus.truncate(BURST);
        return Deeds::Delete(surplus);
    }
    let ending = if census.terms.ends_first { census.terminating } else { 0 };
    let missing = wanted.saturating_sub(active + ending).min(BURST);
    if missing == 0 {
        return Deeds::Nothing;
    }
    if census.terms.backoff_limit_per_index.is_some() {
        return pods_of_free_indexes(census, missing, now);
    }
    if let Some(wait) = positive(backoff.remaining(now)) {
        return Deeds::Wait(wait);
    }
    let pods = if census.terms.is_indexed {
        census.pending_indexes(missing).into_iter().map(Some).collect()
    } else {
        vec![None; missing]
    };
    if pods.is_empty() { Deeds::Nothing } else { Deeds::Make(pods) }
}

/// How many pods there should be.
fn wanted(census: &Census<'_>) -> usize {
    let parallelism = census.terms.parallelism as usize;
    match census.terms.completions {
        Some(completions) => (completions as usize).saturating_sub(census.succeeded).min(parallelism),
        // Whoever takes from a queue and finds it empty ends well; the others then end by themselves.
        None if census.succeeded > 0 => census.active.len(),
        None => parallelism,
    }
}

/// Pods for those indexes whose own wait is over.
fn pods_of_free_indexes<'a>(census: &Census<'_>, missing: usize, now: Timestamp) -> Deeds<'a> {
    let mut free = Vec::new();
    let mut shortest: Option<Duration> = None;
    for index in census.pending_indexes(missing) {
        let remaining = census.kept.get(&index).map(|failed| backoff::remaining_for_index(failed, now));
        match remaining.and_then(positive) {
            Some(wait) => shortest = Some(shortest.map_or(wait, |shortest| shortest.min(wait))),
            None => free.push(Some(index)),
        }
    }
    match shortest {
        _ if !free.is_empty() => Deeds::Make(free),
        Some(wait) => Deeds::Wait(wait),
        None => Deeds::Nothing,
    }
}

fn positive(time: SignedDuration) -> Option<Duration> {
    Duration::try_from(time).ok().filter(|time| !time.is_zero())
}

/// At least so many active pods, those first that have done least; and all without a place among the indexes.
fn too_many<'a>(census: &Census<'a>, least: usize) -> Vec<&'a JobPod> {
    let mut left = census.active.clone();
    left.sort_by_key(|pod| pod::worth(pod));
    let mut going = Vec::new();
    if census.terms.is_indexed {
        let keepers = keepers(census, &left);
        let (kept, misplaced) = left.into_iter().partition(|pod| keepers.contains(pod::uid(pod)));
        (left, going) = (kept, misplaced);
    }
    let more = least.saturating_sub(going.len());
    going.extend(left.into_iter().take(more));
    going
}

/// The pod of each index that is worth most; the pods come in the order of their worth.
fn keepers<'a>(census: &Census<'_>, pods: &[&'a JobPod]) -> BTreeSet<&'a str> {
    let mut best: BTreeMap<u32, &str> = BTreeMap::new();
    for pod in pods {
        if let Some(index) = census.terms.index(pod) {
            best.insert(index, pod::uid(pod));
        }
    }
    best.into_values().collect()
}
