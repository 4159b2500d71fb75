//! The environment of a scenario: an API server, nodes with simulated kubelets, and Muster.
//!
//! In the process, all of it is started here and time is virtual. On a real cluster only the nodes and Muster are
//! started; the scenario's `default` is a namespace of its own, and everything that was created is removed at the end.
//! Must not depend on what steps mean or what is expected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ListParams};
use kube::client::ClientBuilder;
use kube::discovery::Scope;
use kube::{Client, ResourceExt};
use muster_api::owners::{GangedOwners, ProviderName};
use muster_api::wire::{Node, Pod};
use muster_controllers::admission::WEBHOOK_RULES;
use muster_controllers::{NotServed, PriorityClasses, WatchAges};
use muster_playground::components::{
    Budgets, Deployments, JobSets, Jobs, KubeletSettings, Kubelets, LeaderWorkerSets, NodeLifecycle,
    NodeLifecycleSettings, NodeShape, Replicas, StatefulSets, StorageDrivers, VolumeSettings, Volumes, jobset,
};
use muster_playground::faults::Faults;
use muster_playground::{Admission, NativeGroups, Server};
use muster_runtime::{Clock, Fence, Scheduler, Settings};
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::autoscaler::Autoscaler;
use super::carrier::{Carrier, ScenarioCarrier};
use super::cluster::{self, ClusterSession};
use super::manifest;
use super::model::{End, ObjectName, Restart, Scenario};
use super::nodes;
use super::objects::{CreatedObject, Objects};
use super::pattern::Pods;
use super::snapshot::{PodKey, key_of};
use super::step_error::StepError;
use super::webhook_server::WebhookServer;

/// The start date in the process.
const START: &str = "2030-01-01T00:00:00Z";
/// The name of its namespace inside a scenario.
const DEFAULT: &str = "default";
/// Heartbeat intervals in the process: nodes do not fail there, so that idle hours cost next to nothing.
const QUIET_KUBELETS: KubeletSettings = KubeletSettings {
    renew_every: Duration::from_secs(30 * 24 * 3600),
    heartbeat_every: Duration::from_secs(30 * 24 * 3600),
    requests_max: 64,
    speed: 1.0,
};
const PATIENCE: NodeLifecycleSettings = NodeLifecycleSettings { grace: Duration::from_secs(365 * 24 * 3600) };
/// How long new nodes may take to be ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Where scenarios run.
#[derive(Clone)]
#[allow(clippy::large_enum_variant)] // there is one
pub enum Place {
    /// On the playground, in virtual time.
    Process,
    /// On a cluster, in real time.
    Cluster(kube::Config),
}

/// The cluster controllers that scenarios depend on.
struct Controllers {
    _nodes: NodeLifecycle,
    _budgets: Budgets,
    _replicas: Replicas,
    _deployments: Deployments,
    owners: Option<Owners>,
    /// Only for scenarios with volumes.
    volumes: Option<Volumes>,
}

/// The controllers of owners that become gangs: only for scenarios that have such owners, since they install their
/// kinds.
struct Owners {
    _jobs: Jobs,
    _job_sets: JobSets,
    _stateful_sets: StatefulSets,
    _leader_worker_sets: LeaderWorkerSets,
}

impl Owners {
    async fn start(client: &Client, clock: Clock) -> Result<Self, StepError> {
        jobset::install(client).await?;
        Ok(Self {
            _jobs: Jobs::start(client.clone(), clock),
            _job_sets: JobSets::start(client.clone(), clock),
            _stateful_sets: StatefulSets::start(client.clone(), clock),
            _leader_worker_sets: LeaderWorkerSets::start(client.clone(), clock),
        })
    }
}

impl Controllers {
    fn start(client: &Client, nodes: NodeLifecycleSettings, clock: Clock) -> Self {
        Self {
            _nodes: NodeLifecycle::start(client.clone(), nodes, clock),
            _budgets: Budgets::start(client.clone(), clock),
            _replicas: Replicas::start(client.clone(), clock),
            _deployments: Deployments::start(client.clone(), clock),
            owners: None,
            volumes: None,
        }
    }

