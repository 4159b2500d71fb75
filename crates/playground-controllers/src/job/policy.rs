//! The pod failure policy and the success policy of a Job.
//!
//! Must not depend on how failures are counted or acted on.

use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern, SuccessPolicy,
};
use muster_api::wire::condition::Condition;

use super::indexes::Indexes;
use super::pod::{self, ContainerState, JobPod};

/// What a failure leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FailureAction {
    /// It counts towards the backoff limits.
    Count,
    /// It does not count.
    Ignore,
    /// The index has failed.
    FailIndex,
    /// The Job has failed, with this message.
    FailJob(String),
}

/// The action of the first rule that matches a failed pod; without one the failure counts.
pub(super) fn failure_action(policy: Option<&PodFailurePolicy>, pod: &JobPod) -> FailureAction {
    for (position, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let why = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => matching_container(pod, codes),
            (None, Some(patterns)) => matching_condition(pod, patterns),
            (None, None) => None,
        };
        let Some(why) = why else { continue };
        return match rule.action.as_str() {
            "Ignore" => FailureAction::Ignore,
            "FailIndex" => FailureAction::FailIndex,
            "FailJob" => FailureAction::FailJob(format!("{why} matching FailJob rule at index {position}")),
            _ => FailureAction::Count,
        };
    }
    FailureAction::Count
}

fn qualified_name(pod: &JobPod) -> String {
    format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), pod::name(pod))
}

/// Describes the first container whose exit code matches the rule.
fn matching_container(pod: &JobPod, rule: &PodFailurePolicyOnExitCodesRequirement) -> Option<String> {
    let lists = [&pod.status.container_statuses, &pod.status.init_container_statuses];
    let matches = |status: &&ContainerState| {
        let code = status.termination().map_or(0, |termination| termination.exit_code);
        let applies = rule.container_name.as_ref().is_none_or(|name| *name == status.name);
        let is_listed = rule.values.contains(&code);
        applies && code != 0 && (is_listed == (rule.operator == "In"))
    };
    let status = lists.into_iter().flatten().flatten().find(matches)?;
    let code = status.termination()?.exit_code;
    Some(format!("Container {} for pod {} failed with exit code {code}", status.name, qualified_name(pod)))
}

/// Describes the first condition that matches the rule.
fn matching_condition(pod: &JobPod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<String> {
    let applies = |condition: &&Condition| {
        let status_matches = |pattern: &PodFailurePolicyOnPodConditionsPattern| {
            pattern.status.as_deref().unwrap_or("True") == condition.status
        };
        patterns.iter().any(|pattern| pattern.type_ == condition.kind && status_matches(pattern))
    };
    let condition = pod.status.conditions.iter().flatten().find(applies)?;
    Some(format!("Pod {} has condition {}", qualified_name(pod), condition.kind))
}

/// The message of the first success policy rule that is met.
pub(super) fn success(policy: Option<&SuccessPolicy>, succeeded: &Indexes, completions: u32) -> Option<String> {
    let rules = policy.iter().flat_map(|policy| &policy.rules).enumerate();
    let is_met = |indexes: Option<&String>, count: Option<i32>| {
        let desired = count.and_then(|count| usize::try_from(count).ok());
        match indexes {
            Some(text) => {
                let required = Indexes::parse(text, completions);
                let shared = required.intersection_count(succeeded);
                !required.is_empty() && (shared == required.count() || desired.is_some_and(|desired| shared >= desired))
            }
            None => desired.is_some_and(|desired| succeeded.count() >= desired),
        }
    };
    let mut met = rules.filter(|(_, rule)| is_met(rule.succeeded_indexes.as_ref(), rule.succeeded_count));
    met.next().filter(|_| !succeeded.is_empty()).map(|(position, _)| format!("Matched rules at index {position}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(code: i32, condition: &str) -> JobPod {
        let pod = json!({
            "metadata": {"name": "p", "namespace": "d"},
            "status": {"phase": "Failed", "conditions": [{"type": condition, "status": "True"}],
                "containerStatuses": [
                    {"name": "side", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}},
                    {"name": "c", "restartCount": 0, "state": {"terminated": {"exitCode": code}}},
                ]},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn action_of(rules: &Value, pod: &JobPod) -> FailureAction {
        let policy: PodFailurePolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
        failure_action(Some(&policy), pod)
    }

    #[test]
    fn first_matching_rule_decides() {
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [3, 4]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}},
        ]);
        assert_eq!(action_of(&rules, &pod(3, "DisruptionTarget")), FailureAction::Ignore);
        let failed = FailureAction::FailJob(
            "Container c for pod d/p failed with exit code 3 matching FailJob rule at index 1".to_owned(),
        );
        assert_eq!(action_of(&rules, &pod(3, "Ready")), failed);
        assert_eq!(action_of(&rules, &pod(9, "Ready")), FailureAction::FailIndex);
        assert_eq!(action_of(&rules, &pod(1, "Ready")), FailureAction::Count);
        assert_eq!(action_of(&rules, &pod(0, "Ready")), FailureAction::Count, "code 0 is no failure of a container");
        assert_eq!(failure_action(None, &pod(3, "Ready")), FailureAction::Count);
        let rules = json!([{"action": "FailJob", "onPodConditions": [{"type": "X", "status": "True"}]}]);
        let failed = FailureAction::FailJob("Pod d/p has condition X matching FailJob rule at index 0".to_owned());
        assert_eq!(action_of(&rules, &pod(1, "X")), failed);
    }

    #[test]
    fn success_policy_matches_indexes_or_count() {
        let message = |rules: Value, succeeded: &str| {
            let policy: SuccessPolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
            success(Some(&policy), &Indexes::parse(succeeded, 10), 10)
        };
        let first = || Some("Matched rules at index 0".to_owned());
        assert_eq!(message(json!([{"succeededIndexes": "0,2"}]), "0-2"), first());
        assert_eq!(message(json!([{"succeededIndexes": "0,2"}]), "0,1"), None);
        assert_eq!(message(json!([{"succeededIndexes": "0-5", "succeededCount": 2}]), "1,4"), first());
        assert_eq!(message(json!([{"succeededCount": 3}]), "1,4"), None);
        let second = message(json!([{"succeededCount": 3}, {"succeededIndexes": "4"}]), "1,4");
        assert_eq!(second, Some("Matched rules at index 1".to_owned()));
        assert_eq!(message(json!([{"succeededCount": 0}]), ""), None);
    }
}
