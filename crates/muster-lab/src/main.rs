//! The `muster-lab` program: tools to try and test Muster without a cluster. `main` only parses arguments and
//! dispatches.

mod bench;
mod scenario;
mod up;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Try and test Muster: a cluster in one process, scenarios, benchmarks.
#[derive(Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Start a cluster in this process and watch Muster work: API server, simulated nodes, controllers, scheduler.
    ///
    /// Nothing else is needed, and nothing is installed. kubectl works on it: the path of the kubeconfig is printed.
    /// Containers are simulated: a pod runs as long as its command `sleep N` or its annotation
    /// playground.muster.dev/run-seconds specifies, else forever. The port is open on 127.0.0.1 only, without
    /// authentication: everyone who can reach it has full access.
    ///
    /// Ctrl-C stops everything. Without --state the cluster is lost then.
    #[command(verbatim_doc_comment)]
    Up(up::Options),
    /// Measure how fast decisions are made, and how fast the playground is.
    #[command(subcommand)]
    Bench(Bench),
    /// Run scenarios: test cases about a cluster that state what must become true.
    #[command(subcommand)]
    Scenario(Scenario),
}

#[derive(Subcommand)]
enum Scenario {
    /// Run scenario files and report which pass.
    ///
    /// Without --kubeconfig everything runs in this process, on simulated nodes and in virtual time. With it Muster
    /// runs in this process against that cluster, in real time, in a namespace that is created for each file and
    /// removed at the end; the cluster must have no nodes of its own.
    ///
    /// One line for each file and carrier: pass, FAIL with the step and what was seen, or skip with the reason why the
    /// carrier cannot express it. Exit code 0 if nothing failed, 1 if something did, 2 if a file cannot be read.
    #[command(verbatim_doc_comment)]
    Run(scenario::Options),
}

#[derive(Subcommand)]
enum Bench {
    /// Measure the engine alone, on the shapes of Kubernetes' own scheduler benchmarks.
    ///
    /// Each shape runs in its own process, so that its peak memory is its own. For comparison a naive scheduler, which
    /// evaluates every node for every pod, is measured in the same process: on a busy machine compare the ratio.
    ///
    /// Columns: `bound`, pods that were bound; `observe_ms`, passing the cluster to the engine; `decide_ms`, all
    /// decisions, the fastest of three rounds; `pods/s`, requested pods over `decide_ms`, bound or not; `rss_mib`, peak
    /// memory of the engine's part (0 where the system does not report it); `naive_ms`, the naive scheduler: above 25
    /// million evaluations a part is measured and scaled up; `ratio`, `naive_ms` over `decide_ms`.
    ///
    /// The second table is about preemption: `gangs` of ten that a plan preempts, `at least` so many that any plan
    /// must, pods `evicted`, `tries` until the engine is idle, `slowest_ms`, the slowest single decision.
    ///
    /// Targets are printed below the table, not with --json. A missed target does not change the exit code.
    #[command(verbatim_doc_comment)]
    Engine(bench::engine::Options),
    /// Measure the API server: creates and binds per second while watches are open.
    ///
    /// First requests come from the same process, a few at once. Then they come over loopback HTTP from many clients to
    /// a server in its own process, in memory and with a state folder; clients and server share the machine. The events
    /// of each watch are counted and checked: a missed or repeated event is an error. A missed target does not change
    /// the exit code.
    #[command(verbatim_doc_comment)]
    Server(bench::server::Options),
    /// Measure a large simulated cluster: memory, time to list a namespace while pods are created and deleted, idle CPU
    /// time.
    ///
    /// Server and nodes are one process. A missed target does not change the exit code. It needs Linux.
    #[command(verbatim_doc_comment)]
    Playground(bench::playground::Options),
    /// Create many JobSets at once, and measure until all of them are gangs.
    Controllers(bench::controllers::Options),
    /// Measure Muster, kube-scheduler and a null binder without any scheduling, side by side on a real control plane.
    ///
    /// Every measurement gets its own etcd (without fsync) and kube-apiserver with empty data, 5000 nodes without
    /// kubelets, and the scheduler in its own process with admin permissions and no client-side rate limits. Gangs are
    /// native PodGroups for all of them. The cases: plain (10000 pods), gangs-of-100 (100 of them), backlog (the same,
    /// created before the scheduler starts), gangs-of-3 (1000 of them), gang-of-5000 (one, each pod takes all GPUs of a
    /// node).
    ///
    /// Columns: `first_s` and `last_s`, seconds to the first and the last bind, from the first create (backlog: from
    /// the start of the scheduler's process); `pods/s`, pods over `last_s`; `cpu_ms/pod`, CPU time of the scheduler
    /// until it stops writing (backlog: with its start); `server_ms/pod`, CPU time of etcd and the API server in that
    /// time; `peak_mib`, peak memory of the scheduler; `writes/pod`, its writing requests as the API server counts
    /// them; `partial`, gangs that were partly bound for 10 s; `overcomm.`, overcommitted nodes.
    ///
    /// Exit code 1 if a target is missed, unless --lenient. On a busy machine compare ratios and CPU time, not rates. It needs
    /// Linux and some 6 GB of memory.
    #[command(verbatim_doc_comment)]
    Cluster(bench::cluster::Options),
    /// The null binder that schedulers are compared with in other benchmarks.
    #[command(hide = true)]
    NullBinder(bench::null_binder::Options),
    /// The server that other benchmarks measure.
    #[command(hide = true)]
    Serve(bench::serve::Options),
    /// Measure `muster run`, as a process: memory, CPU time, requests, and pods bound per second over loopback HTTP.
    ///
    /// This process is the API server and creates the pods; the scheduler runs in its own process. It starts on a
    /// cluster of 5000 nodes and 150000 bound pods of 5 KB with a backlog of gangs, and then gets one batch after the
    /// other. Finally the same batches are bound by a null binder without any scheduling: compare the ratio, not the
    /// rates.
    ///
    /// Columns: `seconds`, from the first create (or the sync) to the last bind; `cpu_ms/pod`, CPU time of the scheduler;
    /// `binds`, `group_writes` (status of groups and events) and `others`, requests that write, by what they write;
    /// `writes/pod`, all of them. A missed target does not change the exit code. It needs Linux and some 3 GB of memory.
    #[command(verbatim_doc_comment)]
    Runtime(bench::runtime::Options),
}

fn main() -> ExitCode {
    let done = |()| ExitCode::SUCCESS;
    muster::outcome::exit_code(match Cli::parse().command {
        Command::Up(options) => up::run(&options).map(done),
        Command::Bench(bench) => measure(bench),
        Command::Scenario(Scenario::Run(options)) => scenario::run(&options),
    })
}

fn measure(bench: Bench) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match bench {
        Bench::Cluster(options) => bench::cluster::run(&options),
        Bench::NullBinder(options) => bench::null_binder::run(&options).map(done),
        Bench::Engine(options) => bench::engine::run(&options).map(done),
        Bench::Server(options) => bench::server::run(&options).map(done),
        Bench::Controllers(options) => bench::controllers::run(&options).map(done),
        Bench::Playground(options) => bench::playground::run(&options).map(done),
        Bench::Serve(options) => bench::serve::run(&options).map(done),
        Bench::Runtime(options) => bench::runtime::run(&options).map(done),
    }
}
