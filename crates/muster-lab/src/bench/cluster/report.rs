//! What was measured, as a table with the contestants side by side, and the targets below it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::contestants::Contestant;
use super::targets::Target;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scale: f64,
    pub(crate) tallies: Vec<Tally>,
}

impl Report {
    /// What a contestant took for a case, if that was measured.
    pub(crate) fn find(&self, case: &str, contestant: Contestant) -> Option<&Tally> {
        self.tallies.iter().find(|tally| tally.case == case && tally.contestant == contestant)
    }
}

/// What one contestant took for one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tally {
    pub(crate) case: &'static str,
    pub(crate) contestant: Contestant,
    pub(crate) pods: usize,
    /// Pods that had no node when time was up.
    pub(crate) unbound_pods: usize,
    pub(crate) nodes: usize,
    pub(crate) first_bind_s: f64,
    pub(crate) last_bind_s: f64,
    pub(crate) pods_per_s: f64,
    pub(crate) cpu_ms_per_pod: f64,
    /// Of etcd and the API server.
    pub(crate) plane_cpu_ms_per_pod: f64,
    pub(crate) memory_mib_peak: f64,
    pub(crate) writes_per_pod: f64,
    pub(crate) partial_gangs: usize,
    pub(crate) overcommitted_nodes: usize,
    pub(crate) moved_pods: usize,
    /// By verb and resource.
    pub(crate) writes: BTreeMap<String, u64>,
}

pub(crate) fn print(out: &mut impl Write, report: &Report, targets: &[Target]) -> io::Result<()> {
    writeln!(
        out,
        "{:<13} {:<14} {:>6} {:>8} {:>8} {:>7} {:>10} {:>13} {:>8} {:>10} {:>7} {:>9}",
        "case",
        "scheduler",
        "pods",
        "first_s",
        "last_s",
        "pods/s",
        "cpu_ms/pod",
        "server_ms/pod",
        "peak_mib",
        "writes/pod",
        "partial",
        "overcomm."
    )?;
    let mut case = "";
    for tally in &report.tallies {
        if !case.is_empty() && case != tally.case {
            writeln!(out)?;
        }
        case = tally.case;
        writeln!(
            out,
            "{:<13} {:<14} {:>6} {:>8.2} {:>8.2} {:>7.0} {:>10.3} {:>13.2} {:>8.0} {:>10.3} {:>7} {:>9}",
            tally.case,
            tally.contestant.name(),
            tally.pods,
            tally.first_bind_s,
            tally.last_bind_s,
            tally.pods_per_s,
            tally.cpu_ms_per_pod,
            tally.plane_cpu_ms_per_pod,
            tally.memory_mib_peak,
            tally.writes_per_pod,
            tally.partial_gangs,
            tally.overcommitted_nodes,
        )?;
        if tally.unbound_pods > 0 {
            writeln!(out, "{:<28} gave up with {} pods unbound", "", tally.unbound_pods)?;
        }
    }
    writeln!(out)?;
    print_ratios(out, report)?;
    for target in targets {
        target.print(out)?;
    }
    Ok(())
}

fn print_ratios(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for ours in report.tallies.iter().filter(|tally| tally.contestant == Contestant::Muster) {
        for other in [Contestant::KubeScheduler, Contestant::NullBinder] {
            let Some(theirs) = report.find(ours.case, other) else { continue };
            writeln!(
                out,
                "{}: muster over {}: pods/s {:.2}, first bind {:.3}, CPU {:.3}, memory {:.3}, writes {:.2}",
                ours.case,
                other.name(),
                ours.pods_per_s / theirs.pods_per_s,
                ours.first_bind_s / theirs.first_bind_s,
                ours.cpu_ms_per_pod / theirs.cpu_ms_per_pod,
                ours.memory_mib_peak / theirs.memory_mib_peak,
                ours.writes_per_pod / theirs.writes_per_pod,
            )?;
        }
    }
    writeln!(out)
}
