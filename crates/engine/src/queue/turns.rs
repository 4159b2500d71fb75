//! Turns among namespaces: one whose attempts are expensive lets others of the same priority go first.
//!
//! Work is counted in steps, not in time, so that the same observations give the same order. After an expensive attempt
//! its namespace owes as much work to the others. Until that is done, or nobody else of this priority is waiting, its
//! entities are passed over. So a pod waits for at most one expensive attempt of each other namespace before its own
//! turn. Cheap attempts change nothing, so otherwise the order of the queue holds.

use std::collections::BTreeMap;
use std::sync::Arc;

/// An attempt with at most so many steps is cheap. A step is about the evaluation of one node.
const CHEAP_STEPS_MAX: u64 = 1000;

/// Which namespaces let others go first.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns {
    /// The steps of all attempts so far.
    done: u64,
    /// By namespace: its turn comes when so many steps are done.
    owed_until: BTreeMap<Arc<str>, u64>,
}

impl Turns {
    /// Counts the steps of an attempt.
    pub(super) fn charge(&mut self, namespace: &Arc<str>, steps: u64) {
        self.done = self.done.saturating_add(steps);
        if steps > CHEAP_STEPS_MAX {
            let from = self.owed_until.get(namespace).map_or(self.done, |until| self.done.max(*until));
            self.owed_until.insert(namespace.clone(), from.saturating_add(steps));
        }
        let done = self.done;
        self.owed_until.retain(|_, until| *until > done);
    }

    /// Until when a namespace lets others go first; `None` if it does not.
    pub(super) fn owed_until(&self, namespace: &str) -> Option<u64> {
        self.owed_until.get(namespace).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expensive_namespace_waits_until_others_have_done_as_much() {
        let (one, other): (Arc<str>, Arc<str>) = ("one".into(), "other".into());
        let mut turns = Turns::default();
        turns.charge(&one, CHEAP_STEPS_MAX);
        assert_eq!(turns.owed_until("one"), None, "cheap");
        turns.charge(&one, 5000);
        assert!(turns.owed_until("one").is_some());
        for _ in 0..5 {
            assert!(turns.owed_until("one").is_some());
            turns.charge(&other, 1000);
        }
        assert_eq!(turns.owed_until("one"), None);
        assert_eq!(turns.owed_until("other"), None);
    }

    #[test]
    fn debt_does_not_grow_while_nobody_else_is_waiting() {
        let one: Arc<str> = "one".into();
        let mut turns = Turns::default();
        for _ in 0..10 {
            turns.charge(&one, 5000);
            let until = turns.owed_until("one").expect("it owes");
            assert!(until - turns.done <= 5000, "at most what its last attempt took");
        }
    }
}
