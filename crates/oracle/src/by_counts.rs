//! Exact decision by counts: whether a group can be placed, for larger instances than brute force can decide.
//!
//! Node by node, every set of pods that the node can hold is tried; the pods that are left after some nodes are
//! remembered if they do not fit on the others. Only maximal sets matter: a pod that fits can come from a later node.
//! Handles resources, the number of pods, and which nodes a class may use; not ports.

use std::collections::{BTreeSet, HashSet};

use muster_engine::Scoring;
use muster_engine::model::class::ClassSpec;
use muster_engine::model::node::NodeSpec;

use crate::brute::Lot;
use crate::naive::{FailureReason, Naive};

/// Whether at least `needs[s]` pods of each subset s can be placed together, in addition to what is occupied; `None` if
/// that is not known after so many steps.
pub fn placeable(
    nodes: &[NodeSpec],
    occupied: &[(usize, ClassSpec)],
    lots: &[Lot],
    needs: &[u32],
    steps: u64,
) -> Option<bool> {
    assert!(lots.iter().all(|lot| lot.class.host_ports.is_empty()), "ports are not handled");
    let names: BTreeSet<&str> = lots.iter().flat_map(|lot| lot.class.requests.keys()).map(String::as_str).collect();
    let free = |node: usize| -> Vec<i64> {
        let here = || occupied.iter().filter(move |(other, _)| *other == node).map(|(_, class)| class);
        let allocatable = |name: &str| nodes[node].allocatable.get(name).copied().unwrap_or(0);
        let of_resource =
            |name: &&str| allocatable(name) - here().filter_map(|class| class.requests.get(*name)).sum::<i64>();
        let pods = allocatable("pods") - here().count() as i64;
        names.iter().map(of_resource).chain([pods]).map(|free| free.max(0)).collect()
    };
    let amounts = |lot: &Lot| -> Vec<i64> {
        names.iter().map(|name| lot.class.requests.get(*name).copied().unwrap_or(0)).chain([1]).collect()
    };
    let empty = Naive::new(nodes, &Scoring::default());
    let may_use = |node: usize, lot: &Lot| {
        let by_amount = |reason: &FailureReason| {
            matches!(reason, FailureReason::Insufficient(_) | FailureReason::TooManyPods | FailureReason::Ports)
        };
        empty.failure_reasons(node, &lot.class).iter().all(by_amount)
    };
    let mut decision = Decision {
        free: (0..nodes.len()).map(free).collect(),
        amounts: lots.iter().map(amounts).collect(),
        allowed: (0..nodes.len()).map(|node| lots.iter().map(|lot| may_use(node, lot)).collect()).collect(),
        lots,
        needs,
        failed: HashSet::new(),
        steps,
    };
    let left = lots.iter().map(|lot| lot.count).collect();
    decision.fits(0, left)
}

struct Decision<'a> {
    /// By node and resource; the last one is the number of pods.
    free: Vec<Vec<i64>>,
    amounts: Vec<Vec<i64>>,
    /// By node and lot.
    allowed: Vec<Vec<bool>>,
    lots: &'a [Lot],
    needs: &'a [u32],
    /// Nodes that are left, and pods that do not fit there.
    failed: HashSet<(usize, Vec<u32>)>,
    steps: u64,
}

