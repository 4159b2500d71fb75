//! A test cluster: a server with one node and a scheduler, under paused time.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use muster_playground_server::Server;
use muster_runtime::{Clock, Fence, Scheduler, Settings};
use serde_json::{Value, json};

pub(crate) struct TestCluster {
    pub(crate) server: Server,
    schedulers: Vec<Scheduler>,
}

impl TestCluster {
    /// A server with these CRDs and a node of four CPUs, and a scheduler that has synced.
    pub(crate) async fn with(definitions: &[Value]) -> Self {
        Self::set_up(definitions, true).await
    }

    /// The same for thousands of pods: the engine's invariants are not checked after every step.
    pub(crate) async fn unchecked(definitions: &[Value]) -> Self {
        Self::set_up(definitions, false).await
    }

    async fn set_up(definitions: &[Value], check_invariants: bool) -> Self {
        let server = Server::start(muster_playground_server::Settings::default());
        let client = server.client();
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for definition in definitions {
            let definition = serde_json::from_value(definition.clone()).unwrap();
            api.create(&PostParams::default(), &definition).await.unwrap();
        }
        let nodes: Api<Node> = Api::all(client.clone());
        let offer = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
        let node = json!({"metadata": {"name": "n0"}});
        let mut node: Node = serde_json::from_value(node).unwrap();
        node = nodes.create(&PostParams::default(), &node).await.unwrap();
        node.spec = None;
        node.status = serde_json::from_value(json!({"allocatable": offer, "capacity": offer})).unwrap();
        nodes.replace_status("n0", &PostParams::default(), &node).await.unwrap();
        let mut ready = nodes.get("n0").await.unwrap();
        ready.spec.get_or_insert_default().taints = None;
        nodes.replace("n0", &PostParams::default(), &ready).await.unwrap();
        let mut cluster = Self { server, schedulers: Vec::new() };
        cluster.start_scheduler(&Settings { check_invariants, ..Settings::default() });
        cluster
    }

    /// Starts one more scheduler on the same server.
    pub(crate) fn start_scheduler(&mut self, settings: &Settings) {
        let clock = Clock::starting_at(self.server.now());
        self.schedulers.push(Scheduler::start(&self.server.client(), settings, clock, Fence::open()).unwrap());
    }

    /// Creates an object of any kind.
    pub(crate) async fn create(&self, object: Value) {
        self.api(&object).create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }

    /// The current state of an object; `like` names its kind.
    pub(crate) async fn get(&self, like: &Value) -> Value {
        let name = like["metadata"]["name"].as_str().unwrap();
        serde_json::to_value(self.api(like).get(name).await.unwrap()).unwrap()
    }

    fn api(&self, like: &Value) -> Api<DynamicObject> {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (version, kind) = (text(&like["apiVersion"]), text(&like["kind"]));
        let (group, short) = version.split_once('/').unwrap_or(("", &version));
        let resource = ApiResource {
            group: group.to_owned(),
            version: short.to_owned(),
            api_version: version.clone(),
            plural: format!("{}s", kind.to_lowercase()),
            kind,
        };
        Api::namespaced_with(self.server.client(), "default", &resource)
    }
}

pub(crate) async fn sleep_seconds(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

/// The condition of a type in an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let list = object["status"]["conditions"].as_array().expect("conditions");
    list.iter().find(|one| one["type"] == kind).unwrap_or_else(|| panic!("no {kind} in {list:?}"))
}

/// A pod of one CPU that names a group.
pub(crate) fn pod(name: &str, group: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "annotations": {"muster.dev/pod-group": group}},
        "spec": {
            "schedulerName": "muster",
            "containers": [{"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
        },
    })
}

/// A PodGroup with this spec.
pub(crate) fn group(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "muster.dev/v1alpha1", "kind": "PodGroup", "metadata": {"name": name}, "spec": spec})
}
