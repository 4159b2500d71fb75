//! Jobs and CronJobs: generated labels and selector, and immutable fields.

use muster_playground_schema::FieldError;
use serde_json::{Value, json};

use super::names::NameRule;
use super::{job_policies, label_selector, pod, pod_templates};

const OWN_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// Fields that must not be negative.
const COUNTS: [&str; 7] = [
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
];
/// The most pods or failed indexes of an indexed job.
const INDEXED_MAX: i64 = 100_000;
/// Immutable fields.
const FIXED: [&str; 5] = ["completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"];
/// Scheduling directives: template fields that may change while a job is suspended.
const DIRECTIVES: [&str; 3] = ["nodeSelector", "tolerations", "schedulingGates"];

pub(super) fn set_defaults(job: &mut Value) {
    let spec = &mut job["spec"];
    let given = |field: &str, spec: &Value| !spec[field].is_null();
    if !given("completions", spec) && !given("parallelism", spec) {
        spec["completions"] = json!(1);
    }
    let limit = if given("backoffLimitPerIndex", spec) { i32::MAX } else { 6 };
    let replacement = if given("podFailurePolicy", spec) { "Failed" } else { "TerminatingOrFailed" };
    for (field, value) in [
        ("parallelism", json!(1)),
        ("backoffLimit", json!(limit)),
        ("completionMode", json!("NonIndexed")),
        ("suspend", json!(false)),
        ("manualSelector", json!(false)),
        ("podReplacementPolicy", json!(replacement)),
    ] {
        super::default_field(spec, field, value);
    }
    job_policies::set_defaults(spec);
    if let Some(spec) = job["spec"].as_object_mut() {
        // Disabled by default in kube-apiserver, so it is dropped.
        spec.remove("scheduling");
    }
    pod_templates::set_pod_defaults(job);
    inherit_labels(job);
}

/// Applies the defaults of a CronJob. Defaults of its jobs are applied when they are created.
pub(super) fn set_cron_defaults(cron: &mut Value) {
    for (field, value) in [
        ("concurrencyPolicy", json!("Allow")),
        ("suspend", json!(false)),
        ("successfulJobsHistoryLimit", json!(3)),
        ("failedJobsHistoryLimit", json!(1)),
    ] {
        super::default_field(&mut cron["spec"], field, value);
    }
    pod_templates::set_pod_defaults(&mut cron["spec"]["jobTemplate"]);
}

/// A job without labels gets those of its pod template.
fn inherit_labels(job: &mut Value) {
    let has_labels = |value: &Value| value["metadata"]["labels"].as_object().is_some_and(|labels| !labels.is_empty());
    if !has_labels(job) && has_labels(&job["spec"]["template"]) {
        job["metadata"]["labels"] = job["spec"]["template"]["metadata"]["labels"].clone();
    }
}

/// Generates the selector and labels of a job from its UID.
pub(super) fn prepare_for_create(job: &mut Value) {
    job["status"] = json!({});
    if job["spec"]["manualSelector"] != true {
        let (name, uid) = (job["metadata"]["name"].clone(), job["metadata"]["uid"].clone());
        let labels = &mut job["spec"]["template"]["metadata"]["labels"];
        for (key, value) in [("job-name", &name), ("controller-uid", &uid)] {
            super::default_field(labels, key, value.clone());
            super::default_field(labels, &format!("batch.kubernetes.io/{key}"), value.clone());
        }
        super::default_field(&mut job["spec"]["selector"]["matchLabels"], OWN_LABEL, uid);
    }
    inherit_labels(job);
}

pub(super) fn validate(job: &Value) -> Vec<FieldError> {
    let mut errors = selector_errors(job);
    errors.extend(spec_errors(job));
    errors.extend(name_error(job));
    errors
}

/// The hostnames of pods begin with the name of their job.
fn name_error(job: &Value) -> Option<FieldError> {
    let completions = job["spec"]["completions"].as_i64().filter(|count| *count > 0)?;
    let name = job["metadata"]["name"].as_str().filter(|_| job["spec"]["completionMode"] == "Indexed")?;
    let longest = format!("{name}-{}", completions - 1);
    let detail = format!("will not able to create pod with invalid DNS label: {longest}");
    let is_refused = !NameRule::Label.errors(&longest, false).is_empty();
    is_refused.then(|| FieldError::invalid("metadata.name", name, detail))
}

/// The selector must be the generated one, unless `manualSelector` is set.
fn selector_errors(job: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let selector = &job["spec"]["selector"];
    let own = json!({"matchLabels": {OWN_LABEL: job["metadata"]["uid"]}});
    if job["spec"]["manualSelector"] != true && *selector != own {
        errors.push(FieldError::invalid("spec.selector", selector.clone(), "`selector` not auto-generated"));
    }
    errors
}

