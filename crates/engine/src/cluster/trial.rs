//! "What if": changes over the cluster that are undone unless they are committed.
//!
//! The undo log makes the cost of a trial proportional to what it changed. Placement, preemption and
//! explanations all use the same trial; nothing tentative can be left behind, because dropping a trial
//! undoes it.

use super::Cluster;
use super::pod::PodState;
use crate::model::ids::{ClassId, NodeId, PodId};

/// One change and what it takes to undo it.
#[derive(Debug)]
enum Undo {
    Placed { pod: PodId, node: NodeId },
    Occupied { class: ClassId, node: NodeId },
    Removed { pod: PodId, state: PodState, node: NodeId, place: usize },
    PutBack { pod: PodId, node: NodeId },
    Released { pod: PodId, node: NodeId },
    Opened { node: NodeId, priority: i32 },
    Lured { class: ClassId, node: NodeId },
    ReadySoon { node: NodeId },
}

/// A point in a trial to come back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mark(usize);

/// Tentative changes over a cluster.
#[derive(Debug)]
pub(crate) struct Trial<'a> {
    cluster: &'a mut Cluster,
    log: Vec<Undo>,
    /// The version of the picture that the trial began with.
    version: u64,
    committed: bool,
}

impl<'a> Trial<'a> {
    pub(crate) fn new(cluster: &'a mut Cluster) -> Self {
        let version = cluster.version();
        Self { cluster, log: Vec::new(), version, committed: false }
    }

    /// The cluster with the changes so far.
    pub(crate) fn cluster(&self) -> &Cluster {
        self.cluster
    }

    /// Places a waiting pod on a node.
    pub(crate) fn place(&mut self, pod: PodId, node: NodeId) {
        assert_eq!(self.cluster.pod(pod).state, PodState::Waiting, "only a waiting pod can be placed");
        self.cluster.put(pod, node);
        self.cluster.pod_mut(pod).state = PodState::Assumed(node);
        self.log.push(Undo::Placed { pod, node });
    }

    /// Takes the room of one pod of a class on a node, for a pod that is only expected: it is nobody's company.
    pub(crate) fn occupy(&mut self, class: ClassId, node: NodeId) {
        self.cluster.change_load(node, class, true);
        self.log.push(Undo::Occupied { class, node });
    }

    /// Takes a pod off its node, as if it were gone.
    pub(crate) fn remove(&mut self, pod: PodId) {
        let state = self.cluster.pod(pod).state;
        let node = state.node().expect("only a placed pod can be removed");
        let place = self.cluster.lift(pod, node);
        self.cluster.pod_mut(pod).state = PodState::Waiting;
        self.log.push(Undo::Removed { pod, state, node, place });
    }

    /// Puts a pod that was taken off its node back there.
    pub(crate) fn put_back(&mut self, pod: PodId, node: NodeId) {
        assert_eq!(self.cluster.pod(pod).state, PodState::Waiting, "only a pod that was removed can be put back");
        self.cluster.put(pod, node);
        self.cluster.pod_mut(pod).state = PodState::Bound(node);
        self.log.push(Undo::PutBack { pod, node });
    }

    /// Gives up a pod's nomination.
    pub(crate) fn release(&mut self, pod: PodId) {
        if let Some(node) = self.cluster.pod(pod).nominated {
            self.cluster.unlist_nomination(pod, node);
            self.cluster.pod_mut(pod).nominated = None;
            self.log.push(Undo::Released { pod, node });
        }
    }

    /// Gives up the claim on a node.
    pub(crate) fn open(&mut self, node: NodeId) {
        if let Some(priority) = self.cluster.node(node).claimed_at {
            self.cluster.set_claim(node, None);
            self.log.push(Undo::Opened { node, priority });
        }
    }

    /// Makes those who insist on each other's company believe that one of them is there, so that the next come, too.
    pub(crate) fn lure(&mut self, class: ClassId, node: NodeId) {
        self.cluster.lure(class, node, true);
        self.log.push(Undo::Lured { class, node });
    }

