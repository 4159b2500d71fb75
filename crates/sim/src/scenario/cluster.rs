//! A session on a real cluster: a namespace of its own, and cleanup at the end.
//!
//! Invariant: existing objects are never touched, and a cluster that has nodes of its own is refused.

use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, PersistentVolume, PersistentVolumeClaim, ServiceAccount};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use muster_api::wire::{Node, Pod};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::carrier::Carrier;
use super::model::{OF_MANAGERS, ObjectName, Scenario};
use super::objects::{CreatedObject, Objects, is_not_found};
use super::pattern::Glob;
use super::step_error::StepError;

/// How long new CRDs may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const POLL_EVERY: Duration = Duration::from_millis(100);
/// A controller manager is considered absent if its lease is older than this.
const SILENT_SECONDS: i64 = 60;
/// The maximum number of nodes listed in a refusal.
const NAMED_MAX: usize = 5;

/// Every version of Kubernetes' own group API.
const NATIVE: [&str; 4] = [
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2",
    "scheduling.k8s.io/v1alpha1",
];

/// Why a scenario cannot run on this cluster, if the cluster does not serve the kinds that it needs. A cluster that
/// does not respond is not an error here.
pub(super) async fn unsuitable(config: &kube::Config, scenario: &Scenario, carrier: Carrier) -> Option<String> {
    let client = Client::try_from(config.clone()).ok()?;
    let mut served = Vec::new();
    for version in NATIVE {
        match client.list_api_group_resources(version).await {
            Ok(list) if list.resources.iter().any(|one| one.kind == "Workload") => served.push(version),
            Ok(_) => {}
            Err(error) if is_not_found(&error) => {}
            Err(_) => return None,
        }
    }
    if let (true, Some(version)) = (scenario.config.stock, served.first()) {
        return Some(format!("the scenario needs a cluster without {version}"));
    }
    if let Some(needed) = carrier.native().filter(|needed| !served.contains(needed)) {
        return Some(format!("this cluster does not serve {needed}"));
    }
    if carrier.native().is_some() {
        for gate in scenario.config.kubernetes_feature_gates.names() {
            if !is_enabled(&client, gate).await {
                return Some(format!("the scenario needs the feature gate {gate}, which is off on this cluster"));
            }
        }
    }
    let is_here = config.cluster_url.host().is_some_and(|host| matches!(host, "127.0.0.1" | "localhost"));
    if carrier.native().is_some() && scenario.needs_managers() && !is_here {
        return Some("references to native groups are set by the webhook, which this cluster cannot call".to_owned());
    }
    if scenario.config.webhook == Some(true) && !is_here {
        return Some("the scenario needs the webhook, which this cluster cannot call".to_owned());
    }
    for version in OF_MANAGERS.into_iter().filter(|version| scenario.writes(version)) {
        if client.list_api_group_resources(version).await.is_err_and(|error| is_not_found(&error)) {
            return Some(format!("the scenario needs {version}, which this cluster does not serve"));
        }
    }
    let named = scenario.steps.iter().find_map(|step| {
        let is_missing = |version: &&str| !served.contains(version) && step.text.contains(version);
        NATIVE.into_iter().find(is_missing)
    });
    named.map(|version| format!("the scenario names {version}, which this cluster does not serve"))
}

/// Whether a feature gate of the API server is on, by its metrics.
async fn is_enabled(client: &Client, gate: &str) -> bool {
    let Ok(request) = http::Request::get("/metrics").body(Vec::new()) else { return false };
    let metrics = client.request_text(request).await.unwrap_or_default();
    let start = format!("kubernetes_feature_enabled{{name=\"{gate}\",");
    metrics.lines().any(|line| line.starts_with(&start) && line.ends_with("} 1"))
}

/// What was created on a cluster.
pub(super) struct ClusterSession {
    pub(super) namespace: String,
    /// Whether the cluster runs its own controllers for nodes, disruption budgets and ReplicaSets.
    pub(super) has_controllers: bool,
    /// Created nodes.
    pub(super) nodes: Vec<String>,
    /// Created objects.
    pub(super) created: Vec<CreatedObject>,
}

impl ClusterSession {
    /// Checks whether the cluster can be used, installs the given CRDs and creates a namespace.
    pub(super) async fn begin(objects: &mut Objects, definitions: &[&str]) -> Result<Self, StepError> {
        let client = objects.client();
        refuse_foreign_nodes(&client).await?;
        install_kinds(objects, definitions).await?;
        let namespace = create_namespace(&client).await?;
        Ok(Self { namespace, has_controllers: has_controllers(&client).await, nodes: Vec::new(), created: Vec::new() })
    }

