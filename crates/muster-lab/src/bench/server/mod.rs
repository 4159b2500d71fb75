//! `muster-lab bench server`: creates and binds per second of the API server with a hundred open watches.
//!
//! First from the same process, then over loopback HTTP from many clients to a server in its own process, in memory and
//! with a state folder.

mod in_process;
mod load;
mod loopback;
mod watchers;
mod wire;

use anyhow::bail;
use clap::Args;

pub(crate) use wire::Wire;

/// The size of the benchmark.
#[derive(Args)]
pub(crate) struct Options {
    /// How many pods to create and to bind.
    #[arg(long, default_value_t = 20_000)]
    pods: usize,
    /// How many watches receive every pod.
    #[arg(long, default_value_t = 5)]
    full: usize,
    /// How many watches receive only pods of one label, or of one node.
    #[arg(long, default_value_t = 95)]
    selective: usize,
    /// How many clients write over HTTP at once.
    #[arg(long, default_value_t = 32)]
    clients: usize,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    if options.pods == 0 || options.clients == 0 {
        bail!("--pods 0, --clients 0: there is nothing to measure");
    }
    in_process::run(options)?;
    loopback::run(options)
}
