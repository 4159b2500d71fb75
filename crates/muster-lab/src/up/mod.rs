//! `muster-lab up`: a whole cluster in this process.
//!
//! The API server, simulated nodes and controllers share one runtime; the scheduler has its own thread, as in
//! production. All of them communicate through the API. Order of the start: the server is up, CRDs are installed, nodes
//! are ready, the scheduler runs, the demo starts. The shutdown is in reverse order.

mod cluster_log;
mod demo;
mod kubeconfig;
mod log_printer;
mod objects;
mod options;
mod progress;
mod throttle;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use futures::FutureExt as _;
use kube::api::{Api, DeleteParams, ListParams};
use muster_api::crds::dialects;
use muster_api::wire::Node;
use muster_playground::components::{Cluster, KubeletSettings, Shape, storage_drivers};
use muster_playground::{Limits, Server, Settings, kubectl};
use muster_runtime::config::{Configuration, File, LogFormat, LogLevel, Overrides};
use muster_runtime::{Clock, Fence, Health, Instruments, ListenerThread, Metrics};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

pub(crate) use options::Options;

use self::demo::Demo;
use self::kubeconfig::Kubeconfig;
use self::log_printer::From;
use self::options::Plan;
use self::progress::Progress;
use muster::scheduler_thread::Thread;
use muster::signals::Signals;

/// How long nodes may take to be ready.
const NODES_READY_MAX: Duration = Duration::from_secs(120);
/// How long the shutdown may take.
const STOP_MAX: Duration = Duration::from_secs(10);

/// Runs until a signal arrives.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let plan = options.plan()?;
    muster::logs::start(LogLevel::Warn, LogFormat::Text)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let outcome = runtime.block_on(work(&plan));
    // Requests in flight can be dropped: all that matters has been answered.
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome
}

async fn work(plan: &Plan) -> anyhow::Result<()> {
    let began = Instant::now();
    let mut signals = Signals::new()?;
    let mut up = tokio::select! {
        up = Up::start(plan) => up?,
        name = signals.next() => {
            eprintln!("{name}: stopped before it has started");
            return Ok(());
        }
    };
    up.print_introduction(plan);
    let ended = tokio::select! {
        ended = up.show(began) => ended,
        name = signals.next() => {
            eprintln!("\n{name}: stopping (again: at once)");
            Ok(())
        }
    };
    tokio::select! {
        stopped = up.stop() => ended.and(stopped),
        _ = signals.next() => bail!("stopped at once"),
    }
}

/// The class of claims that name none: its volumes are made at once, and can be used everywhere.
fn default_storage_class() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass",
        "metadata": {
            "name": "standard", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": storage_drivers::FAKE_PROVISIONER, "allowVolumeExpansion": true,
    })
}

/// The components of a running cluster.
struct Up {
    server: Server,
    address: SocketAddr,
    /// Serves the scheduler's metrics until it is dropped.
    metrics: ListenerThread,
    kubeconfig: Kubeconfig,
    /// The demo of this cluster.
    demo: Option<Demo>,
    /// Whether the cluster was just created.
    is_new: bool,
    cluster: Cluster,
    scheduler: Thread,
    stop: oneshot::Sender<()>,
    serving: tokio::task::JoinHandle<()>,
}

impl Up {
    async fn start(plan: &Plan) -> anyhow::Result<Self> {
        let mut progress = Progress::new();
        progress.say("API server");
        let listener = listen(plan.address).await?;
        let address = listener.local_addr()?;
        let server = match &plan.state {
            Some(folder) => Server::open(Settings::default(), folder).map_err(|error| anyhow!("--state: {error}"))?,
            None => Server::start(Settings::default()),
        };
        let server = server.with_presentation(kubectl());
        let (stop, stopped) = oneshot::channel::<()>();
        let serving = tokio::spawn({
            let server = server.clone();
            // A dropped sender means stop, too.
            async move { server.serve_until(listener, Limits::default(), stopped.map(drop)).await }
        });
        let kubeconfig = Kubeconfig::write(address, plan.kubeconfig.as_deref(), plan.state.as_deref())?;
        progress.say("CRDs of Muster");
        let is_new = install_kinds(&server.client()).await?;
        if is_new {
            objects::create(&server.client(), &default_storage_class()).await?;
        }
        if let Some(folder) = &plan.state {
            options::save_shape(folder, &plan.written)?;
            remove_other_nodes(&server, &plan.shape).await?;
        }
        let settings = KubeletSettings { speed: plan.speed, ..KubeletSettings::default() };
        let cluster = Cluster::start_with(&server.client(), &plan.shape, settings, server.clock())?;
        let nodes = plan.shape.nodes()?.len();
        progress.say(&format!("{nodes} nodes"));
        wait_for_nodes(&server, nodes, |ready| progress.count(&format!("nodes: {ready} of {nodes} are ready"))).await?;
        progress.say("scheduler");
        let (scheduler, metrics) = start_scheduler(&server).await?;
        let is_decided = demo::is_decided(&server).await?;
        let demo = plan.demo.filter(|_| plan.demo_is_wanted || !is_decided);
        Ok(Self { server, address, metrics, kubeconfig, demo, is_new, cluster, scheduler, stop, serving })
    }

