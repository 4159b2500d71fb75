//! `muster-lab bench cluster`: Muster, kube-scheduler and a null binder on a real control plane.
//!
//! Every measurement gets its own control plane with empty data; nodes, pods, driver and limits are the same for all.
//! The scheduler runs in its own process, so that its memory and CPU time are its own.

mod cases;
mod contestants;
mod driver;
mod measure;
mod objects;
mod plane;
mod pod_recorder;
mod report;
mod targets;
mod writes;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;

use contestants::Contestant;
use muster::signals::Signals;
use report::Report;

/// What to measure.
#[derive(Args)]
pub(crate) struct Options {
    /// The binaries of Kubernetes in one file, as built by tools/controlplane/build, which prints its path.
    #[arg(long, value_name = "FILE")]
    controlplane: PathBuf,
    /// Measure this case only. May be repeated.
    #[arg(long, value_name = "CASE", value_parser = PossibleValuesParser::new(cases::NAMES))]
    only: Vec<String>,
    /// Measure this scheduler only. May be repeated.
    #[arg(long, value_enum, value_name = "NAME")]
    contestant: Vec<Contestant>,
    /// Fewer nodes and gangs: to check that it works, or how times grow. Targets are meant for full size.
    #[arg(long, default_value_t = 1.0, value_name = "PART", value_parser = scale)]
    scale: f64,
    /// Write all results to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Exit with code 0 even if a target is missed.
    #[arg(long)]
    lenient: bool,
}

fn scale(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(scale) if scale > 0.0 && scale <= 1.0 => Ok(scale),
        _ => Err("must be a number above 0 and at most 1".to_owned()),
    }
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    if !options.controlplane.is_file() {
        bail!(
            "--controlplane {:?}: no such file: build it with tools/controlplane/build, which needs Go",
            options.controlplane.display().to_string()
        );
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let mut report = Report { scale: options.scale, measurements: Vec::new() };
    let measured = runtime.block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            measured = measure_all(options, &mut report) => measured,
            // Processes are stopped when their values are dropped.
            name = signals.next() => bail!("{name}: stopped before everything is measured"),
        }
    });
    // Even if a long run fails late, earlier results are printed.
    if let Some(path) = &options.json {
        let text = serde_json::to_string_pretty(&report)?;
        std::fs::write(path, text).with_context(|| format!("--json {}", path.display()))?;
    }
    let targets = targets::of(&report);
    report::print(&mut std::io::stdout().lock(), &report, &targets)?;
    measured?;
    let missed = targets.iter().any(|target| !target.is_met());
    Ok(if missed && !options.lenient { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure_all(options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let all_contestants = options.contestant.is_empty();
    let contestants: Vec<_> =
        contestants::ALL.into_iter().filter(|one| all_contestants || options.contestant.contains(one)).collect();
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|only| only == name);
    for case in cases::all(options.scale).into_iter().filter(|case| wanted(case.name)) {
        for contestant in &contestants {
            let measurement = measure::measure(&options.controlplane, case, *contestant).await;
            let measurement = measurement.with_context(|| format!("{} with {}", case.name, contestant.name()))?;
            report.measurements.push(measurement);
        }
    }
    Ok(())
}
