//! Decides which pods of an unfinished Job to create or to delete.
//!
//! Invariant: never both at once, and never more pods than `parallelism` allows; terminating pods count only if the
//! replacement policy waits for them. Must not depend on how it is carried out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::backoff::{self, Backoff};
use super::job_state::JobState;
use super::pod::{self, JobPod};

/// The maximum number of pods that are created or deleted before the status is updated.
const BURST: usize = 500;

/// What to do.
#[derive(Debug, PartialEq)]
pub(super) enum PodChanges<'a> {
    Nothing,
    /// The backoff has not passed yet.
    Wait(Duration),
    /// One pod for each entry, with its index if the Job is indexed.
    Create(Vec<Option<u32>>),
    Delete(Vec<&'a JobPod>),
}

/// Decides for a Job that is not finished.
pub(super) fn decide<'a>(state: &JobState<'a>, backoff: &Backoff, now: Timestamp) -> PodChanges<'a> {
    if state.settings.is_suspended {
        let all = state.active.len();
        return if all == 0 { PodChanges::Nothing } else { PodChanges::Delete(pods_to_delete(state, all)) };
    }
    let active = state.active.len();
    let desired = desired(state);
    let mut to_delete = pods_to_delete(state, active.saturating_sub(desired));
    if !to_delete.is_empty() {
        to_delete.truncate(BURST);
        return PodChanges::Delete(to_delete);
    }
    let terminating = if state.settings.replace_when_failed { state.terminating } else { 0 };
    let missing = desired.saturating_sub(active + terminating).min(BURST);
    if missing == 0 {
        return PodChanges::Nothing;
    }
    if state.settings.backoff_limit_per_index.is_some() {
        return create_after_backoff(state, missing, now);
    }
    if let Some(wait) = positive(backoff.remaining(now)) {
        return PodChanges::Wait(wait);
    }
    let pods = if state.settings.is_indexed {
        state.pending_indexes(missing).into_iter().map(Some).collect()
    } else {
        vec![None; missing]
    };
    if pods.is_empty() { PodChanges::Nothing } else { PodChanges::Create(pods) }
}

/// How many pods there should be.
fn desired(state: &JobState<'_>) -> usize {
    let parallelism = state.settings.parallelism as usize;
    match state.settings.completions {
        Some(completions) => (completions as usize).saturating_sub(state.succeeded).min(parallelism),
        // Work queue Jobs: a pod succeeds when the queue is empty; the others then end by themselves.
        None if state.succeeded > 0 => state.active.len(),
        None => parallelism,
    }
}

/// Pods for the indexes whose own backoff has passed.
fn create_after_backoff<'a>(state: &JobState<'_>, missing: usize, now: Timestamp) -> PodChanges<'a> {
    let mut ready = Vec::new();
    let mut min_wait: Option<Duration> = None;
    for index in state.pending_indexes(missing) {
        let remaining = state.kept.get(&index).map(|failed| backoff::remaining_for_index(failed, now));
        match remaining.and_then(positive) {
            Some(wait) => min_wait = Some(min_wait.map_or(wait, |min_wait| min_wait.min(wait))),
            None => ready.push(Some(index)),
        }
    }
    match min_wait {
        _ if !ready.is_empty() => PodChanges::Create(ready),
        Some(wait) => PodChanges::Wait(wait),
        None => PodChanges::Nothing,
    }
}

fn positive(time: SignedDuration) -> Option<Duration> {
    Duration::try_from(time).ok().filter(|time| !time.is_zero())
}

/// At least this many active pods, the least advanced first, plus all pods whose index is invalid or duplicate.
fn pods_to_delete<'a>(state: &JobState<'a>, least: usize) -> Vec<&'a JobPod> {
    let mut left = state.active.clone();
    left.sort_by_key(|pod| pod::deletion_rank(pod));
    let mut to_delete = Vec::new();
    if state.settings.is_indexed {
        let best_per_index = best_per_index(state, &left);
        let (kept, misplaced) = left.into_iter().partition(|pod| best_per_index.contains(pod::uid(pod)));
        (left, to_delete) = (kept, misplaced);
    }
    let more = least.saturating_sub(to_delete.len());
    to_delete.extend(left.into_iter().take(more));
    to_delete
}

/// The most advanced pod of each index; the pods come in ascending order.
fn best_per_index<'a>(state: &JobState<'_>, pods: &[&'a JobPod]) -> BTreeSet<&'a str> {
    let mut best: BTreeMap<u32, &str> = BTreeMap::new();
    for pod in pods {
        if let Some(index) = state.settings.index(pod) {
            best.insert(index, pod::uid(pod));
        }
    }
    best.into_values().collect()
}
