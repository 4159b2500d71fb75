//! Compares Jobs step by step with kube-controller-manager 1.37.1: statuses, pods, events and errors.
//!
//! `tests/job_answers.json` has the results of the same steps on a real control plane without nodes; times are written
//! as `T`, random suffixes are removed.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use muster_playground::Server;
use muster_playground::components::{Jobs, PodGc, PodGcSettings};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::jobs::{end, index, is_live, phase};
use crate::kubelets::{pass, server};

#[derive(Deserialize)]
struct Answers {
    states: Vec<State>,
    events: BTreeMap<String, Value>,
    refusals: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct State {
    job: String,
    when: String,
    status: Value,
    /// Name without the random suffix, phase, whether it has the finalizer, whether it is being deleted.
    pods: Value,
}

fn answers() -> Answers {
    serde_json::from_str(include_str!("../job_answers.json")).expect("answers")
}

fn job(name: &str, changes: &Value) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]});
    let mut job = json!({"metadata": {"name": name}, "spec": {"template": {"spec": pod}}});
    for (key, value) in changes.as_object().expect("changes") {
        job["spec"][key] = value.clone();
    }
    job
}

async fn create(client: &Client, name: &str, changes: Value) -> Result<Job, kube::Error> {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &serde_json::from_value(job(name, &changes)).expect("a job")).await
}

async fn pods_of(client: &Client, name: &str) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.list(&ListParams::default().labels(&format!("job-name={name}"))).await.expect("pods").items
}

/// Terminates the first active pod of a job, or that of an index.
async fn end_one(server: &Server, name: &str, wanted: Option<&str>, code: i32) {
    let pods = pods_of(&server.client(), name).await;
    let live = pods.iter().find(|pod| is_live(pod) && wanted.is_none_or(|wanted| index(pod) == wanted));
    end(server, live.expect("a live pod"), code).await;
}

async fn suspend(client: &Client, name: &str, is: bool) {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let patch = Patch::Merge(json!({"spec": {"suspend": is}}));
    jobs.patch(name, &PatchParams::default(), &patch).await.expect("a patch");
}

fn without_times(status: &mut Value) {
    for field in ["startTime", "completionTime"] {
        if !status[field].is_null() {
            status[field] = json!("T");
        } else if let Some(status) = status.as_object_mut() {
            status.remove(field);
        }
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        condition["lastProbeTime"] = json!("T");
        condition["lastTransitionTime"] = json!("T");
    }
}

/// The name without its random suffix.
fn stem(name: &str) -> &str {
    name.rsplit_once('-').map_or(name, |(stem, _)| stem)
}

async fn compare(client: &Client, answers: &Answers, job: &str, when: &str) {
    let state = answers.states.iter().find(|state| state.job == job && state.when == when).expect("an answer");
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let mut status = serde_json::to_value(jobs.get(job).await.expect("the job").status).expect("json");
    without_times(&mut status);
    let mut pods = Vec::new();
    for pod in pods_of(client, job).await {
        let is_going = pod.metadata.deletion_timestamp.is_some();
        pods.push((stem(&pod.name_any()).to_owned(), phase(&pod).to_owned(), !pod.finalizers().is_empty(), is_going));
        let text = status.to_string().replace(&format!("default/{}", pod.name_any()), "default/POD");
        status = serde_json::from_str(&text).expect("json");
    }
    pods.sort();
    assert_eq!(status, state.status, "{job} {when}");
    assert_eq!(json!(pods), state.pods, "{job} {when}");
}

