//! The node does not declare a feature that the pod needs.

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::Features });

fn passes(class: &PodClass, node: &Node) -> bool {
    class.spec.features.is_subset(&node.features)
}
