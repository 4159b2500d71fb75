//! The webhook of `muster run` as a real API server calls it: references are there from the beginning, what cannot be is
//! refused by the API server itself, and a webhook that is away stops nobody and strands nobody.

use std::net::TcpListener;
use std::time::Duration;

use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::DynamicObject;
use muster_controlplane::{Profile, Version};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::objects::nodes;
use crate::stage::{Load, Stage};

const SOON: Duration = Duration::from_secs(60);
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
async fn a_real_api_server_asks_the_webhook_and_does_without_it() {
    let with = ["--with", "jobset"];
    let Some(mut stage) = Stage::open("webhook", Load::Half, Profile::Stock, &with).await else { return };
    stage.add_nodes(&nodes(POOL, 4)).await;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    call_by_address(&stage, port);
    let config = json!({
        "webhook": {"listen": format!("127.0.0.1:{port}"), "certificates": {"extraNames": ["127.0.0.1"]}},
    });
    stage.start_replica("only", &config);
    stage.await_leader("only").await;
    await_webhook(&mut stage).await;

    stage.create(vec![job_set("js", "Gang"), job("j")]).await;
    until_run(&mut stage, "jobset.sigs.k8s.io/jobset-name=js", 4).await;
    until_run(&mut stage, "batch.kubernetes.io/job-name=j", 2).await;
    let jobs = stage.api("batch/v1", "Job").list(&ListParams::default()).await.expect("Jobs").items;
    for job in &jobs {
        let written = &job.data["spec"]["template"]["metadata"]["annotations"][REFERENCE];
        let expected = if job.metadata.name.as_deref() == Some("j") { "job-j" } else { "pg-js" };
        assert_eq!(written, expected, "{job:?}");
    }
    let patched = |stage: &Stage| -> Vec<String> {
        let is_patch = |path: &str| path.starts_with("/api/v1/namespaces/default/pods/") && !path.contains("/status");
        let entries = stage.audit.entries();
        let patches = entries.iter().filter(|entry| entry.verb == "patch" && is_patch(&entry.path));
        patches.map(|entry| entry.path.clone()).collect()
    };
    assert_eq!(patched(&stage), Vec::<String>::new(), "every pod had its reference when it was made");

    refuses_what_cannot_be(&stage).await;

    // The webhook is away: whoever makes a Job is not kept waiting, and its pods are not placed alone.
    stage.replica("only").kill();
    stage.create(vec![job("late")]).await;
    let late = stage.api("batch/v1", "Job").get("late").await.expect("it was made");
    assert_eq!(late.data["spec"]["template"]["metadata"]["annotations"][REFERENCE], Value::Null);
    stage.replica("only").start_again();
    until_run(&mut stage, "batch.kubernetes.io/job-name=late", 2).await;
    assert_eq!(patched(&stage).len(), 2, "{:?}", patched(&stage));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gangs_in_kubernetes_own_objects_are_made_with_the_rights_of_the_manifests() {
    let with = ["--with", "jobset,lws"];
    let Some(mut stage) = Stage::open("native-gangs", Load::Half, Profile::Gates, &with).await else { return };
    stage.apply_manifests(Version::V1_37, &["--native-gangs"]);
    stage.add_nodes(&nodes(POOL, 4)).await;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    call_by_address(&stage, port);
    let config = json!({
        "webhook": {"listen": format!("127.0.0.1:{port}"), "certificates": {"extraNames": ["127.0.0.1"]}},
    });
    // Nobody is there yet: what asks for a gang waits, and nothing else does.
    let asks = refusal(&stage, &job_set("js", "Gang")).await;
    assert!(asks.as_ref().is_some_and(|why| why.contains("jobsets.muster.dev")), "{asks:?}");
    let plain = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "plain"},
        "spec": {"template": template()}});
    assert_eq!(refusal(&stage, &plain).await, None);

    stage.start_replica("only", &config);
    stage.await_leader("only").await;
    let until = Instant::now() + SOON;
    while let Some(why) = refusal(&stage, &job_set("js", "Gang")).await {
        if Instant::now() > until {
            stage.fail(&format!("the webhook is never asked: {why}"));
        }
        stage.pass(Duration::from_millis(500)).await;
    }
    until_run(&mut stage, "jobset.sigs.k8s.io/jobset-name=js", 4).await;
    until_run(&mut stage, "batch.kubernetes.io/job-name=plain", 1).await;
    let pods = stage.api("v1", "Pod").list(&ListParams::default().labels("jobset.sigs.k8s.io/jobset-name=js")).await;
    for pod in pods.expect("pods").items {
        assert_eq!(pod.data["spec"]["schedulingGroup"]["podGroupName"], "w-js.pg-js", "{pod:?}");
    }
    a_leader_that_is_made_again_has_a_new_group(&mut stage).await;

    // Without Muster nothing new can become a gang, and what is there can go.
    stage.replica("only").kill();
    let api = stage.api("jobset.x-k8s.io/v1alpha2", "JobSet");
    api.delete("js", &DeleteParams::foreground()).await.expect("it is deleted");
    let until = Instant::now() + SOON;
    while api.get_opt("js").await.expect("an answer").is_some() {
        if Instant::now() > until {
            stage.fail("a JobSet cannot go while Muster is away");
        }
        stage.pass(Duration::from_millis(500)).await;
    }
    let refused = |entry: &&crate::audit::Entry| [401, 403].contains(&entry.code());
    let refused: Vec<String> =
        stage.audit.entries().iter().filter(refused).map(|entry| format!("{} {}", entry.verb, entry.path)).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