    fn start_volumes(&mut self, client: &Client, clock: Clock) {
        self.volumes = Some(Volumes::start(client.clone(), VolumeSettings::default(), clock));
    }
}

/// Everything that a scenario needs.
pub(super) struct World {
    pub(super) objects: Objects,
    pub(super) scenario_carrier: ScenarioCarrier,
    pub(super) faults: Faults,
    /// How often assertions are evaluated.
    pub(super) poll_every: Duration,
    /// Only in the process.
    server: Option<Server>,
    revisions: Option<watch::Receiver<u64>>,
    /// Only on a cluster.
    session: Option<ClusterSession>,
    /// The real name of the namespace `default`.
    namespace: String,
    /// The client of Muster, with fault injection.
    client: Client,
    settings: Settings,
    /// Whether the scenario has objects that own pods.
    has_owners: bool,
    clock: Clock,
    scheduler: Option<Scheduler>,
    controllers: Option<muster_controllers::Controllers>,
    /// Only on a cluster, if references can only be set by the webhook, or the scenario asks for it.
    webhook_server: Option<WebhookServer>,
    kubelets: Vec<(Vec<String>, Kubelets)>,
    _controllers: Option<Controllers>,
    /// Only for scenarios with volumes: real control planes have no drivers either.
    storage: Option<StorageDrivers>,
    /// Pods that were ever seen, except those that the scenario deleted.
    seen: BTreeSet<PodKey>,
    /// Pods that the scenario deleted.
    deleted: BTreeSet<PodKey>,
    /// What an autoscaler would have seen.
    pub(super) autoscaler: Autoscaler,
}

impl World {
    /// An environment in the process, with only Muster's kinds installed.
    pub(super) async fn in_process(scenario: &Scenario, scenario_carrier: ScenarioCarrier) -> Result<Self, StepError> {
        let start = START.parse().expect("a date");
        let server = Server::start(muster_playground::Settings {
            start: Some(start),
            native_groups: if scenario.config.stock { NativeGroups::Stock } else { scenario_carrier.server() },
            gates: scenario.config.kubernetes_feature_gates.of_server(),
            ..muster_playground::Settings::default()
        });
        let faults = Faults::none();
        let client = server.client();
        let mut controllers = Controllers::start(&client, PATIENCE, server.clock());
        if scenario.has_owners() {
            controllers.owners = Some(Owners::start(&client, server.clock()).await?);
        }
        if scenario.has_volumes() {
            controllers.start_volumes(&client, server.clock());
        }
        let storage = scenario.has_volumes().then(|| StorageDrivers::start(client.clone(), server.clock()));
        let definitions = scenario_carrier.definitions(scenario);
        let carrier = scenario_carrier.carrier();
        let mut world = Self {
            objects: Objects::new(client),
            scenario_carrier,
            poll_every: Duration::from_millis(50),
            namespace: DEFAULT.to_owned(),
            client: server.client_with(&faults),
            faults,
            settings: settings(&scenario.config.settings, scenario.has_owners(), carrier),
            has_owners: scenario.has_owners(),
            clock: server.clock(),
            revisions: Some(server.revisions()),
            server: Some(server),
            session: None,
            scheduler: None,
            controllers: None,
            webhook_server: None,
            kubelets: Vec::new(),
            _controllers: Some(controllers),
            storage,
            seen: BTreeSet::new(),
            deleted: BTreeSet::new(),
            autoscaler: Autoscaler::default(),
        };
        cluster::install_kinds(&mut world.objects, &definitions).await?;
        if let Some(server) = world.server.as_ref().filter(|_| scenario.config.webhook.unwrap_or(scenario.has_owners()))
        {
            let classes = PriorityClasses::watch(&server.client(), &WatchAges::default());
            classes.synced().await;
            server.set_webhook(Some(webhook(controllers_settings(&world.settings, carrier)?, classes)));
        }
        Ok(world)
    }

