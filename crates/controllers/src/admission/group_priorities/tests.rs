//! Tests of the priorities that the webhook fills in and refuses. Every allowed object is reviewed again after its
//! patch: the second review must change nothing.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::Admission;
use crate::priority_classes::PriorityClasses;
use crate::settings::Settings;

const POD_GROUPS: &str = "podgroups";
const WORKLOADS: &str = "workloads";
const CLASSES: [(&str, i32, bool); 3] = [("high", 1000, false), ("base", 10, true), ("other-base", 20, true)];

fn review(classes: &PriorityClasses, plural: &str, object: &Value, old: &Value) -> Value {
    let operation = if old.is_null() { "CREATE" } else { "UPDATE" };
    let resource = json!({"group": "muster.dev", "version": "v1alpha1", "resource": plural});
    let request = json!({"uid": "u", "operation": operation, "resource": resource, "object": object, "oldObject": old});
    let admission = Admission::new(Settings::default(), classes.clone());
    admission.review(&json!({"request": request}))["response"].clone()
}

/// The object as it is stored; the review must allow it.
fn admitted(classes: &PriorityClasses, plural: &str, object: &Value, old: &Value) -> Value {
    let answer = review(classes, plural, object, old);
    assert_eq!(answer["allowed"], true, "{answer}");
    let mut after = object.clone();
    if let Some(patch) = answer["patch"].as_str() {
        let patch = STANDARD.decode(patch).unwrap();
        json_patch::patch(&mut after, &serde_json::from_slice::<json_patch::Patch>(&patch).unwrap()).unwrap();
    }
    let again = review(classes, plural, &after, old);
    assert_eq!((&again["allowed"], again.get("patch")), (&json!(true), None), "{again}");
    after
}

fn denied(classes: &PriorityClasses, plural: &str, object: &Value, old: &Value) -> String {
    let answer = review(classes, plural, object, old);
    assert_eq!((&answer["allowed"], &answer["status"]["code"]), (&json!(false), &json!(422)), "{answer}");
    answer["status"]["message"].as_str().unwrap().to_owned()
}

/// A group; `Value::Null` leaves a field out.
fn pod_group(class: &Value, number: &Value) -> Value {
    let mut spec = json!({"policy": {"gang": {"minCount": 2}}});
    for (field, value) in [("priorityClassName", class), ("priority", number)] {
        if !value.is_null() {
            spec[field] = value.clone();
        }
    }
    json!({"metadata": {"name": "train", "namespace": "ml"}, "spec": spec})
}

/// A group of class `high`.
fn high(number: &Value) -> Value {
    pod_group(&json!("high"), number)
}

fn with_record(mut group: Value, message: &str) -> Value {
    let condition = json!({"type": "PriorityResolved", "status": "True", "reason": "Resolved", "message": message});
    group["status"] = json!({"conditions": [condition]});
    group
}

#[test]
fn new_group_gets_the_number_of_its_class_or_of_the_lowest_default_class() {
    let classes = PriorityClasses::of(&CLASSES);
    let number = |classes: &PriorityClasses, class: Value| {
        admitted(classes, POD_GROUPS, &pod_group(&class, &Value::Null), &Value::Null)["spec"]["priority"].clone()
    };
    assert_eq!(number(&classes, json!("high")), 1000);
    assert_eq!(number(&classes, Value::Null), 10);
    assert_eq!(number(&classes, json!("")), 10, "an empty name is none");
    assert_eq!(number(&PriorityClasses::of(&[]), Value::Null), 0);
    let right = high(&json!(1000));
    assert_eq!(admitted(&classes, POD_GROUPS, &right, &Value::Null), right);
}

#[test]
fn group_with_subsets_and_without_a_class_keeps_the_priority_of_its_members() {
    let classes = PriorityClasses::of(&CLASSES);
    let mut group = pod_group(&Value::Null, &Value::Null);
    group["spec"] = json!({"subsets": [{"name": "ps", "minMember": 1}]});
    assert_eq!(admitted(&classes, POD_GROUPS, &group, &Value::Null), group);
    group["spec"]["priorityClassName"] = json!("high");
    assert_eq!(admitted(&classes, POD_GROUPS, &group, &Value::Null)["spec"]["priority"], 1000);
    group["spec"] = json!({"subsets": [{"name": "ps", "minMember": 1}], "priority": 900_000});
    let why = denied(&classes, POD_GROUPS, &group, &Value::Null);
    assert!(why.contains("spec.priority: 900000: without a priorityClassName it is 10"), "{why}");
}

#[test]
fn class_that_is_not_known_yet_is_left_to_the_scheduler() {
    let classes = PriorityClasses::of(&CLASSES);
    for number in [Value::Null, json!(7)] {
        let group = pod_group(&json!("new"), &number);
        assert_eq!(admitted(&classes, POD_GROUPS, &group, &Value::Null), group);
    }
}

