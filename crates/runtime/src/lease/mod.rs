//! Leader election by a Lease: one process writes, the others are on standby.
//!
//! `elector` decides (pure), `leadership` sends the requests and moves the fence.
//! Must not depend on what a leader does.

mod elector;
mod leadership;
#[cfg(test)]
mod simulation;

use std::time::Duration;

pub use elector::End;
pub use leadership::Leadership;

/// The lease that replicas compete for, and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseSettings {
    /// The namespace of the Lease.
    pub namespace: String,
    /// The name of the Lease.
    pub name: String,
    /// How long others wait after the last observed renewal before they take the lease. Whole seconds.
    pub lease_duration: Duration,
    /// How long after a renewal the leader may write.
    pub renew_deadline: Duration,
    /// The interval of renewals by the leader and of reads by the others.
    pub retry_period: Duration,
    /// How long the API server may leave a watch without any answer before the leader gives the lease back.
    pub watch_silence_max: Duration,
}

/// An idle watch may be without an answer until the API server closes it after five minutes.
const WATCH_SILENCE_MAX_MIN: Duration = Duration::from_secs(360);

impl Default for LeaseSettings {
    fn default() -> Self {
        Self {
            namespace: "muster-system".to_owned(),
            name: "muster".to_owned(),
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            watch_silence_max: Duration::from_secs(600),
        }
    }
}

/// Inconsistent times of a lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("leaderElection.{field}: {value:?}: {reason}")]
pub struct LeaseError {
    /// The setting.
    pub field: &'static str,
    /// Its value.
    pub value: Duration,
    /// The reason.
    pub reason: String,
}

impl LeaseSettings {
    /// Checks that the times never allow two leaders.
    pub fn validate(&self) -> Result<(), LeaseError> {
        let refuse = |field, value, reason: String| Err(LeaseError { field, value, reason });
        let Self { lease_duration, renew_deadline, retry_period, watch_silence_max, .. } = self;
        if lease_duration.is_zero() || lease_duration.subsec_nanos() != 0 {
            let reason = "must be whole seconds, at least one: the Lease object has no finer unit".to_owned();
            return refuse("leaseDuration", *lease_duration, reason);
        }
        if lease_duration.as_secs() > 86_400 {
            return refuse("leaseDuration", *lease_duration, "must not be more than a day".to_owned());
        }
        if renew_deadline >= lease_duration {
            let reason = format!(
                "must be less than leaseDuration ({lease_duration:?}), so that a leader stops before another may start"
            );
            return refuse("renewDeadline", *renew_deadline, reason);
        }
        if *retry_period < Duration::from_millis(10) {
            return refuse(
                "retryPeriod",
                *retry_period,
                "must be 10ms or more, to limit the load on the server".to_owned(),
            );
        }
        if *renew_deadline <= retry_period.mul_f64(1.2) {
            let reason = format!(
                "must be more than 1.2 times retryPeriod ({retry_period:?}), so that a renewal can be tried before it"
            );
            return refuse("renewDeadline", *renew_deadline, reason);
        }
        if *watch_silence_max < WATCH_SILENCE_MAX_MIN {
            let reason =
                format!("must be {WATCH_SILENCE_MAX_MIN:?} or more: idle watches can be silent nearly as long");
            return refuse("maxWatchSilence", *watch_silence_max, reason);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inconsistent_times_are_rejected_by_name() {
        LeaseSettings::default().validate().unwrap();
        let with = |lease_ms, renew_ms, retry_ms| {
            let settings = LeaseSettings {
                lease_duration: Duration::from_millis(lease_ms),
                renew_deadline: Duration::from_millis(renew_ms),
                retry_period: Duration::from_millis(retry_ms),
                ..LeaseSettings::default()
            };
            settings.validate().unwrap_err().to_string()
        };
        assert!(with(15_500, 10_000, 2_000).starts_with("leaderElection.leaseDuration: 15.5s: must be whole seconds"));
        assert!(with(0, 10_000, 2_000).starts_with("leaderElection.leaseDuration: 0ns"));
        assert!(with(10_000, 10_000, 2_000).starts_with("leaderElection.renewDeadline: 10s: must be less than"));
        assert!(with(15_000, 2_400, 2_000).starts_with("leaderElection.renewDeadline: 2.4s: must be more than 1.2"));
        assert!(with(15_000, 10_000, 0).starts_with("leaderElection.retryPeriod: 0ns"));
        let young = LeaseSettings { watch_silence_max: Duration::from_secs(300), ..LeaseSettings::default() };
        assert!(
            young.validate().unwrap_err().to_string().starts_with("leaderElection.maxWatchSilence: 300s: must be 360s")
        );
    }
}
