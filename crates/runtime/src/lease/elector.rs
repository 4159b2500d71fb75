//! The leader election as a pure state machine over reads and writes of the lease.
//!
//! A lease expires relative to when this process last saw it change, never by the dates in it. Every write carries the
//! resourceVersion that it builds on. The fence is at the start of the last renewal that is known to have succeeded
//! plus the renew deadline: any other process saw that renewal later, and waits longer. A write with an unknown outcome
//! is never trusted; the lease is read again.
//! An end is final: a process that lost the lease starts over with another identity.
//! Must not depend on clients, tokio or dates: `now` is the time since any fixed moment, and never runs backwards.

use std::time::Duration;

use super::LeaseSettings;

/// A lease as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LeaseState {
    pub(crate) resource_version: String,
    /// Empty if the lease is free.
    pub(crate) holder: String,
    /// The `leaseDurationSeconds` of the holder, if it is set.
    pub(crate) duration: Option<Duration>,
    pub(crate) transitions: i32,
}

/// A lease to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Write {
    /// The version that this builds on; `None` creates the lease.
    pub(crate) resource_version: Option<String>,
    pub(crate) holder: String,
    pub(crate) duration_seconds: i32,
    pub(crate) transitions: i32,
    /// The holder changes with this write.
    pub(crate) acquires: bool,
}

/// The next step. Requests are cancelled at their deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Read { give_up_at: Duration },
    Write { write: Write, give_up_at: Duration },
    Wait { until: Duration },
    End(End),
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Found(LeaseState),
    Missing,
    Failed,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Done(LeaseState),
    /// It may or may not have happened, or was rejected: only a read can show that.
    Unsure,
}

/// How leadership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No renewal succeeded before the renew deadline.
    DeadlinePassed,
    /// Another process holds the lease.
    TakenBy(String),
    /// The lease was deleted.
    Deleted,
    /// The lease was released, or was not held.
    Released,
    /// The release was not confirmed.
    ReleaseUnsure,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::DeadlinePassed => f.write_str("the lease could not be renewed in time"),
            End::TakenBy(holder) if holder.is_empty() => f.write_str("another client cleared the lease"),
            End::TakenBy(holder) => write!(f, "the lease is held by {holder}"),
            End::Deleted => f.write_str("the lease was deleted"),
            End::Released => f.write_str("the lease was released, if it was held"),
            End::ReleaseUnsure => f.write_str("the release of the lease was not confirmed; it expires by itself"),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Standby,
    Leading { write_until: Duration },
    Releasing { until: Duration },
    Ended(End),
}

/// Competes for a lease, holds it, releases it. One request at a time.
#[derive(Clone, Debug)]
pub(crate) struct Elector {
    identity: String,
    settings: LeaseSettings,
    phase: Phase,
    /// The lease as it was last seen, and since when it has been unchanged.
    lease: Option<(LeaseState, Duration)>,
    /// The lease does not exist (any more).
    missing: bool,
    /// Whether the known lease is current: no request that may have changed it was sent since.
    is_current: bool,
    /// The next read is not sent before this.
    read_at: Duration,
    /// When the last write was sent.
    written_at: Option<Duration>,
}

impl Elector {
    pub(crate) fn new(identity: &str, settings: LeaseSettings) -> Self {
        Self {
            identity: identity.to_owned(),
            settings,
            phase: Phase::Standby,
            lease: None,
            missing: false,
            is_current: false,
            read_at: Duration::ZERO,
            written_at: None,
        }
    }

    /// Until when this process may write; `None` if it may not.
    pub(crate) fn write_until(&self) -> Option<Duration> {
        match self.phase {
            Phase::Leading { write_until } => Some(write_until),
            Phase::Standby | Phase::Releasing { .. } | Phase::Ended(_) => None,
        }
    }

    /// Stops competing; a lease that is held, or may be, is released.
    pub(crate) fn release(&mut self, now: Duration) {
        let may_hold = match self.phase {
            Phase::Leading { .. } => true,
            Phase::Standby => self.written_at.is_some() && (!self.is_current || self.holds()),
            Phase::Releasing { .. } | Phase::Ended(_) => return,
        };
        if may_hold {
            self.phase = Phase::Releasing { until: now + self.settings.renew_deadline / 2 };
            self.written_at = None;
            self.read_at = now;
        } else {
            self.end(End::Released);
        }
    }

    /// The next step.
    pub(crate) fn next(&mut self, now: Duration) -> Step {
        match self.phase {
            Phase::Leading { write_until } if now >= write_until => self.end(End::DeadlinePassed),
            Phase::Releasing { until } if now >= until => self.end(End::ReleaseUnsure),
            _ => {}
        }
        if let Phase::Ended(end) = &self.phase {
            return Step::End(end.clone());
        }
        let (write_at, read_at) = (self.write_at(now), self.read_at());
        if write_at <= now {
            let write = self.write();
            self.written_at = Some(now);
            self.is_current = false;
            return Step::Write { write, give_up_at: self.give_up_at(now) };
        }
        if read_at <= now {
            return Step::Read { give_up_at: self.give_up_at(now) };
        }
        Step::Wait { until: self.clamp(write_at.min(read_at)) }
    }

