//! The `muster` program for clusters. `main` only parses arguments and dispatches.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use muster::{manifests, outcome, replay, run};

/// Muster schedules groups of pods on Kubernetes: all of a gang or none of it.
///
/// To try it without a cluster, use the second program, muster-lab: `muster-lab up`.
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
    /// Flags take precedence over the configuration file. Shuts down gracefully on SIGTERM and SIGINT: it makes no new
    /// decisions, waits for requests in flight and releases the lease. The exit code is 1 if the lease was lost, 2 for
    /// any other failure.
    #[command(verbatim_doc_comment)]
    Run(run::Options),
    /// Print the manifests that install Muster on a cluster, as YAML for `kubectl apply -f -`.
    ///
    /// Namespace, CRDs, a service account with only the permissions that are used, configuration, two replicas, a
    /// disruption budget, a network policy, a service for metrics; the admission webhook, whose failures are ignored
    /// (except with --native-gangs); and validating admission policies for the gang modes of JobSets, for the right to
    /// use PriorityClasses in groups, and for what the service account itself writes.
    #[command(verbatim_doc_comment)]
    Manifests(manifests::Options),
    /// Replay the decisions of a record of `muster run --record-dir`.
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
