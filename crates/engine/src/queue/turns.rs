//! Turns among namespaces: one whose attempts are expensive lets others of the same priority go first.
//!
//! Work is counted in steps, not in time, so that the same observations give the same order. After an expensive attempt
//! its namespace lets every other one go first until that has done as much work, or nobody else of this priority is
//! waiting (start-time fair queueing). So a pod of a namespace without expensive attempts waits for at most one of each
//! other namespace. Without expensive attempts the order of the queue holds.

use std::collections::BTreeMap;
use std::sync::Arc;

/// An attempt with at most so many steps is cheap. A step is about the evaluation of one node.
const CHEAP_STEPS_MAX: u64 = 1000;

/// Which namespaces let others go first.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    /// The virtual time: when the last attempt began, if every namespace had the scheduler for itself.
    now: u64,
    /// By namespace: the virtual time at which its last attempt ended; those that are over may still be listed. Empty
    /// unless a namespace with an expensive attempt lets others go first.
    busy: BTreeMap<Arc<str>, Busy>,
    /// When the last expensive attempt of all is over: then there is nothing to remember.
    expensive_until_max: u64,
    /// With so many namespaces, those that are over are removed.
    sweep_at: usize,
}

/// So many namespaces may be over and still be listed.
const SWEEP_AT_MIN: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Busy {
    until: u64,
    /// The virtual time at which its last expensive attempt ended.
    expensive_until: u64,
}

impl Turns {
    /// Counts the steps of an attempt.
    pub(super) fn charge(&mut self, namespace: &Arc<str>, steps: u64) {
        let is_expensive = steps > CHEAP_STEPS_MAX;
        if !is_expensive && self.busy.is_empty() {
            return;
        }
        let before = self.busy.get(namespace).copied();
        let begin = before.map_or(self.now, |busy| busy.until.max(self.now));
        let until = begin.saturating_add(steps);
        let expensive_until = if is_expensive { until } else { before.map_or(0, |busy| busy.expensive_until) };
        self.now = begin;
        self.expensive_until_max = self.expensive_until_max.max(expensive_until);
        if self.expensive_until_max <= begin {
            self.busy.clear();
            return;
        }
        self.busy.insert(namespace.clone(), Busy { until, expensive_until });
        if self.busy.len() >= self.sweep_at.max(SWEEP_AT_MIN) {
            self.busy.retain(|_, busy| busy.until > begin);
            // What is left doubles before the next sweep, so that a sweep costs each attempt the same.
            self.sweep_at = 2 * self.busy.len();
        }
    }

    /// Whether a namespace lets others go first.
    pub(super) fn lets_others_go_first(&self, namespace: &str) -> bool {
        self.busy.get(namespace).is_some_and(|busy| busy.expensive_until > self.now)
    }

    /// The virtual time at which it is a namespace's turn.
    pub(super) fn turn_of(&self, namespace: &str) -> u64 {
        self.busy.get(namespace).map_or(self.now, |busy| busy.until.max(self.now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXPENSIVE: u64 = 5 * CHEAP_STEPS_MAX;

    /// The order in which namespaces are served that always have something waiting: the oldest first, in this order.
    fn order(turns: &mut Turns, waiting: &[(&str, u64)], attempts: usize) -> Vec<String> {
        let mut served = Vec::new();
        for _ in 0..attempts {
            let (name, steps) = match waiting.first() {
                Some(first) if !turns.lets_others_go_first(first.0) => *first,
                _ => *waiting.iter().min_by_key(|(name, _)| turns.turn_of(name)).expect("one is waiting"),
            };
            turns.charge(&name.into(), steps);
            served.push(name.to_owned());
        }
        served
    }

    #[test]
    fn cheap_attempts_change_nothing() {
        let served = order(&mut Turns::default(), &[("one", CHEAP_STEPS_MAX), ("other", 10)], 20);
        assert!(served.iter().all(|name| name == "one"), "{served:?}");
    }

    #[test]
    fn expensive_namespace_waits_until_the_other_has_done_as_much() {
        let served = order(&mut Turns::default(), &[("one", EXPENSIVE), ("other", CHEAP_STEPS_MAX)], 14);
        assert_eq!(served[0], "one");
        let cheap = served[1..].iter().take_while(|name| *name == "other").count();
        assert!((5..=6).contains(&cheap), "{served:?}");
        assert!(served[cheap + 1..].contains(&"one".to_owned()), "{served:?}");
    }

    #[test]
    fn one_waits_for_one_expensive_attempt_of_each_other_at_most() {
        let waiting = [("a", EXPENSIVE), ("b", 100 * EXPENSIVE), ("c", 3 * EXPENSIVE), ("innocent", 10)];
        let served = order(&mut Turns::default(), &waiting, 50);
        let first = served.iter().position(|name| name == "innocent").expect("it has a turn");
        for tenant in ["a", "b", "c"] {
            assert!(served[..first].iter().filter(|name| *name == tenant).count() <= 1, "{served:?}");
        }
    }

    #[test]
    fn the_order_of_the_queue_is_back_when_the_debt_is_paid() {
        let mut turns = Turns::default();
        turns.charge(&"one".into(), EXPENSIVE);
        let served = order(&mut turns, &[("one", 100), ("other", 100)], 200);
        let last = served.iter().rposition(|name| name == "other").expect("it went first for a while");
        assert!(last < 60, "{served:?}");
    }

    #[test]
    fn debt_does_not_grow_while_nobody_else_is_waiting() {
        let one: Arc<str> = "one".into();
        let mut turns = Turns::default();
        for _ in 0..10 {
            turns.charge(&one, EXPENSIVE);
            assert!(turns.turn_of("one") - turns.now <= EXPENSIVE, "at most what its last attempt took");
        }
    }
}
