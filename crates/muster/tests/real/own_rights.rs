//! `muster run` works with its own service account and the rights of `muster manifests`, and needs no others.
//!
//! Everything that Muster ever writes is written here: binds, conditions, events, and deletes of a start that is taken
//! back. The API server's own log says whether something was refused.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_controlplane::{Profile, Version, required};
use serde_json::{Value, json};

use crate::objects::{Gang, V1ALPHA2, V1BETA1, nodes, single};
use crate::stage::{HOME, Load, Stage};

const OURS: &str = "muster.dev/v1alpha1";
const SOON: Duration = Duration::from_secs(60);
const POOL: &str = "pool";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_rights_are_enough_where_kubernetes_has_groups() {
    let Some(stage) = Stage::open("own-rights-gates", Load::Half, Profile::Gates, &[]).await else { return };
    its_own_rights_are_enough(stage, Some(Version::V1_37)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_rights_are_enough_on_a_stock_cluster() {
    let Some(stage) = Stage::open("own-rights-stock", Load::Half, Profile::Stock, &[]).await else { return };
    its_own_rights_are_enough(stage, None).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_own_rights_are_enough_on_older_versions() {
    for version in [Version::V1_36, Version::V1_35] {
        let Some(binary) = required(version, "own rights on older versions") else { continue };
        let name = format!("own-rights-{version}");
        let stage = Stage::open_on(&binary, version, &name, Load::Half, (Profile::Gates, &[])).await;
        its_own_rights_are_enough(stage, Some(version)).await;
    }
}

/// `native` says whose own groups the cluster has, if it has some.
async fn its_own_rights_are_enough(mut stage: Stage, native: Option<Version>) {
    stage.add_nodes(&nodes(POOL, 4)).await;
    stage.start_replica("first", &json!({}));
    stage.await_leader("first").await;
    stage.start_replica("second", &json!({}));
    // The pods of the manifests' own Deployment pass every admission; only images and places are missing.
    stage.until("two pods of the Deployment", SOON, |book| book.pods_in(HOME).count() == 2).await;

    places_groups_and_pods(&mut stage, native).await;
    says_why_a_gang_waits(&mut stage).await;
    takes_back_what_does_not_come_together(&mut stage).await;

    for replica in ["first", "second"] {
        let ended = stage.replica(replica).end();
        assert!(ended.success(), "{replica}: {ended}\n{}", stage.replica(replica).told());
    }
    judge(&stage);
}

async fn places_groups_and_pods(stage: &mut Stage, native: Option<Version>) {
    let mut gangs = vec![Gang::new("ours", 4, POOL)];
    gangs.extend(native.map(|version| Gang::new("native", 4, POOL).native_of(version)));
    for gang in &gangs {
        stage.create(vec![gang.group()]).await;
        stage.create(gang.pods()).await;
    }
    stage.create(vec![single("alone", POOL)]).await;
    for gang in &gangs {
        stage.until(&gang.name, SOON, |book| book.tally(&gang.name).running == gang.size).await;
    }
    stage.until("alone", SOON, |book| book.tally("alone").running == 1).await;
    stage.until_condition(OURS, "ours", "PodGroupScheduled", "True").await;
    stage.until_condition(OURS, "ours", "Started", "True").await;
    let (api_version, upstream) = match native {
        Some(Version::V1_37) => (V1BETA1, "PodGroupInitiallyScheduled"),
        Some(Version::V1_36) => (V1ALPHA2, "PodGroupScheduled"),
        // The first version has no status.
        Some(Version::V1_35) | None => return,
    };
    stage.until_condition(api_version, "native", upstream, "True").await;
    stage.until_condition(api_version, "native", "muster.dev/Started", "True").await;
}

async fn says_why_a_gang_waits(stage: &mut Stage) {
    let large = Gang::new("large", 40, POOL);
    stage.create(vec![large.group()]).await;
    stage.create(large.pods()).await;
    stage.until_condition(OURS, "large", "PodGroupScheduled", "False").await;
    let waits = |pod: &Value| {
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|one| one["type"] == "PodScheduled" && one["status"] == "False" && one["reason"] != Value::Null)
    };
    let told = |event: &Value| event["regarding"]["name"] == "large" && event["reportingController"] == "muster";
    let list = |stage: &Stage, arguments: &[&str]| -> Vec<Value> {
        let text = stage.kubectl(&[&["get", "--output", "json"][..], arguments].concat(), "");
        let list: Value = serde_json::from_str(&text).expect("JSON");
        list["items"].as_array().expect("a list").clone()
    };
    let until = tokio::time::Instant::now() + SOON;
    loop {
        let pods = list(stage, &["pods", "--selector", "gang=large"]);
        let events = list(stage, &["events.events.k8s.io"]);
        if pods.len() == 40 && pods.iter().all(waits) && events.iter().any(told) {
            return;
        }
        if tokio::time::Instant::now() > until {
            stage.fail(&format!("{:?} and {events:?} do not say why the gang waits", pods.first()));
        }
        stage.pass(Duration::from_millis(500)).await;
    }
}

/// A member whose binds the cluster refuses holds up the start until its time is over.
async fn takes_back_what_does_not_come_together(stage: &mut Stage) {
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
    stage.kubectl(&["apply", "-f", "-"], &format!("{policy}\n---\n{binding}\n"));
    await_policy(stage).await;
    let gang = Gang::new("stubborn", 3, POOL).starting_within(5);
    stage.create(vec![gang.group(), gang.controller("StatefulSet")]).await;
    stage.until("two are taken back", SOON, |book| book.tally("stubborn").removed >= 2).await;
    stage.kubectl(&["delete", "validatingadmissionpolicybinding", "not-this-one"], "");
    stage.until("the gang starts at last", SOON, |book| book.tally("stubborn").running == 3).await;
}

/// A policy counts some moments after it was made: a bind of a pod that is not there tells when.
async fn await_policy(stage: &mut Stage) {
    let body = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "stubborn-2"},
        "target": {"kind": "Node", "name": "nowhere"},
    });
    let until = tokio::time::Instant::now() + SOON;
    loop {
        let request = http::Request::post("/api/v1/namespaces/default/pods/stubborn-2/binding")
            .header("content-type", "application/json")
            .body(body.to_string().into_bytes())
            .expect("a request");
        match stage.client.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.message.contains("not this one") => return,
            answer if tokio::time::Instant::now() > until => {
                stage.fail(&format!("the policy never counted: {answer:?}"))
            }
            _ => stage.pass(Duration::from_millis(100)).await,
        }
    }
}

fn judge(stage: &Stage) {
    let entries = stage.audit.entries();
    let refused: BTreeSet<String> = entries
        .iter()
        .filter(|entry| [401, 403].contains(&entry.code()))
        .map(|entry| format!("{} {}: {}", entry.verb, entry.path, entry.code()))
        .collect();
    assert!(refused.is_empty(), "{refused:#?}");
    let agents: BTreeSet<&str> = entries.iter().map(|entry| entry.user_agent.as_str()).collect();
    assert!(agents.iter().all(|agent| agent.starts_with("muster/")), "{agents:?}");
    let verbs: BTreeSet<&str> = entries.iter().map(|entry| entry.verb.as_str()).collect();
    for verb in ["create", "delete", "get", "list", "patch", "update", "watch"] {
        assert!(verbs.contains(verb), "the log tells of no {verb}: {verbs:?}");
    }
    for replica in &stage.replicas {
        // What the policy refused was meant to be.
        let log = replica.log().to_lowercase();
        let refused = |line: &&str| line.contains("forbidden") || line.contains("unauthorized");
        let refused: Vec<&str> = log.lines().filter(refused).filter(|line| !line.contains("not this one")).collect();
        assert!(refused.is_empty(), "{refused:#?}");
    }
}
