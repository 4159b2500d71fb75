//! Muster's processes: alone, or two that compete for a lease; started, crashed, stopped, and cut off.
//!
//! Each process has its own number, its own way to the server and its own faults. It must not know what they decide.

use std::time::Duration;

use futures::FutureExt;
use muster_playground::faults::{Faults, Plan};
use muster_playground::random::Random;
use muster_runtime::{Clock, Fence, Leadership, LeaseSettings, Scheduler, Settings};
use tokio::task::JoinHandle;
use tower::Layer;

use super::tap::{Actor, Tap};

/// A gang's start has this long, so that runs come to rest soon.
const SCHEDULE_TIMEOUT_MS: u64 = 60_000;
/// Claims on nodes would make pods wait that fit; they have tests of their own.
const NEVER_STARVING_MS: u64 = 1_000_000_000;
/// Nothing gets through.
const CUT_OFF: Plan = Plan {
    lost: 1000,
    cut: 1000,
    delayed: 0,
    delay_max: Duration::ZERO,
    answer_lost: 0,
    answer_timed_out: 0,
    failed: 0,
    conflicts: 0,
    throttled: 0,
    expired: 0,
    repeated: 0,
    late: 0,
};
/// What is left of an aborted process is gone after so many turns of the runtime.
const LAST_TURNS: usize = 32;

enum Life {
    Alone(Scheduler),
    Candidate(JoinHandle<()>),
}

struct Process {
    actor: Actor,
    faults: Faults,
    life: Life,
}

/// The processes.
pub(super) struct Crew {
    tap: Tap,
    clock: Clock,
    plan: Plan,
    pair: bool,
    started: u32,
    /// One slot, or two.
    slots: Vec<Option<Process>>,
}

impl Crew {
    pub(super) fn new(tap: Tap, clock: Clock, plan: Plan, pair: bool) -> Self {
        let slots = if pair { vec![None, None] } else { vec![None] };
        Self { tap, clock, plan, pair, started: 0, slots }
    }

    /// Starts whoever does not run.
    pub(super) fn start_all(&mut self, random: &mut Random) {
        for slot in 0..self.slots.len() {
            let over = match &self.slots[slot] {
                None => true,
                Some(Process { life: Life::Candidate(task), .. }) => task.is_finished(),
                Some(_) => false,
            };
            if over {
                if let Some(process) = self.slots[slot].take() {
                    self.tap.book.borrow().ended(process.actor);
                }
                self.slots[slot] = Some(self.start(random));
            }
        }
    }

    fn start(&mut self, random: &mut Random) -> Process {
        self.started += 1;
        let actor = Actor::Muster(self.started);
        let faults = Faults::new(random.draw(), self.plan);
        let tap = Tap { actor, ..self.tap.clone() };
        let client = kube::Client::new(faults.layer().layer(tap), "default");
        let mut settings =
            Settings { identity: format!("muster-{}", self.started), check_invariants: true, ..Settings::default() };
        settings.engine.schedule_timeout_ms = SCHEDULE_TIMEOUT_MS;
        settings.engine.starving_after_ms = NEVER_STARVING_MS;
        self.tap.book.borrow().note(&format!("{actor:?} starts"));
        let life = if self.pair {
            let tap = self.tap.clone();
            Life::Candidate(tokio::spawn(compete(client, settings, self.clock, actor, tap)))
        } else {
            self.tap.book.borrow().fenced(actor, Fence::open());
            let scheduler = Scheduler::start(&client, &settings, self.clock, Fence::open());
            Life::Alone(scheduler.expect("the settings are good"))
        };
        Process { actor, faults, life }
    }

    /// Ends a process in an instant.
    pub(super) async fn crash(&mut self, slot: u64) {
        let slot = slot as usize % self.slots.len();
        let Some(process) = self.slots[slot].take() else { return };
        self.tap.book.borrow().note(&format!("{:?} crashes", process.actor));
        match process.life {
            Life::Alone(scheduler) => scheduler.kill(),
            Life::Candidate(task) => {
                task.abort();
                task.await.ok();
            }
        }
        for _ in 0..LAST_TURNS {
            tokio::task::yield_now().await;
        }
        self.tap.book.borrow().ended(process.actor);
    }

    /// Lets a process end well.
    pub(super) async fn stop(&mut self, slot: u64) {
        let slot = slot as usize % self.slots.len();
        if !matches!(self.slots[slot], Some(Process { life: Life::Alone(_), .. })) {
            return self.crash(slot as u64).await;
        }
        let Some(Process { actor, life: Life::Alone(scheduler), .. }) = self.slots[slot].take() else { return };
        self.tap.book.borrow().note(&format!("{actor:?} stops"));
        scheduler.stop().await;
        for _ in 0..LAST_TURNS {
            tokio::task::yield_now().await;
        }
        self.tap.book.borrow().ended(actor);
    }

    /// Lets nothing through for a process from now on, or lets through again.
    pub(super) fn cut_off(&self, slot: u64, cut: bool) {
        if let Some(process) = &self.slots[slot as usize % self.slots.len()] {
            process.faults.set_plan(if cut { CUT_OFF } else { self.plan });
        }
    }

    /// No faults any more.
    pub(super) fn calm(&mut self) {
        self.plan = Plan::default();
        for process in self.slots.iter().flatten() {
            process.faults.set_plan(self.plan);
        }
    }

    /// A part of Muster that ends by itself is a fault of ours.
    pub(super) fn check(&mut self) {
        for process in self.slots.iter_mut().flatten() {
            if let Life::Alone(scheduler) = &mut process.life
                && scheduler.failed().now_or_never().is_some()
            {
                self.tap.book.borrow().wrong(&format!("a part of {:?} ended by itself", process.actor));
            }
        }
    }
}

/// The life of a process that leads while it holds the lease.
async fn compete(client: kube::Client, settings: Settings, clock: Clock, actor: Actor, tap: Tap) {
    let lease = LeaseSettings { namespace: "default".to_owned(), ..LeaseSettings::default() };
    let leadership = Leadership::start(client.clone(), lease, &settings.identity, clock).expect("the times are good");
    tap.book.borrow().fenced(actor, leadership.fence());
    if leadership.wait_until_leading().await.is_err() {
        return;
    }
    tap.book.borrow().note(&format!("{actor:?} leads"));
    let mut scheduler = Scheduler::start(&client, &settings, clock, leadership.fence()).expect("the settings are good");
    tokio::select! {
        biased;
        end = leadership.lost() => tap.book.borrow().note(&format!("{actor:?} leads no more: {end}")),
        () = scheduler.failed() => tap.book.borrow().wrong(&format!("a part of {actor:?} ended by itself")),
    }
    scheduler.kill();
}
