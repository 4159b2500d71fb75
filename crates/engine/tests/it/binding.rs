//! Binding: binds that fail transiently or permanently, complete late, or are interrupted by a restart.

use muster_engine::model::group::{GroupSpec, RecordedStart};
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::Phase;
use muster_engine::{BindOutcome, Command, DeleteOutcome, Diagnosis, Observation};

use crate::fake_cluster::{FakeCluster, key, started};

fn answer(fake: &mut FakeCluster, command: &Command, outcome: BindOutcome) {
    let Command::Bind { pod, node, .. } = command else { panic!("{command:?} is not a bind") };
    fake.observe(Observation::BindDone { pod: pod.clone(), node: node.clone(), outcome });
}

fn transient() -> BindOutcome {
    BindOutcome::Transient { message: "the server is busy".into() }
}

fn refused() -> BindOutcome {
    BindOutcome::Refused { message: "node is gone".into() }
}

/// A gang of three on nodes with room, decided but not bound yet.
fn gang_of_three(nodes: usize) -> (FakeCluster, Vec<Command>) {
    let mut fake = FakeCluster::new();
    for node in 0..nodes {
        fake.node(&format!("n{node}"), 2);
    }
    fake.gang("g", 3);
    fake.pods_of("a", "g", 3, 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    assert_eq!(sent.len(), 3);
    (fake, sent)
}

/// The same, bound and confirmed.
fn started_gang() -> FakeCluster {
    let (mut fake, sent) = gang_of_three(2);
    for command in sent {
        fake.execute(command);
    }
    fake.settle();
    fake
}

#[test]
fn transient_bind_failure_is_retried_on_the_same_node() {
    let (mut fake, sent) = gang_of_three(2);
    for command in &sent[..2] {
        fake.execute(command.clone());
    }
    answer(&mut fake, &sent[2], transient());
    fake.decide_all();
    assert!(fake.in_flight.is_empty(), "not at once");
    fake.now = 200;
    fake.decide_all();
    assert_eq!(fake.in_flight, [sent[2].clone()]);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    assert_eq!(fake.reasons("g"), ["Scheduled"]);
}

#[test]
fn refused_bind_is_repaired_on_another_node() {
    let (mut fake, sent) = gang_of_three(3);
    let Command::Bind { node: refusing, .. } = &sent[2] else { panic!() };
    let refusing = refusing.clone();
    for command in &sent[..2] {
        fake.execute(command.clone());
    }
    answer(&mut fake, &sent[2], refused());
    fake.decide_all();
    let Command::Bind { node, .. } = &fake.in_flight[0] else { panic!() };
    assert_ne!(*node, refusing, "the node that refused is avoided");
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    assert_eq!(fake.reasons("g"), ["Scheduled"]);
}

#[test]
fn incomplete_start_is_rolled_back_at_the_deadline() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 1);
    fake.put_group(GroupSpec { schedule_timeout_ms: Some(30_000), ..GroupSpec::gang(key("g"), 3) });
    fake.pods_of("a", "g", 3, 1);
    fake.decide_all();
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Bind { node, .. } = &command else { panic!() };
        if **node == *"n1" {
            fake.remove_node("n1");
            answer(&mut fake, &command, refused());
        } else {
            fake.execute(command);
        }
    }
    fake.advance(29_000);
    assert_eq!(fake.bound_count("a"), 2, "until the deadline room may become available");
    fake.advance(2_000);
    assert_eq!(fake.bound_count("a"), 0, "then nothing of it is left");
    assert!(fake.reasons("g").contains(&"ScheduleTimeout"));
    let rolled_back = fake.issued.iter().filter(|act| matches!(act, Command::RollBack { .. })).count();
    assert_eq!(rolled_back, 2);
}

#[test]
fn uncontrolled_pods_are_kept_and_the_group_is_retried() {
    // A confirmed earlier start of the group does not matter to this one.
    for recorded in [RecordedStart::None, started(3, None)] {
        uncontrolled_pods_are_kept(recorded);
    }
}

