//! What a Job's failure and success policies say about its pods and indexes.
//!
//! It must not know who counts or what is done about it.

use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern, SuccessPolicy,
};
use muster_api::wire::condition::Condition;

use super::indexes::Indexes;
use super::pod::{self, ContainerState, JobPod};

/// What becomes of a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// It counts towards the limits.
    Count,
    /// It does not count.
    Ignore,
    /// No further pod of the index is made.
    FailIndex,
    /// The Job has failed, with this message.
    FailJob(String),
}

/// What the first matching rule says of a failed pod; without one the failure counts.
pub(super) fn ruling(policy: Option<&PodFailurePolicy>, pod: &JobPod) -> Ruling {
    for (place, rule) in policy.iter().flat_map(|policy| &policy.rules).enumerate() {
        let why = match (&rule.on_exit_codes, &rule.on_pod_conditions) {
            (Some(codes), _) => matching_container(pod, codes),
            (None, Some(patterns)) => matching_condition(pod, patterns),
            (None, None) => None,
        };
        let Some(why) = why else { continue };
        return match rule.action.as_str() {
            "Ignore" => Ruling::Ignore,
            "FailIndex" => Ruling::FailIndex,
            "FailJob" => Ruling::FailJob(format!("{why} matching FailJob rule at index {place}")),
            _ => Ruling::Count,
        };
    }
    Ruling::Count
}

fn place_of(pod: &JobPod) -> String {
    format!("{}/{}", pod.metadata.namespace.as_deref().unwrap_or_default(), pod::name(pod))
}

/// The first container with a code that the rule means, in words.
fn matching_container(pod: &JobPod, rule: &PodFailurePolicyOnExitCodesRequirement) -> Option<String> {
    let lists = [&pod.status.container_statuses, &pod.status.init_container_statuses];
    let matches = |status: &&ContainerState| {
        let code = status.ending().map_or(0, |ending| ending.exit_code);
        let is_meant = rule.container_name.as_ref().is_none_or(|name| *name == status.name);
        let is_listed = rule.values.contains(&code);
        is_meant && code != 0 && (is_listed == (rule.operator == "In"))
    };
    let status = lists.into_iter().flatten().flatten().find(matches)?;
    let code = status.ending()?.exit_code;
    Some(format!("Container {} for pod {} failed with exit code {code}", status.name, place_of(pod)))
}

/// The first condition that the rule means, in words.
fn matching_condition(pod: &JobPod, patterns: &[PodFailurePolicyOnPodConditionsPattern]) -> Option<String> {
    let is_meant = |condition: &&Condition| {
        let says = |pattern: &PodFailurePolicyOnPodConditionsPattern| {
            pattern.status.as_deref().unwrap_or("True") == condition.status
        };
        patterns.iter().any(|pattern| pattern.type_ == condition.kind && says(pattern))
    };
    let condition = pod.status.conditions.iter().flatten().find(is_meant)?;
    Some(format!("Pod {} has condition {}", place_of(pod), condition.kind))
}

/// Which rule says that enough has succeeded, in words.
pub(super) fn success(policy: Option<&SuccessPolicy>, succeeded: &Indexes, completions: u32) -> Option<String> {
    let rules = policy.iter().flat_map(|policy| &policy.rules).enumerate();
    let is_met = |indexes: Option<&String>, count: Option<i32>| {
        let wanted = count.and_then(|count| usize::try_from(count).ok());
        match indexes {
            Some(text) => {
                let required = Indexes::parse(text, completions);
                let shared = required.shared_with(succeeded);
                !required.is_empty() && (shared == required.count() || wanted.is_some_and(|wanted| shared >= wanted))
            }
            None => wanted.is_some_and(|wanted| succeeded.count() >= wanted),
        }
    };
    let mut met = rules.filter(|(_, rule)| is_met(rule.succeeded_indexes.as_ref(), rule.succeeded_count));
    met.next().filter(|_| !succeeded.is_empty()).map(|(place, _)| format!("Matched rules at index {place}"))
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

    fn ruling_of(rules: &Value, pod: &JobPod) -> Ruling {
        let policy: PodFailurePolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
        ruling(Some(&policy), pod)
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = json!([
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
            {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [3, 4]}},
            {"action": "FailIndex", "onExitCodes": {"operator": "NotIn", "values": [1]}},
        ]);
        assert_eq!(ruling_of(&rules, &pod(3, "DisruptionTarget")), Ruling::Ignore);
        let failed = Ruling::FailJob(
            "Container c for pod d/p failed with exit code 3 matching FailJob rule at index 1".to_owned(),
        );
        assert_eq!(ruling_of(&rules, &pod(3, "Ready")), failed);
        assert_eq!(ruling_of(&rules, &pod(9, "Ready")), Ruling::FailIndex);
        assert_eq!(ruling_of(&rules, &pod(1, "Ready")), Ruling::Count);
        assert_eq!(ruling_of(&rules, &pod(0, "Ready")), Ruling::Count, "code 0 is no failure of a container");
        assert_eq!(ruling(None, &pod(3, "Ready")), Ruling::Count);
        let rules = json!([{"action": "FailJob", "onPodConditions": [{"type": "X", "status": "True"}]}]);
        let failed = Ruling::FailJob("Pod d/p has condition X matching FailJob rule at index 0".to_owned());
        assert_eq!(ruling_of(&rules, &pod(1, "X")), failed);
    }

    #[test]
    fn success_is_by_indexes_or_by_count() {
        let verdict = |rules: Value, succeeded: &str| {
            let policy: SuccessPolicy = serde_json::from_value(json!({"rules": rules})).unwrap();
            success(Some(&policy), &Indexes::parse(succeeded, 10), 10)
        };
        let first = || Some("Matched rules at index 0".to_owned());
        assert_eq!(verdict(json!([{"succeededIndexes": "0,2"}]), "0-2"), first());
        assert_eq!(verdict(json!([{"succeededIndexes": "0,2"}]), "0,1"), None);
        assert_eq!(verdict(json!([{"succeededIndexes": "0-5", "succeededCount": 2}]), "1,4"), first());
        assert_eq!(verdict(json!([{"succeededCount": 3}]), "1,4"), None);
        let second = verdict(json!([{"succeededCount": 3}, {"succeededIndexes": "4"}]), "1,4");
        assert_eq!(second, Some("Matched rules at index 1".to_owned()));
        assert_eq!(verdict(json!([{"succeededCount": 0}]), ""), None);
    }
}