    /// Handles the result of a read.
    pub(crate) fn on_read(&mut self, now: Duration, outcome: ReadOutcome) {
        self.read_at = now + self.settings.retry_period;
        match outcome {
            ReadOutcome::Failed => return,
            ReadOutcome::Missing => self.missing = true,
            ReadOutcome::Found(seen) => self.on_lease(now, seen),
        }
        self.is_current = true;
        let holder = self.lease.as_ref().map(|(seen, _)| seen.holder.clone()).unwrap_or_default();
        match self.phase {
            Phase::Leading { .. } if self.missing => self.end(End::Deleted),
            Phase::Leading { .. } if holder != self.identity => self.end(End::TakenBy(holder)),
            Phase::Releasing { .. } if !self.holds() => self.end(End::Released),
            _ => {}
        }
    }

    /// Handles the result of the write that began at `started`.
    pub(crate) fn on_written(&mut self, now: Duration, started: Duration, outcome: WriteOutcome) {
        let WriteOutcome::Done(seen) = outcome else {
            self.read_at = now;
            return;
        };
        self.is_current = true;
        self.on_lease(now, seen);
        match self.phase {
            Phase::Standby | Phase::Leading { .. } => {
                self.phase = Phase::Leading { write_until: started + self.settings.renew_deadline };
            }
            Phase::Releasing { .. } => self.end(End::Released),
            Phase::Ended(_) => {}
        }
    }

    fn end(&mut self, end: End) {
        self.phase = Phase::Ended(end);
    }

    fn on_lease(&mut self, now: Duration, seen: LeaseState) {
        self.missing = false;
        match &self.lease {
            Some((known, _)) if known.resource_version == seen.resource_version => {}
            _ => self.lease = Some((seen, now)),
        }
    }

    fn holds(&self) -> bool {
        !self.missing && self.lease.as_ref().is_some_and(|(seen, _)| seen.holder == self.identity)
    }

    /// When the lease should be written, if nothing new is learned before.
    fn write_at(&self, now: Duration) -> Duration {
        if !self.is_current {
            return Duration::MAX;
        }
        let not_before = self.written_at.map_or(now, |at| at + self.settings.retry_period);
        match (&self.phase, &self.lease) {
            (Phase::Standby, Some((seen, since))) if !seen.holder.is_empty() && seen.holder != self.identity => {
                // Also if the lease was deleted since: its holder may not know that yet.
                not_before.max(*since + seen.duration.unwrap_or(self.settings.lease_duration))
            }
            _ => not_before,
        }
    }

    fn read_at(&self) -> Duration {
        match self.phase {
            // The holder need not read the lease, unless the outcome of a write is unknown.
            Phase::Leading { .. } | Phase::Releasing { .. } if self.is_current => Duration::MAX,
            _ => self.read_at,
        }
    }

    fn write(&self) -> Write {
        let seen = self.lease.as_ref().map(|(seen, _)| seen);
        let transitions = seen.map_or(0, |seen| seen.transitions);
        let releases = matches!(self.phase, Phase::Releasing { .. });
        let acquires = !releases && !self.holds();
        let seconds = if releases { 1 } else { self.settings.lease_duration.as_secs() as i32 };
        Write {
            resource_version: seen.filter(|_| !self.missing).map(|seen| seen.resource_version.clone()),
            holder: if releases { String::new() } else { self.identity.clone() },
            duration_seconds: seconds,
            transitions: transitions.saturating_add(i32::from(acquires && seen.is_some())),
            acquires,
        }
    }

    fn give_up_at(&self, now: Duration) -> Duration {
        self.clamp(now + self.settings.renew_deadline / 2)
    }

