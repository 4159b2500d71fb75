//! The number of `PreferNoSchedule` taints that the pod does not tolerate: fewer are better.

use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::plugin::SCORE_MAX;
use crate::model::taint::{Effect, tolerated};

pub(super) fn raw(class: &PodClass, node: &Node) -> i64 {
    let soft = node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    soft.filter(|taint| !tolerated(&class.spec.tolerations, taint)).count() as i64
}

pub(super) fn normalized(raw: i64, best: i64) -> i64 {
    if best == 0 { SCORE_MAX } else { SCORE_MAX - SCORE_MAX * raw / best }
}
