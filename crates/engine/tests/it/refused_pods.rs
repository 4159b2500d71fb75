//! Pods of which something cannot be honoured: they wait and say why, and hold back their group only before its start.

use std::sync::Arc;

use muster_engine::diagnosis::Waiting;
use muster_engine::model::pod::{PodRefusal, PodSpec, RefusalKind};
use muster_engine::{BindOutcome, Command, Diagnosis, Observation, Subject};

use crate::world::World;

fn refuse(kind: RefusalKind) -> impl Fn(&mut PodSpec) {
    move |pod| {
        let field = "spec.affinity.podAffinity".into();
        pod.refused = Some(Arc::new(PodRefusal { kind, field, value: "zone".into(), reason: String::new() }));
    }
}

fn unsupported(pod: &mut PodSpec) {
    refuse(RefusalKind::Unsupported)(pod);
}

fn accept(world: &mut World, name: &str) {
    let uid = world.uid(name);
    world.change(&uid, |pod| pod.refused = None);
}

/// What was last reported of a pod.
fn told(world: &World, name: &str) -> Option<String> {
    let subject = Subject::Pod(world.pods[&world.uid(name)].id.clone());
    let last = world.reports.iter().rev().find(|report| report.subject == subject)?;
    Some(last.diagnosis.to_string())
}

const TEXT: &str = "Pod ns/p: spec.affinity.podAffinity (\"zone\") is not supported yet.";

#[test]
fn a_single_pod_is_told_at_once_and_placed_when_the_refusal_goes() {
    let mut world = World::new();
    world.node("n0", 4);
    world.pod_with("p", "", 1, unsupported);
    world.settle();
    assert_eq!((world.now, world.bound().len()), (0, 0));
    assert_eq!(told(&world, "p").as_deref(), Some(TEXT));
    accept(&mut world, "p");
    let subject = Subject::Pod(world.pods[&world.uid("p")].id.clone());
    assert_eq!(world.engine.engine().explain(&subject), None, "it is no longer said");
    world.settle();
    assert_eq!(world.bound(), ["p"]);
}

#[test]
fn a_pod_that_is_refused_later_leaves_the_queue_and_its_nomination() {
    let mut world = World::new();
    world.node("n0", 1);
    let uid = world.pod_with("p", "", 2, |pod| pod.nominated = Some("n0".into()));
    world.change(&uid, unsupported);
    world.node("n1", 2);
    world.pass(60_000);
    assert_eq!(told(&world, "p").as_deref(), Some(TEXT));
    assert_eq!(world.pods[&uid].nominated, None);
    assert_eq!(world.bound().len(), 0);
}

#[test]
fn one_refused_member_holds_the_whole_group_before_its_start() {
    for (kind, reason) in [(RefusalKind::Unsupported, "Unsupported"), (RefusalKind::Reference, "Invalid")] {
        for gang in [true, false] {
            let mut world = World::new();
            world.node("n0", 4);
            world.pod_with("p", "g", 1, refuse(kind));
            world.pods_of("a", "g", 2, 1);
            if gang {
                world.gang("g", 2);
            } else {
                world.basic("g", None);
            }
            world.settle();
            assert_eq!((world.now, world.bound().len()), (0, 0));
            assert_eq!(world.reasons("g"), [reason], "told at once");
            assert!(told(&world, "p").is_some(), "the pod itself is told too");
            accept(&mut world, "p");
            world.settle();
            assert_eq!(world.bound().len(), 3);
        }
    }
}

#[test]
fn the_refused_are_counted_and_one_of_them_is_named() {
    let mut world = World::new();
    world.gang("g", 9);
    for name in ["p", "q", "r"] {
        world.pod_with(name, "g", 1, unsupported);
    }
    world.pod("a", "g", 1);
    world.pass(6_000);
    let Diagnosis::Waiting(Waiting::PodRefused { pod, pods: 3, .. }) = world.why_group("g") else {
        panic!("{:?}", world.why_group("g"));
    };
    assert_eq!(pod, "ns/p");
    assert_eq!(world.reasons("g"), ["Unsupported", "Unsupported"], "at once, and when the count had come to rest");
}

