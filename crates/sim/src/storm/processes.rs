//! Muster processes of the simulation: one, or two that compete for a lease; they are started, crashed, stopped and
//! partitioned from the server.
//!
//! Each process has its own number, recorder and fault injection. Must not depend on what the processes decide.

use std::time::Duration;

use futures::FutureExt;
use muster_playground::faults::{Faults, Plan};
use muster_playground::random::Random;
use muster_runtime::{Clock, Fence, Leadership, LeaseSettings, Scheduler, Settings};
use tokio::task::JoinHandle;
use tower::Layer;

use super::recorder::{Actor, Recorder};

/// Deadline of a gang start; short, so that runs become quiescent soon.
pub(super) const SCHEDULE_TIMEOUT_MS: u64 = 60_000;
/// Reservations for starving gangs would keep fitting pods pending; they have their own tests.
const NEVER_STARVING_MS: u64 = 1_000_000_000;
/// No request gets through.
const CUT_OFF: Plan = Plan {
    lost: 1000,
    cut: 1000,
    delayed: 0,
    delay_max: Duration::ZERO,
    response_lost: 0,
    response_timed_out: 0,
    failed: 0,
    conflicts: 0,
    throttled: 0,
    expired: 0,
    repeated: 0,
    late: 0,
};
/// Number of yields after which all tasks of an aborted process have ended.
const SHUTDOWN_YIELDS: usize = 32;

enum Mode {
    Alone(Scheduler),
    Candidate(JoinHandle<()>),
}

struct Process {
    actor: Actor,
    faults: Faults,
    mode: Mode,
}

/// The process slots.
pub(super) struct Processes {
    recorder: Recorder,
    clock: Clock,
    plan: Plan,
    pair: bool,
    started: u32,
    /// One slot, or two.
    slots: Vec<Option<Process>>,
}

impl Processes {
    pub(super) fn new(recorder: Recorder, clock: Clock, plan: Plan, pair: bool) -> Self {
        let slots = if pair { vec![None, None] } else { vec![None] };
        Self { recorder, clock, plan, pair, started: 0, slots }
    }

    /// Starts a process in every slot without a running one.
    pub(super) fn start_all(&mut self, random: &mut Random) {
        for slot in 0..self.slots.len() {
            let over = match &self.slots[slot] {
                None => true,
                Some(Process { mode: Mode::Candidate(task), .. }) => task.is_finished(),
                Some(_) => false,
            };
            if over {
                if let Some(process) = self.slots[slot].take() {
                    self.recorder.ledger.borrow().process_ended(process.actor);
                }
                self.slots[slot] = Some(self.start(random));
            }
        }
    }

    fn start(&mut self, random: &mut Random) -> Process {
        self.started += 1;
        let actor = Actor::Muster(self.started);
        let faults = Faults::new(random.draw(), self.plan);
        let recorder = Recorder { actor, ..self.recorder.clone() };
        let client = kube::Client::new(faults.layer().layer(recorder), "default");
        let mut settings =
            Settings { identity: format!("muster-{}", self.started), check_invariants: true, ..Settings::default() };
        settings.engine.schedule_timeout_ms = SCHEDULE_TIMEOUT_MS;
        settings.engine.starving_after_ms = NEVER_STARVING_MS;
        self.recorder.ledger.borrow().note(&format!("{actor:?} starts"));
        let mode = if self.pair {
            let recorder = self.recorder.clone();
            Mode::Candidate(tokio::spawn(compete(client, settings, self.clock, actor, recorder)))
        } else {
            self.recorder.ledger.borrow().process_started(actor, Fence::open());
            let scheduler = Scheduler::start(&client, &settings, self.clock, Fence::open());
            Mode::Alone(scheduler.expect("the settings are valid"))
        };
        Process { actor, faults, mode }
    }

    /// Aborts a process without a graceful shutdown.
    pub(super) async fn crash(&mut self, slot: u64) {
        let slot = slot as usize % self.slots.len();
        let Some(process) = self.slots[slot].take() else { return };
        self.recorder.ledger.borrow().note(&format!("{:?} crashes", process.actor));
        match process.mode {
            Mode::Alone(scheduler) => scheduler.kill(),
            Mode::Candidate(task) => {
                task.abort();
                task.await.ok();
            }
        }
        for _ in 0..SHUTDOWN_YIELDS {
            tokio::task::yield_now().await;
        }
        self.recorder.ledger.borrow().process_ended(process.actor);
    }

    /// Stops a process gracefully.
    pub(super) async fn stop(&mut self, slot: u64) {
        let slot = slot as usize % self.slots.len();
        if !matches!(self.slots[slot], Some(Process { mode: Mode::Alone(_), .. })) {
            return self.crash(slot as u64).await;
        }
        let Some(Process { actor, mode: Mode::Alone(scheduler), .. }) = self.slots[slot].take() else { return };
        self.recorder.ledger.borrow().note(&format!("{actor:?} stops"));
        scheduler.stop().await;
        for _ in 0..SHUTDOWN_YIELDS {
            tokio::task::yield_now().await;
        }
        self.recorder.ledger.borrow().process_ended(actor);
    }

    /// Blocks or unblocks all requests of a process.
    pub(super) fn cut_off(&self, slot: u64, cut: bool) {
        if let Some(process) = &self.slots[slot as usize % self.slots.len()] {
            process.faults.set_plan(if cut { CUT_OFF } else { self.plan });
        }
    }

    /// Ends fault injection.
    pub(super) fn end_faults(&mut self) {
        self.plan = Plan::default();
        for process in self.slots.iter().flatten() {
            process.faults.set_plan(self.plan);
        }
    }

    /// Reports a violation if a component of Muster has ended by itself.
    pub(super) fn check(&mut self) {
        for process in self.slots.iter_mut().flatten() {
            if let Mode::Alone(scheduler) = &mut process.mode
                && scheduler.failed().now_or_never().is_some()
            {
                self.recorder
                    .ledger
                    .borrow()
                    .report_violation(&format!("a component of {:?} ended by itself", process.actor));
            }
        }
    }
}

/// Runs a candidate: it campaigns for the lease and schedules while it is the leader.
async fn compete(client: kube::Client, settings: Settings, clock: Clock, actor: Actor, recorder: Recorder) {
    let lease = LeaseSettings { namespace: "default".to_owned(), ..LeaseSettings::default() };
    let leadership =
        Leadership::start(client.clone(), lease, &settings.identity, clock).expect("the durations are valid");
    recorder.ledger.borrow().process_started(actor, leadership.fence());
    if leadership.wait_until_leading().await.is_err() {
        return;
    }
    recorder.ledger.borrow().note(&format!("{actor:?} leads"));
    let mut scheduler =
        Scheduler::start(&client, &settings, clock, leadership.fence()).expect("the settings are valid");
    tokio::select! {
        biased;
        end = leadership.lost() => recorder.ledger.borrow().note(&format!("{actor:?} no longer leads: {end}")),
        () = scheduler.failed() => recorder.ledger.borrow().report_violation(&format!("a component of {actor:?} ended by itself")),
    }
    scheduler.kill();
}
