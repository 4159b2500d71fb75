//! Pods with fields that cannot be honoured: they stay pending and report why, and block their group only before its
//! start.

use std::sync::Arc;

use muster_engine::diagnosis::Waiting;
use muster_engine::model::pod::{PodRefusal, PodSpec, RefusalKind};
use muster_engine::{BindOutcome, Command, Diagnosis, Observation, Subject};

use crate::fake_cluster::FakeCluster;

fn refuse(kind: RefusalKind) -> impl Fn(&mut PodSpec) {
    move |pod| {
        let field = "spec.affinity.podAffinity".into();
        pod.refused = Some(Arc::new(PodRefusal { kind, field, value: "zone".into(), reason: String::new() }));
    }
}

fn unsupported(pod: &mut PodSpec) {
    refuse(RefusalKind::Unsupported)(pod);
}

fn accept(fake: &mut FakeCluster, name: &str) {
    let uid = fake.uid(name);
    fake.change(&uid, |pod| pod.refused = None);
}

/// The last report about a pod.
fn last_report(fake: &FakeCluster, name: &str) -> Option<String> {
    let subject = Subject::Pod(fake.pods[&fake.uid(name)].id.clone());
    let last = fake.reports.iter().rev().find(|report| report.subject == subject)?;
    Some(last.diagnosis.to_string())
}

const TEXT: &str = "Pod ns/p: spec.affinity.podAffinity (\"zone\") is not supported yet.";

#[test]
fn refusal_of_a_single_pod_is_reported_at_once_and_can_be_lifted() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.pod_with("p", "", 1, unsupported);
    fake.settle();
    assert_eq!((fake.now, fake.bound().len()), (0, 0));
    assert_eq!(last_report(&fake, "p").as_deref(), Some(TEXT));
    accept(&mut fake, "p");
    let subject = Subject::Pod(fake.pods[&fake.uid("p")].id.clone());
    assert_eq!(fake.engine.engine().explain(&subject), None, "it is no longer reported");
    fake.settle();
    assert_eq!(fake.bound(), ["p"]);
}

#[test]
fn pod_refused_later_leaves_the_queue_and_loses_its_nomination() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    let uid = fake.pod_with("p", "", 2, |pod| pod.nominated = Some("n0".into()));
    fake.change(&uid, unsupported);
    fake.node("n1", 2);
    fake.advance(60_000);
    assert_eq!(last_report(&fake, "p").as_deref(), Some(TEXT));
    assert_eq!(fake.pods[&uid].nominated, None);
    assert_eq!(fake.bound().len(), 0);
}

#[test]
fn refused_member_holds_its_gang_if_the_minimum_is_not_there_without_it() {
    for (kind, reason) in [(RefusalKind::Unsupported, "Unsupported"), (RefusalKind::Reference, "Invalid")] {
        let mut fake = FakeCluster::new();
        fake.node("n0", 4);
        fake.pod_with("p", "g", 1, refuse(kind));
        fake.pods_of("a", "g", 2, 1);
        fake.gang("g", 3);
        fake.settle();
        assert_eq!((fake.now, fake.bound().len()), (0, 0));
        assert_eq!(fake.reasons("g"), [reason], "reported at once");
        assert!(last_report(&fake, "p").is_some(), "the pod itself is reported, too");
        accept(&mut fake, "p");
        fake.settle();
        assert_eq!(fake.bound().len(), 3);
    }
}

#[test]
fn refused_members_are_counted_and_one_is_named() {
    let mut fake = FakeCluster::new();
    fake.gang("g", 9);
    for name in ["p", "q", "r"] {
        fake.pod_with(name, "g", 1, unsupported);
    }
    fake.pod("a", "g", 1);
    fake.advance(6_000);
    let Diagnosis::Waiting(Waiting::PodRefused { pod, pods: 3, .. }) = fake.group_diagnosis("g") else {
        panic!("{:?}", fake.group_diagnosis("g"));
    };
    assert_eq!(pod, "ns/p");
    assert_eq!(fake.reasons("g"), ["Unsupported", "Unsupported"], "at once, and when the count is stable");
}

