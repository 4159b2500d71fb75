//! The kinds of faults and their probabilities.

use std::time::Duration;

use muster_determinism::random::Random;

use super::random_delay;

/// A fault of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The request reaches the server late.
    Delay(Duration),
    /// The response arrives late.
    ResponseDelayed(Duration),
    /// The connection breaks before the server receives the request.
    Lost,
    /// The server processes the request, and the connection breaks before the response.
    ResponseLost,
    /// The server processes the request, and the response is 504.
    ResponseTimedOut,
    /// The response is a server error, without effect.
    Failed(ServerError),
    /// The response is 409, without effect.
    Conflict,
    /// The response is 403, without effect: an API server that has just started has not loaded all RBAC rules yet.
    Forbidden,
    /// The response is 422, without effect: an admission policy refuses the request.
    Invalid,
    /// The response is 429, without effect.
    Throttled {
        /// The value of `Retry-After`.
        retry_after_seconds: u32,
    },
    /// The response is 410, as if the requested revision had been compacted.
    Expired,
}

/// A server error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerError {
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504.
    TimedOut,
}

impl ServerError {
    pub(super) fn code(self) -> u16 {
        match self {
            ServerError::Internal => 500,
            ServerError::Unavailable => 503,
            ServerError::TimedOut => 504,
        }
    }

    pub(super) fn reason(self) -> &'static str {
        match self {
            ServerError::Internal => "InternalError",
            ServerError::Unavailable => "ServiceUnavailable",
            ServerError::TimedOut => "Timeout",
        }
    }
}

/// A fault of a watch, at one of its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamFault {
    /// The stream ends before the event.
    Cut,
    /// The connection breaks before the event.
    Broken,
    /// The stream has a 410 error in place of the event and ends.
    Expired,
    /// The event is delivered twice.
    Repeated,
    /// The event and all later ones are delivered late.
    Late(Duration),
}

/// The probabilities of faults in thousandths, for each request or each watch event. If they add up to more than a
/// thousand, the later ones never occur.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// [`Fault::Delay`] and [`Fault::ResponseDelayed`].
    pub delayed: u32,
    /// The longest delay of a request or an event.
    pub delay_max: Duration,
    /// [`Fault::Lost`].
    pub lost: u32,
    /// [`Fault::ResponseLost`].
    pub response_lost: u32,
    /// [`Fault::ResponseTimedOut`].
    pub response_timed_out: u32,
    /// [`Fault::Failed`].
    pub failed: u32,
    /// [`Fault::Conflict`], only for requests that change existing objects.
    pub conflicts: u32,
    /// [`Fault::Throttled`].
    pub throttled: u32,
    /// [`StreamFault::Cut`] and [`StreamFault::Broken`].
    pub cut: u32,
    /// [`StreamFault::Expired`], and [`Fault::Expired`] for requests at an older revision.
    pub expired: u32,
    /// [`StreamFault::Repeated`].
    pub repeated: u32,
    /// [`StreamFault::Late`].
    pub late: u32,
}

impl Plan {
    /// Every kind of fault: one request in ten is delayed, about one in ten fails.
    pub const STORM: Plan = Plan {
        delayed: 100,
        delay_max: Duration::from_millis(500),
        lost: 15,
        response_lost: 15,
        response_timed_out: 10,
        failed: 15,
        conflicts: 15,
        throttled: 15,
        cut: 10,
        expired: 3,
        repeated: 15,
        late: 50,
    };

    pub(super) fn draw(
        &self,
        random: &mut Random,
        changes_what_is_there: bool,
        asks_for_the_past: bool,
    ) -> Option<Fault> {
        let chances = [
            (self.delayed / 2, 0),
            (self.delayed.div_ceil(2), 1),
            (self.lost, 2),
            (self.response_lost, 3),
            (self.response_timed_out, 4),
            (self.failed, 5),
            (if changes_what_is_there { self.conflicts } else { 0 }, 6),
            (self.throttled, 7),
            (if asks_for_the_past { self.expired } else { 0 }, 8),
        ];
        Some(match pick(random, &chances)? {
            0 => Fault::Delay(random_delay(random, self.delay_max)),
            1 => Fault::ResponseDelayed(random_delay(random, self.delay_max)),
            2 => Fault::Lost,
            3 => Fault::ResponseLost,
            4 => Fault::ResponseTimedOut,
            5 => {
                let errors = [ServerError::Internal, ServerError::Unavailable, ServerError::TimedOut];
                Fault::Failed(errors[random.below(3) as usize])
            }
            6 => Fault::Conflict,
            8 => Fault::Expired,
            _ => Fault::Throttled { retry_after_seconds: 1 + random.below(3) as u32 },
        })
    }

    pub(super) fn draw_for_event(&self, random: &mut Random) -> Option<StreamFault> {
        let chances =
            [(self.cut / 2, 0), (self.cut.div_ceil(2), 1), (self.expired, 2), (self.repeated, 3), (self.late, 4)];
        Some(match pick(random, &chances)? {
            0 => StreamFault::Cut,
            1 => StreamFault::Broken,
            2 => StreamFault::Expired,
            3 => StreamFault::Repeated,
            _ => StreamFault::Late(random_delay(random, self.delay_max)),
        })
    }
}

/// One of the alternatives with these probabilities in thousandths, or none.
fn pick(random: &mut Random, chances: &[(u32, usize)]) -> Option<usize> {
    let mut drawn = random.below(1000);
    for (chance, thing) in chances {
        match drawn.checked_sub(u64::from(*chance)) {
            Some(rest) => drawn = rest,
            None => return Some(*thing),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_occur_with_planned_probability() {
        let mut random = Random::new(5);
        let plan = Plan { lost: 100, conflicts: 50, ..Plan::default() };
        let drawn: Vec<Fault> = (0..100_000).filter_map(|_| plan.draw(&mut random, true, false)).collect();
        let count = |fault: Fault| drawn.iter().filter(|drawn| **drawn == fault).count();
        assert!((9_500..10_500).contains(&count(Fault::Lost)), "{}", count(Fault::Lost));
        assert!((4_600..5_400).contains(&count(Fault::Conflict)), "{}", count(Fault::Conflict));
        assert_eq!(count(Fault::Lost) + count(Fault::Conflict), drawn.len());
        assert!((0..1000).all(|_| plan.draw(&mut random, false, false) != Some(Fault::Conflict)));
    }

    #[test]
    fn empty_plan_injects_no_faults() {
        let mut random = Random::new(5);
        assert!((0..1000).all(|_| Plan::default().draw(&mut random, true, true).is_none()));
        assert!((0..1000).all(|_| Plan::default().draw_for_event(&mut random).is_none()));
    }
}
