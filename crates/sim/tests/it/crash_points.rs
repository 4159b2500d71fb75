//! Muster dies after each single write of a start with volumes.
//!
//! `MUSTER_TIER=all` also has volumes come while no process runs, and the next process die, too.

use std::collections::BTreeSet;
use std::time::Duration;

use muster_sim::crash_points::{Case, Crash, run};
use muster_sim::tier::Tier;

/// Long enough for everything that was asked for to be there.
const LONG: Duration = Duration::from_secs(40);

/// Runs a case without a crash and then with one after each of its writes. Returns the writes.
fn enumerate(case: Case, crashes: &[(Duration, Option<usize>)]) -> Vec<String> {
    let writes = run(case, None).unwrap_or_else(|failure| panic!("{failure}")).writes;
    let mut failures = Vec::new();
    for after in 1..=writes.len() {
        for (pause, next_after) in crashes.iter().copied() {
            let crash = Crash { after, pause, next_after };
            failures.extend(run(case, Some(crash)).err().map(|failure| failure.to_string()));
        }
    }
    assert!(failures.is_empty(), "{} crashes fail\n{}", failures.len(), failures.join("\n\n"));
    writes
}

#[test]
fn start_with_volumes_survives_a_crash_at_every_write() {
    let writes = enumerate(Case::Bound, &[(Duration::ZERO, None), (LONG, None)]);
    let has = |part: &str| writes.iter().filter(|line| line.contains(part)).count();
    // Three nominations at least, three volumes, four claims, three binds.
    assert_eq!(
        (has("/persistentvolumes/"), has("/persistentvolumeclaims/"), has("/binding")),
        (3, 4, 3),
        "{writes:#?}"
    );
    let kinds: BTreeSet<&str> = writes.iter().filter_map(|line| line.split('/').nth_back(1)).collect();
    assert!(kinds.len() > 3, "{kinds:?}");
}

#[test]
fn start_with_a_refused_volume_survives_a_crash_at_every_write() {
    enumerate(Case::Refused, in_tier(&[(Duration::ZERO, None), (LONG, None)]));
}

#[test]
fn start_that_a_higher_priority_ends_survives_a_crash_at_every_write() {
    enumerate(Case::TakenOver, in_tier(&[(Duration::ZERO, None), (LONG, None)]));
}

#[test]
fn start_with_volumes_survives_two_crashes_in_a_row() {
    let crashes = [(Duration::ZERO, Some(1)), (Duration::ZERO, Some(4)), (Duration::from_secs(3), Some(4))];
    enumerate(Case::Bound, in_tier(&crashes));
}

/// The first of these in the short tier.
fn in_tier<T>(crashes: &[T]) -> &[T] {
    Tier::of_environment().pick(&crashes[..1], crashes)
}
