//! A disk that the pod names is used on the node, or another pod uses a claim that only one pod may use.

use super::kinds::{Filter, LoadFilter, Reason};
use super::view::View;
use crate::cluster::class::PodClass;
use crate::cluster::node::Node;
use crate::model::storage::NamedDisk;

pub(super) const FILTER: Filter = Filter::Load(LoadFilter { passes, copies_max, reasons });

fn conflict(one: &NamedDisk, other: &NamedDisk) -> bool {
    !(one.shared_by_readers && other.shared_by_readers) && one.ids.iter().any(|id| other.ids.contains(id))
}

fn has_free_disks(class: &PodClass, view: &View<'_>) -> bool {
    let used = &view.load.disks;
    !class.spec.disks.iter().any(|disk| used.iter().any(|other| conflict(disk, other)))
}

fn has_free_claims(class: &PodClass, view: &View<'_>) -> bool {
    let exclusive = class.storage.as_deref().map_or(&[][..], |demand| &demand.exclusive[..]);
    view.without_pods() || !exclusive.iter().any(|claim| view.cluster.storage.is_placed(*claim))
}

fn passes(class: &PodClass, _: &Node, view: &View<'_>) -> bool {
    has_free_disks(class, view) && has_free_claims(class, view)
}

fn copies_max(class: &PodClass, node: &Node, view: &View<'_>) -> i64 {
    let alone = class.spec.disks.iter().any(|disk| conflict(disk, disk))
        || class.storage.as_deref().is_some_and(|demand| !demand.exclusive.is_empty());
    match passes(class, node, view) {
        false => 0,
        true if alone => 1,
        true => i64::MAX,
    }
}

fn reasons(class: &PodClass, _: &Node, view: &View<'_>, reasons: &mut Vec<Reason>) {
    if !has_free_disks(class, view) {
        reasons.push(Reason::Disk);
    }
    if !has_free_claims(class, view) {
        reasons.push(Reason::ReadWriteOncePod);
    }
}
