//! Tests of our CRDs: they are valid, have the same bounds as the Rust rules, and bound everything that a CEL rule
//! iterates over.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionVersion,
};
use kube_core::Resource;
use muster_api::crds::{PODGROUPS, WORKLOADS, dialects};
use muster_api::group::{COUNT, MAX_MIN_RESOURCES, MAX_SUBSETS, PRIORITY, SCHEDULE_TIMEOUT_SECONDS};
use muster_api::wire::workload::MAX_GROUPS_IN_STATUS;
use muster_api::wire::{PodGroup, Workload};
use muster_api::workload::{MAX_POD_GROUPS, MAX_REFERENCE_LENGTH};
use serde_json::{Value, json};

fn read(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).expect("valid YAML")
}

/// A field of the schema, by its path: `spec.podGroups[].name`.
fn at<'a>(crd: &'a Value, path: &str) -> &'a Value {
    let mut schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    for step in path.split('.') {
        schema = &schema["properties"][step.trim_end_matches("[]")];
        if step.ends_with("[]") {
            schema = &schema["items"];
        }
    }
    assert!(schema.is_object(), "no field {path}");
    schema
}

fn range(schema: &Value) -> (i64, i64) {
    (schema["minimum"].as_i64().expect("a minimum"), schema["maximum"].as_i64().expect("a maximum"))
}

#[test]
fn crds_define_our_kinds() {
    fn check<K: Resource<DynamicType = ()>>(yaml: &str, short: &str) {
        let crd: CustomResourceDefinition = serde_json::from_value(read(yaml)).expect("a CRD");
        let names = &crd.spec.names;
        assert_eq!(crd.metadata.name, Some(format!("{}.{}", K::plural(&()), K::group(&()))));
        assert_eq!(crd.spec.group, K::group(&()));
        assert_eq!((names.kind.as_str(), names.plural.as_str()), (&*K::kind(&()), &*K::plural(&())));
        assert_eq!(names.short_names, Some(vec![short.to_owned()]));
        assert_eq!(crd.spec.scope, "Namespaced");
        let [CustomResourceDefinitionVersion { name, served, storage, subresources, .. }] = &*crd.spec.versions else {
            panic!("one version");
        };
        assert_eq!((name.as_str(), *served, *storage), (&*K::version(&()), true, true));
        assert!(subresources.as_ref().is_some_and(|all| all.status.is_some()));
    }
    check::<Workload>(WORKLOADS, "mwl");
    check::<PodGroup>(PODGROUPS, "mpg");
}

#[test]
fn bounds_and_defaults_equal_those_of_the_rules() {
    let (workloads, groups) = (read(WORKLOADS), read(PODGROUPS));
    let count = (*COUNT.start(), *COUNT.end());
    for (crd, path) in [
        (&groups, "spec.policy.gang.minCount"),
        (&groups, "spec.policy.basic.desiredCount"),
        (&groups, "spec.subsets[].minMember"),
        (&workloads, "spec.podGroups[].policy.gang.minCount"),
        (&workloads, "spec.podGroups[].policy.basic.desiredCount"),
    ] {
        assert_eq!(range(at(crd, path)), count, "{path}");
    }
    let priority = (*PRIORITY.start(), *PRIORITY.end());
    assert_eq!(range(at(&groups, "spec.priority")), priority);
    assert_eq!(range(at(&workloads, "spec.podGroups[].priority")), priority);
    let timeout = at(&groups, "spec.scheduleTimeoutSeconds");
    assert_eq!(range(timeout), (*SCHEDULE_TIMEOUT_SECONDS.start(), *SCHEDULE_TIMEOUT_SECONDS.end()));
    for (schema, field, expected) in [
        (at(&groups, "spec.disruptionMode"), "default", json!("Pod")),
        (at(&groups, "spec.degradedPolicy"), "default", json!("Replace")),
        (at(&groups, "spec.subsets"), "maxItems", json!(MAX_SUBSETS)),
        (at(&groups, "spec.subsets"), "minItems", json!(1)),
        (at(&groups, "spec.minResources"), "maxProperties", json!(MAX_MIN_RESOURCES)),
        (at(&workloads, "spec.podGroups"), "maxItems", json!(MAX_POD_GROUPS)),
        (at(&workloads, "spec.podGroups"), "minItems", json!(1)),
        (at(&workloads, "spec.podGroups[].disruptionMode"), "default", json!("Pod")),
        (at(&workloads, "spec.controllerRef.name"), "maxLength", json!(MAX_REFERENCE_LENGTH)),
        (at(&workloads, "spec.controllerRef.kind"), "maxLength", json!(MAX_REFERENCE_LENGTH)),
        (at(&workloads, "status.podGroups"), "maxItems", json!(MAX_GROUPS_IN_STATUS)),
    ] {
        assert_eq!(schema[field], expected, "{schema}");
    }
}

