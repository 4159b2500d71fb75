//! The lifecycle of a group: pending, starting, partially bound, started.
//!
//! Every change is a transition with its cause, in the table of [`Lifecycle::apply`]. Why a pending group waits is in
//! its
//! diagnosis, and whether it is being evicted or has completed in its members: that is derived, not stored here.

use crate::model::Millis;
use crate::model::group::{RecordedStart, Subset};

/// A start under way: some members may be bound, the minimum is not confirmed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StartAttempt {
    /// The minimum of each subset when the start was decided.
    pub(crate) quorum: Vec<u32>,
    /// When it was decided. It identifies the start on the stamps of its members.
    pub(crate) decided_ms: Millis,
    /// How long it may take.
    pub(crate) timeout_ms: Millis,
    /// When it is rolled back.
    pub(crate) deadline: Millis,
}

/// A start whose minimum was confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Confirmed {
    /// The minimum of each subset that was confirmed; zero for a group without a minimum.
    pub(crate) minimum: Vec<u32>,
    /// The minimum of each subset that the founders were placed for.
    pub(crate) decided: Vec<u32>,
    /// Members that were lost since, if it is below its minimum: the group is degraded.
    pub(crate) loss: Option<Loss>,
    /// Whether the API had recorded the start without its minimum: it is a guess from the members found so far.
    pub(crate) guessed: bool,
    /// When the start was decided; `None` if that is not known, or if no start was needed.
    pub(crate) decided_ms: Option<Millis>,
}

/// What a degraded group has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Loss {
    /// How many members were left when that was last reported.
    pub(crate) scheduled: u32,
    /// Whether the report was sent.
    pub(crate) reported: bool,
    /// When the remaining members are evicted, if the policy is `Evict`.
    pub(crate) eviction_at: Option<Millis>,
}

/// The state of a group between its first member and its last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lifecycle {
    /// No start is under way or confirmed.
    Pending {
        /// What the API has recorded of an earlier start. It counts when bound members are found.
        recorded: RecordedStart,
    },
    /// Members are placed, their minimum is not confirmed.
    Starting {
        attempt: StartAttempt,
        /// The earlier start with a lower minimum, or whose members must be replaced together.
        former: Option<Confirmed>,
    },
    /// Members below the minimum are bound and stay. No start is under way.
    PartiallyBound { former: Option<Confirmed> },
    /// The minimum was confirmed; with a loss, it is degraded.
    Started(Confirmed),
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::Pending { recorded: RecordedStart::None }
    }
}

/// Why a lifecycle changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The object was seen for the first time; the API has recorded this.
    Recorded(RecordedStart),
    /// A member is stamped as one that joined later, so the start that was found incomplete had been confirmed.
    FoundConfirmed { decided_ms: Millis },
    /// Members below the minimum were found bound, and none of them belongs to a start that can be rolled back.
    FoundBound,
    /// The object was replaced during a start, or cannot be used at its deadline: its members stay.
    StartKept,
    /// Members were placed, or found bound below the minimum: they must be confirmed.
    Placed(StartAttempt),
    /// The minimum of each subset is bound.
    Confirmed { minimum: Vec<u32>, now: Millis },
    /// Members of a recorded start were found. Its minimum, and whether that is a guess.
    FoundStarted { minimum: Vec<u32>, guessed: bool },
    /// The group has no minimum: it starts with its first member.
    WithoutMinimum { minimum: Vec<u32>, now: Millis },
    /// The deadline of the start has passed. Whether bound members stay.
    DeadlinePassed { kept: bool },
    /// A member could not be rolled back: it stays.
    RollBackRefused,
    /// A kubelet refused a founder before it ran: the start is open again.
    FounderRejected(StartAttempt),
    /// Nothing is left of the start, or the object was replaced: the next start is new.
    Ended,
    /// It had lost members, and the rest is deleted: the next start is new.
    GivenUp,
    /// The object was made for another owner: it is another group.
    Replaced,
    /// Everything has been listed, and no member of the recorded start is there.
    FormerNotFound,
}