    /// Removes what was created; returns what could not be removed. CRDs stay installed.
    pub(super) async fn end(self, objects: &mut Objects, has_volumes: bool) -> Vec<String> {
        let client = objects.client();
        let mut left = Vec::new();
        let mut note_error = |what: Result<(), StepError>| left.extend(what.err().map(|error| error.to_string()));
        for created in self.created.iter().rev().filter(|created| created.namespace != self.namespace) {
            note_error(objects.delete(created, true).await);
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let at_once = DeleteParams::default().grace_period(0);
        let deleted = pods.delete_collection(&at_once, &ListParams::default()).await;
        let attempt = || format!("delete pods of {}", self.namespace);
        note_error(deleted.map(drop).map_err(|error| StepError::request(attempt(), error)));
        if has_volumes {
            note_error(self.remove_volumes(&client).await);
        }
        let namespaces: Api<Namespace> = Api::all(client.clone());
        note_error(gone(namespaces.delete(&self.namespace, &DeleteParams::default()).await, &self.namespace));
        let nodes: Api<Node> = Api::all(client.clone());
        let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
        for name in &self.nodes {
            note_error(gone(nodes.delete(name, &DeleteParams::default()).await, name));
            note_error(gone(leases.delete(name, &DeleteParams::default()).await, name));
        }
        left
    }
}

impl ClusterSession {
    /// Removes the claims of the namespace, their volumes and the attachments of these. Finalizers are taken off, since
    /// the pods, which are being deleted, and the provisioner, which stops now, would hold them.
    async fn remove_volumes(&self, client: &Client) -> Result<(), StepError> {
        let attempt = || format!("delete the volumes of {}", self.namespace);
        let failed = |error: kube::Error| StepError::request(attempt(), error);
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), &self.namespace);
        for claim in claims.list(&ListParams::default()).await.map_err(failed)?.items {
            release(&claims, &claim.name_any()).await.map_err(failed)?;
        }
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let all = volumes.list(&ListParams::default()).await.map_err(failed)?.items;
        let is_ours = |volume: &PersistentVolume| {
            let claim = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
            claim.is_some_and(|claim| claim.namespace.as_deref() == Some(&self.namespace))
        };
        let ours: Vec<String> = all.iter().filter(|volume| is_ours(volume)).map(ResourceExt::name_any).collect();
        let attachments: Api<VolumeAttachment> = Api::all(client.clone());
        for attachment in attachments.list(&ListParams::default()).await.map_err(failed)?.items {
            let volume = attachment.spec.source.persistent_volume_name.as_ref();
            if volume.is_some_and(|volume| ours.contains(volume)) || self.nodes.contains(&attachment.spec.node_name) {
                release(&attachments, &attachment.name_any()).await.map_err(failed)?;
            }
        }
        for volume in ours {
            release(&volumes, &volume).await.map_err(failed)?;
        }
        Ok(())
    }
}

/// Deletes an object, whatever its finalizers.
async fn release<K>(objects: &Api<K>, name: &str) -> Result<(), kube::Error>
where
    K: Clone + DeserializeOwned + Debug,
{
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for answer in [
        objects.delete(name, &DeleteParams::default()).await.map(drop),
        objects.patch(name, &PatchParams::default(), &none).await.map(drop),
    ] {
        match answer {
            Err(error) if !is_not_found(&error) => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn gone<T>(answer: Result<T, kube::Error>, name: &str) -> Result<(), StepError> {
    match answer {
        Err(error) if !is_not_found(&error) => Err(StepError::request(format!("delete {name}"), error)),
        _ => Ok(()),
    }
}

async fn refuse_foreign_nodes(client: &Client) -> Result<(), StepError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await;
    let nodes = nodes.map_err(|error| StepError::request("list nodes", error))?;
    if nodes.items.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = nodes.items.iter().take(NAMED_MAX).map(ResourceExt::name_any).collect();
    Err(StepError::Precondition(format!(
        "the cluster has {} nodes of its own ({}{}): scenarios count on knowing every node, and create their own with \
         simulated kubelets; use a control plane without nodes",
        nodes.items.len(),
        names.join(", "),
        if nodes.items.len() > NAMED_MAX { ", ..." } else { "" },
    )))
}

/// Creates a namespace for one scenario, with the service account that pods need.
async fn create_namespace(client: &Client) -> Result<String, StepError> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let metadata = ObjectMeta { generate_name: Some("scenario-".to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    let created = namespaces.create(&PostParams::default(), &namespace).await;
    let name = created.map_err(|error| StepError::request("create a namespace", error))?.name_any();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
    let metadata = ObjectMeta { name: Some("default".to_owned()), ..ObjectMeta::default() };
    let account = ServiceAccount { metadata, ..ServiceAccount::default() };
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => {
            return Err(StepError::request(format!("create the service account of namespace {name}"), error));
        }
        Ok(_) => {}
    }
    Ok(name)
}

/// Whether a controller manager is running.
async fn has_controllers(client: &Client) -> bool {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let Ok(Some(lease)) = leases.get_opt("kube-controller-manager").await else { return false };
    let renewed = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
    renewed.is_some_and(|time| Timestamp::now().duration_since(time).as_secs() < SILENT_SECONDS)
}

/// Installs CRDs and waits until they are served. Existing CRDs are not changed.
pub(super) async fn install_kinds(objects: &mut Objects, definitions: &[&str]) -> Result<(), StepError> {
    for text in definitions {
        let definition: Value = serde_saphyr::from_str(text).expect("a CRD of this repository");
        let name = ObjectName {
            api_version: "apiextensions.k8s.io/v1".to_owned(),
            kind: "CustomResourceDefinition".to_owned(),
            namespace: String::new(),
            name: Glob::new(definition["metadata"]["name"].as_str().unwrap_or_default()),
        };
        if objects.find(&name).await?.is_empty() {
            objects.create(&definition).await?;
        }
        let spec = &definition["spec"];
        let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let kind = part(&spec["names"]["kind"]);
        let api_version = format!("{}/{}", part(&spec["group"]), part(&spec["versions"][0]["name"]));
        let until = Instant::now() + SERVED_WITHIN;
        while let Err(why) = objects.api(&api_version, &kind, "default").await {
            if Instant::now() >= until {
                return Err(why);
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }
    Ok(())
}
