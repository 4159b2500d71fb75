//! Cache of candidates by class, kept between scheduling cycles within a memory limit.

use super::candidates::Candidates;
use crate::cluster::Cluster;
use crate::model::ids::ClassId;
use crate::score::Scorer;

/// The most node entries kept over all classes: 40 to 100 MB.
const ENTRIES_MAX: usize = 1_000_000;
/// The number of classes kept regardless of the size of the cluster.
const CLASSES_MIN: usize = 8;
/// The maximum number of classes: the list is scanned from its end.
const CLASSES_MAX: usize = 256;

/// Candidates by class, least recently used first.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    /// By profile.
    scorers: Vec<Scorer>,
    kept: Vec<Candidates>,
}

impl Cache {
    pub(crate) fn new(scorers: Vec<Scorer>) -> Self {
        Self { scorers, kept: Vec::new() }
    }

    /// The candidates of a class, up to date.
    pub(crate) fn candidates(&mut self, cluster: &Cluster, class: ClassId, priority: i32) -> &mut Candidates {
        match self.kept.iter().rposition(|kept| kept.serves(class, priority)) {
            Some(place) if place + 1 == self.kept.len() => {}
            Some(place) => {
                let used = self.kept.remove(place);
                self.kept.push(used);
            }
            None => {
                self.make_room(cluster);
                let candidates = Candidates::new(cluster, self.scorer(cluster, class), class, priority);
                self.kept.push(candidates);
            }
        }
        let scorer = &self.scorers[usize::from(cluster.class(class).spec.profile)];
        let last = self.kept.last_mut().expect("just inserted");
        last.refresh(cluster, scorer);
        last
    }

    /// The scorer of the class's profile.
    pub(crate) fn scorer(&self, cluster: &Cluster, class: ClassId) -> &Scorer {
        &self.scorers[usize::from(cluster.class(class).spec.profile)]
    }

    /// Drops a class.
    pub(crate) fn forget(&mut self, class: ClassId) {
        self.kept.retain(|kept| kept.class() != class);
    }

    fn make_room(&mut self, cluster: &Cluster) {
        let entries: usize = self.kept.iter().map(Candidates::len).sum();
        let full = entries + cluster.node_slots() > ENTRIES_MAX || self.kept.len() >= CLASSES_MAX;
        if full && self.kept.len() >= CLASSES_MIN {
            self.kept.remove(0);
        }
    }
}
