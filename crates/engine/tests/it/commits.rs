//! From a decision to its end: binds fail in passing or for good, come late, or are cut off by a restart.

use muster_engine::model::group::GroupSpec;
use muster_engine::model::pod::Phase;
use muster_engine::{BindOutcome, Command, Diagnosis, Observation, TakeBackOutcome};

use crate::world::{World, key};

fn answer(world: &mut World, command: &Command, outcome: BindOutcome) {
    let Command::Bind { pod, node } = command else { panic!("{command:?} is no bind") };
    world.show(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
}

fn busy() -> BindOutcome {
    BindOutcome::Transient { message: "the server is busy".into() }
}

fn no() -> BindOutcome {
    BindOutcome::Refused { message: "node is gone".into() }
}

/// A gang of three on roomy nodes, decided and not answered.
fn gang_of_three(nodes: usize) -> (World, Vec<Command>) {
    let mut world = World::new();
    for node in 0..nodes {
        world.node(&format!("n{node}"), 2);
    }
    world.gang("g", 3);
    world.pods_of("a", "g", 3, 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    assert_eq!(sent.len(), 3);
    (world, sent)
}

#[test]
fn a_bind_that_fails_in_passing_is_sent_again_to_the_same_node() {
    let (mut world, sent) = gang_of_three(2);
    for command in &sent[..2] {
        world.carry_out(command.clone());
    }
    answer(&mut world, &sent[2], busy());
    world.decide_all();
    assert!(world.in_flight.is_empty(), "not at once");
    world.now = 200;
    world.decide_all();
    assert_eq!(world.in_flight, [sent[2].clone()]);
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    assert_eq!(world.reasons("g"), ["Scheduled"]);
}

#[test]
fn a_bind_that_is_refused_is_repaired_elsewhere() {
    let (mut world, sent) = gang_of_three(3);
    let Command::Bind { node: refusing, .. } = &sent[2] else { panic!() };
    let refusing = refusing.clone();
    for command in &sent[..2] {
        world.carry_out(command.clone());
    }
    answer(&mut world, &sent[2], no());
    world.decide_all();
    let Command::Bind { node, .. } = &world.in_flight[0] else { panic!() };
    assert_ne!(*node, refusing, "the node that refused is avoided");
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    assert_eq!(world.reasons("g"), ["Scheduled"]);
}

#[test]
fn a_start_that_does_not_come_together_is_taken_back_at_the_deadline() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 1);
    world.put_group(GroupSpec { schedule_timeout_ms: Some(30_000), ..GroupSpec::gang(key("g"), 3) });
    world.pods_of("a", "g", 3, 1);
    world.decide_all();
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Bind { node, .. } = &command else { panic!() };
        if **node == *"n1" {
            world.remove_node("n1");
            answer(&mut world, &command, no());
        } else {
            world.carry_out(command);
        }
    }
    world.pass(29_000);
    assert_eq!(world.bound_count("a"), 2, "until the deadline a place may turn up");
    world.pass(2_000);
    assert_eq!(world.bound_count("a"), 0, "then nothing of it is left");
    assert!(world.reasons("g").contains(&"ScheduleTimeout"));
    let taken_back = world.acts.iter().filter(|act| matches!(act, Command::TakeBack { .. })).count();
    assert_eq!(taken_back, 2);
}

#[test]
fn bare_pods_are_kept_and_the_group_is_tried_again() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 1);
    world.put_group(GroupSpec { schedule_timeout_ms: Some(30_000), ..GroupSpec::gang(key("g"), 3) });
    for number in 0..3 {
        world.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.controlled = false);
    }
    world.decide_all();
    for command in std::mem::take(&mut world.in_flight) {
        let Command::Bind { node, .. } = &command else { panic!() };
        if **node == *"n1" {
            world.remove_node("n1");
            answer(&mut world, &command, no());
        } else {
            world.carry_out(command);
        }
    }
    world.pass(100_000);
    assert_eq!(world.bound_count("a"), 2);
    let timed_out = world.reports.iter().find(|report| matches!(report.diagnosis, Diagnosis::TimedOut { .. }));
    let text = timed_out.expect("it is said").diagnosis.to_string();
    assert!(text.contains("2 of 3 pods were bound. 0 are taken back, 2 stay"), "{text}");
    world.node("n2", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("a"), 3);
}