    /// An environment on a cluster: a new namespace. What was created is removed if this fails.
    pub(super) async fn on_cluster(
        scenario: &Scenario,
        scenario_carrier: ScenarioCarrier,
        config: kube::Config,
    ) -> Result<Self, StepError> {
        let faults = Faults::none();
        let client = ClientBuilder::try_from(config.clone())?.build();
        // As in production: Muster retries failed requests, not the client.
        let mut own = config;
        own.default_retry = false;
        let muster = ClientBuilder::try_from(own)?.with_layer(&faults.layer()).build();
        let mut objects = Objects::new(client.clone());
        let session = ClusterSession::begin(&mut objects, &scenario_carrier.definitions(scenario)).await?;
        let clock = Clock::real();
        let carrier = scenario_carrier.carrier();
        let mut controllers =
            (!session.has_controllers).then(|| Controllers::start(&client, NodeLifecycleSettings::default(), clock));
        if let Some(controllers) = controllers.as_mut().filter(|_| scenario.has_volumes()) {
            controllers.start_volumes(&client, clock);
        }
        let storage = scenario.has_volumes().then(|| StorageDrivers::start(client.clone(), clock));
        let mut world = Self {
            objects,
            scenario_carrier,
            faults,
            poll_every: Duration::from_millis(200),
            server: None,
            revisions: None,
            namespace: session.namespace.clone(),
            session: Some(session),
            client: muster,
            settings: settings(&scenario.config.settings, scenario.has_owners(), carrier),
            has_owners: scenario.has_owners(),
            clock,
            scheduler: None,
            controllers: None,
            webhook_server: None,
            kubelets: Vec::new(),
            _controllers: controllers,
            storage,
            seen: BTreeSet::new(),
            deleted: BTreeSet::new(),
            autoscaler: Autoscaler::default(),
        };
        // Otherwise the controllers replace it.
        let needs_webhook = carrier.native_version().is_some() && scenario.has_owners();
        if scenario.config.webhook.unwrap_or(needs_webhook) {
            world.webhook_server =
                match WebhookServer::start(&client, controllers_settings(&world.settings, carrier)?, &world.namespace)
                    .await
                {
                    Ok(webhook_server) => Some(webhook_server),
                    Err(why) => {
                        world.end().await;
                        return Err(why);
                    }
                };
        }
        Ok(world)
    }

    /// The real name of the scenario's namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The real name of a namespace of the scenario.
    pub(super) fn real_namespace<'a>(&'a self, written: &'a str) -> &'a str {
        if written == DEFAULT { &self.namespace } else { written }
    }

    /// The pods with their real namespace.
    pub(super) fn resolve_pods(&self, written: &Pods) -> Pods {
        Pods { namespace: self.real_namespace(&written.namespace).to_owned(), name: written.name.clone() }
    }

    /// The object with its real namespace.
    pub(super) fn resolve(&self, written: &ObjectName) -> ObjectName {
        ObjectName { namespace: self.real_namespace(&written.namespace).to_owned(), ..written.clone() }
    }

    /// Waits until the next evaluation. Where the server reports changes, idle time is skipped.
    pub(super) async fn wait(&mut self, until: Instant) {
        if let Some(revisions) = &mut self.revisions {
            tokio::time::timeout_at(until, revisions.changed()).await.ok();
        }
        tokio::time::sleep_until(until.min(Instant::now() + self.poll_every)).await;
    }

    /// The current time.
    pub(super) fn now(&self) -> jiff::Timestamp {
        self.clock.now()
    }

    /// Starts Muster.
    pub(super) fn start_scheduler(&mut self) -> Result<(), StepError> {
        let started = Scheduler::start(&self.client, &self.settings, self.clock, Fence::open());
        self.scheduler = Some(started?);
        if self.settings.ganged == GangedOwners::default() {
            return Ok(());
        }
        let settings = controllers_settings(&self.settings, self.scenario_carrier.carrier())?;
        let clock = self.clock;
        let always = Arc::new(Some);
        let controllers = muster_controllers::Controllers::start(
            &self.client,
            settings,
            &WatchAges::default(),
            move || clock.now(),
            always,
        );
        self.controllers = Some(controllers);
        Ok(())
    }

