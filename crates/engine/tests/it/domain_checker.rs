//! Reference for topology domains: the domains of a group's nodes, computed from the labels alone.

use std::collections::BTreeMap;

use muster_engine::Engine;
use muster_engine::model::group::GroupKey;
use muster_engine::model::node::NodeSpec;
use muster_engine::model::pod::PodSpec;
use muster_engine::model::topology::GroupTopology;

use crate::fake_cluster::FakeCluster;
use crate::gang_history::is_member;

/// The domain of a node at a level: the values of the labels down to it.
pub(crate) fn domain(node: &NodeSpec, topology: &GroupTopology, level: usize) -> Option<Vec<String>> {
    topology.levels[..=level].iter().map(|key| node.labels.get(key).cloned()).collect()
}

/// The nodes of the members of a group that are placed and stay, one entry for each.
fn nodes_of_members<'f>(fake: &'f FakeCluster, engine: &'f Engine, group: &GroupKey) -> Vec<&'f NodeSpec> {
    let members = engine.pod_views().filter(|pod| !pod.is_leaving());
    let members = members.filter(|pod| fake.shown.get(&pod.name().uid).is_some_and(|shown| is_member(shown, group)));
    members.filter_map(|pod| fake.nodes.get(pod.node()?.name())).collect()
}

/// A required domain is never left by an act of the engine: a new member is in the domain where most members are.
pub(crate) fn check_domain_of_bind(fake: &FakeCluster, uid: &str, node: &str) {
    let Some(membership) = &fake.shown[uid].membership else { return };
    let Some(group) = fake.groups.get(&membership.group) else { return };
    let Some(topology) = group.topology.as_deref() else { return };
    check_slice_of_bind(fake, uid, node, topology);
    check_exclusive_domain_of_bind(fake, uid, node, topology);
    let Some(level) = topology.required else { return };
    let members = members_by_domain(fake, &membership.group, topology, level);
    let own = domain(&fake.nodes[node], topology, level);
    let own = own.unwrap_or_else(|| panic!("{uid} is bound to {node}, which is in no domain of {topology:?}"));
    let most = members.values().copied().max().unwrap_or(0);
    assert_eq!(members.get(&own), Some(&most), "{uid} is bound to {node} in {own:?}, its group is in {members:?}");
}

/// A member with a rank is bound in the domain where most members of its slice are.
fn check_slice_of_bind(fake: &FakeCluster, uid: &str, node: &str, topology: &GroupTopology) {
    let Some(slices) = topology.slices else { return };
    let own = domain(&fake.nodes[node], topology, slices.level);
    let own = own.unwrap_or_else(|| panic!("{uid} is bound to {node}, which is in no domain of {topology:?}"));
    let (Some(membership), Some(rank)) = (&fake.shown[uid].membership, fake.shown[uid].rank) else { return };
    let slice = |rank: u64| (rank >> 32, (rank & u64::from(u32::MAX)) / u64::from(slices.size));
    let mut ranks = Vec::new();
    let mut homes: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for pod in fake.engine.engine().pod_views().filter(|pod| !pod.is_leaving() && pod.node().is_some()) {
        let Some(shown) = fake.shown.get(&pod.name().uid).filter(|shown| is_member(shown, &membership.group)) else {
            continue;
        };
        let Some(rank) = shown.rank.filter(|other| slice(*other) == slice(rank)) else { continue };
        ranks.push(rank);
        let there = pod.node().and_then(|node| fake.nodes.get(node.name()));
        if let Some(home) = there.and_then(|node| domain(node, topology, slices.level)) {
            *homes.entry(home).or_default() += 1;
        }
    }
    ranks.sort_unstable();
    // Of several pods with one rank, only the first counts.
    if ranks.windows(2).all(|pair| pair[0] != pair[1]) {
        let most = homes.values().copied().max().unwrap_or(0);
        assert_eq!(homes.get(&own), Some(&most), "{uid} is bound to {node} in {own:?}, its slice is in {homes:?}");
    }
}

/// The first members of a group are bound in a domain that no group has that excludes others from the same label.
fn check_exclusive_domain_of_bind(fake: &FakeCluster, uid: &str, node: &str, topology: &GroupTopology) {
    let Some(level) = topology.exclusive else { return };
    let Some(membership) = &fake.shown[uid].membership else { return };
    let own = domain(&fake.nodes[node], topology, level);
    let is_inside = |node: &str| fake.nodes.get(node).is_some_and(|node| domain(node, topology, level) == own);
    let was_there = |pod: &&PodSpec| is_member(pod, &membership.group) && pod.node.as_deref().is_some_and(is_inside);
    if fake.pods.values().any(|pod| was_there(&pod)) {
        return;
    }
    for pod in fake.engine.engine().pod_views().filter(|pod| pod.node().is_some_and(|node| is_inside(node.name()))) {
        let other = fake.shown.get(&pod.name().uid).and_then(|shown| shown.membership.as_ref());
        let other = other.filter(|other| other.group != membership.group).map(|other| &other.group);
        let rule = other.and_then(|other| fake.engine.engine().group_view(other)?.last_spec()?.topology.clone());
        let key = rule.and_then(|rule| rule.exclusive.map(|level| rule.levels[level].clone()));
        assert_ne!(key.as_ref(), Some(&topology.levels[level]), "{uid} is bound to {node}, where {other:?} is");
    }
}

/// How many members of a group are in each domain.
fn members_by_domain(
    fake: &FakeCluster,
    group: &GroupKey,
    topology: &GroupTopology,
    level: usize,
) -> BTreeMap<Vec<String>, usize> {
    let mut members = BTreeMap::new();
    for node in nodes_of_members(fake, fake.engine.engine(), group) {
        if let Some(domain) = domain(node, topology, level) {
            *members.entry(domain).or_default() += 1;
        }
    }
    members
}

/// The most room that a group has in one domain that it may use, by the room of each node.
pub(crate) fn room(
    fake: &FakeCluster,
    group: &GroupKey,
    topology: &GroupTopology,
    level: usize,
    of_node: impl Fn(&NodeSpec) -> usize,
) -> usize {
    let mut rooms: BTreeMap<Vec<String>, usize> = BTreeMap::new();
    for node in fake.nodes.values() {
        if let Some(domain) = domain(node, topology, level) {
            *rooms.entry(domain).or_default() += of_node(node);
        }
    }
    let members = members_by_domain(fake, group, topology, level);
    let Some(most) = members.values().max() else { return rooms.into_values().max().unwrap_or(0) };
    // Between domains with as many members it has no choice.
    let open = members.iter().filter(|(_, count)| *count == most).map(|(domain, _)| rooms[domain]);
    open.min().unwrap_or(0)
}
