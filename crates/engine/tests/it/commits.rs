//! From a decision to its end: binds fail in passing or for good, come late, or are cut off by a restart.

use muster_engine::model::group::{GroupSpec, History};
use muster_engine::model::node::NodeSpec;
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

/// The same, bound and confirmed.
fn started_gang() -> World {
    let (mut world, sent) = gang_of_three(2);
    for command in sent {
        world.carry_out(command);
    }
    world.settle();
    world
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
    // That an earlier start of the group was confirmed says nothing about this one.
    for history in [History::New, History::Started] {
        bare_pods_are_kept(history);
    }
}

fn bare_pods_are_kept(history: History) {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 1);
    let timeout = Some(30_000);
    world.put_group(GroupSpec { schedule_timeout_ms: timeout, history, ..GroupSpec::gang(key("g"), 3) });
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
    let times = world.reasons("g").into_iter().filter(|reason| *reason == "ScheduleTimeout").count();
    assert_eq!(times, 1, "what was kept is not timed again");
    world.node("n2", 1);
    world.pass(60_000);
    assert_eq!(world.bound_count("a"), 3);
    assert!(!world.reasons("g").contains(&"Degraded"), "it had not started yet");
}

#[test]
fn a_kubelet_that_refuses_is_a_bind_failure_that_came_late() {
    let mut world = started_gang();
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
    let mut world = started_gang();
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
    let mut world = started_gang();
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
fn every_node_that_refused_is_avoided_until_there_is_no_other() {
    let mut world = World::new();
    for (node, cpus) in [("n0", 3), ("n1", 2), ("n2", 1)] {
        world.node(node, cpus);
    }
    world.pod("p", "", 1);
    let mut nodes = Vec::new();
    while world.now < 60_000 && nodes.len() < 4 {
        world.decide_all();
        for sent in std::mem::take(&mut world.in_flight) {
            let Command::Bind { node, .. } = &sent else { panic!("{sent:?}") };
            nodes.push(node.to_string());
            answer(&mut world, &sent, no());
        }
        world.now += 1_000;
    }
    assert_eq!(nodes, ["n0", "n1", "n2", "n0"]);
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
fn a_bind_that_keeps_failing_is_sent_ever_less_often() {
    let mut world = World::new();
    world.node("n0", 1);
    world.pod("p", "", 1);
    world.decide_all();
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let command = world.in_flight.pop().expect("it is sent again");
        answer(&mut world, &command, busy());
        let due = world.engine.engine().next_wakeup().expect("it will be sent again");
        pauses.push(due - world.now);
        world.now = due;
        world.decide_all();
    }
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
}

/// Answers "busy" to this bind as often as it is sent, until so much time has passed or another is sent instead.
fn stay_busy(world: &mut World, command: &Command, until_ms: u64) {
    while world.now < until_ms && world.in_flight.iter().all(|sent| sent == command) {
        if world.in_flight.pop().is_some() {
            answer(world, command, busy());
        }
        world.now = world.engine.engine().next_wakeup().expect("it will be sent again");
        world.decide_all();
    }
}

#[test]
fn a_single_pod_gives_up_a_node_whose_binds_keep_failing() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 1);
    world.pod("p", "", 1);
    world.decide_all();
    let first = world.in_flight[0].clone();
    stay_busy(&mut world, &first, 100_000);
    assert!((60_000..70_000).contains(&world.now), "after a minute, not at {}", world.now);
    assert!(world.why_pod("p").to_string().contains("Binding to node n0 failed"));
    world.settle();
    assert_eq!(world.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn the_start_of_a_gang_has_its_own_deadline() {
    let (mut world, mut sent) = gang_of_three(3);
    let last = sent.pop().expect("three were sent");
    for command in sent {
        world.carry_out(command);
    }
    world.in_flight.push(last.clone());
    stay_busy(&mut world, &last, 200_000);
    assert_eq!(world.in_flight, [last], "the same node for longer than a single pod would try it");
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
}

#[test]
fn a_bind_is_not_sent_again_to_a_node_that_is_gone() {
    let (mut world, sent) = gang_of_three(3);
    let Command::Bind { node, .. } = &sent[2] else { panic!() };
    answer(&mut world, &sent[2], busy());
    world.remove_node(node);
    for command in &sent[..2] {
        world.carry_out(command.clone());
    }
    world.now = 200;
    world.decide_all();
    assert!(!world.in_flight.contains(&sent[2]));
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
}

#[test]
fn an_answer_about_a_node_that_was_given_up_changes_nothing() {
    let mut world = World::new();
    world.node("n0", 2);
    world.node("n1", 1);
    world.pod("p", "", 1);
    world.decide_all();
    let old = world.in_flight.pop().expect("it is sent");
    answer(&mut world, &old, no());
    world.now = 1_000;
    world.decide_all();
    let new = world.in_flight.clone();
    assert_eq!(new.len(), 1);
    answer(&mut world, &old, no());
    answer(&mut world, &old, busy());
    world.now = 10_000;
    world.decide_all();
    assert_eq!(world.in_flight, new, "the other bind is still on its way, once");
    assert!(world.why_pod("p").to_string().contains("Binding to node n0 failed"));
    world.settle();
    assert_eq!(world.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn what_had_started_before_stays_when_a_raised_minimum_is_taken_back() {
    let mut world = World::new();
    for name in ["n0", "n1", "n2"] {
        world.node(name, 1);
    }
    let gang = |min_count| GroupSpec { schedule_timeout_ms: Some(30_000), ..GroupSpec::gang(key("g"), min_count) };
    world.put_group(gang(1));
    world.pod("leader", "g", 1);
    world.settle();
    world.phase("leader", Phase::Running);
    world.put_group(gang(3));
    world.pods_of("worker", "g", 2, 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    let Command::Bind { node, .. } = &sent[1] else { panic!() };
    world.remove_node(node);
    answer(&mut world, &sent[1], no());
    world.carry_out(sent[0].clone());
    world.pass(20_000);
    assert_eq!(world.bound_count("worker"), 1);
    world.pass(20_000);
    assert_eq!(world.bound(), ["leader"], "the worker was part of this start, the leader was not");
}

#[test]
fn a_pod_that_ran_and_is_refused_later_does_not_reopen_the_start() {
    let mut world = started_gang();
    for name in ["a-0", "a-1", "a-2"] {
        world.phase(name, Phase::Running);
    }
    // Its node was started anew and did not take it back.
    world.phase("a-2", Phase::Refused);
    world.pass(400_000);
    assert_eq!(world.reasons("g"), ["Scheduled", "Degraded"]);
    assert!(!world.acts.iter().any(|act| matches!(act, Command::TakeBack { .. })), "what runs is left to run");
}

#[test]
fn a_kubelet_that_refuses_after_a_restart_reopens_the_start_too() {
    let mut world = started_gang();
    world.restart();
    world.settle();
    world.phase("a-2", Phase::Refused);
    world.pass(400_000);
    assert_eq!(world.bound_count("a-0") + world.bound_count("a-1"), 0, "two of three do not stay for ever");
}

#[test]
fn a_start_that_begins_anew_has_all_its_time() {
    let (mut world, sent) = gang_of_three(6);
    world.now = 200_000;
    for command in &sent {
        answer(&mut world, command, no());
    }
    world.decide_all();
    let again = std::mem::take(&mut world.in_flight);
    assert_eq!(again.len(), 3);
    world.carry_out(again[0].clone());
    // The deadline of the first start; the second has begun at 200 s.
    world.now = 301_000;
    world.decide_all();
    assert!(world.in_flight.is_empty() && world.reasons("g").is_empty(), "{:?}", world.in_flight);
    world.in_flight.extend_from_slice(&again[1..]);
    world.settle();
    assert_eq!(world.bound_count("a"), 3);
    assert_eq!(world.reasons("g"), ["Scheduled"]);
}

#[test]
fn while_a_start_is_under_way_no_earlier_wait_is_told() {
    let mut world = World::new();
    world.node("n0", 2);
    world.gang("g", 2);
    world.pod("a-0", "g", 1);
    world.settle();
    world.pod("a-1", "g", 1);
    world.decide_all();
    world.now = 10_000;
    world.decide_all();
    assert_eq!(world.reasons("g").len(), 0, "the members are there, their binds take their time");
}

#[test]
fn a_pod_that_is_finished_does_not_come_back() {
    let mut world = World::new();
    world.node("n0", 1);
    let uid = world.pod("p", "", 1);
    world.settle();
    let running = world.pods[&uid].clone();
    world.phase("p", Phase::Succeeded);
    let (pod, node) = (running.id.clone(), "n0".into());
    world.show(Observation::PodSeen(running));
    world.show(Observation::BindDone { pod, node, outcome: BindOutcome::Bound });
    world.pod("q", "", 1);
    world.settle();
    assert!(world.node_of("q").is_some(), "a late event does not take the room again");
}

#[test]
fn what_is_not_bound_at_the_deadline_gives_its_room_to_others() {
    let mut world = World::new();
    world.node("n0", 3);
    world.put_group(GroupSpec { schedule_timeout_ms: Some(1_000), ..GroupSpec::gang(key("g"), 3) });
    world.pods_of("a", "g", 3, 1);
    world.decide_all();
    world.pod("p", "", 1);
    world.decide_all();
    let sent = std::mem::take(&mut world.in_flight);
    world.carry_out(sent[0].clone());
    world.carry_out(sent[1].clone());
    world.change(&world.uid("a-0"), |pod| pod.terminating = true);
    world.now = 900;
    answer(&mut world, &sent[2], busy());
    world.now = 1_000;
    world.decide_all();
    let [Command::TakeBack { pod }, Command::Bind { pod: other, .. }] = &world.in_flight[..] else {
        panic!("{:?}", world.in_flight)
    };
    assert_eq!((&*pod.name, &*other.name), ("a-1", "p"), "a-0 is leaving already, and a-2 is not bound any more");
}

#[test]
fn a_replacement_stays_although_others_are_still_missing() {
    let mut world = started_gang();
    for name in ["a-0", "a-1", "a-2"] {
        world.phase(name, Phase::Running);
    }
    world.phase("a-1", Phase::Failed);
    world.phase("a-2", Phase::Failed);
    world.pod("a-3", "g", 1);
    world.pass(400_000);
    assert!(world.node_of("a-3").is_some(), "a gang that had started is not started again");
    assert_eq!(world.reasons("g"), ["Scheduled", "Degraded"]);
}

#[test]
fn a_late_bind_gives_back_the_node_that_was_chosen_instead() {
    let mut world = World::new();
    world.node("n0", 2);
    let uid = world.pod("p", "", 2);
    world.decide_all();
    let late = world.in_flight.pop().expect("it is sent");
    answer(&mut world, &late, no());
    world.node("n1", 2);
    world.now = 1_000;
    world.decide_all();
    assert_eq!(world.in_flight.len(), 1, "to the other node");
    let first = world.nodes["n0"].clone();
    world.put_node(NodeSpec { unschedulable: true, ..first });
    world.pod("q", "", 1);
    world.decide_all();
    world.bind_in_truth(&uid, "n0");
    answer(&mut world, &late, BindOutcome::Bound);
    world.pass(1_000);
    assert_eq!(world.node_of("q").as_deref(), Some("n1"));
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
