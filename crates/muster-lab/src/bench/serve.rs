//! `muster-lab bench serve`: the server that other benchmarks measure, in its own process. It prints its address.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use muster_playground::components::{Cluster, Shape};
use muster_playground::{Server, Settings, kubectl};

/// What to serve.
#[derive(Args)]
pub(crate) struct Options {
    /// Keep the state in this folder.
    #[arg(long)]
    state: Option<PathBuf>,
    /// Simulate so many nodes, with capacity for 110 pods each; none if it is left out.
    #[arg(long)]
    nodes: Option<u32>,
}

/// Serves until the process is killed.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(serve(options))
}

async fn serve(options: &Options) -> anyhow::Result<()> {
    let server = match &options.state {
        Some(folder) => Server::open(Settings::default(), folder)?,
        None => Server::start(Settings::default()),
    };
    let server = server.with_presentation(kubectl());
    let _cluster = match options.nodes {
        Some(count) => Some(Cluster::start(&server.client(), &shape(count), server.clock())?),
        None => None,
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("listening on loopback")?;
    writeln!(std::io::stdout(), "{}", listener.local_addr()?)?;
    server.serve(listener).await;
    Ok(())
}

/// The usual nodes, but so many of them.
fn shape(count: u32) -> Shape {
    let mut shape = Shape::default();
    shape.pools.truncate(1);
    for pool in &mut shape.pools {
        pool.count = count;
    }
    shape
}