    /// Restarts Muster.
    pub(super) async fn restart(&mut self, restart: &Restart) -> Result<(), StepError> {
        self.controllers = None;
        match (self.scheduler.take(), restart.end) {
            (Some(scheduler), End::Crash) => scheduler.kill(),
            (Some(scheduler), End::Gracefully) => scheduler.stop().await,
            (None, _) => {}
        }
        if let Some(changed) = &restart.settings {
            self.settings = settings(changed, self.has_owners, self.scenario_carrier.carrier());
        }
        self.start_scheduler()
    }

    /// Starts kubelets for these nodes and waits until they are ready.
    pub(super) async fn add_nodes(&mut self, shapes: Vec<NodeShape>) -> Result<(), StepError> {
        if shapes.is_empty() {
            return Ok(());
        }
        for shape in &shapes {
            if self.kubelet_of(&shape.name).is_some() {
                let why = format!("node {}: a node of this name already exists", shape.name);
                return Err(StepError::Precondition(why));
            }
        }
        let settings = if self.server.is_some() { QUIET_KUBELETS } else { KubeletSettings::default() };
        let wanted: BTreeMap<String, bool> = shapes
            .iter()
            .map(|shape| (shape.name.clone(), shape.taints.iter().any(|taint| taint.key == NOT_READY)))
            .collect();
        if let Some(session) = &mut self.session {
            session.nodes.extend(wanted.keys().cloned());
        }
        let kubelets = Kubelets::start_nodes(self.objects.client(), shapes, settings, self.clock);
        self.kubelets.push((wanted.keys().cloned().collect(), kubelets));
        let api: Api<Node> = Api::all(self.objects.client());
        let until = Instant::now() + READY_WITHIN;
        loop {
            let nodes = api.list(&ListParams::default()).await?.items;
            let is_ready = |node: &Node| {
                let taints = &node.spec.taints;
                wanted
                    .get(&node.name_any())
                    .is_some_and(|may_be_tainted| *may_be_tainted || !taints.iter().any(|taint| taint.key == NOT_READY))
                    && node.status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True")
            };
            let ready = nodes.iter().filter(|node| is_ready(node)).count();
            if ready == wanted.len() {
                return Ok(());
            }
            if Instant::now() >= until {
                let why = format!("{ready} of {} new nodes are ready after {READY_WITHIN:?}", wanted.len());
                return Err(StepError::TimedOut(why));
            }
            self.list_pods().await.ok();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn kubelet_of(&self, node: &str) -> Option<&Kubelets> {
        self.kubelets.iter().find(|(names, _)| names.iter().any(|name| name == node)).map(|(_, kubelets)| kubelets)
    }

    /// Stops a node's kubelet.
    pub(super) async fn remove_kubelet(&mut self, node: &str) {
        if let Some(kubelets) = self.kubelet_of(node) {
            kubelets.kill(node).await.ok();
        }
        for (names, _) in &mut self.kubelets {
            names.retain(|name| name != node);
        }
    }

    /// Records an object that the scenario created.
    pub(super) fn record_created(&mut self, created: CreatedObject) {
        if created.api_version == "v1" && created.kind == "Pod" {
            self.seen.insert((created.namespace.clone(), created.name.clone(), created.uid.clone()));
        }
        if let Some(session) = &mut self.session {
            session.created.push(created);
        }
    }

    /// Lists all pods; the autoscaler model observes them too.
    pub(super) async fn list_pods(&mut self) -> Result<Vec<Pod>, StepError> {
        let api: Api<Pod> = Api::all(self.objects.client());
        let listed = api.list(&ListParams::default()).await;
        let pods = listed.map_err(|error| StepError::request("list pods", error))?.items;
        let own: Vec<&Pod> = self.own_pods(&pods).collect();
        self.autoscaler.observe(Instant::now(), own.into_iter());
        Ok(pods)
    }

    /// The pods of the scenario: pods of an earlier one may still be terminating on a cluster.
    pub(super) fn own_pods<'a>(&self, pods: &'a [Pod]) -> impl Iterator<Item = &'a Pod> {
        let created =
            self.session.iter().flat_map(|session| &session.created).filter(|created| created.kind == "Namespace");
        let mut namespaces: BTreeSet<String> = created.map(|created| created.name.clone()).collect();
        namespaces.insert(self.namespace.clone());
        let has_company = self.session.is_some();
        pods.iter().filter(move |pod| !has_company || namespaces.contains(&pod.namespace().unwrap_or_default()))
    }