    fn print_introduction(&self, plan: &Plan) {
        let kubeconfig = self.kubeconfig.path().display();
        println!("Muster {} is up: {}", env!("CARGO_PKG_VERSION"), describe(&plan.shape));
        println!("  API server   http://{}", self.address);
        println!("  kubectl      export KUBECONFIG={kubeconfig}");
        println!("  metrics      http://{}/metrics", self.metrics.address());
        match &plan.state {
            Some(folder) if self.is_new => println!("  state        {}, new", folder.display()),
            Some(folder) => {
                println!("  state        {}, continues at revision {}", folder.display(), self.server.revision());
            }
            None => println!("  state        in memory, gone at the end (--state FOLDER keeps it)"),
        }
        if !self.address.ip().is_loopback() {
            println!("  INSECURE     everyone who can reach {} has full access", self.address);
        }
        println!("Ctrl-C ends all of it.\n");
    }

    /// Prints events until something fails.
    async fn show(&mut self, began: Instant) -> anyhow::Result<()> {
        let demo = self.demo;
        match demo {
            Some(demo) => println!("{}\n", demo.introduction()),
            None if self.is_new => println!("The cluster is empty: kubectl apply -f examples/gang.yaml is a start.\n"),
            None => {}
        }
        let server = self.server.clone();
        let shown = async {
            if let Some(demo) = demo
                && let Err(error) = demo.start(&server).await
            {
                eprintln!("the demo is not complete: {error:#}");
            }
            demo::record_decided(&server).await?;
            std::future::pending::<anyhow::Result<()>>().await
        };
        let log = async {
            match demo {
                Some(Demo::Deadlock { nodes }) => {
                    demo::show(&server, nodes, began).await;
                    log_printer::print_log(server.client(), began, From::Now).await;
                }
                // Pods that were bound before this start are not printed.
                Some(Demo::Training { .. } | Demo::Topology { .. }) | None => {
                    let from = if self.is_new { From::TheStart } else { From::Now };
                    log_printer::print_log(server.client(), began, from).await;
                }
            }
        };
        tokio::select! {
            shown = shown => shown,
            () = log => Err(anyhow!("the watch on the cluster has ended")),
            ended = self.scheduler.ended() => ended.and(Err(anyhow!("the scheduler has ended unexpectedly"))),
            name = self.cluster.ended() => Err(anyhow!("{name} has ended unexpectedly, which is a bug in Muster's playground")),
            ended = &mut self.serving => Err(anyhow!("the API server has ended unexpectedly: {ended:?}")),
        }
    }

    async fn stop(self) -> anyhow::Result<()> {
        let stopped = timeout(STOP_MAX, self.scheduler.stop()).await;
        drop(self.cluster);
        // It may have ended already.
        let _ = self.stop.send(());
        if !self.serving.is_finished() {
            let served = timeout(STOP_MAX, self.serving).await;
            served.context("the API server did not stop in time")?.context("the API server")?;
        }
        stopped.context("the scheduler did not stop in time")?
    }
}

async fn listen(address: SocketAddr) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            anyhow!("--port {}: something listens there already; choose another, or 0 for a free one", address.port())
        }
        _ => anyhow!("cannot listen on {address}: {error}"),
    })
}

/// Installs the CRDs. Returns whether they, and so the cluster, are new.
async fn install_kinds(client: &kube::Client) -> anyhow::Result<bool> {
    let mut is_new = true;
    for text in [muster_api::crds::WORKLOADS, muster_api::crds::PODGROUPS] {
        let definition: Value = serde_saphyr::from_str(text)?;
        is_new &= objects::install(client, &definition).await?;
    }
    // A state folder of an earlier version may lack these; that does not make the cluster new.
    for text in [dialects::SCHEDULER_PLUGINS, dialects::VOLCANO] {
        let definition: Value = serde_saphyr::from_str(text)?;
        objects::install(client, &definition).await?;
    }
    Ok(is_new)
}

