//! One measurement: a fresh control plane, one case, one contestant.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::cases::{Case, Start};
use super::contestants::Contestant;
use super::driver::Driver;
use super::plane::Plane;
use super::report::Tally;
use super::witness::{Seen, Witness};
use super::writes::Writes;
use crate::bench::process::Process;

/// How long all binds may take. Who has not bound everything by then has lost, and the others are still measured.
const BINDS_WITHIN: Duration = Duration::from_secs(900);
/// Nothing more is written once nothing was written for so long.
const QUIET: Duration = Duration::from_secs(3);
const QUIET_WITHIN: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(100);
const TELL_EVERY: Duration = Duration::from_secs(10);

/// Measures a contestant.
pub(crate) async fn measure(program: &Path, case: Case, contestant: Contestant) -> anyhow::Result<Tally> {
    let folder = std::env::temp_dir().join(format!("muster-bench-cluster-{}", std::process::id()));
    let tell = |what: &str| eprintln!("{:<13} {:<14} {what}", case.name, contestant.name());
    tell("starts a control plane");
    let plane = Plane::up(program, &folder)?;
    let driver = Driver::connect(&plane.kubeconfig()).await?;
    driver.wait_for_account().await?;
    plane.stop_controllers()?;
    tell(&format!("makes {} nodes", case.nodes));
    driver.make_nodes(case).await?;
    let bench = Bench { case, contestant, plane, driver };
    let tally = match case.start {
        Start::Live => bench.live().await?,
        Start::Backlog => bench.backlog().await?,
    };
    tell(&format!(
        "{:.1} s, {:.0} pods/s, {:.2} CPU-ms/pod",
        tally.last_bind_s, tally.pods_per_s, tally.cpu_ms_per_pod
    ));
    Ok(tally)
}

struct Bench {
    case: Case,
    contestant: Contestant,
    plane: Plane,
    driver: Driver,
}

/// How things stood when time began.
struct Beginning {
    at: Instant,
    cpu_seconds: f64,
    plane_cpu_seconds: f64,
    writes: Writes,
}

impl Bench {
    /// The scheduler is there, then pods are made: time counts from the first of them.
    async fn live(&self) -> anyhow::Result<Tally> {
        let witness = Witness::start(self.driver.client().clone(), self.case);
        let mut process = self.contestant.start(&self.plane)?;
        self.driver.wait_for_scheduler(self.case, self.contestant.scheduler_name()).await?;
        let writes = self.quiet(&mut process).await?;
        witness.restart();
        let beginning = self.begin(process.usage()?.cpu_seconds, writes)?;
        tokio::try_join!(
            self.driver.make_pods(self.case, self.contestant.scheduler_name()),
            self.all_bound(&witness, &mut process),
        )?;
        self.tally(&witness, &mut process, beginning).await
    }

    /// All pods are there, then the scheduler is started: time counts from that.
    async fn backlog(&self) -> anyhow::Result<Tally> {
        self.driver.make_pods(self.case, self.contestant.scheduler_name()).await?;
        let witness = Witness::start(self.driver.client().clone(), self.case);
        let writes = self.writes().await?;
        let beginning = self.begin(0.0, writes)?;
        let mut process = self.contestant.start(&self.plane)?;
        self.all_bound(&witness, &mut process).await?;
        self.tally(&witness, &mut process, beginning).await
    }

    fn begin(&self, cpu_seconds: f64, writes: Writes) -> anyhow::Result<Beginning> {
        Ok(Beginning { at: Instant::now(), cpu_seconds, plane_cpu_seconds: self.plane.cpu_seconds()?, writes })
    }

    /// Waits until all pods are bound, or time is up.
    async fn all_bound(&self, witness: &Witness, process: &mut Process) -> anyhow::Result<()> {
        let (began, mut told) = (Instant::now(), Instant::now());
        loop {
            process.check()?;
            let bound = witness.look(Seen::bound)?;
            if bound >= self.case.pods() || began.elapsed() > BINDS_WITHIN {
                return Ok(());
            }
            if told.elapsed() > TELL_EVERY {
                told = Instant::now();
                let (name, contestant) = (self.case.name, self.contestant.name());
                let seconds = began.elapsed().as_secs();
                eprintln!("{name:<13} {contestant:<14} {bound} of {} pods bound after {seconds} s", self.case.pods());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn tally(&self, witness: &Witness, process: &mut Process, from: Beginning) -> anyhow::Result<Tally> {
        let bound = witness.look(Seen::bound)?;
        let now = if bound < self.case.pods() { self.writes().await? } else { self.quiet(process).await? };
        let writes = now.since(&from.writes);
        let (usage, plane_cpu_seconds) = (process.usage()?, self.plane.cpu_seconds()?);
        let pods = bound.max(1) as f64;
        witness.look(|seen| {
            let since = |moment: Option<Instant>| {
                moment.map_or(0.0, |moment| moment.saturating_duration_since(from.at).as_secs_f64())
            };
            Tally {
                case: self.case.name,
                contestant: self.contestant,
                pods: self.case.pods(),
                unbound_pods: self.case.pods() - bound,
                nodes: self.case.nodes,
                first_bind_s: since(seen.first_bind),
                last_bind_s: since(seen.last_bind),
                pods_per_s: pods / since(seen.last_bind),
                cpu_ms_per_pod: (usage.cpu_seconds - from.cpu_seconds) * 1000.0 / pods,
                plane_cpu_ms_per_pod: (plane_cpu_seconds - from.plane_cpu_seconds) * 1000.0 / pods,
                memory_mib_peak: usage.rss_mib_peak,
                writes_per_pod: writes.sum() as f64 / pods,
                partial_gangs: seen.partial.len(),
                overcommitted_nodes: seen.overcommitted.len(),
                moved_pods: seen.moved.len(),
                writes: writes.into_map(),
            }
        })
    }

    async fn writes(&self) -> anyhow::Result<Writes> {
        Ok(Writes::read(&self.driver.metrics().await?))
    }

    /// Waits until the scheduler writes nothing any more.
    async fn quiet(&self, process: &mut Process) -> anyhow::Result<Writes> {
        let began = Instant::now();
        let (mut writes, mut last_change) = (self.writes().await?, Instant::now());
        while last_change.elapsed() < QUIET {
            process.check()?;
            if began.elapsed() > QUIET_WITHIN {
                bail!("it still writes {} s after the last bind", QUIET_WITHIN.as_secs());
            }
            tokio::time::sleep(QUIET / 6).await;
            let now = self.writes().await?;
            if now != writes {
                (writes, last_change) = (now, Instant::now());
            }
        }
        Ok(writes)
    }
}
