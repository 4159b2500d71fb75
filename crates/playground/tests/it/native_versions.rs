//! Tests of servers that emulate older releases: what each version of the native API has and lacks.

use http::Method;
use muster_playground::{NativeGroups, Server, Settings};
use serde_json::{Value, json};

use crate::stock_cluster::{get, send_request};

const PODS: &str = "/api/v1/namespaces/default/pods?fieldValidation=Strict";

fn server(native_groups: NativeGroups) -> Server {
    Server::start(Settings { native_groups, ..Settings::default() })
}

fn path(version: &str, plural: &str) -> String {
    format!("/apis/scheduling.k8s.io/{version}/namespaces/default/{plural}")
}

fn object(version: &str, kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": format!("scheduling.k8s.io/{version}"), "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
}

fn pod(name: &str, more: &Value) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn causes(status: &Value) -> Vec<String> {
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    causes.map(|cause| format!("{} {}", cause["field"].as_str().unwrap(), cause["message"].as_str().unwrap())).collect()
}

#[tokio::test(start_paused = true)]
async fn each_release_serves_one_version_and_reports_itself() {
    for (groups, version, release, kinds) in [
        (NativeGroups::V1alpha1, "v1alpha1", "v1.35.8", &["workloads"][..]),
        (NativeGroups::V1alpha2, "v1alpha2", "v1.36.4", &["podgroups", "podgroups/status", "workloads"]),
        (NativeGroups::V1alpha3, "v1alpha3", "v1.37.1", &["podgroups", "podgroups/status", "workloads"]),
        (NativeGroups::V1beta1, "v1beta1", "v1.37.1", &["podgroups", "podgroups/status", "workloads"]),
    ] {
        let server = server(groups);
        let (_, group) = get(&server, "/apis/scheduling.k8s.io").await;
        let versions: Vec<&Value> = group["versions"].as_array().unwrap().iter().map(|one| &one["version"]).collect();
        assert_eq!(versions, ["v1", version]);
        let (_, list) = get(&server, &format!("/apis/scheduling.k8s.io/{version}")).await;
        let names: Vec<&Value> = list["resources"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, kinds);
        let (_, observed) = get(&server, "/version").await;
        assert!(observed["gitVersion"].as_str().unwrap().starts_with(release), "{observed}");
    }
}

#[tokio::test(start_paused = true)]
async fn workload_reference_of_a_pod_is_immutable_in_1_35() {
    let server = server(NativeGroups::V1alpha1);
    let workloads = path("v1alpha1", "workloads");
    let spec = json!({"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 2}}}]});
    let (code, created) =
        send_request(&server, Method::POST, &workloads, &object("v1alpha1", "Workload", "w", &spec)).await;
    assert_eq!((code, &created["spec"]), (201, &spec), "{created}");
    let bad = json!({"podGroups": [{"name": "G", "policy": {}}]});
    let (code, status) =
        send_request(&server, Method::POST, &workloads, &object("v1alpha1", "Workload", "b", &bad)).await;
    let observed = causes(&status);
    assert_eq!(code, 422);
    assert!(
        observed[0].starts_with("spec.podGroups[0].name Invalid value: \"G\": a lowercase RFC 1123 label"),
        "{observed:?}"
    );
    let expected = "spec.podGroups[0].policy Required value: exactly one of `basic`, `gang` is required";
    assert_eq!(observed[1], expected);
    // Without a resourceVersion it is an unconditional update, and rejected for the changed field.
    let other = json!({"podGroups": [{"name": "g", "policy": {"gang": {"minCount": 3}}}]});
    let changed = object("v1alpha1", "Workload", "w", &other);
    let (code, status) = send_request(&server, Method::PUT, &format!("{workloads}/w"), &changed).await;
    assert_eq!((code, causes(&status).len()), (422, 1), "{status}");
    assert!(causes(&status)[0].starts_with("podGroups Invalid value") && causes(&status)[0].contains("immutable"));

    let reference = json!({"name": "w", "podGroup": "g", "podGroupReplicaKey": "0"});
    let named = pod("p", &json!({"workloadRef": reference}));
    let (code, created) = send_request(&server, Method::POST, PODS, &named).await;
    assert_eq!((code, &created["spec"]["workloadRef"]), (201, &reference), "{created}");
    assert_eq!(get(&server, "/api/v1/namespaces/default/pods/p").await.1["spec"]["workloadRef"], reference);
    let patch = json!({"spec": {"workloadRef": {"podGroupReplicaKey": "1"}}});
    let (code, status) = send_request(&server, Method::PATCH, "/api/v1/namespaces/default/pods/p", &patch).await;
    assert_eq!(code, 422);
    assert!(causes(&status)[0].starts_with("spec Forbidden: pod updates may not change fields"), "{status}");
    let (code, status) =
        send_request(&server, Method::POST, PODS, &pod("q", &json!({"workloadRef": {"name": "w"}}))).await;
    assert_eq!((code, causes(&status).len()), (422, 1), "{status}");
    assert!(causes(&status)[0].starts_with("spec.workloadRef.podGroup "));
    let early = pod("r", &json!({"schedulingGroup": {"podGroupName": "g"}}));
    let (code, status) = send_request(&server, Method::POST, PODS, &early).await;
    assert!(code == 400 && status["message"].as_str().unwrap().contains("unknown field \"spec.schedulingGroup\""));
}

#[tokio::test(start_paused = true)]
async fn templates_keep_the_workload_reference_in_1_35() {
    let server = server(NativeGroups::V1alpha1);
    let reference = json!({"name": "w", "podGroup": "g"});
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {
        "containers": [{"name": "c", "image": "i"}], "workloadRef": reference,
    }});
    let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
    let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "s"}, "spec": spec});
    let sets = "/apis/apps/v1/namespaces/default/replicasets?fieldValidation=Strict";
    let (code, created) = send_request(&server, Method::POST, sets, &set).await;
    assert_eq!((code, &created["spec"]["template"]["spec"]["workloadRef"]), (201, &reference), "{created}");
}

