//! Translation of pods and groups into observations, and the errors for invalid ones.

use muster_api::native::NativeVersion;
use muster_engine::model::group::{GroupPriority, GroupSpec, Policy, RecordedStart, Subset};
use muster_engine::model::inter_pod::Spread;
use muster_engine::model::pod::{Phase, PodSpec, RefusalKind};
use muster_engine::model::storage::StorageObservation;
use serde_json::{Value, json};

use super::*;
use crate::dialect::{MusterPodGroup, MusterWorkload, NativePodGroup, NativeWorkload};

const WORKLOADS: usize = 0;
const POD_GROUPS: usize = 1;
const NATIVE: usize = 2;
const NATIVE_WORKLOADS: usize = 3;

fn intake_with(gates: FeatureGates) -> Intake {
    intake_of(gates, Box::new(NativePodGroup(NativeVersion::V1beta1)))
}

fn intake_of(gates: FeatureGates, native: Box<dyn Dialect>) -> Intake {
    let dialects: Vec<Box<dyn Dialect>> =
        vec![Box::new(MusterWorkload), Box::new(MusterPodGroup), native, Box::new(NativeWorkload)];
    Intake::new(
        vec![Profile { spread_defaults: Spread::default(), ..Profile::default() }],
        Vec::new(),
        gates,
        GangedOwners::default(),
        dialects,
    )
}

fn intake() -> Intake {
    intake_with(FeatureGates::default())
}

fn pod_json(name: &str, annotations: &Value) -> Value {
    json!({
        "metadata": {
            "name": name, "namespace": "ml", "uid": format!("uid-{name}"), "annotations": annotations,
            "creationTimestamp": "2030-01-01T00:00:10Z",
        },
        "spec": {
            "schedulerName": "muster", "priority": 7,
            "containers": [{"name": "main", "resources": {"requests": {"cpu": "1500m"}}}],
        },
    })
}

fn guarded<K: serde::de::DeserializeOwned>(value: &Value) -> Guarded<K> {
    serde_json::from_str(&value.to_string()).unwrap()
}

fn apply_pod(intake: &mut Intake, pod: &Value) -> IntakeOutput {
    intake.handle(WatchEvent::Pod(Delta::Applied(guarded(pod))), 0)
}

fn apply_group(intake: &mut Intake, dialect: usize, object: &Value) -> Vec<Observation> {
    let object: RawObject = serde_json::from_str(&object.to_string()).unwrap();
    intake.handle(WatchEvent::Group(dialect, Delta::Applied(object)), 0).observations
}

fn apply_class(intake: &mut Intake, name: &str, value: i32, default: bool) -> Vec<Observation> {
    let class = json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
    intake.handle(WatchEvent::Class(Delta::Applied(guarded(&class))), 0).observations
}

fn group_json(name: &str, spec: &Value, conditions: &Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "ml", "uid": format!("uid-{name}"), "resourceVersion": "5"},
        "spec": spec, "status": {"conditions": conditions},
    })
}

fn gang(name: &str) -> Value {
    group_json(name, &json!({"policy": {"gang": {"minCount": 3}}}), &json!([]))
}

fn the_pod(observations: &[Observation]) -> PodSpec {
    let mut pods = observations.iter().filter_map(|one| match one {
        Observation::PodSeen(spec) => Some(spec.clone()),
        _ => None,
    });
    let pod = pods.next().expect("a pod is observed");
    assert!(pods.next().is_none());
    pod
}

fn the_group(observations: &[Observation]) -> GroupSpec {
    match observations {
        [Observation::GroupSeen(spec), ..] => spec.clone(),
        other => panic!("no group in {other:?}"),
    }
}

#[test]
fn a_pod_is_observed_with_its_requirements() {
    let mut intake = intake();
    let mut pod = pod_json("a", &json!({}));
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080, "hostIP": "0.0.0.0"}]);
    pod["spec"]["tolerations"] = json!([{"key": "gpu", "operator": "Exists"}]);
    pod["spec"]["schedulingGates"] = json!([{"name": "quota"}]);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]);
    pod["status"] = json!({"nominatedNodeName": "n1"});
    let spec = the_pod(&apply_pod(&mut intake, &pod).observations);
    assert_eq!((spec.priority, spec.ours, spec.gated, spec.controlled), (7, true, true, true));
    assert_eq!(spec.class.requests, [("cpu".to_owned(), 1500)].into());
    assert_eq!((spec.class.host_ports[0].port, &spec.class.host_ports[0].address), (8080, &None));
    assert_eq!(spec.class.tolerations[0].key.as_deref(), Some("gpu"));
    assert_eq!((spec.nominated.as_deref(), spec.created_ms), (Some("n1"), 1_893_456_010_000));
    assert_eq!((spec.membership, spec.refused), (None, None));
}