impl Lifecycle {
    /// The table of transitions.
    pub(crate) fn apply(&mut self, cause: Cause) {
        let state = std::mem::take(self);
        *self = match (state, cause) {
            (Self::Pending { .. }, Cause::Recorded(recorded)) => Self::Pending { recorded },
            (state, Cause::FoundConfirmed { decided_ms }) if !state.has_confirmed(decided_ms) => {
                let recorded = RecordedStart::Confirmed { minimum: None, decided_ms: Some(decided_ms) };
                Self::Pending { recorded }
            }
            (Self::Pending { .. }, Cause::FoundBound) => Self::PartiallyBound { former: None },
            (state, Cause::Placed(attempt)) => {
                let former = state.into_confirmed().map(|former| Confirmed { guessed: false, ..former });
                Self::Starting { attempt, former }
            }
            (state, Cause::Confirmed { minimum, now }) => Self::Started(state.confirm(&minimum, now)),
            (state, Cause::FoundStarted { minimum, guessed }) => {
                let (loss, decided_ms) = (state.loss().copied(), state.decided_ms());
                // The founders of a start whose minimum is not known were placed for the present one at most.
                let decided = if guessed { Vec::new() } else { minimum.clone() };
                Self::Started(Confirmed { minimum, decided, loss, guessed, decided_ms })
            }
            (state, Cause::WithoutMinimum { minimum, now }) => {
                // A later start, should it become a gang, is distinguished from this one.
                let decided_ms = state.decided_ms().or(Some(now));
                Self::Started(match state.into_confirmed() {
                    Some(former) => Confirmed { minimum, ..former },
                    None => Confirmed { minimum, decided: Vec::new(), loss: None, guessed: false, decided_ms },
                })
            }
            (Self::Starting { former, .. }, Cause::DeadlinePassed { kept: true } | Cause::StartKept) => {
                Self::PartiallyBound { former }
            }
            (Self::Starting { former, .. }, Cause::DeadlinePassed { kept: false }) => {
                former.map_or_else(Self::default, Self::Started)
            }
            (state, Cause::RollBackRefused) if !matches!(state, Self::Starting { .. }) => {
                Self::PartiallyBound { former: state.into_confirmed() }
            }
            // It is not confirmed any more, and neither are the starts that it grew from.
            (_, Cause::FounderRejected(attempt)) | (Self::Starting { attempt, .. }, Cause::FormerNotFound) => {
                Self::Starting { attempt, former: None }
            }
            (_, Cause::GivenUp) => Self::Pending { recorded: RecordedStart::GivenUp },
            (_, Cause::Replaced) => Self::default(),
            // What the API has recorded counts until a start was confirmed.
            (state, Cause::Ended) if !state.is_pending() => Self::default(),
            (
                state,
                Cause::Recorded(_)
                | Cause::FoundConfirmed { .. }
                | Cause::FoundBound
                | Cause::StartKept
                | Cause::DeadlinePassed { .. }
                | Cause::RollBackRefused
                | Cause::Ended
                | Cause::FormerNotFound,
            ) => state,
        };
    }

    fn confirm(self, minimum: &[u32], now: Millis) -> Confirmed {
        // All members that were bound by now belong to a start that nobody decided. What is recorded without its time
        // may be about later ones too.
        let is_recorded = matches!(self.recorded(), RecordedStart::Confirmed { .. }) || self.is_minimum_unknown();
        let decided_ms = self.decided_ms().or((!is_recorded).then_some(now));
        let decided = self.attempt().map(|attempt| attempt.quorum.clone());
        let starts = decided.is_some();
        let former = self.into_confirmed();
        // Members that were only found, or are back, do not lower what was confirmed.
        let known = former.as_ref().filter(|_| !starts).map_or(&[][..], |former| &former.minimum);
        let raised = |(at, minimum): (usize, &u32)| *minimum.max(known.get(at).unwrap_or(&0));
        let minimum: Vec<u32> = minimum.iter().enumerate().map(raised).collect();
        let loss = former.as_ref().and_then(|former| former.loss);
        // Members that are found later may show that the recorded minimum was higher.
        let guessed = former.as_ref().is_some_and(|former| former.guessed);
        let former = former.map(|former| former.decided);
        let mut decided = decided.or_else(|| former.clone()).filter(|decided| !decided.is_empty());
        // The leaves of a tree start one after another.
        for (minimum, before) in decided.iter_mut().flatten().zip(former.iter().flatten()) {
            *minimum = if *minimum == 0 { *before } else { *minimum };
        }
        Confirmed { decided: decided.unwrap_or_else(|| minimum.clone()), minimum, loss, guessed, decided_ms }
    }

    /// When the start that it is about was decided: the one under way, or else the confirmed or recorded one.
    pub(crate) fn decided_ms(&self) -> Option<Millis> {
        match self {
            Self::Pending { recorded: RecordedStart::Confirmed { decided_ms, .. } } => *decided_ms,
            Self::Pending { recorded: RecordedStart::None | RecordedStart::GivenUp } => None,
            Self::Starting { attempt, .. } => Some(attempt.decided_ms),
            Self::PartiallyBound { former } => former.as_ref()?.decided_ms,
            Self::Started(confirmed) => confirmed.decided_ms,
        }
    }

