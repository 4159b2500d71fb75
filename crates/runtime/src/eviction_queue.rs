//! Evictions that wait until every nomination of their preemptor is written.
//!
//! A reader of the API, such as a process that takes over the lease, then sees what the capacity is freed for before
//! any pod is evicted. If a nominated pod goes away first, nothing is evicted and the engine decides again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::actuator::evict::VictimUnit;

/// The evictions that are not sent yet.
#[derive(Debug, Default)]
pub(crate) struct EvictionQueue {
    waiting: Vec<PendingEvictions>,
}

/// The evictions of one decision.
#[derive(Debug)]
struct PendingEvictions {
    /// UIDs of the preemptor's pods whose nomination is not written yet.
    nominees: BTreeSet<Arc<str>>,
    units: Vec<Arc<VictimUnit>>,
}

impl EvictionQueue {
    /// Adds the evictions of one decision. Returns those that can be sent at once.
    pub(crate) fn add(&mut self, nominees: BTreeSet<Arc<str>>, units: Vec<Arc<VictimUnit>>) -> Vec<Arc<VictimUnit>> {
        if nominees.is_empty() || units.is_empty() {
            return units;
        }
        self.waiting.push(PendingEvictions { nominees, units });
        Vec::new()
    }

    /// A nomination is written: returns the evictions that can be sent now.
    pub(crate) fn on_nomination_written(&mut self, uid: &str) -> Vec<Arc<VictimUnit>> {
        for pending in &mut self.waiting {
            pending.nominees.remove(uid);
        }
        self.take(|pending| pending.nominees.is_empty())
    }

    /// A nominated pod is gone or has a node: removes and returns the evictions that waited for it.
    pub(crate) fn cancel(&mut self, uid: &str) -> Vec<Arc<VictimUnit>> {
        self.take(|pending| pending.nominees.contains(uid))
    }

    fn take(&mut self, matches: impl Fn(&PendingEvictions) -> bool) -> Vec<Arc<VictimUnit>> {
        self.waiting.extract_if(.., |pending| matches(pending)).flat_map(|pending| pending.units).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn unit(by: &str) -> Arc<VictimUnit> {
        let by = Some(by.to_owned());
        Arc::new(VictimUnit { pods: Vec::new(), group: None, by, message: String::new(), now: Timestamp::UNIX_EPOCH })
    }

    fn uids(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn evictions_wait_for_the_last_nomination() {
        let mut queue = EvictionQueue::default();
        assert_eq!(queue.add(uids(&[]), vec![unit("a")]).len(), 1, "sent again: nothing to wait for");
        assert!(queue.add(uids(&["u", "v"]), vec![unit("b"), unit("b")]).is_empty());
        assert!(queue.on_nomination_written("u").is_empty());
        assert_eq!(queue.on_nomination_written("v").len(), 2);
        assert!(queue.on_nomination_written("v").is_empty());
    }

    #[test]
    fn evictions_are_cancelled_when_a_nominated_pod_goes_away() {
        let mut queue = EvictionQueue::default();
        queue.add(uids(&["u", "v"]), vec![unit("b")]);
        queue.add(uids(&["w"]), vec![unit("c")]);
        assert_eq!(queue.cancel("v")[0].by.as_deref(), Some("b"));
        assert!(queue.cancel("v").is_empty());
        assert_eq!(queue.on_nomination_written("w")[0].by.as_deref(), Some("c"));
    }
}
