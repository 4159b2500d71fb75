//! What a group will need in all, where its members are not all there when it starts: a leader whose workers are made
//! once it runs must not take its place while there is no room for them.
//!
//! Nobody knows yet how those look who are to come, so sums over nodes have to do: what is left on the nodes that its
//! members may use, without what is owed to groups that have started before and are not complete: two leaders that count
//! on the same room would each wait for workers that never get a place. Groups that start one after the other and belong
//! together (a family) ask for what all of them need.
//! It must not know why members are missing.

use std::collections::BTreeSet;

use crate::cluster::Cluster;
use crate::cluster::group::{Group, Stray};
use crate::cluster::pod::{Pod, Standing};
use crate::diagnosis::ResourceGap;
use crate::filter;
use crate::model::class::PodClass;
use crate::model::ids::{ClassId, GroupId, PodId};
use crate::placement::Want;

/// What the resource is called of which every pod takes one.
const PODS: &str = "pods";

/// What would be missing of what a group asks for in all, if it started with those who have a place in this picture.
/// A group that has had its minimum is not asked any more.
pub(super) fn gap(cluster: &Cluster, id: GroupId, want: &Want) -> Option<ResourceGap> {
    let group = cluster.group(id);
    let spec = group.spec.as_ref().filter(|_| group.asks_for_more())?;
    let asked = spec.min_resources.iter().filter(|(_, asked)| **asked > 0);
    asked
        .map(|(resource, asked)| look(cluster, id, want, resource, *asked))
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

    /// What the members of a group have that have a place, and those of its family.
    fn taken(&self, id: GroupId, group: &Group) -> i64 {
        let placed = self.family(id, group).flat_map(|group| placed(self.cluster, group));
        placed.map(|pod| self.of_class(self.cluster.class(pod.class))).fold(0, i64::saturating_add)
    }

    /// A group and those that share its needs.
    fn family<'a>(&'a self, id: GroupId, group: &'a Group) -> impl Iterator<Item = &'a Group> {
        let name = family_of(group);
        let is_kin = move |other: &Group| name.is_some() && family_of(other) == name;
        let others = self.cluster.groups().filter(move |(other, one)| name.is_some() && *other != id && is_kin(one));
        std::iter::once(group).chain(others.map(|(_, group)| group))
    }

    /// What others still need who have started and share nodes with a group.
    fn owed(&self, id: GroupId, want: &Want) -> i64 {
        let own = family_of(self.cluster.group(id));
        let is_kin = |group: &Group| own.is_some() && family_of(group) == own;
        let others = self.cluster.groups().filter(|(other, group)| *other != id && !is_kin(group));
        let mut counted = BTreeSet::new();
        let owed = others.filter_map(|(other, group)| {
            let asked = group.spec.as_ref()?.min_resources.get(self.resource)?;
            let class = placed(self.cluster, group).map(|pod| pod.class).next()?;
            if self.is_complete(other, group) {
                return None;
            }
            let missing = asked.saturating_sub(self.taken(other, group));
            let is_first = family_of(group).is_none_or(|family| counted.insert(family));
            (is_first && missing > 0 && self.share_nodes(class, want)).then_some(missing)
        });
        owed.fold(0, i64::saturating_add)
    }

    /// Whether all have a place who are to come, where the group says how many those are: then it lacks nothing, even if
    /// its pods ask for less than was said.
    fn is_complete(&self, id: GroupId, group: &Group) -> bool {
        let pods = group.spec.as_ref().and_then(|spec| spec.min_resources.get(PODS));
        let counter = Counter { cluster: self.cluster, resource: PODS };
        pods.is_some_and(|pods| counter.taken(id, group) >= *pods)
    }

    fn share_nodes(&self, class: ClassId, want: &Want) -> bool {
        let would_do = |class: ClassId, node| filter::node_would_do(self.cluster.class(class), node);
        let mut nodes = self.cluster.nodes();
        nodes.any(|(_, node)| would_do(class, node) && want.lots.iter().any(|lot| would_do(lot.class, node)))
    }
}

fn family_of(group: &Group) -> Option<&str> {
    group.spec.as_ref()?.family.as_deref()
}

fn placed<'a>(cluster: &'a Cluster, group: &'a Group) -> impl Iterator<Item = &'a Pod> {
    let is_former = |member: &PodId| group.strays.get(member) == Some(&Stray::Former);
    let members = group.members.iter().filter(move |(_, member)| !is_former(member));
    members
        .map(|(_, member)| cluster.pod(*member))
        .filter(|pod| matches!(pod.standing(), Standing::Bound | Standing::Assumed | Standing::Succeeded))
}

fn look(cluster: &Cluster, id: GroupId, want: &Want, resource: &str, asked: i64) -> ResourceGap {
    let known = cluster.resource_names().get(resource);
    let counter = Counter { cluster, resource };
    let taken = counter.taken(id, cluster.group(id));
    let owed = counter.owed(id, want);
    let mut left = 0_i64;
    for (node_id, node) in cluster.nodes() {
        let may_be_used = |class| filter::node_would_do(cluster.class(class), node);
        if asked.saturating_add(owed) <= taken.saturating_add(left) {
            break;
        }
        if !want.lots.iter().any(|lot| may_be_used(lot.class)) {
            continue;
        }
        let view = filter::view(cluster, node_id, want.priority);
        let free = match known {
            _ if resource == PODS => node.pods_max.saturating_sub(view.load.pods as i64),
            Some(known) => node.allocatable.get(known).saturating_sub(view.load.used.get(known)),
            None => 0,
        };
        left = left.saturating_add(free.max(0));
    }
    ResourceGap { resource: resource.to_owned(), asked, taken, left, owed }
}
