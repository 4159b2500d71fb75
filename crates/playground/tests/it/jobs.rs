//! Tests of Jobs through the API, under virtual time. Pods run on simulated nodes, or terminate as the test demands.

use std::collections::BTreeMap;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Client, ResourceExt};
use muster_playground::Server;
use muster_playground::components::{Jobs, PodGc, PodGcSettings};
use serde_json::{Value, json};

use crate::kubelets::{self, kubelets, pass, server};

fn job_controller(server: &Server) -> Jobs {
    Jobs::start(server.client(), server.clock())
}

/// A job `j` of one container, with changes of its spec and annotations of its pods.
pub(crate) fn job(spec: &Value, annotations: &[(&str, &str)]) -> Job {
    let annotations = annotations.iter().map(|(key, value)| (format!("playground.muster.dev/{key}"), *value));
    let template = json!({
        "metadata": {"annotations": annotations.collect::<BTreeMap<_, _>>()},
        "spec": {"restartPolicy": "Never", "nodeName": "n-0", "containers": [{"name": "c", "image": "i"}]},
    });
    let mut job = json!({"metadata": {"name": "j"}, "spec": {"template": template}});
    for (key, value) in spec.as_object().unwrap() {
        job["spec"][key] = value.clone();
    }
    serde_json::from_value(job).unwrap()
}

/// A job whose pods no node runs: they terminate as the test demands.
fn idle(spec: &Value) -> Job {
    let mut job = job(spec, &[]);
    job.spec.as_mut().unwrap().template.spec.as_mut().unwrap().node_name = None;
    job
}

pub(crate) async fn create(client: &Client, job: &Job) {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), job).await.unwrap();
}

