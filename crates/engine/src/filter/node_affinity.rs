//! The node does not match the pod's node selector or its required node affinity.

use super::{Filter, Fixed, Reason};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Fixed(Fixed { passes, reason: Reason::NodeAffinity });

fn passes(class: &PodClass, node: &Node) -> bool {
    let selected = class.spec.node_selector.iter().all(|(key, value)| node.labels.get(key) == Some(value));
    selected
        && class
            .spec
            .required_terms
            .as_ref()
            .is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
}
