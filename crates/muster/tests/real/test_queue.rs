//! The schedule of scenarios: what is left to run on each kind of cluster, and the control planes that run it.
//!
//! A control plane runs the test cases of one kind until none is left; then another is started for the kind with the
//! most work left. Must not depend on what is run, nor on how failures are handled.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use muster_controlplane::{Binary, Plane};
use muster_sim::scenario::{Carrier, Place, Report, Scenario, run};

use crate::cluster::add_gang_config;
use crate::cluster::config_of;
use crate::kinds::Kind;

/// A scenario in a carrier.
pub(crate) type TestCase<'a> = (&'a Scenario, Carrier);

/// The approximate time of a test case in addition to its `hold` steps.
const TEST_CASE_TIME: Duration = Duration::from_secs(5);
/// The approximate time to start a control plane.
const START_TIME: Duration = Duration::from_secs(15);
const NO_PANIC: &str = "no worker panics while holding the lock";

/// All test cases of one kind of cluster.
pub(crate) struct TestQueue<'a> {
    pub(crate) kind: Kind,
    pub(crate) binary: Binary,
    /// In reverse order: the last one runs next.
    waiting: Vec<TestCase<'a>>,
    pub(crate) finished: Vec<(TestCase<'a>, Report)>,
    /// How many control planes run it now.
    planes: u32,
    /// Why control planes could not be started.
    pub(crate) start_errors: Vec<String>,
}

impl<'a> TestQueue<'a> {
    /// A kind and its test cases; the longest run first.
    pub(crate) fn new(kind: Kind, binary: Binary, mut test_cases: Vec<TestCase<'a>>) -> Self {
        test_cases.sort_by_key(time_of);
        Self { kind, binary, waiting: test_cases, finished: Vec::new(), planes: 0, start_errors: Vec::new() }
    }

    /// The work of another control plane of this kind.
    fn work_per_plane(&self) -> Duration {
        self.waiting.iter().map(time_of).sum::<Duration>() / (self.planes + 1)
    }

    /// Whether another control plane would help. After a failed start there is no retry.
    fn needs_plane(&self) -> bool {
        // Managers need inotify instances of their own, and have few test cases.
        let may_have_more = !self.kind.managers && self.work_per_plane() > START_TIME;
        self.start_errors.is_empty() && !self.waiting.is_empty() && (self.planes == 0 || may_have_more)
    }

    /// How many test cases have not run.
    pub(crate) fn left(&self) -> usize {
        self.waiting.len()
    }
}

fn time_of((scenario, _): &TestCase) -> Duration {
    scenario.held_time() + TEST_CASE_TIME
}

/// Runs all queues on at most this many control planes at a time, and reports each when it is finished.
pub(crate) fn run_queues(queues: Vec<TestQueue>, planes: usize) -> Vec<TestQueue> {
    let began = Instant::now();
    let queues = Mutex::new(queues);
    thread::scope(|scope| {
        for _ in 0..planes {
            scope.spawn(|| {
                while let Some(index) = join(&queues) {
                    run_on_plane(&queues, index);
                    print_if_finished(&lock(&queues)[index], began);
                }
            });
        }
    });
    queues.into_inner().expect(NO_PANIC)
}

/// Joins the queue that needs a control plane most. A queue that gets only one control plane is served first, so that
/// it does not finish last.
fn join(queues: &Mutex<Vec<TestQueue>>) -> Option<usize> {
    let mut queues = lock(queues);
    let waiting_queues = queues.iter_mut().enumerate().filter(|(_, queue)| queue.needs_plane());
    let (index, queue) = waiting_queues.max_by_key(|(_, queue)| (queue.kind.managers, queue.work_per_plane()))?;
    queue.planes += 1;
    Some(index)
}

/// Runs test cases of one queue until none is left.
fn run_on_plane(queues: &Mutex<Vec<TestQueue>>, index: usize) {
    let (kind, binary) = {
        let queues = lock(queues);
        (queues[index].kind, queues[index].binary.clone())
    };
    match Plane::start(&binary, kind.profile, kind.arguments) {
        Ok(plane) => {
            if kind.managers {
                add_gang_config(&plane);
            }
            run_test_cases(queues, index, &place_of(&plane));
        }
        Err(error) => lock(queues)[index].start_errors.push(error.to_string()),
    }
    lock(queues)[index].planes -= 1;
}

fn run_test_cases(queues: &Mutex<Vec<TestQueue>>, index: usize, place: &Place) {
    loop {
        let next = lock(queues)[index].waiting.pop();
        let Some((scenario, carrier)) = next else { return };
        let report = run(scenario, carrier, place);
        lock(queues)[index].finished.push(((scenario, carrier), report));
    }
}

fn print_if_finished(queue: &TestQueue, began: Instant) {
    if queue.planes == 0 {
        let (name, seconds) = (queue.kind.name(), began.elapsed().as_secs());
        print_line(&format!("{name}: {} run, {} left, after {seconds} s", queue.finished.len(), queue.left()));
    }
}

/// Prints past the test harness, which hides the output of passing tests.
pub(crate) fn print_line(line: &str) {
    // Standard error may be closed.
    let _ = writeln!(std::io::stderr(), "{line}");
}

fn lock<'l, 'a>(queues: &'l Mutex<Vec<TestQueue<'a>>>) -> MutexGuard<'l, Vec<TestQueue<'a>>> {
    queues.lock().expect(NO_PANIC)
}

fn place_of(plane: &Plane) -> Place {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    Place::Cluster(runtime.block_on(config_of(plane)))
}
