//! Tracks groups that are evicted whole: all pods of a unit are marked before the first is deleted, and none is left in
//! the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::model::group::{DisruptionMode, GroupKey};
use muster_engine::model::pod::{PodName, PodSpec};

use crate::fake_cluster::FakeCluster;
use crate::gang_history::is_live;

/// A group whose eviction as a whole has begun.
#[derive(Clone, Debug)]
pub(crate) struct BegunUnit {
    group: GroupKey,
    /// By UID.
    pods: BTreeSet<String>,
}

impl FakeCluster {
    /// The first pod of a unit is about to be deleted: by then all of them are marked in the API.
    pub(crate) fn begin_unit(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        for pod in pods {
            if self.pods.get(&pod.uid).is_some_and(|actual| !actual.marked) {
                self.change(&pod.uid, |pod| pod.marked = true);
            }
        }
        self.record_unit(pods, group);
    }

    /// The same, but the engine restarts before it observes that.
    pub(crate) fn begin_unit_unseen(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        for pod in pods {
            if let Some(actual) = self.pods.get_mut(&pod.uid) {
                actual.marked = true;
            }
        }
        self.record_unit(pods, group);
    }

    fn record_unit(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        if let Some(group) = group {
            let pods = pods.iter().map(|pod| pod.uid.clone()).collect();
            self.units.push(BegunUnit { group: group.clone(), pods });
        }
    }

    /// A restarted engine completes the eviction of units that it can recognize: the group is still evicted whole, and
    /// one of its marked pods is terminating.
    pub(crate) fn drop_units_unknown_after_restart(&mut self) {
        let (groups, pods) = (&self.groups, &self.pods);
        let is_evicted_whole =
            |group: &GroupKey| groups.get(group).is_some_and(|spec| spec.disruption_mode == DisruptionMode::Group);
        let is_going = |uid: &String| pods.get(uid).is_some_and(|pod| pod.terminating && pod.marked);
        self.units.retain(|unit| is_evicted_whole(&unit.group) && unit.pods.iter().any(is_going));
    }

    /// Invariant 4 in the settled state: no pod of a unit whose eviction has begun is left.
    pub(crate) fn check_units(&self) {
        let stays = |pod: &&PodSpec| is_live(pod) && pod.node.is_some();
        for unit in &self.units {
            let left = unit.pods.iter().filter_map(|uid| self.pods.get(uid)).find(stays);
            let left = left.map(|pod| pod.id.to_string());
            assert_eq!(left, None, "a unit is only partly evicted: {unit:?}");
        }
    }
}
