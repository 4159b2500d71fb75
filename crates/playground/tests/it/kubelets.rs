//! Tests of the simulated kubelets through the API, under virtual time.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use muster_playground::components::{KubeletSettings, Kubelets, Shape};
use muster_playground::{Server, Settings};
use serde_json::{Value, json};

pub(crate) fn server() -> Server {
    let start = "2026-01-01T00:00:00Z".parse().expect("a date");
    Server::start(Settings { start: Some(start), ..Settings::default() })
}

/// Nodes `n-0`, `n-1`… with 4 cpu and room for 10 pods.
pub(crate) fn shape(count: u32) -> Shape {
    let pool = json!({"name": "n", "count": count, "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"}});
    Shape::from_json(&json!({"pools": [pool]}).to_string()).expect("a shape")
}

pub(crate) fn kubelets(server: &Server, count: u32) -> Kubelets {
    let clock = server.clock();
    Kubelets::start(server.client(), &shape(count), KubeletSettings::default(), clock).expect("kubelets")
}

pub(crate) async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

/// A pod on `n-0` that requests one cpu, with changes merged in.
pub(crate) async fn create_pod(client: &Client, name: &str, change: &Value) -> Pod {
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "n-0", "containers": [
            {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}},
        ]},
    });
    merge(&mut pod, change);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("a new pod")
}

fn merge(into: &mut Value, change: &Value) {
    match (into.as_object_mut(), change.as_object()) {
        (Some(fields), Some(changes)) => {
            for (key, value) in changes {
                merge(fields.entry(key).or_insert(Value::Null), value);
            }
        }
        _ => *into = change.clone(),
    }
}

fn annotated(pairs: &[(&str, &str)]) -> Value {
    let pairs = pairs.iter().map(|(key, value)| (format!("playground.muster.dev/{key}"), (*value).to_owned()));
    json!({"metadata": {"annotations": pairs.collect::<BTreeMap<_, _>>()}, "spec": {"restartPolicy": "Never"}})
}

pub(crate) async fn status(client: &Client, name: &str) -> Value {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = pods.get_opt(name).await.expect("an answer");
    pod.map_or(Value::Null, |pod| serde_json::to_value(pod.status).expect("json"))
}

pub(crate) async fn phase(client: &Client, name: &str) -> String {
    status(client, name).await["phase"].as_str().unwrap_or("gone").to_owned()
}

fn condition<'a>(status: &'a Value, kind: &str) -> &'a Value {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().find(|one| one["type"] == kind).map_or(&Value::Null, |one| &one["status"])
}

#[tokio::test(start_paused = true)]
async fn nodes_register_and_renew_their_leases() {
    let server = server();
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    let old = json!({"metadata": {"name": "n-1", "labels": {"mine": "kept"}}, "spec": {"unschedulable": true},
                     "status": {"conditions": [{"type": "NetworkUnavailable", "status": "False"}]}});
    nodes.create(&PostParams::default(), &serde_json::from_value(old).unwrap()).await.unwrap();
    let _kubelets = kubelets(&server, 2);
    pass(1.0).await;
    for name in ["n-0", "n-1"] {
        let node = serde_json::to_value(nodes.get(name).await.unwrap()).unwrap();
        assert_eq!(node["status"]["allocatable"]["cpu"], "4");
        assert_eq!(condition(&node["status"], "Ready"), "True");
        assert_eq!(condition(&node["status"], "MemoryPressure"), "False");
        assert_eq!(node["status"]["nodeInfo"]["operatingSystem"], "linux");
        assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], name);
    }
    let adopted = serde_json::to_value(nodes.get("n-1").await.unwrap()).unwrap();
    assert_eq!(adopted["metadata"]["labels"]["mine"], "kept");
    assert_eq!(adopted["spec"]["unschedulable"], true);
    assert_eq!(condition(&adopted["status"], "NetworkUnavailable"), "False");

    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = leases.get("n-0").await.unwrap();
    assert_eq!(lease.owner_references()[0].uid, nodes.get("n-0").await.unwrap().uid().unwrap());
    let renewed = |lease: Lease| lease.spec.unwrap().renew_time.unwrap().0;
    let before = renewed(lease);
    pass(100.0).await;
    let passed = renewed(leases.get("n-0").await.unwrap()).duration_since(before).as_secs();
    assert!((90..=101).contains(&passed), "{passed}");
    let heartbeat = |node: &Value| -> jiff::Timestamp {
        let conditions = node["status"]["conditions"].as_array().unwrap();
        let ready = conditions.iter().find(|one| one["type"] == "Ready").unwrap();
        ready["lastHeartbeatTime"].as_str().unwrap().parse().unwrap()
    };
    let before = heartbeat(&adopted);
    pass(600.0).await;
    let after = heartbeat(&serde_json::to_value(nodes.get("n-1").await.unwrap()).unwrap());
    let passed = after.duration_since(before).as_secs();
    assert!((300..=700).contains(&passed), "{passed}");
}

