//! Tests that kube-rs works on the server unmodified: typed and dynamic objects, watchers, reflectors, the event
//! recorder.

use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Binding, ConfigMap, Event as CoreEvent, Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
    WatchEvent, WatchParams,
};
use kube::runtime::controller::Action;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::runtime::{Controller, WatchStreamExt, watcher};
use kube::{Client, Resource};
use muster_playground::{Server, Settings};
use serde_json::json;

fn server() -> Server {
    let start = "2026-01-01T00:00:00Z".parse().expect("a date");
    Server::start(Settings { start: Some(start), ..Settings::default() })
}

fn pod(name: &str) -> Pod {
    serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "1000m"}}}]},
    }))
    .expect("a pod")
}

#[tokio::test(start_paused = true)]
async fn pod_is_created_bound_and_deleted() {
    let client = server().client();
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let created = pods.create(&PostParams::default(), &pod("p")).await.expect("a pod");
    assert_eq!(created.spec.as_ref().unwrap().scheduler_name.as_deref(), Some("default-scheduler"));
    assert_eq!(created.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
    let binding: Binding = serde_json::from_value(json!({
        "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"},
    }))
    .unwrap();
    let plain = PostParams::default();
    let bind = || pods.create_subresource::<Binding, serde_json::Value>("binding", "p", &plain, &binding);
    bind().await.expect("the first bind");
    let refused = bind().await.expect_err("a second bind");
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!(status.code, 409);
    assert_eq!(
        status.message,
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n\""
    );
    let deleted = pods.delete("p", &DeleteParams::default()).await.expect("a delete");
    let waiting = deleted.left().expect("the pod has time to stop");
    assert_eq!(waiting.metadata.deletion_grace_period_seconds, Some(30));
    pods.delete("p", &DeleteParams::default().grace_period(0)).await.expect("the kubelet's delete");
    assert!(pods.get_opt("p").await.expect("an answer").is_none());
}

