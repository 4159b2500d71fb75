//! Tests of JobSets through the API, under virtual time.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use muster_playground::Server;
use muster_playground::components::{JobSets, Jobs, PodGc, PodGcSettings, jobset};
use serde_json::{Value, json};

use crate::kubelets::{kubelets, pass, server};

struct TestCluster {
    server: Server,
    _clients: (Jobs, JobSets, PodGc, muster_playground::components::Kubelets),
}

impl TestCluster {
    async fn start() -> Self {
        let server = server();
        let (client, clock) = (server.client(), server.clock());
        jobset::install(&client).await.unwrap();
        jobset::install(&client).await.expect("twice is no mistake");
        let pod_gc = PodGc::start(client.clone(), PodGcSettings::default(), clock);
        let clients = (Jobs::start(client.clone(), clock), JobSets::start(client, clock), pod_gc, kubelets(&server, 4));
        Self { server, _clients: clients }
    }

    fn client(&self) -> Client {
        self.server.client()
    }

    fn sets(&self) -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("jobset.x-k8s.io", "v1alpha2", "JobSet"));
        Api::default_namespaced_with(self.client(), &kind)
    }

    async fn try_create(&self, spec: Value) -> Result<DynamicObject, kube::Error> {
        let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "js"}, "spec": spec});
        self.sets().create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await
    }

    async fn create(&self, spec: Value) {
        self.try_create(spec).await.unwrap();
    }

    async fn status(&self) -> Value {
        self.sets().get("js").await.unwrap().data["status"].clone()
    }

    /// Type, status and reason of the conditions.
    async fn conditions(&self) -> Vec<String> {
        let status = self.status().await;
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        all.iter().map(|one| [&one["type"], &one["status"], &one["reason"]].map(text).join(" ")).collect()
    }

    async fn jobs(&self) -> Vec<Job> {
        let jobs: Api<Job> = Api::default_namespaced(self.client());
        jobs.list(&ListParams::default()).await.unwrap().items
    }

    async fn job_names(&self) -> Vec<String> {
        self.jobs().await.iter().map(ResourceExt::name_any).collect()
    }

    async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::default_namespaced(self.client());
        pods.list(&ListParams::default()).await.unwrap().items
    }

    async fn reasons(&self) -> Vec<String> {
        let events: Api<Event> = Api::default_namespaced(self.client());
        let events = events.list(&ListParams::default().fields("involvedObject.kind=JobSet")).await.unwrap().items;
        events.into_iter().map(|event| format!("{}: {}", event.reason.unwrap(), event.message.unwrap())).collect()
    }

    async fn suspend(&self, is: bool) {
        let patch = Patch::Merge(json!({"spec": {"suspend": is}}));
        self.sets().patch("js", &PatchParams::default(), &patch).await.unwrap();
    }
}

