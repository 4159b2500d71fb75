//! The strategies of Deployments and StatefulSets.
//!
//! Also ControllerRevisions.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::{default_field, names::NameRule, persistent_volume_claim, pod_templates};

const PERCENT: &str = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')";

pub(super) fn set_deployment_defaults(deployment: &mut Value) {
    let spec = &mut deployment["spec"];
    default_field(spec, "replicas", json!(1));
    default_field(spec, "strategy", json!({}));
    let strategy = &mut spec["strategy"];
    if strategy["type"].as_str().unwrap_or_default().is_empty() {
        strategy["type"] = json!("RollingUpdate");
    }
    if strategy["type"] == "RollingUpdate" {
        default_field(strategy, "rollingUpdate", json!({}));
        default_field(&mut strategy["rollingUpdate"], "maxUnavailable", json!("25%"));
        default_field(&mut strategy["rollingUpdate"], "maxSurge", json!("25%"));
    }
    default_field(spec, "revisionHistoryLimit", json!(10));
    default_field(spec, "progressDeadlineSeconds", json!(600));
    pod_templates::set_pod_defaults(deployment);
}

pub(super) fn set_stateful_defaults(set: &mut Value) {
    let spec = &mut set["spec"];
    default_field(spec, "replicas", json!(1));
    default_field(spec, "podManagementPolicy", json!("OrderedReady"));
    default_field(spec, "updateStrategy", json!({}));
    let strategy = &mut spec["updateStrategy"];
    if strategy["type"].as_str().unwrap_or_default().is_empty() {
        strategy["type"] = json!("RollingUpdate");
        default_field(strategy, "rollingUpdate", json!({}));
    }
    if strategy["type"] == "RollingUpdate" && strategy["rollingUpdate"].is_object() {
        default_field(&mut strategy["rollingUpdate"], "partition", json!(0));
        default_field(&mut strategy["rollingUpdate"], "maxUnavailable", json!(1));
    }
    default_field(spec, "revisionHistoryLimit", json!(10));
    default_field(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    for when in ["whenDeleted", "whenScaled"] {
        default_field(&mut spec["persistentVolumeClaimRetentionPolicy"], when, json!("Retain"));
    }
    let claims = spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut);
    for claim in claims.into_iter().flatten() {
        default_field(claim, "kind", json!("PersistentVolumeClaim"));
        default_field(claim, "apiVersion", json!("v1"));
        persistent_volume_claim::set_defaults(claim);
    }
    pod_templates::set_pod_defaults(set);
}

/// A new set has zero replicas in its status.
pub(super) fn prepare_stateful(set: &mut Value) {
    set["status"] = json!({"replicas": 0, "availableReplicas": 0});
}

fn negative(object: &Value, fields: &[&str]) -> Vec<FieldError> {
    let value = |field: &str| object.pointer(&format!("/{}", field.replace('.', "/"))).cloned().unwrap_or_default();
    let negative = fields.iter().filter(|field| value(field).as_i64().is_some_and(|count| count < 0));
    let error = |field: &&str| FieldError::invalid(*field, value(field), "must be greater than or equal to 0");
    negative.map(error).collect()
}

/// A number of pods or a percentage.
fn share_errors(share: &Value, field: &str) -> Vec<FieldError> {
    let digits = |text: &str| text.strip_suffix('%').map(str::to_owned).unwrap_or_default();
    let is_share = |text: &str| !digits(text).is_empty() && digits(text).bytes().all(|byte| byte.is_ascii_digit());
    match share {
        Value::String(text) if !is_share(text) => vec![FieldError::invalid(field, share.clone(), PERCENT)],
        Value::Number(count) if count.as_i64().is_some_and(|count| count < 0) => {
            vec![FieldError::invalid(field, share.clone(), "must be greater than or equal to 0")]
        }
        _ => Vec::new(),
    }
}

fn number_of(share: &Value) -> i64 {
    let percent = share.as_str().and_then(|text| text.strip_suffix('%')?.parse().ok());
    share.as_i64().or(percent).unwrap_or_default()
}

