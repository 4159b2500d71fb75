//! The webhook of `muster run` called by a real API server: references are set on creation, invalid objects are
//! rejected by the API server itself, and an unavailable webhook blocks no request and leaves no pod without a
//! reference.

use std::net::TcpListener;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::DynamicObject;
use muster_controlplane::{Profile, Version};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::objects::nodes;
use crate::test_cluster::{Load, TestCluster, called_at};

const TIMEOUT: Duration = Duration::from_secs(60);
const POOL: &str = "pool";
const REFERENCE: &str = "muster.dev/pod-group";

fn template() -> Value {
    let container = json!({"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1m"}}});
    json!({"spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}})
}

fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "annotations": {"muster.dev/gang-mode": "Gang"}},
        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template()},
    })
}

fn job_set(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "annotations": {"muster.dev/gang-mode": mode}},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {
            "spec": {"parallelism": 2, "completions": 2, "template": template()},
        }}]},
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn real_api_server_calls_the_webhook_and_works_without_it() {
    let with = ["--with", "jobset"];
    let Some(mut cluster) = TestCluster::start("webhook", Load::Half, Profile::Stock, &with).await else { return };
    cluster.add_nodes(&nodes(POOL, 4)).await;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    call_webhook_by_url(&cluster, port);
    let config = json!({
        "webhook": {"listen": format!("127.0.0.1:{port}"), "certificates": {"extraNames": ["127.0.0.1"]}},
    });
    cluster.start_replica("only", &config);
    cluster.await_leader("only").await;
    await_webhook(&mut cluster).await;

    cluster.create(vec![job_set("js", "Gang"), job("j")]).await;
    await_running(&mut cluster, "jobset.sigs.k8s.io/jobset-name=js", 4).await;
    await_running(&mut cluster, "batch.kubernetes.io/job-name=j", 2).await;
    let jobs = cluster.api("batch/v1", "Job").list(&ListParams::default()).await.expect("Jobs").items;
    for job in &jobs {
        let written = &job.data["spec"]["template"]["metadata"]["annotations"][REFERENCE];
        let expected = if job.metadata.name.as_deref() == Some("j") { "job-j" } else { "pg-js" };
        assert_eq!(written, expected, "{job:?}");
    }
    let patched = |cluster: &TestCluster| -> Vec<String> {
        let is_patch = |path: &str| path.starts_with("/api/v1/namespaces/default/pods/") && !path.contains("/status");
        let entries = cluster.audit.entries();
        let patches = entries.iter().filter(|entry| entry.verb == "patch" && is_patch(&entry.path));
        patches.map(|entry| entry.path.clone()).collect()
    };
    assert_eq!(patched(&cluster), Vec::<String>::new(), "every pod had its reference on creation");

    rejects_invalid_objects(&cluster).await;
    fills_in_priorities(&mut cluster).await;

    // The webhook is unavailable: Jobs can be created without delay, and their pods are not scheduled individually.
    cluster.replica("only").kill();
    cluster.create(vec![job("late")]).await;
    let late = cluster.api("batch/v1", "Job").get("late").await.expect("it was created");
    assert_eq!(late.data["spec"]["template"]["metadata"]["annotations"][REFERENCE], Value::Null);
    cluster.replica("only").start_again();
    await_running(&mut cluster, "batch.kubernetes.io/job-name=late", 2).await;
    assert_eq!(patched(&cluster).len(), 2, "{:?}", patched(&cluster));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn native_gangs_are_created_with_the_permissions_of_the_manifests() {
    let with = ["--with", "jobset,lws"];
    let Some(mut cluster) = TestCluster::start("native-gangs", Load::Half, Profile::Gates, &with).await else { return };
    cluster.apply_manifests(Version::V1_37, &["--native-gangs"]);
    cluster.add_nodes(&nodes(POOL, 4)).await;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    call_webhook_by_url(&cluster, port);
    let config = json!({
        "webhook": {"listen": format!("127.0.0.1:{port}"), "certificates": {"extraNames": ["127.0.0.1"]}},
    });
    // Muster does not run yet: objects that request a gang are rejected, and no others.
    let rejected = rejection(&cluster, &job_set("js", "Gang")).await;
    assert!(rejected.as_ref().is_some_and(|why| why.contains("jobsets.muster.dev")), "{rejected:?}");
    let plain = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "plain"},
        "spec": {"template": template()}});
    assert_eq!(rejection(&cluster, &plain).await, None);

    cluster.start_replica("only", &config);
    cluster.await_leader("only").await;
    let until = Instant::now() + TIMEOUT;
    while let Some(why) = rejection(&cluster, &job_set("js", "Gang")).await {
        if Instant::now() > until {
            cluster.fail(&format!("the webhook is never called: {why}"));
        }
        cluster.pass(Duration::from_millis(500)).await;
    }
    await_running(&mut cluster, "jobset.sigs.k8s.io/jobset-name=js", 4).await;
    await_running(&mut cluster, "batch.kubernetes.io/job-name=plain", 1).await;
    let pods = cluster.api("v1", "Pod").list(&ListParams::default().labels("jobset.sigs.k8s.io/jobset-name=js")).await;
    for pod in pods.expect("pods").items {
        assert_eq!(pod.data["spec"]["schedulingGroup"]["podGroupName"], "w-js.pg-js", "{pod:?}");
    }
    recreated_leader_has_a_new_group(&mut cluster).await;

    // Without Muster no new gang can be created, and existing objects can be deleted.
    cluster.replica("only").kill();
    let api = cluster.api("jobset.x-k8s.io/v1alpha2", "JobSet");
    api.delete("js", &DeleteParams::foreground()).await.expect("it is deleted");
    let until = Instant::now() + TIMEOUT;
    while api.get_opt("js").await.expect("an answer").is_some() {
        if Instant::now() > until {
            cluster.fail("a JobSet cannot be deleted while Muster is unavailable");
        }
        cluster.pass(Duration::from_millis(500)).await;
    }
    let refused = |entry: &&crate::audit::Entry| [401, 403].contains(&entry.code());
    let refused: Vec<String> =
        cluster.audit.entries().iter().filter(refused).map(|entry| format!("{} {}", entry.verb, entry.path)).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// The old group has the name of the new one, and pods that reference it: Kubernetes would keep it forever.