#[test]
fn refused_member_counts_as_existing() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pod("a", "g", 1);
    fake.pod_with("p", "g", 1, unsupported);
    fake.settle();
    accept(&mut fake, "p");
    fake.settle();
    assert_eq!(fake.bound(), ["a", "p"]);
    assert_eq!(fake.reasons("g"), ["Unsupported", "Scheduled"], "members were never missing");
}

#[test]
fn refused_new_member_blocks_only_itself_and_reports_it() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 8);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.settle();
    fake.pod_with("p", "g", 1, unsupported);
    fake.remove("a-0");
    fake.pod("replacement", "g", 1);
    fake.settle();
    assert_eq!(fake.bound(), ["a-1", "replacement"]);
    assert_eq!(last_report(&fake, "p").as_deref(), Some(TEXT));
    assert_eq!(fake.reasons("g"), ["Scheduled"]);
}

#[test]
fn refused_bound_pod_uses_room_and_counts() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pod_with("p", "g", 1, |pod| {
        unsupported(pod);
        pod.node = Some("n0".into());
    });
    fake.pod("a", "g", 1);
    fake.pod("late", "", 1);
    fake.advance(1_000);
    assert_eq!(fake.bound(), ["a", "p"]);
    assert_eq!(last_report(&fake, "p"), None);
}

#[test]
fn pod_refused_during_its_bind_is_not_retried_elsewhere() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.node("n1", 1);
    let uid = fake.pod("p", "", 1);
    fake.decide_all();
    let Some(Command::Bind { pod, node, .. }) = fake.in_flight.pop() else { panic!("it fits") };
    fake.change(&uid, unsupported);
    assert_eq!(last_report(&fake, "p"), None, "it is placed");
    let outcome = BindOutcome::Refused { message: "no".into() };
    fake.observe(Observation::BindDone { pod, node, outcome });
    fake.advance(60_000);
    assert_eq!(fake.bound().len(), 0);
    assert_eq!(last_report(&fake, "p").as_deref(), Some(TEXT));
}

#[test]
fn refusal_is_reported_before_gates_and_unknown_subsets() {
    let mut fake = FakeCluster::new();
    fake.subsets("g", &[("x", 1), ("y", 1)]);
    fake.pod_with("p", "g", 1, |pod| {
        unsupported(pod);
        pod.gated = true;
    });
    fake.advance(6_000);
    assert_eq!(last_report(&fake, "p").as_deref(), Some(TEXT));
    accept(&mut fake, "p");
    let uid = fake.uid("p");
    fake.change(&uid, |pod| pod.gated = false);
    fake.advance(6_000);
    assert_eq!(last_report(&fake, "p").as_deref(), Some("The group ns/g has several subsets and the pod names none."));
}

#[test]
fn start_that_lacks_a_refused_member_is_not_filled_with_others() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.subsets("g", &[("x", 1), ("y", 2)]);
    for (name, subset) in [("x0", "x"), ("y0", "y"), ("y1", "y")] {
        fake.pod_with(name, "g", 1, |pod| pod.membership.as_mut().expect("a member").subset = subset.into());
    }
    fake.decide_all();
    // One is bound, two binds are refused by the API, and one of those pods cannot be honoured any more.
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Bind { pod, node, start } = command else { panic!("{command:?}") };
        if pod.name == "y0" {
            fake.execute(Command::Bind { pod, node, start });
        } else {
            let outcome = BindOutcome::Refused { message: "no".into() };
            fake.observe(Observation::BindDone { pod, node, outcome });
        }
    }
    fake.node("n1", 4);
    let uid = fake.uid("x0");
    fake.change(&uid, unsupported);
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["y0"], "without a leader there is no start");
    accept(&mut fake, "x0");
    fake.advance(60_000);
    assert_eq!(fake.bound(), ["x0", "y0", "y1"]);
}
