//! `muster-lab scenario run`: finds the files, runs each in each carrier and prints the results.
//!
//! Must not depend on what scenarios mean.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use muster_sim::scenario::{Carrier, Outcome, Place, Report, Scenario, load, run as play};

/// What to run, and where.
#[derive(Args)]
pub(crate) struct Options {
    /// Scenario files; a folder means all its *.yaml files.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// The API in which groups are written: muster (PodGroup, or Workload where replica keys are used),
    /// muster-workload, Kubernetes' own in one of its versions (v1beta1, v1alpha3, v1alpha2, v1alpha1), those of
    /// scheduler-plugins or volcano, or all. May be repeated or a list with commas.
    #[arg(long = "carrier", value_name = "CARRIER", value_delimiter = ',', default_value = "muster")]
    carriers: Vec<String>,
    /// Run on the cluster of this kubeconfig file.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Print each step with its time.
    #[arg(long)]
    verbose: bool,
}

/// How long a cluster may take to respond.
const RESPONSE_MAX: Duration = Duration::from_secs(10);

/// The number of scenarios by result.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let counts = run_all(options)?;
    let nothing_ran = counts.passed == 0 && counts.skipped > 0;
    if counts.failed == 0 && nothing_ran {
        eprintln!("error: no scenario was run");
    }
    Ok(if counts.failed > 0 || nothing_ran { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn run_all(options: &Options) -> anyhow::Result<Counts> {
    let carriers = carriers(&options.carriers)?;
    let scenarios = read_all(&options.files)?;
    let place = place(options.kubeconfig.as_deref())?;
    let mut out = io::stdout().lock();
    let mut counts = Counts::default();
    for scenario in &scenarios {
        for carrier in &carriers {
            let report = play(scenario, *carrier, &place);
            counts.count(&report);
            if options.verbose {
                write!(out, "{}", report.shown_steps())?;
            }
            writeln!(out, "{report}")?;
            out.flush()?;
            if report.is_interrupted {
                return Ok(counts);
            }
        }
    }
    writeln!(out, "{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped)?;
    Ok(counts)
}

impl Counts {
    fn count(&mut self, report: &Report) {
        match report.outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::Skipped(_) => self.skipped += 1,
        }
    }
}

/// The carriers by their names, each once.
fn carriers(names: &[String]) -> anyhow::Result<Vec<Carrier>> {
    let mut carriers = Vec::new();
    for name in names {
        let known = Carrier::ALL.iter().filter(|carrier| name == "all" || carrier.name() == name);
        let known: Vec<Carrier> = known.copied().collect();
        if known.is_empty() {
            let names = Carrier::ALL.map(Carrier::name).join(", ");
            bail!("--carrier {name:?}: there is no such carrier; there are {names} and all");
        }
        carriers.extend(known);
    }
    carriers.sort();
    carriers.dedup();
    Ok(carriers)
}

/// All scenarios, or all errors in them.
fn read_all(paths: &[PathBuf]) -> anyhow::Result<Vec<Scenario>> {
    let mut scenarios = Vec::new();
    let mut mistakes = Vec::new();
    for path in paths {
        for file in files_of(path)? {
            match load(&file) {
                Ok(scenario) => scenarios.push(scenario),
                Err(error) => mistakes.push(error.to_string()),
            }
        }
    }
    if mistakes.is_empty() { Ok(scenarios) } else { bail!("{}", mistakes.join("\n")) }
}

fn files_of(path: &Path) -> anyhow::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = path.read_dir().with_context(|| path.display().to_string())?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<PathBuf>>>()?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    if files.is_empty() {
        bail!("{}: the folder has no *.yaml file", path.display());
    }
    Ok(files)
}

fn place(kubeconfig: Option<&Path>) -> anyhow::Result<Place> {
    let Some(path) = kubeconfig else { return Ok(Place::Process) };
    let read = kube::config::Kubeconfig::read_from(path).with_context(|| format!("--kubeconfig {}", path.display()))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let options = kube::config::KubeConfigOptions::default();
    let config = runtime.block_on(kube::Config::from_custom_kubeconfig(read, &options));
    let config = config.with_context(|| format!("--kubeconfig {}", path.display()))?;
    runtime
        .block_on(check_reachable(&config))
        .with_context(|| format!("--kubeconfig {}: {}", path.display(), config.cluster_url))?;
    Ok(Place::Cluster(config))
}

/// An unreachable cluster is reported once, not for every scenario.
async fn check_reachable(config: &kube::Config) -> anyhow::Result<()> {
    let client = kube::Client::try_from(config.clone())?;
    tokio::time::timeout(RESPONSE_MAX, client.apiserver_version()).await.context("no answer in time")??;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn carriers_are_found_by_name_and_listed_once() {
        let read = |names: &[&str]| carriers(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&["v1beta1", "muster", "muster"]).unwrap(), [Carrier::Muster, Carrier::V1beta1]);
        assert_eq!(read(&["muster", "all"]).unwrap(), Carrier::ALL);
        let error = read(&["yarn"]).unwrap_err().to_string();
        assert_eq!(
            error,
            "--carrier \"yarn\": there is no such carrier; there are muster, muster-workload, v1beta1, v1alpha3, \
             v1alpha2, v1alpha1, scheduler-plugins, volcano and all"
        );
    }
}
