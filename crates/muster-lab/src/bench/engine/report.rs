//! The result of one shape, the table, and the targets.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};

/// The result of one shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) shape: String,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// Pods that were bound.
    pub(crate) bound: usize,
    /// Passing the cluster to the engine.
    pub(crate) observe_ms: f64,
    /// Deciding.
    pub(crate) decide_ms: f64,
    pub(crate) pods_per_s: f64,
    pub(crate) peak_rss_mib: u64,
    /// The naive scheduler: every node is evaluated for every pod.
    pub(crate) naive_ms: f64,
    /// The naive scheduler's time over the engine's.
    pub(crate) naive_ratio: f64,
    /// The cost of nominations of other pods, against the same shape without them in the same process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overhead_percent: Option<f64>,
    /// How far apart neighbours in rank are, over the same places in a random order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) rank_ratio: Option<f64>,
}

pub(crate) fn print_head(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:<36} {:>7} {:>7} {:>7} {:>11} {:>11} {:>10} {:>8} {:>11} {:>8}",
        "shape", "nodes", "pods", "bound", "observe_ms", "decide_ms", "pods/s", "rss_mib", "naive_ms", "ratio"
    )
}

pub(crate) fn print_row(out: &mut impl Write, row: &Row) -> io::Result<()> {
    writeln!(
        out,
        "{:<36} {:>7} {:>7} {:>7} {:>11.2} {:>11.2} {:>10.0} {:>8} {:>11.1} {:>7.0}x",
        row.shape,
        row.nodes,
        row.pods,
        row.bound,
        row.observe_ms,
        row.decide_ms,
        row.pods_per_s,
        row.peak_rss_mib,
        row.naive_ms,
        row.naive_ratio
    )
}

/// Prints how the results compare with the targets for two shared cores. Returns how many are missed.
pub(crate) fn print_targets(out: &mut impl Write, targets: &[Target]) -> io::Result<()> {
    writeln!(out)?;
    if targets.is_empty() {
        writeln!(out, "No target applies to these shapes.")?;
    }
    for target in targets {
        let Target { what, value, at_least, bound } = target;
        let word = if target.is_met() { "met   " } else { "MISSED" };
        let relation = if *at_least { "at least" } else { "at most" };
        writeln!(out, "{word} {what}: {value:.1} ({relation} {bound})")?;
    }
    Ok(())
}

/// A target.
pub(crate) struct Target {
    pub(crate) what: String,
    pub(crate) value: f64,
    /// The value must be at least the bound, or else at most.
    pub(crate) at_least: bool,
    pub(crate) bound: f64,
}

impl Target {
    fn is_met(&self) -> bool {
        if self.at_least { self.value >= self.bound } else { self.value <= self.bound }
    }
}

/// The targets that apply to these rows.
pub(crate) fn targets(rows: &[Row]) -> Vec<Target> {
    let of = |name: &str| rows.iter().find(|row| row.shape == name);
    let mut targets = Vec::new();
    let mut add = |what: &str, value: Option<f64>, at_least: bool, bound: f64| {
        let target = value.map(|value| Target { what: what.to_owned(), value, at_least, bound });
        targets.extend(target);
    };
    let speed = |name: &str| of(name).map(|row| row.pods_per_s);
    let time = |name: &str| of(name).map(|row| row.decide_ms);
    add("plain pods per second", speed("plain-10000"), true, 100_000.0);
    add("pods per second in 1000 gangs of 3", speed("gang-1000x3"), true, 200_000.0);
    add("pods per second in 3000 gangs of 3", speed("gang-3000x3"), true, 200_000.0);
    add("pods per second in 9 gangs of 1000", speed("gang-9x1000"), true, 200_000.0);
    for word in ["apart-by-host", "together-in-a-zone", "even-over-zones"] {
        add(&format!("a gang of 1000 {word}, ms"), time(&format!("gang-1x1000-{word}")), false, 1000.0);
    }
    add("plain pods per second with preferred affinity", speed("plain-10000-like-each-other"), true, 10_000.0);
    add("plain pods per second with preferred spread", speed("plain-10000-rather-even"), true, 10_000.0);
    for (word, shapes) in [("bound", "bound-claims"), ("first-consumer", "first-consumer-claims")] {
        add(
            &format!("plain pods per second with {word} claims"),
            speed(&format!("plain-10000-{shapes}")),
            true,
            50_000.0,
        );
    }
    for (name, words) in [("one-rack", "one rack"), ("one-rack-by-score", "the rack with the best score")] {
        let what = format!("pods per second in 2250 gangs of 4, each in {words}");
        add(&what, speed(&format!("gang-2250x4-in-{name}")), true, 200_000.0);
    }
    add("a gang of 5000 in three levels, ms", time("gang-in-levels-fills-5000-gpu-nodes"), false, 20.0);
    let no = time("gang-in-levels-impossible-on-5000-gpu-nodes");
    add("proving that a gang of 5000 does not fit in three levels, ms", no, false, 20.0);
    let (small, large) = ("gang-1x1000-in-levels-on-5000-nodes", "gang-1x1000-in-levels-on-50000-nodes");
    let growth = time(large).zip(time(small)).map(|(large, small)| large / small);
    add("a gang of 1000 in three levels on 50000 nodes over 5000", growth, false, 12.0);
    let ranks = |name: &str| of(name).and_then(|row| row.rank_ratio);
    let what = "levels between neighbours in rank over a random order, a gang of";
    add(&format!("{what} 1000"), ranks(small), false, 0.5);
    add(&format!("{what} 5000"), ranks("gang-in-levels-fills-5000-gpu-nodes"), false, 0.5);
    let overhead = rows.iter().find_map(|row| row.overhead_percent);
    add("overhead of 5000 nominations in one process, percent", overhead, false, 10.0);
    add("a gang of 5000, ms", time("gang-fills-5000-gpu-nodes"), false, 50.0);
    add("proving that a gang of 5000 does not fit, ms", time("gang-impossible-on-5000-gpu-nodes"), false, 20.0);
    let growth = time("gang-1x1000-on-50000-nodes").zip(time("gang-1x1000-on-5000-nodes"));
    let growth = growth.map(|(large, small)| large / small);
    add("a gang of 1000 on 50000 nodes over 5000", growth, false, 12.0);
    let held = of("held-150000-pods").map(|row| row.peak_rss_mib as f64).filter(|mib| *mib > 0.0);
    add("150000 pods and 5000 nodes, MiB", held, false, 300.0);
    targets
}
