//! The right to use a PriorityClass in a group, on a real API server: the policies of `muster manifests` ask for it on
//! every kind of group and on the owners that become gangs, and Muster's controllers still write groups for users.

use std::io::Write as _;
use std::process::{Output, Stdio};
use std::time::Duration;

use muster_api::crds::dialects;
use muster_controlplane::{Profile, Version, required};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::objects::{V1ALPHA2, V1BETA1, nodes};
use crate::test_cluster::{Load, TestCluster};

const TIMEOUT: Duration = Duration::from_secs(60);
const POOL: &str = "pool";
const EVERYONE: &str = "muster-priority-classes-everyone";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn using_a_priority_class_in_a_group_is_a_right() {
    let with = ["--with", "jobset,lws"];
    let cluster = TestCluster::start("priority-classes", Load::Half, Profile::Gates, &with).await;
    let Some(mut cluster) = cluster else { return };
    using_a_class_is_a_right(&mut cluster, Version::V1_37).await;
    controllers_write_the_groups_of_users(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn using_a_priority_class_in_a_group_is_a_right_on_older_versions() {
    for version in [Version::V1_36, Version::V1_35] {
        let Some(binary) = required(version, "priority classes on older versions") else { continue };
        let name = format!("priority-classes-{version}");
        let profile = (Profile::Gates, &["--with", "jobset,lws"][..]);
        let mut cluster = TestCluster::start_on(&binary, version, &name, Load::Half, profile).await;
        using_a_class_is_a_right(&mut cluster, version).await;
    }
}

async fn using_a_class_is_a_right(cluster: &mut TestCluster, version: Version) {
    prepare(cluster);
    let objects = objects(version);
    for (what, object) in &objects {
        assert_eq!(
            refusal(cluster, "default", &with_class(object, "high")),
            None,
            "{what}: the default is all classes"
        );
    }
    cluster.kubectl(&["delete", "clusterrolebinding", EVERYONE], "");
    until_refused(cluster, &objects).await;
    for (what, object) in &objects {
        let why = refusal(cluster, "default", &with_class(object, "high")).unwrap_or_default();
        let expected = "user tenant may not use PriorityClass high in namespace default: this needs the verb use";
        assert!(why.contains(expected), "{what}: {why:?}");
        assert_eq!(refusal(cluster, "default", &without_class(object)), None, "{what}: no class, no question");
        assert_eq!(refusal(cluster, "ml", &with_class(object, "low")), None, "{what}: granted in this namespace");
        let why = refusal(cluster, "default", &with_class(object, "low")).unwrap_or_default();
        assert!(why.contains("may not use PriorityClass low in namespace default"), "{what}: {why:?}");
    }
    let other_scheduler = with_class(&job("default-scheduler"), "high");
    assert_eq!(refusal(cluster, "default", &other_scheduler), None, "Jobs of other schedulers become no gangs");
    second_class_of_a_workload_needs_the_right(cluster);
    classes_of_the_system_are_for_the_system(cluster);
    others_may_change_a_group_with_a_class(cluster);
}

/// Classes, kinds and a tenant that may write all of them, and use one class in one namespace.
fn prepare(cluster: &TestCluster) {
    let class = |name: &str, value: i32| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    let role = |name: &str, rules: Value| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
    let tenant = json!([{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant"}]);
    let reference = |name: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name});
    let groups = [
        "muster.dev",
        "scheduling.k8s.io",
        "scheduling.volcano.sh",
        "batch",
        "jobset.x-k8s.io",
        "leaderworkerset.x-k8s.io",
    ];
    let kinds = ["podgroups", "workloads", "jobs", "cronjobs", "jobsets", "leaderworkersets"];
    let documents = [
        class("high", 1000),
        class("low", 10),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ml"}}),
        role(
            "tenant",
            json!([{"apiGroups": groups, "resources": kinds, "verbs": ["get", "create", "update", "patch"]}]),
        ),
        role(
            "use-low",
            json!([{"apiGroups": ["scheduling.k8s.io"], "resources": ["priorityclasses"], "resourceNames": ["low"], "verbs": ["use"]}]),
        ),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "tenant"}, "roleRef": reference("tenant"), "subjects": tenant}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "use-low", "namespace": "ml"}, "roleRef": reference("use-low"), "subjects": tenant}),
    ];
    let text: Vec<String> = documents.iter().map(Value::to_string).collect();
    cluster.kubectl(&["apply", "-f", "-"], &text.join("\n---\n"));
    cluster.kubectl(&["apply", "-f", "-"], dialects::VOLCANO);
    let kind = "crd/podgroups.scheduling.volcano.sh";
    cluster.kubectl(&["wait", "--for=condition=Established", "--timeout=60s", kind], "");
}

