//! `muster run` works with its own service account and the permissions of `muster manifests`, and needs no others.
//!
//! The tests cover all writes of Muster: binds, conditions, events, and deletions of a start that is rolled back. The
//! audit log shows whether a request was forbidden.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_api::keys::annotations::START;
use muster_controlplane::{Profile, Version, required};
use serde_json::{Value, json};

use crate::objects::{Gang, V1ALPHA2, V1BETA1, nodes, single};
use crate::test_cluster::{HOME, Load, TestCluster};

const OURS: &str = "muster.dev/v1alpha1";
const TIMEOUT: Duration = Duration::from_secs(60);
const POOL: &str = "pool";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_rights_are_enough_where_kubernetes_has_groups() {
    let Some(cluster) = TestCluster::start("own-rights-gates", Load::Half, Profile::Gates, &[]).await else { return };
    its_own_rights_are_enough(cluster, Some(Version::V1_37)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_rights_are_enough_on_a_stock_cluster() {
    let Some(cluster) = TestCluster::start("own-rights-stock", Load::Half, Profile::Stock, &[]).await else { return };
    its_own_rights_are_enough(cluster, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_rights_are_enough_on_older_versions() {
    for version in [Version::V1_36, Version::V1_35] {
        let Some(binary) = required(version, "own rights on older versions") else { continue };
        let name = format!("own-rights-{version}");
        let cluster = TestCluster::start_on(&binary, version, &name, Load::Half, (Profile::Gates, &[])).await;
        its_own_rights_are_enough(cluster, Some(version)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fewer_rights_are_enough_without_webhook_and_volcano() {
    let cluster = TestCluster::start("own-rights-fewer", Load::Half, Profile::Stock, &[]).await;
    let Some(mut cluster) = cluster else { return };
    cluster.apply_manifests(Version::V1_37, &["--without-webhook", "--without-volcano"]);
    cluster.add_nodes(&nodes(POOL, 2)).await;
    cluster.start_replica("only", &json!({}));
    cluster.await_leader("only").await;
    schedules_groups_and_pods(&mut cluster, None).await;
    preempts(&mut cluster).await;
    assert!(cluster.replica("only").end().success());
    check_nothing_was_refused(&cluster);
    let secrets = cluster.kubectl(&["--namespace", HOME, "get", "secrets", "--output", "name"], "");
    assert_eq!(secrets, "", "there is no certificate");
}

/// `native` is the version whose own groups the cluster serves, if any.
async fn its_own_rights_are_enough(mut cluster: TestCluster, native: Option<Version>) {
    cluster.add_nodes(&nodes(POOL, 4)).await;
    cluster.start_replica("first", &json!({}));
    cluster.await_leader("first").await;
    cluster.start_replica("second", &json!({}));
    // The pods of the manifests' own Deployment pass admission; only images and nodes are missing.
    cluster.until("two pods of the Deployment", TIMEOUT, |pods| pods.pods_in(HOME).count() == 2).await;

    schedules_groups_and_pods(&mut cluster, native).await;
    only_binds_write_stamps(&mut cluster).await;
    reports_why_a_gang_is_pending(&mut cluster).await;
    rolls_back_incomplete_start(&mut cluster).await;

    for replica in ["first", "second"] {
        let ended = cluster.replica(replica).end();
        assert!(ended.success(), "{replica}: {ended}\n{}", cluster.replica(replica).dump());
    }
    check_invariants(&cluster);
}

async fn schedules_groups_and_pods(cluster: &mut TestCluster, native: Option<Version>) {
    let mut gangs = vec![Gang::new("ours", 4, POOL)];
    gangs.extend(native.map(|version| Gang::new("native", 4, POOL).native_of(version)));
    for gang in &gangs {
        cluster.create(vec![gang.group()]).await;
        cluster.create(gang.pods()).await;
    }
    cluster.create(vec![single("alone", POOL)]).await;
    for gang in &gangs {
        cluster.until(&gang.name, TIMEOUT, |pods| pods.counts(&gang.name).running == gang.size).await;
    }
    cluster.until("alone", TIMEOUT, |pods| pods.counts("alone").running == 1).await;
    cluster.until_condition(OURS, "ours", "PodGroupScheduled", "True").await;
    cluster.until_condition(OURS, "ours", "Started", "True").await;
    let (api_version, upstream) = match native {
        Some(Version::V1_37) => (V1BETA1, "PodGroupInitiallyScheduled"),
        Some(Version::V1_36) => (V1ALPHA2, "PodGroupScheduled"),
        // The first version has no status.
        Some(Version::V1_35) | None => return,
    };
    cluster.until_condition(api_version, "native", upstream, "True").await;
    cluster.until_condition(api_version, "native", "muster.dev/Started", "True").await;
}

/// A bound member has a stamp, and users can remove it but not write another.
async fn only_binds_write_stamps(cluster: &mut TestCluster) {
    let text = cluster.kubectl(&["get", "pod", "ours-0", "--output", "json"], "");
    let pod: Value = serde_json::from_str(&text).expect("JSON");
    let stamp = pod["metadata"]["annotations"][START].as_str().unwrap_or_default().to_owned();
    let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
    assert!(stamp.contains(uid) && stamp.contains(r#""confirmed":false,"minCount":4"#), "{stamp}");
    let patch = |value: Value| {
        http::Request::patch("/api/v1/namespaces/default/pods/ours-0")
            .header("content-type", "application/merge-patch+json")
            .body(json!({"metadata": {"annotations": {START: value}}}).to_string().into_bytes())
            .expect("a request")
    };
    let until = tokio::time::Instant::now() + TIMEOUT;
    loop {
        // A policy takes effect with a delay.
        let forged = stamp.replace(r#""priority":0"#, r#""priority":1000000"#);
        match cluster.client.request::<Value>(patch(json!(forged))).await {
            Err(kube::Error::Api(status)) if status.message.contains("written by Muster when it binds") => break,
            answer if tokio::time::Instant::now() > until => cluster.fail(&format!("a stamp was forged: {answer:?}")),
            _ => cluster.pass(Duration::from_millis(100)).await,
        }
    }
    let label = http::Request::patch("/api/v1/namespaces/default/pods/ours-0")
        .header("content-type", "application/merge-patch+json")
        .body(json!({"metadata": {"labels": {"mine": "yes"}}}).to_string().into_bytes())
        .expect("a request");
    for harmless in [label, patch(Value::Null)] {
        cluster.client.request::<Value>(harmless).await.expect("anything else may change");
    }
}

async fn reports_why_a_gang_is_pending(cluster: &mut TestCluster) {
    let large = Gang::new("large", 40, POOL);
    cluster.create(vec![large.group()]).await;
    cluster.create(large.pods()).await;
    cluster.until_condition(OURS, "large", "PodGroupScheduled", "False").await;
    let waits = |pod: &Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "PodScheduled" && one["status"] == "False" && one["reason"] != Value::Null)
    };
    let is_reported = |event: &Value| event["regarding"]["name"] == "large" && event["reportingController"] == "muster";
    let list = |cluster: &TestCluster, arguments: &[&str]| -> Vec<Value> {
        let text = cluster.kubectl(&[&["get", "--output", "json"][..], arguments].concat(), "");
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    };
    let until = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let pods = list(cluster, &["pods", "--selector", "gang=large"]);
        let events = list(cluster, &["events.events.k8s.io"]);
        if pods.len() == 40 && pods.iter().all(waits) && events.iter().any(is_reported) {
            return;
        }
        if tokio::time::Instant::now() > until {
            cluster.fail(&format!("{:?} and {events:?} do not report why the gang is pending", pods.first()));
        }
        cluster.pass(Duration::from_millis(500)).await;
    }
}

/// Fills both nodes, so that a pod of a higher priority needs a victim.
async fn preempts(cluster: &mut TestCluster) {
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "urgent"}, "value": 1000});
    cluster.kubectl(&["create", "-f", "-"], &class.to_string());
    let rest = Gang::new("rest", 11, POOL);
    cluster.create(vec![rest.group()]).await;
    cluster.create(rest.pods()).await;
    cluster.until("the nodes are full", TIMEOUT, |pods| pods.counts("rest").running == 11).await;
    let mut urgent = single("urgent", POOL);
    urgent["spec"]["priorityClassName"] = "urgent".into();
    cluster.create(vec![urgent]).await;
    cluster.until("the pod has preempted another", TIMEOUT, |pods| pods.counts("urgent").running == 1).await;
}

/// A member whose binds are rejected delays the start until its deadline.
async fn rolls_back_incomplete_start(cluster: &mut TestCluster) {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "not-this-one"},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/binding"]},
            ]},
            "validations": [{"expression": "request.name != 'stubborn-2'", "message": "not this one"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "not-this-one"},
        "spec": {"policyName": "not-this-one", "validationActions": ["Deny"]},
    });
    cluster.kubectl(&["apply", "-f", "-"], &format!("{policy}\n---\n{binding}\n"));
    await_policy(cluster).await;
    let gang = Gang::new("stubborn", 3, POOL).starting_within(5);
    cluster.create(vec![gang.group(), gang.controller("StatefulSet")]).await;
    cluster.until("two pods are rolled back", TIMEOUT, |pods| pods.counts("stubborn").removed >= 2).await;
    cluster.kubectl(&["delete", "validatingadmissionpolicybinding", "not-this-one"], "");
    cluster.until("the gang starts at last", TIMEOUT, |pods| pods.counts("stubborn").running == 3).await;
}

