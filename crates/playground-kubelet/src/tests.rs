//! The kubelets' state machine without clock and API.

use std::sync::Arc;

use jiff::Timestamp;
use muster_playground_client::mirror::Key;
use muster_playground_client::seen::SeenPod;
use serde_json::{Value, json};

use super::KubeletSettings;
use super::machine::{Act, Chore, Event, Machine, Outcome, Task};
use crate::shape::Shape;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

/// Two nodes, `n-0` and `n-1`, of four cpu each.
fn machine() -> Machine {
    let shape = r#"{"pools": [{"name": "n", "count": 2, "capacity": {"cpu": "4", "pods": "10"}}]}"#;
    let nodes: Vec<_> = Shape::from_json(shape).unwrap().nodes().unwrap().into_iter().map(Arc::new).collect();
    let mut machine = Machine::new(&nodes, KubeletSettings::default(), at(0));
    machine.observe(at(0), Event::NodesListed);
    machine
}

fn pod(name: &str, revision: u64, cpu: &str, status: &Value) -> Arc<SeenPod> {
    let pod = json!({
        "metadata": {"name": name, "namespace": "d", "uid": format!("{name}-uid"), "resourceVersion": revision.to_string()},
        "spec": {"nodeName": "n-0", "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]},
        "status": status,
    });
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn key(name: &str) -> Key {
    ("d".to_owned(), name.to_owned())
}

fn told(name: &str) -> Task {
    Task::Status(key(name), format!("{name}-uid"))
}

/// What is said of pods.
fn words(acts: &[Act]) -> Vec<(String, String, String)> {
    let acts = acts.iter().filter_map(|act| match &act.task {
        Task::Status(key, _) => {
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            Some((key.1.clone(), word(&act.body["status"]["phase"]), word(&act.body["status"]["reason"])))
        }
        Task::Remove(key, _) => Some((key.1.clone(), "removed".to_owned(), String::new())),
        Task::Node(..) => None,
    });
    acts.collect()
}

fn word(name: &str, phase: &str, reason: &str) -> (String, String, String) {
    (name.to_owned(), phase.to_owned(), reason.to_owned())
}

fn ready() -> Value {
    json!({"phase": "Running", "startTime": "1970-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True"}],
           "containerStatuses": [{"ready": true, "restartCount": 0}]})
}

#[test]
fn nobody_is_let_in_before_all_are_known() {
    let mut machine = machine();
    machine.observe(at(0), Event::Pod(pod("a", 1, "3", &json!({"phase": "Pending"}))));
    assert_eq!(words(&machine.tick(at(0))), []);
    machine.observe(at(0), Event::Pod(pod("z", 2, "3", &ready())));
    machine.observe(at(0), Event::PodsListed);
    assert_eq!(words(&machine.tick(at(0))), [word("a", "Failed", "OutOfcpu")]);
}

#[test]
fn one_act_is_under_way_and_a_failed_one_waits_longer_each_time() {
    let mut machine = machine();
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &json!({"phase": "Pending"}))));
    assert_eq!(words(&machine.tick(at(0))), [word("a", "Pending", "")]);
    // It starts meanwhile, but the first word is still on its way.
    assert_eq!(words(&machine.tick(at(1500))), []);
    machine.observe(at(1500), Event::Done(told("a"), Outcome::Retry));
    assert_eq!(words(&machine.tick(at(1500))), []);
    assert_eq!(words(&machine.tick(at(1599))), []);
    machine.observe(at(1599), Event::Pod(pod("a", 7, "1", &json!({"phase": "Pending"}))));
    let acts = machine.tick(at(1600));
    assert_eq!(words(&acts), [word("a", "Running", "")]);
    let last = acts.iter().find(|act| matches!(act.task, Task::Status(..))).unwrap();
    assert_eq!(last.body["metadata"]["resourceVersion"], "7", "a retry is for the newest state");
    machine.observe(at(1600), Event::Done(told("a"), Outcome::Retry));
    assert_eq!(words(&machine.tick(at(1799))), []);
    assert_eq!(words(&machine.tick(at(1800))), [word("a", "Running", "")]);
    machine.observe(at(1800), Event::Done(told("a"), Outcome::Done(Some(pod("a", 9, "1", &ready())))));
    assert_eq!(words(&machine.tick(at(9000))), []);
}

#[test]
fn a_failure_that_was_none_is_not_waited_for_for_ever() {
    let mut machine = machine();
    machine.tick(at(0));
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &json!({"phase": "Pending"}))));
    machine.tick(at(0));
    assert_eq!(words(&machine.tick(at(1000))), []);
    machine.observe(at(1000), Event::Done(told("a"), Outcome::Retry));
    // Somebody else has ended the pod meanwhile.
    machine.observe(at(1050), Event::Pod(pod("a", 3, "1", &json!({"phase": "Failed"}))));
    assert_eq!(words(&machine.tick(at(1100))), []);
    assert_eq!(machine.next_wakeup(), None);
}

