//! The sum of the weights of matching preferred node affinity terms.

use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::plugin::SCORE_MAX;

pub(super) fn raw(class: &PodClass, node: &Node) -> i64 {
    let terms = class.spec.preferred_terms.iter();
    terms
        .filter(|preferred| preferred.term.matches(&node.name, &node.labels))
        .map(|preferred| i64::from(preferred.weight))
        .sum()
}

pub(super) fn normalized(raw: i64, best: i64) -> i64 {
    if best == 0 { 0 } else { SCORE_MAX * raw / best }
}