fn spec_errors(job: &Value) -> Vec<FieldError> {
    let spec = &job["spec"];
    let mut errors = Vec::new();
    for field in COUNTS {
        if spec[field].as_i64().is_some_and(|count| count < 0) {
            let detail = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("spec.{field}"), spec[field].clone(), detail));
        }
    }
    if !spec["maxFailedIndexes"].is_null() && spec["backoffLimitPerIndex"].is_null() {
        errors.push(FieldError::required("spec.backoffLimitPerIndex", "when maxFailedIndexes is specified"));
    }
    errors.extend(job_policies::manager_errors(spec));
    errors.extend(mode_errors(spec));
    errors.extend(job_policies::validate(spec));
    errors.extend(pod::validate_spec(&spec["template"]["spec"], "spec.template.spec", false));
    let field = "spec.template.spec.restartPolicy";
    if matches!(spec["template"]["spec"]["restartPolicy"].as_str(), None | Some("" | "Always")) {
        errors.push(FieldError::required(field, "valid values: \"OnFailure\", \"Never\""));
    } else if spec["podFailurePolicy"].is_object() && spec["template"]["spec"]["restartPolicy"] != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.push(FieldError::invalid(field, spec["template"]["spec"]["restartPolicy"].clone(), detail));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else if !label_selector::matches(&spec["selector"], labels) {
        let detail = "`selector` does not match template `labels`";
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels.clone(), detail));
    }
    errors
}

fn mode_errors(spec: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let modes = ["NonIndexed", "Indexed"];
    match spec["completionMode"].as_str().unwrap_or_default() {
        "Indexed" => {
            if spec["completions"].is_null() {
                errors.push(FieldError::required("spec.completions", "when completion mode is Indexed"));
            }
            errors.extend(index_errors(spec));
        }
        "NonIndexed" => {
            for field in ["backoffLimitPerIndex", "maxFailedIndexes"] {
                if !spec[field].is_null() {
                    let detail = "requires indexed completion mode";
                    errors.push(FieldError::invalid(format!("spec.{field}"), spec[field].clone(), detail));
                }
            }
        }
        mode => errors.push(FieldError::not_supported("spec.completionMode", mode, &modes)),
    }
    errors
}

/// Indexes are listed in the status, whose size must stay bounded.
fn index_errors(spec: &Value) -> Vec<FieldError> {
    let number = |field: &str| spec[field].as_i64();
    let mut errors = Vec::new();
    let mut most = |field: &str, max: i64, why: &str| {
        if let Some(count) = number(field).filter(|count| *count > max) {
            let detail = format!("must be less than or equal to {why}");
            errors.push(FieldError::invalid(format!("spec.{field}"), count, detail));
        }
    };
    most("parallelism", INDEXED_MAX, &format!("{INDEXED_MAX} when completion mode is Indexed"));
    if let Some(completions) = number("completions") {
        most("maxFailedIndexes", completions, "completions");
    }
    most("maxFailedIndexes", INDEXED_MAX, &INDEXED_MAX.to_string());
    let has_many = number("completions").is_some_and(|count| count > INDEXED_MAX);
    if has_many && !spec["backoffLimitPerIndex"].is_null() {
        let why = format!("when completions are above {INDEXED_MAX} and used with backoff limit per index");
        most("parallelism", 10_000, &format!("10000 {why}"));
        most("maxFailedIndexes", 10_000, &format!("10000 {why}"));
        if spec["maxFailedIndexes"].is_null() {
            let detail = format!("must be specified when completions is above {INDEXED_MAX}");
            errors.push(FieldError::required("spec.maxFailedIndexes", detail));
        }
    }
    errors
}

pub(super) fn validate_update(job: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = spec_errors(job);
    let (spec, was) = (&job["spec"], &old["spec"]);
    errors.extend(completions_error(spec, was));
    let mut fixed = |field: &str| {
        if spec[field] != was[field] {
            errors.push(FieldError::invalid(format!("spec.{field}"), spec[field].clone(), "field is immutable"));
        }
    };
    fixed("selector");
    if !may_change_template(job, old) {
        fixed("template");
    }
    for field in FIXED {
        fixed(field);
    }
    errors
}

/// `completions` of an indexed job may change together with `parallelism`.
fn completions_error(spec: &Value, was: &Value) -> Option<FieldError> {
    let now = &spec["completions"];
    let detail = match spec["completionMode"] == "Indexed" {
        _ if *now == was["completions"] => return None,
        true if now.is_null() || *now == spec["parallelism"] => return None,
        true => "can only be modified in tandem with spec.parallelism",
        false => "field is immutable",
    };
    Some(FieldError::invalid("spec.completions", now.clone(), detail))
}

/// Scheduling directives may change if the job is suspended and has no pods.
fn may_change_template(job: &Value, old: &Value) -> bool {
    let status = &old["status"];
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let is_paused = conditions.into_iter().any(|one| one["type"] == "Suspended" && one["status"] == "True");
    let is_idle = status["active"].as_i64().unwrap_or(0) == 0 && (status["startTime"].is_null() || is_paused);
    if !(old["spec"]["suspend"] == true && is_idle) {
        return false;
    }
    let masked = |job: &Value| {
        let mut template = job["spec"]["template"].clone();
        if let Some(spec) = template["spec"].as_object_mut() {
            spec.retain(|field, _| !DIRECTIVES.contains(&field.as_str()));
            if let Some(affinity) = spec.get_mut("affinity").and_then(Value::as_object_mut) {
                affinity.remove("nodeAffinity");
                if affinity.is_empty() {
                    spec.remove("affinity");
                }
            }
        }
        for field in ["containers", "initContainers"] {
            let containers = template["spec"].get_mut(field).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten().filter_map(Value::as_object_mut) {
                container.remove("resources");
            }
        }
        if let Some(metadata) = template["metadata"].as_object_mut() {
            metadata.retain(|field, _| !["labels", "annotations"].contains(&field.as_str()));
        }
        template
    };
    masked(job) == masked(old)
}
