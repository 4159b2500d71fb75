//! Tests of the kubelets' state machine, without clock and API.

use std::sync::Arc;

use jiff::Timestamp;
use muster_playground_client::untyped::UntypedPod;
use muster_reflector::Key;
use serde_json::{Value, json};

use super::KubeletSettings;
use super::state_machine::{ApiRequest, Event, NodeTask, Operation, Outcome, StateMachine};
use crate::shape::Shape;

fn at(ms: i64) -> Timestamp {
    Timestamp::from_millisecond(ms).unwrap()
}

/// Two nodes, `n-0` and `n-1`, of four cpu each.
fn machine() -> StateMachine {
    let shape = r#"{"pools": [{"name": "n", "count": 2, "capacity": {"cpu": "4", "pods": "10"}}]}"#;
    let nodes: Vec<_> = Shape::from_json(shape).unwrap().nodes().unwrap().into_iter().map(Arc::new).collect();
    let mut machine = StateMachine::new(&nodes, KubeletSettings::default(), at(0));
    machine.observe(at(0), Event::NodesListed);
    machine
}

fn pod(name: &str, revision: u64, cpu: &str, status: &Value) -> Arc<UntypedPod> {
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

fn status_patch(name: &str) -> Operation {
    Operation::PatchStatus(key(name), format!("{name}-uid"))
}

/// Name, phase and reason of each request for a pod.
fn summaries(requests: &[ApiRequest]) -> Vec<(String, String, String)> {
    let requests = requests.iter().filter_map(|request| match &request.operation {
        Operation::PatchStatus(key, _) => {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            Some((key.1.clone(), text(&request.body["status"]["phase"]), text(&request.body["status"]["reason"])))
        }
        Operation::DeletePod(key, _) => Some((key.1.clone(), "removed".to_owned(), String::new())),
        Operation::Node(..) => None,
    });
    requests.collect()
}

fn summary(name: &str, phase: &str, reason: &str) -> (String, String, String) {
    (name.to_owned(), phase.to_owned(), reason.to_owned())
}

fn ready() -> Value {
    json!({"phase": "Running", "startTime": "1970-01-01T00:00:00Z", "conditions": [{"type": "Ready", "status": "True"}],
           "containerStatuses": [{"ready": true, "restartCount": 0}]})
}

#[test]
fn admission_waits_for_the_initial_lists() {
    let mut machine = machine();
    machine.observe(at(0), Event::Pod(pod("a", 1, "3", &json!({"phase": "Pending"}))));
    assert_eq!(summaries(&machine.tick(at(0))), []);
    machine.observe(at(0), Event::Pod(pod("z", 2, "3", &ready())));
    machine.observe(at(0), Event::PodsListed);
    assert_eq!(summaries(&machine.tick(at(0))), [summary("a", "Failed", "OutOfcpu")]);
}

#[test]
fn one_request_is_in_flight_and_failures_back_off() {
    let mut machine = machine();
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &json!({"phase": "Pending"}))));
    assert_eq!(summaries(&machine.tick(at(0))), [summary("a", "Pending", "")]);
    // The containers start meanwhile, but the first status is still in flight.
    assert_eq!(summaries(&machine.tick(at(1500))), []);
    machine.observe(at(1500), Event::Done(status_patch("a"), Outcome::Retry));
    assert_eq!(summaries(&machine.tick(at(1500))), []);
    assert_eq!(summaries(&machine.tick(at(1599))), []);
    machine.observe(at(1599), Event::Pod(pod("a", 7, "1", &json!({"phase": "Pending"}))));
    let requests = machine.tick(at(1600));
    assert_eq!(summaries(&requests), [summary("a", "Running", "")]);
    let last = requests.iter().find(|request| matches!(request.operation, Operation::PatchStatus(..))).unwrap();
    assert_eq!(last.body["metadata"]["resourceVersion"], "7", "a retry uses the newest state");
    machine.observe(at(1600), Event::Done(status_patch("a"), Outcome::Retry));
    assert_eq!(summaries(&machine.tick(at(1799))), []);
    assert_eq!(summaries(&machine.tick(at(1800))), [summary("a", "Running", "")]);
    machine.observe(at(1800), Event::Done(status_patch("a"), Outcome::Done(Some(pod("a", 9, "1", &ready())))));
    assert_eq!(summaries(&machine.tick(at(9000))), []);
}

#[test]
fn failed_request_with_nothing_left_to_do_leaves_no_timer() {
    let mut machine = machine();
    machine.tick(at(0));
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &json!({"phase": "Pending"}))));
    machine.tick(at(0));
    assert_eq!(summaries(&machine.tick(at(1000))), []);
    machine.observe(at(1000), Event::Done(status_patch("a"), Outcome::Retry));
    // Another writer has ended the pod meanwhile.
    machine.observe(at(1050), Event::Pod(pod("a", 3, "1", &json!({"phase": "Failed"}))));
    assert_eq!(summaries(&machine.tick(at(1100))), []);
    assert_eq!(machine.next_wakeup(), None);
}

