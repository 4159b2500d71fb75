//! Who waits where, counted: for metrics. It looks and changes nothing, and must not know why anybody waits.

use super::Engine;
use crate::cluster::pod::{Counted, Standing};
use crate::queue::{Entity, Place};

/// Pods of ours that have no place yet, and the groups that want places, by where they stand in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// Ready to be tried.
    pub active: Waiters,
    /// Ready once their backoff is over.
    pub backoff: Waiters,
    /// Found no room, and wait for more of it.
    pub parked: Waiters,
    /// Not to be tried yet: behind gates, refused, left out of their group, or in a group that waits for something.
    pub held: Waiters,
}

/// How many wait in one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiters {
    /// Pods, members of groups included.
    pub pods: usize,
    /// Groups.
    pub groups: usize,
}

impl Pending {
    /// All pods that wait.
    pub fn pods(&self) -> usize {
        self.active.pods + self.backoff.pods + self.parked.pods + self.held.pods
    }

    fn at(&mut self, place: &Place) -> &mut Waiters {
        match place {
            Place::Active => &mut self.active,
            Place::Backoff(_) => &mut self.backoff,
            Place::Parked { .. } => &mut self.parked,
            Place::Held => &mut self.held,
        }
    }
}

impl Engine {
    /// Counts who waits where. Takes time for each pod that is known, bound ones too: for once a second, not more.
    pub fn pending(&self) -> Pending {
        let mut pending = Pending::default();
        for (entity, entry) in self.queue.entries() {
            let waiters = pending.at(&entry.place);
            match entity {
                // A pod on its way keeps its entry until it is bound.
                Entity::Pod(pod) => {
                    waiters.pods += usize::from(self.cluster.pod(pod).standing() == Standing::Waiting);
                }
                Entity::Group(group) => {
                    waiters.groups += 1;
                    waiters.pods += self.cluster.group(group).waiting.len();
                }
            }
        }
        // Those that the queue does not know, or that do not go where their group goes.
        let held = self.cluster.pods().filter(|(_, pod)| match pod.standing() {
            Standing::Gated | Standing::Refused => true,
            Standing::Waiting => pod.counted == Counted::Stray,
            Standing::Assumed | Standing::Bound | Standing::Succeeded | Standing::Aside => false,
        });
        pending.held.pods += held.count();
        pending
    }
}