impl Decision<'_> {
    /// Whether the nodes from this one on can hold enough of the pods that are left.
    fn fits(&mut self, node: usize, left: Vec<u32>) -> Option<bool> {
        if self.is_enough(&left) {
            return Some(true);
        }
        if node == self.free.len() || self.is_too_much(node, &left) {
            return Some(false);
        }
        if self.failed.contains(&(node, left.clone())) {
            return Some(false);
        }
        let mut sets = Vec::new();
        let free = self.free[node].clone();
        self.sets_on(node, 0, free, &mut left.clone(), &left, &mut sets)?;
        for after in sets {
            if self.fits(node + 1, after)? {
                return Some(true);
            }
        }
        self.failed.insert((node, left));
        Some(false)
    }

    /// Lists what is left after each maximal set of pods on a node.
    fn sets_on(
        &mut self,
        node: usize,
        lot: usize,
        free: Vec<i64>,
        after: &mut Vec<u32>,
        left: &[u32],
        sets: &mut Vec<Vec<u32>>,
    ) -> Option<()> {
        self.steps = self.steps.checked_sub(1)?;
        let holds = |free: &[i64], lot: usize| self.amounts[lot].iter().zip(free).all(|(amount, free)| amount <= free);
        if lot == self.lots.len() {
            let more = (0..lot).any(|lot| after[lot] > 0 && self.allowed[node][lot] && holds(&free, lot));
            if !more {
                sets.push(after.clone());
            }
            return Some(());
        }
        let mut free = free;
        after[lot] = left[lot];
        self.sets_on(node, lot + 1, free.clone(), after, left, sets)?;
        while after[lot] > 0
            && self.allowed[node][lot]
            && self.amounts[lot].iter().zip(&free).all(|(amount, free)| amount <= free)
        {
            after[lot] -= 1;
            free.iter_mut().zip(&self.amounts[lot]).for_each(|(free, amount)| *free -= amount);
            self.sets_on(node, lot + 1, free.clone(), after, left, sets)?;
        }
        after[lot] = left[lot];
        Some(())
    }

    /// Whether enough pods are placed if these are left.
    fn is_enough(&self, left: &[u32]) -> bool {
        let mut placed = vec![0; self.needs.len()];
        for (lot, left) in self.lots.iter().zip(left) {
            placed[lot.subset] += lot.count - left;
        }
        placed.iter().zip(self.needs).all(|(placed, need)| placed >= need)
    }

    /// Whether the least that is still needed uses more of some resource than all these nodes have.
    fn is_too_much(&self, node: usize, left: &[u32]) -> bool {
        let mut missing = self.needs.to_vec();
        for (lot, left) in self.lots.iter().zip(left) {
            missing[lot.subset] = missing[lot.subset].saturating_sub(lot.count - left);
        }
        let resources = self.free.first().map_or(0, Vec::len);
        (0..resources).any(|resource| {
            let free: i64 = self.free[node..].iter().map(|free| free[resource]).sum();
            let least: i64 =
                missing.iter().enumerate().map(|(subset, need)| self.least(subset, *need, resource, left)).sum();
            least > free
        })
    }

    fn least(&self, subset: usize, mut need: u32, resource: usize, left: &[u32]) -> i64 {
        let mut amounts: Vec<(i64, u32)> = (0..self.lots.len())
            .filter(|lot| self.lots[*lot].subset == subset)
            .map(|lot| (self.amounts[lot][resource], left[lot]))
            .collect();
        amounts.sort_unstable();
        let mut sum = 0;
        for (amount, pods) in amounts {
            let taken = need.min(pods);
            sum += amount * i64::from(taken);
            need -= taken;
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(cpu: i64, memory: i64) -> NodeSpec {
        let allocatable = [("cpu", cpu), ("memory", memory), ("pods", 9)];
        let allocatable = allocatable.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect();
        NodeSpec { name: format!("n{cpu}-{memory}"), allocatable, ..NodeSpec::default() }
    }

    fn lot(cpu: i64, memory: i64, subset: usize, count: u32) -> Lot {
        let requests = [("cpu", cpu), ("memory", memory)].into_iter().map(|(name, amount)| (name.to_owned(), amount));
        let class = ClassSpec { requests: requests.collect(), ..ClassSpec::default() };
        Lot { class, subset, count }
    }

    #[test]
    fn two_resources_are_seen_together() {
        let nodes = [node(8, 2), node(2, 8)];
        let lots = [lot(4, 1, 0, 2), lot(1, 4, 0, 2)];
        assert_eq!(placeable(&nodes, &[], &lots, &[4], 1000), Some(true));
        assert_eq!(placeable(&[node(5, 5), node(5, 5)], &[], &lots, &[4], 1000), Some(true));
        assert_eq!(placeable(&[node(5, 4), node(5, 6)], &[], &lots, &[4], 1000), Some(false));
        assert_eq!(placeable(&[node(5, 4), node(5, 6)], &[], &lots, &[3], 1000), Some(true));
        assert_eq!(placeable(&[node(5, 4), node(5, 6)], &[], &lots, &[4], 3), None, "too few steps");
    }
}