#[test]
fn a_pod_joins_its_group_in_either_order() {
    let annotations = json!({"muster.dev/pod-group": "g", "muster.dev/subset": "ps"});
    let mut intake = intake();
    let first = the_pod(&apply_pod(&mut intake, &pod_json("a", &annotations)).observations).membership.unwrap();
    assert_eq!((first.group.to_string(), first.subset.as_str()), ("ml/g".to_owned(), "ps"));
    let group = the_group(&apply_group(&mut intake, POD_GROUPS, &gang("g")));
    assert_eq!((&group.key, &group.policy), (&first.group, &Policy::Gang { min_count: 3 }));
    let later = the_pod(&apply_pod(&mut intake, &pod_json("b", &annotations)).observations).membership.unwrap();
    assert_eq!(later.group, group.key);
    assert!(apply_group(&mut intake, POD_GROUPS, &gang("g")).is_empty(), "an unchanged group is not observed again");
}

#[test]
fn each_replica_of_a_workload_group_is_its_own_gang() {
    let mut intake = intake();
    let spec = json!({"podGroups": [{"name": "worker", "policy": {"gang": {"minCount": 2}}}]});
    assert!(apply_group(&mut intake, WORKLOADS, &group_json("w", &spec, &json!([]))).is_empty());
    let annotations = |group: &str, key: &str| json!({"muster.dev/workload": "w", "muster.dev/pod-group": group, "muster.dev/replica-key": key});
    let first = apply_pod(&mut intake, &pod_json("a", &annotations("worker", "0")));
    assert_eq!(the_group(&first.observations).key.to_string(), "ml/w/worker[0]");
    let second = apply_pod(&mut intake, &pod_json("b", &annotations("worker", "1")));
    assert_eq!(the_group(&second.observations).key.to_string(), "ml/w/worker[1]");
    let lost = apply_pod(&mut intake, &pod_json("c", &annotations("ghost", "")));
    let key = the_pod(&lost.observations).membership.unwrap().group;
    assert_eq!(lost.observations.len(), 1, "the engine observes no such group");
    let error = intake.groups.instance(&key).unwrap().error.clone().unwrap();
    assert_eq!(error.message, "it has no group \"ghost\"; it has worker");
    let gone = intake.handle(WatchEvent::Pod(Delta::Deleted(guarded(&pod_json("a", &json!({}))))), 0).observations;
    assert!(
        matches!(&gone[..], [Observation::PodGone { .. }, Observation::GroupGone { key }] if key.replica == "0"),
        "{gone:?}"
    );
}

#[test]
fn a_reference_is_fixed_when_the_pod_is_first_seen() {
    let mut intake = intake();
    apply_pod(&mut intake, &pod_json("a", &json!({"muster.dev/pod-group": "g"})));
    for (annotations, pod_events) in [
        (json!({"muster.dev/pod-group": "h"}), 1),
        (json!({"muster.dev/pod-group": "h"}), 0),
        (json!({}), 1),
        (json!({"muster.dev/pod-group": "g"}), 0),
    ] {
        let output = apply_pod(&mut intake, &pod_json("a", &annotations));
        assert_eq!(the_pod(&output.observations).membership.unwrap().group.name, "g");
        assert_eq!(output.pod_events.len(), pod_events, "{annotations}");
        assert!(output.pod_events.iter().all(|(_, reason, _)| *reason == GROUP_REFERENCE_CHANGED));
    }
}

