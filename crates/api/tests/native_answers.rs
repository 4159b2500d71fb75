//! What we say to native Workloads and PodGroups is what Kubernetes' own code says: the same
//! errors in the same order, and the same spec stored.
//!
//! `native_answers/answers.jsonl` holds random objects and changes with the answers of Kubernetes
//! 1.37.1; `native_answers/main.go` is the program that asked. The words of two sorts of detail are
//! our own and not compared: why a name or a reason has a bad shape.

use muster_api::field_error::FieldError;
use muster_api::native::{
    Gates, PodGroup, Workload, drop_disabled_pod_group, drop_disabled_workload, set_pod_group_defaults,
    validate_pod_group, validate_pod_group_status_update, validate_pod_group_update, validate_workload,
    validate_workload_update,
};
use serde_json::{Value, json};

const ANSWERS: &str = include_str!("native_answers/answers.jsonl");
/// Our errors show at least this much of a value.
const SHOWN_CHARS: usize = 100;

fn gates(all: bool) -> Gates {
    Gates {
        topology_aware_workload_scheduling: all,
        dra_workload_resource_claims: all,
        pod_group_preemption_policy: all,
        composite_pod_group: all,
    }
}

fn pod_group(object: &Value) -> PodGroup {
    serde_json::from_value(object.clone()).expect("a group")
}

fn workload(object: &Value) -> Workload {
    serde_json::from_value(object.clone()).expect("a workload")
}

/// What a server does with a line: the stored spec, and all errors.
fn ours(line: &Value) -> (Value, Vec<FieldError>) {
    let gates = gates(line["gates"] == true);
    let mut new = line["new"].clone();
    let mut old = line.get("old").cloned();
    if line["kind"] == "Workload" {
        drop_disabled_workload(&mut new, old.as_ref(), gates);
        let new = workload(&new);
        let errors = match old {
            None => validate_workload(&new, gates),
            Some(old) => validate_workload_update(&new, &workload(&old), gates),
        };
        return (json!(new.spec), errors);
    }
    set_pod_group_defaults(&mut new, gates);
    if let Some(old) = &mut old {
        set_pod_group_defaults(old, gates);
    }
    if line["kind"] == "PodGroupStatus" {
        new["spec"] = old.as_ref().expect("a stored object")["spec"].clone();
    }
    drop_disabled_pod_group(&mut new, old.as_ref(), gates);
    let new = pod_group(&new);
    let errors = match old {
        None => validate_pod_group(&new, gates),
        Some(old) if line["kind"] == "PodGroup" => validate_pod_group_update(&new, &pod_group(&old), gates),
        Some(old) => validate_pod_group_status_update(&new, &pod_group(&old)),
    };
    (json!(new.spec), errors)
}

/// Kubernetes' words for a bad shape, in the place of which we have our own.
const THEIR_WORDS: [&str; 8] = [
    "RFC 1123",
    "must be no more than",
    "must not contain dots",
    "part must",
    "valid label key",
    "condition reason",
    "may not contain '",
    "may not be '",
];

/// The parts of an error that must be the same: with `in_own_words`, all but the detail.
fn compared(field: &str, cause: &str, body: &str, in_own_words: bool) -> String {
    let body: Vec<_> = body.split(": ").take(if in_own_words { 2 } else { usize::MAX }).collect();
    let body: String = body.join(": ").chars().take(SHOWN_CHARS).collect();
    format!("{field} {cause} {body}")
}

#[test]
fn errors_and_stored_specs_are_those_of_kubernetes() {
    let lines: Vec<Value> = ANSWERS.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(lines.len() > 200);
    for line in lines {
        let (spec, errors) = ours(&line);
        let theirs = line["errors"].as_array().unwrap();
        assert_eq!(errors.len(), theirs.len(), "{errors:?}\n{line:#}");
        for (ours, theirs) in errors.iter().zip(theirs) {
            let [field, cause, body] = ["field", "cause", "body"].map(|part| theirs[part].as_str().unwrap());
            let in_own_words = THEIR_WORDS.iter().any(|words| body.contains(words));
            let found = compared(&ours.field, ours.kind.cause(), &ours.body(), in_own_words);
            assert_eq!(found, compared(field, cause, body, in_own_words), "{line:#}");
        }
        if errors.is_empty() {
            // Theirs is read by our types, so that what is written differently but means the same is equal.
            let theirs = json!({"spec": line["spec"]});
            let theirs =
                if line["kind"] == "Workload" { json!(workload(&theirs).spec) } else { json!(pod_group(&theirs).spec) };
            assert_eq!(spec, theirs, "{line:#}");
        }
    }
}
