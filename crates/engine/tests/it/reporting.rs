//! Reports: what is reported, about which pod or group, and when it is corrected.

use muster_engine::{Diagnosis, Subject};

use crate::fake_cluster::FakeCluster;

#[test]
fn started_gang_stays_scheduled_while_further_members_are_pending() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 3, 1);
    fake.advance(1_000);
    assert_eq!(fake.reasons("g"), ["Scheduled", "Scheduled"]);
    assert!(fake.group_diagnosis("g").to_string().starts_with("0 of 1 waiting pods fit."));
    fake.node("n1", 1);
    fake.advance(60_000);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 2, scheduled: 3 });
}

#[test]
fn bound_pod_is_not_reported() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pod("big", "", 2);
    fake.settle();
    assert!(matches!(fake.pod_diagnosis("big"), Diagnosis::PodUnschedulable { .. }));
    fake.node("n1", 2);
    fake.advance(60_000);
    let subject = Subject::Pod(fake.pods[&fake.uid("big")].id.clone());
    assert_eq!(fake.engine.engine().explain(&subject), None);
}

#[test]
fn later_member_without_room_is_reported_too() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.advance(1_000);
    fake.remove("a-2");
    fake.pod("new", "g", 1);
    fake.advance(60_000);
    let reported = fake.reports.iter().any(|report| report.members.iter().any(|(pod, _)| pod.name == "new"));
    assert!(reported, "otherwise an autoscaler would never see it");
}

#[test]
fn restart_reports_nothing_about_a_healthy_gang() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.advance(1_000);
    fake.reports.clear();
    fake.restart();
    fake.advance(60_000);
    assert_eq!(fake.reasons("g"), Vec::<&str>::new());
}

#[test]
fn short_loss_is_not_reported_and_long_one_is_corrected() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 4);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    fake.remove("a-0");
    fake.pod("b", "g", 1);
    fake.advance(60_000);
    assert_eq!(fake.reasons("g"), ["Scheduled"]);
    fake.remove("a-1");
    fake.advance(60_000);
    fake.pod("c", "g", 1);
    fake.advance(60_000);
    assert_eq!(fake.reasons("g"), ["Scheduled", "Degraded", "Scheduled"]);
}

#[test]
fn hardest_pods_are_reported_first() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.gang("g", 5);
    for (number, cpus) in [2, 3, 4, 5, 64].into_iter().enumerate() {
        fake.pod(&format!("p{number}"), "g", cpus);
    }
    fake.settle();
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.contains("needs 63 cpu more"), "{text}");
    assert!(text.contains("Even the empty nodes"), "{text}");
}

#[test]
fn events_without_effect_activate_nothing() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.advance(60_000);
    let before = fake.engine.engine().next_wakeup();
    let uid = fake.uid("a-0");
    fake.change(&uid, |_| {});
    assert_eq!(fake.engine.engine().next_wakeup(), before);
}

#[test]
fn nodes_that_refused_a_bind_are_reported_as_such() {
    use muster_engine::{BindOutcome, Command, Observation};
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.node("n1", 1);
    fake.gang("g", 2);
    fake.pods_of("a", "g", 2, 1);
    fake.decide_all();
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Bind { pod, node, .. } = command else { panic!("only binds") };
        let outcome = BindOutcome::Refused { message: "no".into() };
        fake.observe(Observation::BindDone { pod, node, outcome });
    }
    fake.decide_all();
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Bind { pod, node, .. } = command else { panic!("only binds") };
        let outcome = BindOutcome::Refused { message: "no".into() };
        fake.observe(Observation::BindDone { pod, node, outcome });
    }
    fake.now = 1_000;
    fake.decide_all();
    let text = fake.group_diagnosis("g").to_string();
    assert!(text.contains("node(s) refused the bind a moment ago"), "{text}");
    assert!(text.contains("Nodes that refused a bind are tried again in a moment."), "{text}");
    assert!(!text.contains("different pods"), "{text}");
}

#[test]
fn new_start_is_reported_despite_an_old_recorded_one() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.settle();
    fake.restart();
    fake.remove("a-0");
    fake.advance(60_000);
    assert_eq!(fake.reasons("g").last(), Some(&"Degraded"));
    fake.remove("a-1");
    fake.remove("a-2");
    fake.pods_of("b", "g", 3, 1);
    fake.advance(60_000);
    assert_eq!(fake.reasons("g").last(), Some(&"Scheduled"));
}

#[test]
fn rejection_by_avoided_nodes_is_not_reused_for_other_pods() {
    use muster_engine::{BindOutcome, Command, Observation};
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pod("p", "", 1);
    fake.decide_all();
    let Some(Command::Bind { pod, node, .. }) = fake.in_flight.pop() else { panic!("it fits") };
    let outcome = BindOutcome::Refused { message: "no".into() };
    fake.observe(Observation::BindDone { pod, node, outcome });
    // At the next attempt the node is avoided, and the pod is unschedulable although there is room.
    fake.now = 1_000;
    fake.decide_all();
    assert!(fake.in_flight.is_empty());
    fake.gang("g", 1);
    fake.pod("like", "g", 1);
    fake.settle();
    assert_eq!(fake.node_of("like").as_deref(), Some("n0"));
}

#[test]
fn growing_loss_is_reported_with_its_current_size() {
    let mut fake = FakeCluster::new();
    for node in 0..4 {
        fake.node(&format!("n{node}"), 1);
    }
    fake.gang("g", 4);
    fake.pods_of("w", "g", 4, 1);
    fake.settle();
    fake.remove("w-0");
    fake.remove("w-1");
    fake.advance(60_000);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Degraded { minimum: 4, scheduled: 2, evicted: 0 });
    fake.remove("w-2");
    fake.advance(60_000);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Degraded { minimum: 4, scheduled: 1, evicted: 0 });
}
