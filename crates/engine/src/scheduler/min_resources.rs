//! The `minResources` check for groups whose members are not all created before the start: a leader whose workers are
//! created once it runs must not be placed while there is no capacity for them.
//!
//! The shape of later members is not known, so the check compares sums over nodes: what is free on the nodes that the
//! members may use, minus what incomplete groups that started earlier still need. Otherwise two leaders could count on
//! the same capacity and wait for workers forever. What a group keeps from others this way is bounded: it was free when
//! the group started, it cannot be raised later, it lapses after a while, and it never binds a group of a higher
//! priority. Where the shape of later members is known, `later_pods` is exact. Must not depend on why members are missing.

use super::Engine;
use crate::cluster::Cluster;
use crate::cluster::class::PodClass;
use crate::cluster::group::Group;
use crate::cluster::pod::{MemberState, Pod};
use crate::diagnosis::ResourceGap;
use crate::filter;
use crate::model::Millis;
use crate::model::ids::{ClassId, GroupId};
use crate::placement::PlacementRequest;

/// The resource of which every pod uses one.
const PODS: &str = "pods";

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
    let asked = spec.min_resources.iter().filter(|(_, asked)| **asked > 0);
    asked
        .map(|(resource, asked)| measure_gap(&Counter { cluster, resource, started_after }, id, request, *asked))
        .find(|gap| gap.asked > gap.taken.saturating_add(gap.left.saturating_sub(gap.owed).max(0)))
}

/// Amounts of one resource.
struct Counter<'a> {
    cluster: &'a Cluster,
    resource: &'a str,
    started_after: Millis,
}

impl Counter<'_> {
    fn of_class(&self, class: &PodClass) -> i64 {
        match self.cluster.resource_names().get(self.resource) {
            _ if self.resource == PODS => 1,
            Some(known) => class.requests.get(known),
            None => 0,
        }
    }

    /// What the placed members of a group use.
    fn taken(&self, id: GroupId) -> i64 {
        self.of_group(self.cluster.group(id))
    }

    fn of_group(&self, group: &Group) -> i64 {
        self.cluster.steps.add(group.members.len());
        let amounts = placed(self.cluster, group).map(|pod| self.of_class(self.cluster.class(pod.class)));
        amounts.fold(0, i64::saturating_add)
    }

    /// What other started groups of this priority or a higher one that share nodes with this group still need.
    fn owed(&self, id: GroupId, request: &PlacementRequest) -> i64 {
        let others = self.cluster.groups().filter(|(other, _)| *other != id);
        let owed = others.filter_map(|(other, group)| {
            let (missing, class) = self.debt(other, group, request.priority)?;
            (missing > 0 && self.share_nodes(class, request)).then_some(missing)
        });
        owed.fold(0, i64::saturating_add)
    }

    /// What a started group of at least this priority still needs, and the class of one of its members. If as many pods as
    /// requested have a node nothing is missing, even if they request less than `minResources`.
    fn debt(&self, id: GroupId, group: &Group, priority: i32) -> Option<(i64, ClassId)> {
        let spec = group.definition.last().filter(|spec| spec.later.is_empty())?;
        let asked = group.min_resource_at_start(self.resource)?;
        if self.cluster.group_priority(id) < priority {
            return None;
        }
        let pod = placed(self.cluster, group).next()?;
        let is_over = started_ms(group, pod) < self.started_after;
        let pods = Counter { resource: PODS, ..*self };
        let is_complete = spec.min_resources.get(PODS).is_some_and(|asked| pods.of_group(group) >= *asked);
        let missing = if is_over || is_complete { 0 } else { asked.saturating_sub(self.of_group(group)) };
        Some((missing, pod.class))
    }

    fn share_nodes(&self, class: ClassId, request: &PlacementRequest) -> bool {
        let is_feasible = |class: ClassId, node| filter::passes_static_filters(self.cluster.class(class), node);
        let mut nodes = self.cluster.nodes();
        nodes.any(|(_, node)| is_feasible(class, node) && request.lots.iter().any(|lot| is_feasible(lot.class, node)))
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

fn measure_gap(counter: &Counter<'_>, id: GroupId, request: &PlacementRequest, asked: i64) -> ResourceGap {
    let Counter { cluster, resource, .. } = *counter;
    let known = cluster.resource_names().get(resource);
    let taken = counter.taken(id);
    let owed = counter.owed(id, request);
    let mut left = 0_i64;
    for (node_id, node) in cluster.nodes() {
        let may_be_used = |class| filter::passes_static_filters(cluster.class(class), node);
        if asked <= taken || asked.saturating_add(owed) <= taken.saturating_add(left) {
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