    /// Whether the start that was decided at this time was confirmed, as far as it is known. A start that was recorded
    /// without its time counts for all: in doubt nothing is rolled back.
    pub(crate) fn has_confirmed(&self, decided_ms: Millis) -> bool {
        let (known, confirmed_ms) = match self {
            Self::Pending { recorded } => (matches!(recorded, RecordedStart::Confirmed { .. }), self.decided_ms()),
            _ => (self.confirmed().is_some(), self.confirmed().and_then(|confirmed| confirmed.decided_ms)),
        };
        known && confirmed_ms.is_none_or(|confirmed_ms| decided_ms <= confirmed_ms)
    }

    fn into_confirmed(self) -> Option<Confirmed> {
        match self {
            Self::Pending { .. } => None,
            Self::Starting { former, .. } | Self::PartiallyBound { former } => former,
            Self::Started(confirmed) => Some(confirmed),
        }
    }

    /// The start under way.
    pub(crate) fn attempt(&self) -> Option<&StartAttempt> {
        match self {
            Self::Starting { attempt, .. } => Some(attempt),
            _ => None,
        }
    }

    pub(crate) fn attempt_mut(&mut self) -> Option<&mut StartAttempt> {
        match self {
            Self::Starting { attempt, .. } => Some(attempt),
            _ => None,
        }
    }

    /// The start that was confirmed, also while a further one is under way.
    pub(crate) fn confirmed(&self) -> Option<&Confirmed> {
        match self {
            Self::Pending { .. } => None,
            Self::Starting { former, .. } | Self::PartiallyBound { former } => former.as_ref(),
            Self::Started(confirmed) => Some(confirmed),
        }
    }

    pub(crate) fn confirmed_mut(&mut self) -> Option<&mut Confirmed> {
        match self {
            Self::Pending { .. } => None,
            Self::Starting { former, .. } | Self::PartiallyBound { former } => former.as_mut(),
            Self::Started(confirmed) => Some(confirmed),
        }
    }

    /// The minimum of each subset that was confirmed; empty if it never started.
    pub(crate) fn reached(&self) -> &[u32] {
        self.confirmed().map_or(&[], |confirmed| &confirmed.minimum)
    }

    /// What the API has recorded of a start, as far as no member of it was found.
    pub(crate) fn recorded(&self) -> &RecordedStart {
        match self {
            Self::Pending { recorded } => recorded,
            Self::Starting { .. } | Self::PartiallyBound { .. } | Self::Started(_) => &RecordedStart::None,
        }
    }

    /// Whether the minimum of its start has to be guessed from the members that are there.
    pub(crate) fn is_minimum_unknown(&self) -> bool {
        match self {
            Self::Pending { recorded } => matches!(recorded, RecordedStart::Confirmed { minimum: None, .. }),
            _ => self.confirmed().is_some_and(|confirmed| confirmed.guessed),
        }
    }

    /// The members that were lost, if it is degraded.
    pub(crate) fn loss(&self) -> Option<&Loss> {
        self.confirmed()?.loss.as_ref()
    }

    pub(crate) fn loss_mut(&mut self) -> Option<&mut Loss> {
        self.confirmed_mut()?.loss.as_mut()
    }

    pub(crate) fn is_partially_bound(&self) -> bool {
        matches!(self, Self::PartiallyBound { .. })
    }

    /// Whether nothing of it has ever been placed by a start.
    pub(crate) fn is_pending(&self) -> bool {
        matches!(self, Self::Pending { .. })
    }

