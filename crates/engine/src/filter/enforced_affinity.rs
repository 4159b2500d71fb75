//! The node does not match the affinity that whoever runs the scheduler asks for.

use super::{Filter, Fixed, Reason};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Fixed(Fixed { passes, reason: Reason::EnforcedAffinity });

fn passes(class: &PodClass, node: &Node) -> bool {
    let terms = class.spec.enforced_terms.as_ref();
    terms.is_none_or(|terms| terms.iter().any(|term| term.matches(&node.name, &node.labels)))
}