fn over_100_percent_error(share: &Value, field: &str) -> Option<FieldError> {
    let is_over = share.is_string() && number_of(share) > 100;
    is_over.then(|| FieldError::invalid(field, share.clone(), "must not be greater than 100%"))
}

pub(super) fn validate_deployment(deployment: &Value) -> Vec<FieldError> {
    let spec = &deployment["spec"];
    let mut errors = pod_templates::validate(deployment);
    errors.extend(empty_selector_error(spec, "deployment"));
    let (strategy, field) = (&spec["strategy"], "spec.strategy.rollingUpdate");
    let rolling = &strategy["rollingUpdate"];
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if !rolling.is_null() => {
            errors.push(FieldError::forbidden(field, "may not be specified when strategy `type` is 'Recreate'"));
        }
        "Recreate" => {}
        "RollingUpdate" => {
            let (missing, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
            let of_missing = format!("{field}.maxUnavailable");
            errors.extend(share_errors(missing, &of_missing));
            errors.extend(share_errors(surge, &format!("{field}.maxSurge")));
            if number_of(missing) == 0 && number_of(surge) == 0 {
                let detail = "may not be 0 when `maxSurge` is 0";
                errors.push(FieldError::invalid(&*of_missing, missing.clone(), detail));
            }
            errors.extend(over_100_percent_error(missing, &of_missing));
        }
        _ => errors.push(FieldError::not_supported("spec.strategy", strategy.clone(), &["Recreate", "RollingUpdate"])),
    }
    errors.extend(negative(
        deployment,
        &["spec.minReadySeconds", "spec.revisionHistoryLimit", "spec.progressDeadlineSeconds"],
    ));
    let deadline = &spec["progressDeadlineSeconds"];
    let min_ready_seconds = spec["minReadySeconds"].as_i64().unwrap_or_default();
    if deadline.as_i64().is_some_and(|seconds| seconds <= min_ready_seconds) {
        let detail = "must be greater than minReadySeconds";
        errors.push(FieldError::invalid("spec.progressDeadlineSeconds", deadline.clone(), detail));
    }
    errors
}

pub(super) fn validate_deployment_update(deployment: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_deployment(deployment);
    errors.extend(changed(deployment, old, &["selector"]));
    errors
}

fn empty_selector_error(spec: &Value, kind: &str) -> Option<FieldError> {
    let selector = &spec["selector"];
    let count = |field: &str| match &selector[field] {
        Value::Object(fields) => fields.len(),
        Value::Array(items) => items.len(),
        _ => 0,
    };
    let is_empty = selector.is_object() && count("matchLabels") + count("matchExpressions") == 0;
    let detail = format!("empty selector is invalid for {kind}");
    is_empty.then(|| FieldError::invalid("spec.selector", selector.clone(), detail))
}

/// The errors of changed immutable fields.
fn changed(object: &Value, old: &Value, fields: &[&str]) -> Vec<FieldError> {
    let (spec, was) = (&object["spec"], &old["spec"]);
    let changed = fields.iter().filter(|field| spec[**field] != was[**field]);
    let error = |field: &&str| FieldError::invalid(format!("spec.{field}"), spec[*field].clone(), "field is immutable");
    changed.map(error).collect()
}

