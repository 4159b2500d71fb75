//! The API server on loopback, with sixteen simulated nodes. Stop it with Ctrl-C.
//!
//! `cargo run -p muster-playground --example serve`, then for example
//! `curl http://127.0.0.1:8001/api/v1/nodes` or `kubectl --server http://127.0.0.1:8001 get nodes`.

use muster_playground::clients::{Cluster, Shape};
use muster_playground::{Server, Settings};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = Server::start(Settings::default());
    let _cluster = Cluster::start(&server.client(), &Shape::default(), server.clock())?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:8001").await?;
    println!("http://{}", listener.local_addr()?);
    Ok(server.serve(listener).await?)
}
