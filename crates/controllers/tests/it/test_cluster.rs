//! A test server with controllers of pod owners, and the controllers under test. There is no scheduler, so pods stay
//! pending.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject};
use muster_api::native::NativeVersion;
use muster_api::owners::{GangedOwners, GroupApi, ProviderName};
use muster_controllers::admission::WEBHOOK_RULES;
use muster_controllers::{Controllers, PriorityClasses, Settings, WatchAges};
use muster_playground_controllers::{JobSets, Jobs, LeaderWorkerSets, StatefulSets, jobset};
use muster_playground_server::faults::Faults;
use muster_playground_server::{Admission, NativeGroups, Server};
use serde_json::{Value, json};

pub(crate) struct TestCluster {
    pub(crate) server: Server,
    pub(crate) faults: Faults,
    /// The native version that gangs are written in; `None` for Muster's own kinds.
    pub(crate) native: Option<NativeVersion>,
    controllers: Option<Controllers>,
    _owners: (Jobs, JobSets, StatefulSets, LeaderWorkerSets),
}

impl TestCluster {
    pub(crate) async fn new(faults: Faults, native: Option<NativeVersion>) -> Self {
        let native_groups = match native {
            Some(NativeVersion::V1alpha1) => NativeGroups::V1alpha1,
            Some(NativeVersion::V1alpha2) => NativeGroups::V1alpha2,
            Some(NativeVersion::V1alpha3) => NativeGroups::V1alpha3,
            Some(NativeVersion::V1beta1) | None => NativeGroups::V1beta1,
        };
        let server = Server::start(muster_playground_server::Settings {
            native_groups,
            ..muster_playground_server::Settings::default()
        });
        if native.is_some() {
            server.set_webhook(Some(webhook(settings(native), PriorityClasses::unknown())));
        }
        let client = server.client();
        let api: Api<CustomResourceDefinition> = Api::all(client.clone());
        for (plural, kind) in [("workloads", "Workload"), ("podgroups", "PodGroup")] {
            let lax = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let definition = json!({
                "metadata": {"name": format!("{plural}.muster.dev")},
                "spec": {
                    "group": "muster.dev", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                    "versions": [{"name": "v1alpha1", "served": true, "storage": true, "schema": {"openAPIV3Schema": lax}}],
                },
            });
            api.create(&PostParams::default(), &serde_json::from_value(definition).unwrap()).await.unwrap();
        }
        jobset::install(&client).await.unwrap();
        let clock = server.clock();
        let owners = (
            Jobs::start(client.clone(), clock),
            JobSets::start(client.clone(), clock),
            StatefulSets::start(client.clone(), clock),
            LeaderWorkerSets::start(client, clock),
        );
        let mut cluster = Self { server, faults, native, controllers: None, _owners: owners };
        pass(1).await;
        cluster.restart();
        cluster
    }

    /// Stops the controllers as in a crash, and starts new ones.
    pub(crate) fn restart(&mut self) {
        self.controllers = None;
        let client = self.server.client_with(&self.faults);
        let clock = self.server.clock();
        let controllers = Controllers::start(
            &client,
            settings(self.native),
            &WatchAges::default(),
            move || clock.now(),
            Arc::new(Some),
        );
        self.controllers = Some(controllers);
    }

    pub(crate) async fn create(&self, object: &Value) {
        let made = serde_json::from_value(object.clone()).unwrap();
        self.api(object).create(&PostParams::default(), &made).await.unwrap();
    }

    /// Deletes an object, and waits until it and its dependents are gone.
    pub(crate) async fn delete(&self, object: &Value) {
        let (api, name) = (self.api(object), object["metadata"]["name"].as_str().unwrap());
        api.delete(name, &DeleteParams::foreground()).await.unwrap();
        while api.get_opt(name).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn list(&self, api_version: &str, kind: &str) -> Vec<Value> {
        let like = json!({"apiVersion": api_version, "kind": kind});
        let listed = self.api(&like).list(&ListParams::default()).await.unwrap();
        listed.items.into_iter().map(|one| serde_json::to_value(one).unwrap()).collect()
    }

    /// Sets an annotation of an object; an empty value removes it.
    pub(crate) async fn annotate(&self, object: &Value, key: &str, value: &str) {
        let value = if value.is_empty() { Value::Null } else { json!(value) };
        self.patch(object, &json!({"metadata": {"annotations": {key: value}}})).await;
    }

    /// Changes an object by a merge patch.
    pub(crate) async fn patch(&self, object: &Value, patch: &Value) {
        let name = object["metadata"]["name"].as_str().unwrap();
        self.api(object).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Sets the conditions of an object, by API version, kind and name.
    pub(crate) async fn set_conditions(&self, object: (&str, &str, &str), conditions: &Value) {
        self.set_status(object, &json!({"conditions": conditions})).await;
    }

    /// Changes the status of an object. The definitions of Muster's own kinds here have no subresource for it.
    pub(crate) async fn set_status(&self, (version, kind, name): (&str, &str, &str), status: &Value) {
        let api = self.api(&json!({"apiVersion": version, "kind": kind}));
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"status": status})));
        if version.starts_with("muster.dev") {
            api.patch(name, &params, &patch).await.unwrap();
        } else {
            api.patch_status(name, &params, &patch).await.unwrap();
        }
    }

    fn api(&self, like: &Value) -> Api<DynamicObject> {
        let version = like["apiVersion"].as_str().unwrap();
        let (group, short) = version.split_once('/').unwrap_or(("", version));
        let kind = like["kind"].as_str().unwrap();
        let resource = ApiResource {
            group: group.to_owned(),
            version: short.to_owned(),
            api_version: version.to_owned(),
            plural: format!("{}s", kind.to_lowercase()),
            kind: kind.to_owned(),
        };
        Api::namespaced_with(self.server.client(), "default", &resource)
    }
}

fn settings(native: Option<NativeVersion>) -> Settings {
    let mut ganged = GangedOwners::all();
    if native.is_some() {
        ganged.job_sets = Some(GroupApi::Native);
        ganged.leader_worker_sets = Some(ProviderName::Native);
    }
    Settings::new(vec!["muster".to_owned()], "muster".to_owned(), ganged, native).unwrap()
}

/// The webhook, without HTTP: only it can add references to native groups.
pub(crate) fn webhook(settings: Settings, classes: PriorityClasses) -> Admission {
    let admission = muster_controllers::admission::Admission::new(settings, classes);
    Admission::new("muster.dev", move |review| admission.review(&review)).about_all(&WEBHOOK_RULES)
}

pub(crate) async fn pass(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

fn template() -> Value {
    let container = json!({"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "1"}}});
    json!({"spec": {"schedulerName": "muster", "restartPolicy": "Never", "containers": [container]}})
}

pub(crate) fn job_set(name: &str, of_set: &str, of_job: &str) -> Value {
    let annotated = |mode: &str| if mode.is_empty() { json!({}) } else { json!({"muster.dev/gang-mode": mode}) };
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": name, "annotations": annotated(of_set)},
        "spec": {"replicatedJobs": [{"name": "workers", "replicas": 2, "template": {
            "metadata": {"annotations": annotated(of_job)},
            "spec": {"parallelism": 2, "completions": 2, "template": template()},
        }}]},
    })
}

pub(crate) fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": name, "annotations": {"muster.dev/gang-mode": "Gang"}},
        "spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": template()},
    })
}

pub(crate) fn leader_worker_set(name: &str) -> Value {
    let mut workers = template();
    workers["spec"].as_object_mut().unwrap().remove("restartPolicy");
    json!({
        "apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"size": 2, "workerTemplate": workers}},
    })
}