#[test]
fn a_refused_member_is_there_although_it_may_not_start() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pod("a", "g", 1);
    world.pod_with("p", "g", 1, unsupported);
    world.settle();
    accept(&mut world, "p");
    world.settle();
    assert_eq!(world.bound(), ["a", "p"]);
    assert_eq!(world.reasons("g"), ["Unsupported", "Scheduled"], "members were never missing");
}

#[test]
fn a_refused_newcomer_holds_back_only_itself_and_says_so() {
    let mut world = World::new();
    world.node("n0", 8);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.settle();
    world.pod_with("p", "g", 1, unsupported);
    world.remove("a-0");
    world.pod("replacement", "g", 1);
    world.settle();
    assert_eq!(world.bound(), ["a-1", "replacement"]);
    assert_eq!(told(&world, "p").as_deref(), Some(TEXT));
    assert_eq!(world.reasons("g"), ["Scheduled"]);
}

#[test]
fn a_bound_pod_takes_room_and_counts_whatever_is_refused_of_it() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pod_with("p", "g", 1, |pod| {
        unsupported(pod);
        pod.node = Some("n0".into());
    });
    world.pod("a", "g", 1);
    world.pod("late", "", 1);
    world.pass(1_000);
    assert_eq!(world.bound(), ["a", "p"]);
    assert_eq!(told(&world, "p"), None);
}

#[test]
fn a_pod_that_is_refused_on_its_way_is_not_tried_again_elsewhere() {
    let mut world = World::new();
    world.node("n0", 1);
    world.node("n1", 1);
    let uid = world.pod("p", "", 1);
    world.decide_all();
    let Some(Command::Bind { pod, node }) = world.in_flight.pop() else { panic!("it fits") };
    world.change(&uid, unsupported);
    assert_eq!(told(&world, "p"), None, "it has a place");
    let outcome = BindOutcome::Refused { message: "no".into() };
    world.show(Observation::BindDone { pod, node, outcome });
    world.pass(60_000);
    assert_eq!(world.bound().len(), 0);
    assert_eq!(told(&world, "p").as_deref(), Some(TEXT));
}

#[test]
fn a_refusal_is_told_before_gates_and_instead_of_an_unknown_subset() {
    let mut world = World::new();
    world.subsets("g", &[("x", 1), ("y", 1)]);
    world.pod_with("p", "g", 1, |pod| {
        unsupported(pod);
        pod.gated = true;
    });
    world.pass(6_000);
    assert_eq!(told(&world, "p").as_deref(), Some(TEXT));
    accept(&mut world, "p");
    let uid = world.uid("p");
    world.change(&uid, |pod| pod.gated = false);
    world.pass(6_000);
    assert_eq!(told(&world, "p").as_deref(), Some("The group ns/g has several subsets and the pod names none."));
}

#[test]
fn a_start_that_lacks_a_refused_member_is_not_filled_up_with_others() {
    let mut world = World::new();
    world.node("n0", 4);
    world.subsets("g", &[("x", 1), ("y", 2)]);
    for (name, subset) in [("x0", "x"), ("y0", "y"), ("y1", "y")] {
        world.pod_with(name, "g", 1, |pod| pod.membership.as_mut().expect("a member").subset = subset.into());
    }
    world.decide_all();
    // One is bound, two are refused by the API, and one of those cannot be honoured any more.
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Bind { pod, node } = command else { panic!("{command:?}") };
        if pod.name == "y0" {
            world.carry_out(Command::Bind { pod, node });
        } else {
            let outcome = BindOutcome::Refused { message: "no".into() };
            world.show(Observation::BindDone { pod, node, outcome });
        }
    }
    world.node("n1", 4);
    let uid = world.uid("x0");
    world.change(&uid, unsupported);
    world.pass(60_000);
    assert_eq!(world.bound(), ["y0"], "without a leader there is no start");
    accept(&mut world, "x0");
    world.pass(60_000);
    assert_eq!(world.bound(), ["x0", "y0", "y1"]);
}
