//! A host port of the pod is already in use on the node.

use super::kinds::{Filter, LoadFilter, Reason};
use super::view::View;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Load(LoadFilter { passes, copies_max, reasons });

fn passes(class: &PodClass, _: &Node, view: &View<'_>) -> bool {
    let taken = &view.load.ports;
    class.spec.host_ports.iter().all(|port| !taken.iter().any(|other| port.conflicts_with(other)))
}

/// Two pods with the same host port always conflict.
fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    if class.spec.host_ports.is_empty() { i64::MAX } else { i64::from(passes(class, node, view)) }
}

fn reasons(class: &PodClass, node: &Node, view: &View<'_>, reasons: &mut Vec<Reason>) {
    if !passes(class, node, view) {
        reasons.push(Reason::Ports);
    }
}
