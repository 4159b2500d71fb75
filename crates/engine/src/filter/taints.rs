//! The node has a taint that keeps pods away, and the pod does not tolerate it.

use super::{Filter, Fixed, Reason};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Fixed(Fixed { passes, reason: Reason::Taints });

fn passes(class: &PodClass, node: &Node) -> bool {
    node.lets_in(&class.spec.tolerations)
}