#[test]
fn a_kubelet_that_refuses_is_a_bind_failure_that_came_late() {
    let (mut world, sent) = gang_of_three(2);
    for command in sent {
        world.carry_out(command);
    }
    world.settle();
    world.phase("a-0", Phase::Running);
    world.phase("a-1", Phase::Running);
    world.phase("a-2", Phase::Refused);
    world.pass(10_000);
    assert_eq!(world.bound_count("a"), 3, "the refused pod keeps its node in the API");
    // Its controller makes another one, which joins the two.
    world.remove("a-2");
    world.pod("a-3", "g", 1);
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    // The same, but nobody makes another one.
    world.phase("a-3", Phase::Refused);
    world.pass(400_000);
    assert_eq!(world.bound_count("a-0") + world.bound_count("a-1"), 0, "two of three do not stay for ever");
}

#[test]
fn a_member_that_ran_and_then_failed_degrades_the_gang_and_a_single_one_heals_it() {
    let (mut world, sent) = gang_of_three(2);
    for command in sent {
        world.carry_out(command);
    }
    world.settle();
    for name in ["a-0", "a-1", "a-2"] {
        world.phase(name, Phase::Running);
    }
    world.phase("a-2", Phase::Failed);
    world.pass(400_000);
    assert_eq!(world.reasons("g"), ["Scheduled", "Degraded"]);
    assert!(!world.acts.iter().any(|act| matches!(act, Command::TakeBack { .. })), "what runs is left to run");
    world.pod("a-3", "g", 1);
    world.settle();
    assert!(world.node_of("a-3").is_some(), "one replacement may join alone");
    assert_eq!(world.why_group("g"), Diagnosis::Healthy { minimum: 3, secured: 3 });
}

#[test]
fn a_restart_in_the_middle_of_a_start_finishes_it() {
    let (mut world, sent) = gang_of_three(2);
    world.carry_out(sent[0].clone());
    world.restart();
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    assert_eq!(world.why_group("g"), Diagnosis::Scheduled { minimum: 3, secured: 3 });
}

#[test]
fn a_restart_in_the_middle_of_a_start_that_cannot_be_finished_takes_it_back() {
    let (mut world, sent) = gang_of_three(2);
    world.carry_out(sent[0].clone());
    let Command::Bind { node, .. } = &sent[0] else { panic!() };
    for name in ["n0", "n1"].into_iter().filter(|name| **name != **node) {
        world.remove_node(name);
    }
    world.restart();
    world.pass(301_000);
    assert_eq!(world.bound_count("a"), 0);
}

#[test]
fn a_gang_that_had_started_is_not_taken_back_after_a_restart() {
    let (mut world, sent) = gang_of_three(2);
    for command in sent {
        world.carry_out(command);
    }
    world.settle();
    world.remove("a-0");
    world.restart();
    world.pass(400_000);
    assert_eq!(world.bound_count("a"), 2, "it lost a member, it was not cut short");
}

