//! The node does not match the pod's node selector or its required node affinity.

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::NodeAffinity });

fn passes(class: &PodClass, node: &Node) -> bool {
    node.matches_affinity(&class.spec.node_selector, class.spec.required_terms.as_deref())
}