fn uncontrolled_pods_are_kept(recorded: RecordedStart) {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 1);
    let timeout = Some(30_000);
    fake.put_group(GroupSpec { schedule_timeout_ms: timeout, recorded, ..GroupSpec::gang(key("g"), 3) });
    for number in 0..3 {
        fake.pod_with(&format!("a-{number}"), "g", 1, |pod| pod.controlled = false);
    }
    fake.decide_all();
    for command in std::mem::take(&mut fake.in_flight) {
        let Command::Bind { node, .. } = &command else { panic!() };
        if **node == *"n1" {
            fake.remove_node("n1");
            answer(&mut fake, &command, refused());
        } else {
            fake.execute(command);
        }
    }
    fake.advance(100_000);
    assert_eq!(fake.bound_count("a"), 2);
    let timed_out = fake.reports.iter().find(|report| matches!(report.diagnosis, Diagnosis::TimedOut { .. }));
    let text = timed_out.expect("it is reported").diagnosis.to_string();
    assert!(text.contains("2 of 3 pods were bound. 0 are rolled back, 2 stay"), "{text}");
    let times = fake.reasons("g").into_iter().filter(|reason| *reason == "ScheduleTimeout").count();
    assert_eq!(times, 1, "kept pods do not time out again");
    fake.node("n2", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 3);
    assert!(!fake.reasons("g").contains(&"Degraded"), "it had not started yet");
}

#[test]
fn kubelet_rejection_is_a_late_bind_failure() {
    let mut fake = started_gang();
    fake.phase("a-0", Phase::Running);
    fake.phase("a-1", Phase::Running);
    fake.phase("a-2", Phase::Rejected);
    fake.advance(10_000);
    assert_eq!(fake.bound_count("a"), 3, "the refused pod keeps its node in the API");
    // Its controller recreates it, and the new pod joins the two.
    fake.remove("a-2");
    fake.pod("a-3", "g", 1);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    // The same, but it is not recreated.
    fake.phase("a-3", Phase::Rejected);
    fake.advance(400_000);
    assert_eq!(fake.bound_count("a-0") + fake.bound_count("a-1"), 0, "two of three do not stay forever");
}

#[test]
fn failed_member_degrades_the_gang_and_one_replacement_heals_it() {
    let mut fake = started_gang();
    for name in ["a-0", "a-1", "a-2"] {
        fake.phase(name, Phase::Running);
    }
    fake.phase("a-2", Phase::Failed);
    fake.advance(400_000);
    assert_eq!(fake.reasons("g"), ["Scheduled", "Degraded"]);
    assert!(!fake.issued.iter().any(|act| matches!(act, Command::RollBack { .. })), "running pods are not touched");
    fake.pod("a-3", "g", 1);
    fake.settle();
    assert!(fake.node_of("a-3").is_some(), "a single replacement may join");
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Healthy { minimum: 3, scheduled: 3 });
}

#[test]
fn restart_during_a_start_completes_it() {
    let (mut fake, sent) = gang_of_three(2);
    fake.execute(sent[0].clone());
    fake.restart();
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 3, scheduled: 3 });
}

#[test]
fn restart_during_a_start_that_cannot_complete_rolls_it_back() {
    let (mut fake, sent) = gang_of_three(2);
    fake.execute(sent[0].clone());
    let Command::Bind { node, .. } = &sent[0] else { panic!() };
    for name in ["n0", "n1"].into_iter().filter(|name| **name != **node) {
        fake.remove_node(name);
    }
    fake.restart();
    fake.advance(301_000);
    assert_eq!(fake.bound_count("a"), 0);
}

#[test]
fn started_gang_is_not_rolled_back_after_a_restart() {
    let mut fake = started_gang();
    fake.remove("a-0");
    fake.restart();
    fake.advance(400_000);
    assert_eq!(fake.bound_count("a"), 2, "it lost a member, its start was not interrupted");
}

#[test]
fn bind_result_after_the_deadline_reopens_the_start() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.put_group(GroupSpec { schedule_timeout_ms: Some(1_000), ..GroupSpec::gang(key("g"), 3) });
    fake.pods_of("a", "g", 3, 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    fake.now = 1_000;
    fake.decide_all();
    for command in sent {
        fake.execute(command);
    }
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    assert_eq!(fake.group_diagnosis("g"), Diagnosis::Scheduled { minimum: 3, scheduled: 3 });
}