/// Visits a schema and everything below it.
fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&Value, &str)) {
    visit(schema, path);
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &format!("{path}.{name}"), visit);
    }
    for inner in ["items", "additionalProperties"] {
        if schema[inner].is_object() {
            walk(&schema[inner], &format!("{path}[]"), visit);
        }
    }
}

#[test]
fn every_list_string_and_map_is_bounded_and_every_field_documented() {
    for yaml in [WORKLOADS, PODGROUPS] {
        let crd = read(yaml);
        for part in ["spec", "status"] {
            walk(at(&crd, part), part, &mut |schema, path| {
                let bounded = match schema["type"].as_str() {
                    Some("array") => schema["maxItems"].is_u64() && schema["x-kubernetes-list-type"].is_string(),
                    Some("string") => {
                        schema["maxLength"].is_u64() || schema["enum"].is_array() || schema["format"] == "date-time"
                    }
                    Some("integer") => schema["minimum"].is_i64() && schema["format"].is_string(),
                    Some("boolean") => true,
                    Some("object") => schema["properties"].is_object() || schema["maxProperties"].is_u64(),
                    _ => schema["x-kubernetes-int-or-string"] == true && schema["maxLength"].is_u64(),
                };
                assert!(bounded, "{path} has no bound");
                assert!(path.ends_with("[]") || schema["description"].is_string(), "{path} has no description");
                for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
                    assert!(rule["message"].is_string(), "{path}: a rule without a message");
                }
            });
        }
    }
}

#[test]
fn serialized_fields_are_in_the_schema() {
    let status = json!({
        "observedGeneration": 1,
        "conditions": [{"type": "PodGroupScheduled", "status": "True", "observedGeneration": 1, "reason": "Scheduled",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z"}],
        "summary": {"policy": "Gang"}, "subsets": [{"name": "a"}],
        "instances": {"total": 1}, "podGroups": [{"name": "a", "replicaKey": "0", "conditions": [{"type": "A"}]}],
    });
    let object = json!({"spec": {"subsets": [{"name": "a"}]}, "status": status});
    let group: PodGroup = serde_json::from_value(object.clone()).expect("a group");
    let workload: Workload = serde_json::from_value(object).expect("a workload");
    for (yaml, written) in [(PODGROUPS, json!(group.status)), (WORKLOADS, json!(workload.status))] {
        let crd = read(yaml);
        check_fields(at(&crd, "status"), &written, "status");
    }
}

/// Checks that every field of a value is in the schema: the server would drop others.
fn check_fields(schema: &Value, value: &Value, path: &str) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let field = &schema["properties"][name];
                assert!(field.is_object(), "{path}.{name} is not in the schema");
                check_fields(field, value, &format!("{path}.{name}"));
            }
        }
        Value::Array(list) => list.iter().for_each(|value| check_fields(&schema["items"], value, path)),
        _ => {}
    }
}

#[test]
fn dialect_crds_match_the_original_kinds() {
    for (yaml, group, version, has_status) in [
        (dialects::SCHEDULER_PLUGINS, "scheduling.x-k8s.io", "v1alpha1", true),
        (dialects::VOLCANO, "scheduling.volcano.sh", "v1beta1", false),
    ] {
        let crd: CustomResourceDefinition = serde_json::from_value(read(yaml)).expect("a CRD");
        assert_eq!(crd.metadata.name, Some(format!("podgroups.{group}")));
        assert_eq!((crd.spec.group.as_str(), crd.spec.names.kind.as_str()), (group, "PodGroup"));
        let [of_version] = &*crd.spec.versions else { panic!("one version") };
        assert_eq!(of_version.name, version);
        let subresources = of_version.subresources.as_ref();
        assert_eq!(subresources.is_some_and(|all| all.status.is_some()), has_status, "{group}");
    }
}

#[test]
fn printer_columns_refer_to_existing_fields() {
    for yaml in [WORKLOADS, PODGROUPS, dialects::SCHEDULER_PLUGINS, dialects::VOLCANO] {
        let crd = read(yaml);
        let columns = crd["spec"]["versions"][0]["additionalPrinterColumns"].as_array().expect("columns");
        assert!(columns.len() >= 5);
        for column in columns {
            let path = column["jsonPath"].as_str().expect("a path").trim_start_matches('.');
            if path != "metadata.creationTimestamp" {
                at(&crd, &path.replace(r#"[?(@.type=="PodGroupScheduled")]"#, "[]"));
            }
        }
    }
}