#[test]
fn an_answer_that_comes_after_the_deadline_opens_the_question_again() {
    let mut world = World::new();
    world.node("n0", 3);
    world.put_group(GroupSpec { schedule_timeout_ms: Some(1_000), ..GroupSpec::gang(key("g"), 3) });
    world.pods_of("a", "g", 3, 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    world.now = 1_000;
    world.decide_all();
    for command in sent {
        world.carry_out(command);
    }
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    assert_eq!(world.why_group("g"), Diagnosis::Scheduled { minimum: 3, secured: 3 });
}

#[test]
fn a_delete_that_fails_is_sent_again_and_one_that_is_forbidden_is_let_be() {
    let mut world = World::new();
    world.node("n0", 1);
    world.node("n1", 1);
    world.put_group(GroupSpec { schedule_timeout_ms: Some(1_000), ..GroupSpec::gang(key("g"), 2) });
    world.pods_of("a", "g", 2, 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    world.carry_out(sent[0].clone());
    world.remove_node("n1");
    answer(&mut world, &sent[1], no());
    world.now = 1_000;
    world.decide_all();
    let [Command::TakeBack { pod }] = &world.in_flight[..] else { panic!("{:?}", world.in_flight) };
    let pod = pod.clone();
    world.in_flight.clear();
    let outcome = TakeBackOutcome::Transient { message: "busy".into() };
    world.show(Observation::TakeBackDone { pod: pod.clone(), outcome });
    world.now = 7_000;
    world.decide_all();
    assert_eq!(world.in_flight, [Command::TakeBack { pod: pod.clone() }]);
    world.in_flight.clear();
    let outcome = TakeBackOutcome::Refused { message: "forbidden".into() };
    world.show(Observation::TakeBackDone { pod, outcome });
    world.pass(600_000);
    assert_eq!(world.bound_count("a"), 1, "it stays, and is not asked for again");
    world.node("n2", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("a"), 2);
}

#[test]
fn a_single_pod_whose_bind_is_refused_goes_elsewhere_after_a_pause() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 1);
    world.pod("p", "", 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    answer(&mut world, &sent[0], no());
    world.decide_all();
    assert!(world.in_flight.is_empty(), "not at once");
    assert!(world.why_pod("p").to_string().contains("Binding to node n0 failed: node is gone"));
    world.pass(1_000);
    assert_eq!(world.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn a_pod_that_others_bound_meanwhile_is_where_the_api_says() {
    let (mut world, sent) = gang_of_three(3);
    let Command::Bind { pod, node } = &sent[0] else { panic!() };
    let elsewhere = ["n0", "n1", "n2"].into_iter().find(|name| **name != **node).unwrap();
    world.bind_in_truth(&pod.uid.clone(), elsewhere);
    for command in sent.clone() {
        world.carry_out(command);
    }
    world.settle();
    let name = pod.name.clone();
    assert_eq!(world.node_of(&name).as_deref(), Some(elsewhere));
    assert_eq!(world.bound_count("a"), 3);
}

#[test]
fn a_group_is_tried_again_when_a_delete_was_refused() {
    let mut world = World::new();
    world.node("n0", 1);
    world.node("n1", 1);
    world.put_group(GroupSpec { schedule_timeout_ms: Some(10_000), ..GroupSpec::gang(key("g"), 2) });
    world.pods_of("a", "g", 3, 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    world.carry_out(sent[0].clone());
    let Command::Bind { node, .. } = sent[1].clone() else { panic!() };
    answer(&mut world, &sent[1], no());
    world.remove_node(&node);
    while world.in_flight.is_empty() {
        world.now = world.engine.engine().next_wakeup().expect("there is a deadline");
        world.decide_all();
    }
    let Some(Command::TakeBack { pod }) = world.in_flight.pop() else { panic!("the start is taken back") };
    // There is room for one more, which alone would not be enough; with the one that stays it is.
    world.node("n2", 1);
    for _ in 0..20 {
        if let Some(due) = world.engine.engine().next_wakeup().filter(|due| *due < 300_000) {
            world.now = world.now.max(due);
            world.decide_all();
        }
    }
    assert!(world.in_flight.is_empty());
    let outcome = TakeBackOutcome::Refused { message: "forbidden".into() };
    world.show(Observation::TakeBackDone { pod, outcome });
    world.pass(300_000);
    assert_eq!(world.bound_count("a"), 2);
}
