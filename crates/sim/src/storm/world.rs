//! The simulated cluster: the server, nodes that join, leave and fail, their controllers, Muster, and time.
//!
//! Everything runs on one thread in paused time with one source of randomness. Must not depend on the rules that are
//! checked.

use std::time::Duration;

use http::Method;
use muster_playground::components::{
    KubeletSettings, Kubelets, NodeLifecycle, NodeLifecycleSettings, NodeShape, Pool, Replicas, Shape, StorageDrivers,
    VolumeSettings, Volumes,
};
use muster_playground::random::Random;
use muster_playground::{Server, Settings};
use muster_runtime::Clock;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::RunError;
use super::faults::RunProfile;
use super::ledger::{Ledger, Shared};
use super::other_scheduler;
use super::processes::Processes;
use super::recorder::{Actor, Recorder};
use super::server_state::ServerState;
use super::users::Users;
use super::volumes;

/// The start date.
const START: &str = "2030-01-01T00:00:00Z";
const NODES: &str = "/api/v1/nodes";
const PODS: &str = "/api/v1/namespaces/default/pods";
/// Interval of heartbeats where nodes do not fail, so that idle time costs nothing.
const QUIET: Duration = Duration::from_secs(30 * 24 * 3600);
/// The maximum duration of a partition.
const CUT_OFF_SECONDS_MAX: u64 = 40;

/// The simulated cluster.
pub(super) struct World {
    pub(super) ledger: Shared<Ledger>,
    pub(super) profile: RunProfile,
    server: Server,
    admin: Recorder,
    users: Users,
    processes: Processes,
    random: Random,
    kubelets: Vec<(String, Kubelets)>,
    dead: Vec<String>,
    nodes_created: u64,
    other_scheduler: Option<JoinHandle<()>>,
    _controllers: (NodeLifecycle, Replicas),
    _storage: Option<(Volumes, StorageDrivers)>,
}

impl World {
    pub(super) async fn new(seed: u64, trace: bool) -> Result<Self, RunError> {
        let mut random = Random::new(seed);
        let profile = RunProfile::of(&mut random);
        let start = START.parse().expect("a date");
        let server = Server::start(Settings {
            seed: random.draw(),
            start: Some(start),
            window: profile.window,
            controllers_delay: profile.controllers_delay,
            ..Settings::default()
        });
        install(&server).await?;
        let mut ledger = Ledger::new(ServerState::of(&server).await?, trace);
        ledger.note(&format!("seed {seed}: {profile:?}"));
        let ledger = Shared::new(ledger);
        let recorder = |actor| Recorder { server: server.clone(), actor, ledger: ledger.clone() };
        let patience = if profile.nodes_fail { Duration::from_secs(60) } else { QUIET * 12 };
        let controllers = recorder(Actor::Controllers).client();
        let storage = profile.volumes.then(|| {
            let volumes = Volumes::start(controllers.clone(), VolumeSettings::default(), server.clock());
            (volumes, StorageDrivers::start(controllers.clone(), server.clock()))
        });
        let users = Users::new(recorder(Actor::Users), Random::new(random.draw()), &profile);
        let other_random = Random::new(random.draw());
        let other_scheduler = profile
            .other_scheduler
            .then(|| tokio::spawn(other_scheduler::compete(recorder(Actor::OtherScheduler), other_random)));
        let mut world = Self {
            processes: Processes::new(
                recorder(Actor::Muster(0)),
                Clock::starting_at(server.now()),
                profile.plan,
                profile.pair,
            ),
            admin: recorder(Actor::Users),
            users,
            random,
            kubelets: Vec::new(),
            dead: Vec::new(),
            nodes_created: 0,
            other_scheduler,
            _controllers: (
                NodeLifecycle::start(controllers.clone(), NodeLifecycleSettings { grace: patience }, server.clock()),
                Replicas::start(controllers, server.clock()),
            ),
            _storage: storage,
            ledger,
            profile,
            server,
        };
        for _ in 0..profile.nodes {
            let cpu = 2 + world.random.below(7);
            world.add_node(cpu)?;
        }
        Ok(world)
    }

