//! The `muster` binary: a thin front over the crates. `main` parses and dispatches, nothing else.

mod bench;

use clap::{Parser, Subcommand};

/// Muster places groups of pods on Kubernetes whole or not at all.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure how fast decisions are made.
    #[command(subcommand)]
    Bench(Bench),
}

#[derive(Subcommand)]
enum Bench {
    /// Measure the engine alone, on the shapes of Kubernetes' own scheduler benchmarks.
    ///
    /// Each shape runs in a process of its own, so that its peak memory is its own. Beside the engine's time stands
    /// the time of the plain way, which looks at every node for every pod, measured in the same run: compare the
    /// ratio, not the milliseconds of a busy machine.
    Engine(bench::Options),
}

fn main() -> anyhow::Result<()> {
    match Cli::parse().command {
        Command::Bench(Bench::Engine(options)) => bench::run(&options),
    }
}