/// An object of each kind, with the JSON pointer of its class.
fn objects(version: Version) -> Vec<(&'static str, (Value, &'static str))> {
    let gang = json!({"gang": {"minCount": 2}});
    let object = |api_version: &str, kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "probe"}, "spec": spec});
    let of_workload = json!({"podGroups": [{"name": "a", "policy": gang}]});
    let mut all = vec![
        ("PodGroup", (object("muster.dev/v1alpha1", "PodGroup", json!({"policy": gang})), "/spec")),
        ("Workload", (object("muster.dev/v1alpha1", "Workload", of_workload), "/spec/podGroups/0")),
        ("Volcano", (object("scheduling.volcano.sh/v1beta1", "PodGroup", json!({"minMember": 2})), "/spec")),
        ("Job", job("muster")),
        ("CronJob", cron_job()),
        ("JobSet", job_set()),
        ("LeaderWorkerSet", leader_worker_set()),
    ];
    let native = match version {
        Version::V1_37 => V1BETA1,
        Version::V1_36 => V1ALPHA2,
        // Its groups have no class.
        Version::V1_35 => return all,
    };
    let template = json!({"podGroupTemplates": [{"name": "a", "schedulingPolicy": gang}]});
    all.push(("native PodGroup", (object(native, "PodGroup", json!({"schedulingPolicy": gang})), "/spec")));
    all.push(("native Workload", (object(native, "Workload", template), "/spec/podGroupTemplates/0")));
    all
}

fn pod_template(scheduler: &str) -> Value {
    let container = json!({"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1m"}}});
    json!({"spec": {"schedulerName": scheduler, "restartPolicy": "Never", "containers": [container]}})
}

fn job(scheduler: &str) -> (Value, &'static str) {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "probe", "annotations": {"muster.dev/gang-mode": "Gang"}},
        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": pod_template(scheduler)},
    });
    (job, "/spec/template/spec")
}

fn cron_job() -> (Value, &'static str) {
    let spec = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"spec": {"template": pod_template("muster")}}});
    let cron_job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "probe"}, "spec": spec});
    (cron_job, "/spec/jobTemplate/spec/template/spec")
}

fn job_set() -> (Value, &'static str) {
    let job = json!({"name": "a", "replicas": 1, "template": {"spec": {"template": pod_template("muster")}}});
    let set = json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "probe"},
        "spec": {"replicatedJobs": [job]},
    });
    (set, "/spec/replicatedJobs/0/template/spec/template/spec")
}

fn leader_worker_set() -> (Value, &'static str) {
    let mut template = pod_template("muster");
    template["spec"].as_object_mut().expect("a spec").remove("restartPolicy");
    let set = json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": {"name": "probe"},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"size": 2, "workerTemplate": template}},
    });
    (set, "/spec/leaderWorkerTemplate/workerTemplate/spec")
}

fn with_class((object, pointer): &(Value, &str), class: &str) -> Value {
    let mut object = object.clone();
    object.pointer_mut(pointer).expect("its place")["priorityClassName"] = class.into();
    object
}

fn without_class((object, _): &(Value, &str)) -> Value {
    object.clone()
}

/// Calls kubectl with the rights of a user.
fn kubectl_as(cluster: &TestCluster, user: &str, arguments: &[&str], input: &str) -> Output {
    let mut command = cluster.plane.binary().program("kubectl");
    command.arg("--kubeconfig").arg(cluster.plane.kubeconfig()).args(["--as", user]).args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("kubectl");
    child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("kubectl reads");
    child.wait_with_output().expect("kubectl ends")
}

