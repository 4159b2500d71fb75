//! Validates container resources: names, quantities, and requests against limits.

use muster_api::quantity::Quantity;
use muster_playground_schema::FieldError;
use muster_playground_schema::selectors::label_key_errors;
use serde_json::Value;

/// Unqualified resource names of containers.
const OF_CONTAINERS: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];
/// The other unqualified resource names, from quotas.
const OF_CLUSTERS: [&str; 17] = [
    "configmaps",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
    "storage",
];
const HUGE_PAGES: &str = "hugepages-";

fn is_huge_pages(name: &str) -> bool {
    name.starts_with(HUGE_PAGES)
}

/// Whether the name is in a domain of Kubernetes.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether the name is an extended resource.
fn is_extended(name: &str) -> bool {
    !is_native(name) && !name.starts_with("requests.") && label_key_errors(&format!("requests.{name}")).is_empty()
}

/// Whether limits may exceed requests.
fn can_be_overcommitted(name: &str) -> bool {
    is_native(name) && !is_huge_pages(name)
}

/// The errors of the `resources` of a container.
pub(super) fn validate(resources: &Value, path: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for list in ["limits", "requests"] {
        for (name, amount) in resources[list].as_object().into_iter().flatten() {
            let field = format!("{path}.{list}[{name}]");
            errors.extend(name_errors(name, &field));
            errors.extend(amount_errors(name, amount, &field));
            if list == "requests" {
                errors.extend(limit_error(resources, name, amount, path));
            }
        }
    }
    let asks = |test: fn(&str) -> bool| {
        ["limits", "requests"]
            .iter()
            .any(|list| resources[list].as_object().is_some_and(|list| list.keys().any(|name| test(name))))
    };
    if asks(is_huge_pages) && !asks(|name| matches!(name, "cpu" | "memory")) {
        errors.push(FieldError::forbidden(path, "HugePages require cpu or memory"));
    }
    errors
}

fn name_errors(name: &str, field: &str) -> Vec<FieldError> {
    let invalid = |why: String| FieldError::invalid(field, name, why);
    let mut errors: Vec<FieldError> = label_key_errors(name).into_iter().map(invalid).collect();
    if name.contains('/') {
        if !is_native(name) && !is_extended(name) {
            errors.push(invalid("doesn't follow extended resource name standard".to_owned()));
        }
        return errors;
    }
    let known = OF_CONTAINERS.contains(&name) || is_huge_pages(name);
    let known_to_clusters = OF_CLUSTERS.contains(&name) || name.starts_with("requests.hugepages-");
    if errors.is_empty() && !known && !known_to_clusters {
        errors.push(invalid("must be a standard resource type or fully qualified".to_owned()));
    }
    if !known {
        errors.push(invalid("must be a standard resource for containers".to_owned()));
    }
    errors
}

fn quantity(value: &Value) -> Option<Quantity> {
    value.as_str().and_then(|text| text.parse().ok())
}

/// The errors of a quantity.
pub(super) fn amount_errors(name: &str, amount: &Value, field: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let Some(quantity) = quantity(amount) else { return errors };
    if quantity.is_negative() {
        errors.push(FieldError::invalid(field, amount.clone(), "must be greater than or equal to 0"));
    }
    let is_counted = is_extended(name) || (OF_CLUSTERS.contains(&name) && !name.contains('.') && name != "storage");
    if is_counted && quantity.nanos() % 1_000_000_000 != 0 {
        errors.push(FieldError::invalid(field, amount.clone(), "must be an integer"));
    }
    errors
}

fn limit_error(resources: &Value, name: &str, request: &Value, path: &str) -> Option<FieldError> {
    let limit = &resources["limits"][name];
    if limit.is_null() {
        let detail = "Limit must be set for non overcommitable resources";
        return (!can_be_overcommitted(name)).then(|| FieldError::required(format!("{path}.limits"), detail));
    }
    let (requested, most) = (quantity(request)?, quantity(limit)?);
    let rule = if requested != most && !can_be_overcommitted(name) {
        "must be equal to"
    } else if requested > most {
        "must be less than or equal to"
    } else {
        return None;
    };
    let detail = format!("{rule} {name} limit of {}", limit.as_str().unwrap_or_default());
    Some(FieldError::invalid(format!("{path}.requests"), request.clone(), detail))
}

/// Warnings about fractional bytes.
pub(super) fn warnings(spec: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for list in ["initContainers", "containers"] {
        for (index, container) in spec[list].as_array().into_iter().flatten().enumerate() {
            for side in ["limits", "requests"] {
                for name in ["memory", "ephemeral-storage"] {
                    let amount = &container["resources"][side][name];
                    if quantity(amount).is_some_and(|quantity| quantity.nanos() % 1_000_000_000 != 0) {
                        warnings.push(format!(
                            "spec.{list}[{index}].resources.{side}[{name}]: fractional byte value {amount} is invalid, must be an integer"
                        ));
                    }
                }
            }
        }
    }
    warnings
}
