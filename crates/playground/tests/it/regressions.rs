//! Regression tests for hostile or unlucky clients: each covers a bug found in a review.

use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http_body_util::BodyExt;
use muster_playground::{Server, Settings};
use serde_json::{Value, json};

const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn send(server: &Server, method: &str, path: &str, media_type: &str, body: Vec<u8>) -> (u16, Value) {
    let request = http::Request::builder().method(method).uri(path).header("content-type", media_type);
    let response = server.answer(request.body(Body::from(body)).unwrap()).await;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    (code, serde_json::from_slice(&bytes).unwrap_or_default())
}

async fn send_request(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    send(server, method, path, JSON, body).await
}

async fn must(server: &Server, method: &str, path: &str, body: &Value) -> Value {
    let (code, answer) = send_request(server, method, path, body).await;
    assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
    answer
}

async fn patch(server: &Server, path: &str, operations: &Value) -> (u16, Value) {
    send(server, "PATCH", path, JSON_PATCH, operations.to_string().into_bytes()).await
}

/// Lets the housekeeper finish its work.
async fn settle() {
    tokio::time::sleep(Duration::from_secs(1)).await;
}

fn config_map(name: &str, more: &Value) -> Value {
    let mut metadata = json!({"name": name});
    for (key, value) in more.as_object().into_iter().flatten() {
        metadata[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata})
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn owner(kind: &str, object: &Value) -> Value {
    let api_version = object["apiVersion"].as_str().unwrap_or("v1");
    json!({
        "apiVersion": api_version, "kind": kind, "name": object["metadata"]["name"],
        "uid": object["metadata"]["uid"], "blockOwnerDeletion": true,
    })
}

fn definition(more: &Value) -> Value {
    let mut version = json!({
        "name": "v1", "served": true, "storage": true,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
            "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"colour": {"type": "string"}, "size": {"type": "string"}}}}}},
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        version[key] = value.clone();
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.test.io"},
        "spec": {"group": "test.io", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}},
    })
}

const THINGS: &str = "/apis/test.io/v1/namespaces/default/things";

