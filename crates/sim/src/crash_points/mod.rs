//! Crashes at every single write of a start with volumes: the process dies right after its n-th write took effect, and
//! the next one has to finish with what it finds.
//!
//! The playground does what a cluster does with volumes, in virtual time. Every write is checked before the server sees
//! it: no member of a gang is bound before the claims of all are, and nothing is chosen twice. In the end the whole
//! gang runs, and there is one volume for each claim.

mod cases;
mod checks;
mod connection;

use std::time::Duration;

use http::{Method, Request};
use kube::client::Body;
use muster_playground::components::Cluster;
use muster_playground::{Server, Settings as ServerSettings};
use muster_runtime::{Clock, Fence, Scheduler, Settings};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

pub use self::cases::Case;
use self::checks::Snapshot;
use self::connection::Connection;

const START: &str = "2030-01-01T00:00:00Z";
/// Time for nodes to be ready, and for CRDs to be served.
const STARTUP: Duration = Duration::from_secs(10);
/// How long the gang may take in all.
const WITHIN: Duration = Duration::from_secs(600);
/// How long nothing may change at the end.
const AT_REST: Duration = Duration::from_secs(60);
/// Number of yields after which all tasks of an aborted process have ended.
const SHUTDOWN_YIELDS: usize = 32;

/// How a run goes on after the crash.
#[derive(Clone, Copy, Debug)]
pub struct Crash {
    /// The number of the write, from 1, after which the process dies.
    pub after: usize,
    /// How long it takes until the next process starts. Provisioners and controllers go on meanwhile.
    pub pause: Duration,
    /// The same for the next process.
    pub next_after: Option<usize>,
}

/// A run without violations.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The writes of the first process, one line each.
    pub writes: Vec<String>,
}

/// A run with violations.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{case:?}, {crash:?}:\n  {}\n  the writes:\n    {}", violations.join("\n  "), writes.join("\n    "))]
pub struct Failure {
    case: Case,
    crash: Option<Crash>,
    violations: Vec<String>,
    writes: Vec<String>,
}

/// Runs a case, with a crash or without one.
pub fn run(case: Case, crash: Option<Crash>) -> Result<Outcome, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let mut world = World::new(case).await;
        let mut next = crash;
        let mut lives = Vec::new();
        loop {
            let connection = Connection::new(world.server.clone(), next.map(|crash| crash.after));
            lives.push(connection.clone());
            let scheduler = start(&connection, world.server.clock());
            let died = tokio::select! {
                biased;
                () = connection.died() => true,
                () = world.until_complete() => false,
            };
            let Some(crash) = next.filter(|_| died) else {
                tokio::time::sleep(AT_REST).await;
                scheduler.kill();
                break;
            };
            scheduler.kill();
            for _ in 0..SHUTDOWN_YIELDS {
                tokio::task::yield_now().await;
            }
            tokio::time::sleep(crash.pause).await;
            next = crash.next_after.map(|after| Crash { after, next_after: None, ..crash });
        }
        let mut violations: Vec<String> = lives.iter().flat_map(Connection::violations).collect();
        violations.extend(Snapshot::of(&world.server).await.violations_at_rest());
        let writes: Vec<String> = lives.iter().flat_map(Connection::writes).collect();
        if violations.is_empty() { Ok(Outcome { writes }) } else { Err(Failure { case, crash, violations, writes }) }
    })
}

fn start(connection: &Connection, clock: Clock) -> Scheduler {
    let settings = Settings { check_invariants: true, ..Settings::default() };
    Scheduler::start(&connection.client(), &settings, clock, Fence::open()).expect("the settings are valid")
}

/// The server with nodes and controllers, and the users.
struct World {
    server: Server,
    _cluster: Cluster,
    later: Vec<(&'static str, Value)>,
    later_at: Instant,
    ends: Instant,
}

impl World {
    async fn new(case: Case) -> Self {
        let server = Server::start(ServerSettings { start: START.parse().ok(), ..ServerSettings::default() });
        for text in [muster_api::crds::WORKLOADS, muster_api::crds::PODGROUPS] {
            let definition: Value = serde_saphyr::from_str(text).expect("a CRD of this repository");
            create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition).await;
        }
        let cluster = Cluster::start(&server.client(), &cases::nodes(), server.clock()).expect("a cluster");
        tokio::time::sleep(STARTUP).await;
        for (path, object) in case.objects() {
            create(&server, path, &object).await;
        }
        let now = Instant::now();
        let (later, later_at) = (case.later_objects(), now + Duration::from_secs(3));
        Self { server, _cluster: cluster, later, later_at, ends: now + WITHIN }
    }

    /// Waits until the gang runs, or its time is over.
    async fn until_complete(&mut self) {
        let mut revisions = self.server.revisions();
        while Instant::now() < self.ends {
            if !self.later.is_empty() && Instant::now() >= self.later_at {
                for (path, object) in std::mem::take(&mut self.later) {
                    create(&self.server, path, &object).await;
                }
            }
            if self.later.is_empty() && Snapshot::of(&self.server).await.is_complete() {
                return;
            }
            let until = if self.later.is_empty() { self.ends } else { self.later_at };
            timeout_at(until, revisions.changed()).await.ok();
        }
    }
}

async fn create(server: &Server, path: &str, object: &Value) {
    let request = Request::builder().method(Method::POST).uri(path).header("content-type", "application/json");
    let request = request.body(Body::from(object.to_string().into_bytes())).expect("a request");
    let status = server.answer(request).await.status();
    assert!(status.is_success(), "{path}: {status}");
}
