//! How the condition `Started` records the start of a group, and what a later process reads from it.
//!
//! The reason has the minimum in total, and the message when the start was decided and the minimum of each subset.
//! Must not depend on any dialect.

use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use muster_api::keys::conditions::STARTED;
use muster_api::wire::condition::Condition;
use muster_clock::millis;
use muster_engine::model::group::{RecordedStart, Subset, total_minimum};
use muster_engine::status::StartStatus;

use super::condition::Conditions;

/// The prefix of the reason that has the minimum with which a group started.
const WITH_MINIMUM: &str = "WithMinimum";
/// The reason where only the time of the start is recorded.
const WITH_UNKNOWN_MINIMUM: &str = "WithUnknownMinimum";
/// The reason of a group whose members were deleted after it had lost some.
const GIVEN_UP: &str = "GivenUp";
/// The message of a group of which nothing is left.
pub(crate) const NOTHING_LEFT: &str = "None of its pods has a node any more.";
const HAS_STARTED: &str = "The group has had its minimum";
/// What the message has before the time when that start was decided.
const DECIDED_AT: &str = ", in the start that was decided at ";
/// What the message has before the minimum of each subset.
const BY_SUBSET: &str = "; by subset: ";

/// Records whether the group has started.
pub(crate) fn write(conditions: &mut Conditions, start: &StartStatus) {
    match start {
        StartStatus::Unchanged => {}
        StartStatus::NotStarted => end(conditions, "NothingLeft", NOTHING_LEFT),
        StartStatus::Open => end(conditions, "StartsAnew", "The start failed: the group needs its minimum again."),
        StartStatus::GivenUp => conditions.unset(STARTED, GIVEN_UP, "What was left of it is deleted."),
        StartStatus::Started { minimum, decided_ms } => {
            let reason = format!("{WITH_MINIMUM}{}", total_minimum(minimum));
            conditions.set(STARTED, true, &reason, &message(minimum, *decided_ms));
        }
    }
}

/// Records that the start has ended, or that the group starts again after it was given up.
fn end(conditions: &mut Conditions, reason: &str, message: &str) {
    if conditions.get(STARTED).is_some_and(|shown| shown.is_true() || shown.reason == GIVEN_UP) {
        conditions.set(STARTED, false, reason, message);
    }
}

fn message(minimum: &[Subset], decided_ms: Option<u64>) -> String {
    let mut text = HAS_STARTED.to_owned();
    let decided = decided_ms.and_then(|ms| Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok());
    if let Some(decided) = decided {
        _ = write!(text, "{DECIDED_AT}{decided}");
    }
    if minimum.iter().any(|subset| !subset.name.is_empty()) {
        let subsets: Vec<String> =
            minimum.iter().map(|subset| format!("{} {}", subset.name, subset.min_member)).collect();
        _ = write!(text, "{BY_SUBSET}{}", subsets.join(", "));
    }
    text.push('.');
    text
}

/// The condition of a group whose start was decided at this time, for kinds that record nothing else about it.
pub(crate) fn started(decided: &Time) -> Condition {
    Condition {
        kind: STARTED.to_owned(),
        status: "True".to_owned(),
        reason: WITH_UNKNOWN_MINIMUM.to_owned(),
        message: message(&[], Some(millis(decided.0))),
        last_transition_time: Some(decided.clone()),
        ..Condition::default()
    }
}

/// The next whole second after the recorded start was decided, for kinds that record nothing else about it; if that is
/// not known, the time since which it has been recorded.
pub(crate) fn decided(conditions: &[Condition]) -> Option<Time> {
    let since = Condition::find(conditions, STARTED)?.last_transition_time.clone();
    match read(conditions, &[])? {
        RecordedStart::Confirmed { decided_ms: Some(decided_ms), .. } => {
            let second = i64::try_from(decided_ms.div_ceil(1_000)).ok()?;
            Timestamp::from_second(second).ok().map(Time).or(since)
        }
        RecordedStart::Confirmed { decided_ms: None, .. } => since,
        RecordedStart::None | RecordedStart::GivenUp => None,
    }
}

