//! Objects in, observations out: what pods and groups become, and what is told of those that make no sense.

use muster_engine::model::company::Spread;
use muster_engine::model::group::{GroupPriority, GroupSpec, History, Policy};
use muster_engine::model::pod::{Phase, PodSpec, RefusalKind};
use serde_json::{Value, json};

use super::*;
use crate::dialect::{MusterPodGroup, MusterWorkload, NativePodGroup, NativePodGroupV1alpha2, NativeWorkload};

const WORKLOADS: usize = 0;
const POD_GROUPS: usize = 1;
const NATIVE: usize = 2;
const NATIVE_WORKLOADS: usize = 3;

fn intake_with(gates: FeatureGates) -> Intake {
    intake_of(gates, Box::new(NativePodGroup::V1BETA1))
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

fn see(intake: &mut Intake, pod: &Value) -> Catch {
    intake.take(News::Pod(Turn::Seen(guarded(pod))), 0)
}

fn see_group(intake: &mut Intake, dialect: usize, object: &Value) -> Vec<Observation> {
    let object: RawObject = serde_json::from_str(&object.to_string()).unwrap();
    intake.take(News::Group(dialect, Turn::Seen(object)), 0).observations
}

fn see_class(intake: &mut Intake, name: &str, value: i32, default: bool) -> Vec<Observation> {
    let class = json!({"metadata": {"name": name}, "value": value, "globalDefault": default});
    intake.take(News::Class(Turn::Seen(guarded(&class))), 0).observations
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
    let pod = pods.next().expect("a pod is told of");
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
fn a_pod_is_told_of_with_what_matters() {
    let mut intake = intake();
    let mut pod = pod_json("a", &json!({}));
    pod["spec"]["containers"][0]["ports"] = json!([{"containerPort": 80, "hostPort": 8080, "hostIP": "0.0.0.0"}]);
    pod["spec"]["tolerations"] = json!([{"key": "gpu", "operator": "Exists"}]);
    pod["spec"]["schedulingGates"] = json!([{"name": "quota"}]);
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "x", "controller": true}]);
    pod["status"] = json!({"nominatedNodeName": "n1"});
    let spec = the_pod(&see(&mut intake, &pod).observations);
    assert_eq!((spec.priority, spec.ours, spec.gated, spec.controlled), (7, true, true, true));
    assert_eq!(spec.class.requests, [("cpu".to_owned(), 1500)].into());
    assert_eq!((spec.class.host_ports[0].port, &spec.class.host_ports[0].address), (8080, &None));
    assert_eq!(spec.class.tolerations[0].key.as_deref(), Some("gpu"));
    assert_eq!((spec.nominated.as_deref(), spec.created_ms), (Some("n1"), 1_893_456_010_000));
    assert_eq!((spec.membership, spec.refused), (None, None));
}

#[test]
fn a_pod_joins_its_group_whichever_comes_first() {
    let annotations = json!({"muster.dev/pod-group": "g", "muster.dev/subset": "ps"});
    let mut intake = intake();
    let first = the_pod(&see(&mut intake, &pod_json("a", &annotations)).observations).membership.unwrap();
    assert_eq!((first.group.to_string(), first.subset.as_str()), ("ml/g".to_owned(), "ps"));
    let group = the_group(&see_group(&mut intake, POD_GROUPS, &gang("g")));
    assert_eq!((&group.key, &group.policy), (&first.group, &Policy::Gang { min_count: 3 }));
    let later = the_pod(&see(&mut intake, &pod_json("b", &annotations)).observations).membership.unwrap();
    assert_eq!(later.group, group.key);
    assert!(see_group(&mut intake, POD_GROUPS, &gang("g")).is_empty(), "nothing new is not told");
}

