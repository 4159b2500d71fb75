//! `muster-lab bench engine`: runs shapes, prints tables or JSON lines, and reports which targets are met.

mod hostile;
mod measure;
mod memory;
mod preemption;
mod report;
mod shapes;

use std::io::Write;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use serde::de::DeserializeOwned;

/// What to measure and how to print it.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Only run or list shapes whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// List the shapes and exit.
    #[arg(long)]
    list: bool,
    /// Measure this one shape in this process (what the parent does for each shape).
    #[arg(long, hide = true, value_name = "NAME")]
    shape: Option<String>,
}

/// Runs the benchmark. A missed target is reported; on a busy machine it means nothing, so it is no error.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if let Some(name) = &options.shape {
        return one(&mut out, name);
    }
    let wanted = options.only.as_deref().unwrap_or("").to_lowercase();
    let placing: Vec<_> = shapes::all().into_iter().filter(|shape| shape.name.contains(&wanted)).collect();
    let preempting: Vec<_> = preemption::all().into_iter().filter(|shape| shape.name.contains(&wanted)).collect();
    let hostile: Vec<_> = hostile::all().into_iter().filter(|shape| shape.name.contains(&wanted)).collect();
    if placing.is_empty() && preempting.is_empty() && hostile.is_empty() {
        bail!("no shape's name contains {wanted:?}; `muster-lab bench engine --list` shows them all");
    }
    if options.list {
        let names = placing.iter().map(|shape| &shape.name).chain(preempting.iter().map(|shape| &shape.name));
        for name in names.chain(hostile.iter().map(|shape| &shape.name)) {
            writeln!(out, "{name}")?;
        }
        return Ok(());
    }
    let (mut placed, mut preempted) = (Vec::new(), Vec::new());
    if !options.json && !placing.is_empty() {
        report::print_head(&mut out)?;
    }
    for shape in placing {
        let row: report::Row = in_own_process(&shape.name)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        } else {
            report::print_row(&mut out, &row)?;
        }
        placed.push(row);
    }
    if !options.json && !preempting.is_empty() {
        preemption::print_head(&mut out)?;
    }
    for shape in preempting {
        let row: preemption::Row = in_own_process(&shape.name)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        } else {
            preemption::print_row(&mut out, &row)?;
        }
        preempted.push(row);
    }
    let mut disturbed = Vec::new();
    if !options.json && !hostile.is_empty() {
        hostile::print_head(&mut out)?;
    }
    for shape in hostile {
        let row: hostile::Row = in_own_process(&shape.name)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        } else {
            hostile::print_row(&mut out, &row)?;
        }
        disturbed.push(row);
    }
    if options.json {
        return Ok(());
    }
    let mut targets = report::targets(&placed);
    targets.extend(preemption::targets(&preempted));
    targets.extend(hostile::targets(&disturbed));
    report::print_targets(&mut out, &targets)?;
    Ok(())
}

/// Measures one shape and prints it as JSON.
fn one(out: &mut impl Write, name: &str) -> anyhow::Result<()> {
    if let Some(shape) = shapes::all().iter().find(|shape| shape.name == name) {
        writeln!(out, "{}", serde_json::to_string(&measure::measure(shape))?)?;
    } else if let Some(shape) = preemption::all().iter().find(|shape| shape.name == name) {
        writeln!(out, "{}", serde_json::to_string(&preemption::measure(shape))?)?;
    } else if let Some(shape) = hostile::all().iter().find(|shape| shape.name == name) {
        writeln!(out, "{}", serde_json::to_string(&hostile::measure(shape))?)?;
    } else {
        bail!("there is no shape {name:?}");
    }
    Ok(())
}

fn in_own_process<Row: DeserializeOwned>(shape: &str) -> anyhow::Result<Row> {
    let program = std::env::current_exe().context("finding this program")?;
    let output = Command::new(program).args(["bench", "engine", "--shape", shape]).output()?;
    if !output.status.success() {
        bail!("shape {shape}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("reading the result of shape {shape}"))
}
