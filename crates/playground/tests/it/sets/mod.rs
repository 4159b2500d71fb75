//! Tests of ReplicaSets, Deployments, StatefulSets and LeaderWorkerSets through the API, under virtual time.
//!
//! A small scheduler binds every pod to `n-0`, so that the kubelet runs it.

mod deployments;
mod leader_workers;
mod random_runs;
mod replicas;
mod stateful;

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use muster_playground::components::{
    Deployments, KubeletSettings, Kubelets, LeaderWorkerSets, Replicas, Shape, StatefulSets, StorageDrivers,
    VolumeSettings, Volumes,
};
use muster_playground::{Server, Settings};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

pub(crate) use crate::kubelets::pass;

/// A cluster with a large node, a scheduler and the controllers of sets.
pub(crate) struct TestCluster {
    pub(crate) server: Server,
    pub(crate) client: Client,
    _kubelets: Kubelets,
    _sets: (Replicas, Deployments, StatefulSets, LeaderWorkerSets),
    _storage: (Volumes, StorageDrivers),
    scheduler: JoinHandle<()>,
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        self.scheduler.abort();
    }
}

impl TestCluster {
    pub(crate) async fn new() -> Self {
        Self::seeded(0, Server::client).await
    }

    /// With the client that the controllers use.
    pub(crate) async fn seeded(seed: u64, controllers: impl FnOnce(&Server) -> Client) -> Self {
        let start = "2026-01-01T00:00:00Z".parse().expect("a date");
        let server = Server::start(Settings { start: Some(start), seed, ..Settings::default() });
        let capacity = json!({"cpu": "1000", "memory": "1000Gi", "pods": "1000"});
        let pool = json!({"name": "n", "count": 2, "capacity": capacity, "labels": {"rack": "r-1"}});
        let shape = Shape::from_json(&json!({"pools": [pool]}).to_string()).expect("a shape");
        let clock = server.clock();
        let kubelets = Kubelets::start(server.client(), &shape, KubeletSettings::default(), clock).expect("kubelets");
        let client = controllers(&server);
        let sets = (
            Replicas::start(client.clone(), clock),
            Deployments::start(client.clone(), clock),
            StatefulSets::start(client.clone(), clock),
            LeaderWorkerSets::start(client.clone(), clock),
        );
        let volumes = Volumes::start(client.clone(), VolumeSettings::default(), clock);
        let storage = (volumes, StorageDrivers::start(client, clock));
        let scheduler = tokio::spawn(schedule(server.client()));
        pass(5.0).await;
        Self { client: server.client(), server, _kubelets: kubelets, _sets: sets, _storage: storage, scheduler }
    }

    pub(crate) fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version, plural) = match kind {
            "ReplicaSet" | "Deployment" | "StatefulSet" | "ControllerRevision" => ("apps", "v1", None),
            "LeaderWorkerSet" => ("leaderworkerset.x-k8s.io", "v1", None),
            "Pod" | "Service" | "PersistentVolumeClaim" | "Node" => ("", "v1", None),
            "StorageClass" => ("storage.k8s.io", "v1", Some("storageclasses".to_owned())),
            other => panic!("{other}"),
        };
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if let Some(plural) = plural {
            resource.plural = plural;
        }
        match kind {
            "Node" | "StorageClass" => Api::all_with(self.client.clone(), &resource),
            _ => Api::default_namespaced_with(self.client.clone(), &resource),
        }
    }

    pub(crate) async fn create(&self, kind: &str, object: Value) -> Value {
        let object = serde_json::from_value(object).expect("an object");
        let created = self.api(kind).create(&PostParams::default(), &object).await.expect("a new object");
        serde_json::to_value(created).expect("json")
    }

    pub(crate) async fn change(&self, kind: &str, name: &str, change: Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(change)).await.expect("a change");
    }

    /// The object, or null.
    pub(crate) async fn get(&self, kind: &str, name: &str) -> Value {
        let found = self.api(kind).get_opt(name).await.expect("an answer");
        found.map_or(Value::Null, |found| serde_json::to_value(found).expect("json"))
    }

    pub(crate) async fn list(&self, kind: &str) -> Vec<Value> {
        let all = self.api(kind).list(&ListParams::default()).await.expect("a list");
        all.items.into_iter().map(|one| serde_json::to_value(one).expect("json")).collect()
    }

    pub(crate) async fn names(&self, kind: &str) -> Vec<String> {
        self.list(kind).await.iter().map(name_of).collect()
    }

    pub(crate) async fn pods(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        pods.list(&ListParams::default()).await.expect("pods").items
    }

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &kube::api::DeleteParams::background()).await.expect("deleted");
    }

    /// The messages of events, by reason.
    pub(crate) async fn event_messages(&self, about: &str) -> BTreeMap<String, Vec<String>> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        let mut all = events.list(&ListParams::default()).await.expect("events").items;
        all.retain(|event| event.involved_object.name.as_deref() == Some(about));
        all.sort_by_key(|event| (event.first_timestamp.clone(), event.name_any()));
        let mut messages: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for event in all {
            messages.entry(event.reason.unwrap_or_default()).or_default().push(event.message.unwrap_or_default());
        }
        messages
    }

    /// Asserts that nothing is written any more.
    pub(crate) async fn assert_idle(&self) {
        pass(120.0).await;
        let revision = self.server.revision();
        pass(30.0).await;
        // Only the heartbeats of nodes are written.
        let written = self.server.revision() - revision;
        assert!(written <= 40, "{written} writes at rest");
    }
}

pub(crate) fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// A pod template with a label, whose image distinguishes templates.
pub(crate) fn template(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "c", "image": image}]},
    })
}

pub(crate) fn image_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone()).unwrap_or_default()
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().filter_map(|status| status.conditions.as_ref()).flatten();
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

pub(crate) fn is_live(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
    pod.metadata.deletion_timestamp.is_none() && !matches!(phase, "Failed" | "Succeeded")
}

/// Binds every pending pod to `n-0`.
async fn schedule(client: Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let mut events = std::pin::pin!(watcher(pods, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) = event else { continue };
        let spec = pod.spec.clone().unwrap_or_default();
        if spec.node_name.is_some() || spec.scheduling_gates.is_some() || pod.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let binding = json!({"metadata": {"name": pod.name_any()}, "target": {"kind": "Node", "name": "n-0"}});
        let path =
            format!("/api/v1/namespaces/{}/pods/{}/binding", pod.namespace().unwrap_or_default(), pod.name_any());
        let request = http::Request::post(path)
            .header("content-type", "application/json")
            .body(binding.to_string().into_bytes())
            .expect("a request");
        // The pod may be gone meanwhile.
        let _ = client.request::<Value>(request).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
