//! Orders to evict, from the decision to the errand: they wait until every nomination that they belong to is written.
//!
//! Whoever reads the API then sees for whom the room is made before anybody leaves, and so does a process that takes
//! over in between. If one of the nominated goes away before that, nobody is evicted: the engine looks again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::hands::evict::Unit;

/// Orders that wait.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    waiting: Vec<Order>,
}

/// The evictions of one decision.
#[derive(Debug)]
struct Order {
    /// UIDs of those whose nomination is not written yet.
    nominees: BTreeSet<Arc<str>>,
    units: Vec<Arc<Unit>>,
}

impl Orders {
    /// Takes the evictions of one decision. Gives back those that need not wait.
    pub(crate) fn give(&mut self, nominees: BTreeSet<Arc<str>>, units: Vec<Arc<Unit>>) -> Vec<Arc<Unit>> {
        if nominees.is_empty() || units.is_empty() {
            return units;
        }
        self.waiting.push(Order { nominees, units });
        Vec::new()
    }

    /// A nomination is written: gives what need not wait any more.
    pub(crate) fn nominated(&mut self, uid: &str) -> Vec<Arc<Unit>> {
        for order in &mut self.waiting {
            order.nominees.remove(uid);
        }
        self.take(|order| order.nominees.is_empty())
    }

    /// A pod that was nominated does not wait any more: gives the evictions that are called off.
    pub(crate) fn called_off(&mut self, uid: &str) -> Vec<Arc<Unit>> {
        self.take(|order| order.nominees.contains(uid))
    }

    fn take(&mut self, is_meant: impl Fn(&Order) -> bool) -> Vec<Arc<Unit>> {
        self.waiting.extract_if(.., |order| is_meant(order)).flat_map(|order| order.units).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    fn unit(by: &str) -> Arc<Unit> {
        let by = Some(by.to_owned());
        Arc::new(Unit { pods: Vec::new(), group: None, by, message: String::new(), now: Timestamp::UNIX_EPOCH })
    }

    fn uids(names: &[&str]) -> BTreeSet<Arc<str>> {
        names.iter().map(|name| Arc::from(*name)).collect()
    }

    #[test]
    fn evictions_wait_for_the_last_nomination() {
        let mut orders = Orders::default();
        assert_eq!(orders.give(uids(&[]), vec![unit("a")]).len(), 1, "sent again: nothing to wait for");
        assert!(orders.give(uids(&["u", "v"]), vec![unit("b"), unit("b")]).is_empty());
        assert!(orders.nominated("u").is_empty());
        assert_eq!(orders.nominated("v").len(), 2);
        assert!(orders.nominated("v").is_empty());
    }

    #[test]
    fn who_goes_away_before_that_calls_them_off() {
        let mut orders = Orders::default();
        orders.give(uids(&["u", "v"]), vec![unit("b")]);
        orders.give(uids(&["w"]), vec![unit("c")]);
        assert_eq!(orders.called_off("v")[0].by.as_deref(), Some("b"));
        assert!(orders.called_off("v").is_empty());
        assert_eq!(orders.nominated("w")[0].by.as_deref(), Some("c"));
    }
}
