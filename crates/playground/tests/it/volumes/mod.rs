//! Tests of volumes through the API, under virtual time: binding, provisioning, protection, attachments, mounting.
//!
//! There is no scheduler: the tests select nodes and bind pods themselves.

mod attachments;
mod binder;
mod mounting;
mod protection;
mod provisioner;

use std::time::Duration;

use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use muster_playground::Server;
use muster_playground::components::{Cluster, Shape};
use serde_json::{Value, json};

pub(crate) use crate::kubelets::pass;
use crate::kubelets::server;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";

/// A cluster of four nodes, `n-0` to `n-3`, in two zones.
pub(crate) struct VolumeCluster {
    pub(crate) server: Server,
    client: Client,
    _cluster: Cluster,
}

/// The key of a parameter or annotation of the playground.
pub(crate) fn key(name: &str) -> String {
    format!("playground.muster.dev/{name}")
}

impl VolumeCluster {
    pub(crate) async fn new() -> Self {
        Self::with(&json!({})).await
    }

    /// With a change of the pool of nodes.
    pub(crate) async fn with(change: &Value) -> Self {
        let server = server();
        let mut pool = json!({
            "name": "n", "count": 4, "capacity": {"cpu": "64", "memory": "64Gi", "pods": "100"},
            "domains": [{"key": "topology.kubernetes.io/zone", "count": 2}],
        });
        json_patch::merge(&mut pool, change);
        let shape = Shape::from_json(&json!({"pools": [pool]}).to_string()).expect("a shape");
        let cluster = Cluster::start(&server.client(), &shape, server.clock()).expect("a cluster");
        pass(5.0).await;
        Self { client: server.client(), server, _cluster: cluster }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let group = match kind {
            "StorageClass" | "CSINode" | "CSIDriver" | "CSIStorageCapacity" | "VolumeAttachment" => "storage.k8s.io",
            _ => "",
        };
        let mut resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        if kind == "CSIStorageCapacity" {
            "csistoragecapacities".clone_into(&mut resource.plural);
        }
        match kind {
            "CSIStorageCapacity" => Api::namespaced_with(self.client.clone(), "kube-system", &resource),
            "Pod" | "PersistentVolumeClaim" | "Event" => Api::default_namespaced_with(self.client.clone(), &resource),
            _ => Api::all_with(self.client.clone(), &resource),
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

    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        self.api(kind).delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    pub(crate) async fn phase(&self, kind: &str, name: &str) -> String {
        let object = self.get(kind, name).await;
        if object.is_null() { "gone".to_owned() } else { object["status"]["phase"].as_str().unwrap_or("").to_owned() }
    }

    /// The messages of the events about an object, each with its reason, in the order in which they came.
    pub(crate) async fn events(&self, about: &str) -> Vec<String> {
        let mut events = self.list("Event").await;
        events.retain(|event| event["involvedObject"]["name"] == about);
        events.sort_by_key(|event| event["firstTimestamp"].as_str().unwrap_or_default().to_owned());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events.iter().map(|event| format!("{}: {}", text(&event["reason"]), text(&event["message"]))).collect()
    }

    /// A class of the fake provisioner.
    pub(crate) async fn class(&self, name: &str, mode: &str, parameters: &[(&str, &str)]) {
        let parameters: Value = parameters.iter().map(|(name, value)| (key(name), json!(value))).collect();
        let class = json!({
            "metadata": {"name": name}, "provisioner": "fake.muster.dev", "volumeBindingMode": mode,
            "parameters": parameters,
        });
        self.create("StorageClass", class).await;
    }

    pub(crate) async fn claim(&self, name: &str, class: &str, change: &Value) {
        let mut claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "storageClassName": class,
                "resources": {"requests": {"storage": "1Gi"}},
            },
        });
        json_patch::merge(&mut claim, change);
        self.create("PersistentVolumeClaim", claim).await;
    }

    /// What a scheduler does: asks for a volume on this node.
    pub(crate) async fn select(&self, claim: &str, node: &str) {
        let change = json!({"metadata": {"annotations": {SELECTED_NODE: node}}});
        self.change("PersistentVolumeClaim", claim, change).await;
    }

    pub(crate) async fn selected(&self, claim: &str) -> Value {
        self.get("PersistentVolumeClaim", claim).await["metadata"]["annotations"][SELECTED_NODE].clone()
    }

    /// The volume of a claim.
    pub(crate) async fn volume_of(&self, claim: &str) -> Value {
        let claim = self.get("PersistentVolumeClaim", claim).await;
        self.get("PersistentVolume", claim["spec"]["volumeName"].as_str().unwrap_or_default()).await
    }

    /// A pod with these claims, on this node if there is one.
    pub(crate) async fn pod(&self, name: &str, node: Option<&str>, claims: &[&str]) {
        let volumes: Vec<Value> = claims
            .iter()
            .map(|claim| json!({"name": format!("v-{claim}"), "persistentVolumeClaim": {"claimName": claim}}))
            .collect();
        self.pod_with(name, node, json!(volumes)).await;
    }

    pub(crate) async fn pod_with(&self, name: &str, node: Option<&str>, volumes: Value) {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {
                "nodeName": node, "terminationGracePeriodSeconds": 1, "volumes": volumes,
                "containers": [{"name": "c", "image": "i"}],
            },
        });
        self.create("Pod", pod).await;
    }

    /// A static volume of ten gibibytes.
    pub(crate) async fn volume(&self, name: &str, change: &Value) {
        let mut volume = json!({
            "metadata": {"name": name},
            "spec": {
                "capacity": {"storage": "10Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "static",
                "nfs": {"server": "s", "path": "/"},
            },
        });
        json_patch::merge(&mut volume, change);
        self.create("PersistentVolume", volume).await;
    }

    /// Asserts that nothing is written any more, except by kubelets for their nodes.
    pub(crate) async fn assert_idle(&self) {
        let nodes = 4;
        pass(60.0).await;
        let revision = self.server.revision();
        pass(30.0).await;
        let written = self.server.revision() - revision;
        assert!(written <= nodes * 4, "{written} writes at rest");
    }
}

/// Repeats until something holds, for at most this many seconds.
pub(crate) async fn until(seconds: u64, mut holds: impl AsyncFnMut() -> bool) {
    let ends = tokio::time::Instant::now() + Duration::from_secs(seconds);
    while !holds().await {
        assert!(tokio::time::Instant::now() < ends, "not within {seconds} s");
        pass(0.1).await;
    }
}
