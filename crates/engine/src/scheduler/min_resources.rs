//! The `minResources` check for groups whose members are not all created before the start: a leader whose workers are
//! created once it runs must not be placed while there is no capacity for them.
//!
//! The shape of later members is not known, so the check compares sums over nodes: what is free on the nodes that the
//! members may use, minus what incomplete groups that started earlier still need. Otherwise two leaders could count on
//! the same capacity and wait for workers forever. What placed members take is added up by the cluster (`cluster::taken`),
//! so an attempt looks at the groups that lack something, not at their pods. What a group keeps from others this way is bounded: it was free when
//! the group started, it cannot be raised later, it lapses after a while, and it never binds a group of a higher
//! priority. Where the shape of later members is known, `later_pods` is exact. Must not depend on why members are missing.

use std::collections::BTreeMap;

use super::Engine;
use crate::cluster::Cluster;
use crate::cluster::group::Group;
use crate::cluster::node::Node;
use crate::cluster::pod::{MemberState, Pod};
use crate::diagnosis::ResourceGap;
use crate::filter;
use crate::model::Millis;
use crate::model::ids::{ClassId, GroupId};
use crate::model::resources::PODS;
use crate::placement::PlacementRequest;

/// So many nodes are looked at to find out which debtors may use the same nodes, for each node of the cluster.
const CHECKS_PER_NODE: usize = 4;
/// Looking at so many debtors is one step.
const STEPS_PER_DEBTORS: usize = 16;

/// The first resource of which the group would lack some of its `minResources` if it started with the members that have
/// a node in this state of the cluster. Not checked for a group that has reached its minimum. Groups that started earlier
/// than `started_after` need nothing more.
pub(super) fn gap(
    cluster: &Cluster,
    id: GroupId,
    request: &PlacementRequest,
    started_after: Millis,
) -> Option<ResourceGap> {
    let group = cluster.group(id);
    // What is known of later pods is exact: their room is looked for, and kept.
    let spec = group.definition.current().filter(|spec| spec.later.is_empty() && group.must_fit_min_resources())?;
    let sums = Sums { cluster, id, request, debtors: debtors_beside(cluster, id, request, started_after) };
    let asked = spec.min_resources.iter().filter(|(_, asked)| **asked > 0);
    asked
        .map(|(resource, asked)| sums.measure(resource, *asked))
        .find(|gap| gap.asked > gap.taken.saturating_add(gap.left.saturating_sub(gap.owed).max(0)))
}

/// The other groups of at least this priority that have started, lack something, and share nodes with this group.
fn debtors_beside(cluster: &Cluster, id: GroupId, request: &PlacementRequest, started_after: Millis) -> Vec<GroupId> {
    let mut shared = SharedNodes { cluster, request, by_class: BTreeMap::new(), checks_left: 0 };
    shared.checks_left = CHECKS_PER_NODE * cluster.nodes_present();
    let checks_max = shared.checks_left;
    let mut seen = 0;
    let is_beside = |other: &GroupId| {
        seen += 1;
        let group = cluster.group(*other);
        let oldest = group.taken.oldest().map(|pod| cluster.pod(pod));
        *other != id
            && cluster.group_priority(*other) >= request.priority
            && oldest.is_some_and(|pod| started_ms(group, pod) >= started_after && shared.has_some(pod))
    };
    let debtors = cluster.debtors().filter(is_beside).collect();
    cluster.steps.add(seen / STEPS_PER_DEBTORS + (checks_max - shared.checks_left));
    debtors
}

/// Which pods may use nodes that the pods of a request may use, too.
struct SharedNodes<'a> {
    cluster: &'a Cluster,
    request: &'a PlacementRequest,
    by_class: BTreeMap<ClassId, bool>,
    /// How many more nodes are looked at. After that only the own node of a pod counts.
    checks_left: usize,
}