#[test]
fn each_replica_of_a_workloads_group_is_a_gang_of_its_own() {
    let mut intake = intake();
    let spec = json!({"podGroups": [{"name": "worker", "policy": {"gang": {"minCount": 2}}}]});
    assert!(see_group(&mut intake, WORKLOADS, &group_json("w", &spec, &json!([]))).is_empty());
    let annotations = |group: &str, key: &str| json!({"muster.dev/workload": "w", "muster.dev/pod-group": group, "muster.dev/replica-key": key});
    let first = see(&mut intake, &pod_json("a", &annotations("worker", "0")));
    assert_eq!(the_group(&first.observations).key.to_string(), "ml/w/worker[0]");
    let second = see(&mut intake, &pod_json("b", &annotations("worker", "1")));
    assert_eq!(the_group(&second.observations).key.to_string(), "ml/w/worker[1]");
    let lost = see(&mut intake, &pod_json("c", &annotations("ghost", "")));
    let key = the_pod(&lost.observations).membership.unwrap().group;
    assert_eq!(lost.observations.len(), 1, "the engine is told of no such group");
    let flaw = intake.groups.instance(&key).unwrap().flaw.clone().unwrap();
    assert_eq!(flaw.message, "it has no group \"ghost\"; it has worker");
    let gone = intake.take(News::Pod(Turn::Gone(guarded(&pod_json("a", &json!({}))))), 0).observations;
    assert!(
        matches!(&gone[..], [Observation::PodGone { .. }, Observation::GroupGone { key }] if key.replica == "0"),
        "{gone:?}"
    );
}

#[test]
fn a_reference_is_fixed_when_the_pod_is_first_seen() {
    let mut intake = intake();
    see(&mut intake, &pod_json("a", &json!({"muster.dev/pod-group": "g"})));
    for (annotations, notes) in [
        (json!({"muster.dev/pod-group": "h"}), 1),
        (json!({"muster.dev/pod-group": "h"}), 0),
        (json!({}), 1),
        (json!({"muster.dev/pod-group": "g"}), 0),
    ] {
        let catch = see(&mut intake, &pod_json("a", &annotations));
        assert_eq!(the_pod(&catch.observations).membership.unwrap().group.name, "g");
        assert_eq!(catch.notes.len(), notes, "{annotations}");
        assert!(catch.notes.iter().all(|(_, reason, _)| *reason == GROUP_REFERENCE_CHANGED));
    }
}

#[test]
fn a_broken_or_contradicting_reference_holds_the_pod_for_ever() {
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
        let refused = the_pod(&see(&mut intake, &pod_json("a", &annotations)).observations).refused.unwrap();
        assert_eq!((refused.kind, refused.field.as_str()), (RefusalKind::Reference, field));
        let mended = the_pod(&see(&mut intake, &pod_json("a", &json!({"muster.dev/pod-group": "g"}))).observations);
        assert!(mended.refused.is_some() && mended.membership.is_none(), "it is not placed alone either");
    }
    let mut both = pod_json("a", &json!({"muster.dev/pod-group": "g"}));
    both["spec"]["schedulingGroup"] = json!({"podGroupName": "g"});
    let catch = see(&mut intake(), &both);
    assert_eq!(catch.notes[0].1, GROUP_REFERENCE_CONFLICT);
    assert!(the_pod(&catch.observations).refused.is_some());
}

#[test]
fn what_cannot_be_honoured_is_refused_by_field() {
    for (field, value, expected) in [
        (
            "volumes",
            json!([{"name": "tmp", "emptyDir": {}}, {"name": "data", "csi": {"driver": "d"}}]),
            "spec.volumes[1].csi",
        ),
        ("volumes", json!([{"name": "v", "ephemeral": {}}]), "spec.volumes[0].ephemeral"),
        ("resourceClaims", json!([{"name": "gpu", "resourceClaimName": "c"}]), "spec.resourceClaims[0].name"),
    ] {
        let mut pod = pod_json("a", &json!({}));
        pod["spec"][field] = value;
        let refused = the_pod(&see(&mut intake(), &pod).observations).refused.unwrap();
        assert_eq!((refused.kind, refused.field.as_str()), (RefusalKind::Unsupported, expected));
        pod["spec"]["schedulerName"] = json!("other");
        assert!(the_pod(&see(&mut intake(), &pod).observations).refused.is_none(), "others' pods are their matter");
    }
}

