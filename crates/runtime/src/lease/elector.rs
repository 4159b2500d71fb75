//! Who may lead, decided from what was read and written: a pure state machine.
//!
//! Whether a lease has run out is judged by when this process last saw it change, never by the dates in it. Every write
//! carries the resourceVersion that it builds on. The fence stands at the start of the last renewal that is known to
//! have succeeded plus the renew deadline: whoever saw that renewal saw it later, and waits longer. A write whose
//! outcome is not known is never believed; the lease is read again.
//! An end is final: a process that lost the lease starts anew under another identity.
//! It must not know clients, tokio or dates: `now` is the time since any fixed moment, and never runs backwards.

use std::time::Duration;

use super::LeaseSettings;

/// A lease as it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) resource_version: String,
    /// Empty if nobody holds it.
    pub(crate) holder: String,
    /// How long the holder asked the others to wait; `None` if it did not say.
    pub(crate) duration: Option<Duration>,
    pub(crate) transitions: i32,
}

/// What to write.
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

/// What to do next. Requests are given up at their deadline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Read { give_up_at: Duration },
    Write { write: Write, give_up_at: Duration },
    Wait { until: Duration },
    End(End),
}

/// What became of a read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    Found(Seen),
    Missing,
    Failed,
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum WriteOutcome {
    Done(Seen),
    /// It may or may not have happened, or was refused: only a read can tell.
    Unsure,
}

/// How leadership ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// No renewal succeeded before the renew deadline.
    DeadlinePassed,
    /// Another process holds the lease.
    TakenBy(String),
    /// Somebody deleted the lease.
    Deleted,
    /// The lease was given back, or there was none to give back.
    Released,
    /// This process wanted to give the lease back and does not know whether it did.
    ReleaseUnsure,
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            End::DeadlinePassed => f.write_str("the lease could not be renewed in time"),
            End::TakenBy(holder) if holder.is_empty() => f.write_str("somebody took the lease away"),
            End::TakenBy(holder) => write!(f, "the lease is held by {holder}"),
            End::Deleted => f.write_str("the lease was deleted"),
            End::Released => f.write_str("the lease was given back, if it was held"),
            End::ReleaseUnsure => f.write_str("giving the lease back was not confirmed; it runs out by itself"),
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

/// Competes for a lease, holds it, gives it back. One request at a time.
#[derive(Clone, Debug)]
pub(crate) struct Elector {
    identity: String,
    settings: LeaseSettings,
    phase: Phase,
    /// The lease as it was last seen, and since when it has looked so.
    lease: Option<(Seen, Duration)>,
    /// The lease is not there (any more).
    missing: bool,
    /// Whether what is known may be built upon: nothing was sent since that may have changed it.
    sure: bool,
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
            sure: false,
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

    /// Stop competing; a lease that is held, or may be, is given back.
    pub(crate) fn release(&mut self, now: Duration) {
        let may_hold = match self.phase {
            Phase::Leading { .. } => true,
            Phase::Standby => self.written_at.is_some() && (!self.sure || self.holds()),
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

    /// What to do now.
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
            self.sure = false;
            return Step::Write { write, give_up_at: self.give_up_at(now) };
        }
        if read_at <= now {
            return Step::Read { give_up_at: self.give_up_at(now) };
        }
        Step::Wait { until: self.cut(write_at.min(read_at)) }
    }

    /// What became of a read.
    pub(crate) fn on_read(&mut self, now: Duration, outcome: ReadOutcome) {
        self.read_at = now + self.settings.retry_period;
        match outcome {
            ReadOutcome::Failed => return,
            ReadOutcome::Missing => self.missing = true,
            ReadOutcome::Found(seen) => self.learn(now, seen),
        }
        self.sure = true;
        let holder = self.lease.as_ref().map(|(seen, _)| seen.holder.clone()).unwrap_or_default();
        match self.phase {
            Phase::Leading { .. } if self.missing => self.end(End::Deleted),
            Phase::Leading { .. } if holder != self.identity => self.end(End::TakenBy(holder)),
            Phase::Releasing { .. } if !self.holds() => self.end(End::Released),
            _ => {}
        }
    }

    /// What became of the write that began at `started`.
    pub(crate) fn on_written(&mut self, now: Duration, started: Duration, outcome: WriteOutcome) {
        let WriteOutcome::Done(seen) = outcome else {
            self.read_at = now;
            return;
        };
        self.sure = true;
        self.learn(now, seen);
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

    fn learn(&mut self, now: Duration, seen: Seen) {
        self.missing = false;
        match &self.lease {
            Some((known, _)) if known.resource_version == seen.resource_version => {}
            _ => self.lease = Some((seen, now)),
        }
    }

    fn holds(&self) -> bool {
        !self.missing && self.lease.as_ref().is_some_and(|(seen, _)| seen.holder == self.identity)
    }

    /// When the lease should be written, if nothing else comes to be known.
    fn write_at(&self, now: Duration) -> Duration {
        if !self.sure {
            return Duration::MAX;
        }
        let not_before = self.written_at.map_or(now, |at| at + self.settings.retry_period);
        match (&self.phase, &self.lease) {
            (Phase::Standby, Some((seen, since))) if !seen.holder.is_empty() && seen.holder != self.identity => {
                // Also when the lease is gone since: whoever held it may not know that yet.
                not_before.max(*since + seen.duration.unwrap_or(self.settings.lease_duration))
            }
            _ => not_before,
        }
    }

    fn read_at(&self) -> Duration {
        match self.phase {
            // Who holds the lease needs no look at it, unless a write went astray.
            Phase::Leading { .. } | Phase::Releasing { .. } if self.sure => Duration::MAX,
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
        self.cut(now + self.settings.renew_deadline / 2)
    }

    /// No request and no sleep lasts longer than the phase.
    fn cut(&self, at: Duration) -> Duration {
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

    fn seen(version: &str, holder: &str) -> Seen {
        Seen { resource_version: version.to_owned(), holder: holder.to_owned(), duration: Some(s(15)), transitions: 3 }
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
    fn an_unknown_outcome_is_read_again_and_never_believed() {
        let mut elector = leader();
        written(&mut elector, s(2));
        elector.on_written(s(7), s(2), WriteOutcome::Unsure);
        read(&mut elector, s(7), ReadOutcome::Found(seen("2", "me")));
        assert_eq!(elector.write_until(), Some(s(10)), "a read does not move the fence");
        assert!(
            matches!(elector.next(s(7)), Step::Write { give_up_at, .. } if give_up_at == s(10)),
            "cut at the fence"
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
    fn a_lease_that_vanished_is_still_respected_until_it_would_have_run_out() {
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
    fn giving_back_leaves_an_empty_lease_of_one_second() {
        let mut elector = leader();
        elector.release(s(1));
        assert_eq!(elector.write_until(), None, "the fence closes first");
        let write = written(&mut elector, s(1));
        assert_eq!((write.holder.as_str(), write.duration_seconds, write.acquires), ("", 1, false));
        elector.on_written(s(1), s(1), WriteOutcome::Done(seen("2", "")));
        assert_eq!(elector.next(s(1)), Step::End(End::Released));
    }

    #[test]
    fn giving_back_looks_first_if_the_last_write_is_unsure() {
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