async fn start_all(client: &Client) {
    let codes = |action: &str, codes: Value| {
        let mut rule = json!({"action": action, "onExitCodes": {"operator": "In", "values": codes}});
        if action == "FailJob" {
            rule["onExitCodes"]["containerName"] = json!("c");
        }
        rule
    };
    let indexed = |completions: u32, parallelism: u32| json!({"completionMode": "Indexed", "completions": completions, "parallelism": parallelism});
    let with = |mut spec: Value, changes: &Value| {
        for (key, value) in changes.as_object().expect("changes") {
            spec[key] = value.clone();
        }
        spec
    };
    let success = json!({"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]});
    let policy = json!({"rules": [codes("Ignore", json!([7])), codes("FailJob", json!([42]))]});
    for (name, spec) in [
        ("plain", json!({})),
        ("ix", with(indexed(3, 3), &json!({"backoffLimitPerIndex": 0, "maxFailedIndexes": 1}))),
        ("sus", json!({"parallelism": 2, "completions": 2, "suspend": true})),
        ("succ", with(indexed(3, 3), &json!({ "successPolicy": success }))),
        ("pol", json!({"backoffLimit": 0, "podFailurePolicy": policy})),
        ("wq", json!({"parallelism": 2})),
        ("dead", json!({"activeDeadlineSeconds": 8, "parallelism": 2, "completions": 2})),
        ("lim", json!({"backoffLimit": 0})),
        ("repl", json!({"podReplacementPolicy": "Failed"})),
        ("ixs", indexed(4, 2)),
    ] {
        create(client, name, spec).await.expect(name);
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_match_a_real_cluster() {
    let server = server();
    let client = server.client();
    let answers = answers();
    let _controller = Jobs::start(server.client(), server.clock());
    let _pod_gc = PodGc::start(server.client(), PodGcSettings::default(), server.clock());
    start_all(&client).await;
    pass(3.0).await;
    for job in ["plain", "ix", "sus", "succ", "wq", "dead"] {
        compare(&client, &answers, job, "running").await;
    }
    for (job, index, code) in [
        ("plain", None, 0),
        ("ix", Some("0"), 1),
        ("succ", Some("1"), 0),
        ("pol", None, 7),
        ("wq", None, 0),
        ("lim", None, 3),
        ("ixs", Some("1"), 0),
    ] {
        end_one(&server, job, index, code).await;
    }
    suspend(&client, "sus", false).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let unlucky = pods_of(&client, "repl").await[0].name_any();
    pods.delete(&unlucky, &DeleteParams::default()).await.expect("a delete");
    pass(4.0).await;
    for job in ["plain", "ix", "sus", "succ", "pol", "wq", "lim", "repl", "ixs"] {
        compare(&client, &answers, job, "one end").await;
    }
    for (job, index, code) in [("ix", Some("2"), 1), ("succ", Some("2"), 0), ("wq", None, 1)] {
        end_one(&server, job, index, code).await;
    }
    suspend(&client, "sus", true).await;
    pass(4.0).await;
    for job in ["ix", "succ", "sus", "wq", "dead"] {
        compare(&client, &answers, job, "two ends").await;
    }
    pass(6.0).await;
    for job in ["pol", "dead", "repl"] {
        compare(&client, &answers, job, "later").await;
    }
    end_one(&server, "pol", None, 42).await;
    pass(20.0).await;
    for job in ["pol", "repl", "dead"] {
        compare(&client, &answers, job, "last").await;
    }
    compare_events(&client, &answers).await;
}

/// Events, unordered: reason, message, type and count.
async fn compare_events(client: &Client, answers: &Answers) {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    for (job, expected) in &answers.events {
        let selector = format!("involvedObject.name={job}");
        let events = events.list(&ListParams::default().fields(&selector)).await.expect("events").items;
        let pods = pods_of(client, job).await;
        let mut observed: Vec<(String, String, String, i32)> = Vec::new();
        for event in events {
            let mut message = event.message.clone().unwrap_or_default();
            // The last word, or the one before a space, is a pod's name.
            if let Some((words, name)) = message.rsplit_once("pod: ") {
                message = format!("{words}pod: {}-POD", stem(name));
            }
            for pod in &pods {
                message = message.replace(&pod.name_any(), &format!("{}-POD", stem(&pod.name_any())));
            }
            observed.push((
                event.reason.unwrap_or_default(),
                message,
                event.type_.unwrap_or_default(),
                event.count.unwrap_or(0),
            ));
        }
        observed.sort();
        assert_eq!(json!(observed), *expected, "{job}");
    }
}

#[tokio::test(start_paused = true)]
async fn policies_are_rejected_with_the_same_messages() {
    let server = server();
    let answers = answers();
    let failure = |rule: Value| json!({"podFailurePolicy": {"rules": [rule]}});
    let indexed = |key: &str, value: Value| json!({"completionMode": "Indexed", "completions": 3, key: value});
    let mut many = indexed("maxFailedIndexes", json!(4));
    many["parallelism"] = json!(200_000);
    let mut early = failure(json!({"action": "Ignore", "onPodConditions": [{"type": "A"}]}));
    early["podReplacementPolicy"] = json!("TerminatingOrFailed");
    let rules = json!([{"succeededIndexes": "0-5", "succeededCount": 9}, {}]);
    for (name, spec) in [
        ("b1", failure(json!({"action": "Nope", "onExitCodes": {"operator": "In", "values": [0, 3, 2, 2]}}))),
        (
            "b2",
            failure(
                json!({"action": "FailIndex", "onExitCodes": {"operator": "X", "containerName": "zz", "values": []}}),
            ),
        ),
        ("b3", failure(json!({"action": "Count"}))),
        ("b4", failure(json!({"action": "Count", "onPodConditions": [{"type": "A", "status": "Maybe"}]}))),
        ("b5", json!({"successPolicy": {"rules": []}})),
        ("b6", indexed("successPolicy", json!({"rules": []}))),
        ("b7", indexed("successPolicy", json!({ "rules": rules }))),
        ("b8", many),
        ("b9", json!({"podReplacementPolicy": "Never"})),
        ("b10", json!({"managedBy": "x"})),
        ("b11", early),
    ] {
        let Err(kube::Error::Api(status)) = create(&server.client(), name, spec).await else { panic!("{name}") };
        let expected = format!("Job.batch \"{name}\" is invalid: {}", answers.refusals[name]);
        assert_eq!(status.message, expected);
    }
}
