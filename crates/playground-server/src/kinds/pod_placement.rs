//! Validates the scheduling constraints of a pod: affinity, tolerations, topology spread.

use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::{label_key_errors, label_value_errors};
use serde_json::Value;

use super::label_selector;
use super::names::NameRule;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
const NO_OPERATOR: &str = "not a valid selector operator";

fn entries(list: &Value) -> impl Iterator<Item = (usize, &Value)> {
    list.as_array().into_iter().flatten().enumerate()
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

fn key_errors(key: &str, field: &str) -> Vec<FieldError> {
    label_key_errors(key).into_iter().map(|why| FieldError::invalid(field, key, why)).collect()
}

/// The errors of a pod's affinity.
pub(super) fn affinity_errors(affinity: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = node_affinity_errors(&affinity["nodeAffinity"], &format!("{path}.nodeAffinity"));
    for side in ["podAffinity", "podAntiAffinity"] {
        for (index, term) in entries(&affinity[side][REQUIRED]) {
            errors.extend(pod_term_errors(term, &format!("{path}.{side}.{REQUIRED}[{index}]")));
        }
        for (index, term) in entries(&affinity[side][PREFERRED]) {
            let path = format!("{path}.{side}.{PREFERRED}[{index}]");
            errors.extend(weight_error(term, &path));
            errors.extend(pod_term_errors(&term["podAffinityTerm"], &format!("{path}.podAffinityTerm")));
        }
    }
    errors
}

fn weight_error(term: &Value, path: &str) -> Option<FieldError> {
    let weight = term["weight"].as_i64().unwrap_or_default();
    let detail = "must be in the range 1-100";
    (!(1..=100).contains(&weight)).then(|| FieldError::invalid(format!("{path}.weight"), weight, detail))
}

fn node_affinity_errors(affinity: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if affinity[REQUIRED].is_object() {
        errors.extend(node_selector_errors(&affinity[REQUIRED], &format!("{path}.{REQUIRED}")));
    }
    for (index, term) in entries(&affinity[PREFERRED]) {
        let path = format!("{path}.{PREFERRED}[{index}]");
        errors.extend(weight_error(term, &path));
        // Values in preferred terms are not validated as label values.
        errors.extend(node_term_errors(&term["preference"], &format!("{path}.preference"), false));
    }
    errors
}

/// Node labels that are deprecated.
const DEPRECATED_LABELS: [(&str, &str); 8] = [
    ("beta.kubernetes.io/arch", "deprecated since v1.14; use \"kubernetes.io/arch\" instead"),
    ("beta.kubernetes.io/os", "deprecated since v1.14; use \"kubernetes.io/os\" instead"),
    (
        "failure-domain.beta.kubernetes.io/region",
        "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead",
    ),
    ("failure-domain.beta.kubernetes.io/zone", "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"),
    ("beta.kubernetes.io/instance-type", "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"),
    ("app.kubernetes.io/created-by", "deprecated since v1.9"),
    ("scheduler.alpha.kubernetes.io/preferAvoidPods", "deprecated since v1.22; use Taints and Tolerations instead"),
    ("node-role.kubernetes.io/master", "use \"node-role.kubernetes.io/control-plane\" instead"),
];

/// The warnings about the keys of node selector expressions.
pub(super) fn node_label_warnings(expressions: &Value, path: &str) -> Vec<String> {
    let keys = entries(expressions).map(|(index, expression)| (index, text(expression, "key")));
    keys.filter_map(|(index, key)| {
        let (_, why) = DEPRECATED_LABELS.iter().find(|(label, _)| *label == key)?;
        Some(format!("{path}[{index}].key: {key} is {why}"))
    })
    .collect()
}

/// The errors of a node selector.
pub(super) fn node_selector_errors(selector: &Value, path: &str) -> Vec<FieldError> {
    let field = format!("{path}.nodeSelectorTerms");
    let terms = &selector["nodeSelectorTerms"];
    if entries(terms).next().is_none() {
        return vec![FieldError::required(field, "must have at least one node selector term")];
    }
    entries(terms).flat_map(|(index, term)| node_term_errors(term, &format!("{field}[{index}]"), true)).collect()
}

fn node_term_errors(term: &Value, path: &str, check_values: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, expression) in entries(&term["matchExpressions"]) {
        errors.extend(expression_errors(expression, &format!("{path}.matchExpressions[{index}]"), check_values));
    }
    for (index, field) in entries(&term["matchFields"]) {
        errors.extend(field_errors(field, &format!("{path}.matchFields[{index}]")));
    }
    errors
}