#[tokio::test(start_paused = true)]
async fn pod_group_is_immutable_and_its_template_must_exist_in_1_36() {
    let server = server(NativeGroups::V1alpha2);
    let groups = path("v1alpha2", "podgroups");
    let template = |name: &str| json!({"workload": {"workloadName": "w", "podGroupTemplateName": name}});
    let group = |name: &str, template: &Value| {
        let spec = json!({"schedulingPolicy": {"gang": {"minCount": 2}}, "podGroupTemplateRef": template});
        object("v1alpha2", "PodGroup", name, &spec)
    };
    let (code, status) = send_request(&server, Method::POST, &groups, &group("g", &template("t"))).await;
    let message = "podgroups.scheduling.k8s.io \"g\" is forbidden: PodGroup rejected: Workload \"w\" not found";
    assert_eq!((code, &status["message"]), (403, &json!(message)));
    let policy = json!({"gang": {"minCount": 2}});
    let workload = json!({"podGroupTemplates": [{"name": "t", "schedulingPolicy": policy, "disruptionMode": "Pod"}]});
    let workload = object("v1alpha2", "Workload", "w", &workload);
    assert_eq!(send_request(&server, Method::POST, &path("v1alpha2", "workloads"), &workload).await.0, 201);
    let (code, status) = send_request(&server, Method::POST, &groups, &group("g", &template("u"))).await;
    let message = "podgroups.scheduling.k8s.io \"g\" is forbidden: PodGroup rejected: PodGroupTemplate \"u\" not found in Workload \"w\"";
    assert_eq!((code, &status["message"]), (403, &json!(message)));

    let (code, created) = send_request(&server, Method::POST, &groups, &group("g", &template("t"))).await;
    assert_eq!(code, 201, "{created}");
    assert_eq!((&created["spec"]["disruptionMode"], &created["spec"]["priority"]), (&json!("Pod"), &json!(0)));
    assert_eq!(created["metadata"]["finalizers"], json!(["scheduling.k8s.io/podgroup-protection"]));
    let patch = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}});
    let (code, status) = send_request(&server, Method::PATCH, &format!("{groups}/g"), &patch).await;
    assert_eq!(code, 422);
    assert_eq!(causes(&status), ["spec.schedulingPolicy Invalid value: null: field is immutable"], "{status}");
    let mode = json!({"schedulingPolicy": {"basic": {}}, "disruptionMode": {"single": {}}});
    assert_eq!(send_request(&server, Method::POST, &groups, &object("v1alpha2", "PodGroup", "m", &mode)).await.0, 400);
    let mode = json!({"schedulingPolicy": {"basic": {}}, "disruptionMode": "All"});
    let (code, status) =
        send_request(&server, Method::POST, &groups, &object("v1alpha2", "PodGroup", "m", &mode)).await;
    let message = "spec.disruptionMode Unsupported value: \"All\": supported values: \"Pod\", \"PodGroup\"";
    assert_eq!((code, causes(&status)), (422, vec![message.to_owned()]));

    let condition = json!({"type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let patch = json!({"status": {"conditions": [condition]}});
    let (code, shown) = send_request(&server, Method::PATCH, &format!("{groups}/g/status"), &patch).await;
    assert_eq!((code, &shown["status"]["conditions"][0]["type"]), (200, &json!("PodGroupScheduled")), "{shown}");
    let member = pod("p", &json!({"schedulingGroup": {"podGroupName": "g"}}));
    assert_eq!(send_request(&server, Method::POST, PODS, &member).await.0, 201);
    let (_, deleted) = send_request(&server, Method::DELETE, &format!("{groups}/g"), &Value::Null).await;
    assert!(deleted["metadata"]["deletionTimestamp"].is_string() || deleted["status"] == "Success", "{deleted}");
    assert_eq!(get(&server, &format!("{groups}/g")).await.0, 200, "a pod needs it");
}

#[tokio::test(start_paused = true)]
async fn v1alpha3_equals_v1beta1() {
    let server = server(NativeGroups::V1alpha3);
    let groups = path("v1alpha3", "podgroups");
    let spec = json!({"schedulingPolicy": {"gang": {"minCount": 2}}});
    let (code, created) =
        send_request(&server, Method::POST, &groups, &object("v1alpha3", "PodGroup", "g", &spec)).await;
    assert_eq!((code, &created["apiVersion"]), (201, &json!("scheduling.k8s.io/v1alpha3")), "{created}");
    assert_eq!(created["spec"]["disruptionMode"], json!({"single": {}}));
    let patch = json!({"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}});
    let (code, changed) = send_request(&server, Method::PATCH, &format!("{groups}/g"), &patch).await;
    assert_eq!((code, &changed["apiVersion"]), (200, &json!("scheduling.k8s.io/v1alpha3")), "{changed}");
    assert_eq!(get(&server, &path("v1beta1", "podgroups")).await.0, 404);
    let (_, list) = get(&server, &groups).await;
    assert_eq!(list["items"][0]["spec"]["schedulingPolicy"]["gang"]["minCount"], 3);
}
