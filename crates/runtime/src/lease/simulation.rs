//! Simulates electors and a lease under random faults, from a seed: late and lost messages, processes that pause or
//! die, and clocks that disagree. There are never two open fences, and a lease that is not renewed is taken in time.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_determinism::random::Random;

use super::LeaseSettings;
use super::elector::{Elector, LeaseState, ReadOutcome, Step, Write, WriteOutcome};

const SEEDS: u64 = 400;
const FAULTY_TIME: Duration = Duration::from_secs(600);

/// A process: its elector, its clock, and its pending request.
struct Process {
    elector: Elector,
    /// Its clock shows `offset + time * rate / 1000`.
    offset: Duration,
    rate: u32,
    /// The pending request, whether it is a write, and its start by the process's clock.
    pending: Option<(u64, bool, Duration)>,
    alive: bool,
    /// It is paused until this time (true time).
    paused_until: Duration,
}

/// A scheduled event.
#[derive(Clone, Debug)]
enum Event {
    Wake { process: usize },
    GiveUp { process: usize, request: u64 },
    Arrive { process: usize, request: u64, write: Option<Write> },
    Answer { process: usize, request: u64, answer: Answer },
}

#[derive(Clone, Debug)]
enum Answer {
    Read(ReadOutcome),
    Write(WriteOutcome),
}

struct Simulation {
    seed: u64,
    random: Random,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    counter: u64,
    lease: Option<LeaseState>,
    version: u64,
    processes: Vec<Process>,
    faulty: bool,
}

impl Process {
    fn clock(&self, now: Duration) -> Duration {
        self.offset + now * self.rate / 1000
    }

