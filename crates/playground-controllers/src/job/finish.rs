//! Decides whether and how a Job finishes.
//!
//! The end is reported in two steps: first that it is certain (`SuccessCriteriaMet`, `FailureTarget`), and when the
//! last pod is gone that it has happened (`Complete`, `Failed`). Must not depend on how pods are created or deleted.

use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_clock as clock;

use super::indexes::Indexes;
use super::job_state::JobState;
use super::pod;
use super::policy::{self, FailureAction};

/// A condition that is true from now on.
pub(super) fn condition(kind: &str, reason: &str, message: &str, now: Timestamp) -> JobCondition {
    JobCondition {
        type_: kind.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_probe_time: Some(whole_seconds(now)),
        last_transition_time: Some(whole_seconds(now)),
    }
}

/// A time in whole seconds, as in a status.
pub(super) fn whole_seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The condition of a type, if it is true.
pub(super) fn true_condition<'a>(status: &'a JobStatus, kind: &str) -> Option<&'a JobCondition> {
    status.conditions.iter().flatten().find(|one| one.type_ == kind && one.status == "True")
}

/// The final condition of a finished Job.
pub(super) fn finished_condition(job: &Job) -> Option<&JobCondition> {
    let status = job.status.as_ref()?;
    true_condition(status, "Complete").or_else(|| true_condition(status, "Failed"))
}

/// The final condition that follows from an interim one.
pub(super) fn final_condition(end: &JobCondition, now: Timestamp) -> JobCondition {
    let kind = match end.type_.as_str() {
        "SuccessCriteriaMet" => "Complete",
        "FailureTarget" => "Failed",
        kind => kind,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    condition(kind, &text(&end.reason), &text(&end.message), now)
}

/// Why the Job has to finish now, regardless of its running pods.
pub(super) fn evaluate(state: &JobState<'_>, status: &JobStatus, now: Timestamp) -> Option<JobCondition> {
    if let Some(met) = true_condition(status, "SuccessCriteriaMet") {
        return Some(met.clone());
    }
    if let Some(target) = true_condition(status, "FailureTarget") {
        return Some(final_condition(target, now));
    }
    let fail = |reason: &str, message: &str| Some(condition("FailureTarget", reason, message, now));
    if let Some(message) = failure_policy_message(state) {
        return fail("PodFailurePolicy", &message);
    }
    if state.failed > state.settings.backoff_limit || has_restarted_too_often(state) {
        return fail("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline(state, status).is_some_and(|deadline| deadline <= now) {
        return fail("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    let failed = state.failed_indexes.as_ref().map_or(0, Indexes::count);
    let failed_max = state.settings.max_failed_indexes.and_then(|max| usize::try_from(max).ok());
    if failed_max.is_some_and(|max| failed > max) {
        return fail("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
    }
    let end = state.settings.index_end();
    if failed > 0 && failed + state.succeeded_indexes.count() >= end as usize {
        return fail("FailedIndexes", "Job has failed indexes");
    }
    let success = state.job.spec.as_ref().and_then(|spec| spec.success_policy.as_ref());
    let message = policy::success(success, &state.succeeded_indexes, end)?;
    Some(condition("SuccessCriteriaMet", "SuccessPolicy", &message, now))
}

/// The message of a pod failure policy rule that fails the Job.
fn failure_policy_message(state: &JobState<'_>) -> Option<String> {
    let failed = state.pods.iter().filter(|pod| state.has_failed(pod));
    failed.map(|pod| state.failure_action(pod)).find_map(|failure_action| match failure_action {
        FailureAction::FailJob(message) => Some(message),
        _ => None,
    })
}

/// With `restartPolicy: OnFailure` container restarts count as failures.
fn has_restarted_too_often(state: &JobState<'_>) -> bool {
    let template = state.job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    if template.and_then(|spec| spec.restart_policy.as_deref()) != Some("OnFailure") {
        return false;
    }
    let running = state.pods.iter().filter(|pod| matches!(pod::phase(pod), "Running" | "Pending"));
    let restarts: i32 = running.map(|pod| pod::restarts(pod)).sum();
    restarts >= state.settings.backoff_limit.max(1)
}

/// When the active deadline passes.
pub(super) fn deadline(state: &JobState<'_>, status: &JobStatus) -> Option<Timestamp> {
    let seconds = state.job.spec.as_ref()?.active_deadline_seconds.filter(|_| !state.settings.is_suspended)?;
    Some(clock::after(status.start_time.as_ref()?.0, seconds))
}

/// The condition of a Job that has reached its completions; `active` is the number of remaining pods.
pub(super) fn completion(state: &JobState<'_>, active: usize, now: Timestamp) -> Option<JobCondition> {
    let desired = state.settings.completions.map_or(1, |completions| completions as usize);
    let message = "Reached expected number of succeeded pods";
    (state.succeeded >= desired && active == 0)
        .then(|| condition("SuccessCriteriaMet", "CompletionsReached", message, now))
}
