//! What a JobSet does when Jobs fail or succeed, and which of its Jobs may start.
//!
//! It only reckons. It must not know the API.

use k8s_openapi::api::batch::v1::Job;
use regex::Regex;

use super::children::{self, Children};
use super::written::{FailureRule, JobSet, ReplicatedJob, ReplicatedJobStatus};

/// What a failed Job leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The set has failed.
    Fail { reason: &'static str, message: String },
    /// All Jobs are made anew.
    Restart { counts: bool, event: &'static str, condition: String, message: String },
}

/// What is done about the failed Jobs of a set; there is at least one.
pub(super) fn on_failure(set: &JobSet, children: &Children) -> Verdict {
    let first = children.failed.iter().map(|job| &**job).min_by_key(|job| failed_at(job));
    let named = |words: &str, job: Option<&Job>| {
        let name = job.and_then(|job| job.metadata.name.as_deref()).unwrap_or_default();
        format!("{words} (first failed job: {name})")
    };
    let fail = |reason, words: &str, job| Verdict::Fail { reason, message: named(words, job) };
    let Some(policy) = &set.spec.failure_policy else {
        return fail("FailedJobs", "jobset failed due to one or more job failures", first);
    };
    let matched = policy.rules.iter().enumerate().find_map(|(place, rule)| {
        let jobs = children.failed.iter().map(|job| &**job).filter(|job| applies(rule, job));
        jobs.min_by_key(|job| failed_at(job)).map(|job| (place, rule, job))
    });
    let condition = match matched {
        Some((place, rule, _)) => format!("FailurePolicy_{}", rule_name(rule, place)),
        None => "DefaultFailurePolicy".to_owned(),
    };
    let job = matched.map(|(_, _, job)| job).or(first);
    match matched.map_or("RestartJobSet", |(_, rule, _)| rule.action.as_str()) {
        "FailJobSet" => fail("FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action", job),
        "RestartJobSetAndIgnoreMaxRestarts" => Verdict::Restart {
            counts: false,
            event: "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction",
            condition,
            message: named("applying RestartJobSetAndIgnoreMaxRestarts failure policy action", job),
        },
        _ if set.status.restarts_count_towards_max >= policy.max_restarts => {
            fail("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts", job)
        }
        _ => Verdict::Restart {
            counts: true,
            event: "RestartJobSetFailurePolicyAction",
            condition,
            message: named("applying RestartJobSet failure policy action", job),
        },
    }
}

/// A rule without a name is called by its place.
fn rule_name(rule: &FailureRule, place: usize) -> String {
    if rule.name.is_empty() { format!("failurePolicyRule{place}") } else { rule.name.clone() }
}

fn failed_at(job: &Job) -> Option<jiff::Timestamp> {
    children::end(job, "Failed")?.last_transition_time.as_ref().map(|time| time.0)
}

fn applies(rule: &FailureRule, job: &Job) -> bool {
    let Some(end) = children::end(job, "Failed") else { return false };
    let reason = end.reason.clone().unwrap_or_default();
    let message = end.message.as_deref().unwrap_or_default();
    let is_any = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
    let patterns = &rule.on_job_failure_message_patterns;
    let matches = |pattern: &String| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(message));
    is_any(&rule.on_job_failure_reasons, &reason)
        && (patterns.is_empty() || patterns.iter().any(matches))
        && is_any(&rule.target_replicated_jobs, children::replicated_name(job))
}

/// Whether enough Jobs have succeeded.
pub(super) fn is_complete(set: &JobSet, children: &Children) -> bool {
    let policy = &set.spec.success_policy;
    let targets = &policy.target_replicated_jobs;
    let is_meant = |name: &str| targets.is_empty() || targets.iter().any(|one| one == name);
    let succeeded = children.succeeded.iter().filter(|job| is_meant(children::replicated_name(job))).count() as u64;
    let meant = set.spec.replicated_jobs.iter().filter(|one| is_meant(&one.name));
    let wanted = if policy.operator == "Any" { 1 } else { meant.map(|one| u64::from(one.replicas)).sum() };
    !children.succeeded.is_empty() && succeeded >= wanted
}

fn status_of<'a>(statuses: &'a [ReplicatedJobStatus], name: &str) -> Option<&'a ReplicatedJobStatus> {
    statuses.iter().find(|one| one.name == name)
}

/// Whether all Jobs of a replicated Job have started, however they went on.
pub(super) fn has_started(replicated: &ReplicatedJob, statuses: &[ReplicatedJobStatus]) -> bool {
    let started = status_of(statuses, &replicated.name).map(|one| one.failed + one.ready + one.succeeded);
    started == Some(replicated.replicas)
}

/// Whether those that a replicated Job waits for are where it wants them.
pub(super) fn may_start(set: &JobSet, replicated: &ReplicatedJob, statuses: &[ReplicatedJobStatus]) -> bool {
    replicated.depends_on.iter().all(|dependency| {
        let other = set.spec.replicated_jobs.iter().find(|one| one.name == dependency.name);
        other.is_some_and(|other| match dependency.status.as_str() {
            "Complete" => status_of(statuses, &other.name).map(|one| one.succeeded) == Some(other.replicas),
            _ => has_started(other, statuses),
        })
    })
}

/// Whether every Job is ready or has succeeded.
pub(super) fn are_all_ready(set: &JobSet, statuses: &[ReplicatedJobStatus]) -> bool {
    let wanted: u64 = set.spec.replicated_jobs.iter().map(|one| u64::from(one.replicas)).sum();
    statuses.iter().map(|one| u64::from(one.ready) + u64::from(one.succeeded)).sum::<u64>() == wanted
}

/// What was asked for and cannot be done here.
pub(super) fn unsupported(set: &JobSet) -> Option<String> {
    let key = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    let annotations = set.metadata.annotations.iter().flatten();
    if let Some((_, value)) = annotations.into_iter().find(|(name, _)| *name == key) {
        return Some(format!("metadata.annotations[{key}]: {value:?}: exclusive placement is not supported"));
    }
    let rules = set.spec.failure_policy.iter().flat_map(|policy| policy.rules.iter().enumerate());
    for (place, rule) in rules {
        for pattern in &rule.on_job_failure_message_patterns {
            if let Err(error) = Regex::new(pattern) {
                let field = format!("spec.failurePolicy.rules[{place}].onJobFailureMessagePatterns");
                return Some(format!("{field}: {pattern:?}: is no regular expression: {error}"));
            }
        }
    }
    None
}
