//! One measurement: a new control plane, one case, one scheduler.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;

use super::cases::{Case, Start};
use super::contestants::Contestant;
use super::driver::Driver;
use super::plane::Plane;
use super::pod_recorder::{ObservedPods, PodRecorder};
use super::report::Measurement;
use super::writes::Writes;
use crate::bench::process::Process;

/// How long all binds may take. A scheduler that has not bound everything by then has failed, and the others are still
/// measured.
const BINDS_WITHIN: Duration = Duration::from_secs(900);
/// The scheduler is idle once nothing was written for so long.
const IDLE_AFTER: Duration = Duration::from_secs(3);
const IDLE_WITHIN: Duration = Duration::from_secs(120);
const POLL_EVERY: Duration = Duration::from_millis(100);
const REPORT_EVERY: Duration = Duration::from_secs(10);

/// Measures a scheduler.
pub(crate) async fn measure(program: &Path, case: Case, contestant: Contestant) -> anyhow::Result<Measurement> {
    let folder = std::env::temp_dir().join(format!("muster-bench-cluster-{}", std::process::id()));
    let report_progress = |what: &str| eprintln!("{:<13} {:<14} {what}", case.name, contestant.name());
    report_progress("starting a control plane");
    let plane = Plane::up(program, &folder, case.gate())?;
    let driver = Driver::connect(&plane.kubeconfig()).await?;
    driver.wait_for_account().await?;
    plane.stop_controllers()?;
    report_progress(&format!("creating {} nodes", case.nodes));
    driver.create_nodes(case).await?;
    let bench = Bench { case, contestant, plane, driver };
    let measurement = match case.start {
        Start::Live => bench.live().await?,
        Start::Backlog => bench.backlog().await?,
    };
    report_progress(&format!(
        "{:.1} s, {:.0} pods/s, {:.2} CPU-ms/pod",
        measurement.last_bind_s, measurement.pods_per_s, measurement.cpu_ms_per_pod
    ));
    Ok(measurement)
}

struct Bench {
    case: Case,
    contestant: Contestant,
    plane: Plane,
    driver: Driver,
}

/// The state when the measurement began.
struct StartState {
    at: Instant,
    cpu_seconds: f64,
    plane_cpu_seconds: f64,
    writes: Writes,
}

impl Bench {
    /// The scheduler is started, then pods are created: time counts from the first of them.
    async fn live(&self) -> anyhow::Result<Measurement> {
        let pod_recorder = PodRecorder::start(self.driver.client().clone(), self.case);
        let mut process = self.contestant.start(&self.plane, self.case)?;
        self.driver.wait_for_scheduler(self.case, self.contestant.scheduler_name()).await?;
        let writes = self.await_idle(&mut process).await?;
        pod_recorder.restart();
        let beginning = self.begin(process.usage()?.cpu_seconds, writes)?;
        tokio::try_join!(
            self.driver.create_pods(self.case, self.contestant.scheduler_name()),
            self.await_all_bound(&pod_recorder, &mut process),
        )?;
        self.finish(&pod_recorder, &mut process, beginning).await
    }

    /// All pods are created, then the scheduler is started: time counts from that.
    async fn backlog(&self) -> anyhow::Result<Measurement> {
        self.driver.create_pods(self.case, self.contestant.scheduler_name()).await?;
        let pod_recorder = PodRecorder::start(self.driver.client().clone(), self.case);
        let writes = self.writes().await?;
        let beginning = self.begin(0.0, writes)?;
        let mut process = self.contestant.start(&self.plane, self.case)?;
        self.await_all_bound(&pod_recorder, &mut process).await?;
        self.finish(&pod_recorder, &mut process, beginning).await
    }

    fn begin(&self, cpu_seconds: f64, writes: Writes) -> anyhow::Result<StartState> {
        Ok(StartState { at: Instant::now(), cpu_seconds, plane_cpu_seconds: self.plane.cpu_seconds()?, writes })
    }

    /// Waits until all pods are bound, or the time limit.
    async fn await_all_bound(&self, pod_recorder: &PodRecorder, process: &mut Process) -> anyhow::Result<()> {
        let (began, mut reported) = (Instant::now(), Instant::now());
        loop {
            process.check()?;
            let bound = pod_recorder.read(ObservedPods::bound)?;
            if bound >= self.case.pods() || began.elapsed() > BINDS_WITHIN {
                return Ok(());
            }
            if reported.elapsed() > REPORT_EVERY {
                reported = Instant::now();
                let (name, contestant) = (self.case.name, self.contestant.name());
                let seconds = began.elapsed().as_secs();
                eprintln!("{name:<13} {contestant:<14} {bound} of {} pods bound after {seconds} s", self.case.pods());
            }
            tokio::time::sleep(POLL_EVERY).await;
        }
    }

    async fn finish(
        &self,
        pod_recorder: &PodRecorder,
        process: &mut Process,
        from: StartState,
    ) -> anyhow::Result<Measurement> {
        let bound = pod_recorder.read(ObservedPods::bound)?;
        let now = if bound < self.case.pods() { self.writes().await? } else { self.await_idle(process).await? };
        let writes = now.since(&from.writes);
        let (usage, plane_cpu_seconds) = (process.usage()?, self.plane.cpu_seconds()?);
        let pods = bound.max(1) as f64;
        pod_recorder.read(|seen| {
            let since = |moment: Option<Instant>| {
                moment.map_or(0.0, |moment| moment.saturating_duration_since(from.at).as_secs_f64())
            };
            Measurement {
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

    /// Waits until the scheduler stops writing.
    async fn await_idle(&self, process: &mut Process) -> anyhow::Result<Writes> {
        let began = Instant::now();
        let (mut writes, mut last_change) = (self.writes().await?, Instant::now());
        while last_change.elapsed() < IDLE_AFTER {
            process.check()?;
            if began.elapsed() > IDLE_WITHIN {
                bail!("it still writes {} s after the last bind", IDLE_WITHIN.as_secs());
            }
            tokio::time::sleep(IDLE_AFTER / 6).await;
            let now = self.writes().await?;
            if now != writes {
                (writes, last_change) = (now, Instant::now());
            }
        }
        Ok(writes)
    }
}
