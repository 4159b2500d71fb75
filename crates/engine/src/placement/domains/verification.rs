//! Whether places that were chosen earlier still keep to the constraint of a group: labels may have changed, and other
//! groups may have come.

use std::collections::{BTreeMap, BTreeSet};

use super::slices::{unit_depth, unit_size, used_domains};
use super::tree::DomainId;
use super::{Target, exclusive};
use crate::cluster::Cluster;
use crate::model::ids::{NodeId, PodId};

/// Whether pods at these places, beside the members that are placed, are in the domains that they have to be in.
pub(super) fn allows(cluster: &Cluster, target: &Target, places: &[(PodId, NodeId)]) -> bool {
    let closed = exclusive::closed_domains(cluster, &target.tree, &target.topology);
    let is_open = |node: NodeId| {
        target.tree.narrowest(node).is_some_and(|domain| !exclusive::is_closed(&target.tree, &closed, domain))
    };
    places.iter().all(|(_, node)| is_open(*node))
        && slices_hold(cluster, target, places)
        && spread_holds(target, places)
}

fn slices_hold(cluster: &Cluster, target: &Target, places: &[(PodId, NodeId)]) -> bool {
    let Some(rule) = target.topology.wanted.slices else { return true };
    let (depth, size) = (unit_depth(target), unit_size(target));
    let mut homes: BTreeMap<(u64, u64), BTreeSet<DomainId>> = BTreeMap::new();
    let mut loose: BTreeMap<DomainId, usize> = BTreeMap::new();
    let mut counts: BTreeMap<DomainId, usize> = BTreeMap::new();
    for (node, rank) in target.topology.held.iter().zip(&target.topology.held_ranks) {
        let Some(domain) = target.tree.domain_at(*node, depth) else { continue };
        match rank {
            Some(rank) => _ = homes.entry(rule.of_rank(*rank)).or_default().insert(domain),
            None => *loose.entry(domain).or_default() += 1,
        }
        *counts.entry(domain).or_default() += 1;
    }
    let incomplete =
        |loose: &BTreeMap<DomainId, usize>| loose.values().filter(|count| !count.is_multiple_of(size)).count();
    let before = incomplete(&loose).max(1);
    let new = places.iter().all(|(pod, node)| {
        let Some(domain) = target.tree.domain_at(*node, depth) else { return false };
        *counts.entry(domain).or_default() += 1;
        if let Some(rank) = cluster.pod(*pod).rank {
            let homes = homes.entry(rule.of_rank(rank)).or_default();
            homes.is_empty() && homes.insert(domain) || homes.contains(&domain)
        } else {
            *loose.entry(domain).or_default() += 1;
            true
        }
    });
    let is_alone = target.topology.wanted.exclusive == Some(rule.level);
    new && incomplete(&loose) <= before && (!is_alone || counts.values().all(|count| *count <= size))
}

fn spread_holds(target: &Target, places: &[(PodId, NodeId)]) -> bool {
    let Some(spread) = target.topology.wanted.spread else { return true };
    let depth = spread.level + 1;
    let held = used_domains(&target.tree, &target.topology.held, depth);
    let new: Vec<NodeId> = places.iter().map(|(_, node)| *node).collect();
    let (mut all, before) = (held.clone(), held.len());
    all.extend(used_domains(&target.tree, &new, depth));
    let least = (spread.min as usize).min(before + places.len());
    let labelled = new.iter().all(|node| target.tree.domain_at(*node, depth).is_some());
    labelled && all.len() >= least && all.len() <= (spread.max as usize).max(before)
}
