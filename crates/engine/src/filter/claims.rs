//! The node is claimed for a group that has waited too long, and whoever asks is not more important.

use super::{Filter, Moving, Reason, View};
use crate::cluster::node::Node;
use crate::model::class::PodClass;

pub(super) const FILTER: Filter = Filter::Moving(Moving { passes, copies_max, reasons });

fn passes(_: &PodClass, _: &Node, view: &View<'_>) -> bool {
    !view.claimed
}

fn copies_max(_: &PodClass, _: &Node, view: &View<'_>) -> i64 {
    if view.claimed { 0 } else { i64::MAX }
}

fn reasons(_: &PodClass, _: &Node, view: &View<'_>, reasons: &mut Vec<Reason>) {
    if view.claimed {
        reasons.push(Reason::Claimed);
    }
}
