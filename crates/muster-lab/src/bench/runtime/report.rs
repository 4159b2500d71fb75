//! The results of the runtime benchmark, as tables, and their targets.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::ledger::Counts;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) start: Start,
    #[serde(rename = "tallies")]
    pub(crate) batches: Vec<BatchCost>,
    /// The last of them again, by the null binder.
    #[serde(rename = "null_tallies")]
    pub(crate) null_binder_batches: Vec<BatchCost>,
    pub(crate) end_rss_mib: f64,
    pub(crate) end_rss_mib_peak: f64,
}

/// The start of a process on a cluster with a backlog.
#[derive(Debug, Serialize)]
pub(crate) struct Start {
    pub(crate) nodes: usize,
    pub(crate) bound_pods: usize,
    pub(crate) backlog_pods: u64,
    pub(crate) fill_seconds: f64,
    pub(crate) sync_seconds: f64,
    pub(crate) sync_cpu_seconds: f64,
    pub(crate) first_decision_cpu_seconds: f64,
    /// After the sync.
    pub(crate) first_bind_seconds: f64,
    /// After the sync.
    pub(crate) last_bind_seconds: f64,
    pub(crate) rss_mib: f64,
    pub(crate) rss_mib_peak: f64,
    #[serde(rename = "tally")]
    pub(crate) cost: BatchCost,
}

/// The cost of a batch.
#[derive(Debug, Serialize)]
pub(crate) struct BatchCost {
    pub(crate) name: String,
    pub(crate) pods: u64,
    pub(crate) seconds: f64,
    pub(crate) cpu_seconds: f64,
    pub(crate) binds: u64,
    /// Writes about groups: status and events.
    #[serde(rename = "group_words")]
    pub(crate) group_writes: u64,
    /// Writes of any other kind, by verb and resource.
    pub(crate) other_writes: BTreeMap<String, u64>,
    pub(crate) refused: BTreeMap<String, u64>,
}

impl BatchCost {
    pub(crate) fn of(name: &str, pods: u64, counts: &Counts, seconds: f64, cpu_seconds: f64) -> Self {
        let others = counts
            .requests
            .iter()
            .filter(|(request, _)| request.is_write() && !request.is_bind() && !request.is_group_report());
        Self {
            name: name.to_owned(),
            pods,
            seconds,
            cpu_seconds,
            binds: counts.sum(super::ledger::RequestKind::is_bind),
            group_writes: counts.sum(|request| request.is_write() && request.is_group_report()),
            other_writes: others
                .map(|(request, count)| (format!("{} {}", request.verb, request.resource), *count))
                .collect(),
            refused: counts.refused.clone(),
        }
    }

    fn others(&self) -> u64 {
        self.other_writes.values().sum()
    }

    fn writes_per_pod(&self) -> f64 {
        (self.binds + self.group_writes + self.others()) as f64 / self.pods as f64
    }

    fn binds_per_second(&self) -> f64 {
        self.pods as f64 / self.seconds
    }
}

pub(crate) fn print(out: &mut impl Write, report: &Report) -> io::Result<()> {
    let start = &report.start;
    writeln!(
        out,
        "{} nodes, {} bound pods, {} waiting in gangs (filled in {:.0} s)",
        start.nodes, start.bound_pods, start.backlog_pods, start.fill_seconds
    )?;
    writeln!(
        out,
        "sync {:.2} s, {:.2} CPU-s; then first bind {:.2} s, last bind {:.2} s; memory {:.0} MiB, peak {:.0} MiB; at the \
         end {:.0} MiB, peak {:.0} MiB",
        start.sync_seconds,
        start.sync_cpu_seconds,
        start.first_bind_seconds,
        start.last_bind_seconds,
        start.rss_mib,
        start.rss_mib_peak,
        report.end_rss_mib,
        report.end_rss_mib_peak,
    )?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<14} {:>7} {:>8} {:>8} {:>9} {:>8} {:>12} {:>7} {:>11}",
        "batch", "pods", "seconds", "binds/s", "cpu_ms/pod", "binds", "group_writes", "others", "writes/pod"
    )?;
    let all = std::iter::once(&start.cost).chain(&report.batches).chain(&report.null_binder_batches);
    for cost in all {
        writeln!(
            out,
            "{:<14} {:>7} {:>8.2} {:>8.0} {:>10.3} {:>8} {:>12} {:>7} {:>11.3}",
            cost.name,
            cost.pods,
            cost.seconds,
            cost.binds_per_second(),
            cost.cpu_seconds * 1000.0 / cost.pods as f64,
            cost.binds,
            cost.group_writes,
            cost.others(),
            cost.writes_per_pod(),
        )?;
        for (what, count) in cost.other_writes.iter().chain(&cost.refused) {
            writeln!(out, "{:<14}   {count} x {what}", "")?;
        }
    }
    writeln!(out)?;
    for (ours, null) in compared(report) {
        let ratio = ours.binds_per_second() / null.binds_per_second();
        writeln!(out, "{}: {:.2} of the null binder's rate", ours.name, ratio)?;
    }
    for target in targets(report) {
        target.print(out)?;
    }
    Ok(())
}

fn compared(report: &Report) -> impl Iterator<Item = (&BatchCost, &BatchCost)> {
    let skipped = report.batches.len() - report.null_binder_batches.len();
    report.batches.iter().skip(skipped).zip(&report.null_binder_batches)
}

struct Target {
    what: String,
    value: f64,
    at_most: f64,
}

impl Target {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let word = if self.value <= self.at_most { "met   " } else { "MISSED" };
        writeln!(out, "{word} {}: {:.1} (at most {})", self.what, self.value, self.at_most)
    }
}

fn targets(report: &Report) -> Vec<Target> {
    let start = &report.start;
    let target = |what: &str, value: f64, at_most: f64| Target { what: what.to_owned(), value, at_most };
    let watched = format!("{} nodes and {} pods watched", start.nodes, start.bound_pods);
    let mut targets = vec![
        target(&format!("{watched}, peak memory in MiB"), start.rss_mib_peak, 500.0),
        target("CPU-seconds from the start to the first decision", start.first_decision_cpu_seconds, 20.0),
        target("seconds from the sync to the first bind of the backlog", start.first_bind_seconds, 5.0),
    ];
    for cost in std::iter::once(&start.cost).chain(&report.batches) {
        let surplus = cost.binds.abs_diff(cost.pods) + cost.others();
        let name = &cost.name;
        targets.push(target(
            &format!("{name}: writes other than one bind for each pod, group status and events"),
            surplus as f64,
            0.0,
        ));
    }
    if let Some(gang) = report.batches.iter().find(|cost| cost.name == "gang-of-1000") {
        targets.push(target("gang-of-1000: writes on the group", gang.group_writes as f64, 10.0));
    }
    if let Some(plain) = report.batches.iter().find(|cost| cost.name == "plain-pods") {
        targets.push(target("plain pods: writes other than binds", plain.group_writes as f64, 0.0));
    }
    targets
}
