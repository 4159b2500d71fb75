//! `muster-lab bench engine`: runs shapes, prints tables or JSON lines, and reports which targets are met.

mod hostile;
mod measure;
mod memory;
mod preemption;
mod ranks;
mod report;
mod shapes;
mod volumes;

use std::io::Write;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;
use serde::Serialize;
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
    let placing = placing.into_iter().map(|shape| shape.name);
    let placed = rows(&mut out, options.json, placing, report::print_head, report::print_row)?;
    let preempting = preempting.into_iter().map(|shape| shape.name);
    let preempted = rows(&mut out, options.json, preempting, preemption::print_head, preemption::print_row)?;
    let hostile = hostile.into_iter().map(|shape| shape.name);
    let disturbed = rows(&mut out, options.json, hostile, hostile::print_head, hostile::print_row)?;
    if options.json {
        return Ok(());
    }
    let mut targets = report::targets(&placed);
    targets.extend(preemption::targets(&preempted));
    targets.extend(hostile::targets(&disturbed));
    report::print_targets(&mut out, &targets)?;
    Ok(())
}

/// Measures shapes of one kind, each in its own process, and prints them as they are measured.
fn rows<Out: Write, Row: DeserializeOwned + Serialize>(
    out: &mut Out,
    json: bool,
    shapes: impl Iterator<Item = String>,
    print_head: impl Fn(&mut Out) -> std::io::Result<()>,
    print_row: impl Fn(&mut Out, &Row) -> std::io::Result<()>,
) -> anyhow::Result<Vec<Row>> {
    let mut rows = Vec::new();
    for shape in shapes {
        if !json && rows.is_empty() {
            print_head(out)?;
        }
        let row = in_own_process(&shape)?;
        if json {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        } else {
            print_row(out, &row)?;
        }
        rows.push(row);
    }
    Ok(rows)
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