pub(super) fn validate_stateful(set: &Value) -> Vec<FieldError> {
    let spec = &set["spec"];
    let mut errors = Vec::new();
    let policy = &spec["podManagementPolicy"];
    if !matches!(policy.as_str(), Some("OrderedReady" | "Parallel")) {
        let detail = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", policy.clone(), detail));
    }
    errors.extend(strategy_errors(&spec["updateStrategy"]));
    for when in ["whenDeleted", "whenScaled"] {
        let retention = &spec["persistentVolumeClaimRetentionPolicy"][when];
        if !matches!(retention.as_str(), Some("Retain" | "Delete")) {
            let field = format!("spec.persistentVolumeClaimRetentionPolicy.{when}");
            errors.push(FieldError::not_supported(field, retention.clone(), &["Delete", "Retain"]));
        }
    }
    errors.extend(negative(set, &["spec.minReadySeconds", "spec.ordinals.start"]));
    let service = spec["serviceName"].as_str().unwrap_or_default();
    if !service.is_empty() {
        let why = NameRule::Label.errors(service, false).into_iter();
        errors.extend(why.map(|why| FieldError::invalid("spec.serviceName", service, why)));
    }
    errors.extend(empty_selector_error(spec, "statefulset"));
    // The volumes of claim templates exist when a pod is created, so containers may mount them.
    let mut whole = set.clone();
    let claims = spec["volumeClaimTemplates"].as_array().into_iter().flatten();
    let claimed: Vec<&Value> = claims.map(|claim| &claim["metadata"]["name"]).collect();
    if !claimed.is_empty() {
        let volumes = spec["template"]["spec"]["volumes"].as_array().into_iter().flatten();
        let own = volumes.filter(|volume| !claimed.contains(&&volume["name"])).cloned();
        let added = claimed.iter().map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        whole["spec"]["template"]["spec"]["volumes"] = json!(added.chain(own).collect::<Vec<_>>());
    }
    errors.extend(pod_templates::validate(&whole));
    errors
}

fn strategy_errors(strategy: &Value) -> Vec<FieldError> {
    let field = "spec.updateStrategy.rollingUpdate";
    let rolling = &strategy["rollingUpdate"];
    match strategy["type"].as_str().unwrap_or_default() {
        "OnDelete" if !rolling.is_null() => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            vec![FieldError::invalid(field, rolling.clone(), detail)]
        }
        "OnDelete" => Vec::new(),
        "RollingUpdate" => {
            let of_partition = format!("{field}.partition");
            let of_missing = format!("{field}.maxUnavailable");
            let (partition, missing) = (&rolling["partition"], &rolling["maxUnavailable"]);
            let mut errors = Vec::new();
            if partition.as_i64().is_some_and(|partition| partition < 0) {
                let detail = "must be greater than or equal to 0";
                errors.push(FieldError::invalid(of_partition, partition.clone(), detail));
            }
            if !missing.is_null() {
                errors.extend(share_errors(missing, &of_missing));
                if number_of(missing) == 0 {
                    errors.push(FieldError::invalid(&*of_missing, missing.clone(), "cannot be 0"));
                }
                errors.extend(over_100_percent_error(missing, &of_missing));
            }
            errors
        }
        _ => {
            let detail = "must be 'RollingUpdate' or 'OnDelete'";
            vec![FieldError::invalid("spec.updateStrategy", strategy.clone(), detail)]
        }
    }
}

pub(super) fn validate_stateful_update(set: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_stateful(set);
    errors.extend(changed(set, old, &["selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy"]));
    errors
}

pub(super) fn validate_revision(revision: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if revision["revision"].as_i64().is_some_and(|number| number < 0) {
        let detail = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("revision", revision["revision"].clone(), detail));
    }
    match &revision["data"] {
        Value::Null => errors.push(FieldError::required("data", "data is mandatory")),
        Value::Object(_) => {}
        _ => errors.push(FieldError::required("data", "data must be a valid JSON object")),
    }
    errors
}

