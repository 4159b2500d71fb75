//! The victim units that can be evicted for a preemptor.
//!
//! Pods that are already leaving, not bound yet, or impossible to evict are no victims.

use std::collections::BTreeMap;

use super::budgets::Budgets;
use super::plan::NoPlan;
use super::victim_unit::{VictimKind, VictimUnit};
use crate::cluster::Cluster;
use crate::cluster::pod::{Counted, Pod, PodState};
use crate::model::Millis;
use crate::model::group::DisruptionMode;
use crate::model::ids::{ClassId, GroupId, NodeId, PodId};

/// Which pods may be evicted, and in which units.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VictimRules {
    /// Groups with disruption mode `Group` are units; otherwise every pod is one.
    pub(crate) whole_groups: bool,
    /// Disruption budgets must not be violated.
    pub(crate) respects_budgets: bool,
    pub(crate) now: Millis,
}

/// All units below a priority, most important first. Iterates over all pods only once.
pub(crate) fn candidates_below(cluster: &Cluster, priority: i32, rules: VictimRules) -> VictimCandidates {
    let mut kinds = Kinds::default();
    let mut group_victims = group_victims(cluster, rules);
    let mut units: Vec<VictimUnit> = Vec::new();
    let mut spared = false;
    for (id, pod) in cluster.pods() {
        let victims = pod.group.and_then(|group| group_victims[group.slot()].as_mut());
        let unit = victims.as_ref().filter(|victims| victims.has_units).and_then(|_| cluster.unit_of(pod));
        let own = match &victims {
            Some(victims) if victims.is_tree => cluster.victim_priority(id),
            Some(victims) => victims.priority,
            None => pod.priority,
        };
        if own >= priority {
            if let (Some(victims), Some(unit)) = (victims, unit) {
                // A unit is protected by the highest priority in it.
                victims.part(unit).protected |= pod.state.node().is_some() && !pod.is_leaving();
            }
            continue;
        }
        spared |= pod.not_preempted_before > rules.now;
        match (victims.zip(unit), evictable_node(pod, rules)) {
            (Some((victims, unit)), node) => victims.part(unit).count(id, pod, node, own),
            (None, Some(node)) => {
                let (kind, started_ms) = (kinds.of(cluster, id, pod), started(pod));
                units.push(VictimUnit { pods: vec![(id, node)], group: pod.group, kind, priority: own, started_ms });
            }
            (None, None) => {}
        }
    }
    for (slot, victims) in group_victims.into_iter().enumerate() {
        let parts = victims.into_iter().flat_map(|victims| victims.parts);
        units.extend(parts.filter_map(|(_, part)| part.unit(GroupId(slot as u32))));
    }
    units.sort_unstable_by(VictimUnit::by_importance);
    let total = units.len();
    if rules.respects_budgets {
        let budgets = Budgets::of(cluster, &units);
        let mut breaks = (0..total).map(|unit| budgets.violations(&[unit]) > 0).collect::<Vec<_>>().into_iter();
        units.retain(|_| breaks.next() == Some(false));
    }
    let withheld = match (units.len() < total, spared) {
        (true, _) => Some(NoPlan::Budgets),
        (false, true) => Some(NoPlan::EvictionBackoff),
        (false, false) => None,
    };
    VictimCandidates { units, withheld }
}

/// The victims of a group.
struct GroupVictims {
    priority: i32,
    /// Whether it is a tree: its groups may have priorities of their own.
    is_tree: bool,
    /// Whether some of its pods can only be evicted together.
    has_units: bool,
    /// Those that are evicted together, by the position of their group in the tree; 0 for all of them.
    parts: BTreeMap<usize, PartVictims>,
}

/// Pods of a group that are evicted together.
struct PartVictims {
    /// The highest priority of a pod in it.
    priority: i32,
    /// A pod in it has too high a priority.
    protected: bool,
    /// A pod that would have to be evicted cannot be.
    has_unevictable: bool,
    pods: Vec<(PodId, NodeId)>,
    started_ms: Millis,
}

