//! Validates the failure and success policies of a Job, with kube-apiserver's messages.
//!
//! Must not depend on the effects of the policies.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::names::NameRule;

const RULES_MAX: usize = 20;
const CODES_MAX: usize = 255;
const PATTERNS_MAX: usize = 20;
const MANAGER_LENGTH_MAX: usize = 63;

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Applies the defaults of pod condition patterns.
pub(super) fn set_defaults(spec: &mut Value) {
    let policy = spec.get_mut("podFailurePolicy");
    let rules = policy.and_then(|policy| policy.get_mut("rules")).and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        let patterns = rule.get_mut("onPodConditions").and_then(Value::as_array_mut);
        for pattern in patterns.into_iter().flatten() {
            super::default_field(pattern, "status", json!("True"));
        }
    }
}

/// The errors of the policies of a Job.
pub(super) fn validate(spec: &Value) -> Vec<FieldError> {
    let mut errors = failure_errors(spec);
    errors.extend(success_errors(spec));
    errors.extend(replacement_error(spec));
    errors
}

fn failure_errors(spec: &Value) -> Vec<FieldError> {
    let rules = list(&spec["podFailurePolicy"]["rules"]);
    let path = "spec.podFailurePolicy.rules";
    let mut errors = Vec::new();
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(path, rules.len(), RULES_MAX as i64));
    }
    for (place, rule) in rules.iter().enumerate() {
        errors.extend(failure_rule_errors(spec, rule, &format!("{path}[{place}]")));
    }
    errors
}

fn failure_rule_errors(spec: &Value, rule: &Value, path: &str) -> Vec<FieldError> {
    let actions = ["Count", "FailIndex", "FailJob", "Ignore"];
    let field = format!("{path}.action");
    let mut errors = Vec::new();
    match text(&rule["action"]) {
        "" => errors.push(FieldError::required(field, format!("valid values: [{}]", quoted(&actions)))),
        "FailIndex" if spec["backoffLimitPerIndex"].is_null() => {
            errors.push(FieldError::invalid(field, "FailIndex", "requires the backoffLimitPerIndex to be set"));
        }
        action if !actions.contains(&action) => errors.push(FieldError::not_supported(field, action, &actions)),
        _ => {}
    }
    let (codes, patterns) = (&rule["onExitCodes"], list(&rule["onPodConditions"]));
    if codes.is_object() {
        errors.extend(code_errors(spec, codes, &format!("{path}.onExitCodes")));
    }
    errors.extend(pattern_errors(patterns, &format!("{path}.onPodConditions")));
    match (codes.is_object(), patterns.is_empty()) {
        (true, false) => {
            let detail = "specifying both OnExitCodes and OnPodConditions is not supported";
            errors.push(FieldError::invalid_unshown(path, detail));
        }
        (false, true) => {
            let detail = "specifying one of OnExitCodes and OnPodConditions is required";
            errors.push(FieldError::invalid_unshown(path, detail));
        }
        _ => {}
    }
    errors
}

/// A list of strings as printed by Go's `%q`.
fn quoted(names: &[&str]) -> String {
    names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" ")
}

fn pattern_errors(patterns: &[Value], path: &str) -> Vec<FieldError> {
    let statuses = ["False", "True", "Unknown"];
    let mut errors = Vec::new();
    if patterns.len() > PATTERNS_MAX {
        errors.push(FieldError::too_many(path, patterns.len(), PATTERNS_MAX as i64));
    }
    for (place, pattern) in patterns.iter().enumerate() {
        let status = text(&pattern["status"]);
        if !statuses.contains(&status) {
            errors.push(FieldError::not_supported(format!("{path}[{place}].status"), status, &statuses));
        }
    }
    errors
}

fn code_errors(spec: &Value, codes: &Value, path: &str) -> Vec<FieldError> {
    let operators = ["In", "NotIn"];
    let mut errors = Vec::new();
    let operator = text(&codes["operator"]);
    let field = format!("{path}.operator");
    if operator.is_empty() {
        errors.push(FieldError::required(field, format!("valid values: [{}]", quoted(&operators))));
    } else if !operators.contains(&operator) {
        errors.push(FieldError::not_supported(field, operator, &operators));
    }
    if let Some(name) = codes["containerName"].as_str() {
        let pod = &spec["template"]["spec"];
        let mut containers = list(&pod["containers"]).iter().chain(list(&pod["initContainers"]));
        if !containers.any(|container| container["name"] == *name) {
            let detail = "must be one of the container or initContainer names in the pod template";
            errors.push(FieldError::invalid(format!("{path}.containerName"), name, detail));
        }
    }
    let (values, path) = (list(&codes["values"]), format!("{path}.values"));
    if values.is_empty() {
        errors.push(FieldError::invalid(&path, json!([]), "at least one value is required"));
    } else if values.len() > CODES_MAX {
        errors.push(FieldError::too_many(&path, values.len(), CODES_MAX as i64));
    }
    for (place, value) in values.iter().enumerate() {
        if operator == "In" && *value == 0 {
            let detail = "must not be 0 for the In operator";
            errors.push(FieldError::invalid(format!("{path}[{place}]"), value.clone(), detail));
        }
        if values[..place].contains(value) {
            errors.push(FieldError::duplicate(format!("{path}[{place}]"), value.clone()));
        }
    }
    if values.windows(2).any(|pair| pair[0].as_i64() > pair[1].as_i64()) {
        errors.push(FieldError::invalid(&path, codes["values"].clone(), "must be ordered"));
    }
    errors
}

