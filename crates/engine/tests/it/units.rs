//! Units that go whole, as the world sees them: all of one are marked before the first is deleted, and nobody of it is left
//! behind in the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use muster_engine::model::group::{DisruptionMode, GroupKey};
use muster_engine::model::pod::{PodName, PodSpec};

use crate::story::is_live;
use crate::world::World;

/// A group that is being evicted whole, and has begun to go.
#[derive(Clone, Debug)]
pub(crate) struct BegunUnit {
    group: GroupKey,
    /// By UID.
    pods: BTreeSet<String>,
}

impl World {
    /// The first of those who are evicted together is about to be deleted: by then the API shows of all that they go.
    pub(crate) fn unit_begins(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        for pod in pods {
            if self.pods.get(&pod.uid).is_some_and(|truth| !truth.marked) {
                self.change(&pod.uid, |pod| pod.marked = true);
            }
        }
        self.note_unit(pods, group);
    }

    /// The same, and the engine does not live to see it.
    pub(crate) fn unit_begins_unseen(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        for pod in pods {
            if let Some(truth) = self.pods.get_mut(&pod.uid) {
                truth.marked = true;
            }
        }
        self.note_unit(pods, group);
    }

    fn note_unit(&mut self, pods: &[Arc<PodName>], group: Option<&GroupKey>) {
        if let Some(group) = group {
            let pods = pods.iter().map(|pod| pod.uid.clone()).collect();
            self.units.push(BegunUnit { group: group.clone(), pods });
        }
    }

    /// A new engine follows those units up of which it can see that they have begun to go: the group goes whole still,
    /// and one of it that is going is there.
    pub(crate) fn forget_units_that_cannot_be_seen(&mut self) {
        let (groups, pods) = (&self.groups, &self.pods);
        let goes_whole =
            |group: &GroupKey| groups.get(group).is_some_and(|spec| spec.disruption_mode == DisruptionMode::Group);
        let is_going = |uid: &String| pods.get(uid).is_some_and(|pod| pod.terminating && pod.marked);
        self.units.retain(|unit| goes_whole(&unit.group) && unit.pods.iter().any(is_going));
    }

    /// Invariant 4 at rest: of a unit that has begun to go whole nobody is left.
    pub(crate) fn judge_units(&self) {
        let stays = |pod: &&PodSpec| is_live(pod) && pod.node.is_some();
        for unit in &self.units {
            let left = unit.pods.iter().filter_map(|uid| self.pods.get(uid)).find(stays);
            let left = left.map(|pod| pod.id.to_string());
            assert_eq!(left, None, "a unit that goes whole is left in part: {unit:?}");
        }
    }
}