#[tokio::test(start_paused = true)]
async fn pod_starts_becomes_ready_and_ends() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    pass(1.0).await;
    create_pod(
        &client,
        "p",
        &annotated(&[("start-seconds", "2"), ("ready-after-seconds", "3"), ("run-seconds", "10")]),
    )
    .await;
    pass(1.0).await;
    let seen = status(&client, "p").await;
    assert_eq!((&seen["phase"], condition(&seen, "Ready")), (&json!("Pending"), &json!("False")));
    assert_eq!(seen["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    pass(1.5).await;
    let seen = status(&client, "p").await;
    assert_eq!((&seen["phase"], condition(&seen, "Ready")), (&json!("Running"), &json!("False")));
    assert_eq!(condition(&seen, "PodReadyToStartContainers"), "True");
    assert!(seen["podIP"].is_string() && seen["hostIP"].is_string() && seen["startTime"].is_string());
    pass(3.0).await;
    let seen = status(&client, "p").await;
    assert_eq!((condition(&seen, "Ready"), condition(&seen, "ContainersReady")), (&json!("True"), &json!("True")));
    assert_eq!(seen["containerStatuses"][0]["ready"], true);
    pass(7.0).await;
    let seen = status(&client, "p").await;
    assert_eq!((&seen["phase"], condition(&seen, "Ready")), (&json!("Succeeded"), &json!("False")));
    assert_eq!(seen["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert_eq!(seen["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
}

#[tokio::test(start_paused = true)]
async fn phase_follows_exit_code_restart_policy_and_deadline() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    create_pod(&client, "fails", &annotated(&[("run-seconds", "1"), ("exit-code", "7")])).await;
    let mut again = annotated(&[("run-seconds", "1"), ("exit-code", "7")]);
    again["spec"]["restartPolicy"] = json!("OnFailure");
    create_pod(&client, "again", &again).await;
    create_pod(&client, "late", &json!({"spec": {"activeDeadlineSeconds": 5}})).await;
    let sleeper = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i", "command": ["sleep", "3"]}]}});
    create_pod(&client, "sleeper", &sleeper).await;
    pass(8.5).await;
    let fails = status(&client, "fails").await;
    assert_eq!(
        (&fails["phase"], &fails["containerStatuses"][0]["state"]["terminated"]["exitCode"]),
        (&json!("Failed"), &json!(7))
    );
    let again = status(&client, "again").await;
    assert_eq!((&again["phase"], &again["containerStatuses"][0]["restartCount"]), (&json!("Running"), &json!(2)));
    let late = status(&client, "late").await;
    assert_eq!((&late["phase"], &late["reason"]), (&json!("Failed"), &json!("DeadlineExceeded")));
    assert_eq!(phase(&client, "sleeper").await, "Succeeded");
}

#[tokio::test(start_paused = true)]
async fn kubelet_rejects_overcommit_by_racing_schedulers() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    pass(1.0).await;
    let big =
        json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2500m"}}}]}});
    // Two schedulers have each bound a pod to the same room.
    tokio::join!(create_pod(&client, "a", &big), create_pod(&client, "b", &big));
    pass(3.0).await;
    let winner = if phase(&client, "a").await == "Running" { "a" } else { "b" };
    let loser = if winner == "a" { "b" } else { "a" };
    assert_eq!(phase(&client, winner).await, "Running");
    let b = status(&client, loser).await;
    assert_eq!((&b["phase"], &b["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
    let why = "Pod was rejected: Node didn't have enough resource: cpu, requested: 2500, used: 2500, capacity: 4000";
    assert_eq!(b["message"], why);
    // The resources of a finished pod are free.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete(winner, &DeleteParams::default()).await.unwrap();
    pass(2.0).await;
    create_pod(&client, "c", &big).await;
    pass(2.0).await;
    assert_eq!(phase(&client, "c").await, "Running");
    create_pod(&client, "elsewhere", &json!({"spec": {"nodeSelector": {"a": "b"}}})).await;
    pass(1.0).await;
    assert_eq!(status(&client, "elsewhere").await["reason"], "NodeAffinity");
}

#[tokio::test(start_paused = true)]
async fn invalid_annotation_fails_the_pod_and_is_named() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    create_pod(&client, "p", &annotated(&[("run-seconds", "soon")])).await;
    pass(1.0).await;
    let seen = status(&client, "p").await;
    assert_eq!((&seen["phase"], &seen["reason"]), (&json!("Failed"), &json!("InvalidPlaygroundAnnotation")));
    let message = seen["message"].as_str().unwrap();
    assert!(message.starts_with("annotation playground.muster.dev/run-seconds: \"soon\": must be"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn deletion_takes_the_stop_time_within_the_grace_period() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create_pod(&client, "quick", &json!({})).await;
    create_pod(&client, "slow", &annotated(&[("stop-seconds", "20")])).await;
    create_pod(&client, "stubborn", &annotated(&[("stop-seconds", "1000")])).await;
    pass(3.0).await;
    for name in ["quick", "slow"] {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    }
    pods.delete("stubborn", &DeleteParams::default().grace_period(5)).await.unwrap();
    pass(0.4).await;
    assert_eq!(phase(&client, "quick").await, "Running");
    pass(0.2).await;
    assert_eq!(phase(&client, "quick").await, "gone");
    pass(4.0).await;
    assert_eq!((phase(&client, "slow").await, phase(&client, "stubborn").await), ("Running".into(), "Running".into()));
    pass(1.0).await;
    assert_eq!((phase(&client, "slow").await, phase(&client, "stubborn").await), ("Running".into(), "gone".into()));
    pass(15.0).await;
    assert_eq!(phase(&client, "slow").await, "gone");
}

#[tokio::test(start_paused = true)]
async fn finalizer_keeps_the_last_status_readable() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create_pod(&client, "p", &json!({"metadata": {"finalizers": ["example.com/keep"]}})).await;
    pass(3.0).await;
    pods.delete("p", &DeleteParams::default()).await.unwrap();
    pass(5.0).await;
    let seen = status(&client, "p").await;
    assert_eq!(seen["phase"], "Failed");
    assert_eq!(seen["containerStatuses"][0]["state"]["terminated"]["exitCode"], 143);
    let revision = pods.get("p").await.unwrap().resource_version();
    pass(60.0).await;
    assert_eq!(pods.get("p").await.unwrap().resource_version(), revision, "nothing is written again and again");
    let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    pods.patch("p", &PatchParams::default(), &free).await.unwrap();
    pass(1.0).await;
    assert_eq!(phase(&client, "p").await, "gone");
}

#[tokio::test(start_paused = true)]
async fn force_deleted_pod_frees_resources_and_name_at_once() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let whole = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]}});
    create_pod(&client, "p", &whole).await;
    pass(3.0).await;
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    let second = create_pod(&client, "p", &whole).await;
    pass(3.0).await;
    let now = pods.get("p").await.unwrap();
    assert_eq!((now.uid(), now.status.unwrap().phase.unwrap()), (second.uid(), "Running".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn stopped_kubelet_is_idle_and_resumes_from_the_api() {
    let server = server();
    let client = server.client();
    let kubelets = kubelets(&server, 2);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for name in ["stays", "forced", "deleted"] {
        create_pod(&client, name, &json!({})).await;
    }
    create_pod(&client, "ends", &annotated(&[("run-seconds", "30")])).await;
    let slow = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "0"}}}]},
                      "metadata": {"annotations": {"playground.muster.dev/start-seconds": "30"}}});
    create_pod(&client, "starting", &slow).await;
    pass(3.0).await;
    kubelets.kill("n-0").await.unwrap();
    assert_eq!(kubelets.kill("n-9").await.unwrap_err().to_string(), "no kubelet runs for a node \"n-9\"");
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let renewed = leases.get("n-0").await.unwrap().resource_version();
    pods.delete("forced", &DeleteParams::default().grace_period(0)).await.unwrap();
    pods.delete("deleted", &DeleteParams::default()).await.unwrap();
    let stays = pods.get("stays").await.unwrap();
    pass(60.0).await;
    assert_eq!(leases.get("n-0").await.unwrap().resource_version(), renewed);
    assert_eq!(phase(&client, "deleted").await, "Running");
    assert_eq!(phase(&client, "ends").await, "Running");
    create_pod(&client, "new", &json!({})).await;
    pass(5.0).await;
    assert_eq!(phase(&client, "new").await, "Pending");
    kubelets.revive("n-0").await.unwrap();
    pass(3.0).await;
    assert_eq!(pods.get("stays").await.unwrap().resource_version(), stays.resource_version(), "it just runs on");
    assert_eq!(phase(&client, "deleted").await, "gone");
    assert_eq!(phase(&client, "ends").await, "Succeeded");
    assert_eq!(phase(&client, "new").await, "Running");
    assert_eq!(phase(&client, "starting").await, "Pending", "what it had begun is begun again");
    assert_ne!(leases.get("n-0").await.unwrap().resource_version(), renewed);
}

