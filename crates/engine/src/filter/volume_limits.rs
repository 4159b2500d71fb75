//! The node has as many volumes of a CSI driver attached as it can, or lacks a driver that its pods need.

use super::kinds::{Filter, LoadFilter, Reason};
use super::view::View;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;

pub(super) const FILTER: Filter = Filter::Load(LoadFilter { passes, copies_max, reasons });

fn passes(class: &PodClass, node: &Node, view: &View<'_>) -> bool {
    copies_max(class, node, view) > 0
}

fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    let Some(demand) = class.storage.as_deref().filter(|demand| demand.attaches()) else { return i64::MAX };
    let storage = &view.cluster.storage;
    if storage.missing_driver(demand, node).is_some() {
        return 0;
    }
    let is_on_node = |claim| view.cluster.is_used_on(claim, view.node);
    storage.attachable_copies(demand, node, view.load.attached.as_deref(), view.without_pods(), &is_on_node)
}

fn reasons(class: &PodClass, node: &Node, view: &View<'_>, reasons: &mut Vec<Reason>) {
    let Some(demand) = class.storage.as_deref().filter(|demand| demand.attaches()) else { return };
    if let Some(driver) = view.cluster.storage.missing_driver(demand, node) {
        reasons.push(Reason::DriverMissing(driver.clone()));
    } else if copies_max(class, node, view) < 1 {
        reasons.push(Reason::VolumeLimit);
    }
}