#[test]
fn a_broken_or_ambiguous_reference_holds_the_pod_forever() {
    let cases = [
        (json!({"muster.dev/workload": "w"}), "metadata.annotations[muster.dev/workload]"),
        (json!({"muster.dev/subset": "s"}), "metadata.annotations[muster.dev/subset]"),
        (json!({"muster.dev/replica-key": "0"}), "metadata.annotations[muster.dev/replica-key]"),
        (json!({"muster.dev/pod-group": "Not A Name"}), "metadata.annotations[muster.dev/pod-group]"),
        (json!({"muster.dev/pod-group": "g", "muster.dev/subset": "A/B"}), "metadata.annotations[muster.dev/subset]"),
        (
            json!({"muster.dev/pod-group": "g", "muster.dev/workload": "w", "muster.dev/subset": "s"}),
            "metadata.annotations[muster.dev/subset]",
        ),
    ];
    for (annotations, field) in cases {
        let mut intake = intake();
        let refused = the_pod(&apply_pod(&mut intake, &pod_json("a", &annotations)).observations).refused.unwrap();
        assert_eq!((refused.kind, refused.field.as_str()), (RefusalKind::Reference, field));
        let fixed =
            the_pod(&apply_pod(&mut intake, &pod_json("a", &json!({"muster.dev/pod-group": "g"}))).observations);
        assert!(fixed.refused.is_some() && fixed.membership.is_none(), "it is not placed alone either");
    }
    let mut both = pod_json("a", &json!({"muster.dev/pod-group": "g"}));
    both["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    let output = apply_pod(&mut intake(), &both);
    assert_eq!(output.pod_events[0].1, GROUP_REFERENCE_CONFLICT);
    assert!(the_pod(&output.observations).refused.is_some());
}

#[test]
fn an_unsupported_feature_is_rejected_with_its_field() {
    let mut pod = pod_json("a", &json!({}));
    pod["spec"]["resourceClaims"] = json!([{"name": "gpu", "resourceClaimName": "c"}]);
    let refused = the_pod(&apply_pod(&mut intake(), &pod).observations).refused.unwrap();
    let expected = (RefusalKind::Unsupported, "spec.resourceClaims[0].name");
    assert_eq!((refused.kind, refused.field.as_str()), expected);
    pod["spec"]["schedulerName"] = json!("other");
    assert!(the_pod(&apply_pod(&mut intake(), &pod).observations).refused.is_none(), "pods of other schedulers");
}

#[test]
fn claims_and_disks_of_all_pods_are_observed_and_no_volume_is_rejected() {
    for (scheduler, node) in [("muster", ""), ("muster", "n1"), ("other", ""), ("other", "n1")] {
        let mut pod = pod_json("a", &json!({}));
        (pod["spec"]["schedulerName"], pod["spec"]["nodeName"]) = (json!(scheduler), json!(node));
        pod["spec"]["volumes"] = json!([
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "own", "ephemeral": {}},
            {"name": "disk", "gcePersistentDisk": {"pdName": "d"}}, {"name": "inline", "csi": {"driver": "d"}},
            {"name": "azure", "azureDisk": {"diskName": "d"}}, {"name": "cinder", "cinder": {"volumeID": "d"}},
        ]);
        let spec = the_pod(&apply_pod(&mut intake(), &pod).observations);
        let claims: Vec<&str> = spec.claims.iter().map(|claim| claim.claim.as_str()).collect();
        assert_eq!((claims, spec.class.disks.len()), (vec!["data", "a-own"], 1), "{scheduler} {node}");
        assert_eq!(spec.refused, None);
    }
}

