//! The rounds on the playground: its server, nodes and controllers, and Muster, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, PostParams};
use muster_api::crds;
use muster_api::owners::GangedOwners;
use muster_controllers::{Controllers, PriorityClasses, WatchAges};
use muster_playground::Server;
use muster_playground::components::{Cluster, jobset};
use muster_playground::faults::{Faults, Plan};
use muster_runtime::{Clock, Fence, Scheduler, Settings};

use super::{Failure, Host, nodes, run_rounds};
use crate::scenario::{Carrier, controllers_settings, webhook};

/// How long the system may take to settle. The Job controller recreates lost pods with growing backoff.
const WITHIN: Duration = Duration::from_secs(600);
/// The start date.
const START: &str = "2030-01-01T00:00:00Z";
/// Time for controllers and nodes to start.
const STARTUP: Duration = Duration::from_secs(10);

/// Muster in the same process as the server.
struct InProcess {
    client: kube::Client,
    settings: Settings,
    clock: Clock,
    running: Option<(Scheduler, Controllers)>,
}

impl InProcess {
    fn start(&mut self) {
        let scheduler = Scheduler::start(&self.client, &self.settings, self.clock, Fence::open());
        let scheduler = scheduler.expect("the settings are valid");
        let (settings, clock) = (controllers_settings_for(&self.settings), self.clock);
        let controllers =
            Controllers::start(&self.client, settings, &WatchAges::default(), move || clock.now(), Arc::new(Some));
        self.running = Some((scheduler, controllers));
    }
}

impl Host for InProcess {
    fn restart(&mut self) {
        if let Some((scheduler, _)) = self.running.take() {
            scheduler.kill();
        }
        self.start();
    }
}

/// Runs one seed; every other one with the webhook, two of four with fault injection between Muster and the server.
/// Returns the log of actions.
pub fn run(seed: u64) -> Result<Vec<String>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    runtime.expect("a runtime").block_on(async {
        let server = Server::start(muster_playground::Settings {
            seed,
            start: START.parse().ok(),
            ..muster_playground::Settings::default()
        });
        let client = server.client();
        install(&client).await.map_err(|error| Failure { log: Vec::new(), why: error.to_string() })?;
        let settings = Settings { check_invariants: true, ganged: GangedOwners::all(), ..Settings::default() };
        if seed % 2 == 1 {
            let classes = PriorityClasses::watch(&client, &WatchAges::default());
            server.set_webhook(Some(webhook(controllers_settings_for(&settings), classes)));
        }
        let _cluster = Cluster::start(&client, &nodes(), server.clock()).expect("a valid shape");
        let faults = if seed % 4 < 2 { Faults::none() } else { Faults::new(seed, Plan::STORM) };
        let mut muster = InProcess {
            client: server.client_with(&faults),
            settings,
            clock: Clock::starting_at(server.now()),
            running: None,
        };
        muster.start();
        tokio::time::sleep(STARTUP).await;
        run_rounds(client, seed, WITHIN, &mut muster).await
    })
}

fn controllers_settings_for(settings: &Settings) -> muster_controllers::Settings {
    controllers_settings(settings, Carrier::Muster).expect("Muster's own kinds are served")
}

async fn install(client: &kube::Client) -> kube::Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for text in [crds::WORKLOADS, crds::PODGROUPS] {
        let definition = serde_saphyr::from_str(text).expect("a CRD of this repository");
        definitions.create(&PostParams::default(), &definition).await?;
    }
    jobset::install(client).await
}