    /// The fault phase: users act and faults are injected.
    pub(super) async fn run_fault_phase(&mut self) -> Result<(), RunError> {
        self.processes.start_all(&mut self.random);
        for _ in 0..self.profile.actions {
            let pause_ms = match self.random.below(10) {
                0..=3 => 0,
                4..=7 => self.random.below(1_500),
                8 => self.random.below(10_000),
                _ => self.random.below(60_000),
            };
            if pause_ms > 0 {
                self.pass(Duration::from_millis(pause_ms)).await;
            }
            match self.random.below(100) {
                0..=69 => self.users.act_randomly().await?,
                70..=79 => self.disrupt_muster().await,
                80..=82 => self.compact(),
                _ => self.disrupt_nodes().await?,
            }
        }
        Ok(())
    }

    /// Lets time pass and restarts processes that have ended.
    pub(super) async fn pass(&mut self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let part = left.min(Duration::from_secs(5));
            tokio::time::sleep(part).await;
            left -= part;
            self.processes.check();
            self.processes.start_all(&mut self.random);
        }
    }

    /// Starts the quiet phase: no faults, no other scheduler, no user actions.
    pub(super) async fn end_faults(&mut self) {
        self.ledger.borrow().note("faults end");
        self.processes.end_faults();
        self.processes.start_all(&mut self.random);
        if let Some(other_scheduler) = self.other_scheduler.take() {
            other_scheduler.abort();
        }
        if self.random.per_mille(500) {
            for node in std::mem::take(&mut self.dead) {
                self.revive(&node).await;
            }
        }
    }

    /// Adds enough nodes for all pods.
    pub(super) fn add_ample_capacity(&mut self) -> Result<(), RunError> {
        self.ledger.borrow().note("ample capacity");
        for _ in 0..4 {
            self.add_node(200)?;
        }
        Ok(())
    }

    async fn disrupt_muster(&mut self) {
        let slot = self.random.below(2);
        match self.random.below(4) {
            0..=1 => self.processes.crash(slot).await,
            2 => self.processes.stop(slot).await,
            _ => {
                let seconds = 1 + self.random.below(CUT_OFF_SECONDS_MAX);
                self.ledger.borrow().note(&format!("slot {slot} is cut off for {seconds} s"));
                self.processes.cut_off(slot, true);
                tokio::time::sleep(Duration::from_secs(seconds)).await;
                self.processes.cut_off(slot, false);
            }
        }
        if self.random.per_mille(300) {
            tokio::time::sleep(Duration::from_millis(self.random.below(20_000))).await;
        }
        self.processes.start_all(&mut self.random);
    }

    fn compact(&self) {
        let mut ledger = self.ledger.borrow();
        ledger.catch_up();
        ledger.note("the server compacts its history");
        self.server.compact();
    }

    async fn disrupt_nodes(&mut self) -> Result<(), RunError> {
        let names: Vec<String> = self.ledger.borrow().state.nodes.keys().cloned().collect();
        if names.is_empty() || self.random.per_mille(150) {
            let cpu = 2 + self.random.below(7);
            return self.add_node(cpu);
        }
        let node = names[self.random.below(names.len() as u64) as usize].clone();
        match self.random.below(if self.profile.nodes_fail { 8 } else { 4 }) {
            0..=1 => self.cordon(&node, true).await,
            2..=3 => self.cordon(&node, false).await,
            4..=5 => self.kill(&node).await,
            6 => {
                let dead = self.dead.pop();
                if let Some(node) = dead {
                    self.revive(&node).await;
                }
                Ok(())
            }
            _ => self.remove_node(&node).await,
        }
    }

    fn add_node(&mut self, cpu: u64) -> Result<(), RunError> {
        self.nodes_created += 1;
        let name = format!("n{}", self.nodes_created);
        let gpu = if self.random.per_mille(400) { 2 } else { 0 };
        let pods = if cpu < 100 && self.random.per_mille(150) { 3 } else { 110 };
        let pool = if self.random.per_mille(500) { "a" } else { "b" };
        let shape = shape(
            &name,
            &json!({"cpu": cpu.to_string(), "pods": pods.to_string(),
            "nvidia.com/gpu": gpu.to_string()}),
            pool,
        )?;
        let every = |seconds| if self.profile.nodes_fail { Duration::from_secs(seconds) } else { QUIET };
        let settings = KubeletSettings {
            renew_every: every(20),
            heartbeat_every: every(300),
            requests_max: 64,
            ..KubeletSettings::default()
        };
        let client = Recorder { actor: Actor::Kubelets, ..self.admin.clone() }.client();
        self.ledger.borrow().note(&format!("node {name} joins: cpu {cpu}, gpu {gpu}, pods {pods}, pool {pool}"));
        let kubelets = Kubelets::start_nodes(client, vec![shape], settings, self.server.clock());
        self.kubelets.push((name, kubelets));
        Ok(())
    }

    async fn cordon(&self, node: &str, cordoned: bool) -> Result<(), RunError> {
        let body = json!({"spec": {"unschedulable": cordoned}});
        self.admin.send(Method::PATCH, &format!("{NODES}/{node}"), Some(&body)).await.map(drop)
    }

    async fn kill(&mut self, node: &str) -> Result<(), RunError> {
        self.ledger.borrow().note(&format!("kubelet of {node} fails"));
        for (_, kubelets) in self.kubelets.iter().filter(|(name, _)| name == node) {
            kubelets.kill(node).await?;
            self.dead.push(node.to_owned());
        }
        Ok(())
    }

    async fn revive(&self, node: &str) {
        self.ledger.borrow().note(&format!("kubelet of {node} recovers"));
        for (_, kubelets) in self.kubelets.iter().filter(|(name, _)| name == node) {
            kubelets.revive(node).await.ok();
        }
    }

    /// Deletes a node and then its pods, as the pod garbage collector does.
    async fn remove_node(&mut self, node: &str) -> Result<(), RunError> {
        self.kubelets.retain(|(name, _)| name != node);
        self.dead.retain(|name| name != node);
        self.admin.send(Method::DELETE, &format!("{NODES}/{node}"), Some(&json!({}))).await?;
        let on_it = |ledger: &Ledger| {
            let pods = ledger.state.pods.values().filter(|pod| pod.node == node);
            pods.map(|pod| pod.name.clone()).collect::<Vec<_>>()
        };
        // Binds in flight still arrive.
        for _ in 0..2 {
            let pods = on_it(&self.ledger.borrow());
            for pod in pods {
                let now = json!({"gracePeriodSeconds": 0});
                self.admin.send(Method::DELETE, &format!("{PODS}/{pod}"), Some(&now)).await?;
            }
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        Ok(())
    }

    /// Deletes pods on nodes that no longer exist.
    pub(super) async fn collect_orphans(&mut self) -> Result<(), RunError> {
        let orphans: Vec<String> = {
            let mut ledger = self.ledger.borrow();
            ledger.catch_up();
            let ServerState { pods, nodes, .. } = &ledger.state;
            let orphans = pods.values().filter(|pod| !pod.node.is_empty() && !nodes.contains_key(&pod.node));
            orphans.map(|pod| pod.name.clone()).collect()
        };
        for pod in orphans {
            let now = json!({"gracePeriodSeconds": 0});
            self.admin.send(Method::DELETE, &format!("{PODS}/{pod}"), Some(&now)).await?;
        }
        Ok(())
    }

    pub(super) fn revision(&self) -> u64 {
        self.server.revision()
    }
}