#[test]
fn transient_delete_failure_is_retried_and_forbidden_delete_is_not() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.node("n1", 1);
    fake.put_group(GroupSpec { schedule_timeout_ms: Some(1_000), ..GroupSpec::gang(key("g"), 2) });
    fake.pods_of("a", "g", 2, 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    fake.execute(sent[0].clone());
    fake.remove_node("n1");
    answer(&mut fake, &sent[1], refused());
    fake.now = 1_000;
    fake.decide_all();
    let [Command::RollBack { pod }] = &fake.in_flight[..] else { panic!("{:?}", fake.in_flight) };
    let pod = pod.clone();
    fake.in_flight.clear();
    let outcome = DeleteOutcome::Transient { message: "busy".into() };
    fake.observe(Observation::RollBackDone { pod: pod.clone(), outcome });
    fake.now = 7_000;
    fake.decide_all();
    assert_eq!(fake.in_flight, [Command::RollBack { pod: pod.clone() }]);
    fake.in_flight.clear();
    let outcome = DeleteOutcome::Refused { message: "forbidden".into() };
    fake.observe(Observation::RollBackDone { pod, outcome });
    fake.advance(600_000);
    assert_eq!(fake.bound_count("a"), 1, "it stays, and its deletion is not retried");
    fake.node("n2", 1);
    fake.advance(60_000);
    assert_eq!(fake.bound_count("a"), 2);
}

#[test]
fn single_pod_with_refused_bind_goes_elsewhere_after_backoff() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 1);
    fake.pod("p", "", 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    answer(&mut fake, &sent[0], refused());
    fake.decide_all();
    assert!(fake.in_flight.is_empty(), "not at once");
    assert!(fake.pod_diagnosis("p").to_string().contains("Binding to node n0 failed: node is gone"));
    fake.advance(1_000);
    assert_eq!(fake.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn refusing_nodes_are_avoided_until_there_is_no_other() {
    let mut fake = FakeCluster::new();
    for (node, cpus) in [("n0", 3), ("n1", 2), ("n2", 1)] {
        fake.node(node, cpus);
    }
    fake.pod("p", "", 1);
    let mut nodes = Vec::new();
    while fake.now < 60_000 && nodes.len() < 4 {
        fake.decide_all();
        for sent in std::mem::take(&mut fake.in_flight) {
            let Command::Bind { node, .. } = &sent else { panic!("{sent:?}") };
            nodes.push(node.to_string());
            answer(&mut fake, &sent, refused());
        }
        fake.now += 1_000;
    }
    assert_eq!(nodes, ["n0", "n1", "n2", "n0"]);
}

#[test]
fn pod_bound_by_another_scheduler_is_where_the_api_says() {
    let (mut fake, sent) = gang_of_three(3);
    let Command::Bind { pod, node, .. } = &sent[0] else { panic!() };
    let elsewhere = ["n0", "n1", "n2"].into_iter().find(|name| **name != **node).unwrap();
    fake.bind_in_api(&pod.uid.clone(), elsewhere);
    for command in sent.clone() {
        fake.execute(command);
    }
    fake.settle();
    let name = pod.name.clone();
    assert_eq!(fake.node_of(&name).as_deref(), Some(elsewhere));
    assert_eq!(fake.bound_count("a"), 3);
}

#[test]
fn failing_bind_is_retried_with_growing_backoff() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.pod("p", "", 1);
    fake.decide_all();
    let mut pauses = Vec::new();
    for _ in 0..7 {
        let command = fake.in_flight.pop().expect("it is retried");
        answer(&mut fake, &command, transient());
        let due = fake.engine.engine().next_wakeup().expect("it will be retried");
        pauses.push(due - fake.now);
        fake.now = due;
        fake.decide_all();
    }
    assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
}

/// Answers every attempt of this bind with a transient error, until the given time or until another bind is sent
/// instead.
fn fail_transiently(fake: &mut FakeCluster, command: &Command, until_ms: u64) {
    while fake.now < until_ms && fake.in_flight.iter().all(|sent| sent == command) {
        if fake.in_flight.pop().is_some() {
            answer(fake, command, transient());
        }
        fake.now = fake.engine.engine().next_wakeup().expect("it will be retried");
        fake.decide_all();
    }
}

#[test]
fn single_pod_gives_up_a_node_whose_binds_keep_failing() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 1);
    fake.pod("p", "", 1);
    fake.decide_all();
    let first = fake.in_flight[0].clone();
    fail_transiently(&mut fake, &first, 100_000);
    assert!((60_000..70_000).contains(&fake.now), "after a minute, not at {}", fake.now);
    assert!(fake.pod_diagnosis("p").to_string().contains("Binding to node n0 failed"));
    fake.settle();
    assert_eq!(fake.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn gang_start_has_its_own_deadline() {
    let (mut fake, mut sent) = gang_of_three(3);
    let last = sent.pop().expect("three were sent");
    for command in sent {
        fake.execute(command);
    }
    fake.in_flight.push(last.clone());
    fail_transiently(&mut fake, &last, 200_000);
    assert_eq!(fake.in_flight, [last], "the same node for longer than a single pod would try it");
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
}

#[test]
fn bind_is_not_retried_on_a_deleted_node() {
    let (mut fake, sent) = gang_of_three(3);
    let Command::Bind { node, .. } = &sent[2] else { panic!() };
    answer(&mut fake, &sent[2], transient());
    fake.remove_node(node);
    for command in &sent[..2] {
        fake.execute(command.clone());
    }
    fake.now = 200;
    fake.decide_all();
    assert!(!fake.in_flight.contains(&sent[2]));
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
}

#[test]
fn bind_result_for_an_abandoned_node_changes_nothing() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.node("n1", 1);
    fake.pod("p", "", 1);
    fake.decide_all();
    let old = fake.in_flight.pop().expect("it is sent");
    answer(&mut fake, &old, refused());
    fake.now = 1_000;
    fake.decide_all();
    let new = fake.in_flight.clone();
    assert_eq!(new.len(), 1);
    answer(&mut fake, &old, refused());
    answer(&mut fake, &old, transient());
    fake.now = 10_000;
    fake.decide_all();
    assert_eq!(fake.in_flight, new, "the other bind is still in flight, once");
    assert!(fake.pod_diagnosis("p").to_string().contains("Binding to node n0 failed"));
    fake.settle();
    assert_eq!(fake.node_of("p").as_deref(), Some("n1"));
}

