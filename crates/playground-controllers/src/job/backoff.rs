//! The backoff of a Job after pod failures: ten seconds, doubling, at most ten minutes.
//!
//! A success resets it. Must not depend on the clock: times are passed in.

use jiff::{SignedDuration, Timestamp};

use super::pod::{self, JobPod};

const WAIT_SECONDS_MIN: i64 = 10;
const WAIT_SECONDS_MAX: i64 = 600;

/// The consecutive failures, and when the last one was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Backoff {
    failures: i32,
    last: Option<Timestamp>,
}

impl Backoff {
    /// The record after these pods have terminated.
    pub(super) fn after(self, succeeded: &[&JobPod], failed: &[&JobPod]) -> Self {
        let failures = |since: Option<Timestamp>| {
            let times = failed.iter().map(|pod| pod::ended_at(pod));
            times.filter(move |time| since.is_none_or(|since| *time > since))
        };
        match succeeded.iter().map(|pod| pod::ended_at(pod)).max() {
            None if failed.is_empty() => self,
            None => Self { failures: self.failures.saturating_add(failed.len() as i32), last: failures(None).max() },
            last_success => {
                Self { failures: failures(last_success).count() as i32, last: failures(last_success).max() }
            }
        }
    }

    /// How long until the next pod may be created.
    pub(super) fn remaining(&self, now: Timestamp) -> SignedDuration {
        self.last.map_or(SignedDuration::ZERO, |last| remaining(self.failures, last, now))
    }
}

/// How long until the index of this failed pod may be retried.
pub(super) fn remaining_for_index(failed: &JobPod, now: Timestamp) -> SignedDuration {
    let (counted, ignored) = pod::earlier_failures(failed);
    remaining(counted.saturating_add(ignored).saturating_add(1), pod::ended_at(failed), now)
}

fn remaining(failures: i32, last: Timestamp, now: Timestamp) -> SignedDuration {
    if failures <= 0 {
        return SignedDuration::ZERO;
    }
    let doublings = (failures - 1).min(16) as u32;
    let wait_seconds = (WAIT_SECONDS_MIN << doublings).min(WAIT_SECONDS_MAX);
    (SignedDuration::from_secs(wait_seconds) - now.duration_since(last)).max(SignedDuration::ZERO)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn ended(second: i64) -> JobPod {
        let time = Timestamp::from_second(second).unwrap().to_string();
        let state = json!({"terminated": {"exitCode": 1, "finishedAt": time}});
        let status = json!({"containerStatuses": [{"name": "c", "restartCount": 0, "state": state}]});
        serde_json::from_value(json!({"status": status})).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn backoff_doubles_up_to_ten_minutes() {
        let mut record = Backoff::default();
        assert_eq!(record.remaining(at(0)), SignedDuration::ZERO);
        for expected in [10, 20, 40, 80, 160, 320, 600, 600] {
            record = record.after(&[], &[&ended(1000)]);
            assert_eq!(record.remaining(at(1000)).as_secs(), expected);
        }
        assert_eq!(record.remaining(at(1600)), SignedDuration::ZERO);
    }

    #[test]
    fn success_resets_the_backoff() {
        let record = Backoff::default().after(&[], &[&ended(10), &ended(20)]);
        assert_eq!(record.remaining(at(20)).as_secs(), 20);
        assert_eq!(record.after(&[&ended(30)], &[]), Backoff::default());
        let mixed = record.after(&[&ended(30)], &[&ended(25), &ended(40)]);
        assert_eq!(mixed, Backoff { failures: 1, last: Some(at(40)) });
    }

    #[test]
    fn index_has_its_own_backoff() {
        let mut pod = ended(100);
        assert_eq!(remaining_for_index(&pod, at(100)).as_secs(), 10);
        let counts = [(pod::INDEX_FAILURES, "1"), (pod::INDEX_FAILURES_IGNORED, "1")];
        pod.metadata.annotations = Some(counts.map(|(key, count)| (key.to_owned(), count.to_owned())).into());
        assert_eq!(remaining_for_index(&pod, at(105)).as_secs(), 35);
    }
}