    /// The true time of a moment on this process's clock, rounded up.
    fn true_time(&self, local: Duration) -> Duration {
        local.saturating_sub(self.offset) * 1000 / self.rate + Duration::from_micros(1)
    }
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut simulation = Self {
            seed,
            random: Random::new(seed),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            counter: 0,
            lease: None,
            version: 0,
            processes: Vec::new(),
            faulty: true,
        };
        for _ in 0..2 + seed % 2 {
            simulation.add_process();
        }
        simulation
    }

    fn add_process(&mut self) {
        let identity = format!("p{}", self.processes.len());
        self.processes.push(Process {
            elector: Elector::new(&identity, LeaseSettings::default()),
            offset: Duration::from_millis(self.random.below(1_000_000)),
            rate: 950 + self.random.below(101) as u32,
            pending: None,
            alive: true,
            paused_until: Duration::ZERO,
        });
        self.send(self.now, Event::Wake { process: self.processes.len() - 1 });
    }

    fn send(&mut self, at: Duration, event: Event) {
        self.counter += 1;
        self.events.insert((at, self.counter), event);
    }

    fn delay(&mut self) -> Duration {
        let most = if self.faulty && self.random.per_mille(100) { 12_000 } else { 50 };
        Duration::from_millis(self.random.below(most))
    }

    fn is_lost(&mut self) -> bool {
        self.faulty && self.random.per_mille(80)
    }

    /// Handles one event; false if there is none before `end`.
    fn step(&mut self, end: Duration) -> bool {
        let Some((&(at, number), _)) = self.events.first_key_value() else { return false };
        if at > end {
            return false;
        }
        let event = self.events.remove(&(at, number)).expect("it was just seen");
        self.now = at;
        match event {
            Event::Arrive { process, request, write } => self.arrive(process, request, write),
            Event::Wake { process } | Event::GiveUp { process, .. } | Event::Answer { process, .. } => {
                if self.processes[process].alive {
                    self.handle(process, event);
                }
            }
        }
        self.check();
        true
    }

    fn handle(&mut self, index: usize, event: Event) {
        let process = &mut self.processes[index];
        if process.paused_until > self.now {
            let until = process.paused_until;
            self.send(until, event);
            return;
        }
        let clock = process.clock(self.now);
        match (event, process.pending) {
            (Event::GiveUp { request, .. }, Some((pending, writes, started))) if request == pending => {
                process.pending = None;
                if writes {
                    process.elector.on_written(clock, started, WriteOutcome::Unsure);
                } else {
                    process.elector.on_read(clock, ReadOutcome::Failed);
                }
            }
            (Event::Answer { request, answer, .. }, Some((pending, _, started))) if request == pending => {
                process.pending = None;
                match answer {
                    Answer::Read(outcome) => process.elector.on_read(clock, outcome),
                    Answer::Write(outcome) => process.elector.on_written(clock, started, outcome),
                }
            }
            _ => {}
        }
        if self.faulty && self.random.per_mille(5) {
            let pause = Duration::from_millis(self.random.below(40_000));
            self.processes[index].paused_until = self.now + pause;
        }
        if self.faulty && self.random.per_mille(3) {
            self.processes[index].alive = false;
            self.add_process();
            return;
        }
        if self.faulty && self.random.per_mille(3) {
            self.processes[index].pending = None;
            self.processes[index].elector.release(clock);
        }
        self.drive(index, clock);
    }

    /// Performs the elector's next step.
    fn drive(&mut self, index: usize, clock: Duration) {
        let process = &mut self.processes[index];
        if process.pending.is_some() {
            return;
        }
        let (write, give_up_at) = match process.elector.next(clock) {
            Step::Wait { until } => {
                let at = process.true_time(until);
                return self.send(at, Event::Wake { process: index });
            }
            Step::End(_) => {
                // It is replaced by a process with another identity.
                process.alive = false;
                return self.add_process();
            }
            Step::Read { give_up_at } => (None, give_up_at),
            Step::Write { write, give_up_at } => (Some(write), give_up_at),
        };
        self.counter += 1;
        let request = self.counter;
        let process = &mut self.processes[index];
        process.pending = Some((request, write.is_some(), clock));
        let give_up_at = process.true_time(give_up_at);
        self.send(give_up_at, Event::GiveUp { process: index, request });
        let arrives_at = self.now + self.delay();
        if !self.is_lost() {
            self.send(arrives_at, Event::Arrive { process: index, request, write });
        }
    }

    /// The server handles a request, whether or not the process still waits for it.
    fn arrive(&mut self, process: usize, request: u64, write: Option<Write>) {
        let answer = match write {
            None => Answer::Read(self.lease.clone().map_or(ReadOutcome::Missing, ReadOutcome::Found)),
            Some(write) => Answer::Write(self.write_lease(write)),
        };
        let at = self.now + self.delay();
        if !self.is_lost() {
            self.send(at, Event::Answer { process, request, answer });
        }
    }

    fn write_lease(&mut self, write: Write) -> WriteOutcome {
        let current = self.lease.as_ref().map(|lease| lease.resource_version.clone());
        if current != write.resource_version {
            return WriteOutcome::Unsure;
        }
        self.version += 1;
        let seen = LeaseState {
            resource_version: self.version.to_string(),
            holder: write.holder,
            duration: Some(Duration::from_secs(u64::try_from(write.duration_seconds).expect("not negative"))),
            transitions: write.transitions,
        };
        self.lease = Some(seen.clone());
        WriteOutcome::Done(seen)
    }

    /// The processes with an open fence.
    fn leaders(&self) -> Vec<usize> {
        let open = |process: &Process| {
            process.alive && process.elector.write_until().is_some_and(|until| process.clock(self.now) < until)
        };
        (0..self.processes.len()).filter(|index| open(&self.processes[*index])).collect()
    }

    fn check(&self) {
        let leaders = self.leaders();
        assert!(leaders.len() <= 1, "seed {}: at {:?} the fences of {leaders:?} are open", self.seed, self.now);
    }

    fn run_until(&mut self, end: Duration) {
        while self.step(end) {}
        self.now = end;
    }
}

#[test]
fn there_are_never_two_open_fences_and_a_dead_leader_is_replaced_in_time() {
    let mut led = 0;
    for seed in 0..SEEDS {
        let mut simulation = Simulation::new(seed);
        simulation.run_until(FAULTY_TIME);
        // The faults end: paused processes go on, and one of them leads soon.
        simulation.faulty = false;
        for process in &mut simulation.processes {
            process.paused_until = Duration::ZERO;
        }
        simulation.run_until(simulation.now + Duration::from_secs(60));
        let leaders = simulation.leaders();
        assert_eq!(leaders.len(), 1, "seed {seed}: there is no leader without faults");
        led += simulation.processes.len();
        // The leader dies silently.
        simulation.processes[leaders[0]].alive = false;
        let died = simulation.now;
        // By a clock that may be slow: lease duration, retry period, and some time for the messages.
        let settings = LeaseSettings::default();
        let within = (settings.lease_duration + settings.retry_period) * 100 / 95 + Duration::from_millis(500);
        while simulation.leaders().is_empty() {
            assert!(simulation.step(died + within), "seed {seed}: no leader {within:?} after the last one died");
        }
    }
    assert!(led > SEEDS as usize * 4, "there were too few faults: only {led} processes in all");
}
