//! The pod insists on one node.

use super::{Filter, Fixed, Reason};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Fixed(Fixed { passes, reason: Reason::NodeName });

fn passes(class: &PodClass, node: &Node) -> bool {
    class.spec.node_name.as_deref().is_none_or(|name| name == &*node.name)
}
