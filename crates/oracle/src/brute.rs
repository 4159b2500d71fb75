//! Brute force: decides whether a group can be placed at all, by trying everything.
//!
//! Each pod goes to every node or nowhere; dead ends are remembered by the remaining room and minimums. Exact, and only
//! for small instances: about 5 nodes and 9 pods. Must not depend on a preferred order of nodes or pods.

use std::collections::{BTreeSet, HashSet};

use muster_engine::Scoring;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;

use crate::naive::{FailureReason, Naive, ports_conflict};

/// Identical pods of one subset.
#[derive(Clone, Debug)]
pub struct Lot {
    /// Their class.
    pub class: ClassSpec,
    /// Their subset: an index into the needs.
    pub subset: usize,
    /// Their number.
    pub count: u32,
}

/// Whether at least `needs[s]` pods of each subset s can be placed together, in addition to the occupied room.
pub fn placeable(nodes: &[NodeSpec], occupied: &[(usize, ClassSpec)], lots: &[Lot], needs: &[u32]) -> bool {
    assert!(lots.len() <= 64, "conflicting lots are a set of 64 bits");
    let names = resource_names(lots);
    let rooms =
        nodes.iter().enumerate().map(|(node, spec)| NodeState::new(spec, node, occupied, lots, &names)).collect();
    let mut attempt = Attempt {
        kinds: lots.iter().map(|lot| LotNumbers::new(nodes, lot, lots, &names)).collect(),
        pods: lots.iter().enumerate().flat_map(|(kind, lot)| (0..lot.count).map(move |_| kind)).collect(),
        dead_ends: HashSet::new(),
    };
    let missing = needs.iter().map(|need| i64::from(*need)).collect();
    attempt.can_meet_needs(0, &State { rooms, missing })
}

/// The remaining room of a node.
#[derive(Clone, PartialEq, Eq, Hash)]
struct NodeState {
    free: Vec<i64>,
    pods: i64,
    /// The lots that cannot go there because of a host port, as bits.
    blocked_lots: u64,
}

/// Everything that the placement of the remaining pods depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    rooms: Vec<NodeState>,
    missing: Vec<i64>,
}

/// A lot with resources by index.
struct LotNumbers {
    subset: usize,
    requests: Vec<i64>,
    feasible: Vec<bool>,
    /// The lots that cannot share a node with a pod of this one, as bits.
    conflicting_lots: u64,
}

struct Attempt {
    kinds: Vec<LotNumbers>,
    /// The lot of each pod.
    pods: Vec<usize>,
    dead_ends: HashSet<(usize, State)>,
}

impl Attempt {
    /// Whether the pods from this one on can meet the remaining needs.
    fn can_meet_needs(&mut self, pod: usize, state: &State) -> bool {
        if state.missing.iter().all(|missing| *missing <= 0) {
            return true;
        }
        let Some(kind) = self.pods.get(pod).copied() else { return false };
        let key = (pod, state.clone());
        if self.dead_ends.contains(&key) {
            return false;
        }
        for node in 0..state.rooms.len() {
            if let Some(next) = self.kinds[kind].put(kind, node, state)
                && self.can_meet_needs(pod + 1, &next)
            {
                return true;
            }
        }
        if self.can_meet_needs(pod + 1, state) {
            return true;
        }
        self.dead_ends.insert(key);
        false
    }
}

impl LotNumbers {
    fn new(nodes: &[NodeSpec], lot: &Lot, lots: &[Lot], names: &[String]) -> Self {
        let empty = Naive::new(nodes, &Scoring::default());
        let is_static = |reason: &FailureReason| {
            matches!(
                reason,
                FailureReason::NodeName
                    | FailureReason::Unschedulable
                    | FailureReason::Taints
                    | FailureReason::NodeAffinity
            )
        };
        let feasible = |node| !empty.failure_reasons(node, &lot.class).iter().any(is_static);
        Self {
            subset: lot.subset,
            requests: names.iter().map(|name| lot.class.requests.get(name).copied().unwrap_or(0)).collect(),
            feasible: (0..nodes.len()).map(feasible).collect(),
            conflicting_lots: conflicting_lots(&lot.class, lots),
        }
    }

