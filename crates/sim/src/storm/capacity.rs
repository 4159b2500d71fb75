//! An exhaustive check of whether pods fit: it tries every node for every pod.
//!
//! Must not depend on groups, reasons or the scheduler.

use std::collections::BTreeMap;

use super::server_state::{Amounts, Node, Pod, ServerState};

/// The maximum number of search steps before the answer is left open.
const STEPS_MAX: u32 = 200_000;

/// The free capacity of each node.
#[derive(Clone)]
pub(super) struct FreeCapacity<'a> {
    left: BTreeMap<&'a str, (&'a Node, Amounts, i64)>,
    state: &'a ServerState,
}

impl<'a> FreeCapacity<'a> {
    /// The capacity that is not used by the pods for which `counts` holds.
    pub(super) fn of(state: &'a ServerState, counts: impl Fn(&Pod) -> bool) -> Self {
        let mut left: BTreeMap<&str, _> =
            state.nodes.iter().map(|(name, node)| (name.as_str(), (node, node.allocatable, node.pods_max))).collect();
        for pod in state.pods.values().filter(|pod| !pod.finished() && counts(pod)) {
            if let Some((_, allocatable, pods)) = left.get_mut(pod.node.as_str()) {
                allocatable.cpu -= pod.requests.cpu;
                allocatable.gpu -= pod.requests.gpu;
                *pods -= 1;
            }
        }
        Self { left, state }
    }

    /// Whether a node has capacity for the pod; taints and selectors are ignored.
    pub(super) fn has_capacity(&self, pod: &Pod, node: &str) -> bool {
        self.left
            .get(node)
            .is_some_and(|(_, left, pods)| *pods > 0 && pod.requests.cpu <= left.cpu && pod.requests.gpu <= left.gpu)
    }

    /// A node on which the pod can run now.
    pub(super) fn node_for(&self, pod: &Pod) -> Option<&'a str> {
        self.left.keys().copied().find(|name| self.admits(pod, name))
    }

    fn admits(&self, pod: &Pod, name: &str) -> bool {
        let Some((node, _, _)) = self.left.get(name) else { return false };
        let tolerated = |key: &String| pod.tolerated.iter().any(|one| one == key || one.is_empty());
        !node.cordoned
            && node.taints.iter().all(tolerated)
            && pod.pool.as_ref().is_none_or(|pool| *pool == node.pool)
            && self.state.volumes_allow(pod, name)
            && self.has_capacity(pod, name)
    }

    fn change(&mut self, pod: &Pod, node: &'a str, sign: i64) {
        if let Some((_, left, pods)) = self.left.get_mut(node) {
            left.cpu -= sign * pod.requests.cpu;
            left.gpu -= sign * pod.requests.gpu;
            *pods -= sign;
        }
    }

    /// Whether the given number of pods of each lot fit together; `None` if the search was cut off.
    pub(super) fn fits(&mut self, lots: &[(usize, Vec<&Pod>)]) -> Option<bool> {
        let mut steps = 0;
        self.search(lots, 0, 0, lots.first().map_or(0, |lot| lot.0), &mut steps)
    }

    /// Tries the pod `next` of the lot `lot`, of which `missing` still have to be placed.
    fn search(
        &mut self,
        lots: &[(usize, Vec<&Pod>)],
        lot: usize,
        next: usize,
        missing: usize,
        steps: &mut u32,
    ) -> Option<bool> {
        *steps += 1;
        if *steps > STEPS_MAX {
            return None;
        }
        let Some((_, pods)) = lots.get(lot) else { return Some(true) };
        if missing == 0 {
            return self.search(lots, lot + 1, 0, lots.get(lot + 1).map_or(0, |lot| lot.0), steps);
        }
        if pods.len() - next < missing {
            return Some(false);
        }
        let pod = pods[next];
        let nodes: Vec<&'a str> = self.left.keys().copied().filter(|name| self.admits(pod, name)).collect();
        for node in nodes {
            self.change(pod, node, 1);
            let found = self.search(lots, lot, next + 1, missing - 1, steps);
            self.change(pod, node, -1);
            if found != Some(false) {
                return found;
            }
        }
        self.search(lots, lot, next + 1, missing, steps)
    }
}
