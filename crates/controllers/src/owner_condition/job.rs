//! What a Job shows about its gang.

use kube::core::ApiResource;
use muster_api::keys::group_reasons::WAITING_FOR_MEMBERS;
use muster_api::owners::job;
use muster_api::wire::{Job, PodGroup};

use super::groups::{Gangs, gang_of_object};
use super::{Verdict, contradiction};
use crate::reconcile::{MEMBERS_NEVER_CREATED, is_controlled_by, jobs};
use crate::state::State;
use muster_reflector::Key;

pub(super) fn verdict(state: &State, job: &Job, key: &Key) -> Verdict {
    if job.is_finished() {
        return if job.is_complete() { Verdict::Scheduled } else { Verdict::Failed };
    }
    let uid = job.metadata.uid.as_deref().unwrap_or_default();
    if let Some(wrong) = contradiction(&jobs::reconcile(state, key), uid) {
        return wrong;
    }
    let gang = job::gang(job, state.settings.jobs().unwrap_or_default(), state.settings.scheduler_names());
    let Ok(Some(gang)) = gang else { return Verdict::NoGangs };
    if job.spec.suspend == Some(true) {
        return Verdict::Suspended;
    }
    let kind = ApiResource::erase::<PodGroup>(&());
    let group = state.managed(&kind).find(&key.0, &gang.group).filter(|group| is_controlled_by(&group.metadata, uid));
    let Some(group) = group.filter(|group| group.metadata.deletion_timestamp.is_none()) else {
        return Verdict::Unknown;
    };
    let mut gangs = Gangs::default();
    gangs.add(gang_of_object(gang.group, group, true));
    shortage(state, job, &gangs).unwrap_or_else(|| gangs.verdict(1, "gangs"))
}

/// The gang waits for members that the Job will never create.
fn shortage(state: &State, job: &Job, gangs: &Gangs) -> Option<Verdict> {
    let waits = |minimum: &i64| gangs.listed[0].reason == WAITING_FOR_MEMBERS && *minimum > 0;
    let minimum = Some(gangs.listed[0].minimum).filter(waits).filter(|_| gangs.listed[0].scheduled == Some(false))?;
    let (status, failed) = (&job.status, job.status.failed_index_count());
    let left = job.spec.completions?.saturating_sub(status.succeeded).saturating_sub(failed).max(0);
    let members = left.min(job.spec.parallelism.unwrap_or(1)) + jobs::succeeded_pods(state, job);
    (failed > 0 && members < minimum).then(|| Verdict::Waiting {
        reason: MEMBERS_NEVER_CREATED,
        message: format!(
            "{members} of {minimum} members, and the Job creates no more: its indexes {} have failed. Create the Job again.",
            status.failed_indexes
        ),
    })
}
