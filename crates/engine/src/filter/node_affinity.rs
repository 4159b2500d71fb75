//! The node does not match the pod's node selector or its required node affinity.

use super::{Filter, Fixed, Reason};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Fixed(Fixed { passes, reason: Reason::NodeAffinity });

fn passes(class: &PodClass, node: &Node) -> bool {
    node.suits(&class.spec.node_selector, class.spec.required_terms.as_deref())
}