    /// The rules changed: carries over what was decided or confirmed, by subset name.
    pub(crate) fn set_rules(&mut self, old: &[Subset], new: &[Subset], is_tree: bool) {
        let position = |name: &str| old.iter().position(|rule| rule.name == name);
        let carry = |counts: &[u32], unknown: u32| -> Vec<u32> {
            let count = |rule: &Subset| position(&rule.name).and_then(|at| counts.get(at).copied()).unwrap_or(unknown);
            new.iter().map(count).collect()
        };
        // For a new subset nothing is confirmed, and a start under way must fill it too, but not a new leaf of a tree.
        let unknown = if is_tree { 0 } else { u32::MAX };
        if let Some(attempt) = self.attempt_mut() {
            attempt.quorum = carry(&attempt.quorum, unknown);
        }
        if let Some(confirmed) = self.confirmed_mut() {
            confirmed.minimum = carry(&confirmed.minimum, 0);
            if !confirmed.decided.is_empty() {
                // A start without a minimum stays one; any other start must fill a new subset too.
                let without_minimum = confirmed.decided.iter().all(|minimum| *minimum == 0);
                confirmed.decided = carry(&confirmed.decided, if without_minimum { 0 } else { unknown });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(minimum: u32) -> StartAttempt {
        StartAttempt { quorum: vec![minimum], decided_ms: 1, timeout_ms: 8, deadline: 9 }
    }

    fn recorded(decided_ms: Option<Millis>) -> RecordedStart {
        RecordedStart::Confirmed { minimum: None, decided_ms }
    }

    #[test]
    fn start_is_confirmed_or_ends_at_its_deadline() {
        let mut group = Lifecycle::default();
        group.apply(Cause::Placed(attempt(3)));
        assert_eq!(group.attempt(), Some(&attempt(3)));
        let mut failed = group.clone();
        failed.apply(Cause::DeadlinePassed { kept: false });
        assert_eq!(failed, Lifecycle::default());
        let mut kept = group.clone();
        kept.apply(Cause::DeadlinePassed { kept: true });
        assert_eq!(kept, Lifecycle::PartiallyBound { former: None });
        group.apply(Cause::Confirmed { minimum: vec![2], now: 0 });
        let Lifecycle::Started(confirmed) = &group else { panic!("{group:?}") };
        assert_eq!((&*confirmed.minimum, &*confirmed.decided), (&[2][..], &[3][..]));
        group.apply(Cause::Ended);
        assert_eq!(group, Lifecycle::default());
    }

    #[test]
    fn failed_raise_keeps_what_was_confirmed_before() {
        let mut group = Lifecycle::default();
        group.apply(Cause::Confirmed { minimum: vec![2], now: 0 });
        let before = group.clone();
        group.apply(Cause::Placed(attempt(4)));
        assert_eq!(group.reached(), [2]);
        group.apply(Cause::DeadlinePassed { kept: false });
        assert_eq!(group, before);
    }

    #[test]
    fn recorded_start_counts_until_a_start_was_confirmed_here() {
        let mut group = Lifecycle::default();
        group.apply(Cause::Recorded(recorded(Some(4))));
        group.apply(Cause::Ended);
        assert_eq!(*group.recorded(), recorded(Some(4)), "nothing of it was found yet");
        group.apply(Cause::FoundStarted { minimum: vec![2], guessed: false });
        assert_eq!((group.reached(), group.decided_ms()), (&[2][..], Some(4)));
        group.apply(Cause::Ended);
        assert_eq!(group, Lifecycle::default());
    }

    #[test]
    fn recorded_time_distinguishes_the_confirmed_start_from_a_later_one() {
        let mut group = Lifecycle::default();
        assert!(!group.has_confirmed(4), "nothing is recorded");
        group.apply(Cause::Recorded(recorded(Some(4))));
        assert!(group.has_confirmed(4) && !group.has_confirmed(5));
        group.apply(Cause::Recorded(recorded(None)));
        assert!(group.has_confirmed(5), "in doubt nothing is rolled back");
        group.apply(Cause::Ended);
        group.apply(Cause::Placed(attempt(2)));
        assert!(!group.has_confirmed(1));
        group.apply(Cause::Confirmed { minimum: vec![2], now: 0 });
        assert!(group.has_confirmed(1) && !group.has_confirmed(2));
    }

    #[test]
    fn stamp_of_a_later_member_shows_that_the_found_start_was_confirmed() {
        let mut group = Lifecycle::default();
        group.apply(Cause::Placed(attempt(2)));
        group.apply(Cause::FoundConfirmed { decided_ms: 1 });
        assert_eq!(group, Lifecycle::Pending { recorded: recorded(Some(1)) });
        group.apply(Cause::Confirmed { minimum: vec![2], now: 0 });
        let started = group.clone();
        group.apply(Cause::FoundConfirmed { decided_ms: 1 });
        assert_eq!(group, started, "it is known already");
        group.apply(Cause::FoundConfirmed { decided_ms: 7 });
        assert_eq!(group, Lifecycle::Pending { recorded: recorded(Some(7)) }, "a later one");
    }

    #[test]
    fn found_members_that_stay_are_partially_bound() {
        let mut group = Lifecycle::default();
        group.apply(Cause::FoundBound);
        assert_eq!(group, Lifecycle::PartiallyBound { former: None });
        group.apply(Cause::Placed(attempt(2)));
        group.apply(Cause::StartKept);
        assert_eq!(group, Lifecycle::PartiallyBound { former: None });
    }

    #[test]
    fn refused_founder_opens_the_start_again() {
        let mut group = Lifecycle::default();
        group.apply(Cause::Confirmed { minimum: vec![2], now: 0 });
        group.apply(Cause::FounderRejected(attempt(2)));
        assert_eq!((group.reached(), group.attempt()), (&[][..], Some(&attempt(2))));
        group.apply(Cause::Confirmed { minimum: vec![2], now: 0 });
        assert_eq!(group.reached(), [2]);
    }
}