#[test]
fn a_field_that_makes_no_sense_is_refused_and_a_placed_pod_takes_room() {
    let mut pod = pod_json("a", &json!({}));
    pod["spec"]["nodeSelector"] = json!({"not a key": "x"});
    let refused = the_pod(&see(&mut intake(), &pod).observations).refused.unwrap();
    assert_eq!((refused.kind, refused.field.as_str()), (RefusalKind::Invalid, "spec.nodeSelector[not a key]"));
    pod["spec"]["nodeName"] = json!("n1");
    let placed = the_pod(&see(&mut intake(), &pod).observations);
    assert_eq!(placed.class.requests, [("cpu".to_owned(), 1500)].into());
    pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] = json!("many");
    let complaints = see(&mut intake(), &pod).complaints;
    assert!(complaints[0].starts_with("Pod ml/a: spec.containers[0].resources.requests[cpu]"), "{complaints:?}");
}

#[test]
fn phases_tell_a_kubelets_refusal_from_a_failure() {
    for (phase, reason, expected) in [
        ("Pending", "", Phase::Pending),
        ("Running", "", Phase::Running),
        ("Succeeded", "", Phase::Succeeded),
        ("Failed", "", Phase::Failed),
        ("Failed", "Evicted", Phase::Failed),
        ("Failed", "OutOfcpu", Phase::Refused),
        ("Failed", "OutOfnvidia.com/gpu", Phase::Refused),
        ("Failed", "UnexpectedAdmissionError", Phase::Refused),
    ] {
        let mut pod = pod_json("a", &json!({}));
        pod["status"] = json!({"phase": phase, "reason": reason});
        assert_eq!(the_pod(&see(&mut intake(), &pod).observations).phase, expected, "{phase} {reason}");
    }
}

#[test]
fn a_new_list_sweeps_what_went_away_unseen() {
    let mut intake = intake();
    for name in ["a", "b"] {
        see(&mut intake, &pod_json(name, &json!({"muster.dev/pod-group": "g"})));
    }
    see_group(&mut intake, POD_GROUPS, &gang("g"));
    assert!(!intake.is_synced());
    intake.take(News::Pod(Turn::Begin), 0);
    intake.take(News::Pod(Turn::Listed(guarded(&pod_json("b", &json!({}))))), 0);
    let swept = intake.take(News::Pod(Turn::Complete), 0).observations;
    assert_eq!(swept, [Observation::PodGone { uid: "uid-a".to_owned() }]);
    intake.take(News::Group(POD_GROUPS, Turn::Begin), 0);
    let swept = intake.take(News::Group(POD_GROUPS, Turn::Complete), 0).observations;
    assert!(matches!(&swept[..], [Observation::GroupGone { key }] if key.name == "g"), "{swept:?}");
    for news in [News::Node(Turn::Begin), News::Node(Turn::Complete), News::Class(Turn::Begin)] {
        intake.take(news, 0);
    }
    for dialect in [WORKLOADS, NATIVE, NATIVE_WORKLOADS] {
        intake.take(News::Group(dialect, Turn::Begin), 0);
        intake.take(News::Group(dialect, Turn::Complete), 0);
    }
    intake.take(News::Class(Turn::Complete), 0);
    assert!(!intake.is_synced());
    let budget = json!({"metadata": {"namespace": "ml", "name": "keep"}, "spec": {"selector": {}}});
    let seen = intake.take(News::Budget(Turn::Seen(guarded(&budget))), 0).observations;
    assert!(matches!(&seen[..], [Observation::BudgetSeen(spec)] if spec.name == "keep"), "{seen:?}");
    intake.take(News::Budget(Turn::Begin), 0);
    let swept = intake.take(News::Budget(Turn::Complete), 0).observations;
    assert_eq!(swept, [Observation::BudgetGone { namespace: "ml".to_owned(), name: "keep".to_owned() }]);
    assert!(!intake.is_synced());
    let namespace = json!({"metadata": {"name": "ml", "labels": {"team": "a"}}});
    let seen = intake.take(News::Namespace(Turn::Seen(guarded(&namespace))), 0).observations;
    let labels = [("team".to_owned(), "a".to_owned())].into();
    assert_eq!(seen, [Observation::NamespaceSeen { name: "ml".to_owned(), labels }]);
    intake.take(News::Namespace(Turn::Begin), 0);
    let swept = intake.take(News::Namespace(Turn::Complete), 0).observations;
    assert_eq!(swept, [Observation::NamespaceGone { name: "ml".to_owned() }]);
    assert!(!intake.is_synced());
    for kind in Storage::ALL {
        intake.take(News::Storage(kind, Turn::Begin), 0);
        intake.take(News::Storage(kind, Turn::Complete), 0);
    }
    assert!(intake.is_synced());
}

