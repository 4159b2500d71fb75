//! Tests that the Rust validation of our kinds agrees with `crd_cases.yaml`, against which the CRD schemas are checked
//! too.

use muster_api::invalid::{FieldPath, InvalidField};
use muster_api::pod_group::{validate_pod_group, validate_pod_group_update};
use muster_api::wire::{PodGroup, Workload};
use muster_api::workload::{validate_workload, validate_workload_update};
use serde::Deserialize;
use serde_json::{Value, json};

const CASES: &str = include_str!("crd_cases.yaml");
const SPEC: FieldPath<'static> = FieldPath::Root("spec");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    kind: String,
    old: Option<Value>,
    spec: Value,
    error: Option<String>,
    #[serde(rename = "schema_error")]
    _schema_error: Option<String>,
    seen_by: Option<String>,
}

fn cases() -> Vec<Case> {
    serde_saphyr::from_str(CASES).expect("valid cases")
}

fn pod_group(spec: &Value) -> PodGroup {
    serde_json::from_value(json!({ "spec": spec })).expect("a readable spec")
}

fn workload(spec: &Value) -> Workload {
    serde_json::from_value(json!({ "spec": spec })).expect("a readable spec")
}

fn check(case: &Case) -> Result<(), InvalidField> {
    match (case.kind.as_str(), &case.old) {
        ("PodGroup", None) => validate_pod_group(&pod_group(&case.spec).spec, &SPEC).map(drop),
        ("PodGroup", Some(old)) => {
            validate_pod_group_update(&pod_group(&case.spec).spec, &pod_group(old).spec, &SPEC).map(drop)
        }
        ("Workload", None) => validate_workload(&workload(&case.spec).spec, &SPEC).map(drop),
        ("Workload", Some(old)) => {
            validate_workload_update(&workload(&case.spec).spec, &workload(old).spec, &SPEC).map(drop)
        }
        (other, _) => panic!("no kind {other}"),
    }
}

#[test]
fn every_case_has_its_expected_result() {
    for case in cases() {
        let expected = case.error.as_deref().filter(|_| case.seen_by.as_deref() != Some("schema"));
        let found = check(&case).err();
        assert_eq!(found.as_ref().map(|error| error.field.as_str()), expected, "{}: {found:?}", case.name);
    }
}

#[test]
fn old_specs_are_valid_and_names_are_unique() {
    let cases = cases();
    assert!(cases.len() > 80);
    let mut names: Vec<_> = cases.iter().map(|case| &case.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), cases.len());
    for mut case in cases {
        if let Some(old) = case.old.take() {
            case.spec = old;
            assert_eq!(check(&case), Ok(()), "{}", case.name);
        }
    }
}

#[test]
fn specs_round_trip() {
    for case in cases() {
        let (group, load) = (pod_group(&case.spec).spec, workload(&case.spec).spec);
        assert_eq!(pod_group(&json!(group)).spec, group, "{}", case.name);
        assert_eq!(workload(&json!(load)).spec, load, "{}", case.name);
    }
}
