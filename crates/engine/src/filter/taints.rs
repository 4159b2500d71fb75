//! The node has a `NoSchedule` or `NoExecute` taint that the pod does not tolerate.

use super::{Filter, Reason, StaticFilter};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::Taints });

fn passes(class: &PodClass, node: &Node) -> bool {
    node.tolerated_by(&class.spec.tolerations)
}