fn success_errors(spec: &Value) -> Vec<FieldError> {
    let policy = &spec["successPolicy"];
    if !policy.is_object() {
        return Vec::new();
    }
    let path = "spec.successPolicy";
    if spec["completionMode"] != "Indexed" {
        let shown = json!({"Rules": list(&policy["rules"])});
        return vec![FieldError::invalid(path, shown, "requires indexed completion mode")];
    }
    let (rules, path) = (list(&policy["rules"]), format!("{path}.rules"));
    let mut errors = Vec::new();
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.push(FieldError::required(&path, detail));
    }
    if rules.len() > RULES_MAX {
        errors.push(FieldError::too_many(&path, rules.len(), RULES_MAX as i64));
    }
    let completions = spec["completions"].as_i64().unwrap_or(0);
    for (place, rule) in rules.iter().enumerate() {
        errors.extend(success_rule_errors(rule, completions, &format!("{path}[{place}]")));
    }
    errors
}

fn success_rule_errors(rule: &Value, completions: i64, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let (indexes, count) = (rule["succeededIndexes"].as_str(), rule["succeededCount"].as_i64());
    if indexes.is_none() && count.is_none() {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(FieldError::required(path, detail));
    }
    let mut listed = 0;
    if let Some(indexes) = indexes {
        match count_indexes(indexes, completions) {
            Ok(count) => listed = count,
            Err(why) => {
                let detail = format!("error parsing succeededIndexes: {why}");
                errors.push(FieldError::invalid(format!("{path}.succeededIndexes"), indexes, detail));
            }
        }
    }
    let Some(count) = count else { return errors };
    let mut reject = |detail: String| {
        errors.push(FieldError::invalid(format!("{path}.succeededCount"), count, detail));
    };
    if count < 0 {
        reject("must be greater than or equal to 0".to_owned());
    }
    if count > completions {
        reject(format!("must be less than or equal to {completions} (the number of specified completions)"));
    }
    if indexes.is_some() && count > listed {
        let what = "the number of indexes in the specified succeededIndexes field";
        reject(format!("must be less than or equal to {listed} ({what})"));
    }
    errors
}

/// The number of indexes in a list such as `0,2-4`.
fn count_indexes(text: &str, completions: i64) -> Result<i64, String> {
    let number = |text: &str| {
        let number =
            text.parse::<i64>().map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if number >= completions { Err(format!("too large index: {text:?}")) } else { Ok(number) }
    };
    let mut last: Option<i64> = None;
    let mut total = 0;
    for part in text.split(',').filter(|_| !text.is_empty()) {
        let ends: Vec<&str> = part.split('-').collect();
        let (first, end) = match *ends {
            [first] => (number(first)?, number(first)?),
            [first, end] => {
                let (first, end) = (number(first)?, number(end)?);
                if first >= end {
                    return Err(format!("non-increasing order, previous: {first}, current: {end}"));
                }
                (first, end)
            }
            _ => {
                let rule = "an index interval can have at most two parts separated by '-'";
                return Err(format!("the fragment {part:?} violates the requirement that {rule}"));
            }
        };
        if let Some(last) = last.filter(|last| *last >= first) {
            return Err(format!("non-increasing order, previous: {last}, current: {first}"));
        }
        (last, total) = (Some(end), total + end - first + 1);
    }
    Ok(total)
}

/// With a failure policy, a pod must have failed before it is replaced.
fn replacement_error(spec: &Value) -> Option<FieldError> {
    let policy = spec["podReplacementPolicy"].as_str()?;
    let all: &[&str] =
        if spec["podFailurePolicy"].is_object() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    (!all.contains(&policy)).then(|| FieldError::not_supported("spec.podReplacementPolicy", policy, all))
}

/// The errors of `managedBy`.
pub(super) fn manager_errors(spec: &Value) -> Vec<FieldError> {
    let path = "spec.managedBy";
    let Some(manager) = spec["managedBy"].as_str() else { return Vec::new() };
    let mut errors = match manager.split_once('/') {
        _ if manager.is_empty() => vec![FieldError::required(path, "")],
        Some((host, rest)) if !host.is_empty() && !rest.is_empty() => {
            let errors = NameRule::Subdomain.errors(host, false).into_iter();
            errors.map(|why| FieldError::invalid(path, host, why)).collect()
        }
        _ => {
            let detail = "must be a domain-prefixed path (such as \"acme.io/foo\")";
            vec![FieldError::invalid(path, manager, detail)]
        }
    };
    if manager.len() > MANAGER_LENGTH_MAX {
        errors.push(FieldError::too_long(path, MANAGER_LENGTH_MAX as i64));
    }
    errors
}