#[test]
fn a_groups_priority_is_its_class_and_never_a_bare_number() {
    let mut intake = intake();
    let with = |more: Value| {
        let mut spec = json!({"policy": {"gang": {"minCount": 3}}});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        group_json("g", &spec, &json!([]))
    };
    let priority = |observations: &[Observation]| the_group(observations).priority;
    assert_eq!(priority(&see_group(&mut intake, POD_GROUPS, &with(json!({})))), GroupPriority::Own(0));
    assert_eq!(priority(&see_class(&mut intake, "base", 10, true)), GroupPriority::Own(10));
    let gone = see_group(&mut intake, POD_GROUPS, &with(json!({"priorityClassName": "high"})));
    assert!(matches!(gone[..], [Observation::GroupGone { .. }]), "the class is not there: {gone:?}");
    assert_eq!(priority(&see_class(&mut intake, "high", 1000, false)), GroupPriority::Own(1000));
    let gone = see_group(&mut intake, POD_GROUPS, &with(json!({"priorityClassName": "high", "priority": 7})));
    assert!(matches!(gone[..], [Observation::GroupGone { .. }]), "{gone:?}");
    let native = json!({
        "schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}},
        "priorityClassName": "high", "priority": 7,
    });
    let seen = see_group(&mut intake, NATIVE, &group_json("n", &native, &json!([])));
    assert_eq!(priority(&seen), GroupPriority::Own(1000), "the class counts");
    let subsets = json!({"subsets": [{"name": "ps", "minMember": 1}]});
    let seen = see_group(&mut intake, POD_GROUPS, &group_json("s", &subsets, &json!([])));
    assert_eq!(priority(&seen), GroupPriority::SharedByMembers);
}

#[test]
fn each_gate_falls_back_as_it_says() {
    let off = |change: fn(&mut FeatureGates)| {
        let mut gates = FeatureGates::default();
        change(&mut gates);
        intake_with(gates)
    };
    let group = |intake: &mut Intake, spec: &Value| {
        the_group(&see_group(intake, POD_GROUPS, &group_json("g", spec, &json!([]))))
    };
    let gang = json!({"policy": {"gang": {"minCount": 3}}});
    let basic = json!({"policy": {"basic": {"desiredCount": 4}}});
    let none = Policy::Basic { desired_count: None };
    assert_eq!(group(&mut off(|gates| gates.gang_scheduling = false), &gang).policy, none);
    assert_eq!(group(&mut off(|gates| gates.basic_policy_desired_count = false), &basic).policy, none);
    let lowest = group(&mut off(|gates| gates.workload_aware_preemption = false), &gang).priority;
    assert_eq!(lowest, GroupPriority::LowestMember);
    let mut alone = off(|gates| gates.generic_workload = false);
    let pod = the_pod(&see(&mut alone, &pod_json("a", &json!({"muster.dev/pod-group": "g"}))).observations);
    assert_eq!((pod.membership, pod.refused), (None, None));
}

