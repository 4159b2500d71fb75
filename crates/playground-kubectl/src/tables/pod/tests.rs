//! Tests of pods in every state that kubectl distinguishes.

use super::*;

const NOW: &str = "2026-01-01T01:00:00Z";

fn row(pod: &Value) -> [String; 3] {
    let cells = cells(pod, NOW.parse().unwrap());
    [1, 2, 3].map(|index: usize| text(&cells[index]).to_owned())
}

fn pod(status: Value) -> Value {
    let mut pod = json!({
        "metadata": {"name": "p", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {
            "containers": [{"name": "a"}, {"name": "b"}],
            "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
        },
    });
    pod["status"] = status;
    pod
}

/// A pod without init containers.
fn plain(status: Value) -> Value {
    let mut pod = pod(status);
    pod["spec"]["initContainers"].take();
    pod
}

fn running(ready: bool) -> Value {
    json!({"ready": ready, "restartCount": 0, "state": {"running": {}}})
}

fn ended(code: i64, reason: &str) -> Value {
    json!({"ready": false, "restartCount": 0, "state": {"terminated": {"exitCode": code, "reason": reason}}})
}

fn waiting(reason: &str) -> Value {
    json!({"ready": false, "restartCount": 0, "state": {"waiting": {"reason": reason}}})
}

#[test]
fn status_defaults_to_the_phase() {
    assert_eq!(row(&plain(json!({"phase": "Pending"}))), ["0/2", "Pending", "0"]);
    assert_eq!(row(&plain(json!({"phase": "Failed", "reason": "Evicted"}))), ["0/2", "Evicted", "0"]);
    let gated = json!([{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]);
    assert_eq!(row(&plain(json!({"phase": "Pending", "conditions": gated}))), ["0/2", "SchedulingGated", "0"]);
}

#[test]
fn container_reasons_override_the_phase() {
    let with = |containers: Value| {
        let ready = json!([{"type": "Ready", "status": "True"}]);
        let status = json!({"phase": "Running", "conditions": ready, "containerStatuses": containers});
        row(&plain(status))
    };
    assert_eq!(with(json!([running(true), running(false)])), ["1/2", "Running", "0"]);
    assert_eq!(with(json!([waiting("CrashLoopBackOff"), running(true)])), ["1/2", "CrashLoopBackOff", "0"]);
    assert_eq!(with(json!([ended(0, "Completed"), running(true)])), ["1/2", "Running", "0"]);
    assert_eq!(with(json!([ended(0, "Completed"), ended(1, "Error")])), ["0/2", "Error", "0"]);
    assert_eq!(with(json!([ended(137, ""), running(true)])), ["1/2", "ExitCode:137", "0"]);
    let killed = json!({"state": {"terminated": {"exitCode": 137, "signal": 9}}});
    assert_eq!(with(json!([killed, running(true)])), ["1/2", "Signal:9", "0"]);
    let mut unready = plain(json!({"phase": "Running", "containerStatuses": [ended(0, "Completed"), running(true)]}));
    assert_eq!(row(&unready), ["1/2", "NotReady", "0"]);
    unready["metadata"]["deletionTimestamp"] = json!(NOW);
    assert_eq!(row(&unready), ["1/2", "Terminating", "0"]);
}

#[test]
fn init_containers_come_first() {
    let with = |init: Value| row(&pod(json!({"phase": "Pending", "initContainerStatuses": init})));
    assert_eq!(with(json!([{"name": "i", "state": {"running": {}}}])), ["0/3", "Init:0/2", "0"]);
    assert_eq!(
        with(json!([{"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}])),
        ["0/3", "Init:0/2", "0"]
    );
    let crashed = json!({"name": "i", "restartCount": 4, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:55:00Z"}}});
    assert_eq!(with(json!([crashed])), ["0/3", "Init:CrashLoopBackOff", "4 (5m ago)"]);
    assert_eq!(with(json!([{"name": "i", "state": {"terminated": {"exitCode": 2}}}])), ["0/3", "Init:ExitCode:2", "0"]);
    assert_eq!(
        with(json!([{"name": "i", "state": {"terminated": {"exitCode": 2, "signal": 15}}}])),
        ["0/3", "Init:Signal:15", "0"]
    );
    assert_eq!(
        with(json!([{"name": "i", "state": {"terminated": {"exitCode": 2, "reason": "Error"}}}])),
        ["0/3", "Init:Error", "0"]
    );
    let done = json!({"name": "i", "restartCount": 3, "state": {"terminated": {"exitCode": 0}}});
    assert_eq!(with(json!([done, {"name": "s", "state": {"running": {}}}])), ["0/3", "Init:1/2", "3"]);
}

#[test]
fn sidecars_count_and_finished_init_containers_do_not() {
    let done = json!({"name": "i", "restartCount": 3, "state": {"terminated": {"exitCode": 0}}});
    let sidecar = json!({"name": "s", "restartCount": 2, "started": true, "ready": true, "state": {"running": {}},
        "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:30Z"}}});
    let mut own = running(true);
    own["restartCount"] = json!(1);
    own["lastState"] = json!({"terminated": {"finishedAt": "2026-01-01T00:30:00Z"}});
    let status = json!({
        "phase": "Running", "initContainerStatuses": [done, sidecar], "containerStatuses": [own, running(true)],
    });
    assert_eq!(row(&pod(status)), ["3/3", "Running", "3 (30s ago)"]);
}

#[test]
fn deleted_pod_shows_unknown_or_its_final_phase() {
    let mut gone = plain(json!({"phase": "Running", "reason": "NodeLost"}));
    gone["metadata"]["deletionTimestamp"] = json!(NOW);
    assert_eq!(row(&gone)[1], "Unknown");
    gone["status"] = json!({"phase": "Succeeded"});
    assert_eq!(row(&gone)[1], "Succeeded");
}

#[test]
fn wide_columns() {
    let mut wide = plain(json!({
        "phase": "Running", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "::1"}], "nominatedNodeName": "n2",
        "conditions": [{"type": "x/one", "status": "True"}, {"type": "x/two", "status": "False"}],
    }));
    wide["spec"]["nodeName"] = json!("n1");
    wide["spec"]["readinessGates"] = json!([{"conditionType": "x/one"}, {"conditionType": "x/two"}]);
    let cells = cells(&wide, NOW.parse().unwrap());
    assert_eq!(cells[4..], ["60m", "10.0.0.1", "n1", "n2", "1/2"]);
}
