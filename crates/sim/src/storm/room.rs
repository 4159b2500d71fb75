//! Whether pods fit, the slow and plain way: every node is asked about every pod.
//!
//! It must not know groups, reasons or the scheduler.

use std::collections::BTreeMap;

use super::truth::{Amounts, Node, Pod, Truth};

/// The most placements that are looked at before the answer is left open.
const STEPS_MAX: u32 = 200_000;

/// What is left on each node.
#[derive(Clone, Debug)]
pub(super) struct Room<'a> {
    left: BTreeMap<&'a str, (&'a Node, Amounts, i64)>,
}

impl<'a> Room<'a> {
    /// What pods have left free, counting those that `counts` names.
    pub(super) fn of(truth: &'a Truth, counts: impl Fn(&Pod) -> bool) -> Self {
        let mut left: BTreeMap<&str, _> =
            truth.nodes.iter().map(|(name, node)| (name.as_str(), (node, node.has, node.pods_max))).collect();
        for pod in truth.pods.values().filter(|pod| !pod.finished() && counts(pod)) {
            if let Some((_, has, pods)) = left.get_mut(pod.node.as_str()) {
                has.cpu -= pod.asks.cpu;
                has.gpu -= pod.asks.gpu;
                *pods -= 1;
            }
        }
        Self { left }
    }

    /// Whether a node has room for the pod, whoever may go there.
    pub(super) fn has_room(&self, pod: &Pod, node: &str) -> bool {
        self.left
            .get(node)
            .is_some_and(|(_, left, pods)| *pods > 0 && pod.asks.cpu <= left.cpu && pod.asks.gpu <= left.gpu)
    }

    /// A node that would take the pod now.
    pub(super) fn place_for(&self, pod: &Pod) -> Option<&'a str> {
        self.left.keys().copied().find(|name| self.takes(pod, name))
    }

    fn takes(&self, pod: &Pod, name: &str) -> bool {
        let Some((node, _, _)) = self.left.get(name) else { return false };
        let tolerated = |key: &String| pod.tolerated.iter().any(|one| one == key || one.is_empty());
        !node.cordoned
            && node.taints.iter().all(tolerated)
            && pod.pool.as_ref().is_none_or(|pool| *pool == node.pool)
            && self.has_room(pod, name)
    }

    fn change(&mut self, pod: &Pod, node: &'a str, sign: i64) {
        if let Some((_, left, pods)) = self.left.get_mut(node) {
            left.cpu -= sign * pod.asks.cpu;
            left.gpu -= sign * pod.asks.gpu;
            *pods -= sign;
        }
    }

    /// Whether so many pods of each lot find places together; `None` if that was not found out.
    pub(super) fn fits(&mut self, lots: &[(usize, Vec<&Pod>)]) -> Option<bool> {
        let mut steps = 0;
        self.search(lots, 0, 0, lots.first().map_or(0, |lot| lot.0), &mut steps)
    }

    /// Tries the pod `next` of the lot `lot`, of which `missing` are to be placed.
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
        let nodes: Vec<&'a str> = self.left.keys().copied().filter(|name| self.takes(pod, name)).collect();
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