async fn recreated_leader_has_a_new_group(cluster: &mut TestCluster) {
    let mut pod = template();
    pod["spec"].as_object_mut().expect("a spec").remove("restartPolicy");
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "lws"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pod}},
    });
    cluster.create(vec![set]).await;
    let selector = "leaderworkerset.sigs.k8s.io/name=lws";
    await_running(cluster, selector, 2).await;
    let groups = cluster.api("scheduling.k8s.io/v1beta1", "PodGroup");
    let of_set = ListParams::default().labels(selector);
    let before: Vec<_> =
        groups.list(&of_set).await.expect("groups").items.into_iter().map(|one| one.metadata).collect();
    assert_eq!(before.len(), 1, "{before:?}");
    let at_once = DeleteParams::default().grace_period(0);
    cluster.api("v1", "Pod").delete("lws-0", &at_once).await.expect("the leader is deleted");
    let until = Instant::now() + TIMEOUT;
    loop {
        let now: Vec<_> =
            groups.list(&of_set).await.expect("groups").items.into_iter().map(|one| one.metadata).collect();
        if now.len() == 1 && now[0].name == before[0].name && now[0].uid != before[0].uid {
            break;
        }
        if Instant::now() > until {
            cluster.fail(&format!("the group is not recreated: {before:?} {now:?}"));
        }
        cluster.pass(Duration::from_millis(200)).await;
    }
    await_running(cluster, selector, 2).await;
}

