//! The `muster` program, which clusters and their users run. `main` parses and dispatches, nothing else.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use muster::{manifests, outcome, replay, run};

/// Muster places groups of pods on Kubernetes whole or not at all.
///
/// To try it without a cluster there is a second program, muster-lab: `muster-lab up`.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Schedule the pods of a cluster.
    ///
    /// Flags win over the configuration file. Ends well on SIGTERM and SIGINT: no new decisions, what is on its way is
    /// waited for, and the lease is given back. The exit code is 1 if the lease was lost, 2 for any other failure.
    #[command(verbatim_doc_comment)]
    Run(run::Options),
    /// Print what installs Muster on a cluster, as YAML for `kubectl apply -f -`.
    ///
    /// Namespace, definitions of our kinds, a service account with no more rights than are used, configuration, two
    /// replicas, a disruption budget, a service for metrics; the admission webhook, which is not waited for if it does not
    /// answer (but with --native-gangs), and a policy of the API server about gang modes of JobSets.
    #[command(verbatim_doc_comment)]
    Manifests(manifests::Options),
    /// Decide again what was decided, from a record of `muster run --record-dir`.
    Replay(replay::Options),
}

fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    outcome::exit_code(match Cli::parse().command {
        Command::Run(options) => run::run(&options),
        Command::Manifests(options) => manifests::run(&options).map(done),
        Command::Replay(options) => replay::run(&options).map(done),
    })
}