/// The start that the conditions record, for a group with these subsets; `None` if they say nothing about it.
pub(crate) fn read(conditions: &[Condition], subsets: &[Subset]) -> Option<RecordedStart> {
    let started = Condition::find(conditions, STARTED)?;
    if !started.is_true() {
        let given_up = started.reason == GIVEN_UP;
        return Some(if given_up { RecordedStart::GivenUp } else { RecordedStart::None });
    }
    // A message that was cut does not end in a full stop.
    let text = started.message.strip_suffix('.').unwrap_or_default();
    let (text, by_subset) = match text.split_once(BY_SUBSET) {
        Some((text, by_subset)) => (text, Some(by_subset)),
        None => (text, None),
    };
    let decided = text.split_once(DECIDED_AT).and_then(|(_, decided)| decided.parse().ok());
    let total = started.reason.strip_prefix(WITH_MINIMUM).and_then(|total| total.parse().ok());
    let minimum = match by_subset {
        Some(list) => list.split(", ").map(subset).collect(),
        None => total.and_then(|total| of_total(total, subsets)),
    };
    Some(RecordedStart::Confirmed { minimum, decided_ms: decided.map(millis) })
}

fn subset(text: &str) -> Option<Subset> {
    let (name, minimum) = text.rsplit_once(' ')?;
    Some(Subset { name: name.to_owned(), min_member: minimum.parse().ok()? })
}

/// The minimum of each subset, of which only the total is recorded.
fn of_total(total: u32, subsets: &[Subset]) -> Option<Vec<Subset>> {
    match subsets {
        [only] => Some(vec![Subset { name: only.name.clone(), min_member: total }]),
        _ => (total_minimum(subsets) == total).then(|| subsets.to_vec()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subset(name: &str, min_member: u32) -> Subset {
        Subset { name: name.to_owned(), min_member }
    }

    #[test]
    fn what_is_recorded_is_read_back() {
        for minimum in [vec![subset("", 3)], vec![subset("ps", 1), subset("worker", 4)], vec![subset("only", 0)]] {
            for decided_ms in [None, Some(0), Some(1_763_417_231_000), Some(1_763_417_231_123)] {
                let start = StartStatus::Started { minimum: minimum.clone(), decided_ms };
                let mut conditions = Conditions::from(&[], Timestamp::UNIX_EPOCH, 1);
                write(&mut conditions, &start);
                // The object may have another minimum by now.
                let subsets: Vec<Subset> = minimum.iter().map(|known| subset(&known.name, 9)).collect();
                let read = read(&conditions.into_list(), &subsets);
                assert_eq!(read, Some(start.recorded(&RecordedStart::None)));
            }
        }
    }

    #[test]
    fn end_of_a_start_is_recorded() {
        for (end, recorded) in [
            (StartStatus::NotStarted, RecordedStart::None),
            (StartStatus::Open, RecordedStart::None),
            (StartStatus::GivenUp, RecordedStart::GivenUp),
        ] {
            let mut conditions = Conditions::from(&[], Timestamp::UNIX_EPOCH, 1);
            write(&mut conditions, &end);
            assert_eq!(read(&conditions.clone().into_list(), &[]), None, "nothing is shown that never was");
            write(&mut conditions, &StartStatus::Started { minimum: vec![subset("", 3)], decided_ms: Some(7) });
            write(&mut conditions, &end);
            assert_eq!(read(&conditions.into_list(), &[]), Some(recorded));
        }
    }

    #[test]
    fn start_of_which_less_is_recorded_is_read_too() {
        let read = |reason: &str, message: &str, subsets: &[Subset]| {
            let condition = Condition {
                reason: reason.to_owned(),
                message: message.to_owned(),
                ..started(&Time(Timestamp::UNIX_EPOCH))
            };
            match read(&[condition], subsets) {
                Some(RecordedStart::Confirmed { minimum, decided_ms }) => (minimum, decided_ms),
                other => panic!("{other:?}"),
            }
        };
        let two = [subset("a", 1), subset("b", 2)];
        assert_eq!(read("WithMinimum3", "", &two), (Some(two.to_vec()), None));
        assert_eq!(read("WithMinimum4", "", &two), (None, None), "which subset has how much of it is not known");
        assert_eq!(read("WithMinimum4", "", &two[..1]), (Some(vec![subset("a", 4)]), None));
        assert_eq!(read("WithUnknownMinimum", "", &two), (None, None));
        let cut = format!("{HAS_STARTED}{DECIDED_AT}2026-01-01T00:00:00Z{BY_SUBSET}a 1, b 2, c…");
        assert_eq!(read("WithMinimum9", &cut, &two), (None, None));
    }
}