#[test]
fn stale_event_after_a_response_is_ignored() {
    let mut machine = machine();
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &json!({"phase": "Pending"}))));
    machine.tick(at(0));
    machine.observe(
        at(0),
        Event::Done(status_patch("a"), Outcome::Done(Some(pod("a", 5, "1", &json!({"phase": "Pending"}))))),
    );
    assert_eq!(summaries(&machine.tick(at(1000))), [summary("a", "Running", "")]);
    machine.observe(at(1000), Event::Done(status_patch("a"), Outcome::Done(Some(pod("a", 6, "1", &ready())))));
    machine.observe(at(1001), Event::Pod(pod("a", 5, "1", &json!({"phase": "Pending"}))));
    assert_eq!(summaries(&machine.tick(at(1001))), []);
    machine.observe(at(1002), Event::Pod(pod("a", 6, "1", &ready())));
    assert_eq!(summaries(&machine.tick(at(1002))), []);
}

#[test]
fn readiness_overwritten_by_another_writer_is_restored() {
    let mut machine = machine();
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &ready())));
    assert_eq!(summaries(&machine.tick(at(0))), []);
    let mut lost = ready();
    lost["conditions"][0]["status"] = json!("False");
    machine.observe(at(0), Event::Pod(pod("a", 2, "1", &lost)));
    assert_eq!(summaries(&machine.tick(at(0))), [summary("a", "Running", "")]);
}

#[test]
fn deleted_pod_is_forgotten_with_its_timers() {
    let mut machine = machine();
    let tasks = machine.tick(at(0));
    assert_eq!(tasks.len(), 2, "both nodes register");
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "4", &json!({"phase": "Pending"}))));
    assert_eq!(summaries(&machine.tick(at(0))), [summary("a", "Pending", "")]);
    assert_eq!(machine.next_wakeup(), Some(at(1000)));
    machine.observe(at(10), Event::PodGone(key("a")));
    assert_eq!(machine.next_wakeup(), None);
    machine.observe(at(20), Event::Done(status_patch("a"), Outcome::Gone));
    machine.observe(at(20), Event::Pod(pod("b", 2, "4", &json!({"phase": "Pending"}))));
    assert_eq!(summaries(&machine.tick(at(20))), [summary("b", "Pending", "")]);
}

#[test]
fn stopped_node_is_silent_and_registers_after_restart() {
    let mut machine = machine();
    for request in machine.tick(at(0)) {
        machine.observe(at(0), Event::Done(request.operation, Outcome::Done(None)));
    }
    machine.observe(at(0), Event::PodsListed);
    machine.observe(at(0), Event::Pod(pod("a", 1, "1", &ready())));
    for request in machine.tick(at(0)) {
        machine.observe(at(0), Event::Done(request.operation, Outcome::Done(None)));
    }
    machine.observe(at(0), Event::Kill(0));
    let mut after: Vec<Operation> = Vec::new();
    for second in 0..100 {
        let requests = machine.tick(at(second * 1000));
        for request in &requests {
            machine.observe(at(second * 1000), Event::Done(request.operation.clone(), Outcome::Done(None)));
        }
        after.extend(requests.into_iter().map(|request| request.operation));
    }
    assert!(!after.is_empty() && after.iter().all(|operation| matches!(operation, Operation::Node(1, _))), "{after:?}");
    machine.observe(at(100_000), Event::Revive(0));
    let requests: Vec<Operation> = machine.tick(at(100_000)).into_iter().map(|request| request.operation).collect();
    assert!(requests.contains(&Operation::Node(0, NodeTask::Register)), "{requests:?}");
}

#[test]
fn rendezvous_is_complete_when_the_last_pod_runs() {
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
    let run_to = |machine: &mut StateMachine, until_ms: i64| {
        let mut reported = Vec::new();
        while let Some(now) = machine.next_wakeup().filter(|time| *time <= at(until_ms)) {
            let requests = machine.tick(now);
            reported
                .extend(summaries(&requests).into_iter().map(|summary| (now.as_millisecond(), summary.0, summary.1)));
            for request in requests {
                machine.observe(now, Event::Done(request.operation, Outcome::Done(None)));
            }
        }
        reported
    };
    machine.observe(at(0), member("a"));
    assert_eq!(machine.tick(at(0)).len(), 3, "two nodes and a pod");
    machine.observe(at(0), Event::Done(status_patch("a"), Outcome::Done(None)));
    let reported = run_to(&mut machine, 60_000);
    assert_eq!(reported, [(1000, "a".to_owned(), "Running".to_owned())], "alone it runs without progress");
    machine.observe(at(60_000), member("b"));
    let requests = machine.tick(at(60_000));
    for request in requests {
        machine.observe(at(60_000), Event::Done(request.operation, Outcome::Done(None)));
    }
    let reported = run_to(&mut machine, 90_000);
    let ended: Vec<_> =
        reported.iter().filter(|(_, _, phase)| phase == "Succeeded").map(|(time, name, _)| (*time, &**name)).collect();
    assert_eq!(ended, [(71_000, "a"), (71_000, "b")]);
}