/// Why an object is rejected, if it is.
async fn rejection(cluster: &TestCluster, object: &Value) -> Option<String> {
    let text = |field: &str| object[field].as_str().expect("a text").to_owned();
    let created: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
    match cluster.api(&text("apiVersion"), &text("kind")).create(&PostParams::default(), &created).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// Has the API server call the webhook at a port of this machine.
pub(crate) fn call_webhook_by_url(cluster: &TestCluster, port: u16) {
    let text = cluster.kubectl(&["get", "mutatingwebhookconfiguration", "muster", "--output", "json"], "");
    let configuration = called_at(port, serde_json::from_str(&text).expect("JSON"));
    cluster.kubectl(&["replace", "-f", "-"], &configuration.to_string());
}

/// Waits until the API server trusts the webhook and gets a response.
async fn await_webhook(cluster: &mut TestCluster) {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let probe: DynamicObject = serde_json::from_value(job("probe")).expect("an object");
    let until = Instant::now() + TIMEOUT;
    loop {
        let created =
            cluster.api("batch/v1", "Job").create(&dry, &probe).await.expect("a Job can be created in any case");
        if created.data["spec"]["template"]["metadata"]["annotations"][REFERENCE] == "job-probe" {
            return;
        }
        if Instant::now() > until {
            cluster.fail(&format!("the webhook is never called: {created:?}"));
        }
        cluster.pass(Duration::from_millis(500)).await;
    }
}

pub(crate) async fn await_running(cluster: &mut TestCluster, selector: &str, count: usize) {
    let until = Instant::now() + TIMEOUT;
    loop {
        let pods = cluster.api("v1", "Pod").list(&ListParams::default().labels(selector)).await.expect("pods").items;
        let run = pods.iter().filter(|pod| pod.data["status"]["phase"] == "Running").count();
        if run == count {
            return;
        }
        if Instant::now() > until {
            cluster.fail(&format!("{selector}: {run} of {count} run: {pods:?}"));
        }
        cluster.pass(Duration::from_millis(200)).await;
    }
}

/// Groups get the number of their class when they are created, and keep it whatever becomes of the class.
async fn fills_in_priorities(cluster: &mut TestCluster) {
    let class = |value: i32| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "filled"}, "value": value});
    let group = |name: &str, number: Option<i32>| {
        let mut spec = json!({"policy": {"gang": {"minCount": 2}}, "priorityClassName": "filled"});
        if let Some(number) = number {
            spec["priority"] = json!(number);
        }
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})
    };
    cluster.kubectl(&["create", "-f", "-"], &class(1000).to_string());
    // The webhook sees the class a moment later.
    let until = Instant::now() + TIMEOUT;
    let mut attempt = 0;
    let wrong = loop {
        attempt += 1;
        if let Some(why) = rejection(cluster, &group(&format!("wrong-{attempt}"), Some(7))).await {
            break why;
        }
        if Instant::now() > until {
            cluster.fail("the webhook never sees the class");
        }
        cluster.pass(Duration::from_millis(100)).await;
    };
    assert_eq!(rejection(cluster, &group("g", None)).await, None);
    assert!(wrong.contains("spec.priority: 7: PriorityClass filled has 1000"), "{wrong}");
    let groups = cluster.api("muster.dev/v1alpha1", "PodGroup");
    assert_eq!(groups.get("g").await.expect("it was created").data["spec"]["priority"], 1000);
    cluster.until_condition("muster.dev/v1alpha1", "g", "PriorityResolved", "True").await;

    cluster.kubectl(&["delete", "priorityclass", "filled"], "");
    cluster.kubectl(&["create", "-f", "-"], &class(5).to_string());
    let change = async |spec: Value| {
        let body = json!({"spec": spec});
        groups.patch("g", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(body)).await
    };
    let changed = change(json!({"policy": {"gang": {"minCount": 3}}})).await.expect("the number is still valid");
    assert_eq!(changed.data["spec"]["priority"], 1000);
    let refused = change(json!({"priority": 5})).await;
    let Err(kube::Error::Api(status)) = refused else { panic!("it was not rejected: {refused:?}") };
    assert!(status.message.contains("and is 1000"), "{}", status.message);
    let restored = change(json!({"priority": null})).await.expect("it is put back");
    assert_eq!(restored.data["spec"]["priority"], 1000);
}

async fn rejects_invalid_objects(cluster: &TestCluster) {
    let refused = async |object: &Value| {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        let api = cluster.api("jobset.x-k8s.io/v1alpha2", "JobSet");
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) => status.message.clone(),
            answer => panic!("it was not rejected: {answer:?}"),
        }
    };
    let message = refused(&job_set("bad", "All")).await;
    assert!(message.contains("Off or Gang") || message.contains("Off, Gang"), "{message}");
    let mut both = job_set("bad", "Gang");
    both["spec"]["replicatedJobs"][0]["template"]["metadata"] =
        json!({"annotations": {"muster.dev/gang-mode": "Gang"}});
    let message = refused(&both).await;
    assert!(message.contains("gang"), "{message}");
    let change = json!({"metadata": {"annotations": {"muster.dev/gang-mode": "Off"}}});
    let api = cluster.api("jobset.x-k8s.io/v1alpha2", "JobSet");
    let answer = api.patch("js", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(change)).await;
    let Err(kube::Error::Api(status)) = answer else { panic!("it was not rejected: {answer:?}") };
    assert!(status.message.contains("cannot be changed"), "{}", status.message);
}
