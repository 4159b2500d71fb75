//! A measured row, the table it stands in, and the targets it is held against.

use serde::{Deserialize, Serialize};

/// What was measured of one shape.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) shape: String,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
    /// Pods that were given a node.
    pub(crate) bound: usize,
    /// Showing the cluster to the engine.
    pub(crate) observe_ms: f64,
    /// Deciding.
    pub(crate) decide_ms: f64,
    pub(crate) pods_per_s: f64,
    pub(crate) peak_rss_mib: u64,
    /// The plain way: every node is looked at for every pod.
    pub(crate) naive_ms: f64,
    /// The plain way's time over ours.
    pub(crate) naive_ratio: f64,
    /// What the nominations of others cost, against the same shape without them in the same process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) overhead_percent: Option<f64>,
}

pub(crate) fn print_head() {
    println!(
        "{:<36} {:>7} {:>7} {:>7} {:>11} {:>11} {:>10} {:>8} {:>11} {:>8}",
        "shape", "nodes", "pods", "bound", "observe_ms", "decide_ms", "pods/s", "rss_mib", "naive_ms", "ratio"
    );
}

pub(crate) fn print_row(row: &Row) {
    println!(
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
    );
}

/// Says how the rows stand against what the engine is meant to reach on two shared cores.
pub(crate) fn print_targets(rows: &[Row]) {
    let of = |name: &str| rows.iter().find(|row| row.shape == name);
    let slowest = |prefix: &str| {
        let speeds = rows.iter().filter(|row| row.shape.starts_with(prefix)).map(|row| row.pods_per_s);
        speeds.min_by(f64::total_cmp)
    };
    println!();
    if let Some(row) = of("plain-10000") {
        line("plain pods per second", row.pods_per_s, ">=", 100_000.0);
    }
    for (name, prefix) in
        [("gangs of 3", "gang-1000x3"), ("gangs of 3", "gang-3000x3"), ("gangs of 1000", "gang-9x1000")]
    {
        if let Some(speed) = slowest(prefix) {
            line(&format!("pods per second in {name} ({prefix})"), speed, ">=", 200_000.0);
        }
    }
    if let Some(overhead) = rows.iter().find_map(|row| row.overhead_percent) {
        line("overhead of 5000 nominations, percent", overhead, "<=", 10.0);
    }
    if let Some(row) = of("gang-fills-5000-gpu-nodes") {
        line("gang of 5000, ms", row.decide_ms, "<=", 50.0);
    }
    if let Some(row) = of("gang-impossible-on-5000-gpu-nodes") {
        line("a proven no to a gang of 5000, ms", row.decide_ms, "<=", 20.0);
    }
    if let (Some(large), Some(small)) = (of("gang-1x1000-on-50000-nodes"), of("gang-1x1000-on-5000-nodes")) {
        line("a gang of 1000 on 50000 nodes over 5000", large.decide_ms / small.decide_ms, "<=", 12.0);
    }
    if let Some(row) = of("held-150000-pods") {
        line("150000 pods and 5000 nodes, MiB", row.peak_rss_mib as f64, "<=", 300.0);
    }
}

fn line(what: &str, value: f64, relation: &str, target: f64) {
    let met = if relation == ">=" { value >= target } else { value <= target };
    println!("{} {what}: {value:.1} (target {relation} {target})", if met { "met   " } else { "MISSED" });
}