#[tokio::test(start_paused = true)]
async fn watchers_see_every_change() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    pods.create(&PostParams::default(), &pod("first")).await.unwrap();
    for streaming in [false, true] {
        let config = if streaming { watcher::Config::default().streaming_lists() } else { watcher::Config::default() };
        let mut events = std::pin::pin!(watcher(pods.clone(), config).default_backoff());
        let mut seen = Vec::new();
        let name = format!("second-{streaming}");
        for step in 0..6 {
            let event = events.try_next().await.expect("an event").expect("no end");
            seen.push(match event {
                watcher::Event::Init => "init".to_owned(),
                watcher::Event::InitApply(pod) => format!("there {}", pod.metadata.name.unwrap()),
                watcher::Event::InitDone => "done".to_owned(),
                watcher::Event::Apply(pod) => format!("apply {}", pod.metadata.name.unwrap()),
                watcher::Event::Delete(pod) => format!("delete {}", pod.metadata.name.unwrap()),
            });
            match step {
                2 => drop(pods.create(&PostParams::default(), &pod(&name)).await.unwrap()),
                3 => drop(pods.delete(&name, &DeleteParams::default()).await.unwrap()),
                _ => {}
            }
        }
        let apply = format!("apply {name}");
        let wanted = ["init", "there first", "done", &*apply, &*apply, &*format!("delete {name}")];
        assert_eq!(seen, wanted, "streaming {streaming}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_hour_costs_nothing() {
    let server = server();
    let nodes: Api<Node> = Api::all(server.client());
    let watching = tokio::spawn(watcher(nodes, watcher::Config::default()).take(100_000).count());
    let began = std::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert!(!watching.is_finished());
    // The time is not asserted: the benchmark measures it. This test would hang or spin if an idle watch cost anything.
    println!("one virtual hour of an idle watch: {:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn list_pages_are_of_one_snapshot() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    for index in 0..10 {
        pods.create(&PostParams::default(), &pod(&format!("p{index}"))).await.unwrap();
    }
    let first = pods.list(&ListParams::default().limit(4)).await.unwrap();
    assert_eq!(first.items.len(), 4);
    assert_eq!(first.metadata.remaining_item_count, Some(6));
    pods.delete("p5", &DeleteParams::default()).await.unwrap();
    let token = first.metadata.continue_.unwrap();
    let second = pods.list(&ListParams::default().continue_token(&token)).await.unwrap();
    assert_eq!(second.items.len(), 6, "the page shows the moment of the first");
    server.compact();
    pods.create(&PostParams::default(), &pod("later")).await.unwrap();
    let refused = pods.list(&ListParams::default().continue_token(&token)).await.expect_err("the past is gone");
    let kube::Error::Api(status) = refused else { panic!("{refused}") };
    assert_eq!((status.code, &*status.reason), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn controller_and_event_recorder_work_unmodified() {
    let server = server();
    let client = server.client();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    // Gives every ReplicaSet its own config map, repeatedly, and records an event.
    let reconcile = |set: Arc<ReplicaSet>, client: Arc<Client>| async move {
        let maps: Api<ConfigMap> = Api::default_namespaced(Client::clone(&client));
        let name = set.metadata.name.clone().unwrap();
        if maps.get_opt(&name).await?.is_none() {
            let owner = set.controller_owner_ref(&()).unwrap();
            let map = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
            maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await?;
            let event = Event {
                type_: EventType::Normal,
                reason: "Made".to_owned(),
                note: Some("a config map".to_owned()),
                action: "Make".to_owned(),
                secondary: None,
            };
            let recorder = Recorder::new(Client::clone(&client), "tester".into());
            for _ in 0..2 {
                recorder.publish(&event, &set.object_ref(&())).await?;
            }
        }
        Ok::<_, kube::Error>(Action::await_change())
    };
    let controller = Controller::new(sets.clone(), watcher::Config::default())
        .owns(maps.clone(), watcher::Config::default())
        .run(reconcile, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(client.clone()));
    let running = tokio::spawn(controller.for_each(|_| async {}));
    let set = json!({
        "metadata": {"name": "s"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]},
        }},
    });
    sets.create(&PostParams::default(), &serde_json::from_value(set).unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let first = maps.get("s").await.expect("the controller made it").metadata.uid;
    maps.delete("s", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_ne!(maps.get("s").await.expect("and again").metadata.uid, first);
    // kubectl describe reads core/v1 events by the involved object.
    let events: Api<CoreEvent> = Api::default_namespaced(client);
    let found = events.list(&ListParams::default().fields("involvedObject.name=s,reason=Made")).await.unwrap();
    assert!(!found.items.is_empty());
    assert_eq!(found.items[0].message.as_deref(), Some("a config map"));
    sets.delete("s", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(maps.get_opt("s").await.unwrap().is_none(), "the garbage collector took it");
    running.abort();
}

#[tokio::test]
async fn http_on_loopback() {
    let server = server();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let serving = tokio::spawn({
        let server = server.clone();
        async move { server.serve(listener).await }
    });
    let config = kube::Config::new(format!("http://{address}").parse().expect("an address"));
    let client = Client::try_from(config).expect("a client");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    pods.create(&PostParams::default(), &pod("p")).await.expect("a pod");
    let mut events = std::pin::pin!(watcher(pods.clone(), watcher::Config::default()).applied_objects());
    assert_eq!(events.try_next().await.unwrap().unwrap().metadata.name.as_deref(), Some("p"));
    assert_eq!(client.apiserver_version().await.expect("a version").minor, "37");
    serving.abort();
}

#[tokio::test(start_paused = true)]
async fn watch_ends_with_its_kind() {
    let server = server();
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let created = serde_json::from_value(crate::model::definition()).unwrap();
    definitions.create(&PostParams::default(), &created).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("test.example.com", "v1", "Thing"));
    let things: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    things.create(&PostParams::default(), &DynamicObject::new("t", &resource)).await.unwrap();
    let mut events = std::pin::pin!(things.watch(&WatchParams::default().timeout(290), "0").await.unwrap());
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Added(_))));
    definitions.delete("things.test.example.com", &DeleteParams::default()).await.unwrap();
    assert!(matches!(events.try_next().await.unwrap(), Some(WatchEvent::Deleted(_))));
    assert!(events.try_next().await.unwrap().is_none(), "nothing can come any more");
    let gone = things.list(&ListParams::default()).await.expect_err("the kind is not served");
    assert!(matches!(gone, kube::Error::Api(status) if status.code == 404));
}

