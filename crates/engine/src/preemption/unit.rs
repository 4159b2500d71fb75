//! What can be taken away for somebody else: units, and how much they matter.
//!
//! A unit is a pod, or a whole group where its disruption mode says so; it goes whole or stays whole. Its priority is
//! its group's, or the pod's own. Nobody is a unit who is already leaving, who is not bound yet, or who cannot be made
//! to leave.

use std::cmp::{Ordering, Reverse};
use std::collections::BTreeMap;

use super::NoPlan;
use super::budgets::Budgets;
use crate::cluster::Cluster;
use crate::cluster::pod::{Counted, Pod, PodState};
use crate::cluster::trial::Trial;
use crate::model::Millis;
use crate::model::group::DisruptionMode;
use crate::model::ids::{GroupId, NodeId, PodId};

/// What kind of loss a unit would be: among equals the first are taken first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A member that its gang has beyond its minimum.
    Surplus,
    /// A pod on its own, or of a group without a minimum.
    Single,
    /// A member that its gang needs for its minimum.
    Needed,
    /// A whole group.
    Whole,
}

/// What goes whole or stays whole.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// Its pods and the nodes that they are on.
    pub(crate) pods: Vec<(PodId, NodeId)>,
    /// Its group, whole or not.
    pub(crate) group: Option<GroupId>,
    pub(crate) kind: Kind,
    pub(crate) priority: i32,
    /// When the first of its pods started.
    pub(crate) started_ms: Millis,
}

/// Which pods may be taken, and as what.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Groups whose mode asks for it are units; if not, every pod is one.
    pub(crate) whole_groups: bool,
    /// Nobody is taken against a disruption budget.
    pub(crate) keeps_budgets: bool,
    pub(crate) now: Millis,
}

impl Unit {
    /// Takes its pods off their nodes.
    pub(crate) fn leave(&self, trial: &mut Trial<'_>) {
        for (pod, _) in &self.pods {
            trial.remove(*pod);
        }
    }

    /// Puts its pods back where they were.
    pub(crate) fn come_back(&self, trial: &mut Trial<'_>) {
        for (pod, node) in &self.pods {
            trial.put_back(*pod, *node);
        }
    }

    /// How much it counts in the sum of priorities: every pod counts for something, however low its priority.
    pub(crate) fn weight(&self) -> i64 {
        let of_one = i64::from(self.priority) - i64::from(i32::MIN);
        of_one * self.pods.len() as i64
    }

    /// Whether it is a whole group.
    pub(crate) fn is_whole(&self) -> bool {
        self.kind == Kind::Whole
    }

    /// The more important of two units is less: sorted, the most important comes first.
    pub(crate) fn by_importance(&self, other: &Self) -> Ordering {
        let key = |unit: &Self| {
            (
                Reverse(unit.priority),
                Reverse(unit.kind),
                Reverse(unit.pods.len()),
                unit.started_ms,
                unit.pods.first().copied(),
            )
        };
        key(self).cmp(&key(other))
    }
}

/// Takes units off their nodes: node by node, so that each is looked up once and not as often as it has victims.
pub(crate) fn remove_all<'u>(trial: &mut Trial<'_>, units: impl Iterator<Item = &'u Unit>) {
    let mut pods: Vec<(NodeId, PodId)> = units.flat_map(|unit| &unit.pods).map(|(pod, node)| (*node, *pod)).collect();
    pods.sort_unstable();
    for (_, pod) in pods {
        trial.remove(pod);
    }
}

/// Every unit below a priority, the most important first. Pods are looked at once, in their order: there are many.
pub(crate) fn below(cluster: &Cluster, priority: i32, rules: Rules) -> Below {
    let mut kinds = Kinds::default();
    let mut herds = herds(cluster, rules);
    let mut units: Vec<Unit> = Vec::new();
    let mut spared = false;
    for (id, pod) in cluster.pods() {
        let herd = pod.group.and_then(|group| herds[group.slot()].as_mut());
        let own = herd.as_ref().map_or(pod.priority, |herd| herd.priority);
        if own >= priority {
            continue;
        }
        spared |= pod.spared_until > rules.now;
        match (herd.filter(|herd| herd.whole), can_be_taken(pod, rules)) {
            (Some(herd), node) => herd.count(id, pod, node),
            (None, Some(node)) => {
                let (kind, started_ms) = (kinds.of(cluster, id, pod), started(pod));
                units.push(Unit { pods: vec![(id, node)], group: pod.group, kind, priority: own, started_ms });
            }
            (None, None) => {}
        }
    }
    for (slot, herd) in herds.into_iter().enumerate() {
        units.extend(herd.and_then(|herd| herd.unit(GroupId(slot as u32))));
    }
    units.sort_unstable_by(Unit::by_importance);
    let total = units.len();
    if rules.keeps_budgets {
        let budgets = Budgets::of(cluster, &units);
        let mut breaks = (0..total).map(|unit| budgets.broken(&[unit]) > 0).collect::<Vec<_>>().into_iter();
        units.retain(|_| breaks.next() == Some(false));
    }
    let withheld = match (units.len() < total, spared) {
        (true, _) => Some(NoPlan::Budgets),
        (false, true) => Some(NoPlan::Spared),
        (false, false) => None,
    };
    Below { units, withheld }
}

