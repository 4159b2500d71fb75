//! The `minResources` check for groups whose members are not all created before the start: a leader whose workers are
//! created once it runs must not be placed while there is no capacity for them.
//!
//! The shape of later members is not known, so the check compares sums over nodes: what is free on the nodes that the
//! members may use, minus what incomplete groups that started earlier still need. Otherwise two leaders could count on
//! the same capacity and wait for workers forever. Groups of one family start one after the other and share their
//! `minResources`. What a group keeps from others this way is bounded: it was free when the group started, it cannot be
//! raised later, it lapses after a while, and it never binds a group of a higher priority. Must not depend on why
//! members are missing.

use std::collections::BTreeMap;

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
    let spec = group.definition.current().filter(|_| group.must_fit_min_resources())?;
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

    /// What the placed members of a group and its family use.
    fn taken(&self, id: GroupId) -> i64 {
        let group = self.cluster.group(id);
        let is_family = |(other, one): &(GroupId, &Group)| *other == id || is_same_family(one, group);
        let groups: Vec<&Group> = match family_of(group) {
            None => vec![group],
            Some(_) => self.cluster.groups().filter(is_family).map(|(_, group)| group).collect(),
        };
        groups.into_iter().map(|group| self.of_group(group)).fold(0, i64::saturating_add)
    }

    fn of_group(&self, group: &Group) -> i64 {
        self.cluster.steps.add(group.members.len());
        let amounts = placed(self.cluster, group).map(|pod| self.of_class(self.cluster.class(pod.class)));
        amounts.fold(0, i64::saturating_add)
    }

    /// What other started groups that share nodes with this group still need.
    fn owed(&self, id: GroupId, request: &PlacementRequest) -> i64 {
        let owed = self.debts(id, request.priority).into_values().filter_map(|debt| {
            let missing = debt.missing();
            (missing > 0 && self.share_nodes(debt.asked?.class, request)).then_some(missing)
        });
        owed.fold(0, i64::saturating_add)
    }

    /// What the other groups of this priority or a higher one ask for and use. The groups of a family count as one; each
    /// group is looked at once.
    fn debts(&self, id: GroupId, priority: i32) -> BTreeMap<Debtor<'_>, Debt> {
        let own = self.cluster.group(id);
        let pods = Counter { resource: PODS, ..*self };
        let mut debts: BTreeMap<Debtor<'_>, Debt> = BTreeMap::new();
        for (other, group) in self.cluster.groups().filter(|(other, one)| *other != id && !is_same_family(one, own)) {
            let Some(spec) = group.definition.last() else { continue };
            let asked = group.min_resource_at_start(self.resource);
            if (asked.is_none() && spec.family.is_none()) || self.cluster.group_priority(other) < priority {
                continue;
            }
            let debt = debts.entry(family_of(group).map_or(Debtor::Group(other), Debtor::Family)).or_default();
            debt.taken = debt.taken.saturating_add(self.of_group(group));
            debt.pods = debt.pods.saturating_add(pods.of_group(group));
            if let (None, Some(amount), Some(pod)) = (&debt.asked, asked, placed(self.cluster, group).next()) {
                let pods = spec.min_resources.get(PODS).copied();
                let amount = if started_ms(group, pod) < self.started_after { 0 } else { amount };
                debt.asked = Some(Asked { amount, pods, class: pod.class });
            }
        }
        debts
    }

    fn share_nodes(&self, class: ClassId, request: &PlacementRequest) -> bool {
        let is_feasible = |class: ClassId, node| filter::passes_static_filters(self.cluster.class(class), node);
        let mut nodes = self.cluster.nodes();
        nodes.any(|(_, node)| is_feasible(class, node) && request.lots.iter().any(|lot| is_feasible(lot.class, node)))
    }
}

/// A group without a family, or a family.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Debtor<'a> {
    Group(GroupId),
    Family(&'a str),
}

/// What a started group or family asks for, and what its placed members use.
#[derive(Default)]
struct Debt {
    asked: Option<Asked>,
    taken: i64,
    pods: i64,
}

/// What the first started group of a family asks for.
struct Asked {
    amount: i64,
    /// How many pods it asks for.
    pods: Option<i64>,
    /// The class of a placed member.
    class: ClassId,
}

impl Debt {
    /// What is still needed. If as many pods as requested have a node nothing is, even if they request less than
    /// `minResources`.
    fn missing(&self) -> i64 {
        match &self.asked {
            Some(asked) if asked.pods.is_none_or(|pods| self.pods < pods) => asked.amount.saturating_sub(self.taken),
            _ => 0,
        }
    }
}

fn is_same_family(one: &Group, other: &Group) -> bool {
    family_of(one).is_some() && family_of(one) == family_of(other)
}

fn family_of(group: &Group) -> Option<&str> {
    group.definition.last()?.family.as_deref()
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
