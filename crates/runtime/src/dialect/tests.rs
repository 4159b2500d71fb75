//! The status that each dialect writes, and when it writes nothing.

use jiff::Timestamp;
use muster_api::keys::conditions::{DEGRADED, POD_GROUP_SCHEDULED};
use muster_api::native::NativeVersion;
use muster_engine::model::group::{DisruptionMode, Policy, RecordedStart, Subset};
use muster_engine::status::{Counts, StartStatus};
use serde_json::{Value, json};

use super::*;

const V1BETA1: NativePodGroup = NativePodGroup(NativeVersion::V1beta1);

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
    patch.expect("something to write").body()["status"].clone()
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
fn a_workload_shows_problems_first_and_at_most_its_limit() {
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
fn upstreams_condition_stays_true_and_ours_shows_the_current_state() {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}}});
    let find = |status: &Value, kind: &str| {
        let list = status["conditions"].as_array().unwrap();
        list.iter().find(|one| one["type"] == kind).map(|one| (one["status"].clone(), one["reason"].clone()))
    };
    let pair = |status: &str, reason: &str| Some((json!(status), json!(reason)));
    let scheduled = wanted(vec![instance("", "", true, false)]);
    let shown = status_of(V1BETA1.write(&object(&V1BETA1, &spec, &json!({})), &scheduled));
    assert_eq!(find(&shown, "PodGroupInitiallyScheduled"), pair("True", "Scheduled"));
    assert_eq!(find(&shown, "muster.dev/PodGroupScheduled"), pair("True", "Scheduled"));
    let again = object(&V1BETA1, &spec, &shown);
    assert_eq!(V1BETA1.write(&again, &scheduled), None);
    let later = wanted(vec![instance("", "", false, false)]);
    let shown = status_of(V1BETA1.write(&again, &later));
    assert_eq!(find(&shown, "PodGroupInitiallyScheduled"), pair("True", "Scheduled"));
    assert_eq!(find(&shown, "muster.dev/PodGroupScheduled"), pair("False", "Unschedulable"));
}

#[test]
fn upstreams_condition_is_absent_while_a_group_is_not_tried() {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}}});
    let mut waiting = instance("", "", false, false);
    waiting.conditions[0].reason = "WaitingForMembers".to_owned();
    let shown = status_of(V1BETA1.write(&object(&V1BETA1, &spec, &json!({})), &wanted(vec![waiting])));
    let kinds: Vec<_> = shown["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(kinds, ["muster.dev/PodGroupScheduled"]);
}

