//! The node does not match the node affinity of the scheduler configuration (`addedAffinity`).

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::EnforcedAffinity });

fn passes(class: &PodClass, node: &Node) -> bool {
    let terms = class.spec.enforced_terms.as_ref();
    terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
}
