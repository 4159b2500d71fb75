//! Sets that compete, with the real managers of JobSet and LeaderWorkerSet: of two one runs and the other waits whole,
//! and ten rounds of random deletes, restarts and changes of mind leave nothing behind.
//!
//! The story is `muster_sim::rounds`, which the playground has to stand as well. `MUSTER_SEED=n` chooses the seed.

use std::net::TcpListener;
use std::time::Duration;

use muster_controlplane::Profile;
use muster_sim::rounds::{Host, nodes, play};
use serde_json::json;

use crate::replica::short_lease;
use crate::stage::{Load, Stage};
use crate::webhook::call_by_address;

/// Jobs make pods that were lost again later and later.
const WITHIN: Duration = Duration::from_secs(120);
const SEED: u64 = 1;

impl Host for Stage {
    fn restart(&mut self) {
        self.replica("only").kill();
        self.replica("only").start_again();
    }

    fn tend(&mut self) {
        self.look();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_real_sets_one_runs_and_ten_rounds_leave_nothing_behind() {
    let with = ["--with", "jobset,lws"];
    let Some(mut stage) = Stage::open("rounds", Load::Whole, Profile::Stock, &with).await else { return };
    stage.add_nodes(&nodes()).await;
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port();
    call_by_address(&stage, port);
    let config = json!({
        "leaderElection": short_lease(),
        "webhook": {"listen": format!("127.0.0.1:{port}"), "certificates": {"extraNames": ["127.0.0.1"]}},
    });
    stage.start_replica("only", &config);
    stage.await_leader("only").await;
    let seed = std::env::var("MUSTER_SEED").ok().map_or(SEED, |text| text.parse().expect("MUSTER_SEED: a number"));
    let client = stage.client.clone();
    match play(client, seed, WITHIN, &mut stage).await {
        Ok(done) => println!("{}", done.join("\n")),
        Err(failure) => stage.fail(&failure.to_string()),
    }
}