#[test]
fn an_old_event_after_an_answer_changes_nothing() {
    let mut machine = machine();
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &json!({"phase": "Pending"}))));
    machine.tick(at(0));
    machine.observe(at(0), Event::Done(told("a"), Outcome::Done(Some(pod("a", 5, "1", &json!({"phase": "Pending"}))))));
    assert_eq!(words(&machine.tick(at(1000))), [word("a", "Running", "")]);
    machine.observe(at(1000), Event::Done(told("a"), Outcome::Done(Some(pod("a", 6, "1", &ready())))));
    machine.observe(at(1001), Event::Pod(pod("a", 5, "1", &json!({"phase": "Pending"}))));
    assert_eq!(words(&machine.tick(at(1001))), []);
    machine.observe(at(1002), Event::Pod(pod("a", 6, "1", &ready())));
    assert_eq!(words(&machine.tick(at(1002))), []);
}

#[test]
fn readiness_that_others_took_away_is_told_again() {
    let mut machine = machine();
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &ready())));
    assert_eq!(words(&machine.tick(at(0))), []);
    let mut lost = ready();
    lost["conditions"][0]["status"] = json!("False");
    machine.observe(at(0), Event::Pod(pod("a", 2, "1", &lost)));
    assert_eq!(words(&machine.tick(at(0))), [word("a", "Running", "")]);
}

#[test]
fn a_pod_that_is_gone_is_forgotten_with_its_timers() {
    let mut machine = machine();
    let chores = machine.tick(at(0));
    assert_eq!(chores.len(), 2, "both nodes register");
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "4", &json!({"phase": "Pending"}))));
    assert_eq!(words(&machine.tick(at(0))), [word("a", "Pending", "")]);
    assert_eq!(machine.next_wakeup(), Some(at(1000)));
    machine.observe(at(10), Event::PodGone(key("a")));
    assert_eq!(machine.next_wakeup(), None);
    machine.observe(at(20), Event::Done(told("a"), Outcome::Gone));
    machine.observe(at(20), Event::Pod(pod("b", 2, "4", &json!({"phase": "Pending"}))));
    assert_eq!(words(&machine.tick(at(20))), [word("b", "Pending", "")]);
}

#[test]
fn a_dead_node_is_silent_and_registers_when_it_is_back() {
    let mut machine = machine();
    for act in machine.tick(at(0)) {
        machine.observe(at(0), Event::Done(act.task, Outcome::Done(None)));
    }
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &ready())));
    for act in machine.tick(at(0)) {
        machine.observe(at(0), Event::Done(act.task, Outcome::Done(None)));
    }
    machine.observe(at(0), Event::Kill(0));
    let mut after: Vec<Task> = Vec::new();
    for second in 0..100 {
        let acts = machine.tick(at(second * 1000));
        for act in &acts {
            machine.observe(at(second * 1000), Event::Done(act.task.clone(), Outcome::Done(None)));
        }
        after.extend(acts.into_iter().map(|act| act.task));
    }
    assert!(!after.is_empty() && after.iter().all(|task| matches!(task, Task::Node(1, _))), "{after:?}");
    machine.observe(at(100_000), Event::Revive(0));
    let acts: Vec<Task> = machine.tick(at(100_000)).into_iter().map(|act| act.task).collect();
    assert!(acts.contains(&Task::Node(0, Chore::Register)), "{acts:?}");
}

#[test]
fn pods_that_meet_work_when_the_last_of_them_runs() {
    let mut machine = machine();
    machine.observe(at(0), Event::PodsListed);
    let member = |name: &str| {
        let pod = json!({
            "metadata": {"name": name, "namespace": "d", "uid": format!("{name}-uid"), "resourceVersion": "1",
                "annotations": {"playground.muster.dev/meets": "train/2", "playground.muster.dev/run-seconds": "10"}},
            "spec": {"nodeName": "n-0", "restartPolicy": "Never", "containers": [{"name": "c"}]},
            "status": {"phase": "Pending"},
        });
        Event::Pod(Arc::new(serde_json::from_value(pod).unwrap()))
    };
    let run_to = |machine: &mut Machine, until_ms: i64| {
        let mut said = Vec::new();
        while let Some(now) = machine.next_wakeup().filter(|time| *time <= at(until_ms)) {
            let acts = machine.tick(now);
            said.extend(words(&acts).into_iter().map(|word| (now.as_millisecond(), word.0, word.1)));
            for act in acts {
                machine.observe(now, Event::Done(act.task, Outcome::Done(None)));
            }
        }
        said
    };
    machine.observe(at(0), member("a"));
    assert_eq!(machine.tick(at(0)).len(), 3, "two nodes and a pod");
    machine.observe(at(0), Event::Done(told("a"), Outcome::Done(None)));
    let said = run_to(&mut machine, 60_000);
    assert_eq!(said, [(1000, "a".to_owned(), "Running".to_owned())], "alone it runs and does not work");
    machine.observe(at(60_000), member("b"));
    let acts = machine.tick(at(60_000));
    for act in acts {
        machine.observe(at(60_000), Event::Done(act.task, Outcome::Done(None)));
    }
    let said = run_to(&mut machine, 90_000);
    let ended: Vec<_> =
        said.iter().filter(|(_, _, phase)| phase == "Succeeded").map(|(time, name, _)| (*time, &**name)).collect();
    assert_eq!(ended, [(71_000, "a"), (71_000, "b")]);
}