#[tokio::test(start_paused = true)]
async fn completed_rendezvous_survives_a_kubelet_restart() {
    for is_fresh in [false, true] {
        let server = server();
        let client = server.client();
        let mut running = kubelets(&server, 1);
        pass(1.0).await;
        for (name, seconds) in [("long", "100"), ("short", "20")] {
            create_pod(&client, name, &annotated(&[("meets", "train/2"), ("run-seconds", seconds)])).await;
        }
        pass(40.0).await;
        assert_eq!(phase(&client, "short").await, "Succeeded");
        assert_eq!(condition(&status(&client, "long").await, "playground.muster.dev/Met"), "True");
        if is_fresh {
            drop(running);
            running = kubelets(&server, 1);
        } else {
            running.kill("n-0").await.unwrap();
            pass(5.0).await;
            running.revive("n-0").await.unwrap();
        }
        pass(50.0).await;
        assert_eq!(phase(&client, "long").await, "Running");
        pass(15.0).await;
        assert_eq!(phase(&client, "long").await, "Succeeded", "100 seconds after both ran, without the other pod");
        drop(running);
    }
}

#[tokio::test(start_paused = true)]
async fn interrupted_watch_loses_nothing() {
    let server = server();
    let client = server.client();
    let _kubelets = kubelets(&server, 1);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    create_pod(&client, "before", &json!({})).await;
    pass(3.0).await;
    // Everything that happens now is compacted before the watch can read it.
    for round in 0..5 {
        create_pod(
            &client,
            &format!("during-{round}"),
            &json!({"spec": {"containers": [{"name": "c", "image": "i"}]}}),
        )
        .await;
    }
    pods.delete("before", &DeleteParams::default().grace_period(0)).await.unwrap();
    server.compact();
    pass(120.0).await;
    for round in 0..5 {
        assert_eq!(phase(&client, &format!("during-{round}")).await, "Running");
    }
    let whole = json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "4"}}}]}});
    create_pod(&client, "after", &whole).await;
    pass(3.0).await;
    assert_eq!(phase(&client, "after").await, "Running", "the room of the lost pod is free");
}