    /// Takes a node that is not ready for its first pods as if it were.
    pub(crate) fn await_node(&mut self, node: NodeId) {
        self.cluster.set_ready_soon(node, true);
        self.log.push(Undo::ReadySoon { node });
    }

    /// Whether nothing was changed so far.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.log.is_empty()
    }

    /// Where the trial stands now.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.log.len())
    }

    /// Undoes everything since a mark.
    pub(crate) fn undo_to(&mut self, mark: Mark) {
        assert!(mark.0 <= self.log.len(), "a mark lies in the past");
        while self.log.len() > mark.0 {
            match self.log.pop().expect("longer than the mark") {
                Undo::Placed { pod, node } | Undo::PutBack { pod, node } => {
                    self.cluster.lift(pod, node);
                    self.cluster.pod_mut(pod).state = PodState::Waiting;
                }
                Undo::Occupied { class, node } => self.cluster.change_load(node, class, false),
                Undo::Removed { pod, state, node, place } => {
                    self.cluster.put(pod, node);
                    let pods = &mut self.cluster.nodes.get_mut(node.0).expect("a pod's node exists").pods;
                    pods[place..].rotate_right(1);
                    self.cluster.pod_mut(pod).state = state;
                }
                Undo::Opened { node, priority } => self.cluster.set_claim(node, Some(priority)),
                Undo::Lured { class, node } => self.cluster.lure(class, node, false),
                Undo::ReadySoon { node } => self.cluster.set_ready_soon(node, false),
                Undo::Released { pod, node } => {
                    self.cluster.list_nomination(pod, node);
                    self.cluster.pod_mut(pod).nominated = Some(node);
                }
            }
        }
    }

    /// The pods placed so far and where, in order.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (PodId, NodeId)> {
        self.placed_since(Mark(0))
    }

    /// The pods placed since a mark and where, in order.
    pub(crate) fn placed_since(&self, mark: Mark) -> impl Iterator<Item = (PodId, NodeId)> {
        self.log[mark.0..].iter().filter_map(|undo| match undo {
            Undo::Placed { pod, node } => Some((*pod, *node)),
            _ => None,
        })
    }

    /// Makes the placements real and everything else undone: only placements are decisions.
    /// Returns the pods placed and where.
    pub(crate) fn commit(mut self) -> Vec<(PodId, NodeId)> {
        let placed: Vec<_> = self.placed().collect();
        let only_placements = self.log.iter().all(|undo| matches!(undo, Undo::Placed { .. }));
        self.committed = true;
        if !only_placements {
            self.undo_to(Mark(0));
            for (pod, node) in &placed {
                self.cluster.put(*pod, *node);
                self.cluster.pod_mut(*pod).state = PodState::Assumed(*node);
            }
        }
        for (pod, _) in &placed {
            self.cluster.count_out(*pod);
            self.cluster.list_if_leaving(*pod);
            self.cluster.count_in(*pod);
        }
        placed
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.committed {
            self.undo_to(Mark(0));
            self.cluster.version = self.version;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::cluster::pod::{Awaited, Counted, Part, Pod};
    use crate::invariants;
    use crate::model::class::ClassSpec;
    use crate::model::node::NodeSpec;
    use crate::model::pod::PodName;
    use crate::model::port::{HostPort, Protocol};

    /// Three nodes; six pods of two classes, some placed, some nominated.
    fn cluster() -> Cluster {
        let mut cluster = Cluster::default();
        for name in ["n0", "n1", "n2"] {
            let allocatable = [("cpu".to_owned(), 8000), ("example.com/gpu".to_owned(), 8), ("pods".to_owned(), 9)];
            cluster.set_node(&NodeSpec { name: name.into(), allocatable: allocatable.into(), ..NodeSpec::default() });
        }
        for number in 0..6_u32 {
            let port = HostPort { address: None, protocol: Protocol::Tcp, port: 80 };
            let spec = if number % 2 == 0 {
                ClassSpec {
                    requests: [("cpu".to_owned(), 1500)].into(),
                    host_ports: vec![port],
                    ..ClassSpec::default()
                }
            } else {
                let requests = [("example.com/gpu".to_owned(), 3), ("memory".to_owned(), 7)].into();
                ClassSpec { requests, scoring_cpu_milli: 100, ..ClassSpec::default() }
            };
            let (class, _) = cluster.acquire_class(&Arc::new(spec), "", &crate::model::labels::Labels::new());
            let id = cluster.add_pod(pod(number, class));
            match number {
                0..=1 => cluster.set_state(id, PodState::Bound(NodeId(number))),
                2 => cluster.set_state(id, PodState::Assumed(NodeId(0))),
                3 => cluster.set_nominated(id, Some(NodeId(2))),
                _ => {}
            }
        }
        cluster
    }

    fn pod(number: u32, class: ClassId) -> Pod {
        Pod {
            id: Arc::new(PodName { uid: number.to_string(), ..PodName::default() }),
            class,
            priority: 0,
            group: None,
            subset: "".into(),
            ours: true,
            gated: false,
            refused: None,
            terminating: false,
            is_static: false,
            labels: Arc::default(),
            started_ms: None,
            preemption_cost: 0,
            eviction: None,
            left_out: false,
            marked: false,
            spared_until: 0,
            never_preempts: false,
            gone_by_ms: None,
            taking_back: false,
            controlled: false,
            ran: false,
            part: Part::None,
            created_ms: 0,
            state: PodState::Waiting,
            nominated: None,
            shows_nomination: false,
            awaited_nomination: Awaited::default(),
            bind: None,
            counted: Counted::Not,
        }
    }

    /// One random operation, as far as it makes sense now.
    fn act(trial: &mut Trial<'_>, marks: &mut Vec<Mark>, kind: u8, pod: u32, node: u32) {
        let (pod, node) = (PodId(pod), NodeId(node));
        let placed = trial.cluster().pod(pod).state.node().is_some();
        match kind {
            0 if !placed => trial.place(pod, node),
            1 if placed => trial.remove(pod),
            6 if !placed => trial.put_back(pod, node),
            2 => trial.occupy(trial.cluster().pod(pod).class, node),
            3 => trial.release(pod),
            4 => marks.push(trial.mark()),
            5 => {
                if let Some(mark) = marks.pop() {
                    trial.undo_to(mark);
                }
            }
            _ => {}
        }
    }

    proptest! {
        #[test]
        fn a_dropped_trial_leaves_nothing_behind(acts in prop::collection::vec((0_u8..7, 0_u32..6, 0_u32..3), 0..40)) {
            let mut cluster = cluster();
            let before = cluster.clone();
            let mut marks = Vec::new();
            let mut trial = Trial::new(&mut cluster);
            for (kind, pod, node) in acts {
                act(&mut trial, &mut marks, kind, pod, node);
            }
            drop(trial);
            prop_assert!(cluster.same_picture(&before));
            prop_assert_eq!(invariants::ledger(&cluster), Ok(()));
        }

        #[test]
        fn a_committed_trial_keeps_its_placements_and_nothing_else(acts in prop::collection::vec((0_u8..6, 0_u32..6, 0_u32..3), 0..40)) {
            let mut cluster = cluster();
            let before = cluster.clone();
            let mut marks = Vec::new();
            let mut trial = Trial::new(&mut cluster);
            for (kind, pod, node) in acts {
                // Removing and placing one pod again is preemption's what-if, not a decision.
                if kind != 1 {
                    act(&mut trial, &mut marks, kind, pod, node);
                }
            }
            let placed = trial.commit();
            prop_assert_eq!(invariants::ledger(&cluster), Ok(()));
            prop_assert_eq!(invariants::nominations(&cluster).is_ok(), !placed.iter().any(|(pod, _)| pod.0 == 3));
            for (pod, node) in &placed {
                prop_assert_eq!(cluster.pod(*pod).state, PodState::Assumed(*node));
            }
            for (pod, _) in placed {
                cluster.set_state(pod, PodState::Waiting);
            }
            prop_assert!(cluster.same_picture(&before));
        }
    }
}