fn expression_errors(expression: &Value, path: &str, check_values: bool) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let field = format!("{path}.values");
    let count = expression["values"].as_array().map_or(0, Vec::len);
    match (text(expression, "operator"), count) {
        ("In" | "NotIn", 0) => {
            errors.push(FieldError::required(&*field, "must be specified when `operator` is 'In' or 'NotIn'"));
        }
        ("Exists" | "DoesNotExist", 1..) => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            errors.push(FieldError::forbidden(&*field, detail));
        }
        ("Gt" | "Lt", 0 | 2..) => {
            let detail = "must be specified single value when `operator` is 'Lt' or 'Gt'";
            errors.push(FieldError::required(&*field, detail));
        }
        ("In" | "NotIn" | "Exists" | "DoesNotExist" | "Gt" | "Lt", _) => {}
        (operator, _) => errors.push(FieldError::invalid(format!("{path}.operator"), operator, NO_OPERATOR)),
    }
    errors.extend(key_errors(text(expression, "key"), &format!("{path}.key")));
    for (index, value) in entries(&expression["values"]).filter(|_| check_values) {
        let why = label_value_errors(value.as_str().unwrap_or_default()).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{field}[{index}]"), value.clone(), why)));
    }
    errors
}

/// Nodes can be selected by the field `metadata.name` only.
fn field_errors(requirement: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let operator = text(requirement, "operator");
    if !matches!(operator, "In" | "NotIn") {
        errors.push(FieldError::invalid(format!("{path}.operator"), operator, NO_OPERATOR));
    } else if entries(&requirement["values"]).count() != 1 {
        let detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector";
        errors.push(FieldError::required(format!("{path}.values"), detail));
    }
    let key = text(requirement, "key");
    if key != "metadata.name" {
        errors.push(FieldError::invalid(format!("{path}.key"), key, "not a valid field selector key"));
        return errors;
    }
    for (index, value) in entries(&requirement["values"]) {
        let why = NameRule::Subdomain.errors(value.as_str().unwrap_or_default(), false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{path}.values[{index}]"), value.clone(), why)));
    }
    errors
}

fn pod_term_errors(term: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for selector in ["labelSelector", "namespaceSelector"] {
        errors.extend(label_selector::validate(&term[selector], &format!("{path}.{selector}")));
    }
    for (_, name) in entries(&term["namespaces"]) {
        let why = NameRule::Label.errors(name.as_str().unwrap_or_default(), false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid(format!("{path}.namespace"), name.clone(), why)));
    }
    errors.extend(label_keys_errors(term, path));
    let key = text(term, "topologyKey");
    let field = format!("{path}.topologyKey");
    if key.is_empty() {
        errors.push(FieldError::required(&*field, "can not be empty"));
    }
    errors.extend(key_errors(key, &field));
    errors
}

/// `matchLabelKeys` and `mismatchLabelKeys`, whose values come from the pod itself.
fn label_keys_errors(term: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["matchLabelKeys", "mismatchLabelKeys"] {
        let field = format!("{path}.{list}");
        if entries(&term[list]).next().is_some() && term["labelSelector"].is_null() {
            errors.push(FieldError::forbidden(&*field, "must not be specified when labelSelector is not set"));
        }
        for (index, key) in entries(&term[list]) {
            errors.extend(key_errors(key.as_str().unwrap_or_default(), &format!("{field}[{index}]")));
        }
    }
    for (index, key) in entries(&term["matchLabelKeys"]) {
        if entries(&term["mismatchLabelKeys"]).any(|(_, other)| other == key) {
            let detail = "exists in both matchLabelKeys and mismatchLabelKeys";
            errors.push(FieldError::invalid(format!("{path}.matchLabelKeys[{index}]"), key.clone(), detail));
        }
    }
    errors
}

