//! A preemption plan, or the reason why there is none.

use std::sync::Arc;

use super::cost::{Cost, CostModel};
use super::victim_unit::VictimUnit;
use crate::cluster::Cluster;
use crate::model::group::GroupKey;
use crate::model::ids::{NodeId, PodId};
use crate::model::pod::PodName;

/// The possible victims and their cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlanInput<'o> {
    /// Most important first.
    pub(crate) units: &'o [VictimUnit],
    /// The units whose eviction violates a disruption budget, if all units are evicted.
    pub(crate) violating: &'o [bool],
    pub(crate) costs: &'o CostModel,
}

/// Where pods are placed and which victims are evicted for them.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// The nodes of the pending pods.
    pub(crate) places: Vec<(PodId, NodeId)>,
    /// The victims; empty if it is enough to wait for pods that are already terminating.
    pub(crate) units: Vec<VictimUnit>,
    pub(crate) cost: Cost,
    /// No plan is cheaper.
    pub(crate) proven: bool,
    /// Every plan evicts at least so many groups whole; zero if that is not known.
    pub(crate) groups_at_least: u32,
    /// The lowest priority among the victims for the minimum of a group.
    pub(crate) lowest: Option<i32>,
}

impl Plan {
    /// The plan with API names instead of ids.
    pub(crate) fn summary(&self, cluster: &Cluster) -> PlanSummary {
        let name = |pod: &PodId| cluster.pod(*pod).id.clone();
        let places = self.places.iter().map(|(pod, node)| (name(pod), cluster.node(*node).name.clone())).collect();
        let victims = self.units.iter().map(|unit| Victim {
            group: unit.group.map(|group| cluster.group(group).key.clone()),
            whole: unit.is_whole_group(),
            pods: unit.pods.iter().map(|(pod, _)| name(pod)).collect(),
        });
        let (cost, proven, groups_at_least) = (self.cost.clone(), self.proven, self.groups_at_least);
        PlanSummary { places, victims: victims.collect(), cost, proven, groups_at_least }
    }
}

/// A plan with API names instead of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanSummary {
    /// The nodes of the pending pods.
    pub places: Vec<(Arc<PodName>, Arc<str>)>,
    /// The victims.
    pub victims: Vec<Victim>,
    /// The cost.
    pub cost: Cost,
    /// No plan is cheaper.
    pub proven: bool,
    /// Every plan evicts at least so many groups whole; zero if that is not known.
    pub groups_at_least: u32,
}

/// A victim unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Victim {
    /// Its group.
    pub group: Option<GroupKey>,
    /// Whether the whole group is evicted.
    pub whole: bool,
    /// The pods.
    pub pods: Vec<Arc<PodName>>,
}

/// Why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// No node has a victim of lower priority.
    NoVictims,
    /// Evicting all victims would not free enough room.
    NotEnough,
    /// No placement was found even without all victims; there may be one.
    NotFound,
    /// Every plan that was found violates a disruption budget.
    Budgets,
    /// There is too little room while pods whose eviction was refused are not retried.
    EvictionBackoff,
    /// The pods would fit, but not the `min_resources` of their group.
    MinResources,
    /// Pods that come later would not fit beside the group.
    LaterPods,
}

impl NoPlan {
    /// The reason when evicting all available victims is not enough.
    pub(super) fn of(no_victims: bool, withheld: Option<Self>) -> Self {
        withheld.unwrap_or(if no_victims { Self::NoVictims } else { Self::NotEnough })
    }
}
