//! Tracks terminated pods with finalizers: each is counted exactly once, even if the controller dies at any step.
//!
//! First the UID is added to `uncountedTerminatedPods`, then the pod's finalizer is removed, then the UID becomes part of
//! a counter.
//!
//! A succeeded index needs no UID: it is in `completedIndexes` once. Must not depend on the API.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};

use super::job_state::JobState;
use super::pod::{self, JobPod};
use super::policy::FailureAction;

/// The maximum number of uncounted pods.
const UNCOUNTED_MAX: usize = 500;

/// The terminated pods of one sync.
#[derive(Debug)]
pub(super) struct TrackedPods<'a> {
    /// Their finalizers may be removed once the status is written.
    pub(super) finalizers_to_remove: Vec<&'a JobPod>,
    /// Whether there are more of them than were recorded.
    pub(super) is_full: bool,
}

/// Records terminated pods in the status. `end` is how the Job finishes, if it does.
pub(super) fn record_terminated<'a>(
    state: &JobState<'a>,
    end: Option<&JobCondition>,
    status: &mut JobStatus,
) -> TrackedPods<'a> {
    let mut tracked = TrackedPods { finalizers_to_remove: Vec::new(), is_full: false };
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let (mut succeeded_uids, mut failed_uids) =
        (uncounted.succeeded.take().unwrap_or_default(), uncounted.failed.take().unwrap_or_default());
    let mut pods: Vec<&JobPod> = state.pods.iter().filter(|pod| pod::is_tracked(pod)).copied().collect();
    pods.sort_by_key(|pod| pod::index(pod));
    let mut new_indexes = BTreeSet::new();
    for pod in pods {
        if !may_remove_finalizer(state, end, pod) {
            continue;
        }
        tracked.finalizers_to_remove.push(pod);
        let uid = pod::uid(pod).to_owned();
        if pod::has_succeeded(pod) && !failed_uids.contains(&uid) {
            if state.settings.is_indexed {
                let index = state.settings.index(pod);
                new_indexes.extend(index.filter(|index| !state.counted_indexes.contains(*index)));
            } else if !succeeded_uids.contains(&uid) {
                succeeded_uids.push(uid);
            }
        } else if counts_as_failed(state, end, pod) && !failed_uids.contains(&uid) {
            failed_uids.push(uid);
        }
        if new_indexes.len() + succeeded_uids.len() + failed_uids.len() >= UNCOUNTED_MAX {
            tracked.is_full = true;
            break;
        }
    }
    status.uncounted_terminated_pods = Some(uncounted_pods(succeeded_uids, failed_uids));
    if state.settings.is_indexed {
        status.succeeded = Some(state.succeeded_indexes.count() as i32).filter(|count| *count > 0);
        status.completed_indexes = Some(state.succeeded_indexes.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = state.failed_indexes.as_ref().map(ToString::to_string);
    }
    tracked
}

fn uncounted_pods(succeeded_uids: Vec<String>, failed_uids: Vec<String>) -> UncountedTerminatedPods {
    let some = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
    UncountedTerminatedPods { succeeded: some(succeeded_uids), failed: some(failed_uids) }
}

/// Whether the pod's finalizer may be removed.
fn may_remove_finalizer(state: &JobState<'_>, end: Option<&JobCondition>, pod: &JobPod) -> bool {
    if state.job.metadata.deletion_timestamp.is_some() || end.is_some() || pod::has_succeeded(pod) {
        return true;
    }
    let index = pod::index(pod);
    let is_kept = index.and_then(|index| state.kept.get(&index)).is_some_and(|kept| pod::uid(kept) == pod::uid(pod));
    state.has_failed(pod) && !is_kept
}

/// Whether the pod counts as failed. When a Job fails, all its running pods do.
fn counts_as_failed(state: &JobState<'_>, end: Option<&JobCondition>, pod: &JobPod) -> bool {
    let job_fails = end.is_some_and(|end| end.type_ != "SuccessCriteriaMet");
    let is_in_range = !state.settings.is_indexed || state.settings.index(pod).is_some();
    (state.has_failed(pod) || job_fails) && is_in_range && state.failure_action(pod) != FailureAction::Ignore
}

/// Moves UIDs of pods that no longer have the finalizer into the counters.
pub(super) fn clean_uncounted(status: &mut JobStatus, with_finalizer: &BTreeSet<&str>) {
    let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let split = |uids: Option<Vec<String>>| -> (Vec<String>, i32) {
        let (left, gone): (Vec<_>, Vec<_>) =
            uids.unwrap_or_default().into_iter().partition(|uid| with_finalizer.contains(&**uid));
        (left, gone.len() as i32)
    };
    let ((succeeded_uids, succeeded), (failed_uids, failed)) = (split(uncounted.succeeded), split(uncounted.failed));
    status.succeeded = Some(status.succeeded.unwrap_or(0) + succeeded).filter(|count| *count > 0);
    status.failed = Some(status.failed.unwrap_or(0) + failed).filter(|count| *count > 0);
    status.uncounted_terminated_pods = Some(uncounted_pods(succeeded_uids, failed_uids));
}

/// Whether no pod is left to be counted.
pub(super) fn is_all_counted(status: &JobStatus) -> bool {
    status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| *uncounted == UncountedTerminatedPods::default())
}