/// The errors of tolerations.
pub(super) fn toleration_errors(tolerations: &Value, path: &str) -> Vec<FieldError> {
    entries(tolerations)
        .flat_map(|(index, toleration)| one_toleration(toleration, &format!("{path}[{index}]")))
        .collect()
}

fn one_toleration(toleration: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let part = |field: &str| text(toleration, field);
    let (key, operator, value, effect) = (part("key"), part("operator"), part("value"), part("effect"));
    let at = |field: &str| format!("{path}.{field}");
    if !key.is_empty() {
        errors.extend(key_errors(key, &at("key")));
    } else if operator != "Exists" {
        let detail = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(at("operator"), operator, detail));
    }
    if !toleration["tolerationSeconds"].is_null() && effect != "NoExecute" {
        let detail = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(at("effect"), effect, detail));
    }
    match operator {
        "" | "Equal" => {
            let why = label_value_errors(value);
            if !why.is_empty() {
                errors.push(FieldError::invalid(at("operator"), value, why.join(";")));
            }
        }
        "Exists" if value.is_empty() => {}
        "Exists" => {
            let detail = "value must be empty when `operator` is 'Exists'";
            errors.push(FieldError::invalid(at("operator"), value, detail));
        }
        // Their feature gate is off in 1.37, yet kube-apiserver lists them as supported.
        "Lt" | "Gt" => {
            errors.push(FieldError::not_supported(at("operator"), operator, &["Equal", "Exists", "Lt", "Gt"]));
        }
        _ => errors.push(FieldError::not_supported(at("operator"), operator, &["Equal", "Exists"])),
    }
    if !effect.is_empty() && !EFFECTS.contains(&effect) {
        errors.push(FieldError::not_supported(at("effect"), effect, &EFFECTS));
    }
    errors
}

/// The errors of topology spread constraints.
pub(super) fn spread_errors(constraints: &Value, path: &str) -> Vec<FieldError> {
    let all: Vec<&Value> = constraints.as_array().into_iter().flatten().collect();
    let mut errors = Vec::new();
    for (index, constraint) in all.iter().enumerate() {
        errors.extend(one_spread(constraint, &all[index + 1..], &format!("{path}[{index}]")));
    }
    errors
}

fn one_spread(constraint: &Value, others: &[&Value], path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let positive = "must be greater than zero";
    let (key, action) = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
    let skew = constraint["maxSkew"].as_i64().unwrap_or_default();
    if skew <= 0 {
        errors.push(FieldError::invalid(format!("{path}.maxSkew"), skew, positive));
    }
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.topologyKey"), "can not be empty"));
    }
    let actions = ["DoNotSchedule", "ScheduleAnyway"];
    if !actions.contains(&action) {
        errors.push(FieldError::not_supported(format!("{path}.whenUnsatisfiable"), action, &actions));
    }
    if others.iter().any(|other| text(other, "topologyKey") == key && text(other, "whenUnsatisfiable") == action) {
        let field = format!("{path}.{{topologyKey, whenUnsatisfiable}}");
        errors.push(FieldError::duplicate(field, format!("{{{key}, {action}}}")));
    }
    if let Some(domains) = constraint["minDomains"].as_i64() {
        let field = format!("{path}.minDomains");
        if domains <= 0 {
            errors.push(FieldError::invalid(&*field, domains, positive));
        }
        if action != "DoNotSchedule" {
            let detail = format!("can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}");
            errors.push(FieldError::invalid(&*field, domains, detail));
        }
    }
    let policies = ["Honor", "Ignore"];
    for field in ["nodeAffinityPolicy", "nodeTaintsPolicy"] {
        if let Some(policy) = constraint[field].as_str().filter(|policy| !policies.contains(policy)) {
            errors.push(FieldError::not_supported(format!("{path}.{field}"), policy, &policies));
        }
    }
    errors.extend(label_keys_errors(constraint, path));
    errors.extend(label_selector::validate(&constraint["labelSelector"], &format!("{path}.labelSelector")));
    errors
}