#[test]
fn earlier_members_stay_when_a_raised_minimum_is_rolled_back() {
    let mut fake = FakeCluster::new();
    for name in ["n0", "n1", "n2"] {
        fake.node(name, 1);
    }
    let gang = |min_count| GroupSpec { schedule_timeout_ms: Some(30_000), ..GroupSpec::gang(key("g"), min_count) };
    fake.put_group(gang(1));
    fake.pod("leader", "g", 1);
    fake.settle();
    fake.phase("leader", Phase::Running);
    fake.put_group(gang(3));
    fake.pods_of("worker", "g", 2, 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    let Command::Bind { node, .. } = &sent[1] else { panic!() };
    fake.remove_node(node);
    answer(&mut fake, &sent[1], refused());
    fake.execute(sent[0].clone());
    fake.advance(20_000);
    assert_eq!(fake.bound_count("worker"), 1);
    fake.advance(20_000);
    assert_eq!(fake.bound(), ["leader"], "the worker was part of this start, the leader was not");
}

#[test]
fn rejection_of_a_pod_that_ran_does_not_reopen_the_start() {
    let mut fake = started_gang();
    for name in ["a-0", "a-1", "a-2"] {
        fake.phase(name, Phase::Running);
    }
    // Its node restarted and did not accept it again.
    fake.phase("a-2", Phase::Rejected);
    fake.advance(400_000);
    assert_eq!(fake.reasons("g"), ["Scheduled", "Degraded"]);
    assert!(!fake.issued.iter().any(|act| matches!(act, Command::RollBack { .. })), "running pods are not touched");
}

#[test]
fn kubelet_rejection_after_a_restart_reopens_the_start() {
    let mut fake = started_gang();
    fake.restart();
    fake.settle();
    fake.phase("a-2", Phase::Rejected);
    fake.advance(400_000);
    assert_eq!(fake.bound_count("a-0") + fake.bound_count("a-1"), 0, "two of three do not stay forever");
}

#[test]
fn repeated_start_has_a_full_timeout() {
    let (mut fake, sent) = gang_of_three(6);
    fake.now = 200_000;
    for command in &sent {
        answer(&mut fake, command, refused());
    }
    fake.decide_all();
    let again = std::mem::take(&mut fake.in_flight);
    assert_eq!(again.len(), 3);
    fake.execute(again[0].clone());
    // The deadline of the first start; the second began at 200 s.
    fake.now = 301_000;
    fake.decide_all();
    assert!(fake.in_flight.is_empty() && fake.reasons("g").is_empty(), "{:?}", fake.in_flight);
    fake.in_flight.extend_from_slice(&again[1..]);
    fake.settle();
    assert_eq!(fake.bound_count("a"), 3);
    assert_eq!(fake.reasons("g"), ["Scheduled"]);
}

#[test]
fn earlier_wait_is_not_reported_during_a_start() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    fake.gang("g", 2);
    fake.pod("a-0", "g", 1);
    fake.settle();
    fake.pod("a-1", "g", 1);
    fake.decide_all();
    fake.now = 10_000;
    fake.decide_all();
    assert_eq!(fake.reasons("g").len(), 0, "the members exist, their binds are in flight");
}

