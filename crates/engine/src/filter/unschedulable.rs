//! The node is cordoned and the pod does not tolerate the corresponding taint.

use super::kinds::{Filter, Reason, StaticFilter};
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::taint::{Effect, Taint, UNSCHEDULABLE_KEY, tolerated};

pub(super) const FILTER: Filter = Filter::Static(StaticFilter { passes, reason: Reason::Unschedulable });

fn passes(class: &PodClass, node: &Node) -> bool {
    if !node.unschedulable {
        return true;
    }
    let cordon = Taint { key: UNSCHEDULABLE_KEY.to_owned(), value: String::new(), effect: Effect::NoSchedule };
    tolerated(&class.spec.tolerations, &cordon)
}