/// A group, as far as it matters to who takes its pods.
struct Herd {
    priority: i32,
    /// Its pods are one unit.
    whole: bool,
    /// One of those that would have to go cannot be taken.
    stays: bool,
    pods: Vec<(PodId, NodeId)>,
    started_ms: Millis,
}

/// All groups, by their slots.
fn herds(cluster: &Cluster, rules: Rules) -> Vec<Option<Herd>> {
    let mut herds = Vec::new();
    for (id, group) in cluster.groups() {
        herds.resize_with(id.slot(), || None);
        let (priority, whole) = (cluster.group_priority(id), goes_whole(cluster, Some(id), rules));
        let pods = Vec::with_capacity(if whole { group.members.len() } else { 0 });
        herds.push(Some(Herd { priority, whole, stays: false, pods, started_ms: Millis::MAX }));
    }
    herds
}

impl Herd {
    /// Counts a member of a group that goes whole.
    fn count(&mut self, id: PodId, pod: &Pod, node: Option<NodeId>) {
        match node {
            Some(node) => {
                self.pods.push((id, node));
                self.started_ms = self.started_ms.min(started(pod));
            }
            None => self.stays |= pod.state.node().is_some() && !pod.is_leaving(),
        }
    }

    /// All of the group that is on nodes; nothing if part of it cannot be taken.
    fn unit(self, id: GroupId) -> Option<Unit> {
        let Self { priority, whole, stays, pods, started_ms } = self;
        let goes = whole && !stays && !pods.is_empty();
        goes.then_some(Unit { pods, group: Some(id), kind: Kind::Whole, priority, started_ms })
    }
}

/// What can be taken.
pub(crate) struct Below {
    /// The most important first.
    pub(crate) units: Vec<Unit>,
    /// Why there are not more, if others are below and cannot be taken now.
    pub(crate) withheld: Option<NoPlan>,
}

/// Whether a group is a unit.
pub(crate) fn goes_whole(cluster: &Cluster, group: Option<GroupId>, rules: Rules) -> bool {
    let mode = group.and_then(|group| cluster.group(group).spec.as_ref()).map(|spec| spec.disruption_mode);
    rules.whole_groups && mode == Some(DisruptionMode::Group)
}

/// The node that a pod can be made to leave. One whose bind is on its way cannot be called back.
pub(crate) fn can_be_taken(pod: &Pod, rules: Rules) -> Option<NodeId> {
    match pod.state {
        PodState::Bound(node) if !pod.is_leaving() && !pod.is_static && pod.spared_until <= rules.now => Some(node),
        _ => None,
    }
}

/// When a pod began to run; one that is bound and does not run yet has nothing to lose, and is taken to be new.
fn started(pod: &Pod) -> Millis {
    pod.started_ms.unwrap_or(Millis::MAX)
}

/// What kind of loss single pods are, by group: the youngest members are the surplus.
#[derive(Debug, Default)]
struct Kinds {
    needed: BTreeMap<GroupId, Vec<PodId>>,
}

impl Kinds {
    fn of(&mut self, cluster: &Cluster, id: PodId, pod: &Pod) -> Kind {
        let Some(group) = pod.group.filter(|group| cluster.group(*group).is_gang()) else { return Kind::Single };
        let needed = self.needed.entry(group).or_insert_with(|| needed_members(cluster, group));
        if needed.binary_search(&id).is_ok() { Kind::Needed } else { Kind::Surplus }
    }
}

/// The members without which a gang is below its minimum: the oldest of each subset. If it is below it already, nobody
/// is needed for it more than a pod on its own; still nothing of it is surplus.
fn needed_members(cluster: &Cluster, id: GroupId) -> Vec<PodId> {
    let group = cluster.group(id);
    let mut left: Vec<u32> = group
        .rules
        .iter()
        .zip(&group.census)
        .map(|(rule, census)| rule.min_member.saturating_sub(census.succeeded))
        .collect();
    let mut needed = Vec::new();
    for (_, member) in &group.members {
        let pod = cluster.pod(*member);
        let (Counted::In { subset, .. }, PodState::Bound(_)) = (pod.counted, pod.state) else { continue };
        let left = &mut left[usize::from(subset)];
        if *left > 0 && !pod.is_leaving() {
            *left -= 1;
            needed.push(*member);
        }
    }
    needed.sort_unstable();
    needed
}
