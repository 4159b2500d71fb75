//! The pod names another node.

use super::{Filter, Reason, StaticFilter};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::NodeName });

fn passes(class: &PodClass, node: &Node) -> bool {
    class.spec.node_name.as_deref().is_none_or(|name| name == &*node.name)
}
