//! Differential test: validation of native Workloads and PodGroups gives the same errors in the same order and stores
//! the same spec as Kubernetes' own code.
//!
//! `native_answers/answers.jsonl` has random objects and updates with the results of Kubernetes 1.37.1 (v1beta1),
//! `v1alpha2/answers.jsonl` those of 1.36.4, `v1alpha1/answers.jsonl` those of 1.35.8; the `main.go` next to each is
//! the program that produced them. Two kinds of details have other texts and are not compared: why a name or a reason
//! has invalid syntax.

use muster_api::field_error::FieldError;
use muster_api::native::{self, Gates, v1alpha1, v1alpha2};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Errors contain at least this many characters of a value.
const VALUE_CHARS_MIN: usize = 100;

fn read<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).expect("an object of the kind")
}

/// The result of a server of 1.37 for a line: the stored spec, and all errors.
fn in_v1beta1(line: &Value) -> (Value, Vec<FieldError>) {
    let gates = if line["gates"] == true { Gates::ALL } else { Gates::default() };
    let (mut new, mut old) = (line["new"].clone(), line.get("old").cloned());
    if line["kind"] == "Workload" {
        native::drop_disabled_workload(&mut new, old.as_ref(), gates);
        let new: native::Workload = read(&new);
        let errors = match old {
            None => native::validate_workload(&new, gates),
            Some(old) => native::validate_workload_update(&new, &read(&old), gates),
        };
        return (json!(new.spec), errors);
    }
    native::set_pod_group_defaults(&mut new, gates);
    if let Some(old) = &mut old {
        native::set_pod_group_defaults(old, gates);
    }
    if line["kind"] == "PodGroupStatus" {
        new["spec"] = old.as_ref().expect("a stored object")["spec"].clone();
    }
    native::drop_disabled_pod_group(&mut new, old.as_ref(), gates);
    let new: native::PodGroup = read(&new);
    let errors = match old {
        None => native::validate_pod_group(&new, gates),
        Some(old) if line["kind"] == "PodGroup" => native::validate_pod_group_update(&new, &read(&old), gates),
        Some(old) => native::validate_pod_group_status_update(&new, &read(&old)),
    };
    (json!(new.spec), errors)
}

/// The result of a server of 1.36 for a line.
fn in_v1alpha2(line: &Value) -> (Value, Vec<FieldError>) {
    let none = Gates { workload_aware_preemption: false, ..Gates::default() };
    let gates = if line["gates"] == true { Gates::ALL } else { none };
    let (mut new, mut old) = (line["new"].clone(), line.get("old").cloned());
    if line["kind"] == "Workload" {
        native::drop_disabled_workload(&mut new, old.as_ref(), gates);
        let new: v1alpha2::Workload = read(&new);
        let errors = match old {
            None => v1alpha2::validate_workload(&new, gates),
            Some(old) => v1alpha2::validate_workload_update(&new, &read(&old), gates),
        };
        return (json!(new.spec), errors);
    }
    v1alpha2::set_pod_group_defaults(&mut new);
    if let Some(old) = &mut old {
        v1alpha2::set_pod_group_defaults(old);
    }
    if line["kind"] == "PodGroupStatus" {
        new["spec"] = old.as_ref().expect("a stored object")["spec"].clone();
    }
    native::drop_disabled_pod_group(&mut new, old.as_ref(), gates);
    let new: v1alpha2::PodGroup = read(&new);
    let errors = match old {
        None => v1alpha2::validate_pod_group(&new, gates),
        Some(old) if line["kind"] == "PodGroup" => v1alpha2::validate_pod_group_update(&new, &read(&old), gates),
        Some(old) => v1alpha2::validate_pod_group_status_update(&new, &read(&old)),
    };
    (json!(new.spec), errors)
}

/// The result of a server of 1.35 for a line.
fn in_v1alpha1(line: &Value) -> (Value, Vec<FieldError>) {
    let new: v1alpha1::Workload = read(&line["new"]);
    let errors = match line.get("old") {
        None => v1alpha1::validate_workload(&new),
        Some(old) => v1alpha1::validate_workload_update(&new, &read(old)),
    };
    (json!(new.spec), errors)
}

/// Texts of Kubernetes for invalid syntax, which differ from ours.
const KUBERNETES_TEXTS: [&str; 8] = [
    "RFC 1123",
    "must be no more than",
    "must not contain dots",
    "part must",
    "valid label key",
    "condition reason",
    "may not contain '",
    "may not be '",
];

/// The parts of an error that must be equal: with `text_differs`, all but the detail.
fn compared(field: &str, cause: &str, body: &str, text_differs: bool) -> String {
    let body: Vec<_> = body.split(": ").take(if text_differs { 2 } else { usize::MAX }).collect();
    let body: String = body.join(": ").chars().take(VALUE_CHARS_MIN).collect();
    format!("{field} {cause} {body}")
}

/// Compares every line of `answers` with `ours`. The expected spec is normalized by `reread`, so that different
/// spellings of the same value are equal.
fn compare(answers: &str, ours: fn(&Value) -> (Value, Vec<FieldError>), reread: fn(&Value) -> Value) {
    let lines: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() >= 200);
    for line in lines {
        let (spec, errors) = ours(&line);
        let theirs = line["errors"].as_array().unwrap();
        assert_eq!(errors.len(), theirs.len(), "{errors:?}\n{line:#}");
        for (ours, theirs) in errors.iter().zip(theirs) {
            let [field, cause, body] = ["field", "cause", "body"].map(|part| theirs[part].as_str().unwrap());
            let text_differs = KUBERNETES_TEXTS.iter().any(|text| body.contains(text));
            let found = compared(&ours.field, ours.kind.cause(), &ours.body(), text_differs);
            assert_eq!(found, compared(field, cause, body, text_differs), "{line:#}");
        }
        if errors.is_empty() {
            assert_eq!(spec, reread(&line), "{line:#}");
        }
    }
}

fn is_workload(line: &Value) -> bool {
    line["kind"] == "Workload"
}

#[test]
fn errors_and_stored_specs_equal_those_of_kubernetes() {
    compare(include_str!("native_answers/answers.jsonl"), in_v1beta1, |line| {
        let theirs = json!({"spec": line["spec"]});
        if is_workload(line) {
            json!(read::<native::Workload>(&theirs).spec)
        } else {
            json!(read::<native::PodGroup>(&theirs).spec)
        }
    });
}

#[test]
fn v1alpha2_results_equal_those_of_kubernetes_1_36() {
    compare(include_str!("native_answers/v1alpha2/answers.jsonl"), in_v1alpha2, |line| {
        let theirs = json!({"spec": line["spec"]});
        if is_workload(line) {
            json!(read::<v1alpha2::Workload>(&theirs).spec)
        } else {
            json!(read::<v1alpha2::PodGroup>(&theirs).spec)
        }
    });
}

#[test]
fn v1alpha1_results_equal_those_of_kubernetes_1_35() {
    compare(include_str!("native_answers/v1alpha1/answers.jsonl"), in_v1alpha1, |line| {
        json!(read::<v1alpha1::Workload>(&json!({"spec": line["spec"]})).spec)
    });
}
