//! What is told, to whom, and when it is put right.

use muster_engine::{Diagnosis, Subject};

use crate::world::World;

#[test]
fn a_started_gang_stays_scheduled_while_further_members_wait() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pods_of("a", "g", 3, 1);
    world.pass(1_000);
    assert_eq!(world.reasons("g"), ["Scheduled", "Scheduled"]);
    assert!(world.why_group("g").to_string().starts_with("0 of 1 waiting pods fit."));
    world.node("n1", 1);
    world.pass(60_000);
    assert_eq!(world.why_group("g"), Diagnosis::Scheduled { minimum: 2, secured: 3 });
}

#[test]
fn nothing_is_said_of_a_pod_that_has_its_place() {
    let mut world = World::new();
    world.node("n0", 1);
    world.pod("big", "", 2);
    world.settle();
    assert!(matches!(world.why_pod("big"), Diagnosis::PodUnschedulable { .. }));
    world.node("n1", 2);
    world.pass(60_000);
    let subject = Subject::Pod(world.pods[&world.uid("big")].id.clone());
    assert_eq!(world.engine.engine().explain(&subject), None);
}

#[test]
fn a_member_that_comes_later_is_told_too_that_there_is_no_room() {
    let mut world = World::new();
    world.node("n0", 1);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.pass(1_000);
    world.remove("a-2");
    world.pod("new", "g", 1);
    world.pass(60_000);
    let told = world.reports.iter().any(|report| report.members.iter().any(|(pod, _)| pod.name == "new"));
    assert!(told, "or an autoscaler would never see it");
}

#[test]
fn a_restart_is_not_news_of_a_healthy_gang() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.pass(1_000);
    world.reports.clear();
    world.restart();
    world.pass(60_000);
    assert_eq!(world.reasons("g"), Vec::<&str>::new());
}

#[test]
fn a_short_loss_is_not_told_and_a_long_one_is_put_right() {
    let mut world = World::new();
    world.node("n0", 4);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    world.remove("a-0");
    world.pod("b", "g", 1);
    world.pass(60_000);
    assert_eq!(world.reasons("g"), ["Scheduled"]);
    world.remove("a-1");
    world.pass(60_000);
    world.pod("c", "g", 1);
    world.pass(60_000);
    assert_eq!(world.reasons("g"), ["Scheduled", "Degraded", "Scheduled"]);
}

#[test]
fn the_hardest_pods_are_told_of_first() {
    let mut world = World::new();
    world.node("n0", 1);
    world.gang("g", 5);
    for (number, cpus) in [2, 3, 4, 5, 64].into_iter().enumerate() {
        world.pod(&format!("p{number}"), "g", cpus);
    }
    world.settle();
    let text = world.why_group("g").to_string();
    assert!(text.contains("needs 63 cpu more"), "{text}");
    assert!(text.contains("Even the empty nodes"), "{text}");
}

#[test]
fn news_that_change_nothing_wake_nobody() {
    let mut world = World::new();
    world.node("n0", 1);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.pass(60_000);
    let before = world.engine.engine().next_wakeup();
    let uid = world.uid("a-0");
    world.change(&uid, |_| {});
    assert_eq!(world.engine.engine().next_wakeup(), before);
}

#[test]
fn nodes_that_refused_a_bind_are_told_of_as_such() {
    use muster_engine::{BindOutcome, Command, Observation};
    let mut world = World::new();
    world.node("n0", 1);
    world.node("n1", 1);
    world.gang("g", 2);
    world.pods_of("a", "g", 2, 1);
    world.decide_all();
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Bind { pod, node } = command else { panic!("only binds") };
        let outcome = BindOutcome::Refused { message: "no".into() };
        world.show(Observation::BindDone { pod, node, outcome });
    }
    world.decide_all();
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Bind { pod, node } = command else { panic!("only binds") };
        let outcome = BindOutcome::Refused { message: "no".into() };
        world.show(Observation::BindDone { pod, node, outcome });
    }
    world.now = 1_000;
    world.decide_all();
    let text = world.why_group("g").to_string();
    assert!(text.contains("node(s) refused the bind a moment ago"), "{text}");
    assert!(text.contains("Nodes that refused a bind are tried again in a moment."), "{text}");
    assert!(!text.contains("different pods"), "{text}");
}

#[test]
fn a_new_start_is_told_although_the_api_had_heard_of_an_old_one() {
    let mut world = World::new();
    world.node("n0", 3);
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.settle();
    world.restart();
    world.remove("a-0");
    world.pass(60_000);
    assert_eq!(world.reasons("g").last(), Some(&"Degraded"));
    world.remove("a-1");
    world.remove("a-2");
    world.pods_of("b", "g", 3, 1);
    world.pass(60_000);
    assert_eq!(world.reasons("g").last(), Some(&"Scheduled"));
}

#[test]
fn a_no_that_is_our_own_wish_is_told_to_nobody_else() {
    use muster_engine::{BindOutcome, Command, Observation};
    let mut world = World::new();
    world.node("n0", 1);
    world.pod("p", "", 1);
    world.decide_all();
    let Some(Command::Bind { pod, node }) = world.in_flight.pop() else { panic!("it fits") };
    let outcome = BindOutcome::Refused { message: "no".into() };
    world.show(Observation::BindDone { pod, node, outcome });
    // At the next try the node is left out, and the pod is refused although there is room.
    world.now = 1_000;
    world.decide_all();
    assert!(world.in_flight.is_empty());
    world.gang("g", 1);
    world.pod("like", "g", 1);
    world.settle();
    assert_eq!(world.node_of("like").as_deref(), Some("n0"));
}

#[test]
fn a_loss_that_grows_is_told_as_it_is() {
    let mut world = World::new();
    for node in 0..4 {
        world.node(&format!("n{node}"), 1);
    }
    world.gang("g", 4);
    world.pods_of("w", "g", 4, 1);
    world.settle();
    world.remove("w-0");
    world.remove("w-1");
    world.pass(60_000);
    assert_eq!(world.why_group("g"), Diagnosis::Degraded { minimum: 4, secured: 2, evicted: 0 });
    world.remove("w-2");
    world.pass(60_000);
    assert_eq!(world.why_group("g"), Diagnosis::Degraded { minimum: 4, secured: 1, evicted: 0 });
}
