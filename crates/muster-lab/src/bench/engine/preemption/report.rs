//! The result of one shape, the table, and the targets.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::bench::engine::report::Target;

/// The result of one shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) shape: String,
    pub(crate) nodes: usize,
    /// Pending pods.
    pub(crate) pods: usize,
    /// Pods that were bound.
    pub(crate) bound: usize,
    pub(crate) evicted_gangs: usize,
    /// The lower bound of preempted gangs.
    pub(crate) gangs_at_least: Option<usize>,
    pub(crate) evicted_pods: usize,
    /// Decisions that attempted a pod or group.
    pub(crate) tries: usize,
    /// From the last observation to the last command.
    pub(crate) decide_ms: f64,
    /// The same for a tenth of the shape, measured alternately with it.
    pub(crate) tenth_ms: Option<f64>,
    /// The slowest of these decisions.
    pub(crate) slowest_ms: f64,
}

pub(crate) fn print_head(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<36} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>7} {:>11} {:>11}",
        "preemption", "nodes", "pods", "bound", "gangs", "at least", "evicted", "tries", "decide_ms", "slowest_ms"
    )
}

pub(crate) fn print_row(out: &mut impl Write, row: &Row) -> io::Result<()> {
    writeln!(
        out,
        "{:<36} {:>7} {:>7} {:>7} {:>8} {:>8} {:>8} {:>7} {:>11.2} {:>11.2}",
        row.shape,
        row.nodes,
        row.pods,
        row.bound,
        row.evicted_gangs,
        row.gangs_at_least.map_or_else(|| "-".to_owned(), |least| least.to_string()),
        row.evicted_pods,
        row.tries,
        row.decide_ms,
        row.slowest_ms
    )
}

/// The targets of preemption on two shared cores.
pub(crate) fn targets(rows: &[Row]) -> Vec<Target> {
    let of = |name: &str| rows.iter().find(|row| row.shape == name);
    let mut targets = Vec::new();
    let mut at_most = |what: String, value: Option<f64>, bound: f64| {
        targets.extend(value.map(|value| Target { what, value, at_least: false, bound }));
    };
    for layout in ["neighbours", "scattered"] {
        for (pods, gangs) in [(100, 10), (500, 50)] {
            let victims = of(&format!("preempt-gang-{pods}-{layout}")).map(|row| row.evicted_gangs as f64);
            at_most(format!("gangs of 10 evicted for a gang of {pods}, {layout}"), victims, f64::from(gangs));
        }
    }
    for layout in ["neighbours", "scattered", "interleaved", "mingled"] {
        let row = of(&format!("preempt-gang-500-{layout}"));
        at_most(format!("a plan for a gang of 500, {layout}, ms"), row.map(|row| row.decide_ms), 200.0);
        let growth = row.and_then(|row| Some(row.decide_ms / row.tenth_ms?));
        at_most(format!("that plan over one of a tenth on 500 nodes, {layout}"), growth, 12.0);
    }
    let single = of("preempt-singles-100").map(|row| row.slowest_ms);
    at_most("a plan for a single pod against 10000 in whole gangs, ms".to_owned(), single, 2.0);
    let many = of("preempt-until-500-gangs-left").zip(of("preempt-until-50-gangs-left"));
    let growth = many.map(|(many, few)| many.tries as f64 / few.tries as f64);
    at_most("tries until 500 gangs have left over 50".to_owned(), growth, 12.0);
    targets
}