/// The old group has the name of the new one, and pods that name it: Kubernetes would keep it for ever.
async fn a_leader_that_is_made_again_has_a_new_group(stage: &mut Stage) {
    let mut pod = template();
    pod["spec"].as_object_mut().expect("a spec").remove("restartPolicy");
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "lws"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pod}},
    });
    stage.create(vec![set]).await;
    let selector = "leaderworkerset.sigs.k8s.io/name=lws";
    until_run(stage, selector, 2).await;
    let groups = stage.api("scheduling.k8s.io/v1beta1", "PodGroup");
    let of_set = ListParams::default().labels(selector);
    let before: Vec<_> =
        groups.list(&of_set).await.expect("groups").items.into_iter().map(|one| one.metadata).collect();
    assert_eq!(before.len(), 1, "{before:?}");
    let at_once = DeleteParams::default().grace_period(0);
    stage.api("v1", "Pod").delete("lws-0", &at_once).await.expect("the leader goes");
    let until = Instant::now() + SOON;
    loop {
        let now: Vec<_> =
            groups.list(&of_set).await.expect("groups").items.into_iter().map(|one| one.metadata).collect();
        if now.len() == 1 && now[0].name == before[0].name && now[0].uid != before[0].uid {
            break;
        }
        if Instant::now() > until {
            stage.fail(&format!("the group is not made anew: {before:?} {now:?}"));
        }
        stage.pass(Duration::from_millis(200)).await;
    }
    until_run(stage, selector, 2).await;
}

/// Why an object cannot be made, if it cannot.
async fn refusal(stage: &Stage, object: &Value) -> Option<String> {
    let text = |field: &str| object[field].as_str().expect("a text").to_owned();
    let made: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
    match stage.api(&text("apiVersion"), &text("kind")).create(&PostParams::default(), &made).await {
        Ok(_) => None,
        Err(kube::Error::Api(status)) => Some(status.message.clone()),
        Err(error) => panic!("{error}"),
    }
}

/// There is no network of services here: the API server calls by address.
pub(crate) fn call_by_address(stage: &Stage, port: u16) {
    let text = stage.kubectl(&["get", "mutatingwebhookconfiguration", "muster", "--output", "json"], "");
    let mut configuration: Value = serde_json::from_str(&text).expect("JSON");
    for hook in configuration["webhooks"].as_array_mut().expect("hooks") {
        hook["clientConfig"] = json!({"url": format!("https://127.0.0.1:{port}/mutate")});
    }
    stage.kubectl(&["replace", "-f", "-"], &configuration.to_string());
}

/// Waits until the API server trusts the webhook, and is answered.
async fn await_webhook(stage: &mut Stage) {
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let probe: DynamicObject = serde_json::from_value(job("probe")).expect("an object");
    let until = Instant::now() + SOON;
    loop {
        let made = stage.api("batch/v1", "Job").create(&dry, &probe).await.expect("a Job can be made in any case");
        if made.data["spec"]["template"]["metadata"]["annotations"][REFERENCE] == "job-probe" {
            return;
        }
        if Instant::now() > until {
            stage.fail(&format!("the webhook is never asked: {made:?}"));
        }
        stage.pass(Duration::from_millis(500)).await;
    }
}

async fn until_run(stage: &mut Stage, selector: &str, count: usize) {
    let until = Instant::now() + SOON;
    loop {
        let pods = stage.api("v1", "Pod").list(&ListParams::default().labels(selector)).await.expect("pods").items;
        let run = pods.iter().filter(|pod| pod.data["status"]["phase"] == "Running").count();
        if run == count {
            return;
        }
        if Instant::now() > until {
            stage.fail(&format!("{selector}: {run} of {count} run: {pods:?}"));
        }
        stage.pass(Duration::from_millis(200)).await;
    }
}

async fn refuses_what_cannot_be(stage: &Stage) {
    let refused = async |object: &Value| {
        let object: DynamicObject = serde_json::from_value(object.clone()).expect("an object");
        let api = stage.api("jobset.x-k8s.io/v1alpha2", "JobSet");
        match api.create(&PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) => status.message.clone(),
            answer => panic!("it was not refused: {answer:?}"),
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
    let api = stage.api("jobset.x-k8s.io/v1alpha2", "JobSet");
    let answer = api.patch("js", &kube::api::PatchParams::default(), &kube::api::Patch::Merge(change)).await;
    let Err(kube::Error::Api(status)) = answer else { panic!("it was not refused: {answer:?}") };
    assert!(status.message.contains("cannot be changed"), "{}", status.message);
}
