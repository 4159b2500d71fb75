//! The pod names another node.

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::NodeName });

fn passes(class: &PodClass, node: &Node) -> bool {
    class.spec.node_name.as_deref().is_none_or(|name| name == &*node.name)
}
