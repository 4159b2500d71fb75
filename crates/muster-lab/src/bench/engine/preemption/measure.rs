//! The measurement of one preemption shape: from observations to the evictions of the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use muster_engine::model::group::GroupKey;
use muster_engine::model::pod::{PodName, PodSpec};
use muster_engine::{Command, Config, DeleteOutcome, Engine, Observation, PreemptionRules};

use super::cluster;
use super::report::Row;
use super::shapes::{Preemptor, Shape};

/// Each shape runs so often; the fastest counts, because a shared machine only makes it slower.
const ROUNDS_MIN: usize = 3;
/// Short runs are repeated more often, since they are disturbed more easily.
const ROUNDS_MAX: usize = 200;
const ROUNDS_TOGETHER: Duration = Duration::from_secs(2);
/// The interval in milliseconds between two victims that leave.
const VICTIM_INTERVAL_MS: u64 = 10;

/// The result of one run.
#[derive(Default)]
struct Run {
    /// The time of each decision that attempted a pod or group.
    tries: Vec<Duration>,
    /// Observing and deciding together.
    took: Duration,
    groups: BTreeSet<GroupKey>,
    evicted: Vec<Arc<PodName>>,
    bound: usize,
}

/// Measures one shape.
pub(crate) fn measure(shape: &Shape) -> Row {
    let begin = Instant::now();
    let mut best = run(shape);
    let tenth = shape.tenth();
    let mut tenth_took = tenth.as_ref().map(|tenth| run(tenth).took);
    for number in 1..ROUNDS_MAX {
        if number >= ROUNDS_MIN && begin.elapsed() > ROUNDS_TOGETHER {
            break;
        }
        // Alternating, so that disturbances affect both alike.
        tenth_took = tenth.as_ref().map(|tenth| run(tenth).took).min(tenth_took);
        let round = run(shape);
        best.took = best.took.min(round.took);
        // All rounds make the same decisions, so each decision has its own fastest time.
        for (best, took) in best.tries.iter_mut().zip(round.tries) {
            *best = took.min(*best);
        }
    }
    let ms = |time: Duration| time.as_secs_f64() * 1000.0;
    Row {
        shape: shape.name.clone(),
        nodes: shape.nodes,
        pods: shape.pods,
        bound: best.bound,
        evicted_gangs: best.groups.len(),
        gangs_at_least: shape.gangs_at_least(),
        evicted_pods: best.evicted.len(),
        tries: best.tries.len(),
        decide_ms: ms(best.took),
        tenth_ms: tenth_took.map(ms),
        slowest_ms: ms(best.tries.iter().copied().max().unwrap_or_default()),
    }
}

fn run(shape: &Shape) -> Run {
    let preemption = PreemptionRules { on: true, ..PreemptionRules::default() };
    let mut engine = Engine::new(Config { preemption, ..Config::default() }).expect("a valid configuration");
    let mut run = Run::default();
    let running = cluster::running(shape);
    let pods = pods(&running);
    for observation in running {
        engine.observe(0, observation).expect("a valid observation");
    }
    run.decide(&mut engine, 0);
    run.tries.clear();
    let mut pending = cluster::pending(shape);
    let last = pending.pop().expect("there is a pending pod");
    for observation in pending {
        engine.observe(0, observation).expect("a valid observation");
    }
    let begin = Instant::now();
    engine.observe(0, last).expect("a valid observation");
    run.decide(&mut engine, 0);
    if shape.preemptor == Preemptor::Bound {
        run.remove_victims_one_by_one(&mut engine, &pods);
    }
    run.took = begin.elapsed();
    run
}

/// The observed pods, by UID.
fn pods(seen: &[Observation]) -> BTreeMap<String, PodSpec> {
    let pods = seen.iter().filter_map(|observation| match observation {
        Observation::PodSeen(pod) => Some((pod.id.uid.clone(), pod.clone())),
        _ => None,
    });
    pods.collect()
}

impl Run {
    /// Decides as long as there is something to decide now.
    fn decide(&mut self, engine: &mut Engine, now: u64) {
        while engine.next_wakeup().is_some_and(|due| due <= now) {
            let begin = Instant::now();
            let commands = engine.decide(now);
            if engine.last_attempt().is_some() {
                self.tries.push(begin.elapsed());
            }
            for command in commands {
                match command {
                    Command::Evict { pods, group, .. } => {
                        self.groups.extend(group);
                        self.evicted.extend(pods);
                    }
                    Command::Bind { .. } => self.bound += 1,
                    _ => {}
                }
            }
        }
    }

    /// Every victim is observed as terminating and then as deleted; the engine decides after each event, and once more
    /// at the end.
    fn remove_victims_one_by_one(&mut self, engine: &mut Engine, pods: &BTreeMap<String, PodSpec>) {
        let mut now = 0;
        let victims = self.evicted.clone();
        for pod in &victims {
            let done = Observation::EvictDone { pod: pod.clone(), outcome: DeleteOutcome::Deleted };
            let leaves = PodSpec { terminating: true, grace_period_ends_ms: Some(30_000), ..pods[&pod.uid].clone() };
            for observation in [done, Observation::PodSeen(leaves)] {
                engine.observe(now, observation).expect("a valid observation");
                self.decide(engine, now);
            }
        }
        for pod in &victims {
            now += VICTIM_INTERVAL_MS;
            engine.observe(now, Observation::PodGone { uid: pod.uid.clone() }).expect("a pod may go");
            self.decide(engine, now);
        }
        while let Some(due) = engine.next_wakeup().filter(|_| self.bound == 0) {
            self.decide(engine, due);
        }
    }
}
