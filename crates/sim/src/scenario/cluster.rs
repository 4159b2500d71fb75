//! A visit to a real cluster: a namespace of its own, and everything removed at the end.
//!
//! Invariant: nothing is touched that was there before, and a cluster with nodes of its own is not visited at all.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use muster_api::wire::{Node, Pod};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::carrier::Carrier;
use super::model::{OF_MANAGERS, ObjectName, Scenario};
use super::objects::{Made, Objects, is_not_found, said};
use super::pattern::Glob;

/// How long new kinds may take to be served.
const SERVED_WITHIN: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A controller manager that has not renewed its lease for so long is not there.
const SILENT_SECONDS: i64 = 60;
/// The most nodes that are named in a refusal.
const NAMED_MAX: usize = 5;

/// Every version of Kubernetes' own API for groups.
const NATIVE: [&str; 4] = [
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2",
    "scheduling.k8s.io/v1alpha1",
];

/// Why a scenario cannot be played on this cluster, if it serves other kinds than the scenario is about. A cluster that
/// does not answer is not judged here.
pub(super) async fn unfit(config: &kube::Config, scenario: &Scenario, carrier: Carrier) -> Option<String> {
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
        return Some(format!("a story of a stock cluster, and this one serves {version}"));
    }
    if let Some(needed) = carrier.native().filter(|needed| !served.contains(needed)) {
        return Some(format!("this cluster does not serve {needed}"));
    }
    let is_here = config.cluster_url.host().is_some_and(|host| matches!(host, "127.0.0.1" | "localhost"));
    if carrier.native().is_some() && scenario.needs_managers() && !is_here {
        return Some("references to native groups are given by the webhook, which this cluster cannot call".to_owned());
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

/// What was brought to a cluster.
pub(super) struct Visit {
    pub(super) namespace: String,
    /// Whether the cluster looks after nodes, budgets and replica sets itself.
    pub(super) has_controllers: bool,
    /// Nodes that were made.
    pub(super) nodes: Vec<String>,
    /// Objects that were made.
    pub(super) made: Vec<Made>,
}

impl Visit {
    /// Looks whether the cluster can be used, installs the kinds that are defined here and makes a namespace.
    pub(super) async fn begin(objects: &mut Objects, definitions: &[&str]) -> Result<Self, String> {
        let client = objects.client();
        refuse_foreign_nodes(&client).await?;
        install_kinds(objects, definitions).await?;
        let namespace = make_namespace(&client).await?;
        Ok(Self { namespace, has_controllers: has_controllers(&client).await, nodes: Vec::new(), made: Vec::new() })
    }

    /// Removes what was made; tells what could not be removed. Kinds stay installed.
    pub(super) async fn end(self, objects: &mut Objects) -> Vec<String> {
        let client = objects.client();
        let mut left = Vec::new();
        let mut note = |what: Result<(), String>| left.extend(what.err());
        for made in self.made.iter().rev().filter(|made| made.namespace != self.namespace) {
            note(objects.delete(made, true).await);
        }
        let pods: Api<Pod> = Api::namespaced(client.clone(), &self.namespace);
        let at_once = DeleteParams::default().grace_period(0);
        let deleted = pods.delete_collection(&at_once, &ListParams::default()).await;
        note(deleted.map(drop).map_err(|error| format!("delete pods of {}: {}", self.namespace, said(&error))));
        let namespaces: Api<Namespace> = Api::all(client.clone());
        note(gone(namespaces.delete(&self.namespace, &DeleteParams::default()).await, &self.namespace));
        let nodes: Api<Node> = Api::all(client.clone());
        let leases: Api<Lease> = Api::namespaced(client, "kube-node-lease");
        for name in &self.nodes {
            note(gone(nodes.delete(name, &DeleteParams::default()).await, name));
            note(gone(leases.delete(name, &DeleteParams::default()).await, name));
        }
        left
    }
}

fn gone<T>(answer: Result<T, kube::Error>, name: &str) -> Result<(), String> {
    match answer {
        Err(error) if !is_not_found(&error) => Err(format!("delete {name}: {}", said(&error))),
        _ => Ok(()),
    }
}

async fn refuse_foreign_nodes(client: &Client) -> Result<(), String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.map_err(|error| format!("list nodes: {}", said(&error)))?;
    if nodes.items.is_empty() {
        return Ok(());
    }
    let names: Vec<_> = nodes.items.iter().take(NAMED_MAX).map(ResourceExt::name_any).collect();
    Err(format!(
        "the cluster has {} nodes of its own ({}{}): scenarios count on knowing every node, and make their own with \
         simulated kubelets; use a control plane without nodes",
        nodes.items.len(),
        names.join(", "),
        if nodes.items.len() > NAMED_MAX { ", ..." } else { "" },
    ))
}

/// A namespace for one scenario, with the account that pods need.
async fn make_namespace(client: &Client) -> Result<String, String> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"generateName": "scenario-"}}));
    let namespace: Namespace = namespace.map_err(|error| error.to_string())?;
    let made = namespaces.create(&PostParams::default(), &namespace).await;
    let name = made.map_err(|error| format!("create a namespace: {}", said(&error)))?.name_any();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &name);
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}}));
    let account: ServiceAccount = account.map_err(|error| error.to_string())?;
    match accounts.create(&PostParams::default(), &account).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        Err(error) => return Err(format!("create the account of namespace {name}: {}", said(&error))),
        Ok(_) => {}
    }
    Ok(name)
}

/// Whether a controller manager is at work.
async fn has_controllers(client: &Client) -> bool {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-system");
    let Ok(Some(lease)) = leases.get_opt("kube-controller-manager").await else { return false };
    let renewed = lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0);
    renewed.is_some_and(|time| Timestamp::now().duration_since(time).as_secs() < SILENT_SECONDS)
}

/// Installs kinds by their definitions, and waits until they are served. A definition that is there is left alone.
pub(super) async fn install_kinds(objects: &mut Objects, definitions: &[&str]) -> Result<(), String> {
    for text in definitions {
        let definition: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
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
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
    Ok(())
}