    /// The state with one more pod of this lot on the node, if it fits.
    fn put(&self, kind: usize, node: usize, state: &State) -> Option<State> {
        let room = &state.rooms[node];
        let fits = self.feasible[node]
            && room.pods > 0
            && room.blocked_lots & (1 << kind) == 0
            && self.requests.iter().zip(&room.free).all(|(requested, free)| *requested == 0 || requested <= free);
        if !fits {
            return None;
        }
        let mut next = state.clone();
        let room = &mut next.rooms[node];
        room.pods -= 1;
        room.blocked_lots |= self.conflicting_lots;
        for (free, requested) in room.free.iter_mut().zip(&self.requests) {
            *free -= requested;
        }
        next.missing[self.subset] -= 1;
        Some(next)
    }
}

impl NodeState {
    fn new(spec: &NodeSpec, node: usize, occupied: &[(usize, ClassSpec)], lots: &[Lot], names: &[String]) -> Self {
        let here = || occupied.iter().filter(|(other, _)| *other == node).map(|(_, class)| class);
        let free = |name: &String| {
            let used: i64 = here().filter_map(|class| class.requests.get(name)).sum();
            spec.allocatable.get(name).copied().unwrap_or(0) - used
        };
        Self {
            free: names.iter().map(free).collect(),
            pods: spec.allocatable.get("pods").copied().unwrap_or(0) - here().count() as i64,
            blocked_lots: here().fold(0, |blocked_lots, class| blocked_lots | conflicting_lots(class, lots)),
        }
    }
}

fn conflicting_lots(class: &ClassSpec, lots: &[Lot]) -> u64 {
    let conflicts = |lot: &Lot| ports_conflict(&lot.class.host_ports, &class.host_ports);
    lots.iter().enumerate().filter(|(_, lot)| conflicts(lot)).fold(0, |bits, (kind, _)| bits | 1 << kind)
}

fn resource_names(lots: &[Lot]) -> Vec<String> {
    let names: BTreeSet<&String> = lots.iter().flat_map(|lot| lot.class.requests.keys()).collect();
    names.into_iter().cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpu: i64, pods: i64) -> NodeSpec {
        let allocatable = [("cpu".to_owned(), cpu), ("pods".to_owned(), pods)].into();
        NodeSpec { name: format!("n{cpu}"), allocatable, ..NodeSpec::default() }
    }

    fn lot(cpu: i64, subset: usize, count: u32) -> Lot {
        let class = ClassSpec { requests: [("cpu".to_owned(), cpu)].into(), ..ClassSpec::default() };
        Lot { class, subset, count }
    }

    #[test]
    fn perfect_packing_is_found_and_less_room_is_not_enough() {
        let lots = [lot(3, 0, 2), lot(2, 0, 3)];
        assert!(placeable(&[node(7, 9), node(5, 9)], &[], &lots, &[5]));
        assert!(!placeable(&[node(8, 9), node(4, 9)], &[], &lots, &[6]), "there are only five");
        assert!(!placeable(&[node(7, 9), node(4, 9)], &[], &lots, &[5]));
        assert!(placeable(&[node(7, 9), node(4, 9)], &[], &lots, &[4]));
        assert!(!placeable(&[node(7, 2), node(5, 2)], &[], &lots, &[5]), "too many pods");
    }

    #[test]
    fn each_subset_has_its_own_need() {
        let lots = [lot(3, 0, 2), lot(1, 1, 3)];
        assert!(placeable(&[node(4, 9)], &[], &lots, &[1, 1]));
        assert!(!placeable(&[node(4, 9)], &[], &lots, &[1, 2]));
        assert!(placeable(&[node(4, 9)], &[], &lots, &[0, 3]));
        assert!(!placeable(&[node(4, 9)], &[(0, lot(2, 0, 1).class)], &lots, &[0, 3]));
    }
}
