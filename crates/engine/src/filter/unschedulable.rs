//! The node is cordoned, and the pod does not tolerate the taint that stands for it.

use super::{Filter, Fixed, Reason};
use crate::cluster::node::Node;
use crate::model::class::PodClass;
use crate::model::taint::{Effect, Taint, UNSCHEDULABLE_KEY, tolerated};

pub(super) const FILTER: Filter = Filter::Fixed(Fixed { passes, reason: Reason::Unschedulable });

fn passes(class: &PodClass, node: &Node) -> bool {
    if !node.unschedulable {
        return true;
    }
    let cordon = Taint { key: UNSCHEDULABLE_KEY.to_owned(), value: String::new(), effect: Effect::NoSchedule };
    tolerated(&class.spec.tolerations, &cordon)
}
