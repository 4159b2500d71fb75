//! The node does not declare a feature that the pod needs.

use super::{Filter, Reason, StaticFilter};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::Features });

fn passes(class: &PodClass, node: &Node) -> bool {
    class.spec.features.is_subset(&node.features)
}