/// Removes nodes of an earlier start that the shape does not have: they have no kubelet.
async fn remove_other_nodes(server: &Server, shape: &Shape) -> anyhow::Result<()> {
    let wanted: BTreeSet<String> = shape.nodes()?.into_iter().map(|node| node.name).collect();
    let nodes = Api::<Node>::all(server.client());
    let found = nodes.list(&ListParams::default()).await?;
    let others: Vec<&str> = found.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    let others: Vec<&str> = others.into_iter().filter(|name| !wanted.contains(*name)).collect();
    if let (Some(first), Some(last)) = (others.first(), others.last()) {
        eprintln!(
            "{} of an earlier start are removed, with their pods: {first} to {last}",
            count(others.len() as u32, "node")
        );
    }
    for name in others {
        nodes.delete(name, &DeleteParams::default()).await.with_context(|| format!("removing node {name}"))?;
    }
    Ok(())
}

/// Waits until nodes are ready, and reports how many are.
async fn wait_for_nodes(server: &Server, wanted: usize, mut report: impl FnMut(usize)) -> anyhow::Result<()> {
    let nodes = Api::<Node>::all(server.client());
    let mut changes = server.revisions();
    let ends = Instant::now() + NODES_READY_MAX;
    loop {
        let found = nodes.list(&ListParams::default()).await?;
        let ready = found.iter().filter(|node| is_ready(node)).count();
        report(ready.min(wanted));
        if ready >= wanted {
            return Ok(());
        }
        let left = ends.saturating_duration_since(Instant::now());
        match timeout(left, changes.changed()).await {
            Ok(changed) => changed?,
            Err(_) => bail!("{ready} of {wanted} nodes are ready after {} s", NODES_READY_MAX.as_secs()),
        }
    }
}

fn is_ready(node: &Node) -> bool {
    let ready = node.status.conditions.iter().any(|condition| condition.kind == "Ready" && condition.status == "True");
    // Other taints, such as that of a cordon, are set on purpose.
    let not_yet = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];
    ready && !node.spec.taints.iter().any(|taint| not_yet.contains(&&*taint.key))
}

/// Starts the scheduler on the server in this process, and serves its metrics.
async fn start_scheduler(server: &Server) -> anyhow::Result<(Thread, ListenerThread)> {
    // There is no other scheduler here: pods of `default-scheduler` are Muster's too.
    let names = [muster_api::keys::SCHEDULER_NAME, "default-scheduler"].map(str::to_owned).to_vec();
    let overrides = Overrides { scheduler_names: names, ..Overrides::default() };
    let mut settings = Configuration::new(File::default(), overrides)?.settings;
    let (health, metrics) = (Health::default(), Metrics::default());
    metrics.set_leader(true);
    "muster-up".clone_into(&mut settings.identity);
    settings.instruments = Instruments { metrics: metrics.clone(), health: health.clone(), record: None };
    let listener = muster_runtime::serve(SocketAddr::from(([127, 0, 0, 1], 0)), health, Some(metrics)).await?;
    let clock = Clock::starting_at(server.now());
    let server = server.clone();
    Ok((Thread::start(move || Ok(server.client()), settings, clock, Fence::open())?, listener))
}

/// A short description of the nodes.
fn describe(shape: &Shape) -> String {
    let pools: Vec<String> = shape
        .pools
        .iter()
        .map(|pool| {
            let amounts = pool.capacity.iter().filter(|(name, _)| name.contains('/'));
            let amounts: Vec<String> = amounts.map(|(name, amount)| format!("{} {name}", text(amount))).collect();
            let each = if amounts.is_empty() { String::new() } else { format!(" with {} each", amounts.join(", ")) };
            let blocks: Vec<String> =
                pool.domains.iter().map(|domain| count(domain.count.min(pool.count), last_part(&domain.key))).collect();
            let blocks = if blocks.is_empty() { String::new() } else { format!(", in {}", blocks.join(" and ")) };
            format!("{} {}-*{each}{blocks}", count(pool.count, "node"), pool.name)
        })
        .collect();
    if pools.is_empty() { "no nodes".to_owned() } else { pools.join("; ") }
}

fn text(amount: &impl serde::Serialize) -> String {
    let value = serde_json::to_value(amount).unwrap_or_default();
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn count(number: u32, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn last_part(key: &str) -> &str {
    key.rsplit('/').next().unwrap_or(key)
}