#[test]
fn groups_of_1_36_have_upstreams_old_condition_and_workloads_of_1_35_none() {
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": "Pod"});
    let scheduled = wanted(vec![instance("", "", true, false)]);
    let dialect = NativePodGroup(NativeVersion::V1alpha2);
    let shown = status_of(dialect.write(&object(&dialect, &spec, &json!({})), &scheduled));
    let kinds: Vec<_> = shown["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(kinds, ["PodGroupScheduled", "muster.dev/PodGroupScheduled"]);
    assert_eq!(dialect.write(&object(&dialect, &spec, &shown), &scheduled), None);
    let spec = json!({"podGroups": [{"name": "w", "policy": {"gang": {"minCount": 3}}}]});
    let status = wanted(vec![instance("w", "", true, false)]);
    assert_eq!(NativeWorkload.write(&object(&NativeWorkload, &spec, &json!({})), &status), None);
}

#[test]
fn a_group_of_groups_names_its_parent_and_how_many_groups_it_needs() {
    let reference = json!({"workloadName": "w", "templateName": "t"});
    let spec = json!({
        "parentCompositePodGroupName": "root", "workloadRef": reference, "priority": 7,
        "schedulingPolicy": {"gang": {"minGroupCount": 2}}, "disruptionMode": {"all": {}},
    });
    let composite = object(&NativeCompositePodGroup, &spec, &json!({}));
    let [(_, group)] = &composite.groups.as_ref().unwrap()[..] else { panic!("one group") };
    let parent = Parent { origin: NativeCompositePodGroup.origin(), group: "root".to_owned() };
    assert_eq!((&group.policy, &group.parent), (&Policy::Groups { min_groups: 2 }, &Some(parent.clone())));
    assert_eq!((group.disruption_mode, group.priority.number_by_server()), (DisruptionMode::Group, Some(7)));
    let shown = status_of(NativeCompositePodGroup.write(&composite, &wanted(vec![instance("", "", true, false)])));
    let kinds: Vec<_> = shown["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(kinds, ["CompositePodGroupInitiallyScheduled", "muster.dev/PodGroupScheduled"]);
    let spec = json!({
        "parentCompositePodGroupName": "root", "workloadRef": reference, "schedulingPolicy": {"basic": {}},
        "disruptionMode": {"single": {}},
    });
    let leaf = object(&V1BETA1, &spec, &json!({}));
    assert_eq!(leaf.groups.unwrap()[0].1.parent, Some(parent));
    let invalid = json!({"workloadRef": reference, "schedulingPolicy": {"gang": {"minGroupCount": 0}}});
    let error = object(&NativeCompositePodGroup, &invalid, &json!({})).groups.unwrap_err();
    assert!(error.message.contains("spec.schedulingPolicy.gang.minGroupCount"), "{}", error.message);
}

#[test]
fn groups_of_a_workload_have_parents_in_it() {
    let spec = json!({
        "compositePodGroups": [{"name": "all", "policy": {"gang": {"minGroupCount": 1}}}],
        "podGroups": [{"name": "a", "parent": "all", "policy": {"gang": {"minCount": 2}}}],
    });
    let groups = object(&MusterWorkload, &spec, &json!({})).groups.unwrap();
    let parents: Vec<(&str, Option<&str>)> = groups
        .iter()
        .map(|(name, group)| (name.as_str(), group.parent.as_ref().map(|parent| parent.group.as_str())))
        .collect();
    assert_eq!(parents, [("a", Some("all")), ("all", None)]);
    // Without a class of its own, a group has the priority of its parent.
    assert_eq!(groups[0].1.priority.without_class, WithoutClass::LowestMember);
}

#[test]
fn both_versions_of_1_37_are_one_dialect() {
    let [beta, alpha] = [V1BETA1, NativePodGroup(NativeVersion::V1alpha3)].map(|dialect| dialect.resource());
    assert_eq!(beta.api_version, "scheduling.k8s.io/v1beta1");
    assert_eq!((alpha.api_version.as_str(), alpha.version.as_str()), ("scheduling.k8s.io/v1alpha3", "v1alpha3"));
    assert_eq!((alpha.kind, alpha.plural), (beta.kind, beta.plural));
}

#[test]
fn a_group_of_scheduler_plugins_is_a_gang_with_the_lowest_priority_of_its_members() {
    let spec = json!({"minMember": 3, "minResources": {"cpu": "8"}, "scheduleTimeoutSeconds": 10});
    let object = object(&SchedulerPlugins, &spec, &json!({}));
    let [(name, group)] = &object.groups.as_ref().unwrap()[..] else { panic!("one group") };
    assert_eq!((name.as_str(), &group.policy), ("", &Policy::Gang { min_count: 3 }));
    assert_eq!((group.schedule_timeout_ms, &group.min_resources), (Some(10_000), &[("cpu".to_owned(), 8000)].into()));
    assert!(group.ranked_by_object && group.priority.without_class == WithoutClass::LowestMember);
    // Controllers of MPIJobs write 0, which is the scheduler's own timeout there.
    let spec = json!({"minMember": 3, "scheduleTimeoutSeconds": 0});
    assert_eq!(self::object(&SchedulerPlugins, &spec, &json!({})).groups.unwrap()[0].1.schedule_timeout_ms, None);
    for (spec, field) in [
        (json!({}), "spec.minMember: null"),
        (json!({"minMember": 0}), "spec.minMember: 0"),
        (json!({"minMember": 2, "scheduleTimeoutSeconds": -1}), "spec.scheduleTimeoutSeconds: -1"),
        (json!({"minMember": 2, "minResources": {"cpu": "x"}}), "spec.minResources"),
    ] {
        let error = self::object(&SchedulerPlugins, &spec, &json!({})).groups.unwrap_err();
        assert!(error.kind == GroupErrorKind::Invalid && error.message.contains(field), "{error:?}");
    }
}

fn counted(total: i64, scheduled: i64, running: i64, succeeded: i64, failed: i64) -> InstanceStatus {
    let has_place = scheduled >= 3;
    let counts = Counts { total, scheduled, running, succeeded, failed, ..Counts::default() };
    InstanceStatus { counts, ..instance("", "", has_place, false) }
}

#[test]
fn phases_are_those_of_the_kinds_own_controllers() {
    let spec = json!({"minMember": 3});
    for (counts, plugins, volcano) in [
        (counted(2, 0, 0, 0, 0), "Pending", "Inqueue"),
        (counted(3, 0, 0, 0, 0), "Scheduling", "Inqueue"),
        (counted(3, 3, 0, 0, 0), "Scheduling", "Running"),
        (counted(3, 3, 3, 0, 0), "Running", "Running"),
        (counted(3, 2, 2, 0, 1), "Failed", "Unknown"),
        (counted(4, 4, 1, 3, 0), "Finished", "Running"),
        (counted(3, 3, 0, 3, 0), "Finished", "Completed"),
    ] {
        let status = wanted(vec![counts]);
        let shown = status_of(SchedulerPlugins.write(&object(&SchedulerPlugins, &spec, &json!({})), &status));
        assert_eq!(shown["phase"], plugins, "{status:?}");
        let again = object(&SchedulerPlugins, &spec, &shown);
        assert_eq!(SchedulerPlugins.write(&again, &status), None, "{shown}");
        let shown = status_of(Volcano.write(&object(&Volcano, &spec, &json!({})), &status));
        assert_eq!(shown["phase"], volcano, "{status:?}");
        assert_eq!(Volcano.write(&object(&Volcano, &spec, &shown), &status), None, "{shown}");
    }
    // A finished group stays finished when its pods are cleaned up.
    let no_pods = wanted(vec![counted(0, 0, 0, 0, 0)]);
    let shown = status_of(
        SchedulerPlugins
            .write(&object(&SchedulerPlugins, &spec, &json!({"phase": "Finished", "succeeded": 3})), &no_pods),
    );
    assert_eq!((&shown["phase"], &shown["succeeded"]), (&json!("Finished"), &Value::Null));
    let shown = status_of(Volcano.write(&object(&Volcano, &spec, &json!({"phase": "Completed"})), &no_pods));
    assert_eq!(shown["phase"], "Completed");
}

#[test]
fn a_start_is_recorded_where_there_are_no_conditions() {
    let spec = json!({"minMember": 3});
    let mut instance = counted(3, 3, 3, 0, 0);
    let mut conditions = Conditions::from(&instance.conditions, Timestamp::UNIX_EPOCH, 2);
    recorded_start::write(&mut conditions, &StartStatus::Started { minimum: Vec::new(), decided_ms: None });
    instance.conditions = conditions.into_list();
    let status = wanted(vec![instance]);
    let shown = status_of(SchedulerPlugins.write(&object(&SchedulerPlugins, &spec, &json!({})), &status));
    assert_eq!(shown["scheduleStartTime"], "1970-01-01T00:00:00Z");
    let read = object(&SchedulerPlugins, &spec, &shown);
    let conditions = &read.current_status.instances[&(String::new(), String::new())].conditions;
    let recorded = RecordedStart::Confirmed { minimum: None, decided_ms: Some(0) };
    assert_eq!(recorded_start::read(conditions, &[]), Some(recorded));
    // Fields that its own controller writes stay.
    let mut with_others = shown.clone();
    with_others["occupiedBy"] = json!("ml/job");
    let status = wanted(vec![counted(0, 0, 0, 0, 0)]);
    let shown = status_of(SchedulerPlugins.write(&object(&SchedulerPlugins, &spec, &with_others), &status));
    assert!(shown.get("occupiedBy").is_none() && shown["scheduleStartTime"].is_null(), "{shown}");
}

#[test]
fn volcano_tasks_are_subsets_and_unsupported_fields_are_rejected() {
    let policy = |spec: Value| object(&Volcano, &spec, &json!({})).groups.map(|mut groups| groups.remove(0).1.policy);
    let subset = |name: &str, min_member| Subset { name: name.to_owned(), min_member };
    let tasks = json!({"minMember": 3, "minTaskMember": {"worker": 2, "ps": 1, "idle": 0}, "queue": "default"});
    let subsets = vec![subset("ps", 1), subset("worker", 2), subset("", 0)];
    assert_eq!(policy(tasks), Ok(Policy::Subsets(subsets)));
    assert_eq!(policy(json!({"minMember": 2, "minTaskMember": {"w": 3}})), Ok(Policy::Gang { min_count: 2 }));
    assert_eq!(policy(json!({"minMember": 0})), Ok(Policy::Basic { desired_count: None }));
    assert_eq!(policy(json!({})), Ok(Policy::Basic { desired_count: None }));
    assert_eq!(policy(json!({"minMember": 2, "networkTopology": {"mode": "soft"}})), Ok(Policy::Gang { min_count: 2 }));
    for (spec, kind, field) in [
        (json!({"minMember": -1}), GroupErrorKind::Invalid, "spec.minMember: -1"),
        (json!({"minMember": 5, "minTaskMember": {"w": 3}}), GroupErrorKind::Unsupported, "spec.minMember: 5"),
        (json!({"minMember": 1, "minTaskMember": {"w": -3}}), GroupErrorKind::Invalid, "spec.minTaskMember[w]: -3"),
        (json!({"minMember": 1, "queue": "gpu"}), GroupErrorKind::Unsupported, "spec.queue: \"gpu\""),
        (
            json!({"minMember": 1, "networkTopology": {"mode": "hard", "highestTierAllowed": 2}}),
            GroupErrorKind::Unsupported,
            "spec.networkTopology.highestTierAllowed: 2",
        ),
        // Hard is the default.
        (
            json!({"minMember": 1, "networkTopology": {"highestTierName": "rack"}}),
            GroupErrorKind::Unsupported,
            "spec.networkTopology.highestTierName: \"rack\"",
        ),
        (
            json!({"minMember": 1, "networkTopology": {"mode": "firm"}}),
            GroupErrorKind::Invalid,
            "spec.networkTopology.mode: \"firm\"",
        ),
        (
            json!({"minMember": 1, "subGroupPolicy": [{"name": "a"}]}),
            GroupErrorKind::Unsupported,
            "spec.subGroupPolicy[0]",
        ),
    ] {
        let error = policy(spec).unwrap_err();
        assert!(error.kind == kind && error.message.contains(field), "{error:?} should name {field}");
    }
    let quotas = json!({"count/pods": "3", "requests.cpu": "2", "limits.memory": "1Gi", "cpu": "2"});
    let groups = object(&Volcano, &json!({"minMember": 1, "minResources": quotas}), &json!({})).groups.unwrap();
    assert_eq!(groups[0].1.min_resources, [("cpu".to_owned(), 2000)].into());
    // A hard mode without a tier says nothing.
    for topology in [json!({"mode": "soft", "highestTierAllowed": 1}), json!({"mode": "hard"}), json!({})] {
        let group = object(&Volcano, &json!({"minMember": 1, "networkTopology": topology}), &json!({}));
        assert!(group.groups.is_ok(), "{topology}");
        let ignored = &group.ignored_fields;
        assert!(ignored.len() == 1 && ignored[0].starts_with("spec.networkTopology"), "{ignored:?}");
    }
}

#[test]
fn conditions_of_other_writers_stay_in_a_volcano_group() {
    let spec = json!({"minMember": 3});
    let theirs = json!({"type": "theirs", "status": "True", "transitionID": "x", "reason": "r", "message": "m"});
    let old = json!({"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources"});
    let status = wanted(vec![counted(3, 3, 3, 0, 0)]);
    let patch = Volcano.write(&object(&Volcano, &spec, &json!({"conditions": [theirs, old]})), &status);
    assert!(matches!(patch, Some(StatusPatch::OfObject(_))));
    let shown = status_of(patch);
    let kinds: Vec<_> = shown["conditions"].as_array().unwrap().iter().map(|one| one["type"].clone()).collect();
    assert_eq!(kinds, ["muster.dev/PodGroupScheduled", "Scheduled", "theirs"]);
    // A condition of Volcano's own scheduler is not written again.
    let round = json!({"type": "Scheduled", "status": "True", "transitionID": "y", "reason": "tasks are ready"});
    let shown = status_of(Volcano.write(&object(&Volcano, &spec, &json!({"conditions": [round]})), &status));
    let scheduled = shown["conditions"].as_array().unwrap().iter().filter(|one| one["type"] == "Scheduled");
    assert_eq!(scheduled.map(|one| one["transitionID"].clone()).collect::<Vec<_>>(), ["y"]);
}

#[test]
fn pods_name_groups_of_other_schedulers_in_their_way() {
    let pod = |metadata: Value| serde_json::from_value::<Pod>(json!({"metadata": metadata})).unwrap();
    let named = |dialect: &dyn Dialect, metadata: Value| dialect.reference(&pod(metadata));
    let label = json!({"labels": {"scheduling.x-k8s.io/pod-group": "g"}});
    assert_eq!(named(&SchedulerPlugins, label.clone()), Some(Ok(Reference::to_object("g"))));
    assert_eq!(named(&Volcano, label), None);
    let note = json!({"annotations": {"scheduling.k8s.io/group-name": "g", "volcano.sh/task-spec": "ps"}});
    let reference = Reference { subset: "ps".to_owned(), ..Reference::to_object("g") };
    assert_eq!(named(&Volcano, note.clone()), Some(Ok(reference)));
    assert_eq!(named(&SchedulerPlugins, note), None);
    let bad = json!({"annotations": {"scheduling.k8s.io/group-name": "A b"}});
    let error = named(&Volcano, bad).unwrap().unwrap_err().to_string();
    assert!(error.contains("scheduling.k8s.io/group-name") && error.contains("A b"), "{error}");
    assert_eq!(named(&SchedulerPlugins, json!({"labels": {"scheduling.x-k8s.io/pod-group": ""}})), None);
}

#[test]
fn total_resources_can_be_in_an_annotation_where_there_is_no_field() {
    let read = |dialect: &dyn Dialect, spec: Value, list: &str| {
        let metadata = json!({"name": "g", "namespace": "ml", "annotations": {"muster.dev/min-resources": list}});
        dialect.read(&json!({"metadata": metadata, "spec": spec}).to_string()).groups
    };
    let native = json!({"schedulingPolicy": {"gang": {"minCount": 1}}, "disruptionMode": {"single": {}}});
    let groups = read(&V1BETA1, native.clone(), r#"{"nvidia.com/gpu": "8"}"#).unwrap();
    assert_eq!(groups[0].1.min_resources, [("nvidia.com/gpu".to_owned(), 8)].into());
    let wrong = read(&V1BETA1, native, "8 gpus").unwrap_err();
    assert!(wrong.message.contains("muster.dev/min-resources") && wrong.message.contains("8 gpus"), "{wrong:?}");
    let ours = read(&MusterPodGroup, json!({"policy": {"gang": {"minCount": 1}}}), "{}").unwrap_err();
    assert!(ours.message.contains("spec.minResources"), "{ours:?}");
}