#[test]
fn objects_of_storage_are_observed_and_no_pod_again() {
    let mut intake = intake();
    let mut pod = pod_json("a", &json!({}));
    pod["spec"]["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    apply_pod(&mut intake, &pod);
    let claim = json!({"metadata": {"namespace": "ml", "name": "data", "resourceVersion": "1"}});
    let claim: RawObject = serde_json::from_str(&claim.to_string()).unwrap();
    let seen = intake.handle(WatchEvent::Storage(Storage::Claim, Delta::Applied(claim.clone())), 0).observations;
    let is_seen = |one: &Observation| matches!(one, Observation::Storage(seen) if matches!(**seen, StorageObservation::ClaimSeen(_)));
    assert!(seen.len() == 1 && is_seen(&seen[0]), "{seen:?}");
    let gone = intake.handle(WatchEvent::Storage(Storage::Claim, Delta::Deleted(claim)), 0).observations;
    let expected = StorageObservation::ClaimGone("ml".to_owned(), "data".to_owned());
    assert_eq!(gone, [Observation::Storage(Box::new(expected))]);
}

#[test]
fn an_invalid_field_is_rejected_and_a_placed_pod_still_counts() {
    let mut pod = pod_json("a", &json!({}));
    pod["spec"]["nodeSelector"] = json!({"not a key": "x"});
    let refused = the_pod(&apply_pod(&mut intake(), &pod).observations).refused.unwrap();
    assert_eq!((refused.kind, refused.field.as_str()), (RefusalKind::Invalid, "spec.nodeSelector[not a key]"));
    pod["spec"]["nodeName"] = json!("n1");
    let placed = the_pod(&apply_pod(&mut intake(), &pod).observations);
    assert_eq!(placed.class.requests, [("cpu".to_owned(), 1500)].into());
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("many");
    let errors = apply_pod(&mut intake(), &pod).errors;
    assert!(errors[0].starts_with("Pod ml/a: spec.containers[0].resources.requests[cpu]"), "{errors:?}");
}

#[test]
fn a_kubelet_rejection_is_distinguished_from_a_failure() {
    for (phase, reason, expected) in [
        ("Pending", "", Phase::Pending),
        ("Running", "", Phase::Running),
        ("Succeeded", "", Phase::Succeeded),
        ("Failed", "", Phase::Failed),
        ("Failed", "Evicted", Phase::Failed),
        ("Failed", "OutOfcpu", Phase::Rejected),
        ("Failed", "OutOfnvidia.com/gpu", Phase::Rejected),
        ("Failed", "UnexpectedAdmissionError", Phase::Rejected),
    ] {
        let mut pod = pod_json("a", &json!({}));
        pod["status"] = json!({"phase": phase, "reason": reason});
        assert_eq!(the_pod(&apply_pod(&mut intake(), &pod).observations).phase, expected, "{phase} {reason}");
    }
}

#[test]
fn a_relist_removes_objects_that_were_deleted_unseen() {
    let mut intake = intake();
    for name in ["a", "b"] {
        apply_pod(&mut intake, &pod_json(name, &json!({"muster.dev/pod-group": "g"})));
    }
    apply_group(&mut intake, POD_GROUPS, &gang("g"));
    assert!(!intake.has_synced());
    intake.handle(WatchEvent::Pod(Delta::ListStarted), 0);
    intake.handle(WatchEvent::Pod(Delta::Listed(guarded(&pod_json("b", &json!({}))))), 0);
    let gone = intake.handle(WatchEvent::Pod(Delta::ListDone), 0).observations;
    assert_eq!(gone, [Observation::PodGone { uid: "uid-a".to_owned() }]);
    intake.handle(WatchEvent::Group(POD_GROUPS, Delta::ListStarted), 0);
    let gone = intake.handle(WatchEvent::Group(POD_GROUPS, Delta::ListDone), 0).observations;
    assert!(matches!(&gone[..], [Observation::GroupGone { key }] if key.name == "g"), "{gone:?}");
    for event in
        [WatchEvent::Node(Delta::ListStarted), WatchEvent::Node(Delta::ListDone), WatchEvent::Class(Delta::ListStarted)]
    {
        intake.handle(event, 0);
    }
    for dialect in [WORKLOADS, NATIVE, NATIVE_WORKLOADS] {
        intake.handle(WatchEvent::Group(dialect, Delta::ListStarted), 0);
        intake.handle(WatchEvent::Group(dialect, Delta::ListDone), 0);
    }
    intake.handle(WatchEvent::Class(Delta::ListDone), 0);
    assert!(!intake.has_synced());
    let budget = json!({"metadata": {"namespace": "ml", "name": "keep"}, "spec": {"selector": {}}});
    let seen = intake.handle(WatchEvent::Budget(Delta::Applied(guarded(&budget))), 0).observations;
    assert!(matches!(&seen[..], [Observation::BudgetSeen(spec)] if spec.name == "keep"), "{seen:?}");
    intake.handle(WatchEvent::Budget(Delta::ListStarted), 0);
    let gone = intake.handle(WatchEvent::Budget(Delta::ListDone), 0).observations;
    assert_eq!(gone, [Observation::BudgetGone { namespace: "ml".to_owned(), name: "keep".to_owned() }]);
    assert!(!intake.has_synced());
    let namespace = json!({"metadata": {"name": "ml", "labels": {"team": "a"}}});
    let seen = intake.handle(WatchEvent::Namespace(Delta::Applied(guarded(&namespace))), 0).observations;
    let labels = [("team".to_owned(), "a".to_owned())].into();
    assert_eq!(seen, [Observation::NamespaceSeen { name: "ml".to_owned(), labels }]);
    intake.handle(WatchEvent::Namespace(Delta::ListStarted), 0);
    let gone = intake.handle(WatchEvent::Namespace(Delta::ListDone), 0).observations;
    assert_eq!(gone, [Observation::NamespaceGone { name: "ml".to_owned() }]);
    assert!(!intake.has_synced());
    for kind in Storage::ALL {
        assert!(!intake.has_synced());
        intake.handle(WatchEvent::Storage(kind, Delta::ListStarted), 0);
        intake.handle(WatchEvent::Storage(kind, Delta::ListDone), 0);
    }
    assert!(intake.has_synced());
}

#[test]
fn a_group_outside_of_kube_system_cannot_have_a_priority_of_the_system() {
    let mut intake = intake();
    apply_class(&mut intake, "system-node-critical", 2_000_001_000, false);
    let spec = json!({"policy": {"gang": {"minCount": 3}}, "priorityClassName": "system-node-critical"});
    let mut object = group_json("g", &spec, &json!([]));
    assert_eq!(apply_group(&mut intake, POD_GROUPS, &object), [], "the engine observes no such group");
    let key = ObjectKey { dialect: POD_GROUPS, namespace: "ml".to_owned(), name: "g".to_owned() };
    let group = intake.groups.instances_of(&key).next().unwrap().clone();
    let error = intake.groups.instance(&group).unwrap().error.clone().unwrap();
    let expected = "spec.priorityClassName: \"system-node-critical\": the priority 2000001000 is the system's";
    assert!(error.message.starts_with(expected), "{}", error.message);
    object["metadata"]["namespace"] = json!("kube-system");
    let seen = apply_group(&mut intake, POD_GROUPS, &object);
    assert_eq!(the_group(&seen).priority, GroupPriority::Own(2_000_001_000));
}

#[test]
fn a_group_priority_comes_from_its_class_and_never_from_a_bare_number() {
    let mut intake = intake();
    let with = |more: Value| {
        let mut spec = json!({"policy": {"gang": {"minCount": 3}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        group_json("g", &spec, &json!([]))
    };
    let priority = |observations: &[Observation]| the_group(observations).priority;
    assert_eq!(priority(&apply_group(&mut intake, POD_GROUPS, &with(json!({})))), GroupPriority::Own(0));
    assert_eq!(priority(&apply_class(&mut intake, "base", 10, true)), GroupPriority::Own(10));
    let gone = apply_group(&mut intake, POD_GROUPS, &with(json!({"priorityClassName": "high"})));
    assert!(matches!(gone[..], [Observation::GroupGone { .. }]), "the class is not there: {gone:?}");
    assert_eq!(priority(&apply_class(&mut intake, "high", 1000, false)), GroupPriority::Own(1000));
    let gone = apply_group(&mut intake, POD_GROUPS, &with(json!({"priorityClassName": "high", "priority": 7})));
    assert!(matches!(gone[..], [Observation::GroupGone { .. }]), "{gone:?}");
    let native = json!({
        "schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}},
        "priorityClassName": "high", "priority": 7,
    });
    let seen = apply_group(&mut intake, NATIVE, &group_json("n", &native, &json!([])));
    assert_eq!(priority(&seen), GroupPriority::Own(7), "the server has resolved it");
    let subsets = json!({"subsets": [{"name": "ps", "minMember": 1}]});
    let seen = apply_group(&mut intake, POD_GROUPS, &group_json("s", &subsets, &json!([])));
    assert_eq!(priority(&seen), GroupPriority::SharedByMembers);
}

/// An intake that knows these classes: name, value and whether it is the default.
fn intake_with_classes(classes: &[(&str, i32, bool)]) -> Intake {
    let mut intake = intake();
    intake.handle(WatchEvent::Class(Delta::ListStarted), 0);
    for (name, value, default) in classes {
        let class = json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
        intake.handle(WatchEvent::Class(Delta::Listed(guarded(&class))), 0);
    }
    intake.handle(WatchEvent::Class(Delta::ListDone), 0);
    intake
}

#[test]
fn later_changes_of_classes_change_no_group() {
    let mut intake = intake_with_classes(&[("high", 1000, false)]);
    let spec = |more: Value| {
        let mut spec = json!({"policy": {"gang": {"minCount": 3}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        spec
    };
    let none = json!([]);
    let priority = |observations: &[Observation]| the_group(observations).priority;
    let seen = apply_group(&mut intake, POD_GROUPS, &group_json("plain", &spec(json!({})), &none));
    assert_eq!(priority(&seen), GroupPriority::Own(0));
    let named = json!({"priorityClassName": "high"});
    let seen = apply_group(&mut intake, POD_GROUPS, &group_json("named", &spec(named.clone()), &none));
    assert_eq!(priority(&seen), GroupPriority::Own(1000));
    let high = json!({"metadata": {"name": "high"}, "value": 1000});
    let gone = intake.handle(WatchEvent::Class(Delta::Deleted(guarded(&high))), 0).observations;
    assert_eq!(gone, [], "the class is gone");
    assert_eq!(apply_class(&mut intake, "base", 10, true), [], "there is a default now");
    assert_eq!(apply_class(&mut intake, "high", 5, false), [], "the class has another value");
    // A wrong number is an error about the object, and can be corrected.
    let wrong = spec(json!({"priorityClassName": "high", "priority": 5}));
    let gone = apply_group(&mut intake, POD_GROUPS, &group_json("named", &wrong, &none));
    assert!(matches!(gone[..], [Observation::GroupGone { .. }]), "{gone:?}");
    let right = spec(json!({"priorityClassName": "high", "priority": 1000}));
    let seen = apply_group(&mut intake, POD_GROUPS, &group_json("named", &right, &none));
    assert_eq!(priority(&seen), GroupPriority::Own(1000));
    let seen = apply_group(&mut intake, POD_GROUPS, &group_json("late", &spec(named), &none));
    assert_eq!(priority(&seen), GroupPriority::Own(5), "a later group has the value of its time");
}

#[test]
fn priority_is_remembered_across_restarts_by_the_status() {
    let mut intake = intake_with_classes(&[("high", 5, false), ("base", 10, true)]);
    let recorded = |message: &str| json!([{"type": "PriorityResolved", "status": "True", "reason": "Resolved", "message": message}]);
    let spec = json!({"policy": {"gang": {"minCount": 3}}});
    let named = json!({"policy": {"gang": {"minCount": 3}}, "priorityClassName": "high"});
    let mut priority = |name: &str, spec: &Value, conditions: &Value| {
        the_group(&apply_group(&mut intake, POD_GROUPS, &group_json(name, spec, conditions))).priority
    };
    assert_eq!(priority("a", &spec, &recorded("The priority is 0.")), GroupPriority::Own(0));
    let high = recorded("The priority is 1000, of PriorityClass high.");
    assert_eq!(priority("b", &named, &high), GroupPriority::Own(1000));
    assert_eq!(priority("c", &spec, &high), GroupPriority::Own(10), "it is about another class");
    assert_eq!(priority("d", &spec, &json!([])), GroupPriority::Own(10), "nothing is recorded");
}

#[test]
fn each_disabled_gate_falls_back_as_documented() {
    let off = |change: fn(&mut FeatureGates)| {
        let mut gates = FeatureGates::default();
        change(&mut gates);
        intake_with(gates)
    };
    let group = |intake: &mut Intake, spec: &Value| {
        the_group(&apply_group(intake, POD_GROUPS, &group_json("g", spec, &json!([]))))
    };
    let gang = json!({"policy": {"gang": {"minCount": 3}}});
    let basic = json!({"policy": {"basic": {"desiredCount": 4}}});
    let none = Policy::Basic { desired_count: None };
    assert_eq!(group(&mut off(|gates| gates.gang_scheduling = false), &gang).policy, none);
    assert_eq!(group(&mut off(|gates| gates.basic_policy_desired_count = false), &basic).policy, none);
    let lowest = group(&mut off(|gates| gates.workload_aware_preemption = false), &gang).priority;
    assert_eq!(lowest, GroupPriority::LowestMember);
    let mut alone = off(|gates| gates.generic_workload = false);
    let pod = the_pod(&apply_pod(&mut alone, &pod_json("a", &json!({"muster.dev/pod-group": "g"}))).observations);
    assert_eq!((pod.membership, pod.refused), (None, None));
}

/// A start that is recorded without its time.
fn started_with(minimum: Option<Vec<Subset>>) -> RecordedStart {
    RecordedStart::Confirmed { minimum, decided_ms: None }
}

#[test]
fn the_start_and_its_minimum_are_read_from_the_api() {
    let started = |reason: &str| json!([{"type": "Started", "status": "True", "reason": reason, "message": ""}]);
    let spec = json!({"policy": {"gang": {"minCount": 3}}});
    let of = |conditions: &Value| {
        the_group(&apply_group(&mut intake(), POD_GROUPS, &group_json("g", &spec, conditions))).recorded
    };
    let with = |min_member| started_with(Some(vec![Subset { name: String::new(), min_member }]));
    assert_eq!(of(&json!([])), RecordedStart::None);
    assert_eq!(of(&started("WithMinimum3")), with(3));
    assert_eq!(of(&started("WithMinimum2")), with(2));
    let lost = json!({"type": "Started", "status": "False", "reason": "NothingLeft"});
    assert_eq!(of(&json!([lost])), RecordedStart::None);
    let scheduled = json!({"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"});
    assert_eq!(of(&json!([scheduled])), started_with(None), "it was a basic group");
    assert_eq!(of(&json!([scheduled, lost])), RecordedStart::None);
    let native = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}}});
    let by_others = json!([{"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled"}]);
    let seen = the_group(&apply_group(&mut intake(), NATIVE, &group_json("g", &native, &by_others)));
    assert_eq!(seen.recorded, started_with(None));
}

#[test]
fn groups_of_1_36_are_read() {
    let mut intake = intake_of(FeatureGates::default(), Box::new(NativePodGroup(NativeVersion::V1alpha2)));
    apply_class(&mut intake, "high", 1000, false);
    let spec = json!({
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        "schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": "PodGroup",
        "priorityClassName": "high", "priority": 1000,
    });
    let by_others = json!([{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"}]);
    let seen = the_group(&apply_group(&mut intake, NATIVE, &group_json("g", &spec, &by_others)));
    assert_eq!((seen.policy, seen.priority), (Policy::Gang { min_count: 3 }, GroupPriority::Own(1000)));
    assert_eq!(seen.disruption_mode, muster_engine::model::group::DisruptionMode::Group);
    assert_eq!(seen.recorded, started_with(None));
    // A server without the feature gate for priorities drops both the priority and the mode.
    let spec = json!({"podGroupTemplateRef": null, "schedulingPolicy": {"basic": {}}});
    let seen = the_group(&apply_group(&mut intake, NATIVE, &group_json("b", &spec, &json!([]))));
    assert_eq!((seen.priority, seen.recorded), (GroupPriority::LowestMember, RecordedStart::None));
    let with = |more: Value| {
        let mut spec = spec.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        NativePodGroup(NativeVersion::V1alpha2).read(&group_json("x", &spec, &json!([])).to_string()).groups
    };
    let error = with(json!({"disruptionMode": "Pods"})).unwrap_err().message;
    assert!(error.contains("spec.disruptionMode"), "{error}");
    let groups = with(json!({"schedulingConstraints": {"topology": [{"key": "rack"}]}})).unwrap();
    let topology = groups[0].1.topology.as_deref().unwrap();
    assert_eq!((&topology.levels[..], topology.required), (&["rack".to_owned()][..], Some(0)));
    assert_eq!(topology.choice, muster_engine::model::topology::DomainChoice::MostAllocated);
}

#[test]
fn a_workload_of_1_35_has_groups_and_replicas_and_no_history() {
    let mut intake = intake();
    let spec = json!({"podGroups": [
        {"name": "workers", "policy": {"gang": {"minCount": 3}}}, {"name": "ps", "policy": {"basic": {}}},
    ]});
    apply_group(&mut intake, NATIVE_WORKLOADS, &group_json("w", &spec, &json!([])));
    let pod = |name: &str, reference: Value| {
        let mut pod = pod_json(name, &json!({}));
        pod["spec"]["workloadRef"] = reference;
        pod
    };
    let member = |key: &str| json!({"name": "w", "podGroup": "workers", "podGroupReplicaKey": key});
    let seen = apply_pod(&mut intake, &pod("a", member("0"))).observations;
    let group = the_group(&seen);
    assert_eq!((group.policy, group.priority), (Policy::Gang { min_count: 3 }, GroupPriority::LowestMember));
    assert_eq!(group.recorded, started_with(None), "only bound members show that it has started");
    assert_eq!((group.key.name.as_str(), group.key.replica.as_str()), ("w/workers", "0"));
    let seen = apply_pod(&mut intake, &pod("b", member("1"))).observations;
    assert_eq!(the_group(&seen).key.replica, "1", "each replica is a group of its own");
    let broken = the_pod(&apply_pod(&mut intake, &pod("c", json!({"name": "w", "podGroup": "A"}))).observations);
    assert_eq!(broken.refused.expect("a bad name").field, "spec.workloadRef.podGroup");
    let object = NativeWorkload.read(&group_json("x", &json!({"podGroups": []}), &json!([])).to_string());
    assert!(object.groups.unwrap_err().message.contains("spec.podGroups"));
}

#[test]
fn an_unusable_object_has_an_error_message() {
    let native = |more: Value| {
        let mut spec = json!({"schedulingPolicy": {"gang": {"minCount": 3}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        (NATIVE, spec)
    };
    for ((dialect, spec), expected) in [
        ((POD_GROUPS, json!({"policy": {"gang": {"minCount": 0}}})), "spec.policy.gang.minCount"),
        ((POD_GROUPS, json!({"policy": {"gang": {"minCount": 1}}, "degradedPolicy": "Kill"})), "spec.degradedPolicy"),
        ((POD_GROUPS, json!({"policy": "gang"})), "cannot be read"),
        (
            (POD_GROUPS, json!({"policy": {"gang": {"minCount": 1}}, "topology": [{"key": "rack", "mode": "Must"}]})),
            "spec.topology[0].mode",
        ),
        (native(json!({"parentCompositePodGroupName": "p"})), "spec.workloadRef"),
        (native(json!({"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]})), "spec.resourceClaims[0].name"),
        (native(json!({"schedulingPolicy": {"gang": {"minCount": -1}}})), "spec.schedulingPolicy.gang.minCount"),
    ] {
        let mut intake = intake();
        assert!(apply_group(&mut intake, dialect, &group_json("g", &spec, &json!([]))).is_empty(), "{spec}");
        let key = ObjectKey { dialect, namespace: "ml".to_owned(), name: "g".to_owned() };
        let group = intake.groups.instances_of(&key).next().unwrap().clone();
        let error = intake.groups.instance(&group).unwrap().error.clone().unwrap();
        assert!(error.message.contains(expected), "{} should name {expected}", error.message);
    }
}

#[test]
fn an_older_version_of_a_group_is_ignored() {
    let mut intake = intake();
    let version = |version: &str, count: i32| {
        let mut object = group_json("g", &json!({"policy": {"gang": {"minCount": count}}}), &json!([]));
        object["metadata"]["resourceVersion"] = json!(version);
        object
    };
    apply_group(&mut intake, POD_GROUPS, &version("10", 3));
    assert!(apply_group(&mut intake, POD_GROUPS, &version("9", 2)).is_empty());
    assert_eq!(
        the_group(&apply_group(&mut intake, POD_GROUPS, &version("11", 4))).policy,
        Policy::Gang { min_count: 4 }
    );
}

#[test]
fn unreadable_pods_and_nodes_are_logged_and_skipped() {
    let mut intake = intake();
    let bad = json!({"metadata": {"name": "a", "namespace": "ml", "uid": "u"}, "spec": {"containers": 7}});
    let output = apply_pod(&mut intake, &bad);
    assert!(output.observations.is_empty() && output.errors[0].starts_with("Pod ml/a cannot be read"));
    assert_eq!(output.pod_events[0].1, UNREADABLE);
    let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "many"}}});
    let output = intake.handle(WatchEvent::Node(Delta::Applied(guarded(&node))), 0);
    assert!(output.observations.is_empty() && output.errors[0].starts_with("Node n1: status.allocatable[cpu]"));
}
