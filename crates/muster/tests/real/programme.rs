//! The programme: what is left to play on each kind of cluster, and the planes that play it.
//!
//! A plane plays one kind until nothing of it is left; then there is room for another, of the kind that has most left. It
//! must not know what is to be played, nor what to make of a failure.

use std::io::Write as _;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use muster_controlplane::{Binary, Plane};
use muster_sim::scenario::{Carrier, Place, Report, Scenario, run};

use crate::cluster::config_of;
use crate::kinds::Kind;

/// A scenario in a carrier.
pub(crate) type Part<'a> = (&'a Scenario, Carrier);

/// What a part takes beside what it holds, about.
const PART_TIME: Duration = Duration::from_secs(5);
/// What the start of a plane takes, about.
const START_TIME: Duration = Duration::from_secs(15);
const NO_PANIC: &str = "no worker panics with it";

/// All that is played on one kind of cluster.
pub(crate) struct Bill<'a> {
    pub(crate) kind: Kind,
    pub(crate) binary: Binary,
    /// The next is the last.
    waiting: Vec<Part<'a>>,
    pub(crate) played: Vec<(Part<'a>, Report)>,
    /// How many planes play it now.
    planes: u32,
    /// Why planes could not be started.
    pub(crate) faults: Vec<String>,
}

impl<'a> Bill<'a> {
    /// A kind and its parts; those that take longest come first.
    pub(crate) fn new(kind: Kind, binary: Binary, mut parts: Vec<Part<'a>>) -> Self {
        parts.sort_by_key(time_of);
        Self { kind, binary, waiting: parts, played: Vec::new(), planes: 0, faults: Vec::new() }
    }

    /// What another plane of this kind would have to do.
    fn share(&self) -> Duration {
        self.waiting.iter().map(time_of).sum::<Duration>() / (self.planes + 1)
    }

    /// Whether another plane would be of use. Where one could not be started nobody tries again.
    fn needs_plane(&self) -> bool {
        // Managers have inotify instances of their own, and few parts.
        let may_have_more = !self.kind.managers && self.share() > START_TIME;
        self.faults.is_empty() && !self.waiting.is_empty() && (self.planes == 0 || may_have_more)
    }

    /// How many parts nobody has played.
    pub(crate) fn left(&self) -> usize {
        self.waiting.len()
    }
}

fn time_of((scenario, _): &Part) -> Duration {
    scenario.held_time() + PART_TIME
}

/// Plays all bills on so many planes at a time, and tells of each when it is over.
pub(crate) fn play(bills: Vec<Bill>, planes: usize) -> Vec<Bill> {
    let began = Instant::now();
    let bills = Mutex::new(bills);
    thread::scope(|scope| {
        for _ in 0..planes {
            scope.spawn(|| {
                while let Some(index) = join(&bills) {
                    play_on_plane(&bills, index);
                    tell_if_over(&look(&bills)[index], began);
                }
            });
        }
    });
    bills.into_inner().expect(NO_PANIC)
}

/// Joins the bill that needs a plane most. One that has a single plane would be the last if it were not the first.
fn join(bills: &Mutex<Vec<Bill>>) -> Option<usize> {
    let mut bills = look(bills);
    let needy = bills.iter_mut().enumerate().filter(|(_, bill)| bill.needs_plane());
    let (index, bill) = needy.max_by_key(|(_, bill)| (bill.kind.managers, bill.share()))?;
    bill.planes += 1;
    Some(index)
}

/// Plays parts of one bill until none waits.
fn play_on_plane(bills: &Mutex<Vec<Bill>>, index: usize) {
    let (kind, binary) = {
        let bills = look(bills);
        (bills[index].kind, bills[index].binary.clone())
    };
    match Plane::start(&binary, kind.profile, kind.arguments) {
        Ok(plane) => play_parts(bills, index, &place_of(&plane)),
        Err(error) => look(bills)[index].faults.push(error.to_string()),
    }
    look(bills)[index].planes -= 1;
}

fn play_parts(bills: &Mutex<Vec<Bill>>, index: usize, place: &Place) {
    loop {
        let next = look(bills)[index].waiting.pop();
        let Some((scenario, carrier)) = next else { return };
        let report = run(scenario, carrier, place);
        look(bills)[index].played.push(((scenario, carrier), report));
    }
}

fn tell_if_over(bill: &Bill, began: Instant) {
    if bill.planes == 0 {
        let (name, seconds) = (bill.kind.name(), began.elapsed().as_secs());
        tell(&format!("{name}: {} played, {} left, after {seconds} s", bill.played.len(), bill.left()));
    }
}

/// Says something past the harness, which shows nothing of tests that pass.
pub(crate) fn tell(words: &str) {
    // Nobody may be listening.
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn look<'l, 'a>(bills: &'l Mutex<Vec<Bill<'a>>>) -> MutexGuard<'l, Vec<Bill<'a>>> {
    bills.lock().expect(NO_PANIC)
}

fn place_of(plane: &Plane) -> Place {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    Place::Cluster(runtime.block_on(config_of(plane)))
}
