//! The node has a `NoSchedule` or `NoExecute` taint that the pod does not tolerate.

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::Taints });

fn passes(class: &PodClass, node: &Node) -> bool {
    node.tolerated_by(&class.spec.tolerations)
}
