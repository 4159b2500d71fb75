//! Competing sets with the real managers of JobSet and LeaderWorkerSet: of two, one runs and the other is completely
//! pending, and ten rounds of random deletions, restarts and suspensions leave no objects behind.
//!
//! The test is `muster_sim::rounds`, which also runs on the playground. `MUSTER_SEED=n` selects the seed.

use std::net::TcpListener;
use std::time::Duration;

use muster_controlplane::Profile;
use muster_sim::rounds::{Host, nodes, run_rounds};
use serde_json::json;

use crate::replica::short_lease;
use crate::test_cluster::{Load, TestCluster};
use crate::webhook::call_webhook_by_url;

/// The Job controller recreates lost pods with growing backoff.
const WITHIN: Duration = Duration::from_secs(120);
const SEED: u64 = 1;

impl Host for TestCluster {
    fn restart(&mut self) {
        self.replica("only").kill();
        self.replica("only").start_again();
    }

    fn check_processes(&mut self) {
        self.check();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_competing_sets_runs_and_no_objects_are_left() {
    let with = ["--with", "jobset,lws"];
    let Some(mut cluster) = TestCluster::start("rounds", Load::Whole, Profile::Stock, &with).await else { return };
    cluster.add_nodes(&nodes()).await;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    call_webhook_by_url(&cluster, port);
    let config = json!({
        "leaderElection": short_lease(),
        "webhook": {"listen": format!("127.0.0.1:{port}"), "certificates": {"extraNames": ["127.0.0.1"]}},
    });
    cluster.start_replica("only", &config);
    cluster.await_leader("only").await;
    let seed = std::env::var("MUSTER_SEED").ok().map_or(SEED, |text| text.parse().expect("MUSTER_SEED: a number"));
    let client = cluster.client.clone();
    match run_rounds(client, seed, WITHIN, &mut cluster).await {
        Ok(done) => println!("{}", done.join("\n")),
        Err(failure) => cluster.fail(&failure.to_string()),
    }
}