#[test]
fn finished_pod_does_not_become_active_again() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    let uid = fake.pod("p", "", 1);
    fake.settle();
    let running = fake.pods[&uid].clone();
    fake.phase("p", Phase::Succeeded);
    let (pod, node) = (running.id.clone(), "n0".into());
    fake.observe(Observation::PodSeen(running));
    fake.observe(Observation::BindDone { pod, node, outcome: BindOutcome::Bound });
    fake.pod("q", "", 1);
    fake.settle();
    assert!(fake.node_of("q").is_some(), "a late event does not use the room again");
}

#[test]
fn unbound_members_release_their_room_at_the_deadline() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 3);
    fake.put_group(GroupSpec { schedule_timeout_ms: Some(1_000), ..GroupSpec::gang(key("g"), 3) });
    fake.pods_of("a", "g", 3, 1);
    fake.decide_all();
    fake.pod("p", "", 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    fake.execute(sent[0].clone());
    fake.execute(sent[1].clone());
    fake.change(&fake.uid("a-0"), |pod| pod.terminating = true);
    fake.now = 900;
    answer(&mut fake, &sent[2], transient());
    fake.now = 1_000;
    fake.decide_all();
    let [Command::RollBack { pod }, Command::Bind { pod: other, .. }] = &fake.in_flight[..] else {
        panic!("{:?}", fake.in_flight)
    };
    assert_eq!((&*pod.name, &*other.name), ("a-1", "p"), "a-0 is leaving already, and a-2 is not bound any more");
}

#[test]
fn replacement_stays_although_other_members_are_missing() {
    let mut fake = started_gang();
    for name in ["a-0", "a-1", "a-2"] {
        fake.phase(name, Phase::Running);
    }
    fake.phase("a-1", Phase::Failed);
    fake.phase("a-2", Phase::Failed);
    fake.pod("a-3", "g", 1);
    fake.advance(400_000);
    assert!(fake.node_of("a-3").is_some(), "a gang that had started is not started again");
    assert_eq!(fake.reasons("g"), ["Scheduled", "Degraded"]);
}

#[test]
fn late_bind_releases_the_node_that_was_chosen_instead() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 2);
    let uid = fake.pod("p", "", 2);
    fake.decide_all();
    let late = fake.in_flight.pop().expect("it is sent");
    answer(&mut fake, &late, refused());
    fake.node("n1", 2);
    fake.now = 1_000;
    fake.decide_all();
    assert_eq!(fake.in_flight.len(), 1, "to the other node");
    let first = fake.nodes["n0"].clone();
    fake.put_node(NodeSpec { unschedulable: true, ..first });
    fake.pod("q", "", 1);
    fake.decide_all();
    fake.bind_in_api(&uid, "n0");
    answer(&mut fake, &late, BindOutcome::Bound);
    fake.advance(1_000);
    assert_eq!(fake.node_of("q").as_deref(), Some("n1"));
}

#[test]
fn group_is_retried_after_a_refused_delete() {
    let mut fake = FakeCluster::new();
    fake.node("n0", 1);
    fake.node("n1", 1);
    fake.put_group(GroupSpec { schedule_timeout_ms: Some(10_000), ..GroupSpec::gang(key("g"), 2) });
    fake.pods_of("a", "g", 3, 1);
    fake.decide_all();
    let sent = std::mem::take(&mut fake.in_flight);
    fake.execute(sent[0].clone());
    let Command::Bind { node, .. } = sent[1].clone() else { panic!() };
    answer(&mut fake, &sent[1], refused());
    fake.remove_node(&node);
    while fake.in_flight.is_empty() {
        fake.now = fake.engine.engine().next_wakeup().expect("there is a deadline");
        fake.decide_all();
    }
    let Some(Command::RollBack { pod }) = fake.in_flight.pop() else { panic!("the start is rolled back") };
    // There is room for one more pod, which would not be enough alone; together with the one that stays it is.
    fake.node("n2", 1);
    for _ in 0..20 {
        if let Some(due) = fake.engine.engine().next_wakeup().filter(|due| *due < 300_000) {
            fake.now = fake.now.max(due);
            fake.decide_all();
        }
    }
    assert!(fake.in_flight.is_empty());
    let outcome = DeleteOutcome::Refused { message: "forbidden".into() };
    fake.observe(Observation::RollBackDone { pod, outcome });
    fake.advance(300_000);
    assert_eq!(fake.bound_count("a"), 2);
}
