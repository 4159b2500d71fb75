//! The node has a taint that keeps pods away, and the pod does not tolerate it.

use super::{Filter, Fixed, Reason};
use crate::cluster::node::Node;
use crate::model::class::PodClass;
use crate::model::taint::{Effect, tolerated};

pub(super) const FILTER: Filter = Filter::Fixed(Fixed { passes, reason: Reason::Taints });

fn passes(class: &PodClass, node: &Node) -> bool {
    let mut keeping_away = node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
    keeping_away.all(|taint| tolerated(&class.spec.tolerations, taint))
}