fn thing(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "test.io/v1", "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

#[tokio::test(start_paused = true)]
async fn watch_accepts_any_timeout() {
    let server = Server::start(Settings::default());
    let request = http::Request::get("/api/v1/pods?watch=true&timeoutSeconds=9223372036854775807");
    let response = server.answer(request.body(Body::empty()).unwrap()).await;
    assert_eq!(response.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn copies_in_a_patch_are_bounded() {
    let server = Server::start(Settings::default());
    must(&server, "POST", DEFINITIONS, &definition(&json!({}))).await;
    settle().await;
    must(&server, "POST", THINGS, &thing("a", &json!({"text": "x".repeat(1000)}))).await;
    // Each doubles the content: the last alone would be a million times the first.
    let doubling: Vec<Value> =
        (0..20).map(|turn| json!({"op": "copy", "from": "/spec", "path": format!("/spec/c{turn}")})).collect();
    let (code, _) = patch(&server, &format!("{THINGS}/a"), &json!(doubling)).await;
    assert_eq!(code, 422);
}

#[tokio::test(start_paused = true)]
async fn patches_do_not_nest_deeper_than_bodies() {
    let server = Server::start(Settings::default());
    must(&server, "POST", DEFINITIONS, &definition(&json!({}))).await;
    settle().await;
    must(&server, "POST", THINGS, &thing("a", &json!({}))).await;
    let deep = (0..100).fold(json!({}), |inner, _| json!({"a": inner}));
    let path = format!("/spec{}", "/a".repeat(101));
    let operations =
        json!([{"op": "add", "path": "/spec/a", "value": deep}, {"op": "add", "path": path, "value": deep}]);
    let (code, _) = patch(&server, &format!("{THINGS}/a"), &operations).await;
    assert_eq!(code, 422);
    must(&server, "DELETE", &format!("{THINGS}/a"), &Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn many_unknown_fields_are_dropped() {
    let server = Server::start(Settings::default());
    let mut body = config_map("a", &json!({}));
    // As many as a body can hold: compared with each other, they would take many minutes.
    for number in 0..200_000 {
        body[format!("x{number}")] = json!(1);
    }
    let stored = must(&server, "POST", MAPS, &body).await;
    assert_eq!(stored.as_object().unwrap().keys().filter(|key| key.starts_with('x')).count(), 0);
}

#[tokio::test(start_paused = true)]
async fn many_owners_are_deduplicated() {
    let server = Server::start(Settings::default());
    let owner = |number| json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": format!("u{number}")});
    // As many as an object can hold: compared with each other, they would take many minutes.
    let owners: Vec<Value> = (0..20_000).chain(0..10).map(owner).collect();
    let stored = must(&server, "POST", MAPS, &config_map("a", &json!({"ownerReferences": owners}))).await;
    assert_eq!(stored["metadata"]["ownerReferences"].as_array().unwrap().len(), 20_000);
}

#[tokio::test(start_paused = true)]
async fn generation_does_not_overflow() {
    let server = Server::start(Settings::default());
    let more = json!({"generation": i64::MAX, "finalizers": ["test.io/hold"]});
    must(&server, "POST", MAPS, &config_map("a", &more)).await;
    must(&server, "DELETE", &format!("{MAPS}/a"), &Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn taken_generated_names_are_regenerated() {
    let server = Server::start(Settings::default());
    let mut body = config_map("", &json!({"generateName": "a-"}));
    body["metadata"].as_object_mut().unwrap().remove("name");
    // Of fourteen million names about thirty are generated twice.
    for _ in 0..30_000 {
        must(&server, "POST", MAPS, &body).await;
    }
}

#[tokio::test(start_paused = true)]
async fn selectable_fields_may_be_added_after_objects() {
    let server = Server::start(Settings::default());
    must(&server, "POST", DEFINITIONS, &definition(&json!({"selectableFields": [{"jsonPath": ".spec.size"}]}))).await;
    settle().await;
    must(&server, "POST", THINGS, &thing("a", &json!({"colour": "red", "size": "big"}))).await;
    let fields = json!([{"jsonPath": ".spec.colour"}, {"jsonPath": ".spec.size"}]);
    let mut changed = must(&server, "GET", &format!("{DEFINITIONS}/things.test.io"), &Value::Null).await;
    changed["spec"]["versions"][0]["selectableFields"] = fields;
    must(&server, "PUT", &format!("{DEFINITIONS}/things.test.io"), &changed).await;
    settle().await;
    for (selector, count) in [("spec.size%3Dbig", 1), ("spec.colour%3Dred", 1), ("spec.colour%3Dbig", 0)] {
        let found = must(&server, "GET", &format!("{THINGS}?fieldSelector={selector}"), &Value::Null).await;
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{selector}");
    }
}

#[tokio::test(start_paused = true)]
async fn watch_ends_with_its_definition() {
    let server = Server::start(Settings::default());
    must(&server, "POST", DEFINITIONS, &definition(&json!({}))).await;
    settle().await;
    must(&server, "POST", THINGS, &thing("a", &json!({}))).await;
    let request = http::Request::get(format!("{THINGS}?watch=true")).body(Body::empty()).unwrap();
    let mut lines = server.answer(request).await.into_body().into_data_stream();
    must(&server, "DELETE", &format!("{DEFINITIONS}/things.test.io"), &Value::Null).await;
    let mut received = Vec::new();
    let end = tokio::time::timeout(Duration::from_secs(60), async {
        while let Some(chunk) = lines.next().await {
            received.extend_from_slice(&chunk.unwrap());
        }
    });
    end.await.expect("the watch ends");
    let events = String::from_utf8(received).unwrap();
    let events: Vec<Value> = events.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events.last().unwrap()["type"], "DELETED");
}

#[tokio::test(start_paused = true)]
async fn namespace_is_emptied_by_every_kind_of_delete() {
    let server = Server::start(Settings::default());
    must(&server, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": "n"}})).await;
    let inside = "/api/v1/namespaces/n/configmaps";
    must(&server, "POST", inside, &config_map("a", &json!({"finalizers": ["test.io/hold"]}))).await;
    must(&server, "DELETE", "/api/v1/namespaces/n?propagationPolicy=Foreground", &Value::Null).await;
    settle().await;
    must(&server, "GET", "/api/v1/namespaces/n", &Value::Null).await;
    let free = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    patch(&server, &format!("{inside}/a"), &free).await;
    settle().await;
    assert_eq!(send_request(&server, "GET", "/api/v1/namespaces/n", &Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn owner_cycles_do_not_deadlock() {
    let server = Server::start(Settings::default());
    let first = must(&server, "POST", MAPS, &config_map("a", &json!({}))).await;
    let owners = json!([owner("ConfigMap", &first)]);
    let second = must(&server, "POST", MAPS, &config_map("b", &json!({"ownerReferences": owners}))).await;
    let circle = json!([{"op": "add", "path": "/metadata/ownerReferences", "value": [owner("ConfigMap", &second)]}]);
    assert_eq!(patch(&server, &format!("{MAPS}/a"), &circle).await.0, 200);
    must(&server, "DELETE", &format!("{MAPS}/a?propagationPolicy=Foreground"), &Value::Null).await;
    settle().await;
    assert_eq!(must(&server, "GET", MAPS, &Value::Null).await["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn owner_is_deleted_when_its_last_dependent_releases_it() {
    let server = Server::start(Settings::default());
    let first = must(&server, "POST", MAPS, &config_map("a", &json!({}))).await;
    let more = json!({"ownerReferences": [owner("ConfigMap", &first)], "finalizers": ["test.io/hold"]});
    must(&server, "POST", MAPS, &config_map("b", &more)).await;
    must(&server, "DELETE", &format!("{MAPS}/a?propagationPolicy=Foreground"), &Value::Null).await;
    settle().await;
    must(&server, "GET", &format!("{MAPS}/a"), &Value::Null).await;
    let free = json!([{"op": "remove", "path": "/metadata/ownerReferences"}]);
    assert_eq!(patch(&server, &format!("{MAPS}/b"), &free).await.0, 200);
    settle().await;
    assert_eq!(send_request(&server, "GET", &format!("{MAPS}/a"), &Value::Null).await.0, 404);
}

#[tokio::test(start_paused = true)]
async fn collected_job_deletes_its_pods() {
    let server = Server::start(Settings::default());
    let first = must(&server, "POST", MAPS, &config_map("a", &json!({}))).await;
    let template = json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "ownerReferences": [owner("ConfigMap", &first)]}, "spec": {"template": template},
    });
    let job = must(&server, "POST", "/apis/batch/v1/namespaces/default/jobs", &job).await;
    must(&server, "POST", MAPS, &config_map("b", &json!({"ownerReferences": [owner("Job", &job)]}))).await;
    must(&server, "DELETE", &format!("{MAPS}/a?propagationPolicy=Background"), &Value::Null).await;
    settle().await;
    assert_eq!(send_request(&server, "GET", "/apis/batch/v1/namespaces/default/jobs/j", &Value::Null).await.0, 404);
    assert_eq!(must(&server, "GET", MAPS, &Value::Null).await["items"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn scale_body_must_be_an_object() {
    let server = Server::start(Settings::default());
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}}},
    });
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    must(&server, "POST", sets, &set).await;
    for body in [json!("x"), json!([]), json!(5), json!({"spec": "x"}), json!({"spec": []})] {
        let (code, _) = send_request(&server, "PUT", &format!("{sets}/r/scale"), &body).await;
        assert_eq!(code, 400, "{body}");
    }
    let (code, _) =
        send_request(&server, "PUT", &format!("{sets}/r/scale"), &json!({"spec": {"replicas": 1_i64 << 40}})).await;
    assert_eq!(code, 400);
    let dry_run = must(&server, "PUT", &format!("{sets}/r/scale?dryRun=All"), &json!({"spec": {"replicas": 7}})).await;
    assert_eq!(dry_run["spec"]["replicas"], 7);
    assert_eq!(must(&server, "GET", &format!("{sets}/r"), &Value::Null).await["spec"]["replicas"], 3);
}

#[tokio::test(start_paused = true)]
async fn binding_labels_and_annotations_must_be_strings() {
    let server = Server::start(Settings::default());
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    must(&server, "POST", pods, &pod).await;
    for metadata in
        [json!({"name": "p", "annotations": {"a": 5}}), json!({"name": "p", "labels": {"a": {}}}), json!("p")]
    {
        let binding = json!({"metadata": metadata, "target": {"kind": "Node", "name": "n"}});
        let (code, answer) = send_request(&server, "POST", &format!("{pods}/p/binding"), &binding).await;
        assert_eq!(code, 400, "{binding} {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn watch_sends_large_objects_one_by_one() {
    let server = Server::start(Settings::default());
    let mut body = config_map("a", &json!({}));
    body["data"] = json!({"a": "x".repeat(1_000_000)});
    let request = http::Request::get(format!("{MAPS}?watch=true")).body(Body::empty()).unwrap();
    let mut lines = server.answer(request).await.into_body().into_data_stream();
    for number in 0..20 {
        body["metadata"]["name"] = json!(format!("m{number}"));
        must(&server, "POST", MAPS, &body).await;
    }
    let first = lines.next().await.unwrap().unwrap();
    assert!(first.len() < 3_000_000, "{}", first.len());
}

#[tokio::test(start_paused = true)]
async fn reported_unknown_fields_are_bounded() {
    let server = Server::start(Settings::default());
    let mut body = definition(&json!({}));
    let fields: serde_json::Map<String, Value> = (0..5000).map(|number| (format!("f{number}"), json!(1))).collect();
    let mut properties = serde_json::Map::new();
    properties.insert("y".repeat(1_000_000), Value::Object(fields));
    body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = Value::Object(properties);
    let (code, answer) = send_request(&server, "POST", &format!("{DEFINITIONS}?fieldValidation=Strict"), &body).await;
    assert_eq!(code, 400);
    let length = answer["message"].as_str().unwrap().len();
    assert!(length < 100_000_000, "five thousand paths of a megabyte are five gigabytes, here {length}");
}

/// Writers and watchers on several threads: each watcher receives every change of every object, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_on_other_threads_miss_no_events() {
    const WRITERS: usize = 6;
    const WRITES: usize = 150;
    let server = Server::start(Settings::default());
    let open = || async {
        let request = http::Request::get(format!("{MAPS}?watch=true")).body(Body::empty()).unwrap();
        server.answer(request).await.into_body().into_data_stream()
    };
    let mut readers = Vec::new();
    for _ in 0..8 {
        let mut lines = open().await;
        readers.push(tokio::spawn(async move {
            let (mut rest, mut received) = (Vec::new(), Vec::new());
            while received.len() < WRITERS * WRITES {
                rest.extend_from_slice(&lines.next().await.unwrap().unwrap());
                while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = rest.drain(..=end).collect();
                    let event: Value = serde_json::from_slice(&line).unwrap();
                    let revision = event["object"]["metadata"]["resourceVersion"].as_str().unwrap();
                    received.push(revision.parse::<u64>().unwrap());
                }
            }
            received
        }));
    }
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        let server = server.clone();
        writers.push(tokio::spawn(async move {
            must(&server, "POST", MAPS, &config_map(&format!("w{writer}"), &json!({}))).await;
            for turn in 1..WRITES {
                let mut body = config_map(&format!("w{writer}"), &json!({}));
                body["data"] = json!({"turn": turn.to_string()});
                must(&server, "PUT", &format!("{MAPS}/w{writer}"), &body).await;
            }
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    let last = server.revision();
    let expected: Vec<u64> = (last - (WRITERS * WRITES) as u64 + 1..=last).collect();
    for reader in readers {
        let received =
            tokio::time::timeout(Duration::from_secs(60), reader).await.expect("all events are received").unwrap();
        assert_eq!(received, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn cluster_scoped_object_is_not_collected_for_a_namespaced_owner() {
    let server = Server::start(Settings::default());
    let map = must(&server, "POST", MAPS, &config_map("a", &json!({}))).await;
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 5,
        "metadata": {"name": "c", "ownerReferences": [owner("ConfigMap", &map)]},
    });
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    must(&server, "POST", classes, &class).await;
    settle().await;
    must(&server, "GET", &format!("{classes}/c"), &Value::Null).await;
}

#[tokio::test(start_paused = true)]
async fn object_size_is_limited() {
    let server = Server::start(Settings::default());
    must(&server, "POST", DEFINITIONS, &definition(&json!({}))).await;
    settle().await;
    must(&server, "POST", THINGS, &thing("a", &json!({}))).await;
    let mut codes = Vec::new();
    for turn in 0..4 {
        let operations = json!([{"op": "add", "path": format!("/spec/t{turn}"), "value": "x".repeat(1_000_000)}]);
        codes.push(patch(&server, &format!("{THINGS}/a"), &operations).await.0);
    }
    assert_eq!(codes, [200, 500, 500, 500]);
}

#[tokio::test(start_paused = true)]
async fn definition_named_like_a_built_in_kind_does_not_affect_it() {
    let server = Server::start(Settings::default());
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}});
    let leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    must(&server, "POST", leases, &lease).await;
    let mut same_name = definition(&json!({}));
    let approved = json!({"api-approved.kubernetes.io": "https://github.com/kubernetes/enhancements/pull/1111"});
    same_name["metadata"] = json!({"name": "leases.coordination.k8s.io", "annotations": approved});
    same_name["spec"]["group"] = json!("coordination.k8s.io");
    same_name["spec"]["names"] =
        json!({"plural": "leases", "singular": "lease", "kind": "Lease", "listKind": "LeaseList"});
    must(&server, "POST", DEFINITIONS, &same_name).await;
    settle().await;
    let path = format!("{DEFINITIONS}/leases.coordination.k8s.io");
    must(&server, "DELETE", &path, &Value::Null).await;
    settle().await;
    must(&server, "GET", &format!("{leases}/l"), &Value::Null).await;
    assert_eq!(send_request(&server, "GET", &path, &Value::Null).await.0, 404);
}
