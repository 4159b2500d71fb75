//! `muster bench engine`: runs shapes, prints a table or JSON lines, and says which targets are met.

mod measure;
mod memory;
mod report;
mod shapes;

use std::io::Write;
use std::process::Command;

use anyhow::{Context, bail};
use clap::Args;

use report::Row;

/// What to measure and how to print it.
#[derive(Args)]
pub(crate) struct Options {
    /// Print one JSON object per line instead of a table.
    #[arg(long)]
    json: bool,
    /// Only run or list shapes whose name contains this text.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// List the shapes and stop.
    #[arg(long)]
    list: bool,
    /// Measure this one shape in this process (what the parent does for each shape).
    #[arg(long, hide = true, value_name = "NAME")]
    shape: Option<String>,
}

/// Runs the benchmark.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    let shapes = shapes::all();
    if let Some(name) = &options.shape {
        let Some(shape) = shapes.iter().find(|shape| shape.name == *name) else { bail!("there is no shape {name:?}") };
        writeln!(out, "{}", serde_json::to_string(&measure::measure(shape))?)?;
        return Ok(());
    }
    let wanted = options.only.as_deref().unwrap_or("").to_lowercase();
    let chosen: Vec<_> = shapes.iter().filter(|shape| shape.name.contains(&wanted)).collect();
    if chosen.is_empty() {
        bail!("no shape's name contains {wanted:?}; `muster bench engine --list` shows them all");
    }
    if options.list {
        for shape in chosen {
            writeln!(out, "{}", shape.name)?;
        }
        return Ok(());
    }
    if !options.json {
        report::print_head(&mut out)?;
    }
    let mut rows = Vec::new();
    for shape in chosen {
        let row = in_own_process(&shape.name)?;
        if options.json {
            writeln!(out, "{}", serde_json::to_string(&row)?)?;
        } else {
            report::print_row(&mut out, &row)?;
        }
        rows.push(row);
    }
    if !options.json {
        report::print_targets(&mut out, &rows)?;
    }
    Ok(())
}

fn in_own_process(shape: &str) -> anyhow::Result<Row> {
    let program = std::env::current_exe().context("finding this program")?;
    let output = Command::new(program).args(["bench", "engine", "--shape", shape]).output()?;
    if !output.status.success() {
        bail!("shape {shape}: {}", String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).with_context(|| format!("reading the result of shape {shape}"))
}