#[test]
fn wrong_number_is_refused_with_object_field_and_values() {
    let classes = PriorityClasses::of(&CLASSES);
    let why = denied(&classes, POD_GROUPS, &high(&json!(7)), &Value::Null);
    let expected =
        "PodGroup ml/train: spec.priority: 7: PriorityClass high has 1000; leave it out, and it is filled in";
    assert_eq!(why, expected);
    let why = denied(&classes, POD_GROUPS, &pod_group(&Value::Null, &json!(900_000)), &Value::Null);
    assert!(why.contains("spec.priority: 900000: without a priorityClassName it is 10"), "{why}");
    let mut generated = high(&json!(7));
    generated["metadata"] = json!({"generateName": "train-", "namespace": "ml"});
    let why = denied(&classes, POD_GROUPS, &generated, &Value::Null);
    assert!(why.starts_with("PodGroup ml/train-: "), "{why}");
}

#[test]
fn system_class_is_refused_outside_of_kube_system() {
    let classes = PriorityClasses::of(&[("system-node-critical", 2_000_001_000, false), ("top", 1_000_000_000, false)]);
    let critical = json!("system-node-critical");
    for number in [Value::Null, json!(2_000_001_000)] {
        let mut group = pod_group(&critical, &number);
        let why = denied(&classes, POD_GROUPS, &group, &Value::Null);
        let expected = "PodGroup ml/train: spec.priorityClassName: \"system-node-critical\": the priority 2000001000 is the \
            system's, which only groups in kube-system may have";
        assert_eq!(why, expected);
        group["metadata"]["namespace"] = json!("kube-system");
        assert_eq!(admitted(&classes, POD_GROUPS, &group, &Value::Null)["spec"]["priority"], 2_000_001_000);
    }
    let top = pod_group(&json!("top"), &Value::Null);
    assert_eq!(admitted(&classes, POD_GROUPS, &top, &Value::Null)["spec"]["priority"], 1_000_000_000);
    let group = json!({"name": "a", "policy": {"gang": {"minCount": 1}}, "priorityClassName": critical});
    let workload = json!({"metadata": {"name": "w", "namespace": "ml"}, "spec": {"podGroups": [group]}});
    let why = denied(&classes, WORKLOADS, &workload, &Value::Null);
    assert!(why.contains("spec.podGroups[0].priorityClassName"), "{why}");
}

#[test]
fn every_group_of_a_workload_gets_its_number() {
    let classes = PriorityClasses::of(&CLASSES);
    let workload = |second: Value| {
        let policy = json!({"gang": {"minCount": 2}});
        let mut groups =
            json!([{"name": "a", "policy": policy, "priorityClassName": "high"}, {"name": "b", "policy": policy}]);
        groups[1].as_object_mut().unwrap().extend(second.as_object().unwrap().clone());
        json!({"metadata": {"name": "w", "namespace": "ml"}, "spec": {"podGroups": groups}})
    };
    let numbers = |workload: &Value| {
        let groups = &workload["spec"]["podGroups"];
        (groups[0]["priority"].clone(), groups[1]["priority"].clone())
    };
    let created = admitted(&classes, WORKLOADS, &workload(json!({})), &Value::Null);
    assert_eq!(numbers(&created), (json!(1000), json!(10)));
    let why = denied(&classes, WORKLOADS, &workload(json!({"priority": 11})), &Value::Null);
    assert!(why.starts_with("Workload ml/w: spec.podGroups[1].priority: 11: "), "{why}");
    // Each group is compared with its own record, whatever the order of the status.
    let mut old = workload(json!({"priority": 11}));
    let record = |text: &str| json!([{"type": "PriorityResolved", "status": "True", "message": text}]);
    old["status"]["podGroups"] = json!([
        {"name": "a", "conditions": record("The priority is 999.")},
        {"name": "b", "replicaKey": "0"},
        {"name": "b", "replicaKey": "1", "conditions": record("The priority is 3.")},
    ]);
    assert_eq!(numbers(&admitted(&classes, WORKLOADS, &workload(json!({})), &old)), (Value::Null, json!(3)));
    let mended = workload(json!({"priority": 3}));
    assert_eq!(admitted(&classes, WORKLOADS, &mended, &old), mended);
    assert!(denied(&classes, WORKLOADS, &workload(json!({"priority": 10})), &old).contains("and is 3"));
}

