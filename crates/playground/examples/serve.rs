//! Serves the API on loopback, with sixteen simulated nodes. Stop it with Ctrl-C.
//!
//! `cargo run -p muster-playground --example serve`, then for example
//! `curl http://127.0.0.1:8001/api/v1/nodes` or `kubectl --server http://127.0.0.1:8001 get nodes`.
//! `--state DIR` stores the cluster in a folder, `--port N` uses another port (0: any free one), `--nodes 0` simulates
//! no nodes.

use std::collections::BTreeMap;
use std::path::Path;

use muster_playground::components::{Cluster, Shape};
use muster_playground::{Server, Settings, kubectl};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut flags: BTreeMap<&str, &str> =
        words.chunks(2).map(|pair| (&*pair[0], pair.get(1).map_or("", |v| v))).collect();
    let state = flags.remove("--state");
    let port: u16 = flags.remove("--port").unwrap_or("8001").parse()?;
    let has_nodes = flags.remove("--nodes") != Some("0");
    if let Some(flag) = flags.keys().next() {
        return Err(format!("{flag}: --state, --port and --nodes 0 are known").into());
    }
    let server = match state {
        Some(folder) => Server::open(Settings::default(), Path::new(folder))?,
        None => Server::start(Settings::default()),
    };
    let server = server.with_presentation(kubectl());
    let nodes = Shape::default();
    let _cluster = has_nodes.then(|| Cluster::start(&server.client(), &nodes, server.clock())).transpose()?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    println!("http://{}", listener.local_addr()?);
    server.serve(listener).await;
    Ok(())
}
