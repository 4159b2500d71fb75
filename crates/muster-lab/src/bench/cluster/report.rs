//! The results as a table with the schedulers side by side, and the targets below it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use super::contestants::Contestant;
use super::targets::Target;

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) scale: f64,
    #[serde(rename = "tallies")]
    pub(crate) measurements: Vec<Measurement>,
}

impl Report {
    /// The result of a scheduler for a case, if it was measured.
    pub(crate) fn find(&self, case: &str, contestant: Contestant) -> Option<&Measurement> {
        self.measurements.iter().find(|measurement| measurement.case == case && measurement.contestant == contestant)
    }
}

/// The result of one scheduler for one case.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measurement {
    pub(crate) case: &'static str,
    pub(crate) contestant: Contestant,
    pub(crate) pods: usize,
    /// Pods that were not bound at the time limit.
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
    for measurement in &report.measurements {
        if !case.is_empty() && case != measurement.case {
            writeln!(out)?;
        }
        case = measurement.case;
        writeln!(
            out,
            "{:<13} {:<14} {:>6} {:>8.2} {:>8.2} {:>7.0} {:>10.3} {:>13.2} {:>8.0} {:>10.3} {:>7} {:>9}",
            measurement.case,
            measurement.contestant.name(),
            measurement.pods,
            measurement.first_bind_s,
            measurement.last_bind_s,
            measurement.pods_per_s,
            measurement.cpu_ms_per_pod,
            measurement.plane_cpu_ms_per_pod,
            measurement.memory_mib_peak,
            measurement.writes_per_pod,
            measurement.partial_gangs,
            measurement.overcommitted_nodes,
        )?;
        if measurement.unbound_pods > 0 {
            writeln!(out, "{:<28} gave up with {} pods unbound", "", measurement.unbound_pods)?;
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
    for ours in report.measurements.iter().filter(|measurement| measurement.contestant == Contestant::Muster) {
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
