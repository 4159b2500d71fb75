//! Rejects nodes that are reserved for a group of the same or a higher priority that has been pending too long.

use super::kinds::{Filter, LoadFilter, Reason};
use super::view::View;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Load(LoadFilter { passes, copies_max, reasons });

fn passes(_: &PodClass, _: &Node, view: &View<'_>) -> bool {
    !view.blocked_by_reservation
}

fn copies_max(_: &PodClass, _: &Node, view: &View<'_>) -> i64 {
    if view.blocked_by_reservation { 0 } else { i64::MAX }
}

fn reasons(_: &PodClass, _: &Node, view: &View<'_>, reasons: &mut Vec<Reason>) {
    if view.blocked_by_reservation {
        reasons.push(Reason::Reserved);
    }
}
