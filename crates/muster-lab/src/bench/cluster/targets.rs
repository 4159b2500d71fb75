//! The targets of Muster compared with the other schedulers of the same run.

use std::io::{self, Write};

use super::cases::{BACKLOG, GANG_OF_5000, GANGS_OF_100, HOSTILE, NAMES, PLAIN, TOPOLOGY, VOLUMES};
use super::contestants::Contestant;
use super::report::{Measurement, Report};

/// Of the null binder's rate: a scheduler that reaches so much is limited by the server.
const OF_NULL_BINDER: f64 = 0.9;

/// A target.
#[derive(Debug)]
pub(crate) struct Target {
    what: String,
    value: f64,
    bound: Bound,
    /// An alternative: the share of the null binder's rate.
    of_null_binder: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Target {
    pub(crate) fn is_met(&self) -> bool {
        let met = match self.bound {
            Bound::AtLeast(bound) => self.value >= bound,
            Bound::AtMost(bound) => self.value <= bound,
        };
        met || self.of_null_binder.is_some_and(|part| part >= OF_NULL_BINDER)
    }

    pub(crate) fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let word = if self.is_met() { "met   " } else { "MISSED" };
        let bound = match self.bound {
            Bound::AtLeast(bound) => format!("at least {bound}"),
            Bound::AtMost(bound) => format!("at most {bound}"),
        };
        let or = self.of_null_binder.map(|part| format!("; or {OF_NULL_BINDER} of the null binder's: {part:.2}"));
        writeln!(out, "{word} {}: {:.3} ({bound}){}", self.what, self.value, or.unwrap_or_default())
    }
}

/// The targets of a report.
pub(crate) fn of(report: &Report) -> Vec<Target> {
    let mut targets = Vec::new();
    for case in NAMES {
        let Some(ours) = report.find(case, Contestant::Muster) else { continue };
        targets.push(violations(ours));
        if let Some(theirs) = report.find(case, Contestant::KubeScheduler) {
            let null_binder = report.find(case, Contestant::NullBinder);
            targets.extend(speed(ours, theirs, null_binder));
            targets.extend(efficiency(ours, theirs));
        }
    }
    targets
}

fn violations(ours: &Measurement) -> Target {
    let violations = ours.unbound_pods + ours.partial_gangs + ours.overcommitted_nodes + ours.moved_pods;
    Target {
        what: format!("{}: pods without a node, partial gangs, over-committed nodes, pods bound twice", ours.case),
        value: violations as f64,
        bound: Bound::AtMost(0.0),
        of_null_binder: None,
    }
}

fn speed(ours: &Measurement, theirs: &Measurement, null_binder: Option<&Measurement>) -> Option<Target> {
    let case = ours.case;
    let times = match case {
        PLAIN => 2.0,
        GANGS_OF_100 => 2.5,
        BACKLOG => 20.0,
        GANG_OF_5000 => 8.0,
        VOLUMES => 3.0,
        TOPOLOGY => 4.0,
        // However expensive a tenant makes its pods: never slower.
        _ if HOSTILE.contains(&case) => 1.0,
        _ => return None,
    };
    let (what, value, of_null_binder) = if case == BACKLOG {
        let part = null_binder.map(|null| null.first_bind_s / ours.first_bind_s);
        ("times sooner at the first bind", theirs.first_bind_s / ours.first_bind_s, part)
    } else {
        let part = null_binder.map(|null| ours.pods_per_s / null.pods_per_s);
        ("times the pods/s", ours.pods_per_s / theirs.pods_per_s, part)
    };
    Some(Target {
        what: format!("{case}: {what} of kube-scheduler"),
        value,
        bound: Bound::AtLeast(times),
        of_null_binder,
    })
}

fn efficiency(ours: &Measurement, theirs: &Measurement) -> [Target; 2] {
    let case = ours.case;
    let target = |what: &str, value: f64, at_most: f64| Target {
        what: format!("{case}: {what}, as a part of kube-scheduler's"),
        value,
        bound: Bound::AtMost(at_most),
        of_null_binder: None,
    };
    let (cpu_max, memory_max) = match case {
        _ if HOSTILE.contains(&case) => (1.0, 1.0),
        GANG_OF_5000 => (0.2, 0.1),
        _ => (0.2, 0.5),
    };
    [
        target("CPU time per pod", ours.cpu_ms_per_pod / theirs.cpu_ms_per_pod, cpu_max),
        target("peak memory", ours.memory_mib_peak / theirs.memory_mib_peak, memory_max),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(case: &'static str, contestant: Contestant, pods_per_s: f64) -> Measurement {
        Measurement {
            case,
            contestant,
            pods: 100,
            unbound_pods: 0,
            nodes: 10,
            first_bind_s: 100.0 / pods_per_s,
            last_bind_s: 100.0 / pods_per_s,
            pods_per_s,
            cpu_ms_per_pod: if contestant == Contestant::Muster { 0.5 } else { 5.0 },
            plane_cpu_ms_per_pod: 1.0,
            memory_mib_peak: if contestant == Contestant::Muster { 50.0 } else { 500.0 },
            writes_per_pod: 1.0,
            partial_gangs: 0,
            overcommitted_nodes: 0,
            moved_pods: 0,
            writes: std::collections::BTreeMap::new(),
        }
    }

    fn missed(measurements: Vec<Measurement>) -> Vec<String> {
        let targets = of(&Report { scale: 1.0, measurements });
        targets.into_iter().filter(|target| !target.is_met()).map(|target| target.what).collect()
    }

    #[test]
    fn rate_is_compared_with_kube_scheduler_or_the_null_binder() {
        let (kube, ours) =
            (measurement(PLAIN, Contestant::KubeScheduler, 100.0), measurement(PLAIN, Contestant::Muster, 150.0));
        let race = |null| missed(vec![kube.clone(), ours.clone(), measurement(PLAIN, Contestant::NullBinder, null)]);
        assert_eq!(race(300.0), ["plain: times the pods/s of kube-scheduler"]);
        assert!(race(160.0).is_empty());
        assert!(missed(vec![kube.clone(), measurement(PLAIN, Contestant::Muster, 201.0)]).is_empty());
        let slow = measurement(BACKLOG, Contestant::KubeScheduler, 10.0);
        assert_eq!(missed(vec![slow, measurement(BACKLOG, Contestant::Muster, 199.0)]).len(), 1);
    }

    #[test]
    fn violations_time_and_memory_count() {
        let kube = measurement(GANG_OF_5000, Contestant::KubeScheduler, 1.0);
        let ours = measurement(GANG_OF_5000, Contestant::Muster, 10.0);
        assert!(missed(vec![kube.clone(), ours.clone()]).is_empty());
        for bad in [
            Measurement { partial_gangs: 1, ..ours.clone() },
            Measurement { unbound_pods: 1, ..ours.clone() },
            Measurement { cpu_ms_per_pod: 1.1, ..ours.clone() },
            Measurement { memory_mib_peak: 51.0, ..ours.clone() },
        ] {
            assert_eq!(missed(vec![kube.clone(), bad]).len(), 1);
        }
    }
}
