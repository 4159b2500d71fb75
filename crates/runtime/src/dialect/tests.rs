//! What each dialect writes back, and when it writes nothing.

use jiff::Timestamp;
use muster_api::keys::conditions::{DEGRADED, POD_GROUP_SCHEDULED};
use serde_json::{Value, json};

use super::*;

fn object(dialect: &dyn Dialect, spec: &Value, status: &Value) -> GroupObject {
    let text = json!({
        "metadata": {"name": "g", "namespace": "ml", "uid": "u", "resourceVersion": "7", "generation": 2},
        "spec": spec, "status": status,
    });
    dialect.read(&text.to_string())
}

fn instance(group: &str, replica: &str, scheduled: bool, degraded: bool) -> InstanceStatus {
    let mut conditions = Conditions::from(&[], Timestamp::UNIX_EPOCH, 2);
    let reason = if scheduled { "Scheduled" } else { "Unschedulable" };
    conditions.set(POD_GROUP_SCHEDULED, scheduled, reason, "why");
    if degraded {
        conditions.set(DEGRADED, true, "BelowMinimum", "lost");
    }
    InstanceStatus {
        group: group.to_owned(),
        replica: replica.to_owned(),
        minimum: 3,
        policy: "Gang",
        counts: Counts { total: 3, ..Counts::default() },
        subsets: vec![(String::new(), Counts { total: 3, would_fit: 2, no_room: 1, ..Counts::default() })],
        conditions: conditions.into_list(),
    }
}

fn status_of(patch: Option<StatusPatch>) -> Value {
    match patch.expect("something to write") {
        StatusPatch::Merge(body) | StatusPatch::Strategic(body) => body["status"].clone(),
    }
}

fn wanted(instances: Vec<InstanceStatus>) -> ObjectStatus {
    ObjectStatus { observed_generation: 2, conditions: Vec::new(), instances }
}

#[test]
fn a_pod_group_shows_counters_and_writes_nothing_twice() {
    let spec = json!({"policy": {"gang": {"minCount": 3}}});
    let status = wanted(vec![instance("", "", false, false)]);
    let written = MusterPodGroup.write(&object(&MusterPodGroup, &spec, &json!({})), &status);
    assert!(matches!(&written, Some(StatusPatch::Merge(body)) if body["metadata"]["resourceVersion"] == "7"));
    let shown = status_of(written);
    assert_eq!(shown["subsets"][0]["scheduledAvailable"], 2);
    assert_eq!(shown["subsets"][0]["scheduledUnavailable"], 1);
    assert_eq!(shown["summary"], json!({"policy": "Gang", "minimum": 3, "scheduled": 0, "running": 0}));
    assert_eq!(MusterPodGroup.write(&object(&MusterPodGroup, &spec, &shown), &status), None);
}

#[test]
fn a_workload_shows_the_worst_first_and_no_more_than_it_may() {
    let spec = json!({"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 3}}}]});
    let mut instances: Vec<_> = (0..80).map(|number| instance("w", &number.to_string(), true, false)).collect();
    instances[70] = instance("w", "70", false, false);
    instances[75] = instance("w", "75", true, true);
    let status = wanted(instances);
    let object = object(&MusterWorkload, &spec, &json!({}));
    let shown = status_of(MusterWorkload.write(&object, &status));
    assert_eq!(shown["instances"], json!({"total": 80, "scheduled": 79, "waiting": 1, "degraded": 1}));
    let groups = shown["podGroups"].as_array().unwrap();
    assert_eq!(groups.len(), 64);
    assert_eq!((&groups[0]["replicaKey"], &groups[1]["replicaKey"]), (&json!("75"), &json!("70")));
}

#[test]
fn upstreams_condition_never_goes_back_and_ours_says_what_holds_now() {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}}});
    let find = |status: &Value, kind: &str| {
        let list = status["conditions"].as_array().unwrap();
        list.iter().find(|one| one["type"] == kind).map(|one| (one["status"].clone(), one["reason"].clone()))
    };
    let pair = |status: &str, reason: &str| Some((json!(status), json!(reason)));
    let scheduled = wanted(vec![instance("", "", true, false)]);
    let shown =
        status_of(NativePodGroup::V1BETA1.write(&object(&NativePodGroup::V1BETA1, &spec, &json!({})), &scheduled));
    assert_eq!(find(&shown, "PodGroupInitiallyScheduled"), pair("True", "Scheduled"));
    assert_eq!(find(&shown, "muster.dev/PodGroupScheduled"), pair("True", "Scheduled"));
    let again = object(&NativePodGroup::V1BETA1, &spec, &shown);
    assert_eq!(NativePodGroup::V1BETA1.write(&again, &scheduled), None);
    let later = wanted(vec![instance("", "", false, false)]);
    let shown = status_of(NativePodGroup::V1BETA1.write(&again, &later));
    assert_eq!(find(&shown, "PodGroupInitiallyScheduled"), pair("True", "Scheduled"));
    assert_eq!(find(&shown, "muster.dev/PodGroupScheduled"), pair("False", "Unschedulable"));
}

#[test]
fn upstreams_condition_is_silent_while_a_group_is_not_tried() {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}}});
    let mut waiting = instance("", "", false, false);
    waiting.conditions[0].reason = "WaitingForMembers".to_owned();
    let shown = status_of(
        NativePodGroup::V1BETA1.write(&object(&NativePodGroup::V1BETA1, &spec, &json!({})), &wanted(vec![waiting])),
    );
    let kinds: Vec<_> = shown["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(kinds, ["muster.dev/PodGroupScheduled"]);
}

#[test]
fn groups_of_1_36_have_upstreams_old_condition_and_workloads_of_1_35_none() {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": "Pod"});
    let scheduled = wanted(vec![instance("", "", true, false)]);
    let dialect = NativePodGroupV1alpha2;
    let shown = status_of(dialect.write(&object(&dialect, &spec, &json!({})), &scheduled));
    let kinds: Vec<_> = shown["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(kinds, ["PodGroupScheduled", "muster.dev/PodGroupScheduled"]);
    assert_eq!(dialect.write(&object(&dialect, &spec, &shown), &scheduled), None);
    let spec = json!({"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 3}}}]});
    let status = wanted(vec![instance("w", "", true, false)]);
    assert_eq!(NativeWorkload.write(&object(&NativeWorkload, &spec, &json!({})), &status), None);
}

#[test]
fn both_versions_of_1_37_are_one_dialect() {
    let [beta, alpha] = [NativePodGroup::V1BETA1, NativePodGroup::V1ALPHA3].map(|dialect| dialect.resource());
    assert_eq!(beta.api_version, "scheduling.k8s.io/v1beta1");
    assert_eq!((alpha.api_version.as_str(), alpha.version.as_str()), ("scheduling.k8s.io/v1alpha3", "v1alpha3"));
    assert_eq!((alpha.kind, alpha.plural), (beta.kind, beta.plural));
}