#[test]
fn the_api_remembers_a_start_and_its_minimum() {
    let started = |reason: &str| json!([{"type": "Started", "status": "True", "reason": reason, "message": ""}]);
    let spec = json!({"policy": {"gang": {"minCount": 3}}});
    let of = |conditions: &Value| {
        the_group(&see_group(&mut intake(), POD_GROUPS, &group_json("g", &spec, conditions))).history
    };
    assert_eq!(of(&json!([])), History::New);
    assert_eq!(of(&started("WithMinimum3")), History::Started);
    assert_eq!(of(&started("WithMinimum2")), History::StartedOtherwise);
    let lost = json!({"type": "Started", "status": "False", "reason": "NothingLeft"});
    assert_eq!(of(&json!([lost])), History::New);
    let scheduled = json!({"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"});
    assert_eq!(of(&json!([scheduled])), History::StartedOtherwise, "it was a basic group");
    assert_eq!(of(&json!([scheduled, lost])), History::New);
    let native = json!({"schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": {"single": {}}});
    let by_others = json!([{"type": "PodGroupInitiallyScheduled", "status": "True", "reason": "Scheduled"}]);
    let seen = the_group(&see_group(&mut intake(), NATIVE, &group_json("g", &native, &by_others)));
    assert_eq!(seen.history, History::StartedOtherwise);
}

#[test]
fn groups_of_1_36_say_the_same_in_other_words() {
    let mut intake = intake_of(FeatureGates::default(), Box::new(NativePodGroupV1alpha2));
    see_class(&mut intake, "high", 1000, false);
    let spec = json!({
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        "schedulingPolicy": {"gang": {"minCount": 3}}, "disruptionMode": "PodGroup",
        "priorityClassName": "high", "priority": 1000,
    });
    let by_others = json!([{"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled"}]);
    let seen = the_group(&see_group(&mut intake, NATIVE, &group_json("g", &spec, &by_others)));
    assert_eq!((seen.policy, seen.priority), (Policy::Gang { min_count: 3 }, GroupPriority::Own(1000)));
    assert_eq!(seen.disruption_mode, muster_engine::model::group::DisruptionMode::Group);
    assert_eq!(seen.history, History::StartedOtherwise);
    // A server without the gate for priorities keeps neither them nor the mode.
    let spec = json!({"podGroupTemplateRef": null, "schedulingPolicy": {"basic": {}}});
    let seen = the_group(&see_group(&mut intake, NATIVE, &group_json("b", &spec, &json!([]))));
    assert_eq!((seen.priority, seen.history), (GroupPriority::LowestMember, History::New));
    for (more, expected) in [
        (json!({"disruptionMode": "Pods"}), "spec.disruptionMode"),
        (json!({"schedulingConstraints": {"topology": [{"key": "rack"}]}}), "spec.schedulingConstraints"),
    ] {
        let mut spec = spec.clone();
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let object = NativePodGroupV1alpha2.read(&group_json("x", &spec, &json!([])).to_string());
        let flaw = object.groups.unwrap_err().message;
        assert!(flaw.contains(expected), "{flaw} should name {expected}");
    }
}