#[tokio::test(start_paused = true)]
async fn objects_with_unserved_storage_version_are_collected() {
    let server = server();
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let mut definition = crate::model::definition();
    let mut newer = definition["spec"]["versions"][0].clone();
    newer["name"] = json!("v2");
    newer["storage"] = json!(false);
    definition["spec"]["versions"][0]["served"] = json!(false);
    definition["spec"]["versions"].as_array_mut().unwrap().push(newer);
    definitions.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let api = |version| ApiResource::from_gvk(&GroupVersionKind::gvk("test.example.com", version, "Thing"));
    let newer: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &api("v2"));
    let older: Api<DynamicObject> = Api::default_namespaced_with(client.clone(), &api("v1"));
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let owner = serde_json::from_value(json!({"metadata": {"name": "owner"}})).unwrap();
    let owner = maps.create(&PostParams::default(), &owner).await.unwrap();
    let mut thing = DynamicObject::new("t", &api("v2"));
    thing.metadata.owner_references = owner.controller_owner_ref(&()).map(|owner| vec![owner]);
    newer.create(&PostParams::default(), &thing).await.unwrap();
    assert!(older.get("t").await.is_err(), "the stored version is not served");
    maps.delete("owner", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(newer.get_opt("t").await.unwrap().is_none(), "the garbage collector still handles it");
}

#[tokio::test(start_paused = true)]
async fn dependent_is_collected_only_if_its_owner_is_known_to_be_absent() {
    let maps: Api<ConfigMap> = Api::default_namespaced(server().client());
    let make = async |name: &str, owner: serde_json::Value| {
        let map = json!({"metadata": {"name": name, "ownerReferences": [owner]}});
        maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap()).await.unwrap()
    };
    let owner = serde_json::from_value(json!({"metadata": {"name": "owner"}})).unwrap();
    let uid = maps.create(&PostParams::default(), &owner).await.unwrap().metadata.uid.unwrap();
    make("right", json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid})).await;
    make("other-uid", json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "x"})).await;
    make("other-name", json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": uid})).await;
    make("other-kind", json!({"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": uid})).await;
    make("unknown-kind", json!({"apiVersion": "example.com/v1", "kind": "TrainJob", "name": "t", "uid": "y"})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let left = maps.list(&ListParams::default()).await.unwrap();
    let left: Vec<&str> = left.items.iter().filter_map(|map| map.metadata.name.as_deref()).collect();
    assert_eq!(left, ["owner", "right", "unknown-kind"]);
}

#[tokio::test(start_paused = true)]
async fn merge_patches_of_object_and_status() {
    let pods: Api<Pod> = Api::default_namespaced(server().client());
    pods.create(&PostParams::default(), &pod("p")).await.unwrap();
    let merge = Patch::Merge(json!({"metadata": {"labels": {"app": null, "b": "c"}}}));
    let merged = pods.patch("p", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(merged.metadata.labels.unwrap().into_iter().collect::<Vec<_>>(), [("b".to_owned(), "c".to_owned())]);
    let status = Patch::Merge(json!({"status": {"nominatedNodeName": "n"}, "spec": {"nodeName": "x"}}));
    let nominated = pods.patch_status("p", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(nominated.status.unwrap().nominated_node_name.as_deref(), Some("n"));
    assert_eq!(nominated.spec.unwrap().node_name, None);
}