#[test]
fn number_stays_valid_whatever_becomes_of_the_class() {
    let old = high(&json!(1000));
    let mut changed = old.clone();
    changed["spec"]["policy"]["gang"]["minCount"] = json!(3);
    for later in [PriorityClasses::of(&[]), PriorityClasses::of(&[("high", 5, false)])] {
        assert_eq!(admitted(&later, POD_GROUPS, &changed, &old), changed);
        // A group from before the webhook was installed is not filled in: nothing about it has changed.
        assert_eq!(admitted(&later, POD_GROUPS, &high(&Value::Null), &high(&Value::Null)), high(&Value::Null));
        // What is recorded is put back if an update leaves it out.
        let recorded = with_record(high(&json!(1000)), "The priority is 1000, of PriorityClass high.");
        assert_eq!(admitted(&later, POD_GROUPS, &high(&Value::Null), &recorded), high(&json!(1000)));
    }
}

#[test]
fn wrong_number_can_be_corrected_and_no_other_change_is_allowed() {
    let classes = PriorityClasses::of(&CLASSES);
    let wrong = high(&json!(7));
    let right = high(&json!(1000));
    assert_eq!(admitted(&classes, POD_GROUPS, &right, &wrong), right);
    assert!(denied(&classes, POD_GROUPS, &high(&json!(8)), &wrong).contains("high has 1000"));
    assert!(denied(&classes, POD_GROUPS, &high(&json!(8)), &right).contains("high has 1000"));
    // What was resolved counts, not what the class gives now.
    let recorded = with_record(wrong.clone(), "The priority is 999, of PriorityClass high.");
    assert_eq!(admitted(&classes, POD_GROUPS, &high(&json!(999)), &recorded), high(&json!(999)));
    let why = denied(&classes, POD_GROUPS, &right, &recorded);
    assert!(why.contains("spec.priority: 1000: the priority was resolved when the group was created, and is 999"));
    let of_another_class = with_record(wrong.clone(), "The priority is 999, of PriorityClass low.");
    assert_eq!(admitted(&classes, POD_GROUPS, &right, &of_another_class), right);
    // The user cannot bring a record along: only the stored status counts.
    let forged = with_record(high(&json!(900_000)), "The priority is 900000, of PriorityClass high.");
    denied(&classes, POD_GROUPS, &forged, &right);
    denied(&classes, POD_GROUPS, &forged, &Value::Null);
}

#[test]
fn number_that_an_update_leaves_out_is_put_back_unless_it_may_be_wrong() {
    let classes = PriorityClasses::of(&CLASSES);
    let unset = high(&Value::Null);
    assert_eq!(admitted(&classes, POD_GROUPS, &unset, &high(&json!(1000))), high(&json!(1000)));
    let recorded = with_record(high(&json!(7)), "The priority is 999, of PriorityClass high.");
    assert_eq!(admitted(&classes, POD_GROUPS, &unset, &recorded), high(&json!(999)));
    assert_eq!(admitted(&classes, POD_GROUPS, &unset, &high(&json!(7))), unset, "a wrong number can be removed");
    assert_eq!(admitted(&PriorityClasses::of(&[]), POD_GROUPS, &unset, &high(&json!(1000))), unset);
}

#[test]
fn change_of_the_class_is_left_to_the_schema() {
    let classes = PriorityClasses::of(&CLASSES);
    let other = pod_group(&json!("missing"), &json!(1));
    assert_eq!(admitted(&classes, POD_GROUPS, &other, &high(&json!(1000))), other);
}

#[test]
fn nothing_is_filled_in_or_refused_before_the_classes_are_known() {
    let unknown = PriorityClasses::unknown();
    for object in [high(&Value::Null), high(&json!(7)), pod_group(&Value::Null, &Value::Null)] {
        assert_eq!(admitted(&unknown, POD_GROUPS, &object, &Value::Null), object);
    }
    assert_eq!(admitted(&unknown, POD_GROUPS, &high(&json!(7)), &high(&json!(8))), high(&json!(7)));
}

#[test]
fn status_deletion_and_invalid_numbers_are_not_looked_at() {
    let classes = PriorityClasses::of(&CLASSES);
    let mut terminating = high(&json!(7));
    terminating["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    assert_eq!(admitted(&classes, POD_GROUPS, &terminating, &high(&json!(1000))), terminating);
    let text = high(&json!("seven"));
    assert_eq!(admitted(&classes, POD_GROUPS, &text, &Value::Null), text, "the schema refuses it");
    let resource = json!({"group": "muster.dev", "resource": "podgroups"});
    let request = json!({"uid": "u", "operation": "UPDATE", "subResource": "status", "resource": resource,
        "object": high(&json!(7)), "oldObject": high(&json!(1000))});
    let admission = Admission::new(Settings::default(), classes);
    let answer = admission.review(&json!({"request": request}))["response"].clone();
    assert_eq!(answer, json!({"uid": "u", "allowed": true}));
    let native = json!({"uid": "u", "operation": "CREATE", "resource": {"group": "scheduling.k8s.io", "resource": "podgroups"},
        "object": high(&json!(7))});
    assert_eq!(admission.review(&json!({"request": native}))["response"]["allowed"], true);
}
