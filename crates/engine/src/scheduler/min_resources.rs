//! The `minResources` check for groups whose members are not all created before the start: a leader whose workers are
//! created once it runs must not be placed while there is no capacity for them.
//!
//! The shape of later members is not known, so the check compares sums over nodes: what is free on the nodes that the
//! members may use, minus what incomplete groups that started earlier still need. Otherwise two leaders could count on
//! the same capacity and wait for workers forever. Groups of one family start one after the other and share their
//! `minResources`. Must not depend on why members are missing.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::group::{Exclusion, Group};
use crate::cluster::pod::{MemberState, Pod};
use crate::diagnosis::ResourceGap;
use crate::filter;
use crate::model::ids::{ClassId, GroupId, PodId};
use crate::placement::PlacementRequest;

/// The resource of which every pod uses one.
const PODS: &str = "pods";

/// The first resource of which the group would lack some of its `minResources` if it started with the members that have
/// a node in this state of the cluster. Not checked for a group that has reached its minimum.
pub(super) fn gap(cluster: &Cluster, id: GroupId, request: &PlacementRequest) -> Option<ResourceGap> {
    let group = cluster.group(id);
    let spec = group.definition.current().filter(|_| group.must_fit_min_resources())?;
    let asked = spec.min_resources.iter().filter(|(_, asked)| **asked > 0);
    asked
        .map(|(resource, asked)| measure_gap(cluster, id, request, resource, *asked))
        .find(|gap| gap.asked > gap.taken.saturating_add(gap.left).saturating_sub(gap.owed))
}

/// Amounts of one resource.
struct Counter<'a> {
    cluster: &'a Cluster,
    resource: &'a str,
}

impl Counter<'_> {
    fn of_class(&self, class: &PodClass) -> i64 {
        match self.cluster.resource_names().get(self.resource) {
            _ if self.resource == PODS => 1,
            Some(known) => class.requests.get(known),
            None => 0,
        }
    }

    /// What the placed members of a group and its family use.
    fn taken(&self, id: GroupId, group: &Group) -> i64 {
        let placed = self.family(id, group).flat_map(|group| placed(self.cluster, group));
        placed.map(|pod| self.of_class(self.cluster.class(pod.class))).fold(0, i64::saturating_add)
    }

    /// A group and the other groups of its family.
    fn family<'a>(&'a self, id: GroupId, group: &'a Group) -> impl Iterator<Item = &'a Group> {
        let name = family_of(group);
        let same_family = move |other: &Group| name.is_some() && family_of(other) == name;
        let others =
            self.cluster.groups().filter(move |(other, one)| name.is_some() && *other != id && same_family(one));
        std::iter::once(group).chain(others.map(|(_, group)| group))
    }

    /// What other started groups that share nodes with this group still need.
    fn owed(&self, id: GroupId, request: &PlacementRequest) -> i64 {
        let own = family_of(self.cluster.group(id));
        let same_family = |group: &Group| own.is_some() && family_of(group) == own;
        let others = self.cluster.groups().filter(|(other, group)| *other != id && !same_family(group));
        let mut counted = BTreeSet::new();
        let owed = others.filter_map(|(other, group)| {
            let asked = group.definition.last()?.min_resources.get(self.resource)?;
            let class = placed(self.cluster, group).map(|pod| pod.class).next()?;
            if self.is_complete(other, group) {
                return None;
            }
            let missing = asked.saturating_sub(self.taken(other, group));
            let is_first = family_of(group).is_none_or(|family| counted.insert(family));
            (is_first && missing > 0 && self.share_nodes(class, request)).then_some(missing)
        });
        owed.fold(0, i64::saturating_add)
    }

    /// Whether as many pods as the group requests have a node: then nothing is missing, even if they request less than
    /// `minResources`.
    fn is_complete(&self, id: GroupId, group: &Group) -> bool {
        let pods = group.definition.last().and_then(|spec| spec.min_resources.get(PODS));
        let counter = Counter { cluster: self.cluster, resource: PODS };
        pods.is_some_and(|pods| counter.taken(id, group) >= *pods)
    }

    fn share_nodes(&self, class: ClassId, request: &PlacementRequest) -> bool {
        let is_feasible = |class: ClassId, node| filter::passes_static_filters(self.cluster.class(class), node);
        let mut nodes = self.cluster.nodes();
        nodes.any(|(_, node)| is_feasible(class, node) && request.lots.iter().any(|lot| is_feasible(lot.class, node)))
    }
}

fn family_of(group: &Group) -> Option<&str> {
    group.definition.last()?.family.as_deref()
}

fn placed<'a>(cluster: &'a Cluster, group: &'a Group) -> impl Iterator<Item = &'a Pod> {
    let is_former = |member: &PodId| group.excluded.get(member) == Some(&Exclusion::Former);
    let members = group.members.iter().filter(move |(_, member)| !is_former(member));
    members
        .map(|(_, member)| cluster.pod(*member))
        .filter(|pod| matches!(pod.member_state(), MemberState::Bound | MemberState::Assumed | MemberState::Succeeded))
}

fn measure_gap(cluster: &Cluster, id: GroupId, request: &PlacementRequest, resource: &str, asked: i64) -> ResourceGap {
    let known = cluster.resource_names().get(resource);
    let counter = Counter { cluster, resource };
    let taken = counter.taken(id, cluster.group(id));
    let owed = counter.owed(id, request);
    let mut left = 0_i64;
    for (node_id, node) in cluster.nodes() {
        let may_be_used = |class| filter::passes_static_filters(cluster.class(class), node);
        if asked.saturating_add(owed) <= taken.saturating_add(left) {
            break;
        }
        if !request.lots.iter().any(|lot| may_be_used(lot.class)) {
            continue;
        }
        let view = filter::view(cluster, node_id, request.priority);
        let free = match known {
            _ if resource == PODS => node.pods_max.saturating_sub(view.load.pods as i64),
            Some(known) => node.allocatable.get(known).saturating_sub(view.load.used.get(known)),
            None => 0,
        };
        left = left.saturating_add(free.max(0));
    }
    ResourceGap { resource: resource.to_owned(), asked, taken, left, owed }
}
