//! The bookkeeping of pods that have ended: each is counted exactly once, even if its Job's controller dies at any step.
//!
//! 1. The UID is put into `uncountedTerminatedPods`. 2. The pod's finalizer goes. 3. The UID becomes a number.
//!
//! An index that has succeeded needs no UID: it is in `completedIndexes` once. It must not know the API.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{JobCondition, JobStatus, UncountedTerminatedPods};

use super::census::Census;
use super::pod::{self, JobPod};
use super::policy::Ruling;

/// The most pods that wait to be counted.
const UNCOUNTED_MAX: usize = 500;

/// What is to be done with the pods that are over.
#[derive(Debug)]
pub(super) struct Books<'a> {
    /// Their finalizers may go once the status is written.
    pub(super) free: Vec<&'a JobPod>,
    /// Whether there are more of them than were written down.
    pub(super) is_full: bool,
}

/// Writes down who has ended. `end` is how the Job ends, if it does.
pub(super) fn write<'a>(census: &Census<'a>, end: Option<&JobCondition>, status: &mut JobStatus) -> Books<'a> {
    let mut books = Books { free: Vec::new(), is_full: false };
    let mut uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let (mut done, mut lost) =
        (uncounted.succeeded.take().unwrap_or_default(), uncounted.failed.take().unwrap_or_default());
    let mut pods: Vec<&JobPod> = census.pods.iter().filter(|pod| pod::is_tracked(pod)).copied().collect();
    pods.sort_by_key(|pod| pod::index(pod));
    let mut new_indexes = BTreeSet::new();
    for pod in pods {
        if !may_go(census, end, pod) {
            continue;
        }
        books.free.push(pod);
        let uid = pod::uid(pod).to_owned();
        if pod::has_succeeded(pod) && !lost.contains(&uid) {
            if census.terms.is_indexed {
                let index = census.terms.index(pod);
                new_indexes.extend(index.filter(|index| !census.counted_indexes.contains(*index)));
            } else if !done.contains(&uid) {
                done.push(uid);
            }
        } else if is_loss(census, end, pod) && !lost.contains(&uid) {
            lost.push(uid);
        }
        if new_indexes.len() + done.len() + lost.len() >= UNCOUNTED_MAX {
            books.is_full = true;
            break;
        }
    }
    status.uncounted_terminated_pods = Some(uncounted_pods(done, lost));
    if census.terms.is_indexed {
        status.succeeded = Some(census.succeeded_indexes.count() as i32).filter(|count| *count > 0);
        status.completed_indexes = Some(census.succeeded_indexes.to_string()).filter(|text| !text.is_empty());
        status.failed_indexes = census.failed_indexes.as_ref().map(ToString::to_string);
    }
    books
}

fn uncounted_pods(done: Vec<String>, lost: Vec<String>) -> UncountedTerminatedPods {
    let some = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
    UncountedTerminatedPods { succeeded: some(done), failed: some(lost) }
}

/// Whether the pod need not be held any longer.
fn may_go(census: &Census<'_>, end: Option<&JobCondition>, pod: &JobPod) -> bool {
    if census.job.metadata.deletion_timestamp.is_some() || end.is_some() || pod::has_succeeded(pod) {
        return true;
    }
    let index = pod::index(pod);
    let is_kept = index.and_then(|index| census.kept.get(&index)).is_some_and(|kept| pod::uid(kept) == pod::uid(pod));
    census.has_failed(pod) && !is_kept
}

/// Whether the pod is counted as failed. When a Job fails, all that still run do.
fn is_loss(census: &Census<'_>, end: Option<&JobCondition>, pod: &JobPod) -> bool {
    let job_fails = end.is_some_and(|end| end.type_ != "SuccessCriteriaMet");
    let has_place = !census.terms.is_indexed || census.terms.index(pod).is_some();
    (census.has_failed(pod) || job_fails) && has_place && census.ruling(pod) != Ruling::Ignore
}

/// Turns those into numbers that are not held any more.
pub(super) fn settle(status: &mut JobStatus, held: &BTreeSet<&str>) {
    let uncounted = status.uncounted_terminated_pods.take().unwrap_or_default();
    let split = |uids: Option<Vec<String>>| -> (Vec<String>, i32) {
        let (left, gone): (Vec<_>, Vec<_>) =
            uids.unwrap_or_default().into_iter().partition(|uid| held.contains(&**uid));
        (left, gone.len() as i32)
    };
    let ((done, succeeded), (lost, failed)) = (split(uncounted.succeeded), split(uncounted.failed));
    status.succeeded = Some(status.succeeded.unwrap_or(0) + succeeded).filter(|count| *count > 0);
    status.failed = Some(status.failed.unwrap_or(0) + failed).filter(|count| *count > 0);
    status.uncounted_terminated_pods = Some(uncounted_pods(done, lost));
}

/// Whether somebody is still to be counted.
pub(super) fn is_settled(status: &JobStatus) -> bool {
    status.uncounted_terminated_pods.as_ref().is_none_or(|uncounted| *uncounted == UncountedTerminatedPods::default())
}