#[test]
fn a_workload_of_1_35_has_groups_and_replicas_and_no_memory() {
    let mut intake = intake();
    let spec = json!({"podGroups": [
        {"name": "workers", "policy": {"gang": {"minCount": 3}}}, {"name": "ps", "policy": {"basic": {}}},
    ]});
    see_group(&mut intake, NATIVE_WORKLOADS, &group_json("w", &spec, &json!([])));
    let pod = |name: &str, reference: Value| {
        let mut pod = pod_json(name, &json!({}));
        pod["spec"]["workloadRef"] = reference;
        pod
    };
    let member = |key: &str| json!({"name": "w", "podGroup": "workers", "podGroupReplicaKey": key});
    let seen = see(&mut intake, &pod("a", member("0"))).observations;
    let group = the_group(&seen);
    assert_eq!((group.policy, group.priority), (Policy::Gang { min_count: 3 }, GroupPriority::LowestMember));
    assert_eq!(group.history, History::StartedOtherwise, "bound members are the only witnesses");
    assert_eq!((group.key.name.as_str(), group.key.replica.as_str()), ("w/workers", "0"));
    let seen = see(&mut intake, &pod("b", member("1"))).observations;
    assert_eq!(the_group(&seen).key.replica, "1", "each replica is a group of its own");
    let broken = the_pod(&see(&mut intake, &pod("c", json!({"name": "w", "podGroup": "A"}))).observations);
    assert_eq!(broken.refused.expect("a bad name").field, "spec.workloadRef.podGroup");
    let object = NativeWorkload.read(&group_json("x", &json!({"podGroups": []}), &json!([])).to_string());
    assert!(object.groups.unwrap_err().message.contains("spec.podGroups"));
}

#[test]
fn an_object_that_cannot_be_used_says_why() {
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
            (
                POD_GROUPS,
                json!({"policy": {"gang": {"minCount": 1}}, "topology": [{"key": "rack", "mode": "Required"}]}),
            ),
            "spec.topology[0].key: \"rack\": is not supported yet",
        ),
        (native(json!({"parentCompositePodGroupName": "p"})), "spec.parentCompositePodGroupName"),
        (native(json!({"schedulingConstraints": {"topology": [{"key": "rack"}]}})), "spec.schedulingConstraints"),
        (native(json!({"resourceClaims": [{"name": "c", "resourceClaimName": "x"}]})), "spec.resourceClaims[0].name"),
        (native(json!({"schedulingPolicy": {"gang": {"minCount": -1}}})), "spec.schedulingPolicy.gang.minCount"),
    ] {
        let mut intake = intake();
        assert!(see_group(&mut intake, dialect, &group_json("g", &spec, &json!([]))).is_empty(), "{spec}");
        let key = ObjectKey { dialect, namespace: "ml".to_owned(), name: "g".to_owned() };
        let group = intake.groups.instances_of(&key).next().unwrap().clone();
        let flaw = intake.groups.instance(&group).unwrap().flaw.clone().unwrap();
        assert!(flaw.message.contains(expected), "{} should name {expected}", flaw.message);
    }
}

#[test]
fn old_news_of_a_group_changes_nothing() {
    let mut intake = intake();
    let version = |version: &str, count: i32| {
        let mut object = group_json("g", &json!({"policy": {"gang": {"minCount": count}}}), &json!([]));
        object["metadata"]["resourceVersion"] = json!(version);
        object
    };
    see_group(&mut intake, POD_GROUPS, &version("10", 3));
    assert!(see_group(&mut intake, POD_GROUPS, &version("9", 2)).is_empty());
    assert_eq!(the_group(&see_group(&mut intake, POD_GROUPS, &version("11", 4))).policy, Policy::Gang { min_count: 4 });
}

#[test]
fn unreadable_pods_and_nodes_are_complained_of_and_passed_over() {
    let mut intake = intake();
    let bad = json!({"metadata": {"name": "a", "namespace": "ml", "uid": "u"}, "spec": {"containers": 7}});
    let catch = see(&mut intake, &bad);
    assert!(catch.observations.is_empty() && catch.complaints[0].starts_with("Pod ml/a cannot be read"));
    assert_eq!(catch.notes[0].1, UNREADABLE);
    let node = json!({"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "many"}}});
    let catch = intake.take(News::Node(Turn::Seen(guarded(&node))), 0);
    assert!(catch.observations.is_empty() && catch.complaints[0].starts_with("Node n1: status.allocatable[cpu]"));
}