impl SharedNodes<'_> {
    fn has_some(&mut self, pod: &Pod) -> bool {
        let node = pod.state.node().and_then(|node| self.cluster.node_if_any(node));
        if node.is_some_and(|node| self.is_shared(pod.class, node)) {
            return true;
        }
        if let Some(known) = self.by_class.get(&pod.class) {
            return *known;
        }
        let nodes = self.cluster.nodes().take(self.checks_left);
        let mut looked_at = 0;
        let found = nodes.inspect(|_| looked_at += 1).any(|(_, node)| self.is_shared(pod.class, node));
        self.checks_left -= looked_at;
        self.by_class.insert(pod.class, found);
        found
    }

    fn is_shared(&self, class: ClassId, node: &Node) -> bool {
        let is_feasible = |class: ClassId| filter::passes_static_filters(self.cluster.class(class), node);
        is_feasible(class) && self.request.lots.iter().any(|lot| is_feasible(lot.class))
    }
}

/// The amounts that a start is decided by.
struct Sums<'a> {
    cluster: &'a Cluster,
    id: GroupId,
    request: &'a PlacementRequest,
    debtors: Vec<GroupId>,
}

impl Sums<'_> {
    fn measure(&self, resource: &str, asked: i64) -> ResourceGap {
        let taken = self.taken(self.id, resource);
        let owed = self.debtors.iter().map(|other| self.debt(*other, resource)).fold(0, i64::saturating_add);
        let enough = if asked <= taken { 0 } else { asked.saturating_add(owed).saturating_sub(taken) };
        let left = self.left(resource, enough);
        ResourceGap { resource: resource.to_owned(), asked, taken, left, owed }
    }

    /// What the placed members of a group take.
    fn taken(&self, id: GroupId, resource: &str) -> i64 {
        self.cluster.group(id).taken.amount(self.cluster.resource_names(), resource)
    }

    /// What a group that has started still needs.
    fn debt(&self, id: GroupId, resource: &str) -> i64 {
        let asked = self.cluster.group(id).min_resource_at_start(resource).unwrap_or(0);
        asked.saturating_sub(self.taken(id, resource)).max(0)
    }

    /// What is free on the nodes that the group may use; not counted further than what is enough.
    fn left(&self, resource: &str, enough: i64) -> i64 {
        let Self { cluster, request, .. } = *self;
        let known = cluster.resource_names().get(resource);
        let mut left = 0_i64;
        for (id, node) in cluster.nodes() {
            if enough <= left {
                break;
            }
            let may_be_used = |class| filter::passes_static_filters(cluster.class(class), node);
            if !request.lots.iter().any(|lot| may_be_used(lot.class)) {
                continue;
            }
            let view = filter::view(cluster, id, request.priority);
            let free = match known {
                _ if resource == PODS => node.pods_max.saturating_sub(view.load.pods as i64),
                Some(known) => node.allocatable.get(known).saturating_sub(view.load.used.get(known)),
                None => 0,
            };
            left = left.saturating_add(free.max(0));
        }
        left
    }
}

impl Engine {
    /// When a group with placed members started.
    pub(super) fn started_ms(&self, id: GroupId) -> Option<Millis> {
        let group = self.cluster.group(id);
        placed(&self.cluster, group).next().map(|pod| started_ms(group, pod))
    }
}

fn placed<'a>(cluster: &'a Cluster, group: &'a Group) -> impl Iterator<Item = &'a Pod> {
    let members = group.members.iter().filter(move |(_, member)| !group.is_former(*member));
    members
        .map(|(_, member)| cluster.pod(*member))
        .filter(|pod| matches!(pod.member_state(), MemberState::Bound | MemberState::Assumed | MemberState::Succeeded))
}

/// When a group with a placed member started.
fn started_ms(group: &Group, member: &Pod) -> Millis {
    let stamped = || member.start.as_ref().map(|stamp| stamp.decided_ms);
    group.lifecycle.decided_ms().or_else(stamped).unwrap_or(member.created_ms)
}
