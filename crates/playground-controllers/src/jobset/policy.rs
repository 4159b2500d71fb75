//! The failure, success and startup policies of a JobSet.
//!
//! No I/O. Must not depend on the API.

use k8s_openapi::api::batch::v1::Job;
use regex::Regex;

use super::children::{self, Children};
use super::object::{FailureRule, JobSet, ReplicatedJob, ReplicatedJobStatus};

/// What a failed Job leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FailureAction {
    /// The set has failed.
    Fail { reason: &'static str, message: String },
    /// All Jobs are recreated.
    Restart { counts: bool, event: &'static str, condition: String, message: String },
}

/// The action for the failed Jobs of a set; there is at least one.
pub(super) fn on_failure(set: &JobSet, children: &Children) -> FailureAction {
    let first = children.failed.iter().map(|job| &**job).min_by_key(|job| failed_at(job));
    let named = |text: &str, job: Option<&Job>| {
        let name = job.and_then(|job| job.metadata.name.as_deref()).unwrap_or_default();
        format!("{text} (first failed job: {name})")
    };
    let fail = |reason, text: &str, job| FailureAction::Fail { reason, message: named(text, job) };
    let Some(policy) = &set.spec.failure_policy else {
        return fail("FailedJobs", "jobset failed due to one or more job failures", first);
    };
    let matched = policy.rules.iter().enumerate().find_map(|(position, rule)| {
        let jobs = children.failed.iter().map(|job| &**job).filter(|job| applies(rule, job));
        jobs.min_by_key(|job| failed_at(job)).map(|job| (position, rule, job))
    });
    let condition = match matched {
        Some((position, rule, _)) => format!("FailurePolicy_{}", rule_name(rule, position)),
        None => "DefaultFailurePolicy".to_owned(),
    };
    let job = matched.map(|(_, _, job)| job).or(first);
    match matched.map_or("RestartJobSet", |(_, rule, _)| rule.action.as_str()) {
        "FailJobSet" => fail("FailJobSetFailurePolicyAction", "applying FailJobSet failure policy action", job),
        "RestartJobSetAndIgnoreMaxRestarts" => FailureAction::Restart {
            counts: false,
            event: "RestartJobSetAndIgnoreMaxRestartsFailurePolicyAction",
            condition,
            message: named("applying RestartJobSetAndIgnoreMaxRestarts failure policy action", job),
        },
        _ if set.status.restarts_count_towards_max >= policy.max_restarts => {
            fail("ReachedMaxRestarts", "jobset failed due to reaching max number of restarts", job)
        }
        _ => FailureAction::Restart {
            counts: true,
            event: "RestartJobSetFailurePolicyAction",
            condition,
            message: named("applying RestartJobSet failure policy action", job),
        },
    }
}

/// A rule without a name is named by its position.
fn rule_name(rule: &FailureRule, position: usize) -> String {
    if rule.name.is_empty() { format!("failurePolicyRule{position}") } else { rule.name.clone() }
}

fn failed_at(job: &Job) -> Option<jiff::Timestamp> {
    children::end(job, "Failed")?.last_transition_time.as_ref().map(|time| time.0)
}

fn applies(rule: &FailureRule, job: &Job) -> bool {
    let Some(end) = children::end(job, "Failed") else { return false };
    let reason = end.reason.clone().unwrap_or_default();
    let message = end.message.as_deref().unwrap_or_default();
    let is_listed = |list: &[String], value: &str| list.is_empty() || list.iter().any(|one| one == value);
    let patterns = &rule.on_job_failure_message_patterns;
    let matches = |pattern: &String| Regex::new(pattern).is_ok_and(|pattern| pattern.is_match(message));
    is_listed(&rule.on_job_failure_reasons, &reason)
        && (patterns.is_empty() || patterns.iter().any(matches))
        && is_listed(&rule.target_replicated_jobs, children::replicated_name(job))
}

/// Whether enough Jobs have succeeded.
pub(super) fn is_complete(set: &JobSet, children: &Children) -> bool {
    let policy = &set.spec.success_policy;
    let targets = &policy.target_replicated_jobs;
    let is_target = |name: &str| targets.is_empty() || targets.iter().any(|one| one == name);
    let succeeded = children.succeeded.iter().filter(|job| is_target(children::replicated_name(job))).count() as u64;
    let target_jobs = set.spec.replicated_jobs.iter().filter(|one| is_target(&one.name));
    let desired = if policy.operator == "Any" { 1 } else { target_jobs.map(|one| u64::from(one.replicas)).sum() };
    !children.succeeded.is_empty() && succeeded >= desired
}

fn status_of<'a>(statuses: &'a [ReplicatedJobStatus], name: &str) -> Option<&'a ReplicatedJobStatus> {
    statuses.iter().find(|one| one.name == name)
}

/// Whether all Jobs of a replicated Job have started, regardless of their current status.
pub(super) fn has_started(replicated: &ReplicatedJob, statuses: &[ReplicatedJobStatus]) -> bool {
    let started = status_of(statuses, &replicated.name).map(|one| one.failed + one.ready + one.succeeded);
    started == Some(replicated.replicas)
}

/// Whether all dependencies of a replicated Job have reached the required status.
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
    let desired: u64 = set.spec.replicated_jobs.iter().map(|one| u64::from(one.replicas)).sum();
    statuses.iter().map(|one| u64::from(one.ready) + u64::from(one.succeeded)).sum::<u64>() == desired
}

/// A requested feature that the playground does not support.
pub(super) fn unsupported(set: &JobSet) -> Option<String> {
    let key = "alpha.jobset.sigs.k8s.io/exclusive-topology";
    let annotations = set.metadata.annotations.iter().flatten();
    if let Some((_, value)) = annotations.into_iter().find(|(name, _)| *name == key) {
        return Some(format!("metadata.annotations[{key}]: {value:?}: exclusive placement is not supported"));
    }
    let rules = set.spec.failure_policy.iter().flat_map(|policy| policy.rules.iter().enumerate());
    for (position, rule) in rules {
        for pattern in &rule.on_job_failure_message_patterns {
            if let Err(error) = Regex::new(pattern) {
                let field = format!("spec.failurePolicy.rules[{position}].onJobFailureMessagePatterns");
                return Some(format!("{field}: {pattern:?}: is no regular expression: {error}"));
            }
        }
    }
    None
}