pub(super) fn validate_revision_update(revision: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = validate_revision(revision);
    if revision["data"] != old["data"] {
        errors.push(FieldError::invalid("data", revision["data"].clone(), "field is immutable"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(errors: &[FieldError]) -> Vec<&str> {
        errors.iter().map(|error| error.field.as_str()).collect()
    }

    fn spec(change: &Value) -> Value {
        let mut object = json!({"spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        }});
        json_patch::merge(&mut object, &json!({"spec": change}));
        object
    }

    fn deployment(change: &Value) -> Value {
        let mut object = spec(change);
        set_deployment_defaults(&mut object);
        object
    }

    fn stateful(change: &Value) -> Value {
        let mut object = spec(change);
        set_stateful_defaults(&mut object);
        object
    }

    #[test]
    fn deployment_gets_defaults() {
        let object = deployment(&json!({"strategy": {"rollingUpdate": {"maxSurge": 2}}}));
        let strategy = json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": "25%"}});
        assert_eq!(object["spec"]["strategy"], strategy);
        assert_eq!(fields(&validate_deployment(&object)), [""; 0]);
        assert_eq!(
            deployment(&json!({"strategy": {"type": "Recreate"}}))["spec"]["strategy"],
            json!({"type": "Recreate"})
        );
    }

    #[test]
    fn invalid_deployment_is_rejected() {
        let rolling = |surge: Value, missing: Value| json!({"strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": missing}}});
        for (change, field) in [
            (rolling(json!(0), json!("0%")), "spec.strategy.rollingUpdate.maxUnavailable"),
            (rolling(json!("x"), json!(1)), "spec.strategy.rollingUpdate.maxSurge"),
            (rolling(json!(1), json!("101%")), "spec.strategy.rollingUpdate.maxUnavailable"),
            (rolling(json!(-1), json!(1)), "spec.strategy.rollingUpdate.maxSurge"),
            (json!({"strategy": {"type": "Recreate", "rollingUpdate": {}}}), "spec.strategy.rollingUpdate"),
            (json!({"strategy": {"type": "Fast"}}), "spec.strategy"),
            (json!({"minReadySeconds": 600}), "spec.progressDeadlineSeconds"),
            (json!({"selector": {"matchLabels": null}}), "spec.selector"),
            (json!({"template": {"spec": {"restartPolicy": "Never"}}}), "spec.template.spec.restartPolicy"),
        ] {
            assert_eq!(fields(&validate_deployment(&deployment(&change))), [field], "{change}");
        }
    }

    #[test]
    fn stateful_set_is_defaulted_and_validated() {
        let plain = stateful(&json!({}));
        let rolling = json!({"type": "RollingUpdate", "rollingUpdate": {"partition": 0, "maxUnavailable": 1}});
        assert_eq!(plain["spec"]["updateStrategy"], rolling);
        assert_eq!(fields(&validate_stateful(&plain)), [""; 0]);
        for (change, field) in [
            (json!({"podManagementPolicy": "Any"}), "spec.podManagementPolicy"),
            (json!({"updateStrategy": {"type": "Recreate"}}), "spec.updateStrategy"),
            (json!({"updateStrategy": {"type": "OnDelete", "rollingUpdate": {}}}), "spec.updateStrategy.rollingUpdate"),
            (
                json!({"updateStrategy": {"rollingUpdate": {"maxUnavailable": 0}}}),
                "spec.updateStrategy.rollingUpdate.maxUnavailable",
            ),
            (json!({"ordinals": {"start": -1}}), "spec.ordinals.start"),
            (json!({"serviceName": "A"}), "spec.serviceName"),
        ] {
            assert_eq!(fields(&validate_stateful(&stateful(&change))), [field], "{change}");
        }
        let changed = stateful(&json!({"serviceName": "s", "minReadySeconds": 3}));
        assert_eq!(fields(&validate_stateful_update(&changed, &plain)), ["spec.serviceName"]);
    }

    #[test]
    fn containers_may_mount_claim_templates() {
        let object = stateful(&json!({
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}],
            "template": {"spec": {"containers": [
                {"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]},
            ]}},
        }));
        assert_eq!(fields(&validate_stateful(&object)), [""; 0]);
        let claim = &object["spec"]["volumeClaimTemplates"][0];
        assert_eq!((&claim["kind"], &claim["status"]["phase"]), (&json!("PersistentVolumeClaim"), &json!("Pending")));
    }

    #[test]
    fn controller_revision_data_is_immutable() {
        let revision = json!({"data": {"a": 1}, "revision": 1});
        assert_eq!(fields(&validate_revision(&revision)), [""; 0]);
        assert_eq!(fields(&validate_revision(&json!({"data": 3, "revision": -1}))), ["revision", "data"]);
        assert_eq!(fields(&validate_revision_update(&json!({"data": {"a": 2}}), &revision)), ["data"]);
    }
}