async fn change(client: &Client, spec: Value) {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.patch("j", &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await.unwrap();
}

async fn status(client: &Client) -> Value {
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    serde_json::to_value(jobs.get("j").await.unwrap().status).unwrap()
}

/// Type, reason and message of the conditions that are true.
async fn conditions(client: &Client) -> Vec<[String; 3]> {
    let status = status(client).await;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let standing = all.iter().filter(|one| one["status"] == "True");
    standing.map(|one| [&one["type"], &one["reason"], &one["message"]].map(text)).collect()
}

fn twice(first: &str, second: &str, reason: &str, message: &str) -> Vec<[String; 3]> {
    [first, second].map(|kind| [kind.to_owned(), reason.to_owned(), message.to_owned()]).to_vec()
}

fn failed(reason: &str, message: &str) -> Vec<[String; 3]> {
    twice("FailureTarget", "Failed", reason, message)
}

pub(crate) async fn pods(client: &Client) -> Vec<Pod> {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.list(&ListParams::default()).await.unwrap().items
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

pub(crate) fn is_live(pod: &Pod) -> bool {
    !["Succeeded", "Failed"].contains(&phase(pod)) && pod.metadata.deletion_timestamp.is_none()
}

async fn live(client: &Client) -> Vec<Pod> {
    pods(client).await.into_iter().filter(is_live).collect()
}

pub(crate) fn index(pod: &Pod) -> &str {
    pod.annotations().get("batch.kubernetes.io/job-completion-index").map_or("", String::as_str)
}

async fn live_indexes(client: &Client) -> String {
    let mut indexes: Vec<String> = live(client).await.iter().map(|pod| index(pod).to_owned()).collect();
    indexes.sort();
    indexes.join(",")
}

/// Terminates a pod as a kubelet would.
pub(crate) async fn end(server: &Server, pod: &Pod, code: i32) {
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let now = server.clock().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let state = json!({"terminated": {"exitCode": code, "finishedAt": now, "startedAt": now, "reason": "Done"}});
    let container =
        json!({"name": "c", "image": "i", "imageID": "", "ready": false, "restartCount": 0, "state": state});
    let patch = json!({"status": {"phase": phase, "containerStatuses": [container]}});
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Terminates the active pod of an index.
async fn end_index(server: &Server, wanted: &str, code: i32) {
    let live = live(&server.client()).await;
    end(server, live.iter().find(|pod| index(pod) == wanted).unwrap(), code).await;
}

/// Reason and message of the job's events, in their order.
async fn events(client: &Client) -> Vec<(String, String)> {
    let events: Api<Event> = Api::default_namespaced(client.clone());
    let events = events.list(&ListParams::default().fields("involvedObject.kind=Job")).await.unwrap().items;
    let mut events: Vec<_> = events.into_iter().map(|event| (event.first_timestamp.clone(), event)).collect();
    events.sort_by_key(|(time, event)| (time.as_ref().map(|time| time.0), event.metadata.resource_version.clone()));
    events.into_iter().map(|(_, event)| (event.reason.unwrap(), event.message.unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn job_runs_to_completion() {
    let server = server();
    let client = server.client();
    let _clients = (job_controller(&server), kubelets(&server, 1));
    create(&client, &job(&json!({}), &[("run-seconds", "5")])).await;
    pass(3.0).await;
    let created = pods(&client).await.remove(0);
    let uid = Api::<Job>::default_namespaced(client.clone()).get("j").await.unwrap().uid().unwrap();
    let name = created.name_any();
    assert!(name.starts_with("j-") && name.len() == 7, "{name}");
    assert_eq!(created.metadata.generate_name.as_deref(), Some("j-"));
    assert_eq!(
        json!(created.labels()),
        json!({"batch.kubernetes.io/controller-uid": uid, "batch.kubernetes.io/job-name": "j",
            "controller-uid": uid, "job-name": "j"})
    );
    assert_eq!(created.finalizers(), ["batch.kubernetes.io/job-tracking"]);
    let owner = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": uid, "controller": true,
        "blockOwnerDeletion": true}]);
    assert_eq!(json!(created.owner_references()), owner);
    assert_eq!(created.spec.unwrap().hostname, None);
    let start = "2026-01-01T00:00:00Z";
    assert_eq!(
        status(&client).await,
        json!({"active": 1, "ready": 1, "startTime": start, "terminating": 0, "uncountedTerminatedPods": {}})
    );
    pass(10.0).await;
    let condition = |kind: &str, time: &str| {
        json!({"type": kind, "status": "True", "reason": "CompletionsReached", "lastProbeTime": time,
            "lastTransitionTime": time, "message": "Reached expected number of succeeded pods"})
    };
    let end = status(&client).await["completionTime"].as_str().unwrap().to_owned();
    assert_eq!(
        status(&client).await,
        json!({"completionTime": end, "ready": 0, "startTime": start, "succeeded": 1, "terminating": 0,
            "uncountedTerminatedPods": {},
            "conditions": [condition("SuccessCriteriaMet", &end), condition("Complete", &end)]})
    );
    assert_eq!(pods(&client).await[0].finalizers(), [""; 0]);
    let expected =
        [("SuccessfulCreate".to_owned(), format!("Created pod: {name}")), event("Completed", "Job completed")];
    assert_eq!(events(&client).await, expected);
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    let before = jobs.get("j").await.unwrap().resource_version();
    pass(600.0).await;
    assert_eq!(jobs.get("j").await.unwrap().resource_version(), before, "the status is final");
}

fn event(reason: &str, message: &str) -> (String, String) {
    (reason.to_owned(), message.to_owned())
}

#[tokio::test(start_paused = true)]
async fn every_index_succeeds_once() {
    let server = server();
    let client = server.client();
    let _job_controller = job_controller(&server);
    create(&client, &idle(&json!({"completionMode": "Indexed", "completions": 5, "parallelism": 3}))).await;
    pass(2.0).await;
    assert_eq!(live_indexes(&client).await, "0,1,2");
    let one = live(&client).await.into_iter().find(|pod| index(pod) == "1").unwrap();
    assert!(one.name_any().starts_with("j-1-") && one.name_any().len() == 9);
    assert_eq!(one.labels()["batch.kubernetes.io/job-completion-index"], "1");
    assert_eq!(one.spec.as_ref().unwrap().hostname.as_deref(), Some("j-1"));
    end_index(&server, "2", 0).await;
    end_index(&server, "0", 1).await;
    pass(3.0).await;
    // Without a limit per index, a failure delays all new pods of a job, unless a later success resets the backoff.
    assert_eq!(live_indexes(&client).await, "0,1,3");
    assert_eq!(status(&client).await["completedIndexes"], "2");
    assert_eq!(status(&client).await["failed"], 1);
    for index in ["0", "1", "3", "4"] {
        end_index(&server, index, 0).await;
        pass(3.0).await;
    }
    let status = status(&client).await;
    assert_eq!(
        (&status["completedIndexes"], &status["succeeded"], &status["failed"]),
        (&json!("0-4"), &json!(5), &json!(1))
    );
    assert_eq!(conditions(&client).await[1][0], "Complete");
}

#[tokio::test(start_paused = true)]
async fn failures_are_retried_with_backoff_up_to_the_limit() {
    let server = server();
    let client = server.client();
    let _clients = (job_controller(&server), kubelets(&server, 1));
    create(&client, &job(&json!({"backoffLimit": 3}), &[("run-seconds", "1"), ("exit-code", "2")])).await;
    pass(200.0).await;
    let mut times: Vec<i64> =
        pods(&client).await.iter().map(|pod| pod.creation_timestamp().unwrap().0.as_second()).collect();
    times.sort_unstable();
    let waits: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    // Two seconds to run, then 10, 20 and 40.
    assert_eq!(waits, [12, 22, 42]);
    let expected = failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    assert_eq!(conditions(&client).await, expected);
    assert_eq!((&status(&client).await["failed"], &status(&client).await["active"]), (&json!(4), &Value::Null));
    let last = events(&client).await.pop().unwrap();
    assert_eq!(last, event("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
}

#[tokio::test(start_paused = true)]
async fn container_restarts_count_towards_the_limit() {
    let server = server();
    let client = server.client();
    let _clients = (job_controller(&server), kubelets(&server, 1));
    let mut job = job(&json!({"backoffLimit": 2}), &[("run-seconds", "1"), ("exit-code", "2")]);
    job.spec.as_mut().unwrap().template.spec.as_mut().unwrap().restart_policy = Some("OnFailure".to_owned());
    create(&client, &job).await;
    pass(60.0).await;
    assert_eq!(conditions(&client).await[1][1], "BackoffLimitExceeded");
    assert_eq!(pods(&client).await.len(), 0, "the pod that ran was deleted");
    assert_eq!(status(&client).await["failed"], 1);
}

#[tokio::test(start_paused = true)]
async fn deadline_ends_a_job_and_ttl_removes_it() {
    let server = server();
    let client = server.client();
    let _clients = (job_controller(&server), kubelets(&server, 1));
    let spec = json!({"activeDeadlineSeconds": 30, "ttlSecondsAfterFinished": 100, "parallelism": 2, "completions": 2});
    create(&client, &job(&spec, &[])).await;
    pass(29.0).await;
    assert_eq!(live(&client).await.len(), 2);
    pass(6.0).await;
    let expected = failed("DeadlineExceeded", "Job was active longer than specified deadline");
    assert_eq!(conditions(&client).await, expected);
    assert_eq!((status(&client).await["failed"].clone(), pods(&client).await.len()), (json!(2), 0));
    pass(90.0).await;
    assert_eq!(conditions(&client).await.len(), 2, "it is kept for a while");
    pass(15.0).await;
    assert!(Api::<Job>::default_namespaced(client.clone()).get_opt("j").await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn suspended_job_has_no_pods_and_counts_no_failures() {
    let server = server();
    let client = server.client();
    let _clients = (job_controller(&server), kubelets(&server, 1));
    create(&client, &job(&json!({"parallelism": 3, "completions": 3, "suspend": true}), &[("run-seconds", "20")]))
        .await;
    pass(5.0).await;
    assert_eq!(pods(&client).await.len(), 0);
    let suspended = [["Suspended", "JobSuspended", "Job suspended"].map(str::to_owned)];
    assert_eq!(conditions(&client).await, suspended);
    assert_eq!(status(&client).await["startTime"], Value::Null);
    change(&client, json!({"suspend": false})).await;
    pass(5.0).await;
    assert_eq!(live(&client).await.len(), 3);
    assert_eq!(status(&client).await["startTime"], "2026-01-01T00:00:05Z");
    assert_eq!(conditions(&client).await, [[""; 3]; 0]);
    change(&client, json!({"suspend": true})).await;
    pass(5.0).await;
    assert_eq!(pods(&client).await.len(), 0);
    let observed = status(&client).await;
    assert_eq!(
        (&observed["failed"], &observed["active"], &observed["startTime"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    change(&client, json!({"suspend": false})).await;
    pass(40.0).await;
    assert_eq!(conditions(&client).await[1][0], "Complete");
    assert_eq!(status(&client).await["succeeded"], 3);
    let reasons: Vec<String> = events(&client).await.into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons.iter().filter(|reason| *reason == "Suspended").count(), 1, "recorded twice, counted once");
    assert!(reasons.contains(&"Resumed".to_owned()) && reasons.contains(&"SuccessfulDelete".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn pods_follow_parallelism() {
    let server = server();
    let client = server.client();
    let _clients = (job_controller(&server), kubelets(&server, 1));
    create(&client, &job(&json!({"parallelism": 2, "completions": 8}), &[])).await;
    for (parallelism, expected) in [(5, 5), (1, 1), (0, 0), (9, 8)] {
        change(&client, json!({"parallelism": parallelism})).await;
        pass(5.0).await;
        assert_eq!(live(&client).await.len(), expected);
        assert_eq!(status(&client).await["active"].as_u64().unwrap_or(0), expected as u64);
    }
    assert_eq!(status(&client).await["failed"], Value::Null, "those that were too many did not fail");
}

#[tokio::test(start_paused = true)]
async fn work_queue_completes_with_one_success_when_the_others_end() {
    let server = server();
    let client = server.client();
    let _job_controller = job_controller(&server);
    create(&client, &idle(&json!({"parallelism": 3}))).await;
    pass(2.0).await;
    let all = live(&client).await;
    assert_eq!(all.len(), 3);
    end(&server, &all[0], 0).await;
    pass(3.0).await;
    assert_eq!((live(&client).await.len(), conditions(&client).await.len()), (2, 0), "it is not replaced");
    end(&server, &all[1], 1).await;
    end(&server, &all[2], 0).await;
    pass(3.0).await;
    assert_eq!(conditions(&client).await[1][0], "Complete");
    let status = status(&client).await;
    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(2), &json!(1)));
}

#[tokio::test(start_paused = true)]
async fn index_has_its_own_limit_and_backoff() {
    let server = server();
    let client = server.client();
    let _job_controller = job_controller(&server);
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 1});
    create(&client, &idle(&spec)).await;
    pass(2.0).await;
    end_index(&server, "0", 1).await;
    end_index(&server, "1", 0).await;
    pass(8.0).await;
    assert_eq!(live_indexes(&client).await, "2");
    pass(5.0).await;
    assert_eq!(live_indexes(&client).await, "0,2");
    let again = live(&client).await.into_iter().find(|pod| index(pod) == "0").unwrap();
    assert_eq!(again.annotations()["batch.kubernetes.io/job-index-failure-count"], "1");
    end_index(&server, "0", 1).await;
    pass(60.0).await;
    assert_eq!(live_indexes(&client).await, "2", "its limit is reached, the others go on");
    assert_eq!((status(&client).await["failedIndexes"].clone(), conditions(&client).await.len()), (json!("0"), 0));
    end_index(&server, "2", 0).await;
    pass(3.0).await;
    assert_eq!(conditions(&client).await, failed("FailedIndexes", "Job has failed indexes"));
    let observed = status(&client).await;
    assert_eq!(
        (&observed["completedIndexes"], &observed["succeeded"], &observed["failed"]),
        (&json!("1,2"), &json!(2), &json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn too_many_failed_indexes_fail_the_job() {
    let server = server();
    let client = server.client();
    let _job_controller = job_controller(&server);
    let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 4, "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 1});
    create(&client, &idle(&spec)).await;
    pass(2.0).await;
    end_index(&server, "0", 1).await;
    pass(3.0).await;
    assert_eq!((conditions(&client).await.len(), live(&client).await.len()), (0, 3));
    end_index(&server, "3", 1).await;
    pass(3.0).await;
    let expected =
        failed("MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes");
    assert_eq!(conditions(&client).await, expected);
    let observed = status(&client).await;
    assert_eq!(
        (&observed["failedIndexes"], &observed["failed"], live(&client).await.len()),
        (&json!("0,3"), &json!(4), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn failure_policy_matches_exit_codes_and_conditions() {
    let server = server();
    let client = server.client();
    let _job_controller = job_controller(&server);
    let rules = json!([
        {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
        {"action": "FailJob", "onExitCodes": {"containerName": "c", "operator": "In", "values": [42]}},
    ]);
    create(&client, &idle(&json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}}))).await;
    pass(2.0).await;
    end(&server, &live(&client).await[0], 7).await;
    pass(15.0).await;
    assert_eq!((conditions(&client).await.len(), status(&client).await["failed"].clone()), (0, Value::Null));
    let second = live(&client).await.remove(0);
    end(&server, &second, 42).await;
    pass(3.0).await;
    let name = second.name_any();
    let message =
        format!("Container c for pod default/{name} failed with exit code 42 matching FailJob rule at index 1");
    assert_eq!(conditions(&client).await, failed("PodFailurePolicy", &message));
}

#[tokio::test(start_paused = true)]
async fn success_policy_ends_the_job_early() {
    let server = server();
    let client = server.client();
    let _clients = (job_controller(&server), kubelets(&server, 1));
    let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
        "successPolicy": {"rules": [{"succeededIndexes": "0,2", "succeededCount": 1}]}});
    create(&client, &job(&spec, &[])).await;
    pass(3.0).await;
    end_index(&server, "1", 0).await;
    pass(3.0).await;
    assert_eq!(conditions(&client).await.len(), 0);
    end_index(&server, "2", 0).await;
    pass(5.0).await;
    let expected = twice("SuccessCriteriaMet", "Complete", "SuccessPolicy", "Matched rules at index 0");
    assert_eq!(conditions(&client).await, expected);
    let observed = status(&client).await;
    assert_eq!(
        (&observed["completedIndexes"], &observed["failed"], live(&client).await.len()),
        (&json!("1,2"), &Value::Null, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn replacement_policy_failed_waits_for_termination() {
    for (policy, early) in [("Failed", 0), ("TerminatingOrFailed", 1)] {
        let server = server();
        let client = server.client();
        let _clients = (job_controller(&server), kubelets(&server, 1));
        let slow = [("stop-seconds", "25")];
        create(&client, &job(&json!({"podReplacementPolicy": policy}), &slow)).await;
        pass(3.0).await;
        let all: Api<Pod> = Api::default_namespaced(client.clone());
        all.delete(&pods(&client).await[0].name_any(), &DeleteParams::default()).await.unwrap();
        pass(15.0).await;
        assert_eq!(live(&client).await.len(), early, "{policy}");
        assert_eq!(status(&client).await["terminating"], 1);
        pass(30.0).await;
        assert_eq!((live(&client).await.len(), status(&client).await["failed"].clone()), (1, json!(1)), "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_a_deleted_job_are_removed() {
    for policy in [PropagationPolicy::Background, PropagationPolicy::Foreground, PropagationPolicy::Orphan] {
        let server = server();
        let client = server.client();
        let _clients = (job_controller(&server), kubelets(&server, 1));
        create(&client, &job(&json!({"parallelism": 2, "completions": 2}), &[])).await;
        pass(3.0).await;
        let jobs: Api<Job> = Api::default_namespaced(client.clone());
        let parameters = DeleteParams { propagation_policy: Some(policy.clone()), ..DeleteParams::default() };
        jobs.delete("j", &parameters).await.unwrap();
        pass(5.0).await;
        assert!(jobs.get_opt("j").await.unwrap().is_none(), "{policy:?}");
        let left = pods(&client).await;
        if matches!(policy, PropagationPolicy::Orphan) {
            assert!(left.len() == 2 && left.iter().all(|pod| pod.finalizers().is_empty() && is_live(pod)));
        } else {
            assert_eq!(left.len(), 0, "{policy:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn job_managed_by_another_controller_is_ignored() {
    let server = server();
    let client = server.client();
    let _job_controller = job_controller(&server);
    create(&client, &job(&json!({"managedBy": "example.com/mine"}), &[])).await;
    pass(5.0).await;
    assert_eq!((pods(&client).await.len(), status(&client).await), (0, json!({})));
}

#[tokio::test(start_paused = true)]
async fn deleted_unbound_pod_is_collected_before_its_replacement() {
    let server = server();
    let client = server.client();
    let _job_controller = job_controller(&server);
    let _pod_gc = PodGc::start(server.client(), PodGcSettings::default(), server.clock());
    create(&client, &idle(&json!({"podReplacementPolicy": "Failed"}))).await;
    pass(3.0).await;
    let all: Api<Pod> = Api::default_namespaced(client.clone());
    all.delete(&pods(&client).await[0].name_any(), &DeleteParams::default()).await.unwrap();
    pass(5.0).await;
    assert_eq!(live(&client).await.len(), 0);
    pass(45.0).await;
    assert_eq!((pods(&client).await.len(), status(&client).await["failed"].clone()), (1, json!(1)));
}

fn pod_gc(server: &Server, terminated_max: usize) -> PodGc {
    let settings = PodGcSettings { terminated_max, ..PodGcSettings::default() };
    PodGc::start(server.client(), settings, server.clock())
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_deleted_node_are_collected_after_quarantine() {
    let server = server();
    let client = server.client();
    let _pod_gc = pod_gc(&server, 0);
    let nodes: Api<Node> = Api::all(client.clone());
    for name in ["n-0", "n-1"] {
        let node = json!({"metadata": {"name": name}});
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    }
    kubelets::create_pod(&client, "lost", &json!({"metadata": {"finalizers": ["example.com/kept"]}})).await;
    kubelets::create_pod(&client, "kept", &json!({"spec": {"nodeName": "n-1"}})).await;
    kubelets::create_pod(&client, "waiting", &json!({"spec": {"nodeName": null}})).await;
    pass(60.0).await;
    nodes.delete("n-0", &DeleteParams::default()).await.unwrap();
    pass(35.0).await;
    assert_eq!(kubelets::phase(&client, "lost").await, "Pending", "it may be a mistake");
    pass(40.0).await;
    let lost = kubelets::status(&client, "lost").await;
    assert_eq!(lost["phase"], "Failed");
    let conditions = lost["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|one| one["type"] == "DisruptionTarget").unwrap();
    assert_eq!(
        (&target["reason"], &target["message"]),
        (&json!("DeletionByPodGC"), &json!("PodGC: node no longer exists"))
    );
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert!(pods.get("lost").await.unwrap().metadata.deletion_timestamp.is_some());
    for name in ["kept", "waiting"] {
        let pod = pods.get(name).await.unwrap();
        assert!(is_live(&pod), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn terminated_pods_above_the_threshold_are_collected_oldest_first() {
    let server = server();
    let client = server.client();
    let _pod_gc = pod_gc(&server, 2);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for name in ["a", "b", "c", "d"] {
        let pod = kubelets::create_pod(&client, name, &json!({"spec": {"nodeName": null}})).await;
        if name == "c" {
            let evicted = Patch::Merge(json!({"status": {"phase": "Failed", "reason": "Evicted"}}));
            pods.patch_status("c", &PatchParams::default(), &evicted).await.unwrap();
        } else {
            end(&server, &pod, 0).await;
        }
        pass(2.0).await;
    }
    pass(30.0).await;
    let left: Vec<String> = crate::jobs::pods(&client).await.iter().map(ResourceExt::name_any).collect();
    assert_eq!(left, ["b", "d"], "the evicted one goes first, then the oldest");
}