/// A policy takes effect with a delay: binding a pod that does not exist shows when.
async fn await_policy(cluster: &mut TestCluster) {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "stubborn-2"},
        "target": {"kind": "Node", "name": "nowhere"},
    });
    let until = tokio::time::Instant::now() + TIMEOUT;
    loop {
        let request = http::Request::post("/api/v1/namespaces/default/pods/stubborn-2/binding")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .expect("a request");
        match cluster.client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.message.contains("not this one") => return,
            answer if tokio::time::Instant::now() > until => {
                cluster.fail(&format!("the policy never took effect: {answer:?}"))
            }
            _ => cluster.pass(Duration::from_millis(100)).await,
        }
    }
}

fn check_nothing_was_refused(cluster: &TestCluster) {
    let refused: BTreeSet<String> = cluster
        .audit
        .entries()
        .iter()
        .filter(|entry| [401, 403].contains(&entry.code()))
        .map(|entry| format!("{} {}: {}", entry.verb, entry.path, entry.code()))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

fn check_invariants(cluster: &TestCluster) {
    check_nothing_was_refused(cluster);
    let entries = cluster.audit.entries();
    let agents: BTreeSet<&str> = entries.iter().map(|entry| entry.user_agent.as_str()).collect();
    assert!(agents.iter().all(|agent| agent.starts_with("muster/")), "{agents:?}");
    let verbs: BTreeSet<&str> = entries.iter().map(|entry| entry.verb.as_str()).collect();
    // Lists are streamed by watches.
    for verb in ["create", "delete", "get", "patch", "update", "watch"] {
        assert!(verbs.contains(verb), "the audit log has no {verb}: {verbs:?}");
    }
    for replica in &cluster.replicas {
        // Rejections by the policy are expected.
        let log = replica.log().to_lowercase();
        let refused = |line: &&str| line.contains("forbidden") || line.contains("unauthorized");
        let refused: Vec<&str> = log.lines().filter(refused).filter(|line| !line.contains("not this one")).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}