/// Why the tenant may not create an object, if so. Nothing is stored.
fn refusal(cluster: &TestCluster, namespace: &str, object: &Value) -> Option<String> {
    let arguments = ["--namespace", namespace, "create", "--dry-run=server", "-f", "-"];
    let done = kubectl_as(cluster, "tenant", &arguments, &object.to_string());
    (!done.status.success()).then(|| String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Policies and changes of roles take effect with a delay.
async fn until_refused(cluster: &mut TestCluster, objects: &[(&str, (Value, &str))]) {
    let until = Instant::now() + TIMEOUT;
    for (what, object) in objects {
        while refusal(cluster, "default", &with_class(object, "high")).is_none() {
            if Instant::now() > until {
                cluster.fail(&format!("{what}: the policy never took effect"));
            }
            cluster.pass(Duration::from_millis(100)).await;
        }
    }
}

fn second_class_of_a_workload_needs_the_right(cluster: &TestCluster) {
    let group = |name: &str, class: &str| json!({"name": name, "policy": {"gang": {"minCount": 2}}, "priorityClassName": class});
    let workload = json!({
        "apiVersion": "muster.dev/v1alpha1", "kind": "Workload", "metadata": {"name": "probe"},
        "spec": {"podGroups": [group("a", "low"), group("b", "low"), group("c", "high")]},
    });
    let why = refusal(cluster, "ml", &workload).unwrap_or_default();
    assert!(why.contains("may not use PriorityClass high in namespace ml"), "{why:?}");
}

/// Even an administrator cannot give a tenant's group such a priority.
fn classes_of_the_system_are_for_the_system(cluster: &TestCluster) {
    let group = |namespace: &str| {
        let spec = json!({"policy": {"gang": {"minCount": 2}}, "priorityClassName": "system-cluster-critical"});
        json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": "probe", "namespace": namespace}, "spec": spec})
    };
    let create = |namespace: &str| {
        let arguments = ["--as-group", "system:masters", "create", "--dry-run=server", "-f", "-"];
        let done = kubectl_as(cluster, "root", &arguments, &group(namespace).to_string());
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (created, why) = create("default");
    assert!(!created && why.contains("are for groups in kube-system only"), "{why:?}");
    assert!(create("kube-system").0, "{:?}", create("kube-system"));
}

fn others_may_change_a_group_with_a_class(cluster: &TestCluster) {
    let spec = json!({"minMember": 2, "priorityClassName": "high"});
    let group = json!({"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": "changed"}, "spec": spec});
    cluster.kubectl(&["create", "-f", "-"], &group.to_string());
    let patch = |body: &str| {
        let kind = "podgroups.scheduling.volcano.sh";
        kubectl_as(cluster, "tenant", &["patch", kind, "changed", "--type=merge", "--patch", body], "")
    };
    let done = patch(r#"{"spec": {"minMember": 3}}"#);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let done = patch(r#"{"spec": {"priorityClassName": "low"}}"#);
    let why = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(why.contains("may not use PriorityClass low"), "{why:?}");
    assert!(patch(r#"{"spec": {"priorityClassName": null}}"#).status.success());
}

/// Muster writes the group of a Job, and the JobSet controller the Jobs of a set, with their own rights to the class.
/// A revision that the API server accepts and no JSON parser of a client reads: it must not keep the controllers from
/// writing the groups of others.
fn create_what_cannot_be_read(cluster: &TestCluster) {
    let data = format!("{}{}", "[".repeat(200), "]".repeat(200));
    let revision = format!(
        r#"{{"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": 1, "data": {{"deep": {data}}}, "metadata":
        {{"name": "deep", "namespace": "ml", "labels": {{"leaderworkerset.sigs.k8s.io/name": "deep"}}}}}}"#
    );
    cluster.kubectl(&["create", "-f", "-"], &revision);
}

async fn controllers_write_the_groups_of_users(cluster: &mut TestCluster) {
    create_what_cannot_be_read(cluster);
    cluster.add_nodes(&nodes(POOL, 2)).await;
    cluster.start_replica("only", &json!({}));
    cluster.await_leader("only").await;
    let named = |mut object: Value, name: &str| {
        object["metadata"]["name"] = name.into();
        object["metadata"]["annotations"] = json!({"muster.dev/gang-mode": "Gang"});
        object
    };
    let job = named(with_class(&job("muster"), "high"), "j");
    let set = named(with_class(&job_set(), "high"), "js");
    cluster.create(vec![job, set]).await;
    for selector in ["batch.kubernetes.io/job-name=j", "jobset.sigs.k8s.io/jobset-name=js"] {
        crate::webhook::await_running(cluster, selector, if selector.ends_with("=j") { 2 } else { 1 }).await;
    }
    let group = cluster.kubectl(&["get", "podgroups.muster.dev", "job-j", "--output", "json"], "");
    let group: Value = serde_json::from_str(&group).expect("JSON");
    assert_eq!(group["spec"]["priorityClassName"], "high");
}