/// Installs Muster's CRDs and a priority class.
async fn install(server: &Server) -> Result<(), RunError> {
    for text in [muster_api::crds::WORKLOADS, muster_api::crds::PODGROUPS] {
        let definition: Value = serde_saphyr::from_str(text).expect("a CRD of this repository");
        post(server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await?;
    }
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"},
        "value": 1000});
    post(server, "/apis/scheduling.k8s.io/v1/priorityclasses", &class).await?;
    for class in volumes::classes() {
        post(server, volumes::CLASSES, &class).await?;
    }
    // CRDs are served with a short delay.
    tokio::time::sleep(Duration::from_secs(10)).await;
    Ok(())
}

async fn post(server: &Server, path: &str, body: &Value) -> Result<(), RunError> {
    let request = http::Request::post(path).header(http::header::CONTENT_TYPE, "application/json");
    let request = request.body(kube::client::Body::from(body.to_string().into_bytes()))?;
    let status = server.answer(request).await.status();
    if status.is_success() { Ok(()) } else { Err(RunError::Setup { path: path.to_owned(), status }) }
}

fn shape(name: &str, capacity: &Value, pool: &str) -> Result<NodeShape, RunError> {
    let pool = Pool {
        name: "node".to_owned(),
        count: 1,
        capacity: serde_json::from_value(capacity.clone()).expect("quantities"),
        allocatable: None,
        labels: [("pool".to_owned(), pool.to_owned())].into(),
        taints: Vec::new(),
        domains: Vec::new(),
        drivers: Vec::new(),
        capacities: Vec::new(),
    };
    let mut node = Shape { pools: vec![pool] }.nodes()?.pop().expect("a pool of one has one node");
    node.labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    name.clone_into(&mut node.name);
    Ok(node)
}