/// A replicated job of two pods with this run time and exit code.
fn replicated(name: &str, replicas: u32, seconds: u32, code: u32) -> Value {
    let annotations = json!({
        "playground.muster.dev/run-seconds": seconds.to_string(), "playground.muster.dev/exit-code": code.to_string(),
    });
    let template = json!({"metadata": {"annotations": annotations},
        "spec": {"restartPolicy": "Never", "nodeName": "n-0", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({"parallelism": 2, "completions": 2, "backoffLimit": 0, "template": template});
    json!({"name": name, "replicas": replicas, "template": {"spec": job}})
}

fn with(mut value: Value, field: &str, change: Value) -> Value {
    value[field] = change;
    value
}

#[tokio::test(start_paused = true)]
async fn job_set_runs_to_completion() {
    let cluster = TestCluster::start().await;
    cluster.create(json!({"replicatedJobs": [replicated("driver", 1, 10, 0), replicated("worker", 2, 20, 0)]})).await;
    let written = cluster.sets().get("js").await.unwrap().data;
    assert_eq!(written["spec"]["successPolicy"], json!({"operator": "All"}));
    assert_eq!(written["spec"]["startupPolicy"], json!({"startupPolicyOrder": "AnyOrder"}));
    assert_eq!(written["spec"]["network"], json!({"enableDNSHostnames": true, "publishNotReadyAddresses": true}));
    let first = &written["spec"]["replicatedJobs"][0];
    assert_eq!(
        (&first["groupName"], &first["template"]["spec"]["completionMode"]),
        (&json!("default"), &json!("Indexed"))
    );
    pass(5.0).await;
    assert_eq!(cluster.job_names().await, ["js-driver-0", "js-worker-0", "js-worker-1"]);
    let pods = cluster.pods().await;
    assert_eq!(pods.len(), 6);
    let last = pods.iter().find(|pod| pod.name_any().starts_with("js-worker-1-1-")).unwrap();
    assert_eq!(last.labels()["jobset.sigs.k8s.io/job-global-index"], "2");
    let spec = last.spec.clone().unwrap();
    assert_eq!((spec.hostname.as_deref(), spec.subdomain.as_deref()), (Some("js-worker-1-1"), Some("js")));
    let services: Api<Service> = Api::default_namespaced(cluster.client());
    let service = services.get("js").await.unwrap().spec.unwrap();
    assert_eq!((service.cluster_ip.as_deref(), service.publish_not_ready_addresses), (Some("None"), Some(true)));
    let counts = |name: &str, ready: u32, succeeded: u32, active: u32| json!({"name": name, "ready": ready, "succeeded": succeeded, "failed": 0, "active": active, "suspended": 0});
    assert_eq!(
        cluster.status().await,
        json!({"restarts": 0, "replicatedJobsStatus": [counts("worker", 2, 0, 2), counts("driver", 1, 0, 1)]})
    );
    pass(30.0).await;
    assert_eq!(cluster.conditions().await, ["Completed True AllJobsCompleted"]);
    let status = cluster.status().await;
    assert_eq!(
        (&status["terminalState"], &status["replicatedJobsStatus"][0]),
        (&json!("Completed"), &counts("worker", 0, 2, 0))
    );
    assert_eq!(cluster.reasons().await, ["AllJobsCompleted: jobset completed successfully"]);
    let before = cluster.sets().get("js").await.unwrap().resource_version();
    pass(600.0).await;
    assert_eq!(cluster.sets().get("js").await.unwrap().resource_version(), before, "the status is final");
}

#[tokio::test(start_paused = true)]
async fn failure_restarts_all_jobs_up_to_the_limit() {
    for strategy in ["Recreate", "BlockingRecreate"] {
        let cluster = TestCluster::start().await;
        cluster
            .create(json!({"replicatedJobs": [replicated("bad", 1, 5, 3), replicated("good", 1, 1000, 0)],
                "failurePolicy": {"maxRestarts": 1, "restartStrategy": strategy}}))
            .await;
        pass(12.0).await;
        let restarted = cluster.status().await;
        assert_eq!(
            (&restarted["restarts"], &restarted["restartsCountTowardsMax"]),
            (&json!(1), &json!(1)),
            "{strategy}"
        );
        for job in cluster.jobs().await {
            assert_eq!(job.labels()["jobset.sigs.k8s.io/restart-attempt"], "1", "{strategy}: {}", job.name_any());
        }
        assert_eq!(cluster.conditions().await, ["RestartingJobSet False JobsReady"], "{strategy}");
        pass(30.0).await;
        let conditions = cluster.conditions().await;
        assert_eq!(conditions, ["RestartingJobSet False JobSetFailed", "Failed True ReachedMaxRestarts"], "{strategy}");
        let failed = cluster.status().await["conditions"][1]["message"].clone();
        assert_eq!(failed, "jobset failed due to reaching max number of restarts (first failed job: js-bad-0)");
        assert_eq!(cluster.job_names().await, ["js-bad-0"], "those that ran are deleted");
        assert!(cluster.reasons().await.contains(
            &"RestartJobSetFailurePolicyAction: applying RestartJobSet failure policy action (first failed job: js-bad-0)"
                .to_owned()
        ));
    }
}

#[tokio::test(start_paused = true)]
async fn failure_rules_match_reason_and_job() {
    let rule = |action: &str, targets: Value| {
        json!({"action": action, "onJobFailureReasons": ["BackoffLimitExceeded"], "targetReplicatedJobs": targets,
            "onJobFailureMessagePatterns": ["backoff .*limit"]})
    };
    for (rules, expected) in [
        (json!([rule("FailJobSet", json!(["bad"]))]), "Failed True FailJobSetFailurePolicyAction"),
        (json!([rule("FailJobSet", json!(["good"]))]), "Failed True ReachedMaxRestarts"),
        (json!([]), "Failed True ReachedMaxRestarts"),
    ] {
        let cluster = TestCluster::start().await;
        cluster
            .create(json!({"replicatedJobs": [replicated("bad", 1, 5, 3), replicated("good", 1, 50, 0)],
                "failurePolicy": {"maxRestarts": 0, "rules": rules}}))
            .await;
        pass(15.0).await;
        assert_eq!(cluster.conditions().await, [expected], "{rules}");
    }
    let cluster = TestCluster::start().await;
    cluster
        .create(json!({"replicatedJobs": [replicated("bad", 1, 5, 3)],
            "failurePolicy": {"rules": [rule("RestartJobSetAndIgnoreMaxRestarts", json!([]))]}}))
        .await;
    pass(60.0).await;
    let status = cluster.status().await;
    assert!(status["restarts"].as_u64().unwrap() >= 3, "{status}");
    assert_eq!(status["restartsCountTowardsMax"], Value::Null);
    let cluster = TestCluster::start().await;
    cluster.create(json!({"replicatedJobs": [replicated("bad", 1, 5, 3)]})).await;
    pass(15.0).await;
    assert_eq!(cluster.conditions().await, ["Failed True FailedJobs"], "without a policy the set fails");
}

#[tokio::test(start_paused = true)]
async fn jobs_start_in_order_or_after_their_dependencies() {
    let cluster = TestCluster::start().await;
    cluster
        .create(json!({"startupPolicy": {"startupPolicyOrder": "InOrder"},
            "replicatedJobs": [replicated("a", 1, 60, 0), replicated("b", 1, 60, 0)]}))
        .await;
    pass(0.5).await;
    assert_eq!(cluster.job_names().await, ["js-a-0"]);
    assert_eq!(cluster.conditions().await, ["StartupPolicyInProgress True InOrderStartupPolicyInProgress"]);
    pass(10.0).await;
    assert_eq!(cluster.job_names().await, ["js-a-0", "js-b-0"]);
    let expected = [
        "StartupPolicyInProgress False InOrderStartupPolicyInProgress",
        "StartupPolicyCompleted True InOrderStartupPolicyCompleted",
    ];
    assert_eq!(cluster.conditions().await, expected);

    for (status, early) in [("Ready", 2), ("Complete", 1)] {
        let cluster = TestCluster::start().await;
        let second = with(replicated("b", 1, 10, 0), "dependsOn", json!([{"name": "a", "status": status}]));
        cluster.create(json!({"replicatedJobs": [replicated("a", 1, 20, 0), second]})).await;
        pass(0.5).await;
        assert_eq!(cluster.jobs().await.len(), 1, "{status}");
        pass(10.0).await;
        assert_eq!(cluster.jobs().await.len(), early, "{status}");
        pass(40.0).await;
        assert_eq!(cluster.conditions().await, ["Completed True AllJobsCompleted"], "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn job_set_is_suspended_and_resumed() {
    let cluster = TestCluster::start().await;
    cluster.create(json!({"suspend": true, "replicatedJobs": [replicated("a", 2, 20, 0)]})).await;
    pass(5.0).await;
    assert_eq!((cluster.jobs().await.len(), cluster.pods().await.len()), (2, 0));
    assert_eq!(cluster.conditions().await, ["Suspended True SuspendedJobs"]);
    assert_eq!(cluster.status().await["replicatedJobsStatus"][0]["suspended"], 2);
    cluster.suspend(false).await;
    pass(5.0).await;
    assert_eq!(
        (cluster.pods().await.len(), cluster.conditions().await),
        (4, vec!["Suspended False ResumeJobs".to_owned()])
    );
    cluster.suspend(true).await;
    pass(5.0).await;
    assert_eq!(cluster.pods().await.len(), 0);
    cluster.suspend(false).await;
    pass(60.0).await;
    assert_eq!(cluster.conditions().await[1], "Completed True AllJobsCompleted");
}

#[tokio::test(start_paused = true)]
async fn success_policy_any_completes_and_ttl_removes_the_set() {
    let cluster = TestCluster::start().await;
    cluster
        .create(json!({"ttlSecondsAfterFinished": 60, "replicatedJobs": [replicated("a", 1, 5, 0), replicated("b", 1, 500, 0)],
            "successPolicy": {"operator": "Any", "targetReplicatedJobs": ["a"]}}))
        .await;
    pass(20.0).await;
    assert_eq!(cluster.conditions().await, ["Completed True AllJobsCompleted"]);
    assert_eq!(cluster.job_names().await, ["js-a-0"], "the other is deleted");
    pass(60.0).await;
    assert!(cluster.sets().get_opt("js").await.unwrap().is_none());
    pass(10.0).await;
    assert_eq!((cluster.jobs().await.len(), cluster.pods().await.len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn unsupported_fields_are_rejected() {
    let cluster = TestCluster::start().await;
    let jobs = || json!([replicated("a", 1, 5, 0), replicated("b", 1, 5, 0)]);
    let depends = |at: usize, on: &str| {
        let mut jobs = jobs();
        jobs[at]["dependsOn"] = json!([{"name": on, "status": "Ready"}]);
        jobs
    };
    let mut exclusive = jobs();
    exclusive[0]["template"]["metadata"] =
        json!({"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}});
    for (spec, expected) in [
        (json!({"replicatedJobs": depends(0, "b")}), "DependsOn can't be set for the first ReplicatedJob"),
        (json!({"replicatedJobs": depends(1, "c")}), "a replicated Job can only depend on those before it"),
        (json!({"replicatedJobs": depends(1, "b")}), "a replicated Job can only depend on those before it"),
        (
            json!({"replicatedJobs": depends(1, "a"), "startupPolicy": {"startupPolicyOrder": "InOrder"}}),
            "StartupPolicy and DependsOn APIs are mutually exclusive",
        ),
        (
            json!({"replicatedJobs": jobs(), "successPolicy": {"operator": "All", "targetReplicatedJobs": ["c"]}}),
            "successPolicy",
        ),
        (json!({"replicatedJobs": jobs(), "coordinator": {"replicatedJob": "a", "jobIndex": 1}}), "coordinator"),
        (json!({"replicatedJobs": jobs(), "coordinator": {"replicatedJob": "a", "podIndex": 2}}), "coordinator"),
        (json!({"replicatedJobs": jobs(), "failurePolicy": {"restartStrategy": "InPlaceRestart"}}), "restartStrategy"),
        (json!({"replicatedJobs": exclusive}), "exclusive placement is not supported"),
    ] {
        let Err(kube::Error::Api(status)) = cluster.try_create(spec.clone()).await else { panic!("{spec}") };
        assert!(status.message.contains(expected), "{}", status.message);
    }
    cluster.create(json!({"replicatedJobs": jobs(), "volumeClaimPolicies": []})).await;
    assert_eq!(cluster.sets().get("js").await.unwrap().data["spec"]["volumeClaimPolicies"], Value::Null);
    let patch = Patch::Merge(json!({"spec": {"replicatedJobs": [replicated("a", 2, 5, 0), replicated("b", 1, 5, 0)]}}));
    let refused = cluster.sets().patch("js", &PatchParams::default(), &patch).await.unwrap_err();
    assert!(refused.to_string().contains("Value is immutable"), "{refused}");
}

#[tokio::test(start_paused = true)]
async fn invalid_job_template_is_reported() {
    let cluster = TestCluster::start().await;
    let mut bad = replicated("a", 1, 5, 0);
    bad["template"]["spec"]["template"]["spec"]["containres"] = json!([]);
    cluster.create(json!({"replicatedJobs": [bad]})).await;
    pass(5.0).await;
    let reasons = cluster.reasons().await;
    assert!(reasons[0].starts_with("JobCreationFailed: job \"js-a-0\" creation failed with error: "), "{reasons:?}");
    assert!(reasons[0].contains("containres"), "{reasons:?}");
    let set = json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": {"replicatedJobs": [replicated("a", 1, 5, 0)]},
        "metadata": {"name": "topo", "annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": "rack"}}});
    cluster.sets().create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    pass(5.0).await;
    let observed = cluster.sets().get("topo").await.unwrap().data["status"]["conditions"][0].clone();
    let message = "JobSet default/topo: metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]: \"rack\": exclusive placement is not supported";
    assert_eq!((&observed["reason"], &observed["message"]), (&json!("NotSupported"), &json!(message)));
}

#[tokio::test(start_paused = true)]
async fn template_metadata_is_copied_to_jobs_and_pods() {
    let cluster = TestCluster::start().await;
    let mut one = replicated("a", 1, 500, 0);
    one["template"]["metadata"] = json!({"labels": {"job": "l"}, "annotations": {"job": "a"}});
    one["template"]["spec"]["template"]["metadata"]["labels"] = json!({"pod": "l"});
    cluster.create(json!({"replicatedJobs": [one]})).await;
    pass(5.0).await;
    let written = cluster.sets().get("js").await.unwrap();
    let template = &written.data["spec"]["replicatedJobs"][0]["template"];
    assert_eq!(template["metadata"], json!({"labels": {"job": "l"}, "annotations": {"job": "a"}}));
    let (job, pod) = (cluster.jobs().await.remove(0), cluster.pods().await.remove(0));
    assert_eq!((&*job.labels()["job"], &*job.annotations()["job"]), ("l", "a"));
    assert_eq!((&*pod.labels()["pod"], &*pod.annotations()["playground.muster.dev/run-seconds"]), ("l", "500"));
    assert!(!pod.labels().contains_key("job") && !job.labels().contains_key("pod"));
    let inner = job.spec.unwrap().template.metadata.unwrap();
    let uid = written.uid().unwrap();
    for (key, value) in [
        ("jobset-name", "js"),
        ("jobset-uid", &uid),
        ("replicatedjob-name", "a"),
        ("job-index", "0"),
        ("restart-attempt", "0"),
    ] {
        let key = format!("jobset.sigs.k8s.io/{key}");
        let places = [
            &job.metadata.labels,
            &job.metadata.annotations,
            &inner.labels,
            &inner.annotations,
            &pod.metadata.labels,
            &pod.metadata.annotations,
        ];
        assert!(places.into_iter().all(|place| place.as_ref().unwrap()[&key] == value), "{key}");
    }
}

#[tokio::test(start_paused = true)]
async fn suspend_and_resume_change_nothing_else() {
    let cluster = TestCluster::start().await;
    cluster.create(json!({"suspend": true, "replicatedJobs": [replicated("a", 1, 500, 0)]})).await;
    pass(5.0).await;
    // Changes by another client while the Job is suspended are kept.
    let jobs: Api<Job> = Api::default_namespaced(cluster.client());
    let more = json!({"metadata": {"annotations": {"mine": "1"}},
        "spec": {"template": {"metadata": {"annotations": {"mine": "2"}}}}});
    jobs.patch("js-a-0", &PatchParams::default(), &Patch::Merge(more)).await.unwrap();
    let rest = async || {
        let job = jobs.get("js-a-0").await.unwrap();
        let mut spec = job.spec.unwrap();
        (spec.suspend.take(), (job.metadata.labels, job.metadata.annotations, job.metadata.uid, spec))
    };
    let (is_suspended, before) = rest().await;
    assert_eq!(is_suspended, Some(true));
    for suspend in [false, true, false] {
        cluster.suspend(suspend).await;
        pass(5.0).await;
        let (is_suspended, after) = rest().await;
        assert_eq!((is_suspended, &after), (Some(suspend), &before));
        let pods = cluster.pods().await;
        assert_eq!(pods.len(), if suspend { 0 } else { 2 });
        assert!(pods.iter().all(|pod| pod.annotations()["mine"] == "2"));
    }
}
