//! Whether and how a Job ends.
//!
//! An end is told twice: first that it is certain (`SuccessCriteriaMet`, `FailureTarget`), and when the last pod is
//! gone that it is so (`Complete`, `Failed`). It must not know how pods are made or deleted.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_determinism::clock;

use super::census::Census;
use super::indexes::Indexes;
use super::pod;
use super::policy::{self, Ruling};

/// A condition that is true from now on.
pub(super) fn condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(stamp(now)),
        last_transition_time: Some(stamp(now)),
    }
}

/// A date as a status carries it: whole seconds.
pub(super) fn stamp(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The condition of a type, if it is true.
pub(super) fn standing<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|one| one.type_ == kind && one.status == "True")
}

/// The end of a Job that is over.
pub(super) fn told(job: &Job) -> Option<&JobCondition> {
    let status = job.status.as_ref()?;
    standing(status, "Complete").or_else(|| standing(status, "Failed"))
}

/// The same end, one step further.
pub(super) fn settled(end: &JobCondition, now: Timestamp) -> JobCondition {
    let kind = match end.type_.as_str() {
        "SuccessCriteriaMet" => "Complete",
        "FailureTarget" => "Failed",
        kind => kind,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    condition(kind, &text(&end.reason), &text(&end.message), now)
}

/// Why the Job is to end now, whatever its pods do, if it is.
pub(super) fn evaluate(census: &Census<'_>, status: &JobStatus, now: Timestamp) -> Option<JobCondition> {
    if let Some(met) = standing(status, "SuccessCriteriaMet") {
        return Some(met.clone());
    }
    if let Some(target) = standing(status, "FailureTarget") {
        return Some(settled(target, now));
    }
    let fail = |reason: &str, message: &str| Some(condition("FailureTarget", reason, message, now));
    if let Some(message) = ruled_out(census) {
        return fail("PodFailurePolicy", &message);
    }
    if census.failed > census.terms.backoff_limit || has_restarted_too_often(census) {
        return fail("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline(census, status).is_some_and(|deadline| deadline <= now) {
        return fail("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let failed = census.failed_indexes.as_ref().map_or(0, Indexes::count);
    let failed_max = census.terms.max_failed_indexes.and_then(|max| usize::try_from(max).ok());
    if failed_max.is_some_and(|max| failed > max) {
        return fail("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
    }
    let end = census.terms.index_end();
    if failed > 0 && failed + census.succeeded_indexes.count() >= end as usize {
        return fail("FailedIndexes", "Job has failed indexes");
    }
    let success = census.job.spec.as_ref().and_then(|spec| spec.success_policy.as_ref());
    let message = policy::success(success, &census.succeeded_indexes, end)?;
    Some(condition("SuccessCriteriaMet", "SuccessPolicy", &message, now))
}

/// What a rule says that ends the Job.
fn ruled_out(census: &Census<'_>) -> Option<String> {
    let failed = census.pods.iter().filter(|pod| census.has_failed(pod));
    failed.map(|pod| census.ruling(pod)).find_map(|ruling| match ruling {
        Ruling::FailJob(message) => Some(message),
        _ => None,
    })
}

/// Where containers are started again in their pods, each of these restarts is a failure too.
fn has_restarted_too_often(census: &Census<'_>) -> bool {
    let template = census.job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    if template.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = census.pods.iter().filter(|pod| matches!(pod::phase(pod), "Running" | "Pending"));
    let restarts: i32 = running.map(|pod| pod::restarts(pod)).sum();
    restarts >= census.terms.backoff_limit.max(1)
}

/// When the Job's time is over.
pub(super) fn deadline(census: &Census<'_>, status: &JobStatus) -> Option<Timestamp> {
    let seconds = census.job.spec.as_ref()?.active_deadline_seconds.filter(|_| !census.terms.is_suspended)?;
    Some(clock::after(status.start_time.as_ref()?.0, seconds))
}

/// The end of a Job that has all it wanted; `active` is how many pods are left.
pub(super) fn completion(census: &Census<'_>, active: usize, now: Timestamp) -> Option<JobCondition> {
    let wanted = census.terms.completions.map_or(1, |completions| completions as usize);
    let message = "Reached expected number of succeeded pods";
    (census.succeeded >= wanted && active == 0)
        .then(|| condition("SuccessCriteriaMet", "CompletionsReached", message, now))
}