/// All groups, by slot.
fn group_victims(cluster: &Cluster, rules: VictimRules) -> Vec<Option<GroupVictims>> {
    let mut group_victims = Vec::new();
    for (id, group) in cluster.groups() {
        group_victims.resize_with(id.slot(), || None);
        group_victims.push(Some(GroupVictims {
            priority: cluster.group_priority(id),
            is_tree: group.tree.is_some(),
            has_units: rules.whole_groups && cluster.has_units(id),
            parts: BTreeMap::new(),
        }));
    }
    group_victims
}

impl GroupVictims {
    fn part(&mut self, unit: usize) -> &mut PartVictims {
        self.parts.entry(unit).or_insert_with(|| PartVictims {
            priority: i32::MIN,
            protected: false,
            has_unevictable: false,
            pods: Vec::new(),
            started_ms: Millis::MAX,
        })
    }
}

impl PartVictims {
    /// Adds a pod.
    fn count(&mut self, id: PodId, pod: &Pod, node: Option<NodeId>, priority: i32) {
        self.priority = self.priority.max(priority);
        match node {
            Some(node) => {
                self.pods.push((id, node));
                self.started_ms = self.started_ms.min(started(pod));
            }
            None => self.has_unevictable |= pod.state.node().is_some() && !pod.is_leaving(),
        }
    }

    /// The unit of all of these on nodes; `None` if some of them cannot be evicted.
    fn unit(self, id: GroupId) -> Option<VictimUnit> {
        let Self { priority, protected, has_unevictable, pods, started_ms } = self;
        let is_unit = !protected && !has_unevictable && !pods.is_empty();
        is_unit.then_some(VictimUnit { pods, group: Some(id), kind: VictimKind::Whole, priority, started_ms })
    }
}

/// The possible victims.
pub(crate) struct VictimCandidates {
    /// Most important first.
    pub(crate) units: Vec<VictimUnit>,
    /// Why some pods of lower priority cannot be evicted now, if there are any.
    pub(crate) withheld: Option<NoPlan>,
}

/// Whether a group is a unit as a whole.
pub(crate) fn is_evicted_whole(cluster: &Cluster, group: Option<GroupId>, rules: VictimRules) -> bool {
    let mode = group.and_then(|group| cluster.group(group).definition.last()).map(|spec| spec.disruption_mode);
    rules.whole_groups && mode == Some(DisruptionMode::Group)
}

/// The node of a pod that can be evicted. A pod whose bind is in progress cannot be.
fn evictable_node(pod: &Pod, rules: VictimRules) -> Option<NodeId> {
    match pod.state {
        PodState::Bound(node) if !pod.is_leaving() && !pod.is_static && pod.not_preempted_before <= rules.now => {
            Some(node)
        }
        _ => None,
    }
}

/// When a pod started; a bound pod that does not run yet has nothing to lose and counts as newest.
fn started(pod: &Pod) -> Millis {
    pod.started_ms.unwrap_or(Millis::MAX)
}

/// The kinds of single pods, by group: the youngest members are surplus.
#[derive(Debug, Default)]
struct Kinds {
    needed: BTreeMap<GroupId, Vec<PodId>>,
}

impl Kinds {
    fn of(&mut self, cluster: &Cluster, id: PodId, pod: &Pod) -> VictimKind {
        let Some(group) = pod.group.filter(|group| cluster.group(*group).is_gang()) else { return VictimKind::Single };
        let needed = self.needed.entry(group).or_insert_with(|| needed_members(cluster, group));
        if needed.binary_search(&id).is_ok() { VictimKind::Needed } else { VictimKind::Surplus }
    }
}

/// The members that a gang needs for its minimum: the oldest of each subset. If the gang is already below its minimum,
/// all members are needed.
fn needed_members(cluster: &Cluster, id: GroupId) -> Vec<PodId> {
    let group = cluster.group(id);
    let mut left: Vec<u32> = group
        .rules
        .iter()
        .zip(&group.member_counts)
        .map(|(rule, counts)| rule.min_member.saturating_sub(counts.succeeded))
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

/// Whether a pod of the class has required affinity to a pod of the unit: it may only fit while the unit stays.
pub(crate) fn attracts(cluster: &Cluster, class: ClassId, unit: &VictimUnit) -> bool {
    let affinity = &cluster.class(class).rules.required_affinity;
    unit.pods.iter().any(|(pod, _)| {
        let class = cluster.class(cluster.pod(*pod).class);
        affinity.iter().any(|counts| cluster.topology.is_counted_in(class, *counts))
    })
}