#[tokio::test(start_paused = true)]
async fn new_kubelets_resume_from_the_api() {
    let server = server();
    let client = server.client();
    let first = kubelets(&server, 1);
    create_pod(
        &client,
        "old",
        &json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]}}),
    )
    .await;
    pass(3.0).await;
    drop(first);
    // Its name sorts first, and still it does not displace the running pod.
    create_pod(
        &client,
        "a-new",
        &json!({"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}]}}),
    )
    .await;
    pass(1.0).await;
    let _second = kubelets(&server, 1);
    pass(3.0).await;
    assert_eq!(phase(&client, "old").await, "Running");
    assert_eq!(status(&client, "a-new").await["reason"], "OutOfcpu");
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_retried() {
    for seed in 0..5 {
        let server = server();
        let client = server.client();
        let bad = crate::late_client::faulty_client(&server, Duration::from_millis(700), seed);
        let clock = server.clock();
        let _kubelets = Kubelets::start(bad, &shape(2), KubeletSettings::default(), clock).expect("kubelets");
        let pods: Api<Pod> = Api::default_namespaced(client.clone());
        for name in ["a", "b", "c"] {
            create_pod(&client, name, &json!({})).await;
        }
        create_pod(&client, "ends", &annotated(&[("run-seconds", "5")])).await;
        pass(120.0).await;
        for name in ["a", "b", "c"] {
            assert_eq!(phase(&client, name).await, "Running", "seed {seed}");
            pods.delete(name, &DeleteParams::default()).await.unwrap();
        }
        assert_eq!(phase(&client, "ends").await, "Succeeded", "seed {seed}");
        pass(120.0).await;
        assert_eq!(pods.list(&ListParams::default()).await.unwrap().items.len(), 1, "seed {seed}");
        let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
        for lease in leases.list(&ListParams::default()).await.unwrap() {
            let age = server.now().duration_since(lease.spec.unwrap().renew_time.unwrap().0);
            assert!(age.as_secs() < 40, "seed {seed}: {age}");
        }
    }
}

/// Prints the cost; the time is not asserted.
async fn thousand_nodes(minutes: u32) {
    let server = server();
    let began = std::time::Instant::now();
    let _kubelets = kubelets(&server, 1000);
    pass(1.0).await;
    let nodes: Api<Node> = Api::all(server.client());
    assert_eq!(nodes.list(&ListParams::default()).await.unwrap().items.len(), 1000);
    println!("1000 nodes registered: {:?}", began.elapsed());
    let (began, revision) = (std::time::Instant::now(), server.revision());
    pass(60.0 * f64::from(minutes)).await;
    let writes = server.revision() - revision;
    assert!(writes >= u64::from(minutes) * 6000, "{writes}");
    println!("{minutes} virtual minutes of 1000 nodes: {:?}, {writes} writes", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_for_two_minutes() {
    // `MUSTER_TIMES=30` makes it an hour; that takes minutes without optimisation.
    let times: u32 = std::env::var("MUSTER_TIMES").ok().and_then(|times| times.parse().ok()).unwrap_or(1);
    thousand_nodes(2 * times).await;
}