    /// No request and no sleep lasts longer than the phase.
    fn clamp(&self, at: Duration) -> Duration {
        match self.phase {
            Phase::Leading { write_until: until } | Phase::Releasing { until } => at.min(until),
            Phase::Standby | Phase::Ended(_) => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn elector() -> Elector {
        Elector::new("me", LeaseSettings::default())
    }

    fn seen(version: &str, holder: &str) -> LeaseState {
        LeaseState {
            resource_version: version.to_owned(),
            holder: holder.to_owned(),
            duration: Some(s(15)),
            transitions: 3,
        }
    }

    fn read(elector: &mut Elector, now: Duration, outcome: ReadOutcome) {
        assert!(matches!(elector.next(now), Step::Read { .. }), "{:?}", elector.next(now));
        elector.on_read(now, outcome);
    }

    fn written(elector: &mut Elector, now: Duration) -> Write {
        match elector.next(now) {
            Step::Write { write, .. } => write,
            other => panic!("a write was expected, not {other:?}"),
        }
    }

    fn leader() -> Elector {
        let mut elector = elector();
        read(&mut elector, s(0), ReadOutcome::Missing);
        let write = written(&mut elector, s(0));
        assert_eq!((write.resource_version, write.transitions, write.acquires), (None, 0, true));
        elector.on_written(s(1), s(0), WriteOutcome::Done(seen("1", "me")));
        assert_eq!(elector.write_until(), Some(s(10)), "counted from the start of the request");
        elector
    }

    #[test]
    fn a_leader_renews_and_every_renewal_moves_the_fence() {
        let mut elector = leader();
        assert_eq!(elector.next(s(1)), Step::Wait { until: s(2) });
        let write = written(&mut elector, s(2));
        assert_eq!((write.resource_version.as_deref(), write.acquires, write.transitions), (Some("1"), false, 3));
        elector.on_written(s(3), s(2), WriteOutcome::Done(seen("2", "me")));
        assert_eq!(elector.write_until(), Some(s(12)));
    }

    #[test]
    fn an_unknown_outcome_is_read_again_and_never_trusted() {
        let mut elector = leader();
        written(&mut elector, s(2));
        elector.on_written(s(7), s(2), WriteOutcome::Unsure);
        read(&mut elector, s(7), ReadOutcome::Found(seen("2", "me")));
        assert_eq!(elector.write_until(), Some(s(10)), "a read does not move the fence");
        assert!(
            matches!(elector.next(s(7)), Step::Write { give_up_at, .. } if give_up_at == s(10)),
            "clamped to the fence"
        );
        elector.on_written(s(10), s(7), WriteOutcome::Unsure);
        assert_eq!(elector.next(s(10)), Step::End(End::DeadlinePassed));
        assert_eq!(elector.write_until(), None);
    }

    #[test]
    fn a_leader_that_finds_another_holder_or_no_lease_ends() {
        for (outcome, end) in [
            (ReadOutcome::Found(seen("9", "you")), End::TakenBy("you".to_owned())),
            (ReadOutcome::Missing, End::Deleted),
        ] {
            let mut elector = leader();
            written(&mut elector, s(2));
            elector.on_written(s(3), s(2), WriteOutcome::Unsure);
            read(&mut elector, s(3), outcome);
            assert_eq!(elector.next(s(3)), Step::End(end));
        }
    }

    #[test]
    fn a_candidate_waits_from_the_last_change_that_it_saw() {
        let mut elector = elector();
        read(&mut elector, s(100), ReadOutcome::Found(seen("1", "you")));
        assert_eq!(elector.next(s(100)), Step::Wait { until: s(102) });
        read(&mut elector, s(102), ReadOutcome::Found(seen("2", "you")));
        for now in (104..=116).step_by(2) {
            read(&mut elector, s(now), ReadOutcome::Found(seen("2", "you")));
        }
        assert_eq!(elector.next(s(116)), Step::Wait { until: s(117) });
        let write = written(&mut elector, s(117));
        assert_eq!((write.resource_version.as_deref(), write.acquires, write.transitions), (Some("2"), true, 4));
    }

    #[test]
    fn a_deleted_lease_is_respected_until_it_would_have_expired() {
        let mut elector = elector();
        read(&mut elector, s(0), ReadOutcome::Found(seen("1", "you")));
        read(&mut elector, s(2), ReadOutcome::Missing);
        assert_eq!(elector.next(s(2)), Step::Wait { until: s(4) });
        read(&mut elector, s(14), ReadOutcome::Missing);
        assert_eq!(written(&mut elector, s(15)).resource_version, None);
    }

    #[test]
    fn a_free_lease_is_taken_at_once_and_failures_are_paced() {
        let mut elector = elector();
        read(&mut elector, s(0), ReadOutcome::Failed);
        assert_eq!(elector.next(s(0)), Step::Wait { until: s(2) });
        read(&mut elector, s(2), ReadOutcome::Found(seen("1", "")));
        written(&mut elector, s(2));
        elector.on_written(s(2), s(2), WriteOutcome::Unsure);
        read(&mut elector, s(2), ReadOutcome::Found(seen("1", "")));
        assert_eq!(elector.next(s(2)), Step::Wait { until: s(4) }, "not in a tight loop");
    }

    #[test]
    fn a_release_leaves_an_empty_lease_of_one_second() {
        let mut elector = leader();
        elector.release(s(1));
        assert_eq!(elector.write_until(), None, "the fence closes first");
        let write = written(&mut elector, s(1));
        assert_eq!((write.holder.as_str(), write.duration_seconds, write.acquires), ("", 1, false));
        elector.on_written(s(1), s(1), WriteOutcome::Done(seen("2", "")));
        assert_eq!(elector.next(s(1)), Step::End(End::Released));
    }

    #[test]
    fn a_release_reads_first_if_the_last_write_is_unknown() {
        let mut elector = leader();
        written(&mut elector, s(2));
        elector.release(s(3));
        read(&mut elector, s(3), ReadOutcome::Found(seen("2", "me")));
        assert_eq!(written(&mut elector, s(3)).resource_version.as_deref(), Some("2"));
        elector.on_written(s(4), s(3), WriteOutcome::Unsure);
        assert_eq!(elector.next(s(9)), Step::End(End::ReleaseUnsure));

        let mut standby = self::elector();
        read(&mut standby, s(0), ReadOutcome::Found(seen("1", "you")));
        standby.release(s(1));
        assert_eq!(standby.next(s(1)), Step::End(End::Released));
    }
}
