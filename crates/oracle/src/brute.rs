//! Whether a group can be placed at all, by trying everything.
//!
//! One pod after another goes to every node or nowhere; what was found to lead nowhere is remembered by what is left
//! of the nodes and of the needs. Exact, and only for small instances: about 5 nodes and 9 pods. It must not know an
//! order of nodes or pods that is better than another.

use std::collections::{BTreeSet, HashSet};

use muster_engine::Scoring;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;

use crate::naive::{Naive, WhyNot, ports_conflict};

/// Like pods of one subset.
#[derive(Clone, Debug)]
pub struct Lot {
    /// What each of them is.
    pub class: ClassSpec,
    /// Their subset: a position in the needs.
    pub subset: usize,
    /// How many they are.
    pub count: u32,
}

/// Whether at least `needs[s]` pods of each subset s can be placed at once, beside the pods that are there.
pub fn placeable(nodes: &[NodeSpec], occupied: &[(usize, ClassSpec)], lots: &[Lot], needs: &[u32]) -> bool {
    assert!(lots.len() <= 64, "the ports that are taken are kept as a set of bits");
    let names = resource_names(lots);
    let rooms = nodes.iter().enumerate().map(|(node, spec)| Room::new(spec, node, occupied, lots, &names)).collect();
    let mut attempt = Attempt {
        kinds: lots.iter().map(|lot| Kind::new(nodes, lot, lots, &names)).collect(),
        pods: lots.iter().enumerate().flat_map(|(kind, lot)| (0..lot.count).map(move |_| kind)).collect(),
        hopeless: HashSet::new(),
    };
    let missing = needs.iter().map(|need| i64::from(*need)).collect();
    attempt.leads_somewhere(0, &State { rooms, missing })
}

/// What is left of a node.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Room {
    free: Vec<i64>,
    pods: i64,
    /// The lots that can no longer go there because of a port.
    barred: u64,
}

/// Everything that the rest of the pods depends on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    rooms: Vec<Room>,
    missing: Vec<i64>,
}

/// A lot in numbers.
struct Kind {
    subset: usize,
    asks: Vec<i64>,
    suits: Vec<bool>,
    /// The lots that cannot be where a pod of this one is.
    bars: u64,
}

struct Attempt {
    kinds: Vec<Kind>,
    /// The kind of each pod.
    pods: Vec<usize>,
    hopeless: HashSet<(usize, State)>,
}

impl Attempt {
    /// Whether the pods from this one on can meet what is missing.
    fn leads_somewhere(&mut self, pod: usize, state: &State) -> bool {
        if state.missing.iter().all(|missing| *missing <= 0) {
            return true;
        }
        let Some(kind) = self.pods.get(pod).copied() else { return false };
        let key = (pod, state.clone());
        if self.hopeless.contains(&key) {
            return false;
        }
        for node in 0..state.rooms.len() {
            if let Some(next) = self.kinds[kind].put(kind, node, state)
                && self.leads_somewhere(pod + 1, &next)
            {
                return true;
            }
        }
        if self.leads_somewhere(pod + 1, state) {
            return true;
        }
        self.hopeless.insert(key);
        false
    }
}

impl Kind {
    fn new(nodes: &[NodeSpec], lot: &Lot, lots: &[Lot], names: &[String]) -> Self {
        let empty = Naive::new(nodes, &Scoring::default());
        let itself_will_not_do = |why_not: &WhyNot| {
            matches!(why_not, WhyNot::NodeName | WhyNot::Unschedulable | WhyNot::Taints | WhyNot::NodeAffinity)
        };
        let suits = |node| !empty.why_not(node, &lot.class).iter().any(itself_will_not_do);
        Self {
            subset: lot.subset,
            asks: names.iter().map(|name| lot.class.requests.get(name).copied().unwrap_or(0)).collect(),
            suits: (0..nodes.len()).map(suits).collect(),
            bars: barred_by(&lot.class, lots),
        }
    }

    /// The state with one more pod of this kind on the node, if it fits.
    fn put(&self, kind: usize, node: usize, state: &State) -> Option<State> {
        let room = &state.rooms[node];
        let fits = self.suits[node]
            && room.pods > 0
            && room.barred & (1 << kind) == 0
            && self.asks.iter().zip(&room.free).all(|(asked, free)| *asked == 0 || asked <= free);
        if !fits {
            return None;
        }
        let mut next = state.clone();
        let room = &mut next.rooms[node];
        room.pods -= 1;
        room.barred |= self.bars;
        for (free, asked) in room.free.iter_mut().zip(&self.asks) {
            *free -= asked;
        }
        next.missing[self.subset] -= 1;
        Some(next)
    }
}

impl Room {
    fn new(spec: &NodeSpec, node: usize, occupied: &[(usize, ClassSpec)], lots: &[Lot], names: &[String]) -> Self {
        let here = || occupied.iter().filter(|(other, _)| *other == node).map(|(_, class)| class);
        let free = |name: &String| {
            let used: i64 = here().filter_map(|class| class.requests.get(name)).sum();
            spec.allocatable.get(name).copied().unwrap_or(0) - used
        };
        Self {
            free: names.iter().map(free).collect(),
            pods: spec.allocatable.get("pods").copied().unwrap_or(0) - here().count() as i64,
            barred: here().fold(0, |barred, class| barred | barred_by(class, lots)),
        }
    }
}

fn barred_by(class: &ClassSpec, lots: &[Lot]) -> u64 {
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
    fn a_perfect_packing_is_found_and_one_unit_less_is_not_enough() {
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