    /// Records that these pods exist.
    pub(super) fn record_pods(&mut self, pods: &[Pod]) {
        for key in pods.iter().map(key_of) {
            if !self.deleted.contains(&key) {
                self.seen.insert(key);
            }
        }
    }

    /// Pods that the scenario itself deletes are not expected to stay.
    pub(super) fn mark_deleted(&mut self, pod: PodKey) {
        self.seen.remove(&pod);
        self.deleted.insert(pod);
    }

    /// Pods with these names that ever existed, without those that the scenario deleted itself; and whether it deleted
    /// any.
    pub(super) fn ever_seen(&self, pattern: &Pods) -> (Vec<&PodKey>, bool) {
        let is_match = |key: &&PodKey| key.0 == pattern.namespace && pattern.name.matches(&key.1);
        let kept: Vec<&PodKey> = self.seen.iter().filter(is_match).collect();
        let any = !kept.is_empty() || self.deleted.iter().any(|key| is_match(&key));
        (kept, any)
    }

    /// Stops Muster and, on a cluster, removes everything that was created. Returns what could not be removed.
    pub(super) async fn end(mut self) -> Vec<String> {
        self.controllers = None;
        if let Some(scheduler) = self.scheduler.take() {
            scheduler.kill();
        }
        let Some(session) = self.session.take() else { return Vec::new() };
        let has_volumes = self.storage.is_some();
        let mut left = session.end(&mut self.objects, has_volumes).await;
        if let Some(webhook_server) = &self.webhook_server {
            left.extend(webhook_server.end().await.err().map(|error| error.to_string()));
        }
        left
    }

    /// Adds the initial nodes of the scenario.
    pub(super) async fn add_first_nodes(&mut self, scenario: &Scenario) -> Result<(), StepError> {
        self.add_nodes(nodes::shapes(&scenario.nodes)?).await
    }

    /// Completes a manifest. `default`, or no namespace, means the scenario's namespace.
    pub(super) async fn complete_manifest(&mut self, document: &mut Value) -> Result<(), StepError> {
        let text = |field: &str| document[field].as_str().unwrap_or_default().to_owned();
        let (_, scope) = self.objects.api(&text("apiVersion"), &text("kind"), DEFAULT).await?;
        if scope == Scope::Namespaced {
            let metadata = &mut document["metadata"];
            let written = metadata["namespace"].as_str().unwrap_or(DEFAULT).to_owned();
            metadata["namespace"] = self.real_namespace(&written).into();
        }
        let scheduler_name = self.settings.name();
        Ok(manifest::complete(document, scheduler_name)?)
    }
}

/// The settings of controllers and webhook that follow from the scheduler's settings.
pub(crate) fn controllers_settings(
    settings: &Settings,
    carrier: Carrier,
) -> Result<muster_controllers::Settings, NotServed> {
    let names = settings.scheduler_names().map(str::to_owned).collect();
    let native = carrier.native_version();
    muster_controllers::Settings::new(names, settings.identity.clone(), settings.ganged, native)
}

/// Muster's webhook, called without HTTP.
pub(crate) fn webhook(settings: muster_controllers::Settings, classes: PriorityClasses) -> Admission {
    let admission = muster_controllers::admission::Admission::new(settings, classes);
    Admission::new("muster.dev", move |review| admission.review(&review)).about_all(&WEBHOOK_RULES)
}

fn settings(written: &Settings, has_owners: bool, carrier: Carrier) -> Settings {
    let mut settings = Settings { check_invariants: true, ..written.clone() };
    let ganged = &mut settings.ganged;
    if !has_owners {
        // No owners to manage: their kinds need not be watched.
        *ganged = GangedOwners::default();
    }
    if carrier.native_version().is_some() {
        ganged.job_sets = ganged.job_sets.map(|_| muster_api::owners::GroupApi::Native);
        ganged.leader_worker_sets = ganged.leader_worker_sets.map(|_| ProviderName::Native);
    }
    settings
}
