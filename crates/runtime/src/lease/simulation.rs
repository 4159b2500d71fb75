//! Electors against a lease in a bad world, from a seed: late and lost messages, processes that stand still or die, and
//! clocks that disagree. Never two open fences; and a lease that nobody renews is taken in time.

use std::collections::BTreeMap;
use std::time::Duration;

use muster_determinism::random::Random;

use super::LeaseSettings;
use super::elector::{Elector, ReadOutcome, Seen, Step, Write, WriteOutcome};

const SEEDS: u64 = 400;
const BAD_TIMES: Duration = Duration::from_secs(600);

/// A process: its elector, its clock, and what it waits for.
struct Process {
    elector: Elector,
    /// Its clock shows `offset + time * rate / 1000`.
    offset: Duration,
    rate: u32,
    /// The request that it waits for, whether it is a write, and its start by the process's clock.
    asked: Option<(u64, bool, Duration)>,
    alive: bool,
    /// It does nothing before this (by true time).
    stands_still_until: Duration,
}

/// What is on its way.
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

struct World {
    seed: u64,
    random: Random,
    now: Duration,
    events: BTreeMap<(Duration, u64), Event>,
    counter: u64,
    lease: Option<Seen>,
    version: u64,
    processes: Vec<Process>,
    bad: bool,
}

impl Process {
    fn clock(&self, now: Duration) -> Duration {
        self.offset + now * self.rate / 1000
    }

    /// True time of a moment on this process's clock, rounded up.
    fn true_time(&self, local: Duration) -> Duration {
        local.saturating_sub(self.offset) * 1000 / self.rate + Duration::from_micros(1)
    }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            seed,
            random: Random::new(seed),
            now: Duration::ZERO,
            events: BTreeMap::new(),
            counter: 0,
            lease: None,
            version: 0,
            processes: Vec::new(),
            bad: true,
        };
        for _ in 0..2 + seed % 2 {
            world.add_process();
        }
        world
    }

    fn add_process(&mut self) {
        let identity = format!("p{}", self.processes.len());
        self.processes.push(Process {
            elector: Elector::new(&identity, LeaseSettings::default()),
            offset: Duration::from_millis(self.random.below(1_000_000)),
            rate: 950 + self.random.below(101) as u32,
            asked: None,
            alive: true,
            stands_still_until: Duration::ZERO,
        });
        self.send(self.now, Event::Wake { process: self.processes.len() - 1 });
    }

    fn send(&mut self, at: Duration, event: Event) {
        self.counter += 1;
        self.events.insert((at, self.counter), event);
    }

    fn delay(&mut self) -> Duration {
        let most = if self.bad && self.random.per_mille(100) { 12_000 } else { 50 };
        Duration::from_millis(self.random.below(most))
    }

    fn is_lost(&mut self) -> bool {
        self.bad && self.random.per_mille(80)
    }

    /// One event; false if there is none before `end`.
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
                    self.happen(process, event);
                }
            }
        }
        self.check();
        true
    }

    fn happen(&mut self, index: usize, event: Event) {
        let process = &mut self.processes[index];
        if process.stands_still_until > self.now {
            let until = process.stands_still_until;
            self.send(until, event);
            return;
        }
        let clock = process.clock(self.now);
        match (event, process.asked) {
            (Event::GiveUp { request, .. }, Some((asked, writes, started))) if request == asked => {
                process.asked = None;
                if writes {
                    process.elector.on_written(clock, started, WriteOutcome::Unsure);
                } else {
                    process.elector.on_read(clock, ReadOutcome::Failed);
                }
            }
            (Event::Answer { request, answer, .. }, Some((asked, _, started))) if request == asked => {
                process.asked = None;
                match answer {
                    Answer::Read(outcome) => process.elector.on_read(clock, outcome),
                    Answer::Write(outcome) => process.elector.on_written(clock, started, outcome),
                }
            }
            _ => {}
        }
        if self.bad && self.random.per_mille(5) {
            let pause = Duration::from_millis(self.random.below(40_000));
            self.processes[index].stands_still_until = self.now + pause;
        }
        if self.bad && self.random.per_mille(3) {
            self.processes[index].alive = false;
            self.add_process();
            return;
        }
        if self.bad && self.random.per_mille(3) {
            self.processes[index].asked = None;
            self.processes[index].elector.release(clock);
        }
        self.drive(index, clock);
    }

    /// Does what the elector wants.
    fn drive(&mut self, index: usize, clock: Duration) {
        let process = &mut self.processes[index];
        if process.asked.is_some() {
            return;
        }
        let (write, give_up_at) = match process.elector.next(clock) {
            Step::Wait { until } => {
                let at = process.true_time(until);
                return self.send(at, Event::Wake { process: index });
            }
            Step::End(_) => {
                // It starts again as another.
                process.alive = false;
                return self.add_process();
            }
            Step::Read { give_up_at } => (None, give_up_at),
            Step::Write { write, give_up_at } => (Some(write), give_up_at),
        };
        self.counter += 1;
        let request = self.counter;
        let process = &mut self.processes[index];
        process.asked = Some((request, write.is_some(), clock));
        let give_up_at = process.true_time(give_up_at);
        self.send(give_up_at, Event::GiveUp { process: index, request });
        let arrives_at = self.now + self.delay();
        if !self.is_lost() {
            self.send(arrives_at, Event::Arrive { process: index, request, write });
        }
    }

    /// The server does a request, whether or not anybody still waits for it.
    fn arrive(&mut self, process: usize, request: u64, write: Option<Write>) {
        let answer = match write {
            None => Answer::Read(self.lease.clone().map_or(ReadOutcome::Missing, ReadOutcome::Found)),
            Some(write) => Answer::Write(self.take(write)),
        };
        let at = self.now + self.delay();
        if !self.is_lost() {
            self.send(at, Event::Answer { process, request, answer });
        }
    }

    fn take(&mut self, write: Write) -> WriteOutcome {
        let current = self.lease.as_ref().map(|lease| lease.resource_version.clone());
        if current != write.resource_version {
            return WriteOutcome::Unsure;
        }
        self.version += 1;
        let seen = Seen {
            resource_version: self.version.to_string(),
            holder: write.holder,
            duration: Some(Duration::from_secs(u64::try_from(write.duration_seconds).expect("not negative"))),
            transitions: write.transitions,
        };
        self.lease = Some(seen.clone());
        WriteOutcome::Done(seen)
    }

    /// Whose fence is open now.
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
fn never_two_open_fences_and_a_dead_leader_is_replaced_in_time() {
    let mut led = 0;
    for seed in 0..SEEDS {
        let mut world = World::new(seed);
        world.run_until(BAD_TIMES);
        // Good times come: whoever stands still goes on, and somebody leads before long.
        world.bad = false;
        for process in &mut world.processes {
            process.stands_still_until = Duration::ZERO;
        }
        world.run_until(world.now + Duration::from_secs(60));
        let leaders = world.leaders();
        assert_eq!(leaders.len(), 1, "seed {seed}: nobody leads in good times");
        led += world.processes.len();
        // The leader dies without a word.
        world.processes[leaders[0]].alive = false;
        let died = world.now;
        // By a clock that may be slow: lease duration, retry period, and a little for the messages.
        let settings = LeaseSettings::default();
        let within = (settings.lease_duration + settings.retry_period) * 100 / 95 + Duration::from_millis(500);
        while world.leaders().is_empty() {
            assert!(world.step(died + within), "seed {seed}: nobody led {within:?} after the leader died");
        }
    }
    assert!(led > SEEDS as usize * 4, "the world was not bad: only {led} processes in all");
}
