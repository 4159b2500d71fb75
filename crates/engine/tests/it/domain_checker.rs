//! Reference for topology domains: the domains of a group's nodes, computed from the labels alone.

use std::collections::BTreeMap;

use muster_engine::Engine;
use muster_engine::model::group::GroupKey;
use muster_engine::model::node::NodeSpec;
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
    let Some(level) = topology.required else { return };
    let members = members_by_domain(fake, &membership.group, topology, level);
    let own = domain(&fake.nodes[node], topology, level);
    let own = own.unwrap_or_else(|| panic!("{uid} is bound to {node}, which is in no domain of {topology:?}"));
    let most = members.values().copied().max().unwrap_or(0);
    assert_eq!(members.get(&own), Some(&most), "{uid} is bound to {node} in {own:?}, its group is in {members:?}");
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
